"""Make the forgery that a family and a number name, and tell what the checker says of it that it did not say before."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from compliance.engine import Options, check_paths
from compliance.model.judging import Finding
from tests.conformance import variations
from tests.conformance.forgeries import clock, numbering, results
from tests.conformance.forgeries.bases import Base, Source, accepted, built, counted, judge, published
from tests.conformance.forgeries.copies import DISGUISES
from tests.conformance.forgeries.logtext import LogText, Unsuitable
from tests.conformance.forgeries.seeds import SEED_FORGERIES
from tests.conformance.forgeries.trees import (
    PLACES,
    Place,
    Result,
    Tree,
    built_results,
    of_another_tree,
    published_results,
)
from tests.conformance.forgeries.unseen import UNSEEN, UNSEEN_COPIES

ATTEMPTS = 300
BUILT_SHARE = 0.3
VARIED_SHARE = 0.4
VARIED = (
    variations.other_keys,
    variations.other_metadata,
    variations.without_optional_members,
    variations.epochs_with_a_point,
    variations.times_with_a_fraction,
    variations.counted_from_the_other,
    variations.result_behind_eval_stop,
    variations.result_behind_epoch_stop,
    variations.result_within_its_evaluation,
    variations.evaluation_within_the_epoch,
    variations.next_epoch_starts_early,
    variations.steps_in_the_metadata,
)
"""Some logs are varied first, so that the rules do not depend on how one tool writes its logs."""
OF_LOGS = {make.__name__: make for make in (*clock.FORGERIES, *numbering.FORGERIES, *results.FORGERIES, *UNSEEN)}
OF_SEEDS = {make.__name__: make for make in SEED_FORGERIES}
OF_RUNS = {make.__name__: make for make in (*DISGUISES, *UNSEEN_COPIES)}
AGAINST = hasattr(Options, "against")
"""Whether the checker can compare with another tree."""
COPY_RULES = frozenset(("RUN05", "RUN12", "RUN14", "RUN15", "RUN16"))
FAMILIES = (*OF_LOGS, *OF_SEEDS, *OF_RUNS)
UNSEEN_NAMES = tuple(make.__name__ for make in (*UNSEEN, *UNSEEN_COPIES))


class Forged(NamedTuple):
    """A forgery: family and number name it; what it was made of, what was checked, and what is found beyond that."""

    family: str
    number: int
    base: str
    tree: Tree
    verdict: str
    found: tuple[Finding, ...]
    new: frozenset[str]

    def __str__(self) -> str:
        again = f"python -m tests.conformance.forgeries {self.family} {self.number} --corpus FOLDER"
        found = ", ".join(sorted(self.new)) or "nothing new"
        return f"{self.family} {self.number} of {self.base}: {self.verdict}, {found}; to see it again: {again}"


class Stock(NamedTuple):
    """What can be forged: logs and results, built ones and, where they are there, published ones."""

    built: list[Source]
    published: list[Source]
    built_results: list[Result]
    published_results: list[Result]

    def source(self, rng: random.Random) -> Source:
        """Return a log to forge."""
        return rng.choice(self.published if self.published and rng.random() > BUILT_SHARE else self.built)

    def result(self, rng: random.Random) -> Result:
        """Return a result to forge."""
        use_published = self.published_results and rng.random() > BUILT_SHARE
        return rng.choice(self.published_results if use_published else self.built_results)


Make = Callable[[str, int, Stock, random.Random], Forged]


def stock(corpus: Path | None) -> Stock:
    """Return what can be forged; corpus: the folder of published logs, if it is there."""
    if corpus is None:
        return Stock(built(), [], built_results(), [])
    return Stock(built(), published(corpus), built_results(), list(published_results(corpus)))


def forge(family: str, number: int, of: Stock) -> Forged:
    """Return the forgery of this family and number, of the first base that is suitable."""
    make = _log if family in OF_LOGS else _seeds if family in OF_SEEDS else _copies
    return _attempt(make, family, number, of)


def forge_copy(family: str, number: int, of: Stock, place: Place) -> Forged:
    """Return the forgery of this family and number, with the copies in this place."""

    def make(family: str, number: int, of: Stock, rng: random.Random) -> Forged:
        return _copied(family, number, of.result(rng), place, rng)

    return _attempt(make, family, number, of)


def _attempt(make: Make, family: str, number: int, of: Stock) -> Forged:
    rng = random.Random(f"{family} {number}")
    for _ in range(ATTEMPTS):
        try:
            return make(family, number, of, rng)
        except Unsuitable:
            continue
    raise ValueError(f"{family} {number}: no suitable log in {ATTEMPTS} attempts")


def _log(family: str, number: int, of: Stock, rng: random.Random) -> Forged:
    base, before = _accepted(of.source(rng))
    log = LogText(base.data, base.benchmark, base.round)
    if rng.random() < VARIED_SHARE:
        rng.choice(VARIED)(log, rng)
    OF_LOGS[family](log, rng)
    data = log.bytes()
    run = judge(base, data)
    new = _new(counted(run.findings), before)
    tree = Tree({f"v{base.round}/result_0.txt": data})
    return Forged(family, number, base.name, tree, run.verdict, tuple(run.findings), new)


def _accepted(source: Source) -> tuple[Base, Counter[str]]:
    found = accepted(source)
    if found is None:
        raise Unsuitable("fails without forgery")
    return found


def _seeds(family: str, number: int, of: Stock, rng: random.Random) -> Forged:
    result = of.result(rng)
    if result.round == "0.7" or b'"open"' in result.description.lower():
        raise Unsuitable("no rule about seeds")
    logs = result.texts()
    OF_SEEDS[family](logs, rng)
    forged = replace(result, logs=tuple(log.bytes() for log in logs))
    tree = Tree(forged.files)
    verdict, found = check(tree)
    return Forged(family, number, result.name, tree, verdict, found, _new(counted(found), found_in(result)))


def _copies(family: str, number: int, of: Stock, rng: random.Random) -> Forged:
    places = [place for place in PLACES if AGAINST or place is not of_another_tree]
    return _copied(family, number, of.result(rng), places[number % len(places)], rng)


def _copied(family: str, number: int, result: Result, place: Place, rng: random.Random) -> Forged:
    tree = place(result, OF_RUNS[family], rng)
    if COPY_RULES & found_in(result).keys():
        raise Unsuitable("two of its runs are alike without forgery")
    verdict, found = check(tree)
    return Forged(family, number, result.name, tree, verdict, found, COPY_RULES & counted(found).keys())


@lru_cache(maxsize=200)
def found_in(result: Result) -> Counter[str]:
    """Return how often each rule has an error or warning about a result that is not forged."""
    return counted(check(Tree(result.files))[1])


def check(tree: Tree) -> tuple[str, tuple[Finding, ...]]:
    """Return verdict and findings of the checker about a tree."""
    with tempfile.TemporaryDirectory() as folder:
        checked, against = tree.write(Path(folder))
        more = {"against": (str(against),)} if against and AGAINST else {}
        report = check_paths([checked], Options(jobs=1, **more))  # type: ignore[arg-type]
        return report.verdict, tuple(report.findings)


def _new(now: Counter[str], before: Counter[str]) -> frozenset[str]:
    return frozenset(rule for rule, count in now.items() if count > before[rule])
