"""One record of a log: from JSON text to a `Record`, with bounded depth and memory for any text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, cast, overload

import msgspec

from common.record import Record as Record  # also for rules

LONG_RECORD_BYTES: Final = 512 << 10  # of longer records, only what rules need is decoded
MOST_LISTS: Final = 10_000  # and objects, in a record that is decoded as a whole
MOST_FIELDS: Final = 200_000  # and strings, in one record; more are not compared
MAX_DEPTH: Final = 400  # of nested lists and objects; far below Python's limit, which depends on the caller's depth


class _LongRecord(msgspec.Struct):
    """A record whose value and metadata are not decoded yet: as objects they might take much memory."""

    time_ms: int | float
    key: str
    value: msgspec.Raw
    metadata: msgspec.Raw


Scalar = int | float | str | bool | None


class _KnownMetadata(msgspec.Struct, omit_defaults=True):
    """The metadata fields that rules need."""

    file: Scalar | msgspec.UnsetType = msgspec.UNSET
    lineno: Scalar | msgspec.UnsetType = msgspec.UNSET
    epoch_num: Scalar | msgspec.UnsetType = msgspec.UNSET
    first_epoch_num: Scalar | msgspec.UnsetType = msgspec.UNSET
    epoch_count: Scalar | msgspec.UnsetType = msgspec.UNSET
    status: Scalar | msgspec.UnsetType = msgspec.UNSET


EPOCH_METADATA: Final = {"file", "lineno", "epoch_num"}
COMPACT_BYTES: Final = 260
LONGEST_COMPACT: Final = 400
MOST_SHARED: Final = 1000


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
    """Records with their numbers: pairs that are made when they are asked for, since long logs have many."""

    def __init__(self, numbers: Sequence[float], records: Sequence[Record]) -> None:
        self._numbers, self._records = numbers, records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, at: int) -> Numbered: ...

    @overload
    def __getitem__(self, at: slice) -> NumberedRecords: ...

    def __getitem__(self, at: int | slice) -> Numbered | NumberedRecords:
        if isinstance(at, slice):
            return NumberedRecords(self._numbers[at], self._records[at])
        return self._numbers[at], self._records[at]

    def __iter__(self) -> Iterator[Numbered]:
        return zip(self._numbers, self._records, strict=True)

    def __reversed__(self) -> Iterator[Numbered]:
        return zip(reversed(self._numbers), reversed(self._records), strict=True)


class Sharing:
    """What the records of epochs in one log have in common, which is kept once."""

    def __init__(self) -> None:
        self._common: dict[tuple[Any, ...], Record] = {}
        self._number = 0

    def compact(self, record: Record, text: bytes) -> tuple[Record, int]:
        """Return a record with the same content and about how many bytes it takes: less if mllog wrote it of an epoch.

        Bytes: also of what rules make of it. text: of the record.
        """
        common = self._find_common(record) if len(text) <= LONGEST_COMPACT else None
        if common is None:
            return record, memory_bytes(text)
        return cast(Record, EpochRecord(record.time_ms, record.value, self._number, common)), COMPACT_BYTES

    def _find_common(self, record: Record) -> Record | None:
        fields, value = record.metadata, record.value
        if type(fields) is not dict or fields.keys() != EPOCH_METADATA:
            return None
        file, line, number = fields["file"], fields["lineno"], fields["epoch_num"]
        texts = (record.key, record.namespace, record.event_type, file)
        is_usual = type(line) is type(number) is int and (value is None or type(value) is float)
        if not is_usual or not all(type(text) is str for text in texts):
            return None
        common = self._common.get((*texts, line))
        if common is None and len(self._common) < MOST_SHARED:
            common = self._common[(*texts, line)] = record
            del fields["epoch_num"]
        if number != self._number:  # else it is one object
            self._number = number
        return common


FILE_ORDER: Final = attrgetter("order")

STRING: Final = rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
NAME_OR_BRACE: Final = rb'(?s)("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\r\n]*+(:)?|[{}]'
LEVELS: Final = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
"""How each bracket changes the depth, as signed bytes: by 1 or by -1."""
NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_decode_raw = msgspec.json.Decoder(_LongRecord).decode
_decode_metadata = msgspec.json.Decoder(_KnownMetadata).decode


def decode_long(text: bytes) -> Record:
    """Return a long record without what no rule needs.

    Only the known fields of long metadata are decoded. A long value is cut to its first characters.
    Raises MsgspecError if a field does not have its usual type.
    """
    raw = _decode_raw(text)
    value, metadata = bytes(raw.value), bytes(raw.metadata)
    if any(not is_long(part) and depth(part) > MAX_DEPTH for part in (value, metadata)):
        raise msgspec.DecodeError("nested too deeply")
    kept = value[:80].decode("utf-8", "replace") if is_long(value) else msgspec.json.decode(value)
    if not is_long(metadata):
        fields = msgspec.json.decode(metadata, type=dict)
    else:
        needed = msgspec.structs.asdict(_decode_metadata(metadata))
        fields = {name: field for name, field in needed.items() if field is not msgspec.UNSET}
    return Record(raw.time_ms, raw.key, kept, fields, None, msgspec.UNSET)


def repeated_field(text: bytes) -> str:
    """Return a field name that an object in this valid JSON repeats, or "".

    Raises ValueError if there are more fields than can be compared.
    """
    names: list[set[bytes]] = []
    for number, match in enumerate(re.finditer(NAME_OR_BRACE, text)):
        name, colon = match.groups()
        if number > MOST_FIELDS:
            raise ValueError(f"more than {MOST_FIELDS} strings")
        if name is None and match[0] == b"{":
            names.append(set())
        elif name is None:
            names.pop()
        elif colon:
            if b"\\" in name:
                normal = json.dumps(json.loads(name.decode("utf-8", "surrogateescape")), ensure_ascii=False)
                name = normal.encode("utf-8", "surrogatepass")
            if name in names[-1]:
                return name[1:-1][:80].decode("utf-8", "replace")
            names[-1].add(name)
    return ""


def show_json(value: Any) -> str:
    """Return a JSON value as a short text; for lists and objects, only their type."""
    if isinstance(value, (list, dict)):
        return "an object" if isinstance(value, dict) else "a list"
    return json.dumps(value)[:80]


def is_long(text: bytes) -> bool:
    """Return whether a record or a part of it takes too much time or memory to be decoded as a whole."""
    return len(text) > LONG_RECORD_BYTES or _count_lists(text) > MOST_LISTS


def _count_lists(text: bytes) -> int:
    """Return the number of lists and objects, or more, since brackets in strings count."""
    return text.count(b"[") + text.count(b"{")


def depth(text: bytes) -> int:
    """Return how deeply lists and objects are nested, 0 if there are few; for damaged text, what a parser may reach."""
    if _count_lists(text) <= MAX_DEPTH:
        return 0
    brackets = re.sub(STRING, b"", text).translate(LEVELS, NO_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b"), initial=0))


def memory_bytes(text: bytes) -> int:
    """Return about how many bytes the parsed text takes: an object with a single field takes 232."""
    items = text.count(b",") + text.count(b"[")
    characters = len(text) if text.isascii() else 4 * len(text)
    return 232 * text.count(b"{") + 40 * text.count(b":") + 72 * items + characters
