"""The mini problem: its own facts and reference runs, never an MLPerf result."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from common.benchmarks import ROOT
from compliance.benchmarks import MINIS, REFERENCES, reference_of
from compliance.engine import Options, check_paths
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.model.judging import JudgedRun
from compliance.model.report import Report
from compliance.rcp import points
from compliance.rcp.__main__ import main as rcp_main
from compliance.rcp.points import list_points
from compliance.rcp.table import read_table, write_table
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.compliance.judged import judge_sample

FIRST = {name: reference_of(name, "mini") for name in MINIS}  # of the first generation, which all have
TARGET = FIRST["cosmoflow"].target.value
WITHOUT = sorted(set(REFERENCES) - set(MINIS))
of_each_mini = pytest.mark.parametrize("benchmark", MINIS)


def mini(*arguments: Any, **wanted: Any) -> SampleLog:
    return SampleLog(*arguments, **{"division": "open", "variant": "mini"} | wanted)


def examined(sample: SampleLog, profile: str = "strict", allow_mini: bool = True) -> JudgedRun:
    return judge_sample(sample, profile, allow_mini=allow_mini)


def errors(run: JudgedRun | Report) -> list[tuple[str, str]]:
    return sorted((found.rule, found.key) for found in run.findings if found.severity == "error")


# -- one log -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("benchmark", "round_"), [(name, round_) for name in MINIS for round_ in FIRST[name].rounds])
def test_a_valid_mini_log_passes_where_it_is_allowed(benchmark: str, round_: str) -> None:
    run = examined(mini(benchmark, round_))
    assert [(found.rule, found.severity) for found in run.findings] == [("SET07", "note")]
    assert run.mini and run.converged and run.verdict == "PASS"


@pytest.mark.parametrize("division", ["open", "closed"])
@pytest.mark.parametrize("allow_mini", [False, True])
@of_each_mini
def test_a_run_on_own_data_is_never_a_result(benchmark: str, division: str, allow_mini: bool) -> None:
    run = examined(SampleLog(benchmark, division=division).add("dataset_variant", "own"), allow_mini=allow_mini)
    closed = [("SET07", "submission_division")] if division == "closed" else []
    assert errors(run) == [("SET07", "dataset_variant"), *closed]
    assert run.verdict == "FAIL" and not run.converged and run.variant == "own"
    assert not any("mini run" in found.message for found in run.findings)


def test_a_later_mini_problem_has_its_own_name_and_facts() -> None:
    (valid, first) = (mini("cosmoflow", variant=variant) for variant in ("mini2", "mini"))
    assert examined(valid).verdict == "PASS" and examined(valid).variant == "mini2"
    assert valid.reference.target.value != first.reference.target.value
    assert ("QUA01", "eval_error") in errors(examined(first.set("dataset_variant", "mini2")))
    assert errors(examined(mini("oc20").set("dataset_variant", "mini2"))) == [("SET07", "dataset_variant")]


@of_each_mini
def test_elsewhere_it_has_one_error(benchmark: str) -> None:
    assert errors(examined(mini(benchmark), allow_mini=False)) == [("SET07", "dataset_variant")]


@of_each_mini
def test_a_mini_log_is_judged_by_the_facts_of_the_mini_problem(benchmark: str) -> None:
    (count,) = FIRST[benchmark].dataset.train_samples["3.0"]
    (full,) = REFERENCES[benchmark].dataset.eval_samples["3.0"]
    target = FIRST[benchmark].target
    missed = target.value * (1.001 if target.lower_is_better else 0.999)
    damaged = {
        ("SET05", "train_samples"): mini(benchmark).set("train_samples", count - 1),
        ("SET05", "eval_samples"): mini(benchmark).set("eval_samples", full),
        ("QUA01", target.key): mini(benchmark).last_evaluation(missed),
        ("SET04", "global_batch_size"): mini(benchmark).set("global_batch_size", "64"),
        ("SET07", "submission_division"): mini(benchmark, division="closed"),
        ("SET07", "dataset_variant"): mini(benchmark).double("dataset_variant", value="full"),
    }
    for expected, sample in damaged.items():
        assert errors(examined(sample)) == [expected]


@of_each_mini
def test_a_mini_log_states_what_the_closed_division_asks_for(benchmark: str) -> None:
    valid, settings = mini(benchmark), FIRST[benchmark].settings_of("3.0", "open")
    keys = {setting.key for setting in settings if setting.required and valid.records_of(setting.key)} - {"seed"}
    assert {"global_batch_size", "opt_name", "train_samples", "number_of_nodes"} < keys
    for key in keys:
        assert errors(examined(mini(benchmark).drop(key))) == [("SET03", key)]


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (mini().set("opt_name", "adam").set("dropout", 0.9).add("sgd_opt_momentum", 0.8), []),
        (mini().set("dataset_variant", "full"), [("QUA01", "eval_error")]),
        (mini("deepcam").set("opt_name", "Muon").set("opt_eps", 0.0).drop("opt_max_grad_norm"), []),
        (mini("deepcam").set("scheduler_type", "none").drop("scheduler_milestones").drop("scheduler_decay_rate"), []),
        (
            mini("deepcam").set("scheduler_type", "cosine_annealing"),
            [("SET03", "scheduler_eta_min"), ("SET03", "scheduler_t_max")],
        ),
        (mini("deepcam").set("batchnorm_group_size", 0.5), [("SET04", "batchnorm_group_size")]),
        (mini("oc20").set("opt_name", "LAMB").set("opt_learning_rate_warmup_factor", 2), []),
        (mini("oc20").set("opt_learning_rate_decay_boundary_steps", []), []),
        (
            mini("oc20").drop("opt_learning_rate_decay_boundary_steps"),
            [("SET03", "opt_learning_rate_decay_boundary_steps")],
        ),
        (SampleLog().add("dataset_variant", "tiny"), [("SET07", "dataset_variant")]),
        (SampleLog().add("dataset_variant", ["mini"]), [("SET07", "dataset_variant")]),
        (SampleLog().by_suite(), []),
    ],
)
def test_values_are_free_and_conditions_are_not(sample: SampleLog, expected: list[tuple[str, str]]) -> None:
    assert errors(examined(sample)) == expected


@of_each_mini
def test_the_full_problem_has_no_easier_target_by_the_word_mini(benchmark: str) -> None:
    sample = SampleLog(benchmark, division="open").last_evaluation(FIRST[benchmark].target.value)
    found = errors(examined(sample.add("dataset_variant", "mini")))
    assert found == [("SET05", "eval_samples"), ("SET05", "train_samples")]


@pytest.mark.parametrize("benchmark", WITHOUT)
def test_a_benchmark_without_a_mini_problem_says_so_and_no_more(benchmark: str) -> None:
    run = examined(SampleLog(benchmark, division="open").add("dataset_variant", "mini"))
    assert errors(run) == [("SET07", "dataset_variant")]
    assert f'{benchmark} has no problem "mini"' in run.findings[-1].message


def test_the_official_profile_does_not_know_the_mini_problem() -> None:
    assert errors(examined(mini(), "official")) == [("QUA01", "eval_error")]
    assert errors(examined(mini().last_evaluation(0.12), "official", allow_mini=False)) == []
    assert errors(examined(mini("deepcam"), "official", allow_mini=False)) == []
    assert errors(examined(mini("oc20"), "official", allow_mini=False)) == []
    assert examined(mini(), "official").mini, "but reports still tell it"


# -- results -----------------------------------------------------------------------------------------------


def written(folder: Path, samples: list[SampleLog]) -> Path:
    folder.mkdir()
    for number, sample in enumerate(samples):
        (folder / f"result_{number}.txt").write_bytes(sample.bytes())
    return folder


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the published points and, recorded beside them, 20 mini runs of 30 to 32 epochs."""
    path = tmp_path / "cosmoflow" / "rcps.yaml"
    published = read_table(ROOT / "cosmoflow" / "rcps.yaml")
    write_table(path, replace(published, entries=tuple(e for e in published.entries if e.variant == "full")))
    samples = [mini(run=i, epochs=30 + i % 3).add("provenance", {"source_sha256": "5" * 64}) for i in range(20)]
    runs = written(tmp_path / "reference", samples)
    assert rcp_main(["record", str(runs), "-o", str(path)]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(points, "locate_package", lambda name: tmp_path / name)
        points.load_points.cache_clear()
        yield path
    points.load_points.cache_clear()


def test_recorded_mini_runs_are_points_of_their_own(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert table.read_text().startswith(
        (ROOT / "cosmoflow" / "rcps.yaml").read_text().split("- name: cosmoflow_mini")[0]
    )
    (point,) = list_points(read_table(table), table, variant="mini")
    assert (point.name, point.epochs) == ("cosmoflow_mini_512", (30,) * 7 + (31,) * 7 + (32,) * 6)
    assert point.batch_size == 512 and point.hyperparameters["opt_base_learning_rate"] == 0.006
    assert {run.sources for run in read_table(table).entries[-1].runs} == {"5" * 64}
    assert rcp_main(["show", "--table", str(table), "--variant", "mini"]) == 0
    shown = capsys.readouterr().out
    assert "cosmoflow, mini, round 3.0: epochs to converge; a result has 10 runs" in shown
    assert "512    20  30.9" in shown and "cosmoflow, full" not in shown


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"epochs": 31}, []),
        ({"epochs": 20}, [("RCP01", "")]),
        ({"epochs": 31, "settings": {"global_batch_size": 1024}}, [("RCP01", "")]),
        ({"epochs": 31, "settings": {"global_batch_size": 64}}, []),
    ],
)
def test_mini_results_are_compared_with_mini_runs(
    change: dict[str, Any], expected: list[tuple[str, str]], table: Path, tmp_path: Path
) -> None:
    settings = change.pop("settings", {})
    samples = [mini(run=100 + i, **change) for i in range(10)]
    for key, value in settings.items():
        samples = [sample.set(key, value) for sample in samples]
    report = check_paths([written(tmp_path / "mine", samples)], Options(allow_mini=True))
    assert errors(report) == expected
    (results,) = report.sets
    assert results.mini and results.score is not None and results.score.mini and results.score.minutes


