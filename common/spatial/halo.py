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

from common.distributed.dist import Dist, Wait
from common.precision import product_dtype
from common.spatial.convolution import PaddedConv3d, Pads, convolved, gradients
from common.spatial.grid import HERE, Grid, Offset, Reach


class HaloConv3d(PaddedConv3d):
    """A convolution with padding "same" of samples that the ranks of a grid share.

    former: the convolution on one device. group: the ranks of the grid. with_halo: the input already has the halo, as a
    reader brings it, and needs no gradient; otherwise the neighbours send it.
    """

    def __init__(self, former: nn.Conv3d, grid: Grid, group: Dist, *, with_halo: bool) -> None:
        super().__init__(former)
        self.grid, self.group, self.with_halo = grid, group, with_halo
        self.reach = Reach.of(former.kernel_size[0])

    def forward(self, x_BCDHW: Tensor) -> Tensor:
        """Return the outputs of this rank's block."""
        dtype = product_dtype(x_BCDHW)
        x_BCDHW, weight, bias = x_BCDHW.to(dtype), self.weight.to(dtype), self.bias.to(dtype)
        halos: list[Tensor] = []
        if self.with_halo:
            x_BCDHW, halos = self._divided(x_BCDHW)
        y_BCDHW: Tensor = _HaloConvolution.apply(x_BCDHW, weight, bias, self, *halos)
        return y_BCDHW

    def offsets(self, sign: int = 1) -> list[tuple[Offset, int]]:
        """Return offset and place of the neighbours whose halo is not empty; sign -1: to which this rank's is not."""
        return [
            (offset, place)
            for offset, place in self.grid.neighbours()
            if all(self.reach.rows(sign * one) != 0 for one in offset)
        ]

    def padding_of(self, offset: Offset) -> Pads:
        """Return the zeros around a halo, or around the block."""
        return (*map(self.reach.padding, offset), self.reach.padding(0))

    def _divided(self, x_BCDHW: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the block and the halos in an input that has both, in the order of `offsets`."""
        ranges = []
        for axis, (extent, own) in enumerate(zip(self.grid.extents, self.grid.coordinates, strict=True)):
            before, side = self.reach.before if own > 0 else 0, x_BCDHW.shape[2 + axis]
            after = self.reach.after if own + 1 < extent else 0
            ranges.append({-1: slice(0, before), 0: slice(before, side - after), 1: slice(side - after, None)})
        found = [x_BCDHW[:, :, ranges[0][d], ranges[1][h]] for (d, h), _ in self.offsets()]
        return x_BCDHW[:, :, ranges[0][0], ranges[1][0]], found


class GatheredConv3d(PaddedConv3d):
    """A convolution of whole samples, computed by each rank of a group: their blocks are too small to be divided.

    former: the convolution on one device.
    """

    def __init__(self, former: nn.Conv3d, grid: Grid, group: Dist) -> None:
        super().__init__(former)
        self.grid, self.group = grid, group

    def forward(self, x_BCDHW: Tensor) -> Tensor:
        """Return the outputs for the whole samples, of which the input is a block."""
        return super().forward(_Gathered.apply(x_BCDHW, self.grid, self.group))


class _HaloConvolution(torch.autograd.Function):
    """Convolve a block with its halos, which are given or come from the neighbours."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, layer: HaloConv3d, *halos: Tensor) -> Tensor:
        found = {offset: halo for (offset, _), halo in zip(layer.offsets(), halos, strict=False)}
        wait = _nothing if layer.with_halo else _start_halos(layer, x, found)
        y = convolved(x, weight, bias, layer.padding_of(HERE))
        wait()
        for offset, halo in found.items():
            y[_part(layer.reach.target, offset)].add_(
                convolved(halo, weight[_part(layer.reach.weights, offset)], None, layer.padding_of(offset))
            )
        ctx.layer, ctx.offsets = layer, tuple(found)
        ctx.save_for_backward(x, weight, *found.values())
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, by_y: Tensor) -> tuple[Tensor | None, ...]:
        layer, (x, weight, *halos) = ctx.layer, ctx.saved_tensors
        by_y = by_y.contiguous(memory_format=torch.channels_last_3d)
        needs_x = ctx.needs_input_grad[0]
        arrived: dict[Offset, Tensor] = {}
        wait = _start_gradients(layer, by_y, arrived) if needs_x else _nothing
        by_x, by_weight, by_bias = gradients(by_y, x, weight, layer.padding_of(HERE), (needs_x, True, True))
        for offset, halo in zip(ctx.offsets, halos, strict=True):
            part = _part(layer.reach.weights, offset)
            mine = by_y[_part(layer.reach.target, offset)]
            by_weight[part].add_(gradients(mine, halo, weight[part], layer.padding_of(offset), (False, True, False))[1])
        wait()
        for offset, theirs in arrived.items():  # what this rank's voxels did as the halo of the neighbour there
            back = (-offset[0], -offset[1])
            mine, part = _part(layer.reach.source, back), _part(layer.reach.weights, back)
            by_x[mine].add_(gradients(theirs, x[mine], weight[part], layer.padding_of(back), (True, False, False))[0])
        given = len(ctx.needs_input_grad) - 4
        return (by_x, by_weight, by_bias, None, *[None] * given)


