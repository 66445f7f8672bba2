"""bench/cosmoflow.py: its arguments, and one measurement of a tiny network; no times are asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"
TINY = {"side": 8, "channels": 2, "layers": 2, "batch": 1, "dtype": "fp32", "threads": 1, "device": "cpu"}


def run(script, *arguments, text=""):
    command = [sys.executable, BENCH / script, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--peer-python", "python", "--no-peer"], "not allowed with"),
        (["--turns", "many"], "invalid int value"),
        (["--quickly"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments_are_refused(arguments, said):
    done = run("cosmoflow.py", *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_a_worker_measures_a_turn_for_each_line():
    done = run("cosmoflow_measures.py", json.dumps(TINY), text="\n\n")
    facts, *turns = map(json.loads, done.stdout.splitlines())
    # Convolutions 4 -> 2 -> 4, then 2³ voxels x 4 channels -> 128 -> 64 -> 4.
    parameters = 4 * 27 * 2 + 2 + 2 * 27 * 4 + 4 + 32 * 128 + 128 + 128 * 64 + 64 + 64 * 4 + 4
    assert facts["parameters"] == parameters
    assert len(turns) == 2
    assert all(turn[key] > 0 for turn in turns for key in ("cpu_s", "wall_s", "flop_per_cpu_s"))


def test_the_tables_show_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    import cosmoflow_table

    ours = {"cpu_s": 0.5, "wall_s": 0.5, "memory_mb": 300.0, "versions": {"torch": "2"}, "cpu_s_of_turns": [0.4, 0.6]}
    ours |= {"flops_per_sample": 1e9, "flop_per_cpu_s": 4e9, "flop_per_s": 4e9, "wait_share": 0.125}
    peer = {"cpu_s": 1.0, "wall_s": 2.0, "memory_mb": 400.0, "versions": {"tensorflow": "2"}}
    result = {"case": TINY, "network": "8³", "ours": ours, "peer": peer, "files": "gzip"}
    sections = ("one core", "all cores", "reading")
    machine = {"date": "2026-01-01", "machine": "a computer", "python": "3", "load": 0.0}
    page = cosmoflow_table.table({section: [result] for section in sections}, machine)
    assert "| 1000.0 ms | 500.0 ms (400.0–600.0) | 0.50 | met | 2 of 4 GFLOP/s, 50% |" in page
    assert "| 2000 ms | 500 ms | 0.25 | 2.0 |" in page
    assert "| gzip | 12.5% | 2.0 | 500.0 ms |" in page

    slower = result | {"peer": peer | {"cpu_s": 0.4}}
    assert "| 1.25 | **missed** |" in cosmoflow_table.table({"one core": [slower]}, machine)
