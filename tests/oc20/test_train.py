"""OC20's loss and score: what they add up, that padding does not change them, and that nothing waits for the device."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from common.ranks.dist import make_single_dist
from common.settings.run import TrainConfig
from oc20.data import compact, dataset
from oc20.data.dataset import Bucket, GraphBatch, Metadata, pad_frames
from oc20.graphs import build_graph, join_frames, link_frames
from oc20.model import ModelConfig
from oc20.settings import Config, DataConfig
from oc20.train import Oc20
from tests.tape import NeverWaits, leave_out_autocast

SMALL = {"hidden": 8, "blocks": 1, "radial": 3, "spherical": 3, "cutoff": 4.0, "interaction": 6, "basis": 4, "out": 8}


@pytest.fixture
def problem(slabs, tmp_path):
    """Return a function that makes the problem of the frames of this folder."""
    for split in ("train", "validation"):
        folder = tmp_path / split
        folder.mkdir()
        compact.write_frames(folder / "data.0000.bin", slabs)
        dataset.write_metadata(folder / dataset.NAME, Metadata.from_sizes(map(dataset.count_parts, slabs)))

    def made(model=(), **data):
        config = Config(
            output_dir=tmp_path,
            data=DataConfig(tmp_path, format="compact", **data),
            model=ModelConfig(**SMALL | dict(model)),
            train=TrainConfig(global_batch_size=3),
        )
        made = Oc20(config, make_single_dist(), seed=3)
        for output in made.model.outputs:
            torch.nn.init.normal_(output.energy.weight, generator=torch.Generator().manual_seed(1))
        return made

    return made


@pytest.mark.parametrize("detach_angles", [True, False], ids=["detached", "attached"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_neither_graphs_nor_steps_wait_for_the_device(problem, slabs, detach_angles, device, monkeypatch):
    leave_out_autocast(monkeypatch)
    made = problem({"detach_angles": detach_angles})
    made.model.to(device)
    joined = pad_frames(slabs, [Bucket(2560, 128, 12)]).to(device)
    with NeverWaits():
        batch = made.prepared(GraphBatch(joined, np.arange(8)))
        made.loss(made.model, batch).backward()
        with torch.no_grad():
            score = made.score(batch)
    assert score.device.type == device and len(batch.graph.sources) == 2560


@pytest.mark.parametrize("detach_angles", [True, False], ids=["detached", "attached"])
@pytest.mark.parametrize("count", [0, 1, 8])
def test_padding_changes_no_loss_no_score_and_no_gradient(problem, slabs, detach_angles, count):
    made = problem({"detach_angles": detach_angles, "blocks": 2}, buckets="on")
    made.model.double()
    joined = join_frames(slabs[:count])
    atoms, edges = len(joined.numbers), len(joined.sources)
    results = []
    for frames in (joined, pad_frames(slabs[:count], [Bucket(edges + 120, atoms + 3, 12)])):
        graph = link_frames(frames)
        batch = GraphBatch(replace(graph, vectors=graph.vectors.double()), np.arange(count))
        made.model.zero_grad()
        _, forces = made.model(batch.graph)
        loss = made.loss(made.model, batch)
        loss.backward()
        gradients = [parameter.grad.clone() for parameter in made.model.parameters()]
        results.append([loss.detach(), made.score(batch), forces.detach()[:atoms], *gradients])
        assert not forces[atoms:].any()
    for plain, ours in zip(*results, strict=True):
        assert plain.any() or count < 8, "nothing to compare"
        assert not plain.numel() or (ours - plain).abs().max() <= 1e-12 * plain.abs().max()


def test_padding_is_finite_in_mixed_precision(problem, slabs):
    made = problem()
    results = []
    for some in ((), [Bucket(2560, 128, 12)]):
        made.model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = made.loss(made.model, GraphBatch(link_frames(pad_frames(slabs, some)), np.arange(8)))
        loss.backward()
        results.append(torch.cat([loss.detach()[None], *(p.grad.flatten() for p in made.model.parameters())]))
    assert (results[0] - results[1]).norm() < 1e-2 * results[0].norm()


@pytest.mark.parametrize("how", ["auto", "on", "off"])
def test_batches_are_padded_where_asked_and_evaluated_alike(problem, slabs, how):
    made = problem(buckets=how, balance="none")
    found = list(made.batches(epoch=0, first_step=0))
    some = made.choose_buckets(made.sets["train"])
    assert bool(some) == (how == "on") and some == problem(buckets=how).choose_buckets(made.sets["train"])
    sizes = {(len(batch.graph.numbers), len(batch.graph.sources), batch.graph.images) for batch in found}
    natural = {(sum(len(slabs[i].numbers) for i in batch.indices), len(batch.indices)) for batch in found}
    assert len(natural) > 1
    if how == "on":
        assert sizes <= {(bucket.atoms, bucket.edges, bucket.images) for bucket in some}
    else:
        assert {(atoms, images) for atoms, _, images in sizes} == natural
    again = [batch.graph for batch in made.batches(epoch=0, first_step=1)]
    assert [len(graph.sources) for graph in again] == [len(batch.graph.sources) for batch in found[1:]]
    made.model.eval()
    assert made.evaluate() == pytest.approx(problem(buckets="off").evaluate(), rel=1e-5)


def test_errors_of_free_atoms_are_added_up(problem, slabs):
    made, graph = problem(), build_graph(slabs)
    with torch.no_grad():
        _, forces = made.model(graph)
        score = made.score(SimpleNamespace(graph=graph))
        loss = made.loss(made.model, SimpleNamespace(graph=graph))
    std, free = made.config.data.energy_std, ~np.concatenate([frame.fixed for frame in slabs])
    wrong = np.abs(forces.double().numpy() * std - np.concatenate([frame.force for frame in slabs]))[free]
    assert score.dtype == torch.float64 and score[1] == 3 * free.sum() < 3 * len(free)
    assert score[0].item() == pytest.approx(wrong.sum(), rel=1e-6)
    assert loss.item() == pytest.approx(50 * wrong.sum() / std, rel=1e-6)
