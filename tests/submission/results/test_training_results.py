"""Results of MLPerf Training: units from the logs, times between records that share no number, no kinds of scaling."""

import json
import re
from types import SimpleNamespace

import pytest

from common.record import format_record
from compliance.engine import Options, check_paths
from compliance.model.system import SystemDescription
from compliance.rules.package import StatusOfTraining
from submission import report, summary

RULES = {
    "bert": "v['value'] >= 0.72",
    "gpt3": "v['value'] <= 2.69",
    "ssd": "v['value'] >= 0.34",
    "llama2_70b_lora": "v['value'] <= 0.925",
}
"""The targets of the rule files of these tests."""
START_MS = 1_725_000_000_000
TRAINED = {
    "bert": [{"epoch_num": samples} for samples in (150_562, 300_237)],
    "gpt3": [{"epoch_num": 2048 * 1024 * step} for step in (10, 20)],
    "ssd": [{"epoch_num": epoch} for epoch in (1, 2, 3, 4)],
    "llama2_70b_lora": [{"samples_count": samples} for samples in (1536, 3072)],
}
"""What the evaluations of a run state, as in logs of round 4.1."""
QUALITIES = {"bert": (0.3, 0.73), "gpt3": (3.0, 2.68), "ssd": (0.3, 0.35), "llama2_70b_lora": (3.0, 0.9)}
"""The quality before and at the end of a run."""


def write_rules(folder):
    rules = folder / "mlperf_logging" / "compliance_checker" / "training_4.1.0"
    rules.mkdir(parents=True)
    (rules / "common.yaml").write_text("- KEY:\n    NAME: run_start\n    REQ: EXACTLY_ONE\n")
    settings = "".join(
        f"- KEY:\n    NAME: {key}\n"
        for key in ("global_batch_size", "max_sequence_length", "train_samples", "eval_samples")
    )
    for benchmark, check in RULES.items():
        target = f'- KEY:\n    NAME: eval_accuracy\n    REQ: AT_LEAST_ONE\n    ATLEAST_ONE_CHECK: "{check}"\n'
        (rules / f"closed_{benchmark}.yaml").write_text(settings + target)
    counts = {"training": dict.fromkeys(RULES, 3)}
    (folder / "mlperf_logging" / "benchmark_meta.py").write_text(f"_ALL_RESULT_FILE_COUNTS = {counts!r}\n")


def make_log(benchmark, minutes):
    """Return a log whose training lasts until run_stop: epoch_start and epoch_stop share no number, or there is none.

    Each evaluation takes a tenth of the time until the next.
    """
    stated = {
        "submission_benchmark": benchmark, "submission_org": "Example", "submission_division": "closed",
        "submission_platform": "x", "global_batch_size": 1024, "max_sequence_length": 2048, "train_samples": 61_440,
        "eval_samples": 100,
    }  # fmt: skip
    events = [(key, value, 0, {}) for key, value in stated.items()]
    events += [(key, None, 0, {}) for key in ("cache_clear", "init_start", "init_stop", "run_start")]
    events += [("epoch_start", None, 0, {"epoch_num": 0})]
    places = TRAINED[benchmark]
    for number, place in enumerate(places, 1):
        end = minutes * 60_000 * number / len(places)
        events.append(("eval_start", None, end - minutes * 6_000 / len(places), place))
        quality = QUALITIES[benchmark][number == len(places)]
        events += [("eval_accuracy", quality, end, place), ("eval_stop", None, end, place)]
    events.append(("run_stop", None, minutes * 60_000, {"status": "success"}))
    events.append(("epoch_stop", None, minutes * 60_000 + 5, places[-1]))
    fields = {"namespace": "", "event_type": "POINT_IN_TIME"}
    lines = [
        format_record(
            fields | {"time_ms": START_MS + int(ms), "key": key, "value": value}
            | {"metadata": {"file": "a.py", "lineno": 1, **place}}
        )
        for key, value, ms, place in events
    ]  # fmt: skip
    return b"".join(lines)


