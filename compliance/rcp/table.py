"""The file format of reference convergence points: read and checked, rendered, written atomically.

A table is a YAML file of one benchmark. Each point says how long several reference runs trained until
they met the quality target, in `unit` (epochs, or samples for openfold):

    benchmark: cosmoflow
    unit: epochs
    points:
      - name: cosmoflow_ref_64
        rounds: ["1.0", "2.0", "3.0"]     # optional: without it the point applies to every round
        variant: mini                     # optional: "full" unless said
        batch_size: 64
        epochs: [17, 18, 18]
        hyperparameters: {opt_name: SGD}
        runs:                             # optional: which logs the numbers were read from
          - {file: a/result_0.txt, sha256: 0f..., epochs: 17}     # null: the run did not converge
            # and, where the log says it, `sources: 3c...`: the hash of the sources that made the run

Source of the numbers: rcps_*.json of mlperf-logging (rcp_checker/hpc_*).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from common.files import write_whole_file
from common.reference import FULL, ROUNDS, VARIANTS
from common.tree import NAMED
from common.values import is_number, plain
from compliance.benchmarks import REFERENCES, find_reference

UNITS: Final = ("epochs", "samples")
MOST_LEVELS: Final = 20


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One reference run: the log, its sha256, when it converged (None: it did not), and the hash of its sources."""

    file: str
    sha256: str
    epochs: float | None
    sources: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedPoint:
    """One point as in the file; `epochs` ascending, in the unit of the table; without rounds it belongs to all."""

    name: str
    batch_size: int
    epochs: tuple[float, ...]
    hyperparameters: Mapping[str, Any] = field(hash=False)
    rounds: tuple[str, ...] = ()
    variant: str = FULL
    runs: tuple[RecordedRun, ...] = ()


@dataclass(frozen=True, slots=True)
class RcpTable:
    """All points of one benchmark, and the comment at the top of the file."""

    benchmark: str
    unit: str
    entries: tuple[RecordedPoint, ...]
    header: str = ""


Expectation = tuple[str, Callable[[Any], bool]]


