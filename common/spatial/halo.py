"""Convolutions of samples that several ranks share: each convolves its block, and adds what the halo contributes.

The convolutions of blocks and of their halos have zeros given for each side. They are torch's, and so are their
gradients, on shapes for which it computes them well, and right:

An input that is thinner than the kernel, along any axis, is convolved with its zeros. Otherwise the gradients of
weights and bias have wrong numbers, and are written beyond their memory, on CPUs that compute bf16 (oneDNN 3.12,
AVX-512, in torch 2.13): with two planes and a kernel of three, or two rows and a kernel of seven. `PaddedConv3d` does
so for whole samples.

A halo is one plane, for most kernels. Axes of one voxel are left out, so that it is a convolution of two dimensions: in
three, the gradient of the weights is written beyond its memory there, too, for few channels.

For one sample in fp32, torch chooses oneDNN on a CPU only if its channels times D times H are enough, and otherwise a
product with a copy of 27 times the input, which takes longer, and most of the memory. Of a block, that is the usual
case. As two samples, of half the planes each, oneDNN is chosen.

A convolution is linear. So each rank convolves its own block with zero padding while the planes at the inner faces
travel, and then adds to the outputs at these faces what the neighbours' voxels contribute: nothing is copied together,
nothing is computed twice, and at the outer faces the zeros are right. Backward is the same the other way round: the
gradients of the outputs at the inner faces travel, and what they contribute to the neighbours' inputs is added there.
The gradient of the weights is that of the own outputs; the sum over the ranks is that of the sample.

The layers stand for those of a network on one device, whose parameters they take over under the same names. Pooling and
activation need no halo if each rank has an even number of voxels; where it has not, the blocks are gathered.

Shapes: B batch, D H W space of a rank's block, C channels. Halos and their offsets: see `common.spatial.grid`.
Tested on CPUs with gloo; untested on GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.precision import product_dtype
from common.ranks.dist import Dist, Wait
from common.spatial.grid import HERE, Grid, Offset, Reach

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
    flat, x, weight, padding = _prepare_operands(x, weight, pads)
    y = CONVOLUTIONS[3 - len(flat)](x, weight, bias, padding=padding or 0)
    return _restore_axes(y, flat).contiguous(memory_format=torch.channels_last_3d)


def compute_gradients(by_y: Tensor, x: Tensor, weight: Tensor, pads: Pads, wanted: tuple[bool, ...]) -> list[Any]:
    """Return the gradients of `convolve_padded` by x, weight and bias, those that are wanted; by_y: channels last."""
    if _is_slow(x, weight, pads):
        halves, left = _split_sample(x, weight, pads)
        y_DHWC = by_y.permute(0, 2, 3, 4, 1)[0]
        by_outputs = y_DHWC.unflatten(0, (2, -1)).permute(0, 4, 1, 2, 3)  # two samples, in the same memory
        by_halves, *others = compute_gradients(by_outputs, halves, weight, left, wanted)
        return [None if by_halves is None else _add_halves(by_halves, x, pads[0]), *others]
    flat, padded, weight, padding = _prepare_operands(x, weight, pads)
    ones, zeros = [1] * (padded.ndim - 2), [0] * (padded.ndim - 2)
    results = torch.ops.aten.convolution_backward(
        by_y.squeeze(flat), padded, weight, [len(weight)], ones, padding or zeros, ones, False, zeros, 1, wanted
    )
    by_x, by_weight = (_restore_axes(tensor, flat) if tensor is not None else None for tensor in results[:2])
    if by_x is not None and padding is None:
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


def _prepare_operands(
    x: Tensor, weight: Tensor, pads: Pads
) -> tuple[tuple[int, ...], Tensor, Tensor, list[int] | None]:
    """Return the axes to leave out, x and weight without them, and the zeros that torch adds on either side of x.

    None instead of these: x has its zeros, since they differ between the sides, or it is thinner than the kernel.
    """
    flat = _flat_axes(x, weight)
    left = [pair for axis, pair in enumerate(pads, 2) if axis not in flat]
    x, weight = x.squeeze(flat), weight.squeeze(flat)
    sides = zip(left, x.shape[2:], weight.shape[2:], strict=True)
    if all(before == after and side >= kernel for (before, after), side, kernel in sides):
        return flat, x, weight, [before for before, _ in left]
    zeros = [number for pair in reversed(left) for number in pair]  # the last axis first, as `F.pad` takes them
    return flat, F.pad(x, zeros), weight, None


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


class HaloConv3d(PaddedConv3d):
    """A convolution with padding "same" of samples that the ranks of a grid share.

    former: the convolution on one device. group: the ranks of the grid. with_halo: the input already has the halo, as a
    reader brings it, and needs no gradient; otherwise the neighbours send it.
    """

    def __init__(self, former: nn.Conv3d, grid: Grid, group: Dist, *, with_halo: bool) -> None:
        super().__init__(former)
        self.grid, self.group, self.with_halo = grid, group, with_halo
        self.reach = Reach.of_kernel(former.kernel_size[0])

    def forward(self, x_BCDHW: Tensor) -> Tensor:
        """Return the outputs of this rank's block."""
        dtype = product_dtype(x_BCDHW)
        x_BCDHW, weight, bias = x_BCDHW.to(dtype), self.weight.to(dtype), self.bias.to(dtype)
        halos: list[Tensor] = []
        if self.with_halo:
            x_BCDHW, halos = self._split_halos(x_BCDHW)
        return _HaloConvolution.apply(x_BCDHW, weight, bias, self, *halos)

    def halo_offsets(self, sign: int = 1) -> list[tuple[Offset, int]]:
        """Return offset and rank of the neighbours whose halo is not empty; sign -1: of those that need this rank's."""
        return [
            (offset, rank)
            for offset, rank in self.grid.list_neighbours()
            if all(self.reach.halo_rows(sign * side) != 0 for side in offset)
        ]

    def padding_of(self, offset: Offset) -> Pads:
        """Return the zeros around a halo, or around the block."""
        return (*map(self.reach.halo_padding, offset), self.reach.halo_padding(0))

    def _split_halos(self, x_BCDHW: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the block and the halos in an input that has both, in the order of `halo_offsets`."""
        ranges = []
        for axis, (extent, own) in enumerate(zip(self.grid.extents, self.grid.coordinates, strict=True)):
            before, side = self.reach.before if own > 0 else 0, x_BCDHW.shape[2 + axis]
            after = self.reach.after if own + 1 < extent else 0
            ranges.append({-1: slice(0, before), 0: slice(before, side - after), 1: slice(side - after, None)})
        halos = [x_BCDHW[:, :, ranges[0][d], ranges[1][h]] for (d, h), _ in self.halo_offsets()]
        return x_BCDHW[:, :, ranges[0][0], ranges[1][0]], halos


class GatheredConv3d(PaddedConv3d):
    """A convolution of whole samples, computed by each rank of a group: their blocks are too small to be divided.

    former: the convolution on one device.
    """

    def __init__(self, former: nn.Conv3d, grid: Grid, group: Dist) -> None:
        super().__init__(former)
        self.grid, self.group = grid, group

    def forward(self, x_BCDHW: Tensor) -> Tensor:
        """Return the outputs for the whole samples; the input is a block of them."""
        return super().forward(_Gathered.apply(x_BCDHW, self.grid, self.group))


class _HaloConvolution(torch.autograd.Function):
    """Convolve a block with its halos, which are arguments or come from the neighbours."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, layer: HaloConv3d, *halos: Tensor) -> Tensor:
        halo_at = {offset: halo for (offset, _), halo in zip(layer.halo_offsets(), halos, strict=False)}
        wait = _wait_for_nothing if layer.with_halo else _start_exchange(layer, x, halo_at)
        y = convolve_padded(x, weight, bias, layer.padding_of(HERE))
        wait()
        for offset, halo in halo_at.items():
            kernel = weight[_part_at(layer.reach.kernel_slice, offset)]
            outputs = y[_part_at(layer.reach.target_slice, offset)]
            outputs.add_(convolve_padded(halo, kernel, None, layer.padding_of(offset)))
        ctx.layer, ctx.offsets = layer, tuple(halo_at)
        ctx.save_for_backward(x, weight, *halo_at.values())
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, by_y: Tensor) -> tuple[Tensor | None, ...]:
        layer, (x, weight, *halos) = ctx.layer, ctx.saved_tensors
        by_y = by_y.contiguous(memory_format=torch.channels_last_3d)
        needs_x = ctx.needs_input_grad[0]
        arrived: dict[Offset, Tensor] = {}
        wait = _start_exchange(layer, by_y, arrived, sign=-1) if needs_x else _wait_for_nothing
        by_x, by_weight, by_bias = compute_gradients(by_y, x, weight, layer.padding_of(HERE), (needs_x, True, True))
        for offset, halo in zip(ctx.offsets, halos, strict=True):
            part, pads = _part_at(layer.reach.kernel_slice, offset), layer.padding_of(offset)
            mine = by_y[_part_at(layer.reach.target_slice, offset)]
            by_weight[part].add_(compute_gradients(mine, halo, weight[part], pads, (False, True, False))[1])
        wait()
        for offset, theirs in arrived.items():  # what this rank's voxels did as the halo of the neighbour there
            back = (-offset[0], -offset[1])
            pads = layer.padding_of(back)
            mine, part = _part_at(layer.reach.source_slice, back), _part_at(layer.reach.kernel_slice, back)
            by_x[mine].add_(compute_gradients(theirs, x[mine], weight[part], pads, (True, False, False))[0])
        return (by_x, by_weight, by_bias, None, *[None] * (len(ctx.needs_input_grad) - 4))


