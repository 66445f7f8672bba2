"""The official profile says what the installed official package checker says, on hundreds of damaged packages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from compliance.engine import Options, check_paths
from compliance.model.judging import OFFICIAL, PASSING, STRICT
from compliance.rules import copies
from tests.conformance.variants.damaged_packages import MUTATIONS, PLAIN, Case, cases

official = pytest.importorskip("tests.conformance.official", reason="mlperf-logging is not installed")

DOCS = Path(__file__).resolve().parents[2] / "docs"
STRIDE = 12
SHOWN = 20
ONE_RUN_FAILS = "one run of a result may fail; the official tool ends with a traceback on its log, or cannot read seeds"
STRICT_ACCEPTS = {
    ONE_RUN_FAILS: (
        r"(batch size None|no batch size|two batch sizes) in one log",
        r"(first|last) epoch_num ('9'|None|\[9\]) in one log",
        r"last epoch_num nan in one log",
        r"no (epoch_num|results|benchmark) in one log",
        r"last result ('0.9'|None|\[0.9\]) in one log",
        r"status None in one log",
        r"dead before its settings in one log",
        r"benchmark ('resnet'|'DeepCAM'|None|\['deepcam'\]|'common'|''|3|'oc20'|'cosmoflow'|'openfold') in one log",
        r"two benchmarks in one log",
        r"division (None|'Closed'|'closed '|\['closed'\]|True|'') in one log",
        r"line (a list|null|a number|no JSON|no metadata|no value|time as text|no time|deep|an empty token)",
        r"a log (cut in half|twice|in UTF-16|empty|of text only)",
    ),
    "a run that logs its seed twice is still one sample; strict warns (RUN04)": (r"its seed twice in one log",),
    "a seed record without source file or line states a seed; strict warns (RUN03)": (
        r"(no|a list as) (file|lineno) of the seed in one log",
    ),
    "round 1.0 and 2.0 did not require seeds; strict warns (RUN03)": (r".*\b[12]\.0 .*: (no seed.*|a log empty)",),
    "a number without quotes is readable; strict warns (PKG06)": (
        r"(accelerators_per_node|framework) 4",
        r"description with NaN",
    ),
    "a description in another encoding is readable; strict warns (PKG04)": (
        r"description with a (byte order mark|Latin-1 byte)",
    ),
    "strict obeys no parameter file, and warns about one that is not UTF-8 (PKG01)": (r"parameters in Latin-1",),
}
"""Where strict accepts what the official tool rejects: the reason, and the damages; docs/reference/profiles.md."""


class Comparison(NamedTuple):
    """One damaged package: whether the official tool, the profile official and the profile strict accept it."""

    case: Case
    theirs: bool
    official: bool
    strict: bool


def compared(chosen: Iterable[Case], folder: Path, corpus: Path | None) -> Iterator[Comparison]:
    """Yield the verdicts on each package; the official tool comes last, as it writes into the package."""
    with official.official_tool():
        for number, case in enumerate(chosen):
            root = case.write(folder / str(number), corpus)
            accepted = [accepts(root, case.base.round, profile) for profile in (OFFICIAL, STRICT)]
            yield Comparison(case, official.check_package(root, case.base.round), *accepted)


def accepts(root: Path, round_: str, profile: str) -> bool:
    """Return whether a profile accepts the package."""
    report = check_paths([root], Options(round=round_, profile=profile))
    assert not [f.message for f in report.findings if "the rule itself failed" in f.message]
    return report.verdict in PASSING


def excused(case: Case) -> bool:
    """Tell whether strict is known to accept what the official tool rejects here."""
    return any(re.fullmatch(one, name) for name in names(case) for known in STRICT_ACCEPTS.values() for one in known)


def differences(comparisons: Iterable[Comparison]) -> str:
    """Return the packages with another verdict in the profile official; "" if there are none."""
    wrong = [f"{c.case.name}: official tool {c.theirs}, profile {c.official}" for c in comparisons]
    return "\n".join(wrong[:SHOWN])


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Return the verdicts on every twelfth package."""
    return list(compared(list(cases(published=False))[::STRIDE], tmp_path_factory.mktemp("sample"), None))


def test_sampled_packages_get_the_official_verdict(sample):
    assert not differences(c for c in sample if c.official is not c.theirs)


def test_strict_is_not_weaker_on_sampled_packages(sample):
    assert not [c.case.name for c in sample if c.strict and not c.theirs and not excused(c.case)]


@pytest.mark.exhaustive
def test_all_packages_get_the_official_verdict_and_strict_is_not_weaker(tmp_path, corpus):
    found = list(compared(cases(published=True), tmp_path, corpus))
    assert not differences(c for c in found if c.official is not c.theirs)
    weaker = [c.case for c in found if c.strict and not c.theirs]
    assert not [case.name for case in weaker if not excused(case)]
    for reason, damages in STRICT_ACCEPTS.items():
        for damage in damages:
            assert any(re.fullmatch(damage, one) for case in weaker for one in names(case)), (reason, damage)
    assert min(Counter(c.theirs for c in found).values()) > 200


def names(case: Case) -> list[str]:
    return [case.name, *(one.name for one in case.mutations)]


def test_there_are_hundreds_of_cases_with_names_of_their_own():
    found = [case.name for case in cases(published=True)]
    assert len(found) == len(set(found)) > 600
    assert [case.name for case in cases(published=True)] == found
    for page in ("guide/check.md", "reference/profiles.md"):
        assert f"{len(found)} damaged packages" in (DOCS / page).read_text()


def test_a_difference_is_noticed(monkeypatch, tmp_path):
    monkeypatch.setattr(copies, "_seed_key", lambda *_: None)
    (twice,) = [one for one in MUTATIONS if one.name == "seed 1001 in one log"]
    (found,) = compared([Case(twice.name, PLAIN, (twice,))], tmp_path, None)
    assert differences([found]) and found.official and found.strict and not found.theirs and not excused(found.case)
