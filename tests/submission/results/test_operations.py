"""The FLOPS of runs: their numbers, why there is none, and the command."""

import csv
import io
import json

import pytest

from common.measure.fom import find_valid_share
from common.reference import Target
from compliance.engine import Options, check_paths
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from submission.results.operations import rate_result
from submission.summary import main

TRAIN_FLOP, EVAL_FLOP = 1.966e12, 655.3e9


def deepcam(quality=0.82):
    """Return a log of 2 epochs of 100 s, each followed by an evaluation of 20 s; 300 s in all."""
    log = SampleLog("deepcam", epochs=2).last_evaluation(quality)
    times = {"epoch_start": (10, 135), "epoch_stop": (110, 235), "eval_start": (112, 237), "eval_stop": (132, 257)}
    for key, seconds in {"run_start": (0,), **times, "eval_accuracy": (133, 258), "run_stop": (300,)}.items():
        for at, second in enumerate(seconds):
            log.field(key, "time_ms", 1_694_100_000_000 + 1000 * second, at)
    return log


@pytest.fixture
def cost(tmp_path, call):
    """Return the runs that the command shows for a log, as JSON."""

    def shown(log, *options):
        path = tmp_path / "result_0.txt"
        path.write_bytes(log.bytes())
        (run,) = json.loads(call(main, path, "--format", "json", *options).out)["runs"]
        return run

    return shown


@pytest.mark.parametrize(("ratio", "n", "share"), [(0.9212, 10, 0.44), (0.9919, 5, 0.96)])
def test_the_share_of_valid_flops_is_the_published_one(ratio, n, share):
    assert find_valid_share(Target("eval_accuracy", 1.0, lower_is_better=False), ratio, n) == pytest.approx(
        share, abs=0.005
    )


def test_a_run_as_computed_by_hand(cost):
    run = cost(deepcam(0.82 * 0.9212))
    trained, evaluated = 2 * 121_266, 2 * 15_158
    assert (run["samples"], run["evaluated"]) == (trained, evaluated)
    assert run["flops"] == pytest.approx(TRAIN_FLOP * trained / 200)
    assert run["sustained_flops"] == pytest.approx((TRAIN_FLOP * trained + EVAL_FLOP * evaluated) / 300)
    assert run["vflops"] == pytest.approx(run["flops"] * 0.9212**10) and run["n"] == 10
    assert run["reason"] == "" and run["mini"] is False


def test_the_last_epoch_counts_as_far_as_its_steps_go(cost):
    log = deepcam().by_suite({"train.steps": 70}).throughput()
    batch, reason = log.records_of("global_batch_size")[0]["value"], "samples unknown"
    assert cost(log.meta("tracked_stats", "step", 10, -1))["samples"] == pytest.approx(121_266 + 10 * batch)
    assert cost(log.drop("tracked_stats"))["reason"].startswith(reason)


def test_a_better_quality_than_the_target_makes_more_of_the_flops(cost):
    run = cost(deepcam(0.9), "--n", "2")
    assert run["vflops"] == pytest.approx(run["flops"] * (0.9 / 0.82) ** 2)
    worse = cost(SampleLog("cosmoflow").last_evaluation(0.248))  # twice the target, where lower is better
    assert worse["n"] == 5 and worse["vflops"] == pytest.approx(worse["flops"] / 2**5)


def test_the_model_is_that_of_the_round(cost):
    assert cost(SampleLog("cosmoflow", "0.7"), "--round", "0.7")["training_flop"] == 56.93e9
    assert cost(SampleLog("cosmoflow", "3.0"))["training_flop"] == 192.09e9


def frames():
    means = {"atoms": 81.0, "edges": 3_427.0, "triplets": 144_578.0}
    return SampleLog("oc20").add("sample_means", means, before="init_stop")


