"""DeepLabv3+ on a modified Xception: the class of each grid point of a climate snapshot.

After the PyTorch model of the reference (mlcommons/hpc deepcam architecture/deeplab_xception.py): 56,454,720 parameters
with 16 input channels. The code is for one device and any precision; parallelism, groups of batch normalisation and
mixed precision come from outside.

Shapes: B batch, H latitude rows, W longitude columns, C channels, K classes.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.candidate import Candidate
from deepcam.reference import CLASSES
from deepcam.settings import CHANNEL_UNIT, STRIDE, ModelConfig

NARROW: Final = 16
"""Channels from which on torch's own convolution serves as a shortcut."""
EIGHT_OUTPUTS: Final = Candidate("deepcam-output-8")
"""Transposed convolutions compute a multiple of eight channels, 16 bytes; those that nobody reads are 0."""
DEPTHWISE_KERNELS: Final = Candidate("deepcam-depthwise")
"""Depthwise convolutions by Triton kernels, with the normalisation and activation before them."""


class DeepLab(nn.Module):
    """The network, with torch's own initial weights; `build_model` makes one with those of the reference.

    channels: C of a snapshot.
    """

    def __init__(self, config: ModelConfig, channels: int) -> None:
        super().__init__()
        self.config = config
        self.xception = Xception(config, channels)
        self.pyramid = Pyramid(config)
        self.decoder = Decoder(config)

    def forward(self, x_BHWC: Tensor) -> Tensor:
        """Return the logits (B, K, H, W) of snapshots (B, H, W, C), C fastest in memory, each channel in about [0, 1].

        In memory the classes are last; under autocast the type is that of its convolutions. Raises ValueError for a
        side that 16 does not divide.
        """
        _, height, width, _ = x_BHWC.shape
        if height % STRIDE or width % STRIDE:
            raise ValueError(f"snapshots are {height} x {width}; expected sides that are multiples of {STRIDE}")
        x_BCHW = x_BHWC.permute(0, 3, 1, 2)  # a view: in memory the channels stay last, the fast layout
        deep_BCHW, low_BCHW = self.xception(x_BCHW)
        return self.decoder(self.pyramid(deep_BCHW), low_BCHW)


