"""Rules about seeds: every run of a closed result logs one, and no other run has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any

from common.reference import since
from compliance.model.finding import ERROR, NOTE, SKIPPED, WARNING, Finding
from compliance.model.judged_run import JudgedRun
from compliance.model.layout import WEAK
from compliance.model.parameters import SEED_BYPASS
from compliance.model.result_set import ResultSet, names_of
from compliance.rules.rule import SetRule, show
from compliance.rules.settings import seed_of, seed_problem

SEEDS = "training_rules.adoc#random-numbers; seed checker (mlcommons/logging#384)"
MARK = ("file", "lineno")


class SeedsLogged(SetRule):
    """Every run of a closed result logs its seed, a whole number."""

    id = "RUN03"
    cite = SEEDS
    rounds = since("1.0")
    divisions = ("closed",)
    why = "Only runs with different seeds are independent samples of the convergence."
    fix = "Draw a seed for each run from system randomness and log it with key seed."
    differs = (
        "strict only warns about missing seeds in rounds 1.0 and 2.0, which did not require them; the official tool"
        " applies it backwards, and also asks for source file and line of the record (strict: a warning)"
    )
    good = (lambda package: package().edit(1, lambda log: log.set("seed", "77")),)
    bad = (
        lambda package: package().edit(1, lambda log: log.drop("seed")),
        lambda package: package().edit(1, lambda log: log.set("seed", "lucky")),
        lambda package: package(round_="2.0").edit(1, lambda log: log.set("seed", "lucky")),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if SEED_BYPASS in results.officially_bypassed:
            return
        # The rule dates from 2024: strict only warns about earlier submissions, which could not know it.
        early = results.strict and results.round != "3.0"
        missing = [run for run in results.runs if not run.seeds]
        if missing:
            message = f"seed missing in {len(missing)} of {len(results.runs)} runs: {names_of(missing)}"
            severity = NOTE if results.loose else WARNING if early else ERROR
            yield self.finding(missing[0].path, 0, message, "one seed record in each run", "seed", severity)
        severity = NOTE if results.loose else ERROR
        for run in results.runs:
            yield from self._first_problem(run, results.strict, severity)
            if not results.strict and not run.parsed_clean:
                yield self.finding(run.path, 0, "seeds cannot be read: lines do not parse", "a clean log", "seed")

    def _first_problem(self, run: JudgedRun, strict: bool, severity: str) -> Iterator[Finding]:
        for line, file, source_line, value in run.seeds:
            official = _official_problem(file, source_line, value)
            problem = seed_problem(value) if strict else official
            if problem:
                yield self.finding(run.path, line, problem, "a whole number", "seed", severity)
                return
            if official and severity == ERROR:
                yield self.finding(run.path, line, official, "as mllog writes it", "seed", WARNING)
                return


class SeedsUnique(SetRule):
    """No two runs of a closed result share a seed."""

    id = "RUN04"
    cite = SEEDS
    rounds = since("1.0")
    divisions = ("closed",)
    why = "Two runs with one seed are one sample of the convergence counted twice; a second seed changes nothing."
    fix = "Repeat the run with a new seed; move the named throughput instances to pruned_results."
    differs = (
        "the official tool compares seed, source file and source line: the same seed from another line passes, but one"
        " run that logs its seed twice fails (strict: a warning); of more than 10,000 seeds in a log the first are"
        " compared (strict: an error)"
    )
    good = (lambda package: package().edit(2, lambda log: log.double("seed", value=77)),)
    bad = (
        lambda package: package().edit(2, lambda log: log.set("seed", 1001)),
        lambda package: package().edit(2, lambda log: log.set("seed", "1001").meta("seed", "lineno", 7)),
        lambda package: package().edit(2, lambda log: log.double("seed", value=1001)),
        lambda package: package().edit(2, lambda log: log.double("seed")),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if SEED_BYPASS in results.officially_bypassed:
            return
        for seed, places in _seed_places(results).items():
            runs = list({id(run): run for run, _ in places}.values())
            number = seed[-1] if isinstance(seed, tuple) else seed
            run, line = places[-1]
            if len(runs) > 1:
                message = f"duplicate seed {show(number)}: also in {names_of(runs[:-1])}"
                if results.scaling == WEAK:
                    message += f"; keep one, prune {names_of(runs[1:])}"
                yield self.finding(run.path, line, message, "its own seed", "seed")
            elif len(places) > 1:
                message = f"seed {show(number)} is logged {len(places)} times; the official package checker takes it"
                message += " as that of two runs"
                severity = WARNING if results.strict else ERROR
                yield self.finding(run.path, line, message, "one seed record, from rank 0", "seed", severity)
        for run in results.runs:
            if run.seed_count > len(run.seeds):
                message = f"{run.seed_count} seeds are logged, of which only the first {len(run.seeds)} are compared"
                severity = ERROR if results.strict else SKIPPED
                yield self.finding(
                    run.path, run.seeds[-1][0], message, "one seed record, from rank 0", "seed", severity
                )


def _seed_places(results: ResultSet) -> dict[Hashable, list[tuple[JudgedRun, int]]]:
    """Return by seed where it is logged; in the profile official, by source file, source line and seed."""
    places: dict[Hashable, list[tuple[JudgedRun, int]]] = defaultdict(list)
    for run in results.runs:
        for line, file, source_line, value in run.seeds:
            if results.strict:
                number = seed_of(value)
                if number is not None:
                    places[number].append((run, line))
            elif not _official_problem(file, source_line, value):
                places[file, source_line, int(value)].append((run, line))
    return places


def _official_problem(file: Any, source_line: Any, value: Any) -> str:
    """Return on what the official seed checker fails, "" if it can read the seed."""
    for name, field in zip(MARK, (file, source_line), strict=True):
        if field is None or not isinstance(field, Hashable):
            return f"the seed's {name} is {show(field)}, which the official tool cannot compare"
    try:
        int(value)
    except (TypeError, ValueError, OverflowError):
        return f"seed is {show(value)}"
    return ""
