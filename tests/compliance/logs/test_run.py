"""What a log says of its run: evaluations, the time breakdown, settings, provenance, who submits."""

import pytest

from compliance.benchmarks import REFERENCES
from compliance.engine import Options, check_paths
from compliance.logs.log import parse_log
from compliance.logs.run import extract_run, names_suite, parse_run
from compliance.logs.timeline import PARTS, Phases
from compliance.samples.log import EPOCH_MS, SampleLog, make_record


def shown(log):
    return parse_run(log.bytes(), "result_0.txt").details


def of_times(*events):
    """Return what a log shows that has these structural records only: (second, key, epoch)."""
    log = SampleLog(epochs=1)
    results, start_ms = {"eval_error": 0.5}, 1_700_000_000_000
    log.records = [
        make_record(key, results.get(key), start_ms + 1000 * second, {"epoch_num": epoch})
        for second, key, epoch in events
    ]
    return shown(log)


def seconds_of(*events):
    return of_times(*events).seconds


# -- evaluations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("benchmark", REFERENCES)
def test_evaluations_of_a_valid_log(benchmark):
    log = SampleLog(benchmark, epochs=4)
    found = shown(log).evaluations
    assert len(found) == 4
    assert found[-1].epoch == (4 * 40 * 256 if benchmark == "openfold" else 4)
    assert log.reference.target.met(found[-1].value) and not log.reference.target.met(found[0].value)
    text = log.bytes().decode().splitlines()
    assert all(log.reference.target.key in text[one.line - 1] for one in found)


def test_evaluations_that_do_not_count_or_hold_no_number_are_left_out():
    log = SampleLog(epochs=4).evaluation(2, "bad").add_evaluation(0.1, after="run_stop")
    log.add_evaluation(0.1, after="run_start").meta("eval_error", "epoch_num", None, which=-2)
    assert [one.epoch for one in shown(log).evaluations] == [1, 3, None]


def test_other_quality_without_reference():
    assert extract_run(parse_log(SampleLog().bytes()), None, None, details=True).details.evaluations == ()


# -- where the time goes -----------------------------------------------------------------------------------


def test_parts_make_up_the_run():
    found = shown(SampleLog(epochs=3))
    assert tuple(found.seconds) == PARTS
    assert found.seconds["train"] == pytest.approx(3 * EPOCH_MS / 1000, rel=1e-2)
    assert found.seconds["eval"] == pytest.approx(24, rel=1e-2) and found.seconds["staging"] == 0
    assert len(found.epoch_seconds) == 3 and sum(found.epoch_seconds) == pytest.approx(found.seconds["train"])


def test_overlapping_time_counts_once():
    """Staging inside initialisation (openfold), evaluation inside an epoch, an epoch that begins during evaluation."""
    assert seconds_of(
        *((0, "init_start", None), (2, "staging_start", None), (5, "staging_stop", None), (9, "init_stop", None)),
        *((10, "run_start", None), (10, "epoch_start", 1), (30, "eval_start", 1), (25, "epoch_start", 2)),
        *((40, "eval_stop", 1), (40, "epoch_stop", 1), (60, "eval_start", 2), (70, "eval_stop", 2)),
        *((70, "epoch_stop", 2), (71, "run_stop", None)),
    ) == {"init": 6, "staging": 3, "train": 40, "eval": 20, "rest": 2}


def test_staging_inside_and_outside_the_run():
    init = ((0, "init_start", None), (1, "init_stop", None))
    run = ((20, "epoch_start", 1), (50, "epoch_stop", 1), (50, "run_stop", None))
    staging = ((11, "staging_start", None), (18, "staging_stop", None))
    inside = seconds_of(*init, (10, "run_start", None), *staging, *run)
    before = seconds_of(*init, *staging, (19, "run_start", None), *run)
    assert inside == before == {"init": 1, "staging": 7, "train": 30, "eval": 0, "rest": 12}


@pytest.mark.parametrize(("start", "outside_ms"), [(10, 0), (19, 7000), (15, 4000), (None, 0)])
def test_only_what_lies_out_of_the_clock_is_staging_outside(start, outside_ms):
    log = SampleLog()
    times = {"run_start": start, "staging_start": 11, "staging_stop": 18, "run_stop": 60}
    known = sorted((second, key) for key, second in times.items() if second is not None)
    log.records = [make_record(key, None, 1_700_000_000_000 + 1000 * second, {}) for second, key in known]
    found = parse_run(log.bytes(), "result_0.txt")
    assert (found.staging_ms, found.staging_outside_ms) == (7000, outside_ms)
    assert found.staging_inside_ms == 7000 - outside_ms


def test_several_ranks_log_the_same_interval():
    epoch = [(10, "epoch_start", 1), (11, "epoch_start", 1), (30, "epoch_stop", 1), (31, "epoch_stop", 1)]
    found = of_times(
        (0, "init_start", None), (1, "init_start", None), (5, "init_stop", None), *epoch, (31, "run_stop", 1)
    )
    assert found.seconds == {"init": 5, "staging": 0, "train": 20, "eval": 0, "rest": 6}
    assert found.epoch_seconds == (20,)


