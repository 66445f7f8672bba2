"""One record of a log: from JSON text to a `Record`, with bounded depth and memory for any text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, cast, overload

import msgspec

from common.record import Record as Record  # also for rules
from common.record import parse_json

LONG_RECORD_BYTES: Final = 2 << 20  # longer records are not decoded
MOST_LISTS: Final = 10_000  # and objects, in a record that is decoded
MAX_DEPTH: Final = 400  # of nested lists and objects; far below Python's limit, which depends on the caller's depth


class EpochRecord(msgspec.Struct, gc=False):
    """A `Record` of an epoch as mllog writes it, in a quarter of the memory. common: what other records have, too."""

    time_ms: int | float
    value: float | None
    epoch_num: int
    common: Record
    line: int = 0
    order: int = 0

    @property
    def key(self) -> str:
        """The key."""
        return self.common.key

    @property
    def namespace(self) -> Any:
        """The namespace."""
        return self.common.namespace

    @property
    def event_type(self) -> Any:
        """The type of event."""
        return self.common.event_type

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata, a new dict each time."""
        return {**self.common.metadata, "epoch_num": self.epoch_num}

    def meta(self, name: str) -> Any:
        """Return a field of the metadata, or None if it is missing."""
        return self.epoch_num if name == "epoch_num" else self.common.metadata.get(name)


Numbered = tuple[float, Record]
"""A record with its epoch_num; openfold counts samples there."""


class NumberedRecords(Sequence[Numbered]):
    """Records with their numbers: pairs that are made when they are asked for, since long logs have many.

    numbers, records: faster than the pairs.
    """

    def __init__(self, numbers: Sequence[float], records: Sequence[Record]) -> None:
        self.numbers, self.records = numbers, records

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, at: int) -> Numbered: ...

    @overload
    def __getitem__(self, at: slice) -> NumberedRecords: ...

    def __getitem__(self, at: int | slice) -> Numbered | NumberedRecords:
        if isinstance(at, slice):
            return NumberedRecords(self.numbers[at], self.records[at])
        return self.numbers[at], self.records[at]

    def __iter__(self) -> Iterator[Numbered]:
        return zip(self.numbers, self.records, strict=True)

    def __reversed__(self) -> Iterator[Numbered]:
        return zip(reversed(self.numbers), reversed(self.records), strict=True)


class Sharing:
    """What the records of epochs in one log have in common, which is kept once."""

    def __init__(self) -> None:
        self._common: dict[tuple[Any, ...], Record] = {}
        self._number = 0

    def compact(self, record: Record, text: bytes) -> tuple[Record, int]:
        """Return a record with the same content and about how many bytes it takes: less if mllog wrote it of an epoch.

        Bytes: also of what rules make of it. text: of the record.
        """
        common = self._find_common(record) if len(text) <= 400 else None  # longer ones are not mllog's
        if common is None:
            return record, memory_bytes(text)
        return cast(Record, EpochRecord(record.time_ms, record.value, self._number, common)), 260

    def _find_common(self, record: Record) -> Record | None:
        fields, value = record.metadata, record.value
        if type(fields) is not dict or fields.keys() != {"file", "lineno", "epoch_num"}:
            return None
        file, line, number = fields["file"], fields["lineno"], fields["epoch_num"]
        texts = (record.key, record.namespace, record.event_type, file)
        is_usual = type(line) is type(number) is int and (value is None or type(value) is float)
        if not is_usual or not all(type(text) is str for text in texts):
            return None
        common = self._common.get((*texts, line))
        if common is None and len(self._common) < 1000:
            common = self._common[(*texts, line)] = record
            del fields["epoch_num"]
        if number != self._number:  # else it is one object
            self._number = number
        return common


FILE_ORDER: Final = attrgetter("order")

STRING: Final = rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
LEVELS: Final = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
"""How each bracket changes the depth, as signed bytes: by 1 or by -1."""


def repeated_field(text: bytes) -> str:
    """Return a field name that an object in this valid JSON repeats, or ""."""
    repeated: list[str] = []

    def compare_names(fields: list[tuple[str, Any]]) -> None:
        if len(dict(fields)) < len(fields):
            repeated.extend(name for name, count in Counter(name for name, _ in fields).items() if count > 1)

    parse_json(text, object_pairs_hook=compare_names, parse_int=str)
    return repeated[0][:80] if repeated else ""


def show_json(value: Any) -> str:
    """Return a JSON value as a short text; for lists and objects, only their type."""
    if isinstance(value, (list, dict)):
        return "an object" if isinstance(value, dict) else "a list"
    return json.dumps(value)[:80]


def find_excess(text: bytes) -> str:
    """Return the problem of a record that takes too much time, memory or depth to be decoded; "" if it has none."""
    lists = text.count(b"[") + text.count(b"{")  # or more, since brackets in strings count
    if lists > MAX_DEPTH and len(text) <= LONG_RECORD_BYTES:
        brackets = re.sub(STRING + rb'|[^][{}"]+', b"", text).translate(LEVELS)
        if max(accumulate(memoryview(brackets).cast("b"), initial=0)) > MAX_DEPTH:
            return "deep"
    return "long record" if len(text) > LONG_RECORD_BYTES or lists > MOST_LISTS else ""


def memory_bytes(text: bytes) -> int:
    """Return about how many bytes the parsed text takes: an object with a single field takes 232."""
    items = text.count(b",") + text.count(b"[")
    characters = len(text) if text.isascii() else 4 * len(text)
    return 232 * text.count(b"{") + 40 * text.count(b":") + 72 * items + characters
