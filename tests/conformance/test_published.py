"""What strict says of the published results is what docs/reference/profiles.md says it says."""

import os
import re
from pathlib import Path

import pytest

from compliance.engine import Options, check_paths
from compliance.logs.privacy import HOME, MAIL, personal
from tests.bench_script import bench_script

amounts, finding_rates, published_rates = (
    bench_script(name) for name in ("amounts", "finding_rates", "published_rates")
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "profiles.md"


@pytest.fixture(scope="module")
def report(corpus):
    return check_paths([corpus], Options())


def name_of(path, sets):
    results = next(r for r in sets if path == r.folder or path.startswith(r.folder + "/"))
    return f"v{results.round} {results.name}"


def result_of(path):
    return os.path.dirname(path).removesuffix("/pruned_results")


def test_rejected_results_are_listed(report):
    listed = re.findall(r"^\| ([A-Z]{3}\d\d) \| (v\d\.\d \S+) \|", PAGE.read_text(), re.M)
    between = [finding for results in report.sets for finding in results.findings] + report.own
    between += [finding for package in report.packages for finding in package.findings]
    found = {(f.rule, name_of(f.path, report.sets)) for f in between if f.severity == "error"}
    assert found == set(listed) and len(listed) == len(found)


def test_rejected_logs_are_those_that_the_page_counts(report):
    pruned = {run.path for results in report.sets for run in results.pruned}
    rejected = [run for run in report.runs if run.verdict == "FAIL"]
    unpruned = [run for run in rejected if run.path not in pruned]
    assert "The 23 unpruned ones are of round 0.7" in PAGE.read_text()
    assert len(unpruned) == 23 and {run.round for run in unpruned} == {"0.7"}
    assert len(rejected) == 28
    whole = [results for results in report.sets if results.runs and len(results.failing) == len(results.runs)]
    assert [len(results.runs) for results in whole] == [10, 10] and "Of these, 20 (in two results)" in PAGE.read_text()


def test_seeds_are_a_warning_in_early_rounds(report):
    warned = [f for results in report.sets for f in results.findings if f.rule == "RUN03"]
    assert len(warned) == 8 and {finding.severity for finding in warned} == {"warning"}


def test_personal_data_is_what_the_page_says(report):
    """Looking through samples of long logs misses none of the published home directories."""
    found = [finding for run in report.runs for finding in run.findings if finding.rule == "PRV01"]
    held = {run.path: {kind for _, _, kind in personal(Path(run.path).read_bytes())} for run in report.runs}
    for kind, severity, said in ((HOME, "warning", "name a home directory"), (MAIL, "note", "state a contact")):
        logs = {path for path, kinds in held.items() if kind in kinds}
        assert f"{len(logs)} {said}" in PAGE.read_text()
        told = [finding.path for finding in found if finding.severity == severity]
        assert len(told) == len(set(told)) and set(told) <= logs
        assert {result_of(path) for path in told} == {result_of(path) for path in logs}, "one per result"


def test_the_page_of_finding_rates_is_what_the_checker_finds(report, corpus):
    """Warnings are rare: no more than one per result on average."""
    text = finding_rates.page(report, corpus)
    assert text == (PAGE.parent / "finding-rates.md").read_text()
    told = (finding for finding in report.findings if finding.rule != "PKG08")  # there is no code
    warnings = sum(finding.severity == "warning" for finding in told)
    assert 0 < warnings <= len(report.sets)


def test_the_table_of_published_rates_is_that_of_the_published_logs(corpus):
    assert published_rates.table(corpus) == published_rates.TABLE.read_text()


def test_the_page_says_how_many_published_results_have_a_finding_on_their_speed(report):
    assert not [finding for finding in report.findings if finding.rule in ("ORD19", "RUN18", "SET14")]
    assert f"None of the {len(report.sets)} results in the corpus gets either of them" in PAGE.read_text()


def test_valid_rejected_runs_of_a_result_are_tolerated(report):
    """One failing run of a time-to-train result stands for the slowest: three published results have one."""
    assert len(report.tolerated) == 3


def test_the_page_of_amounts_is_what_the_published_logs_state(corpus):
    """Its exceptions are all there are: a rule that would judge them shows here."""
    assert amounts.page(corpus) == (PAGE.parent / "amounts.md").read_text()