def _is_amount(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_list(value: Any, test: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(test, value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def is_digest(value: Any) -> bool:
    """Tell whether the value is a SHA-256 in hexadecimal digits."""
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


_TABLE_KEYS: Final[dict[str, Expectation]] = {
    "benchmark": (
        f"one of {', '.join(REFERENCES)}, or a plug-in that can be used",
        lambda v: isinstance(v, str) and find_reference(v) is not None,
    ),
    "unit": (f"{' or '.join(UNITS)}", lambda v: v in UNITS),
    "points": ("a list of points", lambda v: _is_list(v, lambda point: isinstance(point, dict))),
}
_POINT_KEYS: Final[dict[str, Expectation]] = {
    "name": ("a name", _is_name),
    "batch_size": ("a whole number >= 1", lambda v: type(v) is int and v >= 1),
    "epochs": ("a list of numbers > 0, one per converged run", lambda v: _is_list(v, _is_amount)),
    "hyperparameters": ("a mapping (may be empty: {})", lambda v: isinstance(v, dict)),
    "rounds": (f'a list of rounds in quotes, such as ["{ROUNDS[-1]}"]', lambda v: _is_list(v, ROUNDS.__contains__)),
    "variant": (" or ".join(VARIANTS), lambda v: v in VARIANTS),
    "runs": ("a list of {file, sha256, epochs}", lambda v: _is_list(v, lambda run: isinstance(run, dict))),
}
_RUN_KEYS: Final[dict[str, Expectation]] = {
    "file": ("a file name", _is_name),
    "sha256": ("64 hexadecimal digits in lower case", is_digest),
    "epochs": ("a number > 0, or null for a run that did not converge", lambda v: v is None or _is_amount(v)),
    "sources": ("64 hexadecimal digits in lower case", is_digest),
}


def _check_keys(where: str, document: Any, keys: Mapping[str, Expectation], optional: tuple[str, ...] = ()) -> None:
    """Raise ValueError unless `document` has all required keys, no unknown ones, and valid values."""
    if not isinstance(document, dict):
        raise ValueError(f"{where}: expected a mapping with the keys {', '.join(keys)}; found {document!r:.60}")
    for key in document:
        if key not in keys:
            raise ValueError(f"{where}, key {key!r}: not known; known are {', '.join(keys)}. Correct or remove it")
    for key, (expected, test) in keys.items():
        if key not in document:
            if key not in optional:
                raise ValueError(f"{where}, key {key!r}: missing; add it, {expected} is expected")
        elif not test(document[key]):
            found = f"found {document[key]!r:.60}"
            raise ValueError(f"{where}, key {key!r}: expected {expected}, {found}. Correct the value")


def _read_entry(path: Path, index: int, document: dict[str, Any]) -> RecordedPoint:
    where = f"{path}: point {index + 1} ({document.get('name', 'without name')})"
    _check_keys(where, document, _POINT_KEYS, optional=("rounds", "variant", "runs"))
    runs = document.get("runs", [])
    for number, run in enumerate(runs):
        _check_keys(f"{where}, run {number + 1}", run, _RUN_KEYS, optional=("sources",))
    epochs = sorted(document["epochs"])
    if runs and epochs != sorted(run["epochs"] for run in runs if run["epochs"] is not None):
        raise ValueError(f"{where}, key 'epochs': differs from the epochs under 'runs'; make both agree")
    logged = document["hyperparameters"].get("global_batch_size", document["batch_size"])
    if logged != document["batch_size"]:
        raise ValueError(
            f"{where}, key 'batch_size': {document['batch_size']}, but hyperparameters.global_batch_size says "
            f"{logged}; correct the wrong one"
        )
    return RecordedPoint(
        name=document["name"],
        batch_size=document["batch_size"],
        epochs=tuple(epochs),
        hyperparameters=document["hyperparameters"],
        rounds=tuple(document.get("rounds", ())),
        variant=document.get("variant", FULL),
        runs=tuple(RecordedRun(**run) for run in runs),
    )


def _check_distinct(path: Path, entries: tuple[RecordedPoint, ...]) -> None:
    """Raise ValueError if two points claim the same batch size of one round and variant."""
    owner: dict[tuple[str, str, int], int] = {}
    for index, entry in enumerate(entries):
        for round_ in entry.rounds or ROUNDS:
            first = owner.setdefault((entry.variant, round_, entry.batch_size), index)
            if first != index:
                where = f"{path}: point {index + 1} ({entry.name}), key 'batch_size'"
                owned = f"{entry.batch_size} is taken in round {round_} ({entry.variant})"
                by = f"point {first + 1} ({entries[first].name})"
                raise ValueError(f"{where}: {owned} by {by}; merge the two or give them different rounds")


def read_table(path: Path) -> RcpTable:
    """Return the checked content of a table file.

    Raises ValueError if the file cannot be read, is not YAML, or breaks the format.
    """
    import yaml  # here, because most uses of the checker never open a table

    try:
        with NAMED.open(path) as file:
            text = file.read().decode()
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        depth = 0
        for event in yaml.parse(text, Loader=loader):  # to load deep nesting takes stack, to show aliases memory
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_LEVELS or isinstance(event, yaml.AliasEvent):
                raise yaml.YAMLError("it is nested too deeply, or has aliases")
        document = yaml.load(text, Loader=loader)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise ValueError(f"{path}: {reason}; expected a table of convergence points") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a YAML table of convergence points ({reason:.200}). Correct it") from error
    _check_keys(str(path), document, _TABLE_KEYS)
    entries = tuple(_read_entry(path, index, point) for index, point in enumerate(document["points"]))
    _check_distinct(path, entries)
    header = "".join(takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))
    return RcpTable(document["benchmark"], document["unit"], entries, header)


def _flow_yaml(value: list[Any] | dict[str, Any]) -> str:
    """Return a value as YAML on one line; JSON would write 1e-06, which YAML 1.1 reads as a string."""
    import yaml

    return str(yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)).strip()


def _quote_word(text: str) -> str:
    """Return a string as a YAML scalar, with quotes only if needed."""
    return _flow_yaml([text])[1:-1]


def render(table: RcpTable) -> str:
    """Return the text of a table file; reading and rendering it again gives the same text.

    Comments are kept only at the top of the file.
    """
    lines = [
        f"benchmark: {_quote_word(table.benchmark)}",
        f"unit: {table.unit}",
        "points:" if table.entries else "points: []",
    ]
    for entry in table.entries:
        lines.append(f"  - name: {_quote_word(entry.name)}")
        if entry.rounds:
            lines.append(f"    rounds: {json.dumps(list(entry.rounds))}")
        if entry.variant != FULL:
            lines.append(f"    variant: {_quote_word(entry.variant)}")
        lines.append(f"    batch_size: {entry.batch_size}")
        lines.append(f"    epochs: {_flow_yaml(list(map(plain, entry.epochs)))}")
        lines.append(f"    hyperparameters: {_flow_yaml(dict(entry.hyperparameters))}")
        if entry.runs:
            lines.append("    runs:")
        for run in entry.runs:
            fields = {"file": run.file, "sha256": run.sha256, "epochs": plain(run.epochs)}
            lines.append(f"      - {_flow_yaml(fields | ({'sources': run.sources} if run.sources else {}))}")
    return table.header + "\n".join(lines) + "\n"


def write_table(path: Path, table: RcpTable) -> None:
    """Write the table to `path` in one step: readers see the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole_file(path, render(table), sync=True)
