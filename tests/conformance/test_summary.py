"""The table of a round holds the published scores, and those that the official summarizer computes."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from compliance.engine import Options, check_paths
from compliance.model.judging import OFFICIAL
from compliance.model.layout import STRONG, WEAK
from compliance.samples.package import SamplePackage
from submission.results.read_rows import list_rows
from submission.results.rows import Row
from tests.conformance.official import official_tool

SMALL = ("v1.0/LBNL", "v2.0/Dell", "v3.0/Clemson", "v3.0/TACC")
"""Packages of few logs: the official summarizer reads each log four times."""
STATES = {"Pass": "passed", "Fail": "failed", "Interp. Fail": "failed", "Missing": "failed", None: ""}


# -- published scores -----------------------------------------------------------------------------------------


def test_published_scores(official, shared):
    published = json.loads((shared / "corpus" / "published_scores.json").read_text())
    keys = ("round", "submitter", "system", "scaling", "benchmark")
    said = {tuple(entry[key] for key in keys): entry for entry in published}
    found = {
        (f"v{row.round}", row.organisation, row.system, row.scaling, row.benchmark): row for row in list_rows(official)
    }
    assert found.keys() == said.keys()
    for name, entry in said.items():
        row = found[name]
        assert (row.batch_size, row.runs) == (entry["global_batch_size"], entry["logs"]), name
        assert row.run_minutes == pytest.approx(sorted(entry["run_minutes"])), name
        if row.scaling == STRONG:
            assert row.minutes == pytest.approx(entry["time_to_train_minutes"]), name
            assert row.convergence == pytest.approx(entry["convergence_olympic_mean"]), name
            assert row.convergence_unit == entry["convergence_unit"], name
        else:
            assert (row.models, row.minutes) == (entry["models"], pytest.approx(entry["time_to_train_all_minutes"])), (
                name
            )
            assert row.models_per_minute == pytest.approx(entry["models_per_minute"]), name


def test_clocks_and_instances_of_published_results(strict):
    found = list_rows(strict)
    assert {row.staging_clock for row in found if row.round != "3.0"} == {"", "in"}
    assert all(row.score_with_staging == row.score for row in found)
    (whole,) = (row for row in found if row.states_whole_system)
    assert (whole.organisation, whole.benchmark, whole.instance_scale) == ("NVIDIA", "oc20", 64)


# -- the official summarizer ----------------------------------------------------------------------------------


@pytest.fixture(params=[*SMALL, "open", "mini", "instances"])
def package(request, tmp_path) -> Path:
    """Return a copy of a small published package, or one like those of submission.assemble."""
    made: dict[str, dict[str, Any]] = {"open": {}, "mini": {"variant": "mini"}, "instances": {"scaling": "weak"}}
    if request.param in made:
        sample = SamplePackage("cosmoflow", "3.0", "open", **made[request.param])
        return Path(sample.write(tmp_path / "v3.0" / "Example"))
    corpus = request.getfixturevalue("corpus")
    return shutil.copytree(corpus / request.param, tmp_path / request.param)


def official_summary(package: Path, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return what the official summarizer says of each result, by system, scaling and benchmark.

    It writes into the package, and a second call would read that.
    """
    from mlperf_logging.result_summarizer.result_summarizer import summarize_results

    monkeypatch.chdir(package.parent)
    with official_tool(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _, weak, strong, _ = summarize_results(str(package), "hpc", f"{package.parent.name[1:]}.0")
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for scaling, score, frame in ((STRONG, "time_to_train", strong), (WEAK, "time_to_train_all", weak)):
        for line in frame.to_dict("records") if len(frame) else ():
            system = line["details_url"].rpartition("/")[2].removesuffix(".json")
            about = {name: value for name, value in line.items() if ":" not in name}
            for benchmark in {name.partition(":")[0] for name in line if ":" in name}:
                said = {name.partition(":")[2]: value for name, value in line.items() if name.startswith(benchmark)}
                known = {name: value for name, value in said.items() if value == value and value not in (None, "")}
                if score in known:
                    found[system, scaling, benchmark] = about | known
    return found


def test_official_summarizer(package, monkeypatch):
    checked = list_rows(check_paths([package], Options(profile=OFFICIAL)))
    ours = {(row.system, row.scaling, row.benchmark): row for row in checked if row.minutes is not None}
    said = official_summary(package, monkeypatch)
    assert ours.keys() == said.keys()
    for name, row in ours.items():
        assert_alike(row, said[name])


def assert_alike(row: Row, said: dict[str, Any]) -> None:
    """Assert that a row says what the official summarizer says; its score contains the committee's factor."""
    assert (row.division, row.availability) == (said["division"], said["availability"])
    assert (row.nodes, row.processors) == (int(said["number_of_nodes"]), said["host_processors_count"])
    assert (row.processor, row.accelerator) == (said["host_processor_model_name"], said["accelerator_model_name"])
    assert (row.accelerators, row.framework) == (said["accelerators_count"], said["framework"])
    if row.scaling == WEAK:
        assert row.minutes == pytest.approx(said["time_to_train_all"])
        assert (row.models, row.instance_scale) == (said["number_of_models"], said["instance_scale"])
        return
    assert (row.minutes if row.scaled is None else row.scaled) == pytest.approx(said["time_to_train"])
    assert row.rcp.partition(":")[0].partition(" ")[0] == STATES[said.get("RCP")]
    if row.division == "closed":
        assert (row.batch_size, row.convergence) == (said["GBS"], pytest.approx(said["samples_to_converge"]))


# -- the authors' own analysis --------------------------------------------------------------------------------


def test_time_breakdown_of_the_first_round(official, shared):
    """Means over the runs without the fastest and the slowest; a run without run_stop is the slowest."""
    sets = {(s.folder_benchmark, s.system): s for s in official.sets if s.round == "0.7"}
    anchors = json.loads((shared / "corpus" / "paper_anchors_v0.7.json").read_text())
    compared = 0
    for benchmark, systems in anchors.items():
        for name, said in systems.items():
            runs = sets[benchmark, name.partition("/")[2]].runs
            kept = sorted(runs, key=lambda run: run.minutes or float("inf"))[1:-1]
            for part in ("train", "eval", "staging"):
                expected = said[f"run_{part}_time.mean"]
                if expected is not None:
                    found = mean(run.details.seconds[part] for run in kept) / 60
                    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6), (name, part)
                    compared += 1
    assert compared == 15