def test_graphs_count_by_their_mean_size(cost):
    run = cost(frames())
    assert run["forward_flop"] == pytest.approx(18.0e9, rel=0.01) and run["training_flop"] == 3 * run["forward_flop"]
    assert run["flops"] > 0


@pytest.mark.parametrize("means", [{"atoms": 81.0}, {"edges": "many"}, [1, 2, 3], "x", {"edges": -1}, {"edges": 1e300}])
def test_sizes_that_are_none(means, cost):
    if isinstance(means, dict) and "edges" in means:
        means = {"atoms": 81, "triplets": 1000, **means}
    assert cost(SampleLog("oc20").add("sample_means", means, before="init_stop"))["reason"] == "edges not logged"


def stating(log, training=8e8, evaluation=3e8, precision="bf16"):
    stated = {"flop_per_sample": {"training": training, "evaluation": evaluation}, "precision": precision}
    for key, value in stated.items():
        log.add(key, value, before="init_stop")
    return log


@pytest.mark.parametrize("log", [SampleLog("cosmoflow", variant="mini", epochs=5), SampleLog("oc20"), deepcam()])
def test_what_a_log_states_of_its_network_counts_first(log, cost):
    run = cost(stating(log))
    assert (run["training_flop"], run["forward_flop"], run["flop_source"], run["reason"]) == (8e8, 3e8, "log", "")
    assert run["flops"] > 0 and run["vflops"] > 0
    assert cost(deepcam())["flop_source"] == "workloads.yaml"


@pytest.mark.parametrize("training", [0, -1, "many", None, 1e30])
def test_a_statement_that_is_no_count_is_ignored(training, cost):
    assert cost(stating(deepcam(), training))["training_flop"] == TRAIN_FLOP


DESCRIPTION = {"accelerator_model_name": "NVIDIA A100-SXM4-40GB", "accelerators_per_node": 8, "number_of_nodes": 1}


def rate(folder, log, **description):
    """Return the operations of a result of 5 equal runs on a system."""
    package = folder / "Org"
    (package / "systems").mkdir(parents=True)
    (package / "systems/s.json").write_text(json.dumps({**DESCRIPTION, **description}))
    runs = package / "results/s/strong/deepcam"
    runs.mkdir(parents=True)
    for number in range(5):
        (runs / f"result_{number}.txt").write_bytes(log.bytes())
    (results,) = check_paths([str(folder)], Options(details=True, profile="official")).sets
    return rate_result(results)


@pytest.mark.parametrize(("precision", "peak_format", "peak"), [("tf32", "tf32", 156e12), ("int8", "fp16", 312e12)])
def test_the_share_of_the_peak_in_the_format_of_the_log(precision, peak_format, peak, tmp_path):
    rated = rate(tmp_path, stating(deepcam(), TRAIN_FLOP, EVAL_FLOP, precision), number_of_nodes=16)
    flop = 2 * (TRAIN_FLOP * 121_266 + EVAL_FLOP * 15_158)
    assert (rated.peak_format, rated.accelerator, rated.reason) == (peak_format, "A100-SXM-40GB", "")
    assert rated.utilization == pytest.approx(flop / 300 / (128 * peak))
    assert rated.training_utilization == pytest.approx(2 * TRAIN_FLOP * 121_266 / 200 / (128 * peak))


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ({"accelerator_model_name": "Abacus 9"}, "peak of 'Abacus 9' unknown"),
        ({"accelerator_model_name": ""}, "no accelerator is named"),
        ({"accelerators_per_node": 1}, "more FLOPS than the peak"),
    ],
)
def test_a_result_without_a_share_of_the_peak_has_its_flops(description, reason, tmp_path):
    rated = rate(tmp_path, deepcam(), **description)
    assert rated.flops == pytest.approx(TRAIN_FLOP * 2 * 121_266 / 200) and rated.vflops
    assert rated.utilization is None and rated.reason.startswith(reason)