class Xception(nn.Module):
    """From a snapshot to 2048 channels of deep features, and to 128 of low-level ones at a quarter of the sides."""

    def __init__(self, config: ModelConfig, channels: int) -> None:
        super().__init__()
        c32, c64, c128, c256, c728, c1024, c1536, c2048 = map(
            config.channels, (32, 64, 128, 256, 728, 1024, 1536, 2048)
        )
        # Without the third block's stride, later layers are dilated twice as wide, for the same receptive field.
        third_stride, dilation = (2, 1) if config.output_stride == 16 else (1, 2)
        self.low_level = config.low_level
        self.stem = nn.Sequential(
            *add_activation(nn.Conv2d(channels, c32, 3, stride=2, padding=1, bias=False)),
            *add_activation(nn.Conv2d(c32, c64, 3, padding=1, bias=False)),
        )
        self.block1 = Block((c64, c128, c128), stride=2, resample=True)
        self.block2 = Block((c128, c256, c256), stride=2, resample=True)
        self.block3 = Block((c256, c728, c728), stride=third_stride, resample=True)
        self.middle = nn.Sequential()
        for _ in range(config.middle_blocks):
            self.middle.append(Block((c728, c728, c728, c728), dilation=dilation)).append(nn.ReLU(inplace=True))
        # As in the reference, no activation comes between the last block and the convolutions after it.
        self.exit = nn.Sequential(Block((c728, c728, c1024), dilation=dilation, resample=True))
        for before, after in itertools.pairwise((c1024, c1536, c1536, c2048)):
            self.exit.extend(add_activation(separable_convolution(before, after, dilation=2 * dilation)))

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Return deep features at 1 / output_stride of the sides, and low-level ones at 1/4."""
        low_BCHW = self.block1(self.stem(x_BCHW))
        x_BCHW = torch.relu(low_BCHW)
        if self.low_level == "after_relu":
            low_BCHW = x_BCHW
        x_BCHW = torch.relu_(self.block2(x_BCHW))
        x_BCHW = torch.relu_(self.block3(x_BCHW))
        return run_layers(self.exit, self.middle(x_BCHW)), low_BCHW


class Block(nn.Module):
    """Separable convolutions with these channel counts, bypassed by a skip connection.

    Unlike in the original Xception, no ReLU comes first: the input is activated already, and the output is not.

    resample: one more separable convolution comes last, with the stride and undilated; no ReLU comes before it, and no
        batch normalisation after it.
    """

    def __init__(self, channels: tuple[int, ...], stride: int = 1, dilation: int = 1, resample: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(channels):
            layers += add_activation(separable_convolution(before, after, dilation=dilation))
        layers.pop()
        first, last = channels[0], channels[-1]
        if resample:
            layers.append(separable_convolution(last, last, stride=stride))
        self.main = nn.Sequential(*layers)
        self.skip: nn.Module = nn.Identity()
        if first != last or stride != 1:
            self.skip = nn.Sequential(Shortcut(first, last, 1, stride=stride, bias=False), nn.BatchNorm2d(last))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return run_layers(self.main, x_BCHW) + self.skip(x_BCHW)


class Shortcut(nn.Conv2d):
    """A 1 x 1 convolution; with few channels it skips pixels before, not in, the convolution.

    The gradient of torch's own, with a stride and fewer than 16 channels, writes beyond its memory: 2.13 on a CPU with
    AVX-512 and several threads (oneDNN 3.12).
    """

    def forward(self, x_BCHW: Tensor) -> Tensor:
        if self.in_channels >= NARROW:
            return super().forward(x_BCHW)
        return F.conv2d(F.max_pool2d(x_BCHW, 1, self.stride), self.weight)


class Pyramid(nn.Module):
    """Atrous spatial pyramid pooling of the deep features at several scales and as a whole; 256 channels."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        deep, c256 = config.channels(2048), config.channels(256)
        rates = config.aspp_rates or ((1, 6, 12, 18) if config.output_stride == 16 else (1, 12, 24, 36))
        self.branches = nn.ModuleList()
        for rate in rates:
            size = 1 if rate == 1 else 3
            branch = nn.Conv2d(deep, c256, size, padding="same", dilation=rate, bias=False)
            self.branches.append(nn.Sequential(*add_activation(branch)))
        # Not batch normalisation, for which one number per sample and channel would be too few.
        self.pooled = nn.Conv2d(deep, c256, 1, bias=False)
        self.pooled_scale = nn.Parameter(torch.ones(c256, 1, 1))
        self.pooled_shift = nn.Parameter(torch.zeros(c256, 1, 1))
        self.merge = nn.Sequential(*add_activation(nn.Conv2d((len(rates) + 1) * c256, c256, 1, bias=False)))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        pooled_BCHW = self.pooled(x_BCHW.mean((2, 3), keepdim=True))
        pooled_BCHW = torch.relu(pooled_BCHW * self.pooled_scale + self.pooled_shift)
        views_BCHW = torch.cat([branch(x_BCHW) for branch in self.branches], dim=1)
        # The pooled view is equal everywhere: it is merged before it is spread, and never joined to the others, which
        # would then leave the layout with channels last.
        convolution, *activation = self.merge
        of_views, of_pooled = convolution.weight.split((views_BCHW.shape[1], pooled_BCHW.shape[1]), dim=1)
        y_BCHW = F.conv2d(views_BCHW, of_views) + F.conv2d(pooled_BCHW, of_pooled)
        for layer in activation:
            y_BCHW = layer(y_BCHW)
        return y_BCHW


