"""Forged packages that contradict themselves, or that lie where no published log lies: 300 of them, in families.

A forgery counts as named by an error or warning that its base has not, and whose message is on the subject of the lie.

    python -m tests.conformance.forgeries.packages --corpus FOLDER [--family F05] [--seed N] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from compliance.engine import Options, check_paths
from compliance.model.judging import ERROR, NOTE, WARNING, Finding
from tests.conformance.forgeries import (
    package_amounts,
    package_blocks,
    package_copies,
    package_course,
    package_results,
    package_suite,
)
from tests.conformance.forgeries.package_bases import BUILT, Package, base_package
from tests.conformance.forgeries.package_forgery import Forgery

UNCOUNTED = ("PKG07", "PKG08", "PKG25", "PRV", "SET06", "RCP", "OFFICIAL")
"""Rules about what the bases lack, or about convergence: they name no lie."""
SEED = 40
NAMED, OTHER, NOTE_ONLY, SILENT = OUTCOMES = ("named", "other reason", "note only", "silent")


Key = tuple[str, str, str, str]
"""Rule, severity, file and message of a finding."""


class Case(NamedTuple):
    """A forgery and its number in the family."""

    number: int
    forgery: Forgery

    @property
    def name(self) -> str:
        """The family and the number."""
        return f"{self.forgery.family}-{self.number}"


class Judgement(NamedTuple):
    """What the checker says of a forgery. detail: what was drawn for it. new: findings that its base has not."""

    case: Case
    detail: str
    new: list[Finding]

    @property
    def outcome(self) -> str:
        """How the forgery is told."""
        forgery = self.case.forgery
        loud = [finding for finding in self.new if finding.severity in (ERROR, WARNING)]
        counted = [finding for finding in self.new if finding.severity in forgery.counts]
        if any(word.lower() in finding.message.lower() for finding in counted for word in forgery.subject):
            return NAMED
        return OTHER if loud else NOTE_ONLY if self.new else SILENT

    def __str__(self) -> str:
        forgery = self.case.forgery
        text = f"{self.case.name} {self.outcome}: {forgery.base}: {forgery.description}"
        text += f" ({self.detail})" if self.detail else ""
        return text + "".join(f"\n    {new.severity} {new.rule} {new.message[:200]}" for new in self.new[:3])


def make_cases() -> list[Case]:
    """Return all forgeries, numbered by family."""
    rooms = (package_blocks, package_course, package_amounts, package_suite, package_copies, package_results)
    count: Counter[str] = Counter()
    cases = []
    for forgery in sorted((forgery for room in rooms for forgery in room.FORGERIES), key=lambda one: one.family):
        cases.append(Case(count[forgery.family], forgery))
        count[forgery.family] += 1
    return cases


def forge_package(case: Case, corpus: Path | None, seed: int = SEED) -> tuple[Package, str]:
    """Return the forged package, and what was drawn for it."""
    package = base_package(case.forgery.base, corpus).copy()
    before = dict(package.files)
    detail = case.forgery.forge(package, random.Random(f"{seed} {case.name}"))
    assert package.files != before, f"{case.name} changes nothing"
    return package, detail or ""


def judge(case: Case, corpus: Path | None, seed: int = SEED, keep: Path | None = None) -> Judgement:
    """Return what the checker says of a forgery. keep: write the package there."""
    package, detail = forge_package(case, corpus, seed)
    if keep:
        package.write(keep / case.name)
    known = _find_in_base(case.forgery.base, corpus)
    new = [finding for key, finding in check_package(package).items() if key not in known]
    return Judgement(case, detail, new)


def check_package(package: Package) -> dict[Key, Finding]:
    """Return what the checker finds that counts."""
    with tempfile.TemporaryDirectory() as folder:
        root = package.write(Path(folder))
        return {
            (finding.rule, finding.severity, os.path.relpath(finding.path, root), finding.message): finding
            for finding in check_paths([root], Options()).findings
            if finding.severity in (ERROR, WARNING, NOTE) and not finding.rule.startswith(UNCOUNTED)
        }


@lru_cache
def _find_in_base(name: str, corpus: Path | None) -> frozenset[Key]:
    return frozenset(check_package(base_package(name, corpus)))


def first_built(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the first forgery of each family that needs no published logs."""
    families = set()
    for case in cases:
        if case.forgery.base in BUILT and case.forgery.family not in families:
            families.add(case.forgery.family)
            yield case


def print_table(judgements: Iterable[Judgement]) -> None:
    """Print how many of each family are told, and which."""
    rows: dict[str, Counter[str]] = {}
    for judgement in judgements:
        rows.setdefault(judgement.case.forgery.family, Counter())[judgement.outcome] += 1
    rows["all"] = sum(rows.values(), Counter())
    print(f"| family | n | {' | '.join(reversed(OUTCOMES))} |\n|---|{'--:|' * 5}")
    for family, row in rows.items():
        print(f"| {family} | {row.total()} | {' | '.join(str(row[kind]) for kind in reversed(OUTCOMES))} |")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.forgeries.packages", description=__doc__)
    parser.add_argument("--corpus", type=Path, help="folder with the published logs (v1.0, …); without it, built ones")
    parser.add_argument("--family", action="append", default=[], help="its first letters, such as F05 (repeatable)")
    parser.add_argument("--seed", type=int, default=SEED, help="what else is drawn (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the packages there")
    parser.add_argument("--all", action="store_true", help="list what is named, too")
    given = parser.parse_args()
    judgements = [
        judge(case, given.corpus, given.seed, given.keep)
        for case in make_cases()
        if (given.corpus or case.forgery.base in BUILT)
        and (not given.family or case.forgery.family.startswith(tuple(given.family)))
    ]
    print_table(judgements)
    for judgement in judgements:
        if given.all or judgement.outcome != NAMED:
            print(judgement)


if __name__ == "__main__":
    main()