def test_what_lies_after_run_stop_does_not_count():
    found = of_times(
        *((0, "run_start", None), (0, "epoch_start", 1), (10, "epoch_stop", 1), (10, "epoch_start", 2)),
        *((15, "run_stop", None), (20, "epoch_stop", 2), (20, "epoch_start", 3), (30, "epoch_stop", 3)),
    )
    assert found.seconds["train"] == 15 and found.seconds["rest"] == 0
    assert found.epoch_seconds == (10,)


def test_missing_ends():
    """An interval without its stop lasts until the next record, a run without run_stop until its last one."""
    found = of_times(
        *((0, "run_start", None), (0, "epoch_start", 1), (10, "eval_start", 1), (12, "eval_error", 1)),
        *((15, "epoch_start", 2), (25, "epoch_stop", 2), (40, "eval_start", 2)),
    )
    assert found.seconds == {"init": 0, "staging": 0, "train": 20, "eval": 2, "rest": 18}
    assert found.epoch_seconds == (10,)


def test_times_that_go_backwards_or_are_none():
    backwards = SampleLog(epochs=2).shift("epoch_stop", -(10**7))
    assert min(shown(backwards).seconds.values()) >= 0 and len(shown(backwards).epoch_seconds) == 1
    assert len(shown(SampleLog(epochs=2).field("epoch_start", "time_ms", float("nan"))).epoch_seconds) == 1


def test_phases_count_overlapping_time_once_and_leave_out_what_has_no_stop():
    found = of_times(
        *((0, "run_start", None), (0, "epoch_start", 1), (10, "epoch_stop", 1), (8, "eval_start", 1)),
        *((14, "eval_stop", 1), (20, "epoch_start", 2), (30, "eval_start", 2), (40, "run_stop", None)),
    )
    assert found.phases == Phases(epoch_seconds=14, evaluations=1, evaluation_seconds=6, unclosed=(2,), first=1)


def test_blocks_are_epochs():
    found = shown(SampleLog(epochs=3).blocks())
    assert len(found.epoch_seconds) == 3 and found.seconds["train"] == pytest.approx(600, rel=1e-2)
    found = shown(SampleLog(epochs=3).blocks().meta("block_start", "epoch_count", 4))
    assert found.epoch_seconds[0] == pytest.approx(50, rel=1e-2)


# -- settings and provenance -------------------------------------------------------------------------------


def test_settings_and_provenance():
    log = SampleLog("deepcam").set("opt_lr", 0.5).double("opt_lr", value=0.7)
    log.add("provenance", {"source_sha256": "ab"}, before="submission_org")
    found = shown(log)
    assert found.hyperparameters["opt_lr"] == 0.5 and found.hyperparameters["batchnorm_group_size"] == 1
    assert not {"eval_accuracy", "submission_org", "provenance"} & found.hyperparameters.keys()
    assert found.samples_per_epoch == 121_266
    assert found.provenance == {"source_sha256": "ab"}
    assert shown(SampleLog().set("train_samples", "many")).samples_per_epoch is None


def test_who_submits_on_what():
    run = parse_run(SampleLog("oc20").set("submission_org", " X  ").set("submission_benchmark", "OC20").bytes(), "x")
    assert (run.benchmark, run.organisation, run.platform) == ("oc20", "X", "example_n64") and run.finished
    run = parse_run(SampleLog().set("submission_org", 3).drop("run_stop").bytes(), "x")
    assert (run.organisation, run.finished) == (None, False)


def test_the_configuration_without_what_differs_between_runs():
    config = {"output_dir": "run_1", "train": {"seed": 1, "epochs": 2}, "data": {"data_dir": "d"}}
    log = SampleLog().add("provenance", {"versions": {"mlperf-hpc-suite": "1"}, "config": config}, before="run_start")
    found = shown(log)
    assert names_suite(found.provenance)
    assert found.configuration == {"train": {"seed": None, "epochs": 2}, "data": {"data_dir": "d"}}
    assert shown(SampleLog()).configuration is None and not names_suite(shown(SampleLog()).provenance)


# -- from files --------------------------------------------------------------------------------------------


def test_a_check_with_details_has_them_for_every_log(tmp_path):
    (tmp_path / "result_0.txt").write_bytes(SampleLog("oc20", division="open", epochs=3, variant="mini").bytes())
    (tmp_path / "result_1.txt").write_bytes(b"\xff\xfe:::MLLOG {]\n\0")
    (tmp_path / "result_2.txt.gz").write_bytes(SampleLog(epochs=2).gzip())
    runs = check_paths([tmp_path], Options(allow_mini=True, details=True)).runs
    assert [len(run.details.evaluations) for run in runs] == [3, 0, 2]
    assert [run.path.rpartition("/")[2] for run in runs] == ["result_0.txt", "result_1.txt", "result_2.txt.gz"]
    assert runs[1].details.seconds == {}


def test_a_check_without_details_says_so(tmp_path):
    (tmp_path / "result_0.txt").write_bytes(SampleLog().bytes())
    run = check_paths([tmp_path], Options()).runs[0]
    with pytest.raises(ValueError, match="details=True"):
        _ = run.details
