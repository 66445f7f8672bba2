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
from tests.conformance.variants.forged_descriptions import PACKAGES
from tests.conformance.variants.logtext import Unsuitable
from tests.conformance.variants.table import UNCOUNTED, Random, list_wrong
from tests.conformance.variants.valid_table import GROUPS, VARIATIONS

FORGED = (
    *forged_course.CLOCK,
    *forged_course.NUMBERING,
    *forged_results.RESULTS,
    *forged_results.SEEDS,
    *copies.CASES,
)
UNSEEN = (*forged_results.UNSEEN, *copies.UNSEEN)
VALID = tuple(case for group in GROUPS.values() for case in group)
FEW, MANY = 2, 20
PLACES = (copies.copy_within_the_result, copies.under_another_system, copies.in_the_other_division)


@pytest.fixture(scope="module")
def built() -> Stock:
    """Return the bases of the builder."""
    return Stock()


@pytest.fixture(scope="module")
def everything(corpus) -> Stock:
    """Return published bases, and those of the builder."""
    return Stock(corpus)


def describe(wrong):
    return "\n".join(wrong.values())


def test_the_table_has_no_row_twice_and_knows_its_rules():
    for cases in ((*FORGED, *UNSEEN), PACKAGES, VARIATIONS, VALID):
        names = [case.name for case in cases]
        assert len(names) == len(set(names))
    assert all(case.expected and set(case.expected) <= all_rules().keys() for case in FORGED)
    assert len(PACKAGES) >= 300
    assert len(FORGED) * MANY >= 2000 and len(VARIATIONS) * 15 >= 500 and len(VALID) * 3 >= 240


# -- forged -------------------------------------------------------------------------------------------------------


def test_forgeries_of_built_logs_are_named(built):
    assert not describe(list_wrong(FORGED, range(FEW), built))


@pytest.mark.exhaustive
def test_two_thousand_forgeries_are_named(everything):
    assert not describe(list_wrong(FORGED, range(MANY), everything))


def test_copies_are_named_if_their_originals_are_in_another_tree(built):
    cases = [copies.place_copies(case, copies.copy_of_another_tree) for case in copies.CASES]
    assert not describe(list_wrong(cases, range(1), built))


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


def test_what_no_log_alone_shows_is_not_named(built):
    """The docs list these families (docs/guide/check.md): one that is named must leave the list."""
    assert not describe(list_wrong(UNSEEN, range(1), built))


# -- packages that contradict themselves, or that lie where no published log lies ----------------------------------


@pytest.mark.parametrize("name", BUILT)
def test_what_is_forged_is_honest(name, built):
    source = built.shelves[name].built[0]
    assert not has_errors(built.find_in(source))
    warned = {rule for rule, severity in built.find_in(source) if severity == WARNING}
    assert not [rule for rule in warned if not rule.startswith(UNCOUNTED)]


@pytest.mark.parametrize("family", sorted({case.name.partition("-")[0] for case in PACKAGES if case.base in BUILT}))
def test_one_of_each_family_of_packages_is_named(family, built):
    first = next(case for case in PACKAGES if case.name.startswith(f"{family}-") and case.base in BUILT)
    assert not describe(list_wrong([first], range(1), built))


@pytest.mark.exhaustive
def test_all_forged_packages_are_named(everything):
    assert not describe(list_wrong(PACKAGES, range(1), everything))


# -- valid --------------------------------------------------------------------------------------------------------


def test_variations_of_built_logs_are_judged_alike(built):
    assert not describe(list_wrong(VARIATIONS, range(3), built))


@pytest.mark.exhaustive
def test_variations_of_published_logs_are_judged_alike(everything):
    assert not describe(list_wrong(VARIATIONS, range(18), everything))


@pytest.mark.parametrize("group", GROUPS)
def test_a_valid_variant_of_each_group_is_accepted(group, built):
    first = next(case for case in GROUPS[group] if not case.open)
    assert not describe(list_wrong([first], range(1), built))


@pytest.mark.exhaustive
def test_valid_variants_are_accepted_but_for_those_that_are_known(everything):
    wrong = list_wrong(VALID, range(3), everything)
    known = {case.name for case in VALID if case.open}
    assert not "\n".join(text for name, text in wrong.items() if name not in known)
    assert wrong.keys() == known


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
