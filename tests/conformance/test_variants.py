"""The table of cases: what is forged is named by the rules that are about it, what is valid gets no new complaint.

A case is a row in `variants/`; with a number it is always the same. To see one again, and to keep its files:
`python -m tests.conformance.variants NAME NUMBER -o FOLDER`, with `--corpus FOLDER` for those of published logs.
"""

from __future__ import annotations

import tarfile
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from compliance.benchmarks import REFERENCES
from compliance.engine import Options, check_paths
from compliance.model.judging import ERROR, WARNING
from compliance.rules.catalog import all_rules
from tests.conformance.disturbed_runs import ARCHIVE
from tests.conformance.variants import forged_copies as copies
from tests.conformance.variants import forged_course, forged_results
from tests.conformance.variants.bases import BUILT, COPY_RULES, Stock, has_errors
from tests.conformance.variants.forged_claims import CLAIMS
from tests.conformance.variants.forged_descriptions import PACKAGES
from tests.conformance.variants.forged_evidence import EVIDENCE
from tests.conformance.variants.logtext import Unsuitable
from tests.conformance.variants.table import UNCOUNTED, Random, list_wrong
from tests.conformance.variants.valid_forms import FORMS
from tests.conformance.variants.valid_table import GROUPS, VARIATIONS

FORGED = (
    *forged_course.CLOCK,
    *forged_course.NUMBERING,
    *forged_results.RESULTS,
    *forged_results.SEEDS,
    *copies.CASES,
)
GIVEN = (*EVIDENCE, *CLAIMS, *FORMS)
"""Cases of which a verdict is expected, by families."""
FAMILIES = {case.name.partition(" ")[0] for case in GIVEN}
UNSEEN = (*forged_results.UNSEEN, *copies.UNSEEN)
VALID = tuple(case for group in GROUPS.values() for case in group)
FIRST = {case.name.partition("-")[0]: case for case in reversed(PACKAGES) if case.base in BUILT}
FIRST |= {name: next(case for case in group if not case.open) for name, group in GROUPS.items()}
"""One case of each family of packages, and of each group of valid variants."""
BUILT_CASES = {
    "forged logs are named": (FORGED, 2),
    "copies are named if their originals are in another tree": (copies.ELSEWHERE, 1),
    "what no log alone shows is not named": (UNSEEN, 1),  # the docs list it (docs/guide/check.md): what is named leaves
    "variations of logs are judged alike": (VARIATIONS, 3),
    **{f"{name} is judged rightly": ([case], 1) for name, case in FIRST.items()},
}
ALL_CASES = {
    "forged logs are named": (FORGED, 20),
    "forged packages are named": (PACKAGES, 1),
    "variations of logs are judged alike": (VARIATIONS, 18),
}
"""Rows of the table, and how many cases of each."""
PLACES = (copies.copy_within_the_result, copies.under_another_system, copies.in_the_other_division)


@pytest.fixture(scope="module")
def built() -> Stock:
    """Return the bases of the builder."""
    return Stock()


@pytest.fixture(scope="module")
def everything(corpus) -> Stock:
    """Return published bases, and those of the builder."""
    return Stock(corpus)


def test_the_table_has_no_row_twice_and_knows_its_rules():
    for cases in ((*FORGED, *UNSEEN), PACKAGES, VARIATIONS, VALID, GIVEN):
        names = [case.name for case in cases]
        assert len(names) == len(set(names))
    assert all(case.expected and set(case.expected) <= all_rules().keys() for case in FORGED)
    assert len(PACKAGES) >= 300
    assert len(FORGED) * 20 >= 2000 and len(VARIATIONS) * 15 >= 500 and len(VALID) * 3 >= 240


@pytest.mark.parametrize("name", BUILT_CASES)
def test_built_cases_are_judged_rightly(name, built):
    assert not "\n".join(list_wrong(*BUILT_CASES[name], built).values())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ALL_CASES)
def test_built_and_published_cases_are_judged_rightly(name, everything):
    assert not "\n".join(list_wrong(*ALL_CASES[name], everything).values())


@pytest.mark.exhaustive
def test_valid_variants_are_accepted_but_for_those_that_are_known(everything):
    wrong = list_wrong(VALID, 3, everything)
    known = {case.name for case in VALID if case.open}
    assert not "\n".join(text for name, text in wrong.items() if name not in known)
    assert wrong.keys() == known


def select_family(family):
    """Return the cases of a family."""
    return [case for case in GIVEN if case.name.startswith(f"{family} ")]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_case_of_each_family_gets_an_accepted_verdict(family, everything):
    assert not "\n".join(list_wrong(select_family(family)[:1], 1, everything).values())


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_all_cases_of_a_family_get_an_accepted_verdict(family, everything):
    assert not "\n".join(list_wrong(select_family(family), 1, everything).values())


@pytest.mark.parametrize("name", BUILT)
def test_what_is_forged_is_honest(name, built):
    source = built.shelves[name].built[0]
    assert not has_errors(built.find_in(source))
    warned = {rule for rule, severity in built.find_in(source) if severity == WARNING}
    assert not [rule for rule in warned if not rule.startswith(UNCOUNTED)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", copies.CLOSE)
@pytest.mark.parametrize("most_ms", copies.MOVED_MS)
def test_copies_with_close_values_are_named(everything, most_ms, part):
    rng, disguise, unseen = Random(most_ms), copies.move_each(most_ms, part), []
    shelf = everything.shelves["distinct runs"]
    sources = [source for source in (*shelf.built, *shelf.published) if not shelf.refuses(everything.find_in(source))]
    for source, place in product(sources, PLACES):
        base = source()
        copied = replace(base, files=dict(base.files), _texts={})
        with suppress(Unsuitable):
            place(copied, disguise, rng)
            if not COPY_RULES & {finding.rule for finding in copied.judge()[1]}:
                unseen.append(f"{place}: {base.name}")
    assert not unseen


# -- honest: mini runs on a machine that was disturbed on purpose; `disturbed_runs.py` made them --------------------


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """Return a folder with the logs of these runs."""
    folder = tmp_path_factory.mktemp("disturbed")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_runs_on_a_disturbed_machine_are_accepted(disturbed):
    report = check_paths([str(disturbed)], Options(jobs=1, allow_mini=True))
    assert {run.benchmark for run in report.runs} == REFERENCES.keys() - {"openfold"}
    assert all(run.converged for run in report.runs)
    assert not [finding for finding in report.findings if finding.severity in (ERROR, WARNING)]


def test_disturbed_runs_name_no_folder_of_the_machine(disturbed):
    assert not [log.name for log in disturbed.iterdir() if b'"/' in log.read_bytes()]
