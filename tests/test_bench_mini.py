"""Mini problems need their networks: baselines on small data, and a network without what it should need."""

import json
import subprocess
import sys
from csv import DictReader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/performance"


def run(*command, folder=ROOT):
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, capture_output=True, text=True, check=False, timeout=1000
    )


def test_the_baselines_of_universes_are_a_table_and_a_file(tmp_path):
    made = run("-m", "cosmoflow.synthesize", tmp_path / "data", "--grid", 16, "--particles", 16, "--train", 60)
    assert made.returncode == 0, made.stderr
    ran = run("-m", "cosmoflow.baselines", tmp_path / "data", "-o", tmp_path / "found.json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    by_name = {one["name"]: one for one in found["baselines"]}
    assert list(by_name) == ["constant", "power spectra", "statistics, linear", "statistics, MLP", "specialist"]
    assert all(list(one["details"]["by_label"])[1:] == ["drift_x", "drift_y", "drift_z"] for one in by_name.values())
    # 60 universes teach little, but sigma_8 is in the spectra, and the drift is not.
    errors = by_name["statistics, linear"]["details"]["by_label"]
    assert errors["sigma_8"] < 0.4 < min(errors["drift_x"], errors["drift_y"], errors["drift_z"])
    assert found["best"] != "specialist" and not by_name["specialist"]["counts"] and found["variant"] == "synthetic"
    assert "the target lies beyond the best baseline" in ran.stdout


def test_data_that_cannot_be_used_are_told(tmp_path):
    assert (
        run("-m", "oc20.synthesize", tmp_path / "data", "--train", 2, "--validation", 1, "--frames", 2).returncode == 0
    )
    ran = run("-m", "cosmoflow.baselines", tmp_path / "data")
    assert ran.returncode == 1 and "the synthetic dataset of oc20; expected data" in ran.stderr
    assert run("-m", "cosmoflow.baselines", "--help").returncode == 0


def test_the_page_is_of_the_committed_summaries():
    assert run("bench/mini_runs.py", "--page").stdout == (PAGES / "mini.md").read_text()
    summary = json.loads((PAGES / "mini-cosmoflow.json").read_text())
    best = min(one["quality"] for found in summary["baselines"] for one in found["baselines"] if one["counts"])
    assert summary["met"] == summary["runs"] == 10
    assert max(run["curve"][-1] for run in summary["results"]) < 0.85 * best


@pytest.mark.slow
def test_without_phases_the_network_sees_what_isotropic_statistics_see(tmp_path):
    """A part of the schedule; with phases the network is at 0.2 by then."""
    ran = run(
        "bench/mini_ablation.py",
        "cosmoflow-phases",
        "train.epochs=5",
        "train.seed=1",
        "schedule.decay={}",
        f"output_dir={tmp_path}/run",
        f"data.data_dir={tmp_path}/data",
    )
    assert ran.returncode == 4, ran.stderr
    with (tmp_path / "run/history.csv").open() as file:
        assert min(float(row["quality"]) for row in DictReader(file)) > 0.36