class Decoder(nn.Module):
    """The decoder: joins the pyramid and the low-level features by learned upsampling to logits for each grid point."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c48, c128, c256 = map(config.channels, (48, 128, 256))
        self.low_level = nn.Sequential(*add_activation(nn.Conv2d(c128, c48, 1, bias=False)))
        self.deep = nn.Sequential()
        for _ in range(config.output_stride // 8):
            self.deep.extend(add_activation(Doubling(c256, c256)))
        self.join = nn.Sequential(
            *add_activation(nn.Conv2d(c256 + c48, c256, 3, padding=1, bias=False)),
            *add_activation(nn.Conv2d(c256, c256, 3, padding=1, bias=False)),
            nn.Conv2d(c256, c256, 1),
        )
        self.output = nn.Sequential(*add_activation(Doubling(c256, c256)), Doubling(c256, len(CLASSES)))

    def forward(self, deep_BCHW: Tensor, low_BCHW: Tensor) -> Tensor:
        both_BCHW = torch.cat([self.deep(deep_BCHW), self.low_level(low_BCHW)], dim=1)
        return self.output(self.join(both_BCHW))


class Depthwise(nn.Conv2d):
    """A depthwise 3 x 3 convolution."""

    def __init__(self, channels: int, stride: int, dilation: int) -> None:
        super().__init__(
            channels, channels, 3, stride, padding=dilation, dilation=dilation, groups=channels, bias=False
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return the convolution; zeros as wide as the dilation surround the input.

        Dilated by d, it is an undilated one on each of d x d coarser grids, those of every d-th row and column. A CPU
        takes that way: it has no fast gradient of dilated kernels in bfloat16, and the plain way takes ten times as
        long.
        """
        dilation = self.dilation[0]
        if dilation == 1 or not x_BCHW.is_cpu:
            return super().forward(x_BCHW)
        *_, height, width = x_BCHW.shape
        x_BHWC = F.pad(x_BCHW, (0, -width % dilation, 0, -height % dilation)).permute(0, 2, 3, 1)
        x_BHGWGC = x_BHWC.unflatten(2, (-1, dilation)).unflatten(1, (-1, dilation))  # G: which grid
        x_BHWC = x_BHGWGC.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)
        y_BCHW = F.conv2d(x_BHWC.permute(0, 3, 1, 2), self.weight, padding=1, groups=self.groups)
        y_BGGHWC = y_BCHW.permute(0, 2, 3, 1).unflatten(0, (-1, dilation, dilation))
        y_BHWC = y_BGGHWC.permute(0, 3, 1, 4, 2, 5).flatten(3, 4).flatten(1, 2)
        return y_BHWC[:, :height, :width].permute(0, 3, 1, 2)


