"""The analysis of `python -m submission.report --data`: what it writes, and bad input."""

import csv
import json
import os
import re
from functools import partial
from html import escape
from pathlib import Path
from shutil import copy

import pytest

from common.measure import devices
from compliance.samples.package import SamplePackage
from submission.report import main
from submission.results import quantity_tables
from tests.submission.results.conftest import CEILINGS

EVIL = "<script>alert(1)</script>=cmd"


@pytest.fixture
def tree(tmp_path):
    SamplePackage().system(accelerator_model_name=EVIL).write(tmp_path / "v2.0" / "Example")
    SamplePackage("oc20", "3.0").write(tmp_path / "v3.0" / "Example")
    return tmp_path


@pytest.fixture
def report(call):
    """Call the command with these words."""
    return partial(call, main)


def test_it_writes_data_tables_and_figures_and_the_page_has_the_analysis(tree, tmp_path, report):
    out = tmp_path / "new" / "out"
    said = report(tree / "v2.0", tree / "v3.0", "--data", out, "-o", tmp_path / "report.html").out
    assert "Example example_n64" in said and "analysis.json" in said
    document = json.loads((out / "analysis.json").read_text())
    assert [one["round"] for one in document["results"]] == ["2.0", "3.0"]
    quantities = document["results"][0]["quantities"]
    assert quantities["run_stop_epoch.mean"] > 0 and quantities["run_staging_time.mean"] is None
    assert len(rows(out / "runs.csv")) == 15
    page = (tmp_path / "report.html").read_text()
    assert all(f">Analysis of round {round_}</h2>" in page for round_ in ("2.0", "3.0")) and "<script>alert" not in page
    assert "Best passing results of each round" in page and "http" not in page.replace("http-equiv", "")
    assert {name.rpartition(".")[2] for name in os.listdir(out)} == {"json", "csv", "svg"}


def test_a_second_analysis_needs_force_and_gives_the_same(tree, tmp_path, report):
    out = tmp_path / "out"
    report(tree / "v3.0", "--data", out)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "holds an earlier analysis; --force" in report(tree / "v3.0", "--data", out, status=2).err
    report(tree / "v3.0", "--data", out, "--force")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first


def test_force_removes_what_the_new_analysis_does_not_have_and_nothing_else(tree, tmp_path, report):
    out = tmp_path / "out"
    report(tree / "v2.0", tree / "v3.0", "--data", out)
    (out / "notes.txt").write_text("mine")
    report(tree / "v3.0", "--data", out, "--force")
    names = set(os.listdir(out))
    assert "notes.txt" in names and not any(name.startswith("v2-0") for name in names)
    assert names - {"notes.txt"} == set(json.loads((out / "analysis.json").read_text())["files"])
    (out / "analysis.json").unlink()
    assert "holds other files and no analysis" in report(tree / "v3.0", "--data", out, "--force", status=2).err


def test_what_of_the_users_files_has_no_effect_is_said(tree, tmp_path, report):
    facts = tmp_path / "facts.yaml"
    facts.write_text("power_cap_watts: {3.0/Example/example_n46/strong/oc20: 250}")
    ceilings = Path(devices.__file__).with_name("accelerators.yaml")
    said = report(tree / "v3.0", "--data", tmp_path / "out", "--facts", facts, "--ceilings", ceilings).err
    assert "facts.yaml: no result is named 3.0/Example/example_n46/strong/oc20 (did you mean" in said
    assert "accelerators.yaml: no entry matches 'some'; the cost model leaves it out" in said


def test_results_that_cannot_be_analysed_are_named(tree, tmp_path, report):
    broken = SamplePackage("deepcam").edit_all(lambda log: log.drop("run_stop"), 5)
    broken.write(tmp_path / "v3.0" / "Broken")
    said = report(tree / "v3.0", "--data", tmp_path / "out", "-o", tmp_path / "report.html").err
    assert "Broken/example_n64/strong/deepcam, round 3.0: 5 runs, none of which can be analysed" in said
    assert "run_start or run_stop is missing" in (tmp_path / "report.html").read_text()
    said = report(tree / "v3.0" / "Broken", "--data", tmp_path / "alone", status=1).err
    assert "no result can be analysed" in said and not (tmp_path / "alone").exists()


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_projections_power_caps_and_ceilings_of_the_user(tmp_path, report):
    tree, facts = tmp_path / "v3.0" / "Example", ["power_cap_watts:"]
    for system, nodes, epochs, watts in (("n64", 16, 20, 200), ("n64_capped", 16, 25, 100), ("n256", 64, 30, 200)):
        package = SamplePackage(epochs=epochs).system(accelerator_model_name="Chip", number_of_nodes=str(nodes))
        package.write(tree)
        for part in ("results/example_n64", "systems/example_n64.json"):
            (tree / part).rename(tree / part.replace("n64", f"{system}_"))
        facts.append(f"  3.0/Example/example_{system}_/strong/cosmoflow: {watts}")
    (tmp_path / "facts.yaml").write_text("\n".join(facts))
    (tmp_path / "mine.yaml").write_text(CEILINGS)
    given = ["--project", "128", "--facts", tmp_path / "facts.yaml", "--ceilings", tmp_path / "mine.yaml"]
    text = report(tmp_path / "v3.0", "--data", tmp_path / "out", "-o", tmp_path / "report.html", *given).out
    assert "projections, not results" in text
    assert_outputs_agree(tmp_path / "out", text)
    assert [(one["published_units"], one["units"]) for one in rows(tmp_path / "out" / "projections.csv")] == [
        *(("256", "128"), ("64", "128"), ("64", "128")),
    ]
    assert {one["ceilings"] for one in rows(tmp_path / "out" / "cost_model.csv")} == {"mine"}
    (caps,) = (one for one in rows(tmp_path / "out" / "fits.csv") if one["x"] == "power cap" and one["y"] == "run time")
    assert caps["points"] == "2" and float(caps["b"]) < 0
    page = (tmp_path / "report.html").read_text()
    assert "Projections, not results" in page and "Cost model, not results" in page


