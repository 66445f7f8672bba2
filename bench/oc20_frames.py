"""The frames that both sides of `bench/oc20.py` train on: generated surfaces, through files as they are published."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Before the folder of this file, whose modules have names of packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workers import memory_mb

from oc20.data import extxyz
from oc20.data.conversion import Published
from oc20.graphs import Frame, count_triplets
from oc20.synthesize import Recipe


def frames(case: Any) -> list[Frame]:
    """Return a batch of frames, each of a system of its own, with edges."""
    recipe = Recipe(tuple(case.slab), train=case.batch, validation=0, frames=1)
    records = (record for i in range(case.batch) for record in recipe.simulate_trajectory(0, 0, i))
    with TemporaryDirectory() as folder:
        return list(Published(**vars(extxyz.write_pair(Path(folder), 0, records))).read_frames())


def sizes(batch: list[Frame]) -> dict[str, float]:
    """Return the means of the frames' sizes, and the memory that this process has taken so far."""
    atoms = [len(frame.numbers) for frame in batch]
    triplets = [count_triplets(frame.edges, frame.offsets, len(frame.numbers)) for frame in batch]
    counts = {"atoms": atoms, "edges": [len(frame.edges) for frame in batch], "triplets": triplets}
    means = {f"{name}_per_sample": sum(numbers) / len(batch) for name, numbers in counts.items()}
    return means | {"memory_before_mb": memory_mb()}
