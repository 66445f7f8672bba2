"""Neighbours and graphs against ase, and against counting one by one."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from oc20.graphs import FAR_ANGSTROM, Frame, build_graph, count_triplets, find_neighbours, join_frames, link_frames


def frame(pos, cell, edges=None, offsets=None, fid=0):
    n = len(pos)
    if edges is None:
        edges, offsets = find_neighbours(np.asarray(pos, np.float32), np.asarray(cell, np.float32))
    return Frame(
        numbers=np.arange(1, n + 1, dtype=np.uint8),
        pos=np.asarray(pos, np.float32),
        cell=np.asarray(cell, np.float32),
        tags=np.zeros(n, np.int8),
        fixed=np.arange(n) % 2 == 0,
        force=np.arange(3 * n, dtype=np.float32).reshape(n, 3),
        energy=1.5 * n,
        edges=np.asarray(edges, np.int32),
        offsets=np.asarray(offsets, np.int8),
        sid=3,
        fid=fid,
    )


def slab(**size):
    build = pytest.importorskip("ase.build")
    atoms = build.fcc111("Cu", **size, vacuum=7.5, periodic=True)
    build.add_adsorbate(atoms, "O", 1.6, "fcc")
    atoms.rattle(0.05, seed=1)
    return atoms


def skewed():
    atoms = pytest.importorskip("ase").Atoms
    cell = [[2.6, 0.1, 0], [1.9, 2.3, 0.2], [-1.1, 0.8, 3.1]]
    return atoms("CuO", [[0, 0, 0], [7.1, -9.3, 5.2]], cell=cell, pbc=True)  # the second lies cells away


def left_handed():
    atoms = skewed()
    atoms.cell[2] *= -1.3
    return atoms


@pytest.mark.parametrize("atoms", [lambda: slab(size=(2, 2, 3)), lambda: slab(size=(4, 3, 4)), skewed, left_handed])
@pytest.mark.parametrize("cutoff", [2.7, 6.0])
def test_neighbours_are_ases(atoms, cutoff):
    atoms = atoms()
    i, j, distance, offset = pytest.importorskip("ase.neighborlist").neighbor_list("ijdS", atoms, cutoff)
    expected = {(*key, *image): d for *key, image, d in zip(j, i, offset.tolist(), distance, strict=True)}
    edges, offsets = find_neighbours(atoms.positions, atoms.cell[:], cutoff, most=10**6)
    assert edges.dtype == np.int32 and offsets.dtype == np.int8
    found = [(*edge, *offset) for edge, offset in zip(edges.tolist(), offsets.tolist(), strict=True)]
    assert len(found) == len(set(found)) and set(found) == set(expected)
    order = [(edge[1], round(expected[edge], 6)) for edge in found]
    assert order == sorted(order), "grouped by centre, by distance"

    most = 20
    nearest, _ = find_neighbours(atoms.positions, atoms.cell[:], cutoff, most)
    assert np.bincount(nearest[:, 1]).tolist() == np.minimum(np.bincount(edges[:, 1]), most).tolist()
    kept = np.concatenate([np.flatnonzero(edges[:, 1] == centre)[:most] for centre in range(len(atoms))])
    assert np.array_equal(nearest, edges[kept])


def test_at_most_fifty_neighbours_chosen_alike_in_a_crystal():
    """Of the equally near the same ones stay, although rounding makes their distances differ a little."""
    pos = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]) * 3.6
    edges, offsets = find_neighbours(pos, 3.6 * np.eye(3))
    assert np.bincount(edges[:, 1]).tolist() == [50] * 4
    noise = np.random.default_rng(1).uniform(-1e-9, 1e-9, pos.shape)
    again, offsets_again = find_neighbours(pos + noise, 3.6 * np.eye(3))
    assert np.array_equal(edges, again) and np.array_equal(offsets, offsets_again)


def test_alone_nowhere_and_at_the_same_place():
    for pos in (np.empty((0, 3)), [[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]):
        edges, offsets = find_neighbours(np.asarray(pos), 20 * np.eye(3))
        assert edges.shape == (0, 2) and offsets.shape == (0, 3)
        assert count_triplets(edges, offsets, len(pos)) == 0
    edges, offsets = find_neighbours(np.zeros((1, 3)), np.diag([5.0, 20, 20]))
    assert edges.tolist() == [[0, 0], [0, 0]] and offsets.tolist() == [[-1, 0, 0], [1, 0, 0]], "its own images"


@pytest.mark.parametrize(
    ("pos", "cell", "message"),
    [
        ([[0, 0, 0]], [[1, 0, 0], [0, 1, 0], [1, 1, 0]], "expected three vectors that span a volume"),
        ([[0, 0, np.nan]], np.eye(3), "a position is not finite"),
        ([[0, 0, 0]], np.diag([0.01, 9, 9]), "0.01 angstrom thick"),
        ([[0, 0, 500.0]], np.eye(3), "500 cells away"),
    ],
)
def test_impossible_cells_are_refused(pos, cell, message):
    with pytest.raises(ValueError, match=message):
        find_neighbours(np.asarray(pos), np.asarray(cell))


def capped(seed=4):
    """Return a frame with edges that have no way back, for each atom keeps three."""
    pos = np.random.default_rng(seed).uniform(0, 4, (6, 3))
    edges, offsets = find_neighbours(pos, 4 * np.eye(3), most=3)
    return frame(pos, 4 * np.eye(3), edges, offsets)


def test_reverse_edges_and_triplets_are_those_found_one_by_one():
    one = capped()
    edges, offsets = one.edges.tolist(), one.offsets.tolist()
    reverse = build_graph([one]).reverse.numpy()
    keys = [(j, i, *offset) for (j, i), offset in zip(edges, offsets, strict=True)]
    for edge, (j, i, *offset) in enumerate(keys):
        opposite = (i, j, *(-n for n in offset))
        assert reverse[edge] == (keys.index(opposite) if opposite in keys else edge)
    assert 0 < (reverse == np.arange(len(edges))).sum() < len(edges)
    triplets = sum(
        edges[kj][1] == edges[ji][0] and reverse[ji] != kj for kj, ji in itertools.product(range(len(edges)), repeat=2)
    )
    assert count_triplets(one.edges, one.offsets, 6) == triplets


def test_a_batch_is_its_frames_side_by_side():
    frames = [capped(4), frame([[0, 0, 0]], 20 * np.eye(3)), capped(5), frame([[0, 0, 0], [0, 0, 2]], 9 * np.eye(3))]
    graph = build_graph(frames)
    assert graph.images == 4 and graph.energies.tolist() == [9, 1.5, 9, 3]
    assert graph.image.tolist() == 6 * [0] + [1] + 6 * [2] + 2 * [3]
    assert graph.numbers.tolist() == [1, 2, 3, 4, 5, 6, 1, 1, 2, 3, 4, 5, 6, 1, 2]
    assert graph.free.tolist() == [*3 * [False, True], False, *3 * [False, True], False, True]
    assert graph.forces.dtype == torch.float32 and torch.equal(graph.forces[:6], graph.forces[7:13])
    edge = 0
    for start, one in zip((0, 6, 7, 13), frames, strict=True):
        reverse = build_graph([one]).reverse
        for number, ((j, i), offset) in enumerate(zip(one.edges, one.offsets, strict=True)):
            assert (graph.sources[edge], graph.targets[edge]) == (j + start, i + start)
            vector = one.pos[j] - one.pos[i] + offset @ one.cell
            np.testing.assert_allclose(graph.vectors[edge], vector, atol=1e-6)
            assert graph.reverse[edge] - edge == reverse[number] - number
            edge += 1
    assert edge == len(graph.sources) == 18 + 18 + 2


def tables(sources, targets, offsets, atoms, widths):
    """Return the reverse edges and the members and slots of both tables, found one by one."""
    keys = [*zip(sources, targets, map(tuple, offsets), strict=True)]
    numbers = {key: edge for edge, key in enumerate(keys)}
    reverse = [numbers.get((i, j, tuple(-n for n in o)), edge) for edge, (j, i, o) in enumerate(keys)]
    found = [reverse]
    for owners, width in zip((targets, sources), widths, strict=True):
        rows = [[edge for edge, owner in enumerate(owners) if owner == atom] for atom in range(atoms)]
        found.append([row + [0] * (width - len(row)) for row in rows])
        found.append([owner * width + rows[owner].index(edge) for edge, owner in enumerate(owners)])
    return found


def alone_between():
    """Return frames with and without edges, the latter also at both ends, and one with edges to its own images."""
    alone = frame([[0, 0, 0]], 20 * np.eye(3))
    return [alone, capped(4), alone, frame([[0, 0, 0], [0, 0, 2]], np.diag([5, 9, 9])), capped(5), alone]


@pytest.mark.parametrize("wider", [0, 3])
@pytest.mark.parametrize("frames", [[], alone_between, *([capped(seed)] * 2 for seed in range(6))])
def test_tables_and_reverse_edges_are_those_found_one_by_one(frames, wider):
    joined = join_frames(frames() if callable(frames) else frames)
    joined = replace(joined, widths=tuple(width + wider for width in joined.widths))
    graph = link_frames(joined)
    assert link_frames(graph) is graph
    values = (joined.sources, joined.targets, joined.offsets)
    expected = tables(*(value.tolist() for value in values), len(joined.numbers), joined.widths)
    found = [graph.reverse]
    for table, owners, width in zip((graph.incoming, graph.outgoing), values[1::-1], joined.widths, strict=True):
        assert table.members.shape == (len(joined.numbers), width)
        assert width - wider == torch.bincount(owners).max() if len(owners) else width == wider
        found += [table.members, table.slots]
    assert [tensor.tolist() for tensor in found] == expected


def test_frames_with_ungrouped_edges_are_refused():
    one = capped()
    with pytest.raises(ValueError, match="not grouped by centre: sort them by their second column"):
        join_frames([replace(one, edges=one.edges[::-1], offsets=one.offsets[::-1])])


def test_edges_of_no_length_lead_far_away():
    pos = [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    edges = [[1, 0], [2, 0], [0, 1], [2, 1], [0, 2], [1, 2]]
    graph = build_graph([frame(pos, 9 * np.eye(3), edges, np.zeros((6, 3)))])
    lengths = torch.linalg.vector_norm(graph.vectors, dim=1)
    assert lengths[[1, 3, 4, 5]].tolist() == 4 * [1] and (lengths[[0, 2]] > FAR_ANGSTROM).all()


def test_all_tensors_move_to_the_device():
    graph = build_graph([capped()]).to("meta")
    tensors = [graph.numbers, graph.vectors, graph.free, graph.incoming.members, graph.outgoing.slots]
    assert all(tensor.is_meta for tensor in tensors) and graph.images == 1
