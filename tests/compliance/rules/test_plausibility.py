"""Notes on implausible speed: they name the numbers, change no verdict, and leave usual runs alone."""

import pytest

from compliance.engine import Options, check_paths
from compliance.engine.log_checker import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.case import Case
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

NOTES = {"ORD19", "RUN18", "SET14"}


def notes_of(log, profile="strict"):
    run = judge_log(parse_log(log.bytes()), LogTask("result_0.txt", Case(log.round, profile, allow_mini=True)))
    return {finding.rule: finding for finding in run.findings if finding.rule in NOTES}


def faster(log, factor):
    start = log.records_of("run_start")[0]["time_ms"]
    return log.times(lambda ms: ms if ms < start else start + (ms - start) / factor)


def test_nine_epochs_in_fifty_milliseconds_are_noted():
    log = SampleLog("deepcam", epochs=9)
    span = log.records_of("run_stop")[0]["time_ms"] - log.records_of("run_start")[0]["time_ms"]
    (note,) = notes_of(faster(log, span / 50)).values()
    assert note.rule == "SET14" and note.severity == "note" and note.line > 0
    assert "samples/s" in note.message and "times as many as the fastest published result" in note.message


@pytest.mark.parametrize("benchmark", ["cosmoflow", "deepcam", "oc20", "openfold"])
def test_usual_speeds_are_not_noted(benchmark):
    for factor in (0.1, 1, 2):
        assert not notes_of(faster(SampleLog(benchmark), factor))


def test_a_mini_problem_and_the_official_profile_have_no_notes_on_speed():
    assert not notes_of(faster(SampleLog(variant="mini", division="open"), 1e5))
    assert not notes_of(faster(SampleLog(), 1e5), "official")


@pytest.mark.parametrize(
    ("factor", "warned"), [(1, False), (1.05, False), (1.5, True), (4, True), (0.5, False), (0.02, True)]
)
def test_times_are_compared_with_the_records_of_the_run(factor, warned):
    log = SampleLog().throughput()
    found = notes_of(faster(log, factor))
    assert ("ORD19" in found) is warned
    if warned:
        assert found["ORD19"].line == log.records.index(log.records_of("tracked_stats")[0]) + 1


def test_a_run_faster_than_its_siblings_is_noted_once_for_the_result(tmp_path):
    package = SamplePackage().edit(2, lambda log: faster(log, 2)).edit(5, lambda log: faster(log, 1.9))
    report = check_paths([package.write(tmp_path / "Example")], Options())
    (note,) = [finding for finding in report.findings if finding.rule == "RUN18"]
    assert note.severity == "note" and note.path.endswith("result_2.txt")
    assert "result_2.txt, result_5.txt" in note.message and "median of the 10 runs" in note.message
