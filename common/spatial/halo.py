"""Convolutions of samples that several ranks share: each convolves its block, and adds what the halo contributes.

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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from common.precision import product_dtype
from common.ranks.dist import Dist, Wait
from common.spatial.convolution import PaddedConv3d, Pads, compute_gradients, convolve_padded
from common.spatial.grid import HERE, Grid, Offset, Reach


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
        y_BCDHW: Tensor = _HaloConvolution.apply(x_BCDHW, weight, bias, self, *halos)
        return y_BCDHW

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
        wait = _wait_for_nothing if layer.with_halo else _start_halos(layer, x, halo_at)
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
        wait = _start_gradients(layer, by_y, arrived) if needs_x else _wait_for_nothing
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
        halo_count = len(ctx.needs_input_grad) - 4
        return (by_x, by_weight, by_bias, None, *[None] * halo_count)


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


def _start_halos(layer: HaloConv3d, x: Tensor, arrived: dict[Offset, Tensor]) -> Wait:
    """Start to send the halos of the neighbours and to receive the own ones, in `arrived`."""
    sent = [(rank, x[_part_at(layer.reach.source_slice, (-d, -h))]) for (d, h), rank in layer.halo_offsets(-1)]
    shapes = {offset: (rank, _shape_of(x, map(layer.reach.halo_rows, offset))) for offset, rank in layer.halo_offsets()}
    return _exchange_parts(layer.group, x, sent, shapes, arrived)


def _start_gradients(layer: HaloConv3d, by_y: Tensor, arrived: dict[Offset, Tensor]) -> Wait:
    """Start to send the gradients of outputs to the ranks of the voxels behind them, and to receive theirs."""
    sent = [(rank, by_y[_part_at(layer.reach.target_slice, offset)]) for offset, rank in layer.halo_offsets()]
    shapes = {
        (d, h): (rank, _shape_of(by_y, (layer.reach.halo_rows(-d), layer.reach.halo_rows(-h))))
        for (d, h), rank in layer.halo_offsets(-1)
    }
    return _exchange_parts(layer.group, by_y, sent, shapes, arrived)


def _shape_of(like: Tensor, rows: Iterable[int | None]) -> tuple[int, ...]:
    """Return the shape of the part of a block with these numbers of voxels along D and H; None: all."""
    sides = [side if count is None else count for side, count in zip(like.shape[2:4], rows, strict=True)]
    return (*like.shape[:2], *sides, like.shape[4])


def _exchange_parts(
    group: Dist,
    like: Tensor,
    sent: Sequence[tuple[int, Tensor]],
    received: Mapping[Offset, tuple[int, tuple[int, ...]]],
    arrived: dict[Offset, Tensor],
) -> Wait:
    """Start to send and to receive; tensors travel channels last. All ranks of a group have equally many samples."""
    if not like.numel():
        return _wait_for_nothing
    for offset, (_, (batch, channels, *sides)) in received.items():
        arrived[offset] = like.new_empty(batch, *sides, channels).permute(0, 4, 1, 2, 3)
    return group.exchange(
        [(rank, _channels_last(part).contiguous()) for rank, part in sent],
        [(rank, _channels_last(arrived[offset])) for offset, (rank, _) in received.items()],
    )


def _channels_last(x_BCDHW: Tensor) -> Tensor:
    return x_BCDHW.permute(0, 2, 3, 4, 1)
