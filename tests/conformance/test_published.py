"""The published results get the verdicts, scores and convergence tests of the official tools (../shared/corpus)."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from compliance.logs.privacy import HOME, MAIL, personal
from compliance.model.judging import ERROR, JudgedRun
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from tests.bench_script import bench_script

amounts, census, finding_rates, published_rates = (
    bench_script(name) for name in ("amounts", "census", "finding_rates", "published_rates")
)
extract = bench_script("checker").extract
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "profiles.md"
STRICT_REJECTS: dict[str, str] = {}
"""Unpruned published logs that strict rejects and the official tool accepts, with the reason: there is none."""
SET = ("round", "submitter", "system", "scaling", "benchmark")


@pytest.fixture(scope="module")
def verdicts(shared) -> dict[str, dict[str, Any]]:
    """Return the verdicts of the official log checker, by round and path."""
    entries = map(json.loads, (shared / "corpus" / "official_verdicts.jsonl").read_text().splitlines())
    return {f"{entry['round']}/{entry['log']}": entry for entry in entries}


@pytest.fixture(scope="module")
def folders(shared) -> dict[str, dict[str, Any]]:
    """Return the verdicts of the official package checker by round, organisation and result folder."""
    packages = json.loads((shared / "corpus" / "official_packages.json").read_text())
    return {f"{name}/{entry['dir']}": entry for name, package in packages.items() for entry in package["dirs"]}


def by_path(report: Report, corpus: Path) -> dict[str, JudgedRun]:
    return {os.path.relpath(run.path, corpus): run for run in report.runs}


def error_keys(run: JudgedRun) -> set[str]:
    return {finding.key for finding in run.findings if finding.severity == ERROR and finding.key}


# -- logs -----------------------------------------------------------------------------------------------------


def test_official_verdicts_and_error_keys(official, corpus, verdicts):
    found = {path: (run.verdict != "FAIL", error_keys(run)) for path, run in by_path(official, corpus).items()}
    said = {path: (entry["official_valid"], set(entry["official_error_keys"])) for path, entry in verdicts.items()}
    assert found == said and len(said) == 1545
    assert sum(not valid for valid, _ in said.values()) == 28


def test_minutes_settings_and_last_evaluation(official, corpus, verdicts):
    for path, run in by_path(official, corpus).items():
        entry = verdicts[path]
        assert run.minutes == pytest.approx(entry["minutes"]), path
        assert (run.batch_size, run.benchmark, run.division) == (
            entry["global_batch_size"],
            entry["benchmark"],
            entry["division"],
        ), path
        if entry["last_eval"] and run.convergence is not None:
            assert run.convergence == entry["last_eval"][1], path


def test_strict_rejects_no_more_unpruned_logs(strict, corpus, verdicts):
    rejected = {path for path, run in by_path(strict, corpus).items() if run.verdict == "FAIL"}
    assert len(rejected) > 20 and not any(run.killed for run in strict.runs)
    unjust = {path for path in rejected if verdicts[path]["official_valid"] and not verdicts[path]["pruned"]}
    assert unjust == STRICT_REJECTS.keys()


def test_strict_accepts_nothing_that_the_official_tool_rejects(strict, corpus, verdicts):
    accepted = {path for path, run in by_path(strict, corpus).items() if run.verdict != "FAIL"}
    assert not [path for path in accepted if not verdicts[path]["official_valid"]]


# -- scores: see also test_summary.py -------------------------------------------------------------------------


def test_rejected_logs_of_results(official, shared):
    scores = json.loads((shared / "corpus" / "published_scores.json").read_text())
    said = {tuple(entry[name] for name in SET): sorted(entry["rejected_logs"]) for entry in scores}
    found = {
        (f"v{r.round}", r.organisation, r.system, r.scaling, r.folder_benchmark): sorted(r.score.rejected)
        for r in official.sets
    }
    assert found == said and len(said) == 51


# -- result folders and packages ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(official, folders) -> list[tuple[dict[str, Any], ResultSet]]:
    """Return the official package checker's verdict on each folder from round 1.0 on, and our result set."""
    found = {
        f"{results.round}_{results.organisation}/{results.system}/{results.scaling}/{results.folder_benchmark}": results
        for results in official.sets
        if results.round != "0.7"
    }
    assert found.keys() == folders.keys()
    return [(entry, found[name]) for name, entry in folders.items()]


