"""bench/submission.py: arguments and page; no times are measured here."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "submission.py"
MACHINE = {"date": "2026-01-02", "machine": "2 cores", "python": "3.11", "load": 0.5, "versions": {"msgspec": "0.22"}}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--quick", "--keep"], 2, "omit --keep"),
        (["--runs", "0"], 2, "expected at least 1"),
        (["--corpus", "."], 1, "has no published_v*.tar.xz"),
    ],
)
def test_wrong_arguments_are_refused(arguments, status, said, tmp_path):
    command = [sys.executable, SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == status and said in done.stderr


@pytest.mark.parametrize(("seconds", "goal"), [(4.0, "met"), (6.0, "**missed**")])
def test_page(seconds, goal, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    page = runpy.run_path(str(SCRIPT))["page"]
    each = {"cpu_s": seconds, "wall_s": 2.0, "output_bytes": 5000, "most_memory_bytes": 50e6 * seconds}
    commands = ("check", "summary", "report", "analysis")
    results = dict.fromkeys(commands, each) | {"official": {"cpu_s": 144.0, "wall_s": 9.0}}
    text = page(results, MACHINE, {"packages": 18, "logs": 1545})
    assert f"goal: below 15 s CPU: {goal} | {3 * seconds:.2f} s | 6.00 s |" in text
    assert f"| ratio | {48 / seconds:.1f} times less CPU |" in text and "18 packages with 1545 logs" in text
    assert f"at most 8 s CPU and 200 MB: {goal}" in text
