"""Padding: which sizes batches get, and that it changes nothing."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from oc20.data import dataset
from oc20.data.dataset import Bucket, Metadata, choose_buckets, pad_frames
from oc20.graphs import EdgeTable, Graph, join_frames, link_frames


def shapes(graph):
    found = {}
    for field in fields(Graph):
        value = getattr(graph, field.name)
        parts = (value.members, value.slots) if isinstance(value, EdgeTable) else (value,)
        found[field.name] = [part if isinstance(part, int) else tuple(part.shape) for part in parts]
    return found


def sizes(count, seed=0, mean_atoms=75, spread=25):
    generator = np.random.default_rng(seed)
    atoms = np.clip(generator.normal(mean_atoms, spread, count), 10, 200).astype(np.int32)
    edges = (atoms * np.clip(generator.normal(47, 2, count), 30, 50)).astype(np.int32)
    return Metadata(atoms, edges, edges, atoms)


@pytest.mark.parametrize("frames", [1, 4, 16])
def test_nearly_all_batches_fit_and_little_is_padded(frames):
    known = sizes(20_000)
    made = choose_buckets(known, frames)
    assert made == choose_buckets(known, frames) and list(made) == sorted(made, key=lambda bucket: bucket.edges)
    chosen = np.random.default_rng(1).integers(0, len(known.natoms), (4000, frames))
    unpadded, added, total = 0, 0, 0
    for atoms, edges in zip(known.natoms[chosen].sum(1), known.neighbors[chosen].sum(1), strict=True):
        fits = [bucket for bucket in made if 0 <= bucket.edges - edges <= 50 * (bucket.atoms - atoms)]
        unpadded += not fits
        added, total = added + (fits[0].edges - edges if fits else 0), total + edges
    assert unpadded <= 0.003 * len(chosen) and 0.01 * total < added < 0.06 * total
    assert len(made) <= 8 + 32 / np.sqrt(frames)


def test_frames_of_one_size_have_one_bucket_and_those_without_edges_none():
    one = Metadata(*np.full((4, 5), 40, np.int32))
    assert choose_buckets(one, 2) == (Bucket(edges=128, atoms=144, images=8),)
    assert choose_buckets(Metadata(*np.zeros((4, 5), np.int32)), 2) == ()


def test_batches_of_a_bucket_have_one_shape_and_the_first_frames_unchanged(slabs):
    some = choose_buckets(Metadata.from_sizes(map(dataset.count_parts, slabs)), 3)
    chosen = [slabs[:3], slabs[5:6], slabs[4:7], []]
    graphs = [link_frames(pad_frames(frames, some[-1:])) for frames in chosen]
    assert all(shapes(graph) == shapes(graphs[0]) for graph in graphs)
    for frames, graph in zip(chosen, graphs, strict=True):
        joined = join_frames(frames)
        atoms, edges = len(joined.numbers), len(joined.sources)
        assert graph.images == len(graph.energies) == 12 and graph.incoming.members.shape[1] == 50
        assert len(graph.numbers) == some[-1].atoms > atoms and len(graph.sources) == some[-1].edges > edges
        for name in ("numbers", "free", "forces", "image"):
            assert torch.equal(getattr(graph, name)[:atoms], getattr(joined, name)), name
        assert torch.equal(graph.vectors[:edges], link_frames(joined).vectors)
        assert torch.equal(graph.reverse[:edges], link_frames(joined).reverse)
        assert torch.equal(graph.reverse[edges:], torch.arange(edges, len(graph.sources))), "no way back"
        assert not graph.free[atoms:].any() and (graph.image[atoms:] == len(frames)).all()


def test_the_first_bucket_that_fits_is_taken_and_none_if_none_fits(slabs):
    joined = join_frames(slabs)
    atoms, edges = len(joined.numbers), len(joined.sources)
    fits = Bucket(edges + 100, atoms + 2, 9)
    for bucket in (
        Bucket(edges - 1, atoms + 5, 9),
        Bucket(edges, atoms - 1, 9),
        Bucket(edges + 101, atoms + 2, 9),  # more than 50 edges for each atom
        Bucket(edges, atoms + 2, 8),  # no frame is left for the padding
    ):
        assert len(pad_frames(slabs, [bucket, fits]).sources) == edges + 100
        alone = pad_frames(slabs, [bucket])
        assert len(alone.numbers) == atoms and len(alone.sources) == edges and alone.widths == joined.widths
    assert len(pad_frames(slabs, [Bucket(edges, atoms, 9)]).sources) == edges


def test_batches_with_wider_tables_than_all_others_are_not_padded(slabs, monkeypatch):
    fits, joined = choose_buckets(Metadata.from_sizes(map(dataset.count_parts, slabs)), 3)[-1:], join_frames(slabs[:3])
    assert link_frames(pad_frames(slabs[:3], fits)).outgoing.members.shape == (fits[0].atoms, 80)
    monkeypatch.setattr("oc20.data.dataset.WIDTHS", (50, 49))  # the padding takes 50
    assert pad_frames(slabs[:3], fits).widths == joined.widths
