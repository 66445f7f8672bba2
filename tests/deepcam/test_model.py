"""The network against published numbers, and against a plain one with the same weights."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from common.candidate import try_candidates
from common.training.profile import count_sample, count_table3
from deepcam.model import DeepLab, ModelConfig, Shortcut, build_model

SMALL = ModelConfig(width=0.125, middle_blocks=2)
FINE = replace(SMALL, output_stride=8)


def snapshots(batch_size, height, width, dtype=torch.float32):
    return torch.rand(batch_size, height, width, 16, generator=torch.Generator().manual_seed(7), dtype=dtype)


@pytest.fixture(scope="module")
def full_size():
    with torch.device("meta"):
        return DeepLab(ModelConfig(), 16)


def numbers(module, normalisation):
    """How many parameters are, or are not, those of batch normalisation."""
    layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.BatchNorm2d) is normalisation]
    return sum(parameter.numel() for layer in layers for parameter in layer.parameters(recurse=False))


def test_numbers_of_parameters_are_the_published_ones(full_size):
    assert sum(parameter.numel() for parameter in full_size.parameters()) == 56_454_720
    assert numbers(full_size, normalisation=True) == 97_760
    assert sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in full_size.modules()) == 76
    xception = full_size.xception
    entry = (xception.stem, xception.block1, xception.block2, xception.block3)
    assert sum(numbers(stage, normalisation=False) for stage in entry) == 1_725_552
    stages = [xception.middle, xception.exit, full_size.pyramid, full_size.decoder]
    assert [numbers(stage, normalisation=False) for stage in stages] == [25_753_728, 10_206_576, 15_532_544, 3_138_560]
    with torch.device("meta"):
        finer = DeepLab(ModelConfig(output_stride=8), 16)
    one_doubling_less = 256 * 256 * 9 + 2 * 256
    assert sum(parameter.numel() for parameter in finer.parameters()) == 56_454_720 - one_doubling_less


def test_operations_are_the_published_ones(full_size):
    spared = 256 * 256 * (48 * 72 - 1)  # the published network merges the pooled view again at each place
    flops = count_sample(full_size, torch.empty(1, 768, 1152, 16)).training
    first = 9 * 16 * 32 * 384 * 576  # needs no gradient of its input
    forward = (flops + 2 * first) / 3
    assert (forward / 2 + spared) / 1e9 == pytest.approx(327.67, abs=0.005)
    assert (flops + 6 * spared) / 1e9 == pytest.approx(1966, abs=2.5)
    assert count_table3(full_size, torch.empty(1, 768, 1152, 16)) / 3 == pytest.approx(655.68e9, rel=1e-4)


class Published:
    """The layer table of the reference in plain operations, which take their weights from a list."""

    def __init__(self, tensors, low_level, training):
        self.tensors, self.low_level, self.training = list(tensors), low_level, training

    def conv(self, x, stride=1, dilation=1, groups=1):
        weight = self.tensors.pop(0).contiguous()
        return F.conv2d(x, weight, None, stride, dilation * (weight.shape[-1] // 2), dilation, groups)

    def sep(self, x, stride=1, dilation=1):
        return self.conv(self.conv(x, stride, dilation, groups=x.shape[1]))

    def bn(self, x):
        weight, bias, mean, var = (self.tensors.pop(0)[:, None, None] for _ in range(4))
        if self.training:
            mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias

    def relu(self, x):
        return torch.where(x > 0, x, 0 * x)

    def up(self, x):
        return F.conv_transpose2d(x, self.tensors.pop(0), None, stride=2, padding=1, output_padding=1)

    def entry_block(self, x, stride):
        y = self.relu(self.bn(self.sep(x)))
        y = self.sep(self.bn(self.sep(y)), stride)
        return y + self.bn(self.conv(x, stride))

    def middle_block(self, x, dilation):
        y = self.relu(self.bn(self.sep(x, 1, dilation)))
        y = self.relu(self.bn(self.sep(y, 1, dilation)))
        return self.relu(x + self.bn(self.sep(y, 1, dilation)))

    def last_block(self, x, dilation):
        y = self.relu(self.bn(self.sep(x, 1, dilation)))
        y = self.sep(self.bn(self.sep(y, 1, dilation)))
        return y + self.bn(self.conv(x))

    def logits(self, x_BHWC, middle_blocks, output_stride, rates):
        x = x_BHWC.permute(0, 3, 1, 2).contiguous()
        x = self.relu(self.bn(self.conv(x, stride=2)))
        x = self.relu(self.bn(self.conv(x)))
        before_relu = self.entry_block(x, 2)
        x = after_relu = self.relu(before_relu)
        x = self.relu(self.entry_block(x, 2))
        x = self.relu(self.entry_block(x, output_stride // 8))
        widening = 16 // output_stride
        for _ in range(middle_blocks):
            x = self.middle_block(x, widening)
        x = self.last_block(x, widening)
        for _ in range(3):
            x = self.relu(self.bn(self.sep(x, 1, 2 * widening)))
        scale, shift = self.tensors.pop(0), self.tensors.pop(0)
        views = [self.relu(self.bn(self.conv(x, 1, rate))) for rate in rates]
        pooled = self.relu(self.conv(F.adaptive_avg_pool2d(x, 1)) * scale + shift)
        views.append(pooled.repeat(1, 1, *x.shape[2:]))
        x = self.relu(self.bn(self.conv(torch.cat(views, 1))))
        low = after_relu if self.low_level == "after_relu" else before_relu
        low = self.relu(self.bn(self.conv(low)))
        for _ in range(output_stride // 8):
            x = self.relu(self.bn(self.up(x)))
        x = torch.cat([x, low], 1)
        x = self.relu(self.bn(self.conv(x)))
        x = self.relu(self.bn(self.conv(x)))
        x = self.conv(x) + self.tensors.pop(0)[:, None, None]
        x = self.up(self.relu(self.bn(self.up(x))))
        assert not self.tensors
        return x


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("config", "rates"),
    [
        (SMALL, (1, 6, 12, 18)),
        (FINE, (1, 12, 24, 36)),
        (replace(FINE, low_level="before_relu", aspp_rates=(2, 1, 3)), (2, 1, 3)),
    ],
    ids=["stride 16", "stride 8", "variant"],
)
def test_outputs_and_gradients_equal_the_layer_table(config, rates, training):
    model = build_model(config, 16, seed=1).double().train(training)
    generator = torch.Generator().manual_seed(2)
    for tensor in model.state_dict().values():  # nothing is 0 or 1, and no variance is negative
        if tensor.ndim in (1, 3):
            tensor += 0.2 * torch.rand(tensor.shape, generator=generator)
    names = [name for name in model.state_dict() if not name.endswith("num_batches_tracked")]
    weights = {name: model.state_dict()[name].clone().requires_grad_() for name in names}
    x_BHWC = snapshots(2, 32, 80, torch.float64)  # dilation 4 divides one side of the features and not the other
    ours = model(x_BHWC)
    plain = Published(weights.values(), config.low_level, training).logits(
        x_BHWC, config.middle_blocks, config.output_stride, rates
    )
    assert ours.shape == (2, 3, 32, 80)
    torch.testing.assert_close(ours, plain)
    ours.square().sum().backward()
    plain.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=1e-6, atol=1e-6)


def test_eight_outputs_change_neither_the_three_nor_their_gradients():
    output = build_model(SMALL, 16, seed=1).double().decoder.output
    inputs = (torch.randn(2, output[0].in_channels, 5, 7, dtype=torch.float64).requires_grad_(), *output.parameters())
    results = []
    for names in ((), ("deepcam-output-8",)):
        with try_candidates(*names):
            y_BKHW = output(inputs[0])
            results.append((y_BKHW, *torch.autograd.grad(y_BKHW.sin().sum(), inputs)))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_running_statistics_move_by_a_tenth():
    model = build_model(SMALL, 16, seed=1)
    x_BHWC = snapshots(2, 32, 48)
    first = model.xception.stem[0](x_BHWC.permute(0, 3, 1, 2))
    model(x_BHWC)
    statistics = model.xception.stem[1]
    torch.testing.assert_close(statistics.running_mean, 0.1 * first.mean((0, 2, 3)))
    torch.testing.assert_close(statistics.running_var, 0.9 + 0.1 * first.var((0, 2, 3)))


def test_a_narrow_shortcut_is_the_convolution_with_several_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ours = Shortcut(8, 16, 1, stride=2, bias=False)
        x_BCHW = torch.randn(5, 8, 24, 32).contiguous(memory_format=torch.channels_last).requires_grad_()
        inputs, y_BCHW = (x_BCHW, ours.weight), ours(x_BCHW)
        found = [y_BCHW, *torch.autograd.grad(y_BCHW.square().sum(), inputs)]
    finally:
        torch.set_num_threads(threads)
    y_BCHW = torch.einsum("oi,bihw->bohw", ours.weight[..., 0, 0], x_BCHW[..., ::2, ::2])
    for one, expected in zip(found, [y_BCHW, *torch.autograd.grad(y_BCHW.square().sum(), inputs)], strict=True):
        torch.testing.assert_close(one, expected, rtol=0, atol=1e-5 * float(expected.detach().abs().max()))


def test_the_pooled_view_is_merged_as_if_it_were_joined_to_the_others():
    pyramid = build_model(FINE, 16, seed=1).double().pyramid
    x_BCHW = torch.randn(2, 256, 6, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
    pooled_BCHW = pyramid.pooled(x_BCHW.mean((2, 3), keepdim=True)) * pyramid.pooled_scale + pyramid.pooled_shift
    views = [branch(x_BCHW) for branch in pyramid.branches]
    joined_BCHW = pyramid.merge(torch.cat([*views, pooled_BCHW.relu().expand_as(views[0])], dim=1))
    inputs = (x_BCHW, *pyramid.parameters())
    for ours, expected in zip(
        *([y, *torch.autograd.grad(y.square().sum(), inputs)] for y in (pyramid(x_BCHW), joined_BCHW)), strict=True
    ):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


class Layouts(TorchDispatchMode):
    """Counts the maps that the network's operations return, and collects those that have not their channels last."""

    aten = torch.ops.aten
    forward = (aten.convolution, aten.native_batch_norm, aten.relu, aten.relu_, aten.add, aten.cat)
    backward = (aten.convolution_backward, aten.native_batch_norm_backward, aten.threshold_backward)

    def __init__(self):
        super().__init__()
        self.seen, self.others = 0, []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        results = operation(*args, **(kwargs or {}))
        if operation.overloadpacket in self.forward + self.backward:
            maps = [y for y in tree_leaves(results) if isinstance(y, Tensor) and y.ndim == 4 and y[0, 0].numel() > 1]
            self.seen += len(maps)
            self.others += [(operation, y.shape, y.stride()) for y in maps if y.stride(1) != 1]
        return results