def test_a_result_without_a_time_has_no_utilization(tmp_path):
    package = SamplePackage("deepcam", runs=5).edit_all(lambda log: log.drop("run_stop"), 3)
    package.system(accelerator_model_name="NVIDIA A100-SXM4-40GB").write(tmp_path / "v3.0" / "Org")
    (results,) = check_paths([str(tmp_path)], Options(details=True)).sets
    rated = rate_result(results)
    assert rated.flops and (rated.utilization, rated.reason) == (None, "no time of the result")


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (SampleLog("oc20"), "edges not logged"),
        (SampleLog("openfold"), "operations of openfold are not counted"),
        (SampleLog("cosmoflow", variant="mini", epochs=5), "mini problem: its log states no flop_per_sample"),
        (deepcam().drop("run_stop"), "run_start or run_stop is missing"),
        (deepcam().shift("run_stop", -400_000), "run_stop is not after run_start"),
        (deepcam().drop("eval_accuracy"), "no evaluation before run_stop"),
        (deepcam().drop("eval_stop"), "evaluation unknown: eval_start, eval_stop or eval_samples is missing"),
        (deepcam().drop("epoch_stop", 1), "an epoch has no stop"),
        (deepcam().drop("train_samples"), "samples unknown"),
        (
            deepcam().set("train_samples", 10**18),
            "samples unknown: train_samples or epoch_num of the last evaluation is missing or not",
        ),
        (deepcam().drop("epoch_start").drop("epoch_stop"), "no training time"),
        (deepcam().set("submission_benchmark", "mystery"), "no benchmark of this round"),
    ],
)
def test_a_run_without_numbers_has_the_reason(log, reason, cost):
    run = cost(log)
    assert run["reason"].startswith(reason)
    assert run["flops"] is run["sustained_flops"] is run["vflops"] is None


@pytest.mark.parametrize("quality", [0, -1, 1e-300, 5e-324])
def test_a_quality_without_a_ratio_has_flops_alone(quality, cost):
    run = cost(SampleLog("cosmoflow").last_evaluation(quality))
    assert run["flops"] > 0 and run["vflops"] is None and run["reason"].startswith("no VFLOPS")


def test_the_table_and_csv_show_each_log(tmp_path, call):
    for name, log in {"a": deepcam(), "b": SampleLog("oc20"), "c": deepcam().drop("run_stop")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result_0.txt").write_bytes(log.bytes())
    text = call(main, tmp_path, "--runs").out
    assert text.count("deepcam, round 3.0: 1,966 GFLOP for a sample trained, 655.3 evaluated") == 1
    row = next(line for line in text.splitlines() if "a/result_0.txt" in line).split()
    assert row[-8:] == [
        "242,532",
        "3.333",
        "2,384",
        "1,656",
        "0.8200",
        "0.82",
        "10",
        "2,384",
    ]
    rows = list(csv.DictReader(io.StringIO(call(main, tmp_path, "--runs", "--format", "csv").out)))
    assert [row["reason"] for row in rows] == ["", "run_start or run_stop is missing", "edges not logged"]


def test_a_log_outside_of_results_is_a_run_in_the_summary(tmp_path, call):
    path = tmp_path / "result_0.txt"
    path.write_bytes(deepcam().bytes())
    text = call(main, path).out
    assert text == call(main, path, "--runs").out
    assert "2,384" in text and "units:" not in text


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_the_table_says_which_operations_of_graphs_it_counts(form, tmp_path, call):
    for log, told in ((frames(), True), (SampleLog("oc20"), False)):
        (tmp_path / "result_0.txt").write_bytes(log.bytes())
        said = call(main, tmp_path, "--runs", "--format", form).out
        assert ("oc20: FLOP of the published algorithm" in said) == told


def test_without_a_result_log_there_is_nothing_to_show(tmp_path, call):
    (tmp_path / "notes.txt").write_text("no log\n")
    for path in (tmp_path, tmp_path / "notes.txt"):
        assert "no result log found: expected files" in call(main, path, "--runs", status=1).err
