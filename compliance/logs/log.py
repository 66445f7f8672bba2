"""Read result logs of anyone, in the line format of common.record.

Nothing in a log can stop the reader: every fault becomes a `Problem` with its line, and reading goes on. Memory stays
bounded: only the records that a rule may need are kept.
"""

from __future__ import annotations

import io
import re
import sys
import unicodedata
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import cached_property
from itertools import chain, islice
from operator import le
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from common.command import describe_reason
from common.file_kind import FileKind
from common.record import TOKEN, decode, parse_json
from common.reference import COMMON_SETTINGS, TARGET_RECORD
from common.tree import NAMED, Tree, size_text
from common.values import LARGEST, is_number
from compliance.benchmarks import REFERENCES, list_references, read_name
from compliance.logs.file_kind import (
    COUNTED_IN_SAMPLES,
    EMPTY,
    OUTPUT,
    InflateError,
    find_encoding,
    find_log_kind,
    find_suite,
    pieces,
)
from compliance.logs.privacy import Mention, Watch
from compliance.logs.record import (
    FILE_ORDER,
    MAX_DEPTH,
    STRING,
    NumberedRecords,
    Record,
    Sharing,
    find_excess,
    repeated_field,
    show_json,
)

if TYPE_CHECKING:
    from compliance.logs.ending import End

BLOCK_BYTES: Final = 1 << 20
MAX_LINE_BYTES: Final = 16 << 20
MAX_KEPT_BYTES: Final = 128 << 20  # memory of the records that are kept: those of 100,000 epochs
MAX_OF_KEY: Final = 101_000
UNWEIGHED_BYTES: Final = 512 << 10  # up to this total length, records are not measured
MAX_LOG_BYTES: Final = 2 << 30
MAX_HEAD_BYTES: Final = 64 << 20  # what has no record by then is no log, and may have no end
EARLIEST_MS: Final = 1_400_000_000_000  # May 2014, before the first MLPerf
LATEST_MS: Final = 4_100_000_000_000  # 2099
MOST_BACK_MS: Final = 1000
"""By which a record may be earlier than one before it; in published logs only some of the header are."""
OTHERS_KEPT: Final = 4000
"""Records of keys that no rule names, the first and last of each key; only the census compares them."""
LONGEST_OTHER: Final = 2000
LONGEST_KEY: Final = 80
"""Characters of a key that is kept, and bytes of what precedes a record."""

MARKS: Final = (b":::", b"LLOG", b'"time_ms"')
"""What lines that are meant as records have."""
NEAR_RECORD: Final = (
    r"""(?i)(?::{2,4}\s?\w{0,2}llog|mllog)\W{0,3}\{.{0,200}["'](?:key|time_ms)["']"""
    r'|\{.*"time_ms".*"key"'
)
UTF_16: Final = "there the encoding changes to UTF-16, as when PowerShell's >> appends to a file"
ZEROS: Final = "what stood there is lost, as after a crash of the machine, with a full disk or by a failed copy"
LONGEST_HEAD: Final = 400
"""Bytes of a line that are compared with `NEAR_RECORD`."""
MOST_COMPARED: Final = 1000
"""Lines of a block that are compared with it; published logs have none."""

BEGIN: Final = TOKEN + rb'(\s*\{\s*"\w+"\s*:\s*(?:""\s*,\s*"\w+"\s*:\s*)?)'
"""How a record begins: each program writes it in one way, and so are all records of each published log."""
MOST_TAIL: Final = 5_000
"""The last such lines that are kept."""
METRICS: Final = ("eval_error", "eval_accuracy")
STRUCTURE: Final = tuple(
    "init_start init_stop staging_start staging_stop run_start run_stop block_start block_stop epoch_start epoch_stop "
    "eval_start eval_stop eval_error eval_accuracy cache_clear".split()
)
BENCHMARK: Final = "submission_benchmark"
NAMED_BENCHMARK: Final = rb'"submission_benchmark"[^\n]{1,99}?"value"\s*:\s*"([^"\n]{1,99})"'
SUBMISSION: Final = tuple(f"submission_{name}" for name in ("benchmark", "org", "division", "status", "platform"))
SUITE_KEYS: Final = (
    TARGET_RECORD,
    "provenance",
    "dataset_variant",
    "number_of_parameters",
    "run_resumed",
    "bagging",
    "sample_means",
    "flop_per_sample",
    "init_weights_sha256",
    "spatial_extents",
    "number_of_ranks",
)
"""Keys that only this suite's logs have."""
SETTINGS: Final = (
    *COMMON_SETTINGS,
    *(setting for ref in REFERENCES.values() for setting in (*ref.dataset.settings(), *ref.settings)),
)
REFERENCE_KEYS: Final = (
    "checkpoint",
    "data_oversampling_factor",
    "target_accuracy_reached",
    "gradient_accumulation_frequency",
    "precision",
)
"""Keys of the reference implementations that are no settings."""
KEYS: Final = frozenset(
    ("seed", *STRUCTURE, *SUBMISSION, *SUITE_KEYS, *REFERENCE_KEYS, *(setting.key for setting in SETTINGS))
)
"""The keys that rules and the recorder of reference runs need; of others, only some records are kept."""
T = TypeVar("T")


