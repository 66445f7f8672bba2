"""Rules about the variant of a problem: full, or this suite's mini problem, which does not give MLPerf results."""

from __future__ import annotations

from collections.abc import Iterator

from common.reference import FULL, MINI, MINI_2, VARIANTS
from compliance.benchmarks import MINIS
from compliance.logs.log import Log
from compliance.logs.run import variant_of
from compliance.model.case import Case
from compliance.model.finding import ERROR, NOTE, Finding
from compliance.model.result_set import ResultSet
from compliance.rules.rule import LogRule, SetRule, show

MINI_ROUND = "docs/reference/profiles.md (the mini round of this suite)"
UNKNOWN = "the official tool does not know the mini round"
KEY = "dataset_variant"


class NoMini(LogRule, strict_only=True):
    """The run is on the full problem, not on the mini one."""

    id = "SET07"
    cite = MINI_ROUND
    differs = UNKNOWN
    why = "The mini problems are for laptops and tests; their results are not MLPerf results."
    fix = "Pass --allow-mini to check mini runs by the rules of the mini round; this is then a note."
    bad = (lambda log: log(division="open", variant=MINI), lambda log: log(division="open", variant=MINI_2))

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        variant = variant_of(log)
        first = next((record for record in log[KEY] if record.value == variant), None)
        if variant != FULL and first is not None:
            message = f"the log is a mini run (dataset_variant {variant}), not an MLPerf result"
            severity = NOTE if case.allow_mini else ERROR
            yield self.finding(log.path, first.line, message, "a run on the full dataset", KEY, severity)


class KnownVariant(LogRule, strict_only=True):
    """The dataset_variant, if logged, is logged once and exists for the benchmark."""

    id = "SET09"
    cite = MINI_ROUND
    differs = UNKNOWN
    why = "Target, dataset sizes and reference runs depend on it."
    fix = "Log the name of the mini problem as dataset_variant; for the full one log full, or nothing."
    good = (lambda log: log(division="open", variant=MINI),)
    bad = (
        lambda log: log().add(KEY, "tiny"),
        lambda log: log().add(KEY, None),
        lambda log: log().add(KEY, FULL).add(KEY, MINI),
        lambda log: log(benchmark="openfold", division="open").add(KEY, MINI),
        lambda log: log(benchmark="oc20", division="open").add(KEY, MINI_2),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if not log[KEY]:
            return
        yield from self.exactly_once(log, KEY)
        for record in log[KEY]:
            if record.value not in VARIANTS:
                expected = " or ".join(map(show, VARIANTS))
                yield self.finding(log.path, record.line, f"{KEY} is {show(record.value)}", expected, KEY)
        if case.benchmark and case.reference is None:
            variant = variant_of(log)
            variants = [mini.variant for mini in MINIS.get(case.benchmark, ())] or ["no mini problem"]
            message = f"{case.benchmark} has no problem {show(variant)}: target, sizes and settings were not checked"
            yield self.finding(
                log.path, log[KEY][0].line, message, f"of {case.benchmark}: {' or '.join(variants)}", KEY
            )


class MiniIsOpen(LogRule, strict_only=True):
    """A mini run belongs to the open division."""

    id = "SET10"
    cite = MINI_ROUND
    differs = UNKNOWN
    why = "The closed division is for the full problem; a mini run in it could be mistaken for an MLPerf result."
    fix = "Log submission_division open."
    good = (lambda log: log(division="open", variant=MINI),)
    bad = (lambda log: log(division="closed", variant=MINI),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if variant_of(log) == FULL:
            return
        for record in log["submission_division"]:
            if record.value != "open":
                message = f"a mini run whose submission_division is {show(record.value)}"
                yield self.finding(log.path, record.line, message, '"open"', "submission_division")


class OneVariant(SetRule, strict_only=True):
    """All runs of a result are on the same problem, full or mini."""

    id = "RUN13"
    cite = MINI_ROUND
    differs = UNKNOWN
    why = "A mini run takes minutes and cannot replace a run on the full dataset, or vice versa."
    fix = "Keep runs of the two problems in separate folders."
    good = (lambda package: package(division="open", variant=MINI),)
    bad = (lambda package: package().edit(3, lambda log: log.add(KEY, MINI)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        odd = [run for run in (*results.runs, *results.pruned) if run.variant != results.variant]
        if odd:
            message = f"runs on the {odd[0].variant} problem ({len(odd)}) among runs on the {results.variant} one"
            yield self.finding(odd[0].path, 0, message, f"only runs on the {results.variant} problem", KEY)
