"""The classical baselines of OC20: their forces are those of energies, and the command shows them beside the target."""

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


def test_embedding_columns_are_the_gradient_of_an_energy(data):
    """The energy of each element and function is added up by itself, and differentiated by torch."""
    frame = Dataset(data / "train", DataConfig(data_dir=data)).read(0)
    edges, offsets = find_neighbours(frame.pos, frame.cell, 4.0, 1000)  # symmetric ones
    graph = build_graph([replace(frame, edges=edges, offsets=offsets)])
    features = baselines.Features(np.unique(frame.numbers).tolist())
    first = features.pairs * len(baselines.CENTRES_ANGSTROM)
    columns = features.build_rows(graph).columns.unflatten(0, (-1, 3))[..., first:]
    assert columns.abs().max() > 0.01
    pos = torch.zeros(len(frame.numbers), 3, dtype=torch.float64, requires_grad=True)
    lengths = (graph.vectors.double() + pos[graph.sources] - pos[graph.targets]).norm(dim=1)
    fade = (1 + torch.cos(torch.pi * (lengths / 6).clamp_max(1))) / 2
    number = 0
    for reach in baselines.RANGES_ANGSTROM:
        scale = 12 * np.exp(-2.5 / reach)
        density = torch.zeros(len(pos), dtype=torch.float64).index_add(
            0, graph.targets, torch.exp(-lengths / reach) * fade / scale
        )
        for power in baselines.POWERS:
            for element in features.elements:
                energy = (density**power)[graph.numbers == element].sum()
                (gradient,) = torch.autograd.grad(energy, pos, retain_graph=True)
                assert torch.allclose(columns[..., number], -gradient[graph.free], rtol=1e-4, atol=1e-6)
                number += 1


def test_the_command_shows_the_baselines_beside_the_target(data, tmp_path, capsys):
    assert baselines.main([str(data), "-o", str(tmp_path / "b.json")]) == 0
    shown = capsys.readouterr()
    written = json.loads((tmp_path / "b.json").read_text())
    qualities = {one["name"]: one["quality"] for one in written["baselines"]}
    assert list(qualities) == ["zero force", "mean force", "linear pair model"]
    assert qualities["linear pair model"] < 0.7 * qualities["zero force"] and written["best"] == "linear pair model"
    validation = Dataset(data / "validation", DataConfig(data_dir=data))
    frames = [validation.read(index) for index in range(len(validation))]
    forces = np.concatenate([np.abs(frame.force[~frame.fixed]).ravel() for frame in frames])
    assert qualities["zero force"] == pytest.approx(forces.mean(), rel=1e-5)
    lines = shown.out.splitlines()
    assert [line.split("  ")[0] for line in lines[-3:-1]] == ["linear pair model", "target"]
    assert f"by {qualities['linear pair model'] - 0.036:.4f}" in lines[-1] and "penalty" in shown.err


def test_missing_and_other_data_are_told(data, tmp_path, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(synthesize.Synthesize, "_generate_missing", lambda *asked: made.append(asked[1:]))
    monkeypatch.chdir(tmp_path)
    assert baselines.main([]) == 1 and made == [(Path("data/oc20-mini"), "the mini dataset", "--preset mini", None)]
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
