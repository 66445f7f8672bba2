"""The ranks that share a sample, as a grid over its first two axes, D and H; pure geometry.

Each has a block of equal size. A convolution also needs a halo: the voxels next to the block, within the kernel's
reach, which the neighbours have. Beyond the faces of the sample there are none, and the convolution pads with zeros.

Shapes: (D, H, W, C) of a sample; offsets are of neighbours in the grid, -1, 0 or 1 along each of its axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final, NamedTuple

import numpy as np

Offset = tuple[int, int]
HERE: Final[Offset] = (0, 0)


class Reach(NamedTuple):
    """The voxels that a kernel reaches before and after its output, along each axis.

    An even kernel reaches farther after it, as "same" of torch and Keras pads.
    """

    before: int
    after: int

    @classmethod
    def of_kernel(cls, kernel_size: int) -> Reach:
        """Return the reach of a kernel of this size."""
        return cls((kernel_size - 1) // 2, kernel_size // 2)

    def halo_rows(self, offset: int) -> int | None:
        """Return how many voxels the halo has on this side; None: as many as the block."""
        return {-1: self.before, 0: None, 1: self.after}[offset]

    def source_slice(self, offset: int) -> slice:
        """Return the voxels of a block that a neighbour needs which has the block at this offset."""
        return {-1: slice(-self.before, None), 0: slice(None), 1: slice(0, self.after)}[offset]

    def target_slice(self, offset: int) -> slice:
        """Return the outputs that depend on the halo at this offset."""
        return {-1: slice(0, self.before), 0: slice(None), 1: slice(-self.after, None)}[offset]

    def kernel_slice(self, offset: int) -> slice:
        """Return the part of the kernel that meets this halo."""
        return {-1: slice(0, self.before), 0: slice(None), 1: slice(self.before + 1, None)}[offset]

    def halo_padding(self, offset: int) -> tuple[int, int]:
        """Return the zeros before and after this halo with which that part of the kernel makes those outputs."""
        return {-1: (0, self.before - 1), 0: (self.before, self.after), 1: (self.after - 1, 0)}[offset]


NONE: Final = Reach(0, 0)


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of ranks. extents: along D and H. rank: this one, numbered along H first."""

    extents: tuple[int, int]
    rank: int = 0

    @property
    def ranks(self) -> int:
        """The number of ranks that share a sample."""
        return prod(self.extents)

    @property
    def coordinates(self) -> tuple[int, int]:
        """The coordinates of this rank."""
        return divmod(self.rank, self.extents[1])

    def list_neighbours(self) -> Iterator[tuple[Offset, int]]:
        """Yield the offset and the rank of each neighbour, diagonal ones too."""
        for offset in product((-1, 0, 1), (-1, 0, 1)):
            d, h = self.coordinates[0] + offset[0], self.coordinates[1] + offset[1]
            if offset != HERE and 0 <= d < self.extents[0] and 0 <= h < self.extents[1]:
                yield offset, d * self.extents[1] + h

    def own_block(self, sides: Sequence[int], reach: Reach = NONE) -> Block:
        """Return this rank's block of samples with these sides (D, H, …), which the extents divide, with its halo."""
        ranges = []
        for side, extent, own in zip(sides, self.extents, self.coordinates, strict=False):
            share = side // extent
            ranges.append((max(0, own * share - reach.before), min(side, (own + 1) * share + reach.after)))
        return Block(tuple(sides), *ranges)

    def all_blocks(self, sides: Sequence[int]) -> list[Block]:
        """Return the blocks of all ranks, without halos."""
        return [Grid(self.extents, rank).own_block(sides) for rank in range(self.ranks)]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of an array in C order. shape: of the whole array; d, h: the ranges along its first two axes."""

    shape: tuple[int, ...]
    d: tuple[int, int]
    h: tuple[int, int]

    @property
    def sides(self) -> tuple[int, ...]:
        """The shape of the block."""
        return (self.d[1] - self.d[0], self.h[1] - self.h[0], *self.shape[2:])

    @property
    def slices(self) -> tuple[slice, slice]:
        """The block in the first two axes of the array."""
        return slice(*self.d), slice(*self.h)

    def split_runs(self, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield where each run of the block begins in the array, and its part of the block's values (n,)."""
        row = prod(self.shape[2:])
        plane, length = self.shape[1] * row, (self.h[1] - self.h[0]) * row
        if length == plane:
            yield self.d[0] * plane, values
            return
        for index, d in enumerate(range(*self.d)):
            yield d * plane + self.h[0] * row, values[index * length : (index + 1) * length]
