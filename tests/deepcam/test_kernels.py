"""The depthwise convolutions against torch's: on a GPU, or where there is none through Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F

from common.candidate import try_candidates
from deepcam.model import ModelConfig, build_model
from tests.hopper import compile_for_amd, resources
from tests.interpreter import DEVICE, needs_gpu, needs_triton, not_interpreted, run_in_the_interpreter

pytestmark = needs_triton


@not_interpreted
@pytest.mark.exhaustive
def test_all_others_pass_in_the_interpreter():
    """The interpreter calls numpy for each operation: it takes some minutes, half of them for the network."""
    run_in_the_interpreter(__file__)


def random(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(DEVICE, dtype)


def by_torch(x_BHWC, weight, affine_2C, stride, dilation, relu):
    if affine_2C is not None:
        x_BHWC = x_BHWC * affine_2C[0] + affine_2C[1]
    x_BCHW = (x_BHWC.relu() if relu else x_BHWC).permute(0, 3, 1, 2)
    return F.conv2d(x_BCHW, weight, None, stride, dilation, dilation, len(weight)).permute(0, 2, 3, 1)


CASES = [
    pytest.param((2, 6, 9, 24), 1, 1, id="channels fill no tile"),
    pytest.param((1, 26, 9, 72), 1, 1, id="several programs on each axis"),
    pytest.param((1, 7, 12, 40), 1, 2, id="dilated"),
    pytest.param((1, 5, 3, 8), 1, 4, id="dilated wider than the rows"),
    pytest.param((1, 5, 71, 8), 2, 1, id="stride, odd sides"),
    pytest.param((8, 3, 4, 8), 2, 1, id="stride, eight inputs"),
    pytest.param((0, 4, 4, 8), 1, 1, id="no input"),
]


@needs_gpu
@pytest.mark.parametrize(("shape", "stride", "dilation"), CASES)
@pytest.mark.parametrize("prologue", ["none", "affine", "affine, relu"])
def test_convolution_and_gradients_are_those_of_torch(shape, stride, dilation, prologue):
    from deepcam.kernels import convolve_depthwise

    inputs = [random(*shape), random(shape[3], 1, 3, 3, seed=2).contiguous(memory_format=torch.channels_last)]
    if prologue != "none":
        inputs.append(random(2, shape[3], seed=3))
    inputs = [tensor.requires_grad_() for tensor in inputs]
    operands = (*inputs, *[None] * (3 - len(inputs)), stride, dilation, prologue.endswith("relu"))
    results = []
    for convolve in (by_torch, convolve_depthwise, convolve_depthwise):
        y_BHWC = convolve(*operands)
        results.append((y_BHWC, *torch.autograd.grad(y_BHWC, inputs, random(*y_BHWC.shape, seed=4))))
    for expected, ours, again in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
        assert torch.equal(ours, again)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_sums_are_float32(dtype):
    from deepcam.kernels import convolve_depthwise

    x_BHWC, gradient_BHWC = (random(1, 40, 9, 8, seed=seed, dtype=dtype) for seed in (1, 2))
    weight, affine_2C = random(8, 1, 3, 3, dtype=torch.float32), random(2, 8, dtype=torch.float32)
    results = []
    for convolve, kind in ((by_torch, torch.float64), (convolve_depthwise, dtype)):
        wide = torch.promote_types(kind, torch.float32)
        inputs = [tensor.to(kind) for tensor in (x_BHWC,)] + [tensor.to(wide) for tensor in (weight, affine_2C)]
        inputs = [tensor.detach().requires_grad_() for tensor in inputs]
        y_BHWC = convolve(*inputs, 1, 1, True)
        results.append((y_BHWC, *torch.autograd.grad(y_BHWC, inputs, gradient_BHWC.to(kind))))
    for number, (expected, ours) in enumerate(zip(*results, strict=True)):
        within = 1e-3 if dtype == torch.float16 and number < 2 else 1e-6
        assert (ours.double() - expected).abs().max() <= within * expected.abs().max()


@needs_gpu
def test_what_is_not_a_number_is_passed_on():
    from deepcam.kernels import convolve_depthwise

    x_BHWC, weight, affine_2C = random(1, 3, 3, 8), random(8, 1, 3, 3), random(2, 8)
    x_BHWC[0, 1, 1, 0] = torch.nan
    y_BHWC = convolve_depthwise(x_BHWC, weight, affine_2C, 1, 1, True)
    assert y_BHWC[..., 0].isnan().all() and y_BHWC[..., 1:].isfinite().all()


@needs_gpu
def test_the_compiler_takes_the_operation_as_it_is():
    from deepcam.kernels import convolve_depthwise

    operands = [tensor.requires_grad_() for tensor in (random(1, 3, 3, 8), random(8, 1, 3, 3), random(2, 8))]
    torch.library.opcheck(convolve_depthwise, (*operands, 2, 1, True))
    compiled = torch.compile(convolve_depthwise, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(*operands, 2, 1, True), convolve_depthwise(*operands, 2, 1, True))


@needs_gpu
def test_the_network_is_the_same_with_its_names_and_running_statistics():
    config = ModelConfig(width=0.02, middle_blocks=0, aspp_rates=(1, 2), output_stride=8)
    x_BHWC = random(2, 16, 32, 16).sigmoid()
    results = []
    for names in ((), ("deepcam-depthwise",)):
        model = build_model(config, 16, seed=1).double().to(DEVICE)
        with try_candidates(*names):
            y_BKHW = model(x_BHWC)
            gradients = torch.autograd.grad(y_BKHW.square().sum(), list(model.parameters()))
            with torch.inference_mode():
                results.append((y_BKHW, *gradients, model.eval()(x_BHWC), *model.state_dict().values()))
    for expected, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-7, atol=1e-9)


def compile_kernel(kernel, channels, stride, dilation, relu, target, dtype=torch.bfloat16):
    """Compile a kernel for one of the network's layers, with an affine prologue unless relu is None."""
    from deepcam import kernels

    data, wide = torch.empty(8, 96, 144, channels, dtype=dtype, device="meta"), torch.empty(1, device="meta")
    _, sizes = kernels._plan(data, None if relu is None else wide, stride, dilation, bool(relu))
    options = {"warps": sizes.pop("num_warps"), "stages": sizes.pop("num_stages")}
    arguments = {"x": data, "weight": wide, "affine": wide, "H": 96, "W": 144, **sizes}
    arguments |= {"y": data, "gradient": data, "by_x": data, "shares": wide}
    arguments = {parameter.name: arguments[parameter.name] for parameter in kernel.params}
    if target == "gfx942":
        return compile_for_amd(kernel, arguments, **options)
    return resources(kernel, arguments, **options, target=target)


@not_interpreted
@pytest.mark.parametrize("name", ["_convolve_kernel", "_differentiate_kernel"])
@pytest.mark.parametrize(
    ("channels", "stride", "dilation", "relu", "target"),
    [
        (728, 1, 1, True, "sm_90a"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                (64, 1, 1, None, "sm_90a"),
                (128, 2, 1, False, "sm_90a"),
                (1536, 1, 2, True, "sm_90a"),
                (728, 1, 1, True, "sm_80"),
                (128, 2, 1, False, "sm_80"),
                (728, 1, 1, True, "gfx942"),
                (128, 2, 1, False, "gfx942"),
            )
        ),
    ],
)
def test_kernels_compile_and_spill_nothing(name, channels, stride, dilation, relu, target):
    from deepcam import kernels

    made = compile_kernel(getattr(kernels, name), channels, stride, dilation, relu, target)
    if target != "gfx942":
        assert "LDG.E.64" in made.sass and "STG.E.64" in made.sass, "not four values at a time"
