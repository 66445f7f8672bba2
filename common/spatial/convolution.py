"""Convolutions of blocks and of their halos, with zeros given for each side, and their gradients.

They are torch's, on shapes for which it computes them well, and right:

An input that is thinner than the kernel, along any axis, is convolved with its zeros. Otherwise the gradients of
weights and bias have wrong numbers, and are written beyond their memory, on CPUs that compute bf16 (oneDNN 3.12,
AVX-512, in torch 2.13): with two planes and a kernel of three, or two rows and a kernel of seven. `PaddedConv3d` does
so for whole samples.

A halo is one plane, for most kernels. Axes of one voxel are left out, so that it is a convolution of two dimensions: in
three, the gradient of the weights is written beyond its memory there, too, for few channels.

For one sample in fp32, torch chooses oneDNN on a CPU only if its channels times D times H are enough, and otherwise a
product with a copy of 27 times the input, which takes longer, and most of the memory. Of a block, that is the usual
case. As two samples, of half the planes each, oneDNN is chosen.

Shapes: B batch, C channels, D H W space.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.spatial.grid import Reach

Pads = tuple[tuple[int, int], ...]
"""Zeros before and after the voxels along D, H and W."""
CONVOLUTIONS: Final[Mapping[int, Any]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
"""The convolutions by their dimensions."""


class PaddedConv3d(nn.Conv3d):
    """A convolution with padding "same" that gives torch an input thinner than the kernel with its zeros, on a CPU.

    former: the convolution that it replaces, taking over the parameters; cubic kernel, stride 1.
    """

    def __init__(self, former: nn.Conv3d) -> None:
        super().__init__(former.in_channels, former.out_channels, former.kernel_size, padding="same", device="meta")
        self.weight, self.bias = former.weight, former.bias

    def forward(self, x_BCDHW: Tensor) -> Tensor:
        """Return the outputs (B, C, D, H, W)."""
        size = self.kernel_size[0]
        if x_BCDHW.device.type != "cpu" or min(x_BCDHW.shape[2:]) >= size:
            return super().forward(x_BCDHW)
        return F.conv3d(F.pad(x_BCDHW, Reach.of_kernel(size) * 3), self.weight, self.bias)


def convolve_padded(x: Tensor, weight: Tensor, bias: Tensor | None, pads: Pads) -> Tensor:
    """Return the convolution of x (B, C, D, H, W) with zeros around it, channels last in memory."""
    if _is_slow(x, weight, pads):
        halves, left = _split_sample(x, weight, pads)
        y_BDHWC = convolve_padded(halves, weight, bias, left).permute(0, 2, 3, 4, 1)
        return y_BDHWC.flatten(0, 1)[None].permute(0, 4, 1, 2, 3)  # one sample, in the same memory
    flat = _flat_axes(x, weight)
    even, (x, weight) = _even_padding(x, weight, pads, flat), (tensor.squeeze(flat) for tensor in (x, weight))
    y = CONVOLUTIONS[3 - len(flat)](x if even else F.pad(x, _all_pads(pads, flat)), weight, bias, padding=even or 0)
    return _restore_axes(y, flat).contiguous(memory_format=torch.channels_last_3d)


def compute_gradients(by_y: Tensor, x: Tensor, weight: Tensor, pads: Pads, wanted: tuple[bool, ...]) -> list[Any]:
    """Return the gradients of `convolve_padded` by x, weight and bias, those that are wanted; by_y: channels last."""
    if _is_slow(x, weight, pads):
        halves, left = _split_sample(x, weight, pads)
        y_DHWC = by_y.permute(0, 2, 3, 4, 1)[0]
        by_outputs = y_DHWC.unflatten(0, (2, -1)).permute(0, 4, 1, 2, 3)  # two samples, in the same memory
        by_halves, *others = compute_gradients(by_outputs, halves, weight, left, wanted)
        return [None if by_halves is None else _add_halves(by_halves, x, pads[0]), *others]
    flat = _flat_axes(x, weight)
    even = _even_padding(x, weight, pads, flat)
    by_y, small, weight = (tensor.squeeze(flat) for tensor in (by_y, x, weight))
    padded = small if even else F.pad(small, _all_pads(pads, flat))
    ones, zeros = [1] * (small.ndim - 2), [0] * (small.ndim - 2)
    results = torch.ops.aten.convolution_backward(
        by_y, padded, weight, [len(weight)], ones, even or zeros, ones, False, zeros, 1, wanted
    )
    by_x, by_weight = (_restore_axes(tensor, flat) if tensor is not None else None for tensor in results[:2])
    if by_x is not None and not even:
        for axis, (before, _) in enumerate(pads, 2):
            by_x = by_x.narrow(axis, before, x.shape[axis])
    return [by_x, by_weight, results[2]]


# -- without axes of one voxel -------------------------------------------------------------------------------


def _flat_axes(x: Tensor, weight: Tensor) -> tuple[int, ...]:
    """Return the axes along which both have one voxel: nothing is convolved there, and there are no zeros."""
    return tuple(axis for axis in (2, 3) if x.shape[axis] == 1 == weight.shape[axis])


def _restore_axes(tensor: Tensor, flat: tuple[int, ...]) -> Tensor:
    """Return a tensor with the axes that were left out."""
    for axis in flat:
        tensor = tensor.unsqueeze(axis)
    return tensor


def _even_padding(x: Tensor, weight: Tensor, pads: Pads, flat: tuple[int, ...]) -> list[int] | None:
    """Return the zeros on either side along the axes that are left; None: torch must get the input with its zeros."""
    left = [(axis, *pair) for axis, pair in enumerate(pads, 2) if axis not in flat]
    fits = all(before == after and x.shape[axis] >= weight.shape[axis] for axis, before, after in left)
    return [before for _, before, _ in left] if fits else None


def _all_pads(pads: Pads, flat: tuple[int, ...]) -> list[int]:
    """Return the zeros along the axes that are left as `F.pad` takes them, the last axis first."""
    left = [pair for axis, pair in enumerate(pads, 2) if axis not in flat]
    return [number for pair in reversed(left) for number in pair]


# -- one sample as two halves --------------------------------------------------------------------------------


def _is_slow(x: Tensor, weight: Tensor, pads: Pads) -> bool:
    """Tell whether torch would choose the slow algorithm for one sample, whose outputs can be divided along D."""
    batch, channels, depth, height, _ = x.shape
    plain = x.device.type == "cpu" and x.dtype == torch.float32
    halves = depth % 2 == 0 and sum(pads[0]) + 1 == weight.shape[2] and not _flat_axes(x, weight)
    # Above 20,480 torch chooses oneDNN (aten/src/ATen/native/Convolution.cpp).
    return plain and halves and batch == 1 and channels * depth * height <= 20_480


def _split_sample(x: Tensor, weight: Tensor, pads: Pads) -> tuple[Tensor, Pads]:
    """Return one sample as two, for the first and for the last half of the outputs, and the zeros still to add."""
    padded, half = F.pad(x, [0, 0, 0, 0, *pads[0]]), x.shape[2] // 2
    pair = torch.cat((padded[:, :, : half + weight.shape[2] - 1], padded[:, :, half:]))
    return pair.contiguous(memory_format=torch.channels_last_3d), ((0, 0), *pads[1:])


def _add_halves(by_halves: Tensor, x: Tensor, pad: tuple[int, int]) -> Tensor:
    """Return the gradient by x from those by its halves, which have planes in common."""
    first, last = by_halves.permute(0, 2, 3, 4, 1)
    depth = x.shape[2]
    padded_DHWC = first.new_zeros(depth + sum(pad), *first.shape[1:])
    padded_DHWC[: len(first)] = first
    padded_DHWC[depth // 2 :] += last
    return padded_DHWC[pad[0] : pad[0] + depth].permute(3, 0, 1, 2)[None]