def test_channels_stay_last_in_memory():
    model = build_model(FINE, 16, seed=1).eval()
    for parameter in model.parameters():
        assert parameter.ndim < 4 or parameter.is_contiguous(memory_format=torch.channels_last)
    x_BHWC = snapshots(2, 32, 48)
    y_BKHW = model(x_BHWC)
    assert y_BKHW.is_contiguous(memory_format=torch.channels_last)
    channels_first = x_BHWC.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    torch.testing.assert_close(model(channels_first), y_BKHW)


@pytest.mark.parametrize("config", [SMALL, FINE], ids=["stride 16", "stride 8"])
def test_no_map_leaves_the_layout_with_channels_last(config):
    model = build_model(config, 16, seed=1)
    with Layouts() as layouts:
        with torch.autocast("cpu", torch.bfloat16):
            y_BKHW = model(snapshots(2, 96, 144))
        y_BKHW.square().sum().backward()
    assert layouts.seen > 200 and not layouts.others


@pytest.mark.parametrize("config", [SMALL, FINE], ids=["stride 16", "stride 8"])
def test_bfloat16_stays_close(config):
    model = build_model(config, 16, seed=1)
    x_BHWC = snapshots(2, 48, 80)
    with torch.no_grad():
        exact = model(x_BHWC)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(x_BHWC)
    assert rounded.dtype == torch.bfloat16
    # Some seventy rounded layers, before training and on noise, add up to 2 % of the variance.
    assert (rounded - exact).square().mean() < 0.05 * exact.square().mean()


