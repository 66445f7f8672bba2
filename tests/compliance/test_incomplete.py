"""A package from which only runs are missing is INCOMPLETE: it does not pass, and nothing else is held against it."""

import json
from pathlib import Path

import jsonschema
import pytest

from compliance.engine import Options, check_paths
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.samples.package import SamplePackage
from submission.results.page.sections import how_scored

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "report.schema.json"


def written(folder: Path, runs: int, **sample) -> Path:
    """Write a valid package and remove all runs but the first few."""
    root = Path(SamplePackage(**sample).write(folder / "Example"))
    for path in root.rglob("result_*.txt"):
        if int(path.stem.removeprefix("result_")) > runs:
            path.unlink()
    return root


@pytest.mark.parametrize("runs", range(10))
def test_missing_runs_are_the_only_error(runs, tmp_path):
    report = check_paths([written(tmp_path, runs)], Options())
    assert (report.verdict, report.exit_code) == ("INCOMPLETE", 1)
    assert [found.rule for found in report.findings if found.severity in ("error", "warning")] == ["RUN01"]
    assert report.sets[0].missing_runs == 10 - runs
    assert check_paths([tmp_path], Options("official")).verdict == "FAIL"


@pytest.mark.parametrize("gone", ["results/example_n64/strong/cosmoflow", "results/example_n64", "results"])
def test_folders_without_runs_may_be_missing_too(gone, tmp_path):
    """Version control keeps no empty folder."""
    root = written(tmp_path, 0)
    for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        if str(folder.relative_to(root)).startswith(gone):
            folder.rmdir()
    report = check_paths([root], Options())
    assert report.verdict == "INCOMPLETE"
    assert [found.rule for found in report.findings if found.severity in ("error", "warning")] == ["PKG01"]


def test_a_throughput_result_waits_for_its_time_to_train_runs(tmp_path):
    root = Path(SamplePackage(scaling="weak", runs=12).with_time_to_train().write(tmp_path / "Example"))
    for path in root.rglob("strong/*/result_*.txt"):
        path.unlink()
    report = check_paths([root], Options())
    assert report.verdict == "INCOMPLETE"
    assert [found.rule for found in report.findings if found.severity == "error"] == ["RUN01"]


def test_a_fast_start_is_not_judged_before_all_runs_are_there(tmp_path):
    fast = {"settings": {"global_batch_size": 512}, "epochs": 9}
    assert check_paths([written(tmp_path / "few", 4, **fast)], Options()).verdict == "INCOMPLETE"
    assert check_paths([written(tmp_path / "all", 10, **fast)], Options()).verdict == "FAIL"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda package: package.edit(1, lambda log: log.set("opt_name", "adam")).edit(2, lambda log: log.drop("seed")),
        lambda package: package.remove("systems"),
        lambda package: package.system(division="open"),
        lambda package: package.copy(1, 2),
        lambda package: SamplePackage(runs=0).file("README.md", "x"),
        lambda package: package.rename_runs("run_{}.txt"),
        lambda package: package.move("results/example_n64/strong/cosmoflow", "results/example_n64/cosmoflow"),
    ],
)
def test_what_is_wrong_besides_is_a_failure(wrong, tmp_path):
    report = check_paths([wrong(SamplePackage(runs=7)).write(tmp_path / "Example")], Options())
    assert report.verdict == "FAIL"


def test_logs_in_the_wrong_place_are_not_missing_runs(tmp_path):
    root = written(tmp_path, 10)
    for path in root.rglob("result_*.txt"):
        path.rename(root / "results" / path.name)
    for name in ("example_n64/strong/cosmoflow", "example_n64/strong", "example_n64"):
        (root / "results" / name).rmdir()
    assert check_paths([root], Options()).verdict == "FAIL"


@pytest.mark.parametrize(
    ("runs", "said"),
    [(0, "result_0.txt, result_1.txt, result_2.txt, result_3.txt and 6 more"), (9, "result_9.txt")],
)
def test_the_finding_says_which_runs_are_missing(runs, said, tmp_path):
    root = written(tmp_path, runs)
    for path in sorted(root.rglob("result_*.txt")):
        path.rename(path.with_stem(f"result_{int(path.stem.removeprefix('result_')) - 1}"))
    (found,) = [one for one in check_paths([root], Options()).findings if one.rule == "RUN01"]
    assert f": {said} missing" in found.message and found.incomplete


@pytest.mark.parametrize(("runs", "said"), [(8, "2"), (9, "1")])
def test_without_result_0_no_file_is_named_missing(runs, said, tmp_path):
    """Others number from 1."""
    (found,) = [one for one in check_paths([written(tmp_path, runs)], Options()).findings if one.rule == "RUN01"]
    assert f": {said} missing" in found.message


@pytest.mark.parametrize("scaling", ["strong", "weak"])
def test_there_is_no_score_before_all_runs_are_there(scaling, tmp_path):
    report = check_paths([written(tmp_path, 7, scaling=scaling)], Options())
    results = next(one for one in report.sets if one.scaling == scaling)
    assert results.score.minutes is None and results.energy_joules is None
    assert ("no time to train" if scaling == "strong" else "no throughput") in FORMATS["text"](report, Style())
    assert how_scored(results)[0] == "No score: 3 runs of 10 missing."


def test_every_format_says_it(tmp_path):
    report = check_paths([written(tmp_path, 1)], Options())
    text = FORMATS["text"](report, Style(color=True))
    assert "INCOMPLETE: 1 of 10 runs of cosmoflow; 0 warnings" in text.splitlines()[-1] and "FAIL" not in text
    document = json.loads(FORMATS["json"](report, Style()))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert (document["verdict"], document["exit_code"]) == ("INCOMPLETE", 1)
    assert document["sets"][0]["verdict"] == document["packages"][0]["verdict"] == "INCOMPLETE"
    for name in ("markdown", "github"):
        assert "INCOMPLETE" in FORMATS[name](report, Style()), name
