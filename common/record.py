"""The line format of result logs and power files: a record is the JSON object after the token `:::MLLOG `.

Everything before the last token of a line is a launcher's prefix. The checker (compliance.logs) builds on these parts
to read anyone's logs and to say what is wrong with each line. The readers here are for the suite's own files: they skip
a line without a whole record, such as the last one of a killed process.

The names of the records in a power file are those of mlperf-logging, and our scope.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from common.files import read_end
from common.values import group_pairs

TOKEN: Final = b":::MLLOG "
METRICS: Final = "metrics.jsonl"
"""The file of a run with a line of JSON for each step and epoch, beside its log."""
LATIN_1_SPACE: Final = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0"


class Record(msgspec.Struct, gc=False):
    """One record: what the log says, its line in the file (from 1) and its place among the records (from 0).

    In damaged logs any field may have another type than stated here; `time_ms` is always a number.
    event_type: UNSET in records of unusual form, which are decoded differently.
    """

    time_ms: int | float
    key: str
    value: Any
    metadata: dict[str, Any]
    namespace: Any
    event_type: Any
    line: int = msgspec.field(default=0, name="(line)")
    order: int = msgspec.field(default=0, name="(order)")

    def meta(self, name: str) -> Any:
        """Return a field of the metadata, or None if it is missing or the metadata is not an object."""
        fields = self.metadata
        return fields.get(name) if isinstance(fields, dict) else None


decode = msgspec.json.Decoder(Record).decode


def parse_json(text: bytes, **options: Any) -> Any:
    """Parse as Python's json does (NaN allowed), with its options; read text that is not UTF-8 as Latin-1.

    The official parser reads all text as Latin-1 and strips Latin-1 white space at the end of the line.
    """
    text = text.rstrip(LATIN_1_SPACE)
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError:
        decoded = text.decode("latin-1")
    return json.loads(decoded, **options)


def parse_object(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a text that may be anything; {} if it is no object."""
    with suppress(ValueError, RecursionError):
        if isinstance(content := json.loads(text), dict):
            return content
    return {}


def format_record(fields: Mapping[str, Any]) -> bytes:
    """Return the line of a record, with its line ending."""
    return TOKEN + json.dumps(fields).encode() + b"\n"


def parse_line(line: bytes) -> Record | None:
    """Return the record of a line; None if it has none, or a damaged one."""
    _, token, text = line.rpartition(TOKEN)
    if not token:
        return None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return decode(text)
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):  # NaN, which json.dumps writes
        return msgspec.convert(parse_json(text), Record)
    return None


def find_records(lines: Iterable[bytes], *keys: str) -> Iterator[Record]:
    """Yield the records of these keys in the lines of a log, in file order."""
    return (record for line in lines if (record := parse_line(line)) is not None and record.key in keys)


def read_records(path: Path, *keys: str) -> Iterator[Record]:
    """Yield the records of these keys in a log, in file order; none if it does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError), path.open("rb") as file:
        yield from find_records(file, *keys)


def read_last_record(path: Path, key: str) -> Record | None:
    """Return the last record of a key in the end of a log; None without one, or if it is not a regular file."""
    return next(find_records(reversed(read_end(path).splitlines()), key), None)


def read_value(path: Path, key: str) -> Any:
    """Return the value of the first record of a key in a log; None without one."""
    record = next(read_records(path, key), None)
    return None if record is None else record.value


def read_run_times(path: Path) -> tuple[int, int] | None:
    """Return the times of the first run_start and the last run_stop in a log, in ms; None unless it has both."""
    times = group_pairs((record.key, int(record.time_ms)) for record in read_records(path, "run_start", "run_stop"))
    return (times["run_start"][0], times["run_stop"][-1]) if len(times) == 2 else None


POWER_START: Final = "power_measurement_start"
POWER_STOP: Final = "power_measurement_stop"
POWER_READING: Final = "power_reading"
CONVERSION_EFFICIENCY: Final = "conversion_eff"
NODE_SCOPE: Final = "node"
"""The scope of readings of a whole node."""
PARTS_SCOPE: Final = "estimate of parts"
"""The scope of readings of some parts of a node, such as its processors."""
PARTS_SOURCES: Final = ("rapl", "nvml")
"""Sources that always have this scope; command and file have the one that their user states."""
NODE_FILE_NAME: Final = r"node_\d+\.txt"
PARTS_FILE_NAME: Final = rf"({'|'.join(PARTS_SOURCES)}|command|file)_\d+\.txt"
"""Names of the power files that a training or a measurement writes, by their scope."""