def test_a_rank_without_samples_has_zero_gradients():
    model = build_model(FINE, 16, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        logits_BKHW = model(snapshots(0, 32, 48))
    assert logits_BKHW.shape == (0, 3, 32, 48)
    logits_BKHW.float().sum().backward()
    assert not any(parameter.grad.any() for parameter in model.parameters())


def test_start_depends_on_the_seed_alone():
    torch_state = torch.get_rng_state()
    start = build_model(SMALL, 16, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), torch_state)
    for same, seed in ((True, 5), (False, 6)):
        other = build_model(SMALL, 16, seed).state_dict()
        assert all(torch.equal(tensor, other[name]) for name, tensor in start.items() if tensor.ndim == 4) is same


def kernels(module):
    return [layer.weight for layer in module.modules() if hasattr(layer, "kernel_size")]


@pytest.mark.parametrize("init", ["reference", "nvidia"])
def test_start_is_the_published_one_in_each_part(init):
    model = build_model(ModelConfig(width=0.25, middle_blocks=1, init=init), 16, seed=1)
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            assert (layer.weight == 1).all() and (layer.running_var == 1).all()
            assert not layer.bias.any() and not layer.running_mean.any()
    assert (model.pyramid.pooled_scale == 1).all() and not model.pyramid.pooled_shift.any()

    transposed = [*kernels(model.decoder.deep), *kernels(model.decoder.output)]
    heads = kernels(torch.nn.ModuleList([model.xception, model.pyramid.branches]))
    others = [kernel for kernel in kernels(model) if not any(kernel is known for known in (*transposed, *heads))]
    assert len(others) == 1 + 1 + 1 + 3  # pooled, merge, low level, join
    for group, deviation in [
        (heads, (lambda fan_in, _: 2 / fan_in) if init == "reference" else (lambda _, fan_out: 2 / fan_out)),
        (others, (lambda fan_in, _: 1 / 3 / fan_in) if init == "reference" else (lambda _, fan_out: 2 / fan_out)),
        (transposed, lambda fan_in, _: 1 / 3 / fan_in),  # torch takes the outputs' fan for that of the inputs
    ]:
        scaled = [k.flatten() / deviation(k[0].numel(), k[:, 0].numel()) ** 0.5 for k in group]
        for kernel in scaled:
            assert kernel.std().item() == pytest.approx(1, abs=3 / kernel.numel() ** 0.5)
        everything = torch.cat(scaled)
        assert everything.std().item() == pytest.approx(1, abs=0.01)
        assert abs(everything.mean().item()) < 0.01
        normal = deviation(1, 1) == 2
        assert bool(everything.abs().max() > 3.5) is normal
        assert normal or everything.abs().max() <= 1.0001 * 3**0.5
    bias = model.decoder.join[6].bias
    assert 0.9 * 64**-0.5 < bias.abs().max() <= 64**-0.5


def test_widths_are_multiples_of_eight():
    with torch.device("meta"):
        model = DeepLab(ModelConfig(width=0.25, middle_blocks=4), 16)
    widths = {layer.num_features for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)}
    assert widths == {8, 16, 32, 64, 184, 256, 384, 512}


def test_impossible_networks_and_snapshots_are_refused():
    model = build_model(replace(SMALL, middle_blocks=0), 16, seed=1)
    for height, width in ((40, 48), (48, 40)):
        with pytest.raises(
            ValueError, match=f"snapshots are {height} x {width}; expected sides that are multiples of 16"
        ):
            model(snapshots(1, height, width))
    for wrong, message in [
        ({"width": 0.0}, "width is 0; expected more than 0, at most 64"),
        ({"middle_blocks": -1}, "middle_blocks is -1"),
        ({"aspp_rates": (1, 0)}, "aspp_rates is"),
        ({"aspp_rates": ()}, "aspp_rates is"),
    ]:
        with pytest.raises(ValueError, match=message):
            ModelConfig(**wrong)