class Doubling(nn.ConvTranspose2d):
    """A transposed convolution that doubles both sides."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 3, stride=2, padding=1, output_padding=1, bias=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        if not EIGHT_OUTPUTS.enabled:
            return super().forward(x_BCHW)
        weight = F.pad(self.weight, (0, 0, 0, 0, 0, -self.out_channels % CHANNEL_UNIT))
        y_BCHW = F.conv_transpose2d(x_BCHW, weight, None, self.stride, self.padding, self.output_padding)
        return y_BCHW[:, : self.out_channels]


def separable_convolution(before: int, after: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """Return a depthwise 3 x 3 convolution, followed by a 1 x 1 convolution across channels."""
    return nn.Sequential(Depthwise(before, stride, dilation), nn.Conv2d(before, after, 1, bias=False))


def run_layers(layers: nn.Sequential, x_BCHW: Tensor) -> Tensor:
    """Return what the layers make of x.

    Kernels take batch normalisation, and ReLU if there is one, into the depthwise convolution that comes next.
    """
    if not (DEPTHWISE_KERNELS.enabled and x_BCHW.numel()):
        return layers(x_BCHW)
    from deepcam.kernels import convolve_depthwise  # needs Triton

    flat = [part for layer in layers for part in (layer if isinstance(layer, nn.Sequential) else (layer,))]
    affine_2C, relu = None, False
    for index, layer in enumerate(flat):
        next_two = flat[index + 1 : index + 3]
        if isinstance(layer, Depthwise):
            shapes = (layer.stride[0], layer.dilation[0], relu)
            x_BHWC = convolve_depthwise(x_BCHW.permute(0, 2, 3, 1), layer.weight, affine_2C, *shapes)
            x_BCHW, affine_2C, relu = x_BHWC.permute(0, 3, 1, 2), None, False
        elif type(layer) is nn.BatchNorm2d and any(isinstance(part, Depthwise) for part in next_two):
            affine_2C, relu = take_statistics(layer, x_BCHW), isinstance(next_two[0], nn.ReLU)
        elif affine_2C is None:
            x_BCHW = layer(x_BCHW)
    return x_BCHW


def take_statistics(layer: nn.BatchNorm2d, x_BCHW: Tensor) -> Tensor:
    """Return scale and shift of each channel (2, C) by which the layer normalises x; update its running statistics."""
    mean_C, var_C = layer.running_mean, layer.running_var
    if layer.training:
        layer(x_BCHW)  # for the running statistics: the compiler leaves its output out
        # Written as in the layer, and in the variance's gradient, so that the compiler reads x once for both.
        wide_BCHW = x_BCHW.to(torch.promote_types(x_BCHW.dtype, torch.float32))
        var_C = torch.var_mean(wide_BCHW, dim=(0, 2, 3), correction=0, keepdim=True)[0].flatten()
        mean_C = wide_BCHW.mean((0, 2, 3), keepdim=True).flatten()
    scale_C = layer.weight * (var_C + layer.eps).rsqrt()
    return torch.stack((scale_C, layer.bias - mean_C * scale_C))


def add_activation(convolution: nn.Module) -> list[nn.Module]:
    """Return the convolution, batch normalisation and ReLU."""
    last = convolution[-1] if isinstance(convolution, nn.Sequential) else convolution
    return [convolution, nn.BatchNorm2d(last.out_channels), nn.ReLU(inplace=True)]


def initialise_weights(model: DeepLab, generator: torch.Generator) -> None:
    """Set the weights from which training starts.

    "reference": kernels of Xception and of the pyramid's branches are normal with deviation sqrt(2 / fan_in). The
    decoder, and what pools and merges, keep torch's default, uniform within 1 / sqrt(fan_in): the reference has an
    initialisation for them too, but never calls it.
    "nvidia": all but transposed convolutions are normal with deviation sqrt(2 / (kernel's area x output channels)).
    """
    normal = {id(module) for part in (model.xception, model.pyramid.branches) for module in part.modules()}
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()
            elif isinstance(module, nn.Conv2d) and model.config.init == "nvidia":
                nn.init.kaiming_normal_(module.weight, mode="fan_out", generator=generator)
            elif isinstance(module, nn.Conv2d) and id(module) in normal:
                nn.init.kaiming_normal_(module.weight, generator=generator)
            elif isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                limit = 1 / math.sqrt(module.weight[0].numel())
                nn.init.uniform_(module.bias, -limit, limit, generator=generator)
        nn.init.ones_(model.pyramid.pooled_scale)
        nn.init.zeros_(model.pyramid.pooled_shift)


def build_model(config: ModelConfig, channels: int, seed: int) -> DeepLab:
    """Return the network on the CPU with initial weights drawn from `seed`.

    Kernels are stored channels last. Leaves torch's own generator alone.
    """
    with torch.device("meta"):
        model = DeepLab(config, channels)
    model.to_empty(device="cpu")
    initialise_weights(model, torch.Generator().manual_seed(seed))
    model.to(memory_format=torch.channels_last)
    return model
