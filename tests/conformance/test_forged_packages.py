"""Packages that contradict themselves, or that lie where no published log lies, are named for what is wrong.

To see a forgery again: `python -m tests.conformance.forgeries.packages --family F05 --keep FOLDER`, with
`--corpus FOLDER` for those of published logs.
"""

import pytest

from compliance.model.judging import NOTE
from tests.conformance.forgeries.package_bases import BUILT, base_package
from tests.conformance.forgeries.packages import NAMED, check_package, first_built, judge, make_cases

CASES = make_cases()


@pytest.mark.parametrize("name", BUILT)
def test_what_is_forged_is_honest(name):
    findings = check_package(base_package(name, None)).values()
    assert not [finding for finding in findings if finding.severity != NOTE]


@pytest.mark.parametrize("case", list(first_built(CASES)), ids=lambda case: case.name)
def test_one_of_each_family_is_named(case):
    judgement = judge(case, None)
    assert judgement.outcome == NAMED, str(judgement)


@pytest.mark.exhaustive
def test_all_are_named(corpus):
    missed = [judgement for case in CASES for judgement in [judge(case, corpus)] if judgement.outcome != NAMED]
    assert not missed, "\n".join(map(str, missed))


def test_there_are_three_hundred():
    assert len(CASES) >= 300
