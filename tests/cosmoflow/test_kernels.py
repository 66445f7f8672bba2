"""The Triton kernels against torch's own operations: on a GPU, or where there is none through Triton's interpreter.

Small whole numbers make sums exact and many values equal, so that the one which gets the gradient is seen.
"""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from common.candidate import try_candidates
from common.data.prefetch import TensorBatch
from common.precision import Precision, PrecisionConfig
from common.ranks.dist import make_single_dist
from common.training.optim import OptimConfig
from common.training.optim import build as build_optimizer
from common.training.step import Step
from cosmoflow.data.dataset import DataConfig
from cosmoflow.model import SLOPE, ModelConfig, apply_block, build_model
from cosmoflow.train import CosmoFlow
from tests.hopper import compile_for_amd, resources
from tests.interpreter import DEVICE, INTERPRETED, needs_gpu, needs_triton, not_interpreted, run_in_the_interpreter

pytestmark = needs_triton
FIRST_BLOCK = ["forward", "forward that arranges weights", "backward", "backward by halves"]
WITHIN = {torch.float16: 1e-3, torch.float32: 1e-5, torch.float64: 1e-12}


@not_interpreted
@pytest.mark.exhaustive
def test_all_others_pass_in_the_interpreter():
    run_in_the_interpreter(__file__)


def whole(*shape, least=-2, most=2, seed=1, dtype=torch.float64):
    values = torch.randint(least, most + 1, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, dtype)


def results(function, inputs, gradient):
    """Return what the function makes of the inputs, and their gradients, None for whole numbers."""
    inputs = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in inputs]
    made = function(*inputs)
    made.backward(gradient.to(made.dtype))
    return [made.detach(), *(tensor.grad for tensor in inputs if tensor.requires_grad)]


def by_torch(x, bias):
    return F.leaky_relu(F.max_pool3d(x + bias[:, None, None, None], 2), SLOPE)


def equal(found, expected, within=1e-12):
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=within, atol=within, equal_nan=True)