@pytest.fixture
def training(tmp_path):
    """Write rule files and a submission of two systems; return what a command is given."""
    write_rules(tmp_path)
    for system, minutes in (("eos", 10), ("eos_n8", 5)):
        for benchmark in RULES:
            folder = tmp_path / "Example" / "results" / system / benchmark
            folder.mkdir(parents=True)
            for run in range(3):
                (folder / f"result_{run}.txt").write_bytes(make_log(benchmark, minutes + run / 10))
    return [tmp_path / "Example", "--round", "4.1", "--committee-rules", tmp_path]


def test_the_summary_has_the_units_of_the_logs_and_null_where_operations_are_not_counted(training, call):
    rows = json.loads(call(summary.main, *training, "--format", "json").out)["results"]
    found = {row["benchmark"]: row for row in rows if row["system"] == "eos"}
    assert {name: (row["convergence_unit"], row["minutes"]) for name, row in found.items()} == {
        "bert": ("samples", pytest.approx(10.1)),
        "gpt3": ("tokens", pytest.approx(10.1)),
        "ssd": ("epochs", pytest.approx(10.1)),
        "llama2_70b_lora": ("samples", pytest.approx(10.1)),
    }
    assert {row["operations"]["utilization"] for row in rows} == {row["operations"]["flops"] for row in rows} == {None}
    text = call(summary.main, *training).out
    assert text.startswith("Round 4.1 Training. Time to train: ")
    assert "strong" not in text


def test_two_results_are_compared_in_samples_and_steps(training, call):
    package, *options = training
    results = [package / "results" / system / "gpt3" for system in ("eos", "eos_n8")]
    shown = call(summary.main, results[0], *options, "--compare", results[1], "--format", "json").out
    (comparison,) = json.loads(shown)["comparisons"]
    lines = {line["what"]: line["b"] for section in comparison["sections"] for line in section["lines"]}
    assert lines["round"] == "v4.1 Training"
    assert lines["tokens to target, mean"] == 20 * 1024 * 2048
    assert (lines["samples to target, mean"], lines["steps to target, mean"]) == (20 * 1024, 20)
    assert lines["training, samples/s"] == pytest.approx(20 * 1024 / (0.9 * 5.1 * 60), rel=1e-3)
    assert "scaling" not in lines


def test_the_analysis_measures_epochs_that_end_with_the_run(training, call, tmp_path):
    page, data = tmp_path / "page.html", tmp_path / "data"
    call(report.main, *training, "-o", page, "--data", data)
    by_name = {each["name"]: each for each in json.loads((data / "analysis.json").read_text())["results"]}
    epochs, samples = (by_name[f"Example/eos/{name}"]["quantities"] for name in ("ssd", "llama2_70b_lora"))
    assert epochs["run_stop_epoch.mean"] == 4, "what was trained, though the first epoch has the number 0"
    assert epochs["run_epoch_time.mean"] == pytest.approx(10.1 / 4)
    assert epochs["run_train_time.mean"] == pytest.approx(0.9 * 10.1, rel=1e-3)
    assert samples["run_train_throughput.mean"] == pytest.approx(3072 / (0.9 * 10.1), rel=1e-3)
    text = page.read_text()
    assert "Analysis of round 4.1 Training" in text
    assert not re.search("no staging|strong scaling", text)


def test_samples_count_is_the_convergence_also_beside_an_epoch_num(tmp_path):
    write_rules(tmp_path)
    path = tmp_path / "result_0.txt"
    log = make_log("llama2_70b_lora", 12)
    path.write_bytes(log.replace(b'"samples_count"', b'"epoch_num": 3, "samples_count"'))
    options = Options(committee_rules=str(tmp_path), round="training-4.1")
    (run,) = check_paths([path], options).runs
    assert (run.convergence, run.convergence_unit, run.official_convergence) == (3072, "samples", 3072)


@pytest.mark.parametrize(("round_", "refused"), [("training-3.1", False), ("training-4.1", True)])
def test_the_status_of_a_system_is_one_that_the_committee_knows(round_, refused):
    description = SystemDescription("systems/x.json", "x", {"status": "onprem"})
    package = SimpleNamespace(round=round_, descriptions={"x": description})
    assert bool([*StatusOfTraining().check(package)]) is refused