def test_convergence_of_folders(judged):
    for entry, results in judged:
        verdict = results.official_convergence
        if entry["rcp"] is None:
            assert verdict is None, results.name
            continue
        phrase = f"RCP Test {'Passed' if verdict.passed else 'Failed'}: {verdict.official_message}"
        assert phrase == entry["rcp"], results.name
        assert round(verdict.submission_mean, 4) == entry["subm_mean_epochs"], results.name
        assert verdict.normalization == pytest.approx(entry.get("norm_factor", 1.0), rel=1e-9), results.name
    assert sum(entry["rcp"] is None for entry, _ in judged) < 5


def test_seeds_of_folders(judged):
    for entry, results in judged:
        wrong = [f for f in results.findings if f.rule in ("RUN03", "RUN04") and f.severity == ERROR]
        assert (not wrong) == entry["seed_ok"], results.name
        assert len(results.runs) == entry["runs"], results.name
    assert {entry["seed_ok"] for entry, _ in judged} == {True, False}


def test_packages(official, shared):
    said = json.loads((shared / "corpus" / "official_packages.json").read_text())
    found = {f"{package.round}_{package.organisation}": package.verdict != "FAIL" for package in official.packages}
    assert found.keys() == said.keys()
    later = {name: entry["verdict"] == "PASS" for name, entry in said.items() if entry["round"] != "0.7"}
    assert {name: found[name] for name in later} == later
    assert set(later.values()) == {True, False}


def test_packages_of_the_first_round(official):
    """The official package checker finds nothing to check in the layout of that round; the rule was the same."""
    failing = {each.organisation for each in official.packages if each.round == "0.7" and each.verdict == "FAIL"}
    too_many = {
        results.organisation for results in official.sets if results.round == "0.7" and len(results.failing) > 1
    }
    assert failing == too_many == {"Fujitsu"}


# -- what strict says of them is what docs/reference/profiles.md says it says ----------------------------------------


def name_of(path, sets):
    results = next(r for r in sets if path == r.folder or path.startswith(r.folder + "/"))
    return f"v{results.round} {results.name}"


def result_of(path):
    return os.path.dirname(path).removesuffix("/pruned_results")


def test_rejected_results_are_listed(strict):
    listed = re.findall(r"^\| ([A-Z]{3}\d\d) \| (v\d\.\d \S+) \|", PAGE.read_text(), re.M)
    between = [finding for results in strict.sets for finding in results.findings] + strict.own
    between += [finding for package in strict.packages for finding in package.findings]
    found = {(f.rule, name_of(f.path, strict.sets)) for f in between if f.severity == "error"}
    assert found == set(listed) and len(listed) == len(found)


def test_rejected_logs_are_those_that_the_page_counts(strict):
    pruned = {run.path for results in strict.sets for run in results.pruned}
    rejected = [run for run in strict.runs if run.verdict == "FAIL"]
    unpruned = [run for run in rejected if run.path not in pruned]
    assert "The 23 unpruned ones are of round 0.7" in PAGE.read_text()
    assert len(unpruned) == 23 and {run.round for run in unpruned} == {"0.7"}
    assert len(rejected) == 28
    whole = [results for results in strict.sets if results.runs and len(results.failing) == len(results.runs)]
    assert [len(results.runs) for results in whole] == [10, 10] and "Of these, 20 (in two results)" in PAGE.read_text()