class _Gathered(torch.autograd.Function):
    """Put the blocks of all ranks together; the gradient of the block is that of the whole loss."""

    @staticmethod
    def forward(ctx: Any, x_BCDHW: Tensor, grid: Grid, group: Dist) -> Tensor:
        x_BDHWC = x_BCDHW.permute(0, 2, 3, 4, 1)
        batch, depth, height, *rest = x_BDHWC.shape
        sides = (depth * grid.extents[0], height * grid.extents[1])
        whole_BDHWC = x_BDHWC.new_empty(batch, *sides, *rest)
        for block, part in zip(grid.all_blocks(sides), group.all_gather(x_BDHWC), strict=True):
            whole_BDHWC[:, *block.slices] = part
        ctx.own, ctx.ranks = grid.own_block(sides).slices, grid.ranks
        return whole_BDHWC.permute(0, 4, 1, 2, 3)

    @staticmethod
    def backward(ctx: Any, gradient_BCDHW: Tensor) -> tuple[Tensor, None, None]:
        return gradient_BCDHW[:, :, *ctx.own] * ctx.ranks, None, None


def _wait_for_nothing() -> None:
    """Wait for nothing."""


def _part_at(along: Callable[[int], slice], offset: Offset) -> tuple[slice, ...]:
    """Return the part of a tensor (·, ·, D, H, …) that is `along` of the offset on either axis."""
    return (slice(None), slice(None), *map(along, offset))


