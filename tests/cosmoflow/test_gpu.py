"""The GPU smoke test: an accelerator has the CPU's curve, and a resumed run its own. Skipped without one."""

import csv
from pathlib import Path

import pytest
import torch

from cosmoflow import synthesize, train

pytestmark = pytest.mark.skipif(not torch.accelerator.is_available(), reason="no accelerator here")
CONFIG = """
output_dir: run
data: {data_dir: data, sample_shape: [32, 32, 32, 4], augment: symmetries, roll_step: 1}
model: {conv_size: 8, conv_layers: 5, dropout: 0.0}
schedule: {base_lr: 0.01, scaling: none, warmup_epochs: 1}
train: {epochs: 3, global_batch_size: 8, seed: 11}
submission: {org: Example University, platform: test_n1}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Train with some values changed, in a folder with data; return the curve of losses and qualities."""
    monkeypatch.chdir(tmp_path)
    Path("gpu.yaml").write_text(CONFIG)
    assert synthesize.main(["data", "--particles", "32", "--train", "64", "--validation", "16"]) == 0

    def train_in(folder, *changes):
        train.main(["gpu.yaml", f"output_dir={folder}", *changes])
        with (Path(folder) / "history.csv").open() as file:
            return [float(row[name]) for row in csv.DictReader(file) for name in ("loss", "quality")]

    return train_in


def test_an_accelerator_has_the_curve_of_the_cpu(run):
    expected = run("cpu", "dist.device=cpu", "precision.dtype=fp32")
    assert run("fp32", "precision.dtype=fp32") == pytest.approx(expected, rel=2e-3)
    for dtype in ("bf16", "fp16"):
        assert run(dtype, f"precision.dtype={dtype}") == pytest.approx(expected, rel=0.1)


def test_a_resumed_run_has_the_same_curve(run):
    whole = run("whole")
    run("parts", "train.epochs=2")
    assert run("parts", "train.epochs=3", "--resume") == pytest.approx(whole, rel=1e-3)
