"""The classical baselines of OC20: forces are the gradient of an energy, and the command shows what they reach."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from oc20 import baselines, synthesize
from oc20.data.dataset import DataConfig, Dataset
from oc20.graphs import build_graph, find_neighbours


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "oc20"
    assert synthesize.main([str(folder), "--train", "24", "--validation", "4", "--workers", "1"]) == 0
    return folder


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(baselines, "EPOCHS", 10)
    monkeypatch.setattr(baselines, "BATCH", 4)


def test_forces_are_the_gradient_of_the_energy_at_the_atoms(data):
    frame = Dataset(data / "train", DataConfig(data_dir=data)).read(0)
    edges, offsets = find_neighbours(frame.pos, frame.cell, 4.0, 1000)
    graph = build_graph([replace(frame, edges=edges, offsets=offsets)])
    elements = np.unique(frame.numbers).tolist()
    model = baselines.EmbeddedAtoms(elements)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3, generator=generator)
    pos = torch.zeros(len(frame.numbers), 3, requires_grad=True)
    lengths = (graph.vectors + pos[graph.sources] - pos[graph.targets]).norm(dim=1)
    atoms = torch.tensor([elements.index(number) for number in graph.numbers.tolist()])
    fade = (1 + torch.cos(torch.pi * (lengths / 6).clamp_max(1))) / 2
    radial = torch.exp(-(((lengths[:, None] - torch.linspace(0.6, 6, 24)) / 0.3) ** 2) / 2) * fade[:, None]
    pairs = (model.pair_PK[model.pair[atoms[graph.targets], atoms[graph.sources]]] * radial).sum(1)
    shares = ((model.density_ZK[atoms[graph.sources]] * radial).sum(1) - 1.5 * (lengths - 2.5)).exp() * fade / 12
    density = torch.zeros(len(pos)).index_add(0, graph.targets, shares) + 1e-3
    bumps = torch.exp(-(((density.log()[:, None] - torch.linspace(-4, 2, 13)) / 0.5) ** 2) / 2)
    embedding = (model.embedding_ZM[atoms] * bumps).sum(1) + model.linear_Z[atoms] * density
    (gradient,) = torch.autograd.grad(pairs.sum() / 2 + embedding.sum(), pos)
    forces = model(model.describe_edges(graph))
    assert forces.abs().max() > 0.1
    assert torch.allclose(forces, -gradient[graph.free], rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("few_steps")
def test_the_command_shows_the_baselines_beside_the_target(data, tmp_path, capsys):
    assert baselines.main([str(data), "-o", str(tmp_path / "b.json")]) == 0
    output = capsys.readouterr()
    content = json.loads((tmp_path / "b.json").read_text())
    qualities = {baseline["name"]: baseline["quality"] for baseline in content["baselines"]}
    assert list(qualities) == ["zero force", "embedded-atom model"] and content["best"] == "embedded-atom model"
    assert qualities["embedded-atom model"] < 0.5 * qualities["zero force"]  # after 60 steps on 24 frames
    validation = Dataset(data / "validation", DataConfig(data_dir=data))
    frames = [validation.read(index) for index in range(len(validation))]
    forces = np.concatenate([np.abs(frame.force[~frame.fixed]).ravel() for frame in frames])
    assert qualities["zero force"] == pytest.approx(forces.mean(), rel=1e-5)
    lines = output.out.splitlines()
    assert [line.split("  ")[0] for line in lines[-3:-1]] == ["embedded-atom model", "target"]
    assert f"misses the target by {qualities['embedded-atom model'] - 0.036:.4f}" in lines[-1]
    assert "epoch 10 of 10" in output.err


def test_missing_and_other_data_are_told(data, tmp_path, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(synthesize.Synthesize, "_generate_missing", lambda *asked: made.append(asked[1:]))
    monkeypatch.chdir(tmp_path)
    assert baselines.main([]) == 1 and made == [
        (Path("data/oc20-mini"), "the dataset of the mini problem (mini)", "--preset mini", None)
    ]
    assert baselines.main(["mini"]) == 1 and made.pop() == made[0], "by its name, as in other commands"
    assert baselines.main([str(tmp_path)]) == 1 and len(made) == 1  # a folder that is named has data
    assert "generate it by `python -m oc20.synthesize" in capsys.readouterr().err
    text = (data / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace('"variant": "synthetic"', '"variant": "full"'))
    assert baselines.main([str(tmp_path)]) == 1
    assert "this is the full dataset of oc20" in capsys.readouterr().err
    for name, what in (("manifest.json", "the file already exists"), ("no/b.json", "there is no folder")):
        assert baselines.main([str(data), "-o", name]) == 2
        assert what in capsys.readouterr().err
    assert (tmp_path / "manifest.json").exists()