def _start_exchange(layer: HaloConv3d, x: Tensor, arrived: dict[Offset, Tensor], sign: int = 1) -> Wait:
    """Start to send the halos of the neighbours and to receive the own ones, in `arrived`.

    sign -1: x has the gradients of outputs, which go to the ranks of the voxels behind them. Tensors travel channels
    last. All ranks of a group have equally many samples.
    """
    if not x.numel():
        return _wait_for_nothing
    batch, channels, depth, height, width = x.shape
    along = layer.reach.source_slice if sign > 0 else layer.reach.target_slice
    receiving = layer.halo_offsets(sign)
    for (d, h), _ in receiving:
        # None: as many voxels as the block has.
        rows, columns = layer.reach.halo_rows(sign * d), layer.reach.halo_rows(sign * h)
        sides = (depth if rows is None else rows, height if columns is None else columns, width)
        arrived[d, h] = x.new_empty(batch, *sides, channels).permute(0, 4, 1, 2, 3)
    sent = [(rank, x[_part_at(along, (-sign * d, -sign * h))]) for (d, h), rank in layer.halo_offsets(-sign)]
    return layer.group.exchange_tensors(
        [(rank, _channels_last(part).contiguous()) for rank, part in sent],
        [(rank, _channels_last(arrived[offset])) for offset, rank in receiving],
    )


def _channels_last(x_BCDHW: Tensor) -> Tensor:
    return x_BCDHW.permute(0, 2, 3, 4, 1)