class _Gathered(torch.autograd.Function):
    """Put the blocks of all ranks together; the gradient of the block is that of the whole loss."""

    @staticmethod
    def forward(ctx: Any, x_BCDHW: Tensor, grid: Grid, group: Dist) -> Tensor:
        x_BDHWC = x_BCDHW.permute(0, 2, 3, 4, 1)
        batch, depth, height, *rest = x_BDHWC.shape
        sides = (depth * grid.extents[0], height * grid.extents[1])
        whole_BDHWC = x_BDHWC.new_empty(batch, *sides, *rest)
        for block, part in zip(grid.blocks(sides), group.all_gather(x_BDHWC), strict=True):
            whole_BDHWC[:, *block.slices] = part
        ctx.own, ctx.ranks = grid.block(sides).slices, grid.ranks
        return whole_BDHWC.permute(0, 4, 1, 2, 3)

    @staticmethod
    def backward(ctx: Any, gradient_BCDHW: Tensor) -> tuple[Tensor, None, None]:
        return gradient_BCDHW[:, :, *ctx.own] * ctx.ranks, None, None


def _nothing() -> None:
    """Wait for nothing."""


def _part(along: Callable[[int], slice], offset: Offset) -> tuple[slice, ...]:
    """Return the part of a tensor (·, ·, D, H, …) that is `along` of the offset on either axis."""
    return (slice(None), slice(None), *map(along, offset))


def _start_halos(layer: HaloConv3d, x: Tensor, found: dict[Offset, Tensor]) -> Wait:
    """Start to send the halos of the neighbours and to receive the own ones, in `found`."""
    sent = [(place, x[_part(layer.reach.source, (-one, -other))]) for (one, other), place in layer.offsets(-1)]
    shapes = {offset: (place, _shape(x, map(layer.reach.rows, offset))) for offset, place in layer.offsets()}
    return _exchange(layer.group, x, sent, shapes, found)


def _start_gradients(layer: HaloConv3d, by_y: Tensor, arrived: dict[Offset, Tensor]) -> Wait:
    """Start to send the gradients of outputs to those whose voxels they depend on, and to receive such."""
    sent = [(place, by_y[_part(layer.reach.target, offset)]) for offset, place in layer.offsets()]
    shapes = {
        (one, other): (place, _shape(by_y, (layer.reach.rows(-one), layer.reach.rows(-other))))
        for (one, other), place in layer.offsets(-1)
    }
    return _exchange(layer.group, by_y, sent, shapes, arrived)


def _shape(like: Tensor, rows: Iterable[int | None]) -> tuple[int, ...]:
    """Return the shape of the part of a block with these numbers of voxels along D and H; None: all."""
    sides = [side if count is None else count for side, count in zip(like.shape[2:4], rows, strict=True)]
    return (*like.shape[:2], *sides, like.shape[4])


def _exchange(
    group: Dist,
    like: Tensor,
    sent: Sequence[tuple[int, Tensor]],
    received: Mapping[Offset, tuple[int, tuple[int, ...]]],
    found: dict[Offset, Tensor],
) -> Wait:
    """Start to send and to receive; tensors travel channels last. All ranks of a group have equally many samples."""
    if not like.numel():
        return _nothing
    for offset, (_, (batch, channels, *sides)) in received.items():
        found[offset] = like.new_empty(batch, *sides, channels).permute(0, 4, 1, 2, 3)
    return group.exchange(
        [(place, _channels_last(part).contiguous()) for place, part in sent],
        [(place, _channels_last(found[offset])) for offset, (place, _) in received.items()],
    )


def _channels_last(x_BCDHW: Tensor) -> Tensor:
    return x_BCDHW.permute(0, 2, 3, 4, 1)
