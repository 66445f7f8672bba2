"""Grids of ranks: which voxels each has, and which its neighbours need."""

import numpy as np
import pytest

from common.spatial.grid import HERE, Block, Grid, Reach


@pytest.mark.parametrize("extents", [(1, 1), (4, 1), (1, 2), (2, 2), (4, 2)])
def test_blocks_are_the_sample_cut_in_pieces(extents):
    whole = np.arange(8 * 4 * 3 * 2).reshape(8, 4, 3, 2)
    seen = np.zeros(whole.shape, int)
    for block in Grid(extents).all_blocks(whole.shape):
        seen[block.slices] += 1
        assert block.sides == (8 // extents[0], 4 // extents[1], 3, 2)
        read = np.zeros(block.sides, int)
        for first, part in block.split_runs(read.reshape(-1)):
            part[:] = whole.reshape(-1)[first : first + len(part)]
        assert np.array_equal(read, whole[block.slices])
    assert (seen == 1).all()


def test_a_halo_ends_at_the_faces_of_the_sample():
    sides = (8, 8, 8, 4)
    blocks = [Grid((4, 2), place).own_block(sides, Reach(1, 2)) for place in range(8)]
    assert [(block.d, block.h) for block in blocks] == [
        ((0, 4), (0, 6)), ((0, 4), (3, 8)), ((1, 6), (0, 6)), ((1, 6), (3, 8)),
        ((3, 8), (0, 6)), ((3, 8), (3, 8)), ((5, 8), (0, 6)), ((5, 8), (3, 8)),
    ]  # fmt: skip


def test_neighbours_see_each_other():
    for place in range(8):
        grid = Grid((4, 2), place)
        assert divmod(place, 2) == grid.coordinates
        for (d, h), there in grid.list_neighbours():
            assert dict(Grid((4, 2), there).list_neighbours())[-d, -h] == place
    assert HERE not in dict(Grid((4, 2)).list_neighbours())
    assert not list(Grid((1, 1)).list_neighbours())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_parts_of_a_kernel_make_the_convolution(size):
    """In one dimension: the block's own voxels, and the halo on either side, each with its part of the kernel."""
    reach, rng = Reach.of_kernel(size), np.random.default_rng(size)
    kernel, x = rng.integers(-9, 9, size), rng.integers(-9, 9, 24)
    whole = _convolved(x, kernel, reach)
    found = _convolved(x[8:16], kernel, reach.halo_padding(0))
    for offset, neighbour in ((-1, x[:8]), (1, x[16:])):
        if reach.halo_rows(offset):
            halo = neighbour[reach.source_slice(offset)]
            assert len(halo) == reach.halo_rows(offset)
            found[reach.target_slice(offset)] += _convolved(
                halo, kernel[reach.kernel_slice(offset)], reach.halo_padding(offset)
            )
    assert np.array_equal(found, whole[8:16])


def _convolved(x, kernel, padding):
    padded = np.pad(x, padding)
    return np.array([padded[i : i + len(kernel)] @ kernel for i in range(len(padded) - len(kernel) + 1)])


def test_a_block_of_all_is_one_run():
    ((first, part),) = Block((4, 5, 6), (1, 3), (0, 5)).split_runs(np.arange(60))
    assert first == 30 and len(part) == 60
