"""The rule about what the published logs of a benchmark have in common, and a log has not.

Nobody lists these facts: bench/census.py reads them from the published logs, of every key and every pair of numbers,
and writes compliance/census.json. The same functions read them there and here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, Final

import msgspec

from common.reference import FULL
from common.values import are_same, is_number
from compliance.logs.log import OTHERS_KEPT, Log
from compliance.logs.record import Record
from compliance.logs.run import PROVENANCE, read_mark, variant_of
from compliance.model.judging import NOTE, WARNING, Case, Finding, listed
from compliance.rules.rule import LogRule, show

SAMPLED: Final = 8
"""Records of a key that are compared, spread over the log."""
MANY_RESULTS: Final = 10
MANY_ORGANISATIONS: Final = 3
"""From so many on, what holds in all of them holds in general."""
MOST_NOTES: Final = 4
ALL: Final = "MLPerf HPC"
"""Stands for all benchmarks."""
SOURCE: Final = ("file", "lineno")
VALUE, TYPE, COURSE, MARKS = "value", "type", "course", "marks"
COUNT: Final = "number of "
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
    """What holds in all published logs with this key: in how many results of how many organisations.

    kind: of the fact. value: what `READERS` gives for all of them.
    """

    key: str
    kind: str
    value: Any
    results: int
    organisations: int


class Equality(msgspec.Struct, frozen=True, array_like=True):
    """Two numbers, see `read_number`, that are equal in all published logs with both."""

    first: str
    second: str
    results: int
    organisations: int


class Census(msgspec.Struct, frozen=True):
    """What is known of the logs of a benchmark, or of ALL. names: of all metadata, and of members of objects."""

    facts: list[Fact] = []
    equalities: list[Equality] = []
    names: frozenset[str] = frozenset()


@cache
def read_census(benchmark: str) -> Census:
    """Return what the published logs of a benchmark have in common, in addition to ALL; bench/census.py writes it."""
    return msgspec.json.decode(_read_tables()[benchmark], type=Census)


@cache
def _read_tables() -> dict[str, msgspec.Raw]:
    table = Path(__file__).parents[1] / "census.json"
    return msgspec.json.decode(table.read_bytes(), type=dict[str, msgspec.Raw])


# -- what a log says -----------------------------------------------------------------------------------------


def records_of(log: Log, key: str) -> list[Record]:
    """Return the records of any key; of some, only the first and the last."""
    return log.records.get(key) or log.others.get(key) or []


def sample(records: list[Record]) -> list[Record]:
    """Return about SAMPLED of the records, with the first and the last."""
    return records if len(records) <= SAMPLED else [*records[:: len(records) // SAMPLED], records[-1]]


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
    types = {type(record.value) for record in records}
    names = {TYPE_NAMES.get(type_, "a number") for type_ in types}
    if float in types and not all(is_number(record.value) for record in records if type(record.value) is float):
        names.add("NaN")
    return " or ".join(sorted(names))


def read_course(records: list[Record]) -> str | None:
    """Return whether the values end lower or higher than they begin; None if they are not several numbers."""
    begin, end = records[0].value, records[-1].value
    if len(records) < 3 or not (is_number(begin) and is_number(end)):
        return None
    return "falls" if end < begin else "rises" if end > begin else "stays the same"


def read_marks(records: list[Record]) -> int | None:
    """Return how many lines of code wrote the records; None of a single one."""
    if len(records) == 1:
        return None
    file, line = records[0].meta("file"), records[0].meta("lineno")
    if all(record.meta("file") == file and record.meta("lineno") == line for record in records):
        return 1
    return len({read_mark(record) for record in records})


READERS: Final[dict[str, Callable[[list[Record]], Any]]] = {
    VALUE: read_value,
    TYPE: read_type,
    COURSE: read_course,
    MARKS: read_marks,
}


def read_number(log: Log, name: str) -> Any:
    """Return the number that a name stands for, None without one.

    `key` is the last value of a key, `key.field` is in the metadata or the value of its last record, or its first;
    `number of key` counts them.
    """
    key, _, field = name.removeprefix(COUNT).partition(".")
    records = records_of(log, key)
    if not records:
        return None
    if name.startswith(COUNT):
        return len(records) if key in log.records or len(records) < OTHERS_KEPT // len(log.others) else None
    if not field:
        return records[-1].value if is_number(records[-1].value) else None
    parts = (part for record in (records[-1], records[0]) for part in (record.metadata, record.value))
    values = (part.get(field) for part in parts if type(part) is dict)
    return next((value for value in values if is_number(value)), None)


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
        if not comparable or case.benchmark not in _read_tables():
            return
        notes = []
        censuses = (read_census(case.benchmark), read_census(ALL))
        for finding in chain.from_iterable(self._compare(log, census) for census in censuses):
            if finding.severity == NOTE:
                notes.append(finding)
            else:
                yield finding
        yield from notes[:MOST_NOTES]
        if others := notes[MOST_NOTES:]:
            keys = listed(list(dict.fromkeys(note.key for note in others)))
            yield others[0]._replace(message=f"and {len(others)} more facts of published logs do not hold here: {keys}")

    def _compare(self, log: Log, census: Census) -> Iterator[Finding]:
        """Yield what does not hold in the log."""
        samples: dict[str, list[Record]] = {}
        for fact in census.facts:
            records = samples.get(fact.key)
            if records is None:
                records = samples[fact.key] = sample(records_of(log, fact.key))
            value = READERS[fact.kind](records) if records else None
            if value is not None and value != fact.value and not are_same(value, fact.value):
                alike = fact.kind != VALUE or type(value) is type(fact.value) or is_number(value)
                meaning = RAISED.get((fact.key, fact.kind), "") if alike else ""
                message = f"{describe_fact(fact, value)} {count_results(fact)}{meaning and f': {meaning}'}"
                yield self.finding_at(log, records[-1], message, severity=WARNING if meaning else NOTE)
        for pair in census.equalities:
            first, second = read_number(log, pair.first), read_number(log, pair.second)
            if first is not None and second is not None and not are_same(first, second):
                key = pair.second.removeprefix(COUNT).partition(".")[0]
                numbers = f"{pair.second} is {show(second)}, {pair.first} {show(first)}; equal"
                yield self.finding_at(log, records_of(log, key)[-1], f"{numbers} {count_results(pair)}")
        if census.names:
            yield from self._find_names(log, census.names)

    def _find_names(self, log: Log, known: frozenset[str]) -> Iterator[Finding]:
        """Yield what is in the metadata of the last record of a key under a name that is not known."""
        new: list[tuple[Record, str]] = []
        for records in chain(log.records.values(), log.others.values()):
            fields = records[-1].metadata
            if type(fields) is dict and len(fields) > len(SOURCE):
                new += [(records[-1], name) for name in read_names(records[-1:]) - known]
        if new:
            latest = {name: record for record, name in sorted(new, key=lambda pair: (pair[0].order, pair[1]))}
            names = listed([f"{name} of {record.key}" for name, record in latest.items()])
            message = f"names in the metadata that no published log has: {names}"
            yield self.finding_at(log, next(iter(latest.values())), message)


def describe_fact(fact: Fact, value: Any) -> str:
    """Return what a log says, and what all published ones say."""
    if fact.kind == MARKS:
        return f"{value} lines of code wrote the records of {fact.key}; one does"
    if fact.kind == VALUE:
        return f"{fact.key} is {show(value)}; {show(fact.value)}"
    return f"{fact.key} {'is ' * (fact.kind == TYPE)}{value}; {fact.value}"


def count_results(fact: Fact | Equality) -> str:
    """Return in how many published results a fact holds; of few, that they are few."""
    few = fact.results < MANY_RESULTS or fact.organisations < MANY_ORGANISATIONS
    whose = f"{fact.organisations} organisations{', which are few' if few else ''}"
    return f"in all {fact.results} published results that have it ({whose})"
