"""The rule about what the published logs of a benchmark have in common, and a log has not.

Nobody lists these facts: bench/census.py reads them from the published logs, of every key and every pair of numbers,
and writes compliance/census.json, for MLPerf Training census_training.json. The same functions read them there and
here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Final

import msgspec

from common.command import list_some
from common.reference import FULL
from common.rounds import HPC, TRAINING
from common.values import are_same, is_number
from compliance.logs.log import METRICS, OTHERS_KEPT, STRUCTURE, Log
from compliance.logs.record import FILE_ORDER, Record
from compliance.logs.run import PROVENANCE, read_mark, variant_of
from compliance.model.judging import NOTE, WARNING, Case, Finding
from compliance.rules.rule import LogRule, show

TABLES: Final = {HPC: ("census.json", ""), TRAINING: ("census_training.json", " of round 4.1")}
"""By suite, the table, and of which rounds it is unless of all."""
MOST_NOTES: Final = 4
SOURCE: Final = ("file", "lineno")
VALUE, TYPE, COURSE, MARKS, EQUAL = "value", "type", "course", "marks", "equal"
COUNT: Final = "#"
NAN: Final = "NaN"
TYPE_NAMES: Final = {
    NoneType: "null",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "an object",
}
RAISED: Final = {
    ("opt_step", VALUE): "the optimizer was resumed",
    ("shuffle_mode", VALUE): "the samples come in another order",
    ("train_loss", COURSE): "nothing was learned",
    ("train_loss", TYPE): "nothing was learned",
    ("eval_loss", TYPE): "the network did not get better",
}
"""Facts whose opposite makes a result better, or contradicts it, and what it means: a warning."""


class Fact(msgspec.Struct, frozen=True, array_like=True):
    """What holds in all published logs that have it: in how many results of how many organisations.

    name: a key; of EQUAL, the name of a number, see `read_number`. value: what `READERS` gives for all of them; of
    EQUAL, the name of the number that is the same.
    """

    name: str
    kind: str
    value: Any
    results: int
    organisations: int

    @property
    def key(self) -> str:
        """The key that it is about."""
        return parse_number(self.name)[0]

    @property
    def is_general(self) -> bool:
        """Whether so many results of so many organisations have it that it holds in general."""
        return self.results >= 10 and self.organisations >= 3


class Table(msgspec.Struct, frozen=True):
    """The contents of a table: by benchmark, facts by key.

    names: of all metadata and of members of values; none where others are as good.
    """

    names: frozenset[str]
    benchmarks: dict[str, msgspec.Raw]


Facts = dict[str, list[Fact]]


@cache
def read_census(benchmark: str | None, usage: str = HPC) -> tuple[Facts, frozenset[str]]:
    """Return what the published logs of a benchmark have in common, and the names in all; bench/census.py writes it."""
    table = msgspec.json.decode((Path(__file__).parents[1] / TABLES[usage][0]).read_bytes(), type=Table)
    own = table.benchmarks.get(benchmark or "")
    return ({} if own is None else msgspec.json.decode(own, type=Facts)), table.names


# -- what a log says -----------------------------------------------------------------------------------------


def records_of(log: Log, key: str) -> list[Record]:
    """Return the records of any key; of some, only the first and the last."""
    return log.records.get(key) or log.others.get(key) or []


def sample(records: list[Record], about: int = 3) -> list[Record]:
    """Return about so many of the records, with the first and the last."""
    return records if len(records) <= about else [*records[:: len(records) // about], records[-1]]


def read_names(records: list[Record]) -> set[str]:
    """Return the names of the metadata, and of the members of values that are objects."""
    parts = [part for record in records for part in (record.metadata, record.value) if type(part) is dict]
    return set().union(*parts)


def read_value(records: list[Record]) -> Any:
    """Return the value of all records, None if they differ."""
    first = records[0].value
    return first if all(record.value == first for record in records) else None


def read_type(records: list[Record]) -> str:
    """Return the types of the values, in words."""
    values = [record.value for record in records]
    return " or ".join(sorted({"a number" if is_number(v) else TYPE_NAMES.get(type(v), NAN) for v in values}))


def read_course(records: list[Record]) -> str | None:
    """Return whether the values end lower or higher than they begin; None if they are not several numbers."""
    begin, end = records[0].value, records[-1].value
    if len(records) < 3 or not (is_number(begin) and is_number(end)):
        return None
    return "falls" if end < begin else "rises" if end > begin else "stays the same"


READERS: Final[dict[str, Callable[[list[Record]], Any]]] = {
    VALUE: read_value,
    TYPE: read_type,
    COURSE: read_course,
    MARKS: lambda records: len({*map(read_mark, records)}) if len(records) > 1 else None,  # lines that wrote them
}


@cache
def parse_number(name: str) -> tuple[str, str]:
    """Return key and field of a number's name.

    `key` is the last value of a key, `key.field` in the metadata or the value of a record, `key.#` how many there are.
    """
    key, _, field = name.partition(".")
    return key, field


def read_number(log: Log, name: str) -> Any:
    """Return the number that a name stands for in a log with run_stop, None without one.

    A field is one of the last record of the key, or of the first.
    """
    key, field = parse_number(name)
    records = records_of(log, key)
    if not records:
        return None
    last = records[-1]
    if field == COUNT:  # in the run
        whole = key in log.records or len(records) < OTHERS_KEPT // len(log.others)
        return bisect_right(records, log["run_stop"][0].order, key=FILE_ORDER) if whole else None
    value = last.meta(field) if field else last.value
    if field and value is None:
        parts = (last.value, records[0].metadata, records[0].value)
        value = next((part[field] for part in parts if type(part) is dict and field in part), None)
    return value if is_number(value) else None


# -- the rule ------------------------------------------------------------------------------------------------


class AsPublished(LogRule, strict_only=True):
    """What holds in all published logs of the benchmark holds in this one."""

    id = "SET20"
    severity = NOTE
    once = True
    cite = "bench/census.py"
    divisions = ("closed",)
    differs = "the official tool does not compare a log with others"
    why = "What no published log does is worth a look: the log may be edited, or another run than its header says."
    fix = "Submit the log as the run wrote it. If it is right, say in the README of the code why it differs."
    good = (lambda log: log(benchmark="deepcam").add("opt_step", 0),)
    bad = (lambda log: log(benchmark="deepcam").add("opt_step", 5000),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        comparable = "run_stop" in log.records and PROVENANCE not in log.records and variant_of(log) == FULL
        facts, names = read_census(case.benchmark, case.usage) if comparable else ({}, frozenset())
        if not facts:
            return
        compared = self._compare(log, facts, TABLES[case.usage][1])
        findings = [*compared, *(self._find_names(log, names) if names else ())]
        others = [finding for finding in findings if finding.severity == NOTE][MOST_NOTES:]
        yield from (finding for finding in findings if finding not in others)
        if others:
            keys = list_some(list(dict.fromkeys(note.key for note in others)))
            yield others[0]._replace(message=f"and {len(others)} more facts of published logs do not hold here: {keys}")

    def _compare(self, log: Log, facts: Facts, rounds: str) -> Iterator[Finding]:
        """Yield each fact that does not hold in the log."""
        for key, of_key in facts.items():
            records = records_of(log, key)
            for fact in of_key if records else ():
                usual: Any = fact.value
                if fact.kind != EQUAL:
                    value = READERS[fact.kind](sample(records))
                elif (value := log.derive(read_number, fact.name)) is not None:
                    usual = log.derive(read_number, fact.value)
                if value is None or usual is None or value == usual or are_same(value, usual):
                    continue
                alike = value == NAN if fact.kind == TYPE else type(value) is type(usual) or is_number(value)
                meaning = RAISED.get((key, fact.kind), "") if alike else ""
                message = describe_fact(fact, value, usual, rounds) + (f": {meaning}" if meaning else "")
                yield self.finding_at(log, records[-1], message, severity=WARNING if meaning else NOTE)

    def _find_names(self, log: Log, known: frozenset[str]) -> Iterator[Finding]:
        """Yield what is in the metadata of the last record of a key under a name that is not known."""
        new: list[tuple[Record, str]] = []
        for key in (*STRUCTURE, *METRICS, *log.others):
            for record in records_of(log, key)[-1:]:
                usual = type(record.metadata) is not dict or known.issuperset(record.metadata)
                if not usual or (type(record.value) is dict and not known.issuperset(record.value)):
                    new += [(record, name) for name in read_names([record]) - known]
        if new:
            latest = {name: record for record, name in sorted(new, key=lambda pair: (pair[0].order, pair[1]))}
            names = list_some([f"{name} of {record.key}" for name, record in latest.items()])
            yield self.finding_at(
                log, next(iter(latest.values())), f"names in the metadata that no published log has: {names}"
            )


def describe_fact(fact: Fact, value: Any, usual: Any, rounds: str = "") -> str:
    """Return what a log says, what the published ones say, and how many there are."""
    texts = {
        VALUE: f"{fact.name} is {show(value)}; {show(usual)}",
        TYPE: f"{fact.name} is {value}; {usual}",
        COURSE: f"{fact.name} {value}; {usual}",
        MARKS: f"{value} lines of code wrote the records of {fact.name}; one does",
        EQUAL: f"{fact.name} is {show(value)}, {fact.value} {show(usual)}; equal".replace(
            f".{COUNT}", " (their number)"
        ),
    }
    whose = f"{fact.organisations} organisations{'' if fact.is_general else ', which are few'}"
    return f"{texts[fact.kind]} in all {fact.results} published results{rounds} that have it ({whose})"