def test_runs_of_a_mini_result_differ_in_the_seed_alone(table: Path, tmp_path: Path) -> None:
    samples = [mini(run=i, epochs=31) for i in range(10)]
    samples[3].set("seed", 1004)
    samples[5].set("opt_base_learning_rate", 0.5)
    report = check_paths([written(tmp_path / "mine", samples)], Options(allow_mini=True))
    assert errors(report) == [("RUN04", "seed"), ("RUN06", "opt_base_learning_rate")]


def test_a_package_of_mini_runs_passes_only_as_such(table: Path, tmp_path: Path) -> None:
    package = SamplePackage(division="open", variant="mini", epochs=31).write(tmp_path / "Example")
    assert check_paths([package], Options(allow_mini=True)).verdict == "PASS"
    refused = check_paths([package], Options())
    assert {rule for rule, _ in errors(refused)} == {"SET07", "RUN02"} and refused.sets[0].score.minutes is None


def test_a_mini_run_among_others_is_no_tolerated_failure(tmp_path: Path) -> None:
    package = SamplePackage(division="open").edit(3, lambda log: log.add("dataset_variant", "mini"))
    for allowed in (False, True):
        report = check_paths([package.write(tmp_path / f"Example{allowed}")], Options(allow_mini=allowed))
        assert ("RUN06", "dataset_variant") in errors(report) and report.verdict == "FAIL"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_marks_mini_runs_and_results(name: str, table: Path, tmp_path: Path) -> None:
    package = SamplePackage(division="open", variant="mini", epochs=31).write(tmp_path / "Example")
    report = check_paths([package], Options(allow_mini=True))
    text = FORMATS[name](report, Style(base=str(tmp_path)))
    assert "not an MLPerf result" in text and "SET07" in text
    marks = {
        "text": ["strong/cosmoflow (mini problem)", "mini TTT", "cosmoflow (mini)"],
        "markdown": ["mini problem", "mini TTT", "cosmoflow (mini)"],
        "junit": ['name="Example/example_n64/strong/cosmoflow (mini problem)"'],
    }
    assert all(mark in text for mark in marks.get(name, ()))
    if name == "json":
        found = json.loads(text)
        assert found["logs"][0]["mini"] and found["sets"][0]["mini"] and found["sets"][0]["score"]["mini"]


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (mini().set("dataset_variant", "tiny"), "dataset_variant is 'tiny'; cosmoflow has full and mini"),
        (SampleLog(WITHOUT[0]).add("dataset_variant", "mini"), f"'mini'; {WITHOUT[0]} has full"),
        (mini().last_evaluation(TARGET * 2), f"success, but the last eval_error is {TARGET * 2}, not 0 < eval_error"),
    ],
)
def test_only_runs_that_met_the_mini_target_are_recorded(
    sample: SampleLog, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "runs", [sample])
    assert rcp_main(["record", str(folder), "-o", str(tmp_path / "table.yaml")]) == 1
    assert reason in capsys.readouterr().err
