"""Batches of few sizes: each is padded to the first bucket in which it fits, so that CUDA graphs can be replayed.

What pads a batch is one more frame, of fixed atoms that see images of themselves from farther away than any cutoff.
All basis functions are 0 there, and so is what they add to the forces, the loss, the score and the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from oc20.data.metadata import Metadata
from oc20.graphs import MOST_NEIGHBOURS, Frame, Joined, join_frames
from oc20.settings import FAR_ANGSTROM

STEP: Final = 1.06
"""A bucket has that many times the edges of the one before."""
FEWER: Final = 1.64
MORE: Final = 3.09
"""Standard deviations below and above the mean: 5 % of batches have fewer edges, 0.1 % more than the buckets."""
EDGES_MULTIPLE: Final = 128
ATOMS_MULTIPLE: Final = 16
WIDTHS: Final = (MOST_NEIGHBOURS, 80)
"""Of the tables of edges by centre and by source. Of an atom of 32 generated slabs at most 65 edges start."""
FRAMES: Final = 4
"""A bucket has places for that many times the usual number of frames; frames balanced by triplets differ in number."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The numbers of edges, atoms and frames of a padded batch, one of its frames for the padding."""

    edges: int
    atoms: int
    images: int


def choose_buckets(sizes: Metadata, frames: int) -> tuple[Bucket, ...]:
    """Return the buckets, by size, for batches of some `frames` frames drawn from those with these sizes.

    The number of edges of a batch is taken to be log-normal, and its atoms to be as many as the edges let expect, and
    MORE standard deviations.
    """
    mean = float(sizes.neighbors.mean())
    if not mean:
        return ()
    per_edge = float(sizes.natoms.mean()) / mean
    spread = math.sqrt(math.log1p((float(sizes.neighbors.std()) / mean) ** 2 / frames))
    additional = 1 + MORE * math.sqrt(frames) * float((sizes.natoms - sizes.neighbors * per_edge).std())
    count = 1 + math.ceil((FEWER + MORE) * spread / math.log(STEP))
    largest = frames * mean * math.exp(MORE * spread)
    levels = [_round_up(largest / STEP**k, EDGES_MULTIPLE) for k in reversed(range(count))]
    return tuple(
        Bucket(level, _round_up(level * per_edge + additional, ATOMS_MULTIPLE), FRAMES * frames)
        for level in dict.fromkeys(levels)
    )


def pad_frames(frames: Sequence[Frame], buckets: Sequence[Bucket]) -> Joined:
    """Return the joined frames, padded to the first bucket in which they fit, or as they are if they fit in none.

    Nor do they fit if more edges start at an atom than the tables are wide.
    """
    atoms, edges = sum(len(frame.numbers) for frame in frames), sum(len(frame.edges) for frame in frames)
    for bucket in buckets:
        spare_atoms, spare_edges = bucket.atoms - atoms, bucket.edges - edges
        if 0 <= spare_edges <= MOST_NEIGHBOURS * spare_atoms and len(frames) < bucket.images:
            joined = join_frames([*frames, make_padding(spare_atoms, spare_edges)], bucket.images)
            if joined.widths[1] <= WIDTHS[1]:
                return replace(joined, widths=WIDTHS)
            break
    return join_frames(frames)


def make_padding(atoms: int, edges: int) -> Frame:
    """Return a frame that changes nothing, with at most MOST_NEIGHBOURS edges to each atom from its own images."""
    centres_E: np.ndarray = np.arange(edges, dtype=np.int32) // MOST_NEIGHBOURS
    offsets_E3: np.ndarray = np.zeros((edges, 3), np.int8)
    offsets_E3[:, 0] = 1
    offsets_E3[:, 1] = np.arange(edges) % MOST_NEIGHBOURS  # no edge is there twice, and none leads straight back
    numbers, pos, cell = np.zeros(atoms), np.zeros((atoms, 3)), np.diag([FAR_ANGSTROM, 0, 0])
    frame = Frame.without_forces(numbers, pos, cell, edges=np.stack([centres_E, centres_E], 1), offsets=offsets_E3)
    return replace(frame, fixed=np.ones(atoms, np.bool_))


def _round_up(number: float, multiple: int) -> int:
    return math.ceil(number / multiple) * multiple
