"""Each log is read once in a process, whatever the command does with it."""

import os
from collections import Counter
from pathlib import Path

import pytest

from compliance.logs.log import LogReader
from compliance.samples.log import SampleLog
from submission.assemble.__main__ import main as assemble
from submission.report import main as report
from submission.round.make import RoundInputs, RoundPackage
from submission.round.plan import plan_runs, read_logs
from submission.runs.processes import Setup
from submission.summary import main as summary

PLATFORM = "two_cores"
SUBMISSION = {
    "org": "Example University",
    "division": "open",
    "status": "research",
    "platform": PLATFORM,
    "round": "3.0",
}


@pytest.fixture
def readings(monkeypatch):
    """Count how often each file is read."""
    counts = Counter()
    close = LogReader.close

    def counted(reader):
        counts[os.path.realpath(reader.log.path)] += 1
        return close(reader)

    monkeypatch.setattr(LogReader, "close", counted)
    return counts


@pytest.fixture
def runs(empty_folder):
    """Write the logs of a round of three runs into the current folder."""
    runs = plan_runs(Path("round"), {"cosmoflow": 3})
    for number, run in enumerate(runs):
        log = SampleLog("cosmoflow", "3.0", "open", variant="mini", run=number, epochs=12)
        log.set("seed", run.seed).set("submission_platform", PLATFORM).set("submission_status", "research")
        run.write_record()
        log.set("number_of_nodes", 1).set("accelerators_per_node", 0)
        (run.folder / "result_0.txt").write_bytes(log.bytes())
    Path(f"{PLATFORM}.json").write_text("{}")
    return runs


def finish_round(runs):
    setup = Setup("cosmoflow", "c.yaml", (), "", "mini", Path("data"), SUBMISSION)
    RoundPackage(Path("round"), [setup], RoundInputs()).write_package(read_logs(runs))


def test_a_round_reads_each_run_and_each_copy_once(runs, readings):
    finish_round(runs)
    assert set(readings.values()) == {1} and len(readings) == 6
    readings.clear()
    finish_round(runs)  # the package exists already
    assert set(readings.values()) == {1} and len(readings) == 6


def test_assemble_reads_each_log_once(runs, readings):
    call = ["round/cosmoflow", "-o", "out", "--system", f"{PLATFORM}.json"]
    for extra in ([], [], ["-o", "redacted", "--redact"]):
        readings.clear()
        assert assemble([*call, *extra]) == 0
        assert set(readings.values()) == {1} and len(readings) == 3


def test_reports_read_each_log_once(runs, readings):
    assemble(["round/cosmoflow", "-o", "out", "--system", f"{PLATFORM}.json"])
    for command, *arguments in (
        (report, "out", "--allow-mini", "-o", "page.html"),
        (summary, "out", "--allow-mini"),
        (report, "out", "--allow-mini", "-o", "other.html", "--data", "analysis"),
        (summary, "round/cosmoflow/run_0", "--compare", "round/cosmoflow/run_1"),
    ):
        readings.clear()
        assert command(arguments) == 0
        assert set(readings.values()) == {1} and len(readings) == (2 if "--compare" in arguments else 3)