@needs_gpu
@pytest.mark.parametrize(
    "shape", [(2, 5, 6, 9, 7), (1, 130, 2, 4, 2), (3, 32, 8, 6, 4)], ids=["odd", "channels in tiles", "even"]
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_pooling_and_its_gradients_equal_those_of_torch(shape, layout):
    from cosmoflow.kernels import pool_and_activate

    x = whole(*shape).to(memory_format=layout).requires_grad_()
    bias = whole(shape[1], least=-1, most=1, seed=2).requires_grad_()
    with torch.no_grad():
        x[0, 0, 0, 0, 0] = x[0, 1, 1, 1, :2] = torch.nan
    gradient = whole(*shape[:2], *(side // 2 for side in shape[2:]), least=1, most=9, seed=3)
    expected = results(by_torch, (x, bias), gradient)
    found = results(lambda x, bias: pool_and_activate(x, bias, SLOPE), (x, bias), gradient)
    assert found[0].is_contiguous(memory_format=torch.channels_last_3d)
    equal(found, expected)


@needs_gpu
def test_pooling_of_bfloat16_rounds_once():
    from cosmoflow.kernels import pool_and_activate

    x = torch.randn(1, 8, 4, 4, 4, generator=torch.Generator().manual_seed(1)).to(DEVICE, torch.bfloat16)
    bias = torch.linspace(-1, 1, 8, device=DEVICE)
    found = pool_and_activate(x, bias, SLOPE)
    assert found.dtype == torch.bfloat16
    expected = by_torch(x.double(), bias.double())
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=0)  # the interpreter cuts off


def convolved(x, weight, bias):
    return by_torch(F.conv3d(x, weight, padding="same"), bias)


@needs_gpu
@pytest.mark.parametrize(
    ("shape", "shares"), [((2, 4, 5, 6, 7), 2), ((1, 4, 2, 3, 132), 128)], ids=["odd", "rows in parts"]
)
def test_the_first_block_and_its_gradients_equal_those_of_torch(monkeypatch, shape, shares):
    from cosmoflow import kernels

    monkeypatch.setattr(kernels, "SHARES", shares)
    x, weight = whole(*shape, least=0), whole(*kernels.FIRST_WEIGHT, least=-1, most=1, seed=2).requires_grad_()
    bias = whole(32, seed=3).requires_grad_()
    gradient = whole(shape[0], 32, *(side // 2 for side in shape[2:]), least=1, most=9, seed=4)
    expected = results(convolved, (x, weight, bias), gradient)
    # Triton has no large products of float64 for an H100, and takes minutes to compile those of float32.
    dtype = torch.float16 if DEVICE == "cuda" else torch.float64
    found = results(lambda *inputs: kernels.first_block(*inputs, SLOPE), (x.to(dtype), weight, bias), gradient)
    assert found[0].is_contiguous(memory_format=torch.channels_last_3d) and found[0].dtype == dtype
    equal(found, expected, WITHIN[dtype])


@needs_gpu
@pytest.mark.parametrize(
    ("shape", "slope"),
    [((1, 5, 6, 7), SLOPE), ((8, 2, 2, 38), SLOPE), ((0, 4, 4, 4), SLOPE), ((1, 2, 4, 138), 0.25)],
    ids=["odd", "8 samples", "empty", "rows in other parts"],
)
def test_candidates_for_the_first_block_equal_it_to_the_bit(monkeypatch, shape, slope):
    """Sums of whole numbers times rounded ones are exact in any order; those of the bias with a slope of 0.25."""
    from cosmoflow import kernels

    monkeypatch.setattr(kernels, "SHARES", 3)
    x, weight = whole(shape[0], 4, *shape[1:]), whole(*kernels.FIRST_WEIGHT, seed=2) / 3
    gradient = whole(shape[0], 32, *(side // 2 for side in shape[1:]), least=-3, most=3, seed=4)
    inputs = x.half(), weight.float().requires_grad_(), whole(32, seed=3).float().requires_grad_()
    found = []
    for names in ((), ("cosmoflow-halves",), ("cosmoflow-arrange",)):
        with try_candidates(*names):
            found.append(results(lambda *inputs: kernels.first_block(*inputs, slope), inputs, gradient))
    assert found[0][1].any() == found[0][2].any() == (shape[0] > 0)
    for candidate in found[1:]:
        assert all(map(torch.equal, candidate, found[0]))


@needs_gpu
@pytest.mark.parametrize("kernels", ["triton", "fused"])
@pytest.mark.parametrize("samples", [0, 2])
def test_loss_and_gradients_of_the_network_equal_those_with_torch(monkeypatch, kernels, samples):
    monkeypatch.setattr(
        "cosmoflow.kernels.fits_first_block", lambda x, weight: weight.shape[1] == 4
    )  # in wider formats, too
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    dtype = torch.float32 if kernels == "fused" and DEVICE == "cuda" else torch.float64  # see above
    shape, config = (4, 4, 8, 4), ModelConfig(conv_layers=2, fc1=16, fc2=8, dropout=0.0)
    x = torch.rand(samples, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(DEVICE)
    gradients = []
    for name, format in (("torch", torch.float64), (kernels, dtype)):
        model = build_model(replace(config, kernels=name), shape, seed=1).to(DEVICE, format)
        loss = model(x.to(format)).square().sum()
        loss.backward()
        gradients.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    for theirs, ours in zip(*gradients, strict=True):
        assert theirs.any() == (samples > 0) and (ours - theirs).abs().max() <= WITHIN[dtype] * theirs.abs().max()


@needs_gpu
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("kernels", ["triton", "fused"])
def test_a_block_under_autocast_computes_in_its_format(kernels):
    """In float16: the interpreter multiplies no bfloat16."""
    x = torch.rand(1, 4, 4, 4, 4, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    for kernel_size in (3, 2):
        conv = torch.nn.Conv3d(4, 32, kernel_size, padding="same", device=DEVICE)
        with torch.autocast(DEVICE, torch.float16):
            found = apply_block(conv, x, kernels)
        assert found.dtype == torch.float16
        torch.testing.assert_close(found.float(), apply_block(conv, x, "torch"), rtol=0.004, atol=0.004)
        found.float().sum().backward()
        assert conv.weight.grad.dtype == conv.bias.grad.dtype == torch.float32 and conv.weight.grad.any()


def train_fused(*names, kernels="fused", dtype="fp16"):
    """Make 5 steps with 32 channels on the CPU, with candidates; return the loss of each, and the weights."""
    config = ModelConfig(conv_layers=2, fc1=16, fc2=8, dropout=0.0, kernels=kernels)
    shape = (4, 4, 32, 4)  # in the interpreter a row takes the same time, however long it is
    problem = CosmoFlow.__new__(CosmoFlow)  # without data
    data = DataConfig(Path(), sample_shape=shape)
    problem.config = SimpleNamespace(data=data, model=config, precision=PrecisionConfig(dtype))
    problem.dist, problem.recorder, problem.has_own_network = make_single_dist(), None, False
    problem.model = build_model(config, shape, seed=1)
    generator = torch.Generator().manual_seed(2)
    labels = torch.rand(2, 4, generator=generator)
    counts = torch.poisson(10 * labels[:, None, None, None].expand(2, *shape), generator).short()
    batch = problem.prepared(TensorBatch(counts, labels, np.arange(2), 0.0))
    precision = Precision(problem.config.precision, problem.dist.device)
    with try_candidates(*names):
        optimizer = build_optimizer(OptimConfig(momentum=0.9), problem.model.parameters(), torch.tensor(0.0))
        step = Step(problem, optimizer, precision, problem.dist)
        summed = []
        for _ in range(5):
            step(iter([batch]), 1, 2.0, 0.001)
            summed.append(step.summed.item())
    return np.diff(summed, prepend=0), [parameter.detach() for parameter in problem.model.parameters()]


@pytest.mark.exhaustive
@pytest.mark.skipif(not INTERPRETED, reason="with a device bench/gpu.py trains to the target")
def test_a_training_with_32_channels_learns_as_with_torch():
    """A minute, as four trainings are interpreted."""
    losses, weights = train_fused()
    assert losses[-1] < 0.2 * losses[0]
    np.testing.assert_allclose(losses, train_fused(kernels="torch", dtype="fp32")[0], rtol=0.02)
    exact = ("cosmoflow-arrange", "cosmoflow-copies")
    again, same = train_fused(*exact, "fused-sgd")
    assert (again == losses).all() and all(map(torch.equal, same, weights))
    (first, weights), (second, same) = (train_fused(*exact, "cosmoflow-halves") for _ in range(2))
    assert (first == second).all() and all(map(torch.equal, same, weights))
    np.testing.assert_allclose(first, losses, rtol=1e-3)


def test_the_first_block_is_fused_where_its_kernel_fits():
    from cosmoflow.kernels import FIRST_WEIGHT, fits_first_block

    x, weight = torch.empty(1, 4, 8, 8, 8), torch.empty(FIRST_WEIGHT)
    assert (
        fits_first_block(x.bfloat16(), weight)
        and fits_first_block(x.half(), weight)
        and not fits_first_block(x, weight)
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert fits_first_block(x, weight) and not fits_first_block(x.requires_grad_(), weight)
    assert not fits_first_block(x.bfloat16().detach(), weight[:8]) and not fits_first_block(
        x.bfloat16().detach(), weight[..., :2, :2, :2]
    )


# -- machine code at the published sizes, as launched ----------------------------------------------------------


def compiled(kernel, arguments, sizes, target="sm_90a"):
    """Compile a kernel for a batch of the published network; it may not spill. Return what it needs, or AMD's code."""
    sizes = dict(sizes)
    options = {"warps": sizes.pop("num_warps"), "stages": sizes.pop("num_stages", 3 if target != "gfx942" else 2)}
    if target == "gfx942":
        return compile_for_amd(kernel, {**arguments, **sizes}, **options)
    return resources(kernel, {**arguments, **sizes}, **options, target=target)


def memory(dtype):
    return torch.empty(1, dtype=dtype, device="meta")


def pooling_kernels(channels):
    """Return the kernels of pooling at the published sizes, each with its arguments and sizes."""
    from cosmoflow import kernels

    side = 128 * 32 // channels
    x = torch.empty(4, side, side, side, channels, dtype=torch.bfloat16, device="meta")
    _, sizes = kernels._plan_pooling(x, SLOPE)
    shape = dict.fromkeys("DHW", side)
    halves, byte, wide = memory(torch.bfloat16), memory(torch.uint8), memory(torch.float32)
    forward = {"x": halves, "bias": wide, "y": halves, "byte": byte}
    backward = {"gradient": halves, "byte": byte, "by_x": halves, "by_bias": wide}
    return (kernels._pool_kernel, {**forward, **shape}, sizes), (kernels._unpool_kernel, {**backward, **shape}, sizes)


def first_block_kernel(name):
    """Return the kernel of the first block at the published size with its arguments and sizes."""
    from cosmoflow import kernels

    x = torch.empty(4, 128, 128, 128, 4, dtype=torch.bfloat16, device="meta")
    halves, byte, wide = memory(torch.bfloat16), memory(torch.uint8), memory(torch.float32)
    given = {"x": halves, "byte": byte, **dict.fromkeys("DHW", 128)}
    if "forward" in name:
        _, rows, sizes = kernels._first_forward(x, SLOPE)
        arranged = name == "forward"
        weights = {"weight": halves if arranged else wide, "ARRANGED": arranged, "bias": wide}
        given |= weights | {"y": halves, "rows": rows}
        return kernels._first_block_kernel, given, sizes
    with try_candidates(*(["cosmoflow-halves"] if name == "backward by halves" else [])):
        kernel, _, rows, sizes = kernels._first_backward(x, SLOPE)
    return kernel, given | {"gradient": halves, "by_weight": wide, "by_bias": wide, "rows": rows}, sizes


@not_interpreted
@pytest.mark.parametrize("channels", [32, *(pytest.param(32 << i, marks=pytest.mark.exhaustive) for i in range(1, 5))])
def test_pooling_reads_and_writes_16_bytes_at_a_time(channels):
    forward, backward = (compiled(*kernel) for kernel in pooling_kernels(channels))
    assert len(re.findall(r"LDG\.E\.128", forward.sass)) >= 8 and re.search(r"STG\.E\.128", forward.sass)
    assert forward.registers <= 80
    assert len(re.findall(r"STG\.E\.128", backward.sass)) >= 8 and re.search(r"LDG\.E\.128", backward.sass)
    assert backward.registers <= 64


@not_interpreted
@pytest.mark.parametrize("name", FIRST_BLOCK)
def test_the_first_block_is_computed_by_tensor_cores(name):
    found = compiled(*first_block_kernel(name))
    assert "HGMMA" in found.sass
    assert not re.search(r"(LDG|LDGSTS)\.E\.(U16|U8|S16)", found.sass), "voxels are read one by one"
    assert 128 * found.registers * 2 <= 65536, "two programs fit on a multiprocessor"


@not_interpreted
@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_all_compiles_for_other_gpus_and_spills_nothing(target):
    cells = {"P": 32} if target == "sm_80" else {}
    for kernel, arguments, sizes in (*pooling_kernels(32), *map(first_block_kernel, FIRST_BLOCK)):
        assert compiled(kernel, arguments, sizes | (cells if kernel.__name__ == "_half_weight_kernel" else {}), target)
