"""Each log is read once in a process, whatever the command does with it."""

import os
from collections import Counter
from pathlib import Path

import pytest

from compliance.logs.log import LogReader
from submission.assemble.__main__ import main as assemble
from submission.report import main as report
from submission.round.make import RoundInputs, RoundPackage
from submission.round.plan import plan_runs, read_logs
from submission.summary import main as summary
from tests.submission.round.test_round import finished, setup

COUNTS = {"cosmoflow": 3}
ASSEMBLE = ["round/cosmoflow", "-o", "out", "--system", "two_cores.json"]


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
    finished(Path("round"), COUNTS)
    Path("two_cores.json").write_text("{}")


def test_a_round_reads_each_run_and_each_copy_once(runs, readings):
    for _ in range(2):  # the second time the package exists already
        readings.clear()
        runs = read_logs(plan_runs(Path("round"), COUNTS))
        RoundPackage(Path("round"), [setup("cosmoflow")], RoundInputs()).write_package(runs)
        assert set(readings.values()) == {1} and len(readings) == 6


def test_assemble_reads_each_log_once(runs, readings):
    for extra in ([], [], ["-o", "redacted", "--redact"]):
        readings.clear()
        assert assemble([*ASSEMBLE, *extra]) == 0
        assert set(readings.values()) == {1} and len(readings) == 3


def test_reports_read_each_log_once(runs, readings):
    assemble(ASSEMBLE)
    for command, *arguments in (
        (report, "out", "--allow-mini", "-o", "page.html"),
        (summary, "out", "--allow-mini"),
        (report, "out", "--allow-mini", "-o", "other.html", "--data", "analysis"),
        (summary, "round/cosmoflow/run_0", "--compare", "round/cosmoflow/run_1"),
    ):
        readings.clear()
        assert command(arguments) == 0
        assert set(readings.values()) == {1} and len(readings) == (2 if "--compare" in arguments else 3)