def test_seeds_are_a_warning_in_early_rounds(strict):
    warned = [f for results in strict.sets for f in results.findings if f.rule == "RUN03"]
    assert len(warned) == 8 and {finding.severity for finding in warned} == {"warning"}


def test_personal_data_is_what_the_page_says(strict):
    """Looking through samples of long logs misses none of the published home directories."""
    found = [finding for run in strict.runs for finding in run.findings if finding.rule == "PRV01"]
    held = {run.path: {kind for _, _, kind in personal(Path(run.path).read_bytes())} for run in strict.runs}
    for kind, severity, said in ((HOME, "warning", "name a home directory"), (MAIL, "note", "state a contact")):
        logs = {path for path, kinds in held.items() if kind in kinds}
        assert f"{len(logs)} {said}" in PAGE.read_text()
        told = [finding.path for finding in found if finding.severity == severity]
        assert len(told) == len(set(told)) and set(told) <= logs
        assert {result_of(path) for path in told} == {result_of(path) for path in logs}, "one per result"


def test_the_page_of_finding_rates_is_what_the_checker_finds(strict, corpus):
    """Warnings are rare: no more than one per result on average."""
    text = finding_rates.page(strict, corpus)
    assert text == (PAGE.parent / "finding-rates.md").read_text()
    told = (finding for finding in strict.findings if finding.rule != "PKG08")  # there is no code
    warnings = sum(finding.severity == "warning" for finding in told)
    assert 0 < warnings <= len(strict.sets)


def test_the_table_of_published_rates_is_that_of_the_published_logs(corpus):
    assert published_rates.table(corpus) == published_rates.TABLE.read_text()


def test_the_census_is_that_of_the_published_logs(corpus):
    assert census.write_table(corpus) == census.TABLE.read_text()


@pytest.fixture(scope="module")
def training(shared, tmp_path_factory) -> Path:
    """Return a folder with the published logs of MLPerf Training."""
    pytest.importorskip("mlperf_logging")
    if not list((shared / "corpus").glob("training_v*.tar.xz")):
        pytest.skip("../shared has no corpus/training_v*.tar.xz")
    folder = tmp_path_factory.mktemp("training")
    extract(shared / "corpus", folder, "training")
    return folder


@pytest.mark.exhaustive
def test_the_census_of_training_is_that_of_its_published_logs(training):
    table = census.TABLE.with_name("census_training.json")
    assert census.write_table(training, census.TRAINING_ROUND) == table.read_text()


@pytest.mark.exhaustive
def test_the_page_of_rates_of_training_is_what_the_checker_finds(training):
    """No rule that is on finds an error in an accepted log; the day of the page may be any."""
    page = (PAGE.parent / "training-rates.md").read_text()
    (day,) = re.findall(r"Measured on ([\d-]+)", page)
    text = finding_rates.page_of_training(training)
    assert re.sub(r"Measured on [\d-]+", f"Measured on {day}", text) == page
    usual = page.partition("## Rules that are not on")[0]
    errors = [line.split("|")[3].strip() for line in usual.splitlines() if line.partition("| logs |")[1]]
    assert len(errors) > 30 and not any(errors)


def test_the_page_says_how_many_published_results_have_a_finding_on_their_speed(strict):
    assert not [finding for finding in strict.findings if finding.rule in ("ORD19", "RUN18", "SET14")]
    assert f"None of the {len(strict.sets)} results in the corpus gets either of them" in PAGE.read_text()


def test_valid_rejected_runs_of_a_result_are_tolerated(strict):
    """One failing run of a time-to-train result stands for the slowest: three published results have one."""
    assert len(strict.tolerated) == 3


def test_the_bounds_of_the_rules_are_those_of_the_published_logs(corpus):
    assert amounts.table(corpus) == amounts.BOUNDS.read_text()


def test_the_page_of_amounts_is_what_the_published_logs_state(corpus):
    """Its exceptions are all there are: a rule that would judge them shows here."""
    assert amounts.page(corpus) == (PAGE.parent / "amounts.md").read_text()
