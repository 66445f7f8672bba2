"""Frames for the tests of this folder."""

from dataclasses import fields

import numpy as np
import pytest

from oc20.graphs import Frame, find_neighbours


@pytest.fixture(scope="session")
def slabs():
    """Eight frames of 1 to 22 atoms in different cells, one without an edge."""
    return [slab(seed, atoms) for seed, atoms in enumerate((5, 13, 22, 1, 8, 13, 17, 3))]


def find_differences(found, expected):
    """Return the names of the fields of two frames that differ in type or value."""
    pairs = {one.name: [np.asarray(getattr(frame, one.name)) for frame in (found, expected)] for one in fields(Frame)}
    return [name for name, (a, b) in pairs.items() if a.dtype != b.dtype or not np.array_equal(a, b)]


def slab(seed, atoms):
    rng = np.random.default_rng(seed)
    cell = np.array([[6, 0, 0], [1, 7, 0], [0, 0.5, 21]], np.float32)
    if atoms == 1:
        cell *= 3
    pos = (rng.random((atoms, 3)) @ cell).astype(np.float32)
    edges, offsets = find_neighbours(pos, cell, cutoff=4.0)
    return Frame(
        numbers=rng.integers(1, 80, atoms).astype(np.uint8),
        pos=pos,
        cell=cell,
        tags=rng.integers(0, 3, atoms).astype(np.int8),
        fixed=rng.random(atoms) < 0.4,
        force=rng.normal(size=(atoms, 3)).astype(np.float32),
        energy=float(rng.normal()),
        edges=edges,
        offsets=offsets,
        sid=1000 + seed,
        fid=2**40 + seed,
    )