def assert_outputs_agree(out, text):
    """Check that a projection has the same numbers in all outputs, none below its bound in the cost model.

    Return how many projections there are.
    """
    document, table = json.loads((out / "analysis.json").read_text()), rows(out / "projections.csv")
    page = (out.parent / "report.html").read_text()
    costs = {tuple(each[key] for key in STEP): float(each["epoch_seconds"]) for each in rows(out / "cost_model.csv")}
    projections = document["projections"]["projections"]
    assert len(projections) == len(table) and document["projections"]["said"] in text
    assert escape(document["projections"]["said"]) in page
    lines = re.split(r"\n(?=\S)", text[text.index(document["projections"]["said"]) :])
    pages = ["".join(re.split("<[^>]*>", line)) for line in page.split("<tr>")]
    for row, each in zip(table, projections, strict=True):
        kinds = (
            "minutes",
            "epoch_minutes",
            *(f"{part}minutes_{end}" for part in ("", "epoch_") for end in ("low", "high")),
        )
        assert [row[kind] for kind in kinds] == ["" if each[kind] is None else str(each[kind]) for kind in kinds]
        if each["ceilings"]:
            bound = costs[tuple(str(each[key]) for key in STEP)] / 60
            assert bound == pytest.approx(each["bound_epoch_minutes"]) and each["epoch_minutes_low"] >= bound * (
                1 - 1e-9
            )
        cells = [f"{each['units']:,}", f"{each['batch_size']:,}", format_range(each, ""), format_range(each, "epoch_")]
        assert any(line.startswith(each["name"]) and all(map(line.__contains__, cells)) for line in lines), cells
        assert any(line.startswith(each["name"]) and all(map(line.__contains__, cells)) for line in pages), cells
    return len(table)


STEP = ("workload", "ceilings", "units", "batch_size", "spatial")
"""What says which step of the cost model bounds a projection."""


def format_range(each, part):
    low, high = (quantity_tables.format_number(each[f"{part}minutes_{end}"]) for end in ("low", "high"))
    return low if each["minutes"] is not None else f"{low} or more" if low == high else f"{low} to {high}"


@pytest.mark.exhaustive
def test_all_outputs_agree_on_the_published_results(corpus, tmp_path, report):
    units = "2048,4096,16384,100000"
    text = report(corpus, "--data", tmp_path / "out", "-o", tmp_path / "report.html", "--project", units).out
    assert assert_outputs_agree(tmp_path / "out", text) > 100


def test_a_single_run_is_enough(tree, tmp_path, report):
    (folder := tmp_path / "runs").mkdir()
    copy(next((tree / "v3.0").rglob("result_1.txt")), folder)
    report(folder, "--data", tmp_path / "out")
    document = json.loads((tmp_path / "out" / "analysis.json").read_text())
    (one,) = document["results"]
    assert one["problem"] == "" and len(one["runs"]) == 1 and one["division"] == "closed"
    assert len(document["fits"][0]["points"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "wanted"),
    [
        (["missing", "--data", "out"], 2, "no such file or folder: missing"),
        (["empty", "--data", "out"], 1, "no results in empty: expected submissions"),
        (["v3.0", "--data", "v3.0/out"], 2, "which is read; name one outside of it"),
        (["v3.0", "-o", "v3.0/new/page.html"], 2, "which is read; name one outside of it"),
        (["v3.0", "--data", "out", "-o", "out/analysis.json"], 2, "is named like the data of --data out"),
        (["v3.0", "--data", "file"], 2, "--data file is a file"),
        (["v3.0", "--data", "out", "--project", "12,x"], 2, "expected numbers from 1 to 10000000"),
        (["v3.0", "--data", "out", "--project", "2,048"], 2, "for one number write 2048"),
        (["v3.0", "--data", "out", "--facts", "missing"], 2, "missing: cannot be read: No such file"),
        (["v3.0", "--data", "out", "--facts", "empty"], 2, "empty: cannot be read: this is a folder"),
        (["v3.0", "--data", "out", "--ceilings", "file"], 2, "file:1: unknown key V100"),
        (["v3.0", "--data", "out", "--ceilings", "missing"], 2, "missing: cannot be read: No such file"),
    ],
)
def test_wrong_use(tree, empty_folder, report, arguments, code, wanted):
    (empty_folder / "empty").mkdir()
    (empty_folder / "file").write_text("V100: fast")
    assert wanted in report(*arguments, status=code).err and not (empty_folder / "out").exists()