class Rate(NamedTuple):
    """The speed that a run records of an epoch, in samples per second, and the step in this record's metadata.

    alone: the log records one speed of this epoch, not one of each step.
    """

    per_second: float
    step: Any
    line: int
    alone: bool = True


class Oddity(NamedTuple):
    """What is odd in a log but no fault of its form: the first line, what is odd there, and how many lines are."""

    line: int
    detail: str
    lines: int


class FormProblem(NamedTuple):
    """A fault in the form of the file; `kind` is one of those in `rules/form.py`."""

    kind: str
    line: int
    detail: str


class Log:
    """The contents of a log file: records by key, in file order, and the problems found in its form.

    others: the first and last records of further keys. personal: the first mail addresses and home directories in any
    line, record or not. rates: the speed that the run records of each epoch, by its number.
    inflated_bytes: of a compressed log, what was read of it. kind: what the file seems to be instead of a log.
    cut_line: the last line, if the file ends in its middle. oddities: by kind, "near record": lines that look like
    records to people but not to tools; "writing": records that are not written as the first one is; "time order":
    records, not two of the course, with a time before that of an earlier one; "failure": text that tells of one; "NUL":
    several NUL bytes, their number as that of the lines; causes in `bad_lines`: lines that are no records.
    metrics: the keys of results. heads: what precedes a record in its line, by the number of the line. text: the first
    lines of text of each gap between records, with their numbers; tail: the last ones, which may tell of its end.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.records: dict[str, list[Record]] = {}
        self.problems: list[FormProblem] = []
        self.personal: list[Mention] = []
        self.others: dict[str, list[Record]] = {}
        self.rates: dict[float, Rate] = {}
        self.inflated_bytes = 0
        self.cut_line = 0
        self.oddities: dict[str, Oddity] = {}
        self.heads: dict[int, bytes] = {}
        self.text: list[tuple[int, bytes]] = []
        self.tail: deque[tuple[int, bytes]] = deque(maxlen=MOST_TAIL)
        self.kind: FileKind | None = None
        self.record_count = 0
        self.line_count = 0
        self.metrics: tuple[str, ...] = METRICS
        self._problem_counts: Counter[str] = Counter()
        self._derived: dict[tuple[Any, ...], Any] = {}

    def __getitem__(self, key: str) -> list[Record]:
        return self.records.get(key, [])

    def first(self, key: str) -> Record | None:
        """Return the first record of a key, or None."""
        of_key = self.records.get(key)
        return of_key[0] if of_key else None

    def last(self, key: str) -> Record | None:
        """Return the last record of a key, or None."""
        of_key = self.records.get(key)
        return of_key[-1] if of_key else None

    def value(self, key: str) -> Any:
        """Return the value of the first record of a key, or None."""
        of_key = self.records.get(key)
        return of_key[0].value if of_key else None

    def in_order(self, *keys: str) -> list[Record]:
        """Return the records of several keys, in file order."""
        return sorted(chain.from_iterable(map(self.__getitem__, keys)), key=FILE_ORDER)

    @property
    def no_log(self) -> FileKind | None:
        """What the file is, if it is no log."""
        return self.kind if self.kind and (self.kind.binary or not self.record_count) else None

    @cached_property
    def other_suite(self) -> FileKind | None:
        """Of which other suite the log is, if it is of one."""
        return find_suite(self.value("submission_benchmark"), self.others.keys())

    @cached_property
    def end(self) -> End | None:
        """Why the run failed, as the text around its last records tells; None if it did not, or nothing tells."""
        from compliance.logs.ending import find_end  # only a run that failed pays for it

        return find_end(self.tail, self.events, self.last("run_stop"))

    @cached_property
    def events(self) -> list[Record]:
        """The records of structural keys (run, epoch, eval, …), in file order."""
        return self.in_order(*dict.fromkeys((*STRUCTURE, *self.metrics)))

    @cached_property
    def ordered(self) -> list[Record]:
        """The events whose times have an order; each rank may log init_start, and caches are cleared at any time."""
        return [
            event
            for event in self.events
            if event.key not in ("init_start", "cache_clear") and is_number(event.time_ms)
        ]

    @cached_property
    def is_in_order(self) -> bool:
        """Whether these are in the order of their times."""
        times = [event.time_ms for event in self.events]
        if all(map(le, times, times[1:])):
            return True  # the usual case
        times = [event.time_ms for event in self.ordered]
        return all(map(le, times, times[1:]))

    @cached_property
    def counts_epochs(self) -> bool:
        """Whether its benchmark is one of the suite or a plug-in, whose records state epoch_num, whatever else."""
        return bool(list_references(read_name(self.value(BENCHMARK))))

    @cached_property
    def counts_samples(self) -> bool:
        """Whether its benchmark is one of MLPerf Training whose convergence is counted in samples."""
        return read_name(self.value(BENCHMARK)) in COUNTED_IN_SAMPLES

    def position(self, record: Record, field: str = "epoch_num") -> Any:
        """Return where in the run a record stands, as it states it: in epochs or samples, None if it does not."""
        number = record.meta(field)
        if self.counts_epochs or (number is not None and not self.counts_samples):
            return number
        samples = record.meta("samples_count")
        return number if samples is None else samples

    def numbered(self, key: str, field: str = "epoch_num") -> NumberedRecords:
        """Return (number, record) of each record of a key with a finite number in that field, or else of samples."""
        return self.derive(_numbered, key, field)

    def derive(self, make: Callable[..., T], *arguments: str) -> T:
        """Return what `make` makes of the log with these arguments, which is kept: `derive(Course, "eval_error")`."""
        key = make, arguments
        made: T = self._derived.get(key, UNSET)
        if made is UNSET:
            made = self._derived[key] = make(self, *arguments)
        return made

    def replace(self, records: dict[str, list[Record]]) -> Log:
        """Return the log with other records of these keys."""
        log = copy(self)
        log.records = {**self.records, **records}
        log._derived = {}
        for name in ("events", "ordered", "is_in_order"):
            log.__dict__.pop(name, None)
        return log

    def problem(self, kind: str, line: int, detail: str = "") -> None:
        """Record a problem; keep the first hundred of each kind."""
        self._problem_counts[kind] += 1
        if self._problem_counts[kind] <= 100:
            self.problems.append(FormProblem(kind, line, detail))

    def list_problems(self, *kinds: str) -> list[FormProblem]:
        """Return the problems of these kinds, by line."""
        return [problem for problem in self.problems if problem.kind in kinds]

    def note(self, kind: str, line: int, detail: str = "", lines: int = 1) -> None:
        """Count odd lines; keep the first of each kind."""
        first = self.oddities.setdefault(kind, Oddity(line, detail, 0))
        self.oddities[kind] = first._replace(lines=first.lines + lines)


def _numbered(log: Log, key: str, field: str) -> NumberedRecords:
    records = log[key]
    numbers: list[Any] = [
        record.meta(field) if log.counts_epochs else log.position(record, field) for record in records
    ]
    if set(map(type, numbers)) == {int} and min(numbers) >= -LARGEST and max(numbers) <= LARGEST:
        return NumberedRecords(numbers, records)
    kept = [(number, record) for number, record in zip(numbers, records, strict=True) if is_number(number)]
    return NumberedRecords([number for number, _ in kept], [record for _, record in kept])


class LogReader:
    """Turn bytes, fed in pieces of any size, into a `Log`; never raise, whatever the bytes are.

    benchmark: whose keys are kept, too; without it, those of the plug-in that the log names in its first BLOCK_BYTES.
    with_text: look at the lines that are no records, too.
    """

    def __init__(
        self, path: str, keys: Iterable[str] = KEYS, benchmark: str | None = None, with_text: bool = True
    ) -> None:
        self.log = Log(path)
        self._watch = Watch(self.log.personal)
        self._carry = bytearray()
        self._skipping = False
        self._open_line = 0  # the last line whose record lacks its end
        self._kept_bytes = 0
        self._begin = b""  # of the first record
        self._newest: Record | None = None  # the record with the latest time so far
        self._sharing = Sharing()
        self._slots: dict[str, list[Record]] = {key: [] for key in keys}
        self._open_slots = self._slots  # none when there are too many records
        self._unnamed = BENCHMARK in self._slots  # while none is named
        self._with_text = with_text
        self._keep_keys(benchmark)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file and read the complete lines."""
        if self._skipping:
            # Drop the rest of the long line; its line ending stays and ends an empty line.
            ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
            if not ends:
                return
            self._skipping = False
            data = data[min(ends) :]
        # A final carriage return may be the first half of CRLF: it waits for the next byte.
        if self._carry.endswith(b"\r"):
            data = b"\r" + data
            del self._carry[-1:]
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        if cut:
            complete = data[:cut]
            if self._carry:
                complete = b"".join((self._carry, complete))
                self._carry = bytearray()
            self._read_lines(complete)
        self._carry += data[cut:]
        if len(self._carry) > MAX_LINE_BYTES + 1:  # the carriage return of CRLF is not part of the line
            self.log.problem("long line", self.log.line_count + 1)
            self._carry, self._skipping = bytearray(), True

    def close(self) -> Log:
        """Read the rest (a last line without a line ending) and return the log."""
        log, carry = self.log, bytes(self._carry)
        if carry or self._skipping:
            self._carry, self._skipping = bytearray(), False
            self._read_lines(carry + b"\n")
        if (carry and not carry.endswith(b"\r")) or self._open_line == log.line_count:
            log.cut_line = log.line_count
        log.records = {key: of_key for key, of_key in self._slots.items() if of_key}
        if not (log.kind or log.record_count or log.problems):
            log.kind = OUTPUT if log.line_count else EMPTY
        return log

    def take(self) -> list[Record]:
        """Return the records kept so far, in file order, and forget them, so that any number can be read."""
        records = sorted((record for slot in self._slots.values() for record in slot), key=FILE_ORDER)
        for slot in self._slots.values():
            slot.clear()
        self._kept_bytes = 0
        return records

    def _read_lines(self, data: bytes) -> None:
        """Read complete lines: `data` ends with a line ending."""
        first = self.log.line_count + 1
        if b"\0" in data and data[(at := data.find(b"\0")) : at + 8 : 2] == bytes(4):
            is_text = data[at : at + 8].strip(b"\0")
            self.log.note("NUL", first + data.count(b"\n", 0, at), UTF_16 if is_text else ZEROS, data.count(b"\0"))
        if b"\r" in data:
            if 0 < (ends := data.count(b"}\r\n")) < data.count(b"}\n") + ends:
                self.log.note("writing", first + data.count(b"\n", 0, data.find(b"}\r\n")), lines=ends)
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._unnamed and (named := re.search(NAMED_BENCHMARK, data)):
            self._unnamed = False
            self._keep_keys(read_name(named[1].decode("utf-8", "replace")))
        if b":::" not in data and b"LLOG" not in data and len(data) <= MAX_LINE_BYTES:
            self.log.line_count += data.count(b"\n")
            last = data[-(16 << 10) :].splitlines()  # enough of a part without any record
            self.log.tail.extend(enumerate(last, self.log.line_count - len(last) + 1))
        else:
            if not self._begin and (match := re.search(BEGIN, data)):
                self._begin = match[1]
            texts = self._read_records(self._lines_of(data))
            self._limit_others()
            if self._with_text:
                self._look_at_texts(texts)
                self._keep_text(texts)
        if self._with_text:
            self._watch.look(data, first)

    def _read_records(self, lines: list[bytes]) -> list[tuple[int, bytes]]:  # noqa: PLR0915  (calls would cost much)
        """Keep the records of these lines; return the other lines with their numbers."""
        log, slots, kept_bytes = self.log, self._open_slots, self._kept_bytes
        earliest, latest, shallow_bytes = EARLIEST_MS, LATEST_MS, 2 * MAX_DEPTH
        order, others, light = log.record_count, log.others, kept_bytes < UNWEIGHED_BYTES
        newest, begin = self._newest, self._begin
        newest_ms = newest.time_ms if newest else 0
        texts: list[tuple[int, bytes]] = []
        for line, text in enumerate(lines, log.line_count + 1):
            prefix, token, text = text.rpartition(TOKEN)
            if not token:
                texts.append((line, text[:-1]))
                continue
            if prefix:
                if TOKEN in prefix:
                    log.problem("two records", line)
                elif len(log.heads) < MAX_OF_KEY:
                    log.heads[line] = prefix[:LONGEST_KEY]
            size = len(text) - 1  # without the line ending
            if size > shallow_bytes and (kind := find_excess(text[:-1])):
                log.problem(kind, line)
                continue
            try:
                record = decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                if (slow := self._decode_slowly(prefix, text[:-1], line)) is None:
                    continue
                record = slow
            time_ms = record.time_ms
            if not earliest < time_ms < latest:
                if self._parse_time(time_ms, line) is None:
                    continue
                log.problem("time", line, repr(time_ms))
            # The usual six fields and those of the metadata have one colon each: more of them means a repeated or
            # nested field, or a colon in a string.
            if record.event_type is UNSET or text.count(b":") != 6 + len(record.metadata):
                self._find_repeated_field(record, text, line)
            if time_ms > newest_ms:
                newest, newest_ms = record, time_ms
            elif newest and newest_ms - time_ms > MOST_BACK_MS:
                self._note_earlier(record, line, newest)
            slot = slots.get(record.key)
            if slot is None:
                other = others.get(record.key) or self._open_other(record.key)
                if size <= LONGEST_OTHER:
                    record.line, record.order = line, order
                    other.append(record)
                if record.key in ("throughput", "tracked_stats"):  # of a run's own speed
                    self._take_rate(record, line)
            else:
                if not text.startswith(begin):
                    log.note("writing", line)
                record, weight = (record, size) if light else self._sharing.compact(record, text)
                kept_bytes, record.line, record.order = kept_bytes + weight, line, order
                slot.append(record)
            order = line if line == order + 1 else order + 1  # in most logs one object is both
        self._newest = newest
        log.line_count, log.record_count = log.line_count + len(lines), order
        self._limit_memory(kept_bytes)
        return texts

    def _open_other(self, key: str) -> list[Record]:
        """Return where the records of a further key are kept, or a list for nobody."""
        others = self.log.others
        return others.setdefault(key, []) if len(others) < 500 and len(key) <= LONGEST_KEY else []

    def _limit_others(self) -> None:
        """Of the records of further keys, keep the first and the last."""
        most = OTHERS_KEPT // max(len(self.log.others), 1)
        for other in self.log.others.values():
            if len(other) > most:
                del other[most // 2 : -(most // 2)]

    def _keep_keys(self, benchmark: str | None) -> None:
        """From now on keep the records of a plug-in's keys, and those of them that were read so far."""
        for reference in list_references(benchmark) if benchmark not in REFERENCES else ():
            settings = (*reference.dataset.settings(), *reference.settings)
            for key in (reference.target.key, *(setting.key for setting in settings)):
                if key not in self._slots:
                    self._slots[key] = self.log.others.pop(key, [])
            self.log.metrics = tuple(dict.fromkeys((*self.log.metrics, reference.target.key)))

    def _note_earlier(self, record: Record, line_number: int, newest: Record) -> None:
        """Note a record after a later one of another kind; all ranks may write the header."""
        seen = self._slots.get(record.key) or self.log.others.get(record.key)
        if not {record.key, newest.key}.issubset(STRUCTURE) and (not seen or self._slots.get("run_start")):
            seconds = (newest.time_ms - record.time_ms) / 1000
            detail = f"{record.key} is {seconds:,.1f} s earlier than a record of {newest.key} before it"
            self.log.note("time order", line_number, detail)

    def _look_at_texts(self, texts: list[tuple[int, bytes]]) -> None:
        """Note the lines that only people take for records, and those that tell of a failure."""
        whole = b"\n".join(text for _, text in texts)
        if b"{" in whole and any(mark in whole for mark in MARKS):
            meant = (pair for pair in texts if b"{" in pair[1] and any(mark in pair[1] for mark in MARKS))
            for line, text in islice(meant, MOST_COMPARED):
                plain = unicodedata.normalize("NFKC", _head_of(text))  # as people see it
                if re.search(NEAR_RECORD, "".join(sign for sign in plain if unicodedata.category(sign) != "Cf")):
                    from compliance.logs.bad_lines import find_cause  # only damaged logs pay for it

                    self.log.note("near record", line, find_cause(text)[0] or "it only resembles `:::MLLOG {…}`")
        if not whole:
            return
        from compliance.logs.ending import FAILURES  # only a log with text pays for it

        if any(word in whole for word in FAILURES):
            for line, text in texts:
                if any(word in text for word in FAILURES):
                    self.log.note("failure", line, _head_of(text).strip())
        self.log.tail.extend((line, text[:LONGEST_OTHER]) for line, text in texts[-MOST_TAIL:])

    def _keep_text(self, texts: list[tuple[int, bytes]]) -> None:
        """Keep the first lines of text before and after each record: many in the header, few later."""
        text, of_gap, before = self.log.text, 0, 0
        for line, content in texts if len(text) < 10_000 else ():
            of_gap, before = of_gap + 1 if line == before + 1 else 1, line
            if content and (of_gap <= 3 or len(text) < 500):  # those of a header in any case
                text.append((line, content[:LONGEST_OTHER]))

    def _limit_memory(self, kept_bytes: int) -> None:
        """Stop keeping records when they take too much memory."""
        self._kept_bytes = kept_bytes
        if kept_bytes < UNWEIGHED_BYTES or not self._open_slots:
            return
        counts = list(map(len, self._slots.values()))
        if kept_bytes > MAX_KEPT_BYTES or max(counts) > MAX_OF_KEY:
            self.log.problem("too many records", self.log.line_count, str(sum(counts)))
            self._open_slots = {}

    def _take_rate(self, record: Record, line_number: int) -> None:
        """Keep the speed of an epoch."""
        value, number, rates = record.value, record.meta("epoch_num"), self.log.rates
        rate: Any = value.get("throughput") if isinstance(value, dict) else value
        if is_number(rate) and rate > 0 and is_number(number) and len(rates) < 100_000:
            kept = rates.setdefault(number, Rate(rate, record.meta("step"), line_number))
            if kept.per_second != rate:
                rates[number] = kept._replace(alone=False)

    def _lines_of(self, data: bytes) -> list[bytes]:
        """Return the lines with their endings, those that are too long to decode replaced by empty ones."""
        lines = io.BytesIO(data).readlines()  # much faster than to split
        if len(data) > MAX_LINE_BYTES:
            for at, text in enumerate(lines):
                if len(text) > MAX_LINE_BYTES + 1:
                    self.log.problem("long line", self.log.line_count + at + 1)
                    lines[at] = b"\n"
        return lines

    def _find_repeated_field(self, record: Record, text: bytes, line_number: int) -> None:
        """Report a repeated field."""
        members = len(record.value) if isinstance(record.value, dict) else 0
        if record.event_type is not UNSET and text.count(b":") == 6 + len(record.metadata) + members:
            return
        if name := repeated_field(text):
            self.log.problem("repeated field", line_number, name)

    def _report_line(self, line: bytes, line_number: int, problem: str, kind: str = "json") -> None:
        """Report a line that is no record; of a known cause only the first, and count the others."""
        from compliance.logs.bad_lines import find_cause  # only damaged logs pay for it

        cause, key = find_cause(line)
        if cause:
            self.log.note(cause, line_number, key)
        if not cause or self.log.oddities[cause].lines == 1:
            self.log.problem(kind, line_number, cause or problem)

    def _decode_slowly(self, prefix: bytes, text: bytes, line_number: int) -> Record | None:
        """Read a record that the typed decoder rejects, as the official parser would; None if it has a problem."""
        log = self.log
        try:
            fields = parse_json(text)
        except RecursionError:
            log.problem("deep", line_number)
            return None
        except ValueError as error:
            log.tail.append((line_number, text[-LONGEST_HEAD // 4 :]))  # a launcher may have written into it
            outside_strings = re.sub(STRING, b"", text)
            if text.startswith(b"{") and outside_strings.count(b"{") > outside_strings.count(b"}"):
                self._open_line = line_number
            self._report_line(prefix[-LONGEST_KEY:].rpartition(TOKEN)[2] + TOKEN + text, line_number, str(error))
            return None
        if not isinstance(fields, dict):
            text_of_type = f"the record is a JSON {type(fields).__name__}, not an object"
            self._report_line(TOKEN + text, line_number, text_of_type, "json" if fields is None else "no object")
            return None
        missing = [name for name in ("time_ms", "key", "value", "metadata") if name not in fields]
        if missing:
            log.problem("missing field", line_number, missing[0])
            return None
        time_ms = self._parse_time(fields["time_ms"], line_number)
        key, value, metadata = fields["key"], fields["value"], fields["metadata"]
        if time_ms is None:
            return None
        if not isinstance(key, str):
            log.problem("field type", line_number, f"key is {show_json(key)}")
            key = ""
        if not isinstance(metadata, dict):
            log.problem("field type", line_number, f"metadata is {show_json(metadata)}")
        return Record(time_ms, key, value, metadata, None, UNSET)

    def _parse_time(self, raw: Any, line_number: int) -> float | None:
        if not isinstance(raw, int | float | str):
            self.log.problem("time type", line_number, show_json(raw))
            return None
        try:
            time_ms = float(raw)
        except OverflowError:
            self.log.problem("time type", line_number, "too large")
            return None
        except ValueError:
            text = show_json(raw)
            self._report_line(f'"time_ms": {text}'.encode(), line_number, f"time_ms is {text}, not a number")
            return None
        if isinstance(raw, str | bool):
            self.log.problem("time text", line_number, show_json(raw))
        return time_ms


def _head_of(text: bytes) -> str:
    return text[:LONGEST_HEAD].decode("utf-8", "replace")


def read_log(
    path: str,
    tree: Tree = NAMED,
    benchmark: str | None = None,
    keys: Collection[str] = (),
    with_text: bool = True,
) -> Log:
    """Return the log of a file; `-` is standard input, gzip is recognised by its first bytes.

    tree: the folder that the file belongs to; by default the user named it. benchmark, with_text: see `LogReader`.
    keys: of further records to keep.
    A file that cannot be read (missing, no permission, a folder, a loop of links, damaged gzip) gives a log with the
    problem "unreadable" and whatever could be read before it.
    """
    return read_with(LogReader(path, (*KEYS, *keys), benchmark, with_text), tree)


def read_with(reader: LogReader, tree: Tree) -> Log:
    """Feed the reader with its file and return its log, as `read_log` does."""
    path = reader.log.path
    return _read_stream(reader, lambda: nullcontext(sys.stdin.buffer) if path == "-" else tree.open(path))


def parse_log(data: bytes, path: str = "<bytes>", benchmark: str | None = None, keys: Collection[str] = ()) -> Log:
    """Return the log of these bytes, as of a file with these contents; benchmark, keys: as `read_log` takes them."""
    return _read_stream(LogReader(path, (*KEYS, *keys), benchmark), lambda: io.BytesIO(data))


def _read_stream(reader: LogReader, opened: Callable[[], AbstractContextManager[BinaryIO]]) -> Log:
    try:
        with opened() as stream:
            _feed_all(reader, stream)
    except InflateError as error:
        reader.log.problem("compressed", 0, str(error))
    except (OSError, EOFError, zlib.error) as error:
        reader.log.problem("unreadable", 0, describe_reason(error) if isinstance(error, OSError) else str(error))
    return reader.close()


def _feed_all(reader: LogReader, stream: BinaryIO) -> None:
    packed, blocks = pieces(stream)
    total = 0
    for piece in blocks:
        if not total:
            if not piece.startswith(TOKEN) and not (piece.startswith(b"{") and TOKEN in piece):
                reader.log.kind = find_log_kind(piece)
            if TOKEN not in piece and (encoding := find_encoding(piece)):
                if reader.log.kind is None:
                    reader.log.problem("encoding", 1, encoding)
                return
        reader.feed(piece)
        total += len(piece)
        if packed:
            reader.log.inflated_bytes = total
        elif total > MAX_LOG_BYTES or (total > MAX_HEAD_BYTES and not reader.log.record_count):
            beyond = (MAX_LOG_BYTES, "") if reader.log.record_count else (MAX_HEAD_BYTES, " without a record")
            reader.log.problem("too large", 0, size_text(beyond[0]) + beyond[1])
            return
