"""Scores against numbers computed by hand."""

import pytest
from msgspec.structs import replace

from compliance.engine import Options, check_paths
from compliance.model.judging import Case, Finding, JudgedRun
from compliance.model.result_set import ResultSet
from compliance.model.score import olympic_mean, throughput, time_to_train
from compliance.model.system import SystemDescription
from compliance.samples.package import SamplePackage

CASE = Case("3.0")
ERROR = Finding("QUA01", "error", "x", 1, "missed")


def run(number, minutes, *, fails=False, start=0.0, **more):
    times = {"start_ms": start * 60_000, "stop_ms": (start + minutes) * 60_000}
    return JudgedRun(f"/x/result_{number}.txt", case=CASE, findings=[ERROR] if fails else [], **times, **more)


def weak(runs, **fields):
    described = SystemDescription("s.json", "s", fields) if fields else None
    return ResultSet("/x", CASE, "weak", runs=runs, description=described)


@pytest.mark.parametrize(
    ("values", "rejected", "mean"),
    [
        ([1, 2, 3, 10], 0, 2.5),
        ([10, 3, 2, 1], 1, 5.0),
        ([1, 2], 0, None),
        ([1, 2], 1, 2.0),
        ([], 0, None),
        ([5], 1, None),
    ],
)
def test_olympic_mean(values, rejected, mean):
    assert olympic_mean(values, rejected) == mean


def test_time_to_train_drops_the_fastest_and_the_slowest():
    score = time_to_train([run(i, minutes) for i, minutes in enumerate([10, 20, 30, 40, 90])], 1.1)
    assert score.minutes == pytest.approx(30) and score.normalized == pytest.approx(33)
    assert score.run_minutes == (10, 20, 30, 40, 90) and score.rejected == () and score.scaled is None


def test_one_rejected_run_counts_as_the_slowest():
    runs = [run(i, minutes, fails=minutes == 20) for i, minutes in enumerate([10, 20, 30, 40, 90])]
    score = time_to_train(runs)
    assert score.minutes == pytest.approx((30 + 40 + 90) / 3) and score.rejected == ("result_1.txt",)


def test_two_rejected_runs_give_no_score():
    runs = [run(i, minutes, fails=minutes < 30) for i, minutes in enumerate([10, 20, 30, 40, 90])]
    score = time_to_train(runs)
    assert score.minutes is None and score.normalized is None


def test_staging_and_convergence_stand_apart():
    runs = [run(i, 60, staging_ms=60_000.0 * i, convergence=20 + i) for i in range(5)]
    score = time_to_train(runs)
    assert score.staging_minutes == pytest.approx(2) and score.convergence == pytest.approx(22)


def test_staging_lies_in_or_out_of_the_clock_of_each_run():
    def score(**staging):
        return time_to_train([run(i, 60 + i, **staging) for i in range(5)])

    inside, outside = score(staging_ms=6e5), score(staging_ms=6e5, staging_outside_ms=6e5)
    assert (inside.staging_clock, outside.staging_clock) == ("in", "out")
    assert (inside.minutes, inside.time_with_staging_minutes) == (62, 62) and inside.time_without_staging_minutes == 52
    assert (outside.minutes, outside.time_without_staging_minutes) == (62, 62)
    assert outside.time_with_staging_minutes == 72
    assert score(staging_ms=6e5, staging_outside_ms=3e5).staging_clock == "in and out" and score().staging_clock == ""


def test_throughput_with_staging_begins_with_the_staging():
    runs = [run(i, 60, start=10 * i, staging_ms=6e5, staging_outside_ms=6e5 * (i == 0)) for i in range(5)]
    score = throughput(runs, 8, 1)
    assert (score.minutes, score.time_with_staging_minutes, score.time_without_staging_minutes) == (100, 110, 100)
    assert score.staging_minutes == 10 and score.staging_clock == "in and out"


def test_the_committee_factor_is_shown_apart():
    score = time_to_train([run(i, 60) for i in range(5)], 1.1, 1.25)
    assert (score.minutes, score.normalized, score.scaled) == pytest.approx((60, 66, 75))


def test_throughput_counts_models_over_the_whole_time():
    runs = [run(i, 60, start=10 * i, nodes=4, accelerators_per_node=8) for i in range(5)]
    runs.append(run(9, 1, fails=True, start=500, nodes=4, accelerators_per_node=8))
    place = weak(runs, number_of_nodes="32", accelerators_per_node="8")
    score = throughput(runs, place.system_scale, place.instance_scale, 1.25)
    assert (score.system_scale, score.instance_scale, score.models, score.minutes) == (256, 32, 5, 100)
    assert score.models_per_minute == pytest.approx(0.05)
    assert score.normalized_models_per_minute == pytest.approx(0.04)
    assert score.rejected == ("result_9.txt",)


def test_systems_without_accelerators_count_host_processors():
    runs = [run(i, 60, nodes=4, accelerators_per_node=0) for i in range(3)]
    place = weak(runs, number_of_nodes="16", accelerators_per_node="0", host_processors_per_node="2")
    assert (place.system_scale, place.instance_scale) == (32, 8)
    place = replace(place, case=Case("3.0", "official"))
    assert place.instance_scale == 4


@pytest.mark.parametrize(("start", "scale", "whole"), [(0, 64, True), (100, 256, False)])
def test_logs_that_state_the_whole_system_give_the_size_by_the_instances_at_once(start, scale, whole):
    runs = [run(i, 60, start=start * i, nodes=32, accelerators_per_node=8) for i in range(4)]
    place = weak(runs, number_of_nodes="32", accelerators_per_node="8")
    assert (place.stated_scale, place.instance_scale, place.states_whole_system) == (256, scale, whole)
    place = replace(place, case=Case("3.0", "official"))
    assert place.instance_scale == 256


def test_instances_of_different_size_have_no_scale():
    runs = [run(i, 60, nodes=4 + i, accelerators_per_node=1) for i in range(3)]
    assert weak(runs).instance_scale is None


@pytest.mark.parametrize(
    ("fields", "scale"),
    [
        ({"number_of_nodes": "16", "accelerators_per_node": "4"}, 64),
        ({"number_of_nodes": 16, "accelerators_per_node": 4.0}, 64),
        ({"number_of_nodes": "16 ", "accelerators_per_node": "4 (SXM)"}, 64),
        ({"number_of_nodes": "16", "accelerators_per_node": "N/A", "host_processors_per_node": "2"}, 32),
        ({"number_of_nodes": "many", "accelerators_per_node": "4"}, None),
        ({"number_of_nodes": True}, None),
        ({"number_of_nodes": 1e308}, None),
        ({"number_of_nodes": "99999999999"}, None),
    ],
)
def test_counts_of_a_description(fields, scale):
    assert SystemDescription("s.json", "s", fields).scale == scale


def test_the_normalisation_of_the_convergence_test_reaches_the_score(tmp_path):
    package = SamplePackage(settings={"global_batch_size": 1024}, epochs=39)
    report = check_paths([package.write(tmp_path / "Example")], Options(round="3.0"))
    score = report.sets[0].score
    assert score.normalization == pytest.approx(40.055556 / 39, rel=1e-6)
    assert score.normalized == pytest.approx(score.minutes * score.normalization)
