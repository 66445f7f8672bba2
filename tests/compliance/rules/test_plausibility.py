"""Notes on implausible speed: they name the numbers, change no verdict, and leave usual runs alone."""

import pytest

from compliance.engine import Options, check_paths
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.compliance.judged import find_all, judge_sample

NOTES = {"ORD19", "RUN18", "SET14"}


def notes_of(log, profile="strict"):
    run = judge_sample(log, profile, allow_mini=True)
    return {finding.rule: finding for finding in run.findings if finding.rule in NOTES}


def faster(log, factor):
    start = log.records_of("run_start")[0]["time_ms"]
    return log.times(lambda ms: ms if ms < start else start + (ms - start) / factor)


def test_nine_epochs_in_fifty_milliseconds_are_noted():
    log = SampleLog("deepcam", epochs=9)
    span = log.records_of("run_stop")[0]["time_ms"] - log.records_of("run_start")[0]["time_ms"]
    (note,) = notes_of(faster(log, span / 50)).values()
    assert note.rule == "SET14" and note.severity == "note" and note.line > 0
    assert "samples/s" in note.message and "fastest published result" in note.message and "not 2" in note.expected


@pytest.mark.parametrize("benchmark", ["cosmoflow", "deepcam", "oc20", "openfold"])
def test_usual_speeds_are_not_noted(benchmark):
    for factor in (0.1, 1, 2):
        assert not notes_of(faster(SampleLog(benchmark), factor))


def test_a_mini_problem_and_the_official_profile_have_no_notes_on_speed():
    assert not notes_of(faster(SampleLog(variant="mini", division="open"), 1e5))
    assert not notes_of(faster(SampleLog(), 1e5), "official")


@pytest.mark.parametrize(
    ("factor", "severity"),
    [
        (1, ""),
        (1.0005, ""),
        (1.003, "warning"),
        (1.05, "error"),
        (4, "error"),
        (0.995, ""),
        (0.5, "note"),
        (0.02, "note"),
    ],
)
def test_times_are_compared_with_the_records_of_the_run(factor, severity):
    found = notes_of(faster(log := SampleLog().throughput(), factor))
    assert (found["ORD19"].severity if "ORD19" in found else "") == severity
    if severity:
        assert found["ORD19"].line == log.records.index(log.records_of("tracked_stats")[0]) + 1


def test_a_run_faster_than_its_siblings_is_noted_once_for_the_result(tmp_path):
    package = SamplePackage().edit(2, lambda log: faster(log, 1.95)).edit(5, lambda log: faster(log, 1.9))
    (note,) = speed_findings(package.write(tmp_path / "Example"), "RUN18")
    assert note.severity == "note" and note.path.endswith("result_2.txt")
    assert "result_2.txt, result_5.txt" in note.message and "median of the 10 runs" in note.message


def test_a_run_twice_as_fast_as_steady_siblings_is_a_warning(tmp_path):
    package = SamplePackage().edit(2, lambda log: faster(log, 2.2))
    (warning,) = speed_findings(package.write(tmp_path / "steady"), "RUN18")
    (note,) = speed_findings(package.edit(6, lambda log: faster(log, 0.5)).write(tmp_path / "busy"), "RUN18")
    assert (warning.severity, note.severity) == ("warning", "note")


def test_all_runs_faster_than_published_are_one_note(tmp_path):
    package = SamplePackage().edit_all(lambda log: faster(log, 1000))
    (note,) = speed_findings(package.write(tmp_path / "Example"), "SET14")
    assert "likewise in 9 other logs" in note.message


def speed_findings(path, rule):
    return find_all(check_paths([path], Options()), rule)


LAPTOP = (10.0, 8.5, 8.9, 9.4, 10.4, 14.3, 23.0, 74.1)
STEADY = (9.4, 9.3, 9.6, 9.5)


@pytest.mark.parametrize(
    ("seconds", "severities"),
    [
        (LAPTOP, []),
        ((*STEADY, 43.0, *STEADY), []),
        ((*STEADY, 43.0, *STEADY, 51.0, 47.0), ["note"]),
        ((*STEADY, *[1.2] * 12), ["note"]),
        ((560.0, *STEADY, *STEADY), []),
        ((28_800.0, *STEADY, *STEADY), []),  # asleep
        ((17.4, 8.6, 15.6, 14.8, 17.2, 14.8, 23.2, 10.9), []),  # other work on the machine
        ((17.4, 7.2, 15.6, 14.8, 17.2, 14.8, 23.2, 10.9), ["note"]),
        ((*STEADY, 4.0), ["note"]),  # the target may end the last epoch
        ((9.4, 9.2, 9.3, 9.5, 23.1, 23.0, 22.9, 23.2), ["note"]),
        ((*STEADY, 1.2, *STEADY), ["warning"]),
        ((*STEADY, 4.4, *STEADY), ["warning"]),
        ((*STEADY, 0.1, *STEADY), ["error"]),
        ((*STEADY, 9.5, *[1.1] * 7), ["warning"]),  # parts of the last one
        ((*STEADY, *[0.001] * 12, *STEADY), ["error"]),
    ],
)
def test_slow_epochs_are_nothing_and_short_ones_are_named(seconds, severities):
    log = SampleLog(epochs=len(seconds))
    for epoch, length in enumerate(seconds, 1):
        log.shorten(epoch, int(length * 1000))
    assert [finding.severity for finding in find_all(judge_sample(log), "ORD18")] == severities


@pytest.mark.parametrize("factor", [0.15, 0.4, 2.5, 6])
@pytest.mark.parametrize("later", [2, 5, 8])
def test_a_machine_that_changes_its_speed_is_at_most_a_note(factor, later):
    log = SampleLog(epochs=9)
    change = log.records_of("epoch_start")[later]["time_ms"]
    log.times(lambda ms: ms if ms < change else change + factor * (ms - change))
    assert {finding.severity for finding in find_all(judge_sample(log), "ORD18")} <= {"note"}


@pytest.mark.parametrize(("share", "severity"), [(0.11, "warning"), (0.42, "note")])
def test_faster_evaluations_excuse_no_epoch_that_is_much_faster_than_they(share, severity):
    log = SampleLog(epochs=9)
    start, middle, end = (log.records_of(key)[4]["time_ms"] for key in ("epoch_start", "eval_start", "eval_stop"))

    def faster(ms):
        training, evaluation = min(max(ms - start, 0), middle - start), min(max(ms - middle, 0), end - middle)
        return int(ms - (1 - share) * training - 0.35 * evaluation)

    assert {finding.severity for finding in find_all(judge_sample(log.times(faster)), "ORD18")} == {severity}


def test_half_of_the_runs_twice_as_fast_as_the_others_are_noted(tmp_path):
    package = SamplePackage(scaling="weak", runs=4).edit_all(lambda log: faster(log, 2.2), count=2)
    assert speed_findings(package.write(tmp_path / "Example"), "RUN18")


def test_the_message_names_the_odd_epochs():
    log = SampleLog(epochs=9).shorten(5, 1_200).shorten(2, 30_000)
    (finding,) = find_all(judge_sample(log), "ORD18")
    assert finding.message.startswith("epochs 2, 5 take 1.2 to 30.0 s; the median of the other 7 epochs is 200.")
