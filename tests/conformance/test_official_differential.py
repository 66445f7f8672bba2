"""The official profile says what the installed official checker says, on thousands of damaged logs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from compliance.engine.log_checker import LogTask, check_log, judge_log
from compliance.logs.log import parse_log
from compliance.model import judging as judged_by
from compliance.model.judging import ERROR, OFFICIAL, JudgedRun
from compliance.rules import order
from tests.conformance.variants.damaged_logs import ROUNDS, Base, Case, bases, cases

ROOT = Path(__file__).resolve().parents[2]

official = pytest.importorskip("tests.conformance.official", reason="mlperf-logging is not installed")

GROUPS: dict[str, list[Base]] = defaultdict(list)
for base in bases():
    GROUPS["-".join(base[:3])].append(base)
STRIDE = 8
SHOWN = 20
STRICT_IS_LAXER = {"seed", "scheduler_t_max", "scheduler_decay_rate"}
"""Settings of deepcam for which the written rules allow more than the official tool: see docs/reference/profiles.md."""


class Comparison(NamedTuple):
    """One damaged log, and what both checkers say of it."""

    case: Case
    theirs: official.Outcome
    ours: official.Outcome

    @property
    def agrees(self) -> bool:
        """Whether the verdicts are the same, and the keys unless the official tool crashed."""
        same_keys = self.theirs.keys is None or self.theirs.keys == self.ours.keys
        return self.theirs.valid == self.ours.valid and same_keys

    def __str__(self) -> str:
        return f"{self.case.id}\n    official: {_said(self.theirs)}\n    ours:     {_said(self.ours)}"


def _said(outcome: official.Outcome) -> str:
    keys = "crashed" if outcome.keys is None else ", ".join(sorted(outcome.keys))
    return f"{'valid' if outcome.valid else 'invalid'} ({keys or 'no key'})"


def compared(chosen: Iterable[Case], folder: Path) -> Iterator[Comparison]:
    """Yield the verdicts of both checkers on each log."""
    path = str(folder / "result_0.txt")
    with official.official_tool():
        for case in chosen:
            Path(path).write_bytes(case.data)
            run = check_log(LogTask(path, judged_by.Case(case.base.round, OFFICIAL)))
            assert not broken(run), case.id
            keys = frozenset(f.key for f in run.findings if f.severity == ERROR and f.key)
            yield Comparison(case, official.check(path, case.base.round), official.Outcome(run.verdict != "FAIL", keys))


def broken(run: JudgedRun) -> list[str]:
    """Return what rules that raised an exception said."""
    return [finding.message for finding in run.findings if "the rule itself failed" in finding.message]


def sampled(all_cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the first case of each key of a base, and every eighth after it."""
    seen: Counter[tuple[Base, str]] = Counter()
    for case in all_cases:
        if seen[case.base, case.key] % STRIDE == 0:
            yield case
        seen[case.base, case.key] += 1


def report(comparisons: Iterable[Comparison]) -> str:
    """Return the first differences in words; nothing if there are none."""
    differing = [str(comparison) for comparison in comparisons if not comparison.agrees]
    return "\n".join([f"{len(differing)} differences", *differing[:SHOWN]]) if differing else ""


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> dict[str, list[Comparison]]:
    """Both verdicts on a sample of the cases, by group."""
    folder = tmp_path_factory.mktemp("sample")
    return {
        name: [found for base in group for found in compared(sampled(cases(base)), folder)]
        for name, group in GROUPS.items()
    }


@pytest.mark.parametrize("group", GROUPS)
def test_sampled_logs_get_the_official_verdict(group, sample):
    assert not report(sample[group])


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_all_logs_get_the_official_verdict(group, tmp_path):
    found = [comparison for base in GROUPS[group] for comparison in compared(cases(base), tmp_path)]
    assert not report(found)


def test_valid_logs_are_valid(sample):
    valid = [found for group in sample.values() for found in group if found.case.id.endswith(": valid")]
    assert len(valid) == len(list(bases()))
    assert all(found.theirs == found.ours == (True, frozenset()) for found in valid)


@pytest.mark.exhaustive
def test_there_are_thousands_of_cases_with_names_of_their_own():
    names = [case.id for base in bases() for case in cases(base)]
    assert len(names) == len(set(names)) > 10_000
    told = f"{len(names):,} damaged logs"
    for page in ("guide/check.md", "reference/profiles.md"):
        assert told in (ROOT / "docs" / page).read_text()


def test_cases_are_the_same_in_every_run():
    base = Base("3.0", "closed", "deepcam")
    assert list(cases(base)) == list(cases(base))


@pytest.mark.parametrize("round_", ROUNDS)
def test_every_key_of_the_official_rules_is_damaged(round_, sample):
    damaged = {found.case.key for group in sample.values() for found in group if found.case.base.round == round_}
    assert official.known_keys(round_) <= damaged


def test_every_key_is_sometimes_right_and_sometimes_wrong(sample):
    wrong: set[str] = set()
    right: set[str] = set()
    for comparison in (found for group in sample.values() for found in group):
        wrong |= comparison.theirs.keys or set()
        if comparison.theirs.valid:
            right.add(comparison.case.key)
    known = frozenset().union(*map(official.known_keys, ROUNDS))
    assert known - wrong == set()
    assert known - right == set()


def test_the_official_tool_crashes_on_some(sample):
    outcomes = [found.theirs for group in sample.values() for found in group]
    share = sum(outcome.keys is None for outcome in outcomes) / len(outcomes)
    assert 0.02 < share < 0.2


def test_the_profile_knows_on_which_logs_the_official_tool_crashes(sample):
    for case, theirs, _ in (found for group in sample.values() for found in group):
        run = judge_log(parse_log(case.data), LogTask(case.id, judged_by.Case(case.base.round, OFFICIAL)))
        assert bool(run.official.log_crash) is (theirs.keys is None), case.id


def test_strict_allows_more_for_a_few_keys_only(sample):
    allowed: set[str] = set()
    for case, theirs, _ in (found for group in sample.values() for found in group):
        run = judge_log(parse_log(case.data), LogTask(case.id, judged_by.Case(case.base.round)))
        assert not broken(run), case.id
        if run.verdict != "FAIL" and not theirs.valid:
            allowed |= theirs.keys or {"a traceback"}
    assert allowed and allowed <= STRICT_IS_LAXER


def test_a_difference_is_noticed(monkeypatch, tmp_path):
    monkeypatch.setitem(order.INIT_LIMIT_MINUTES, "3.0", 31)
    chosen = [case for case in cases(Base("3.0", "closed", "cosmoflow")) if case.key == "init_stop"]
    found = report(compared(chosen, tmp_path))
    assert "official: invalid (init_stop)\n    ours:     valid (no key)" in found
