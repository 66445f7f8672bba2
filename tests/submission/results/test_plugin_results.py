"""Results of benchmarks from outside the suite: no output shows one as MLPerf's."""

import json

import pytest

from compliance.samples.package import SamplePackage
from submission.report import main as report
from submission.summary import main as summary
from tests.compliance.test_plugins import NOT_MLPERF, install

__all__ = ["install"]
MARKED = "waves (not MLPerf)"


@pytest.fixture
def package(install, tmp_path):
    """Write a package of the plug-in: a result of the full problem, in the closed division."""
    install()
    return str(SamplePackage("waves", epochs=25).write(tmp_path / "Example"))


@pytest.mark.parametrize("options", [[], ["--runs"]])
@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_a_table_marks_the_benchmark(form, options, package, call):
    text = call(summary, package, "--allow-mini", "--format", form, *options).out
    if form in ("csv", "json"):
        assert "plugin" in text and NOT_MLPERF in text
    else:
        assert MARKED in text and "(not MLPerf): " in text


def test_a_change_and_a_comparison_are_marked(package, call):
    said = call(summary, package, "--allow-mini", "--previous", package, "--format", "json").out
    assert {each["plugin"] for each in json.loads(said)["differences"]} == {NOT_MLPERF}
    assert call(summary, package, "--compare", package).out.startswith(MARKED)


def test_a_page_says_so_in_its_heading_its_best_results_and_each_card(package, tmp_path):
    page = tmp_path / "page.html"
    assert report([package, "--allow-mini", "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Their results are not MLPerf results." in text and "Best passing results (not MLPerf)" in text
    assert text.count('class="tag">not MLPerf<') == 2 and text.count(">NOT MLPERF<") == 2
    assert report([f"{package}/results", "--allow-mini", "-o", str(page), "--force"]) == 0
    assert "MLPerf HPC results" not in page.read_text(encoding="utf-8")


def test_every_table_and_figure_of_an_analysis_is_marked(package, tmp_path):
    folder = tmp_path / "data"
    assert report([package, "--allow-mini", "--data", str(folder), "--project", "128"]) == 0
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert json.loads(texts["analysis.json"])["results"][0]["plugin"] == NOT_MLPERF
    figures = {name for name in texts if name.endswith(".svg")}
    assert figures and all(MARKED in texts[name] for name in (*figures, "fits.csv"))
    assert all(NOT_MLPERF in texts[name] for name in ("results.csv", "runs.csv"))
