"""What a comparison found: rows with a difference and its tolerance, and why a part was not run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe_machine

BEYOND, NOT_RUN = 1, 3
"""Exit statuses."""


@dataclass(frozen=True)
class Row:
    """One point of comparison.

    difference: the largest one found, of the kind that `measure` names. tolerance: the most that passes; None: the row
    only tells, and has no verdict.
    """

    point: str
    measure: str
    difference: float
    tolerance: float | None

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance; NaN is not."""
        return self.tolerance is None or bool(self.difference <= self.tolerance)


@dataclass(frozen=True)
class Compared:
    """What became of a benchmark. missing: why it or its last part was not run, and what installs it; "" if it was."""

    benchmark: str
    rows: tuple[Row, ...] = ()
    missing: str = ""
    versions: dict[str, str] | None = None

    @property
    def failed(self) -> list[Row]:
        """The rows beyond their tolerance."""
        return [row for row in self.rows if not row.passed]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.facts, indent=1) + "\n", encoding="utf-8")

    @property
    def facts(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        rows = [asdict(row) | {"difference": float(row.difference), "passed": row.passed} for row in self.rows]
        return {"benchmark": self.benchmark, "missing": self.missing, "versions": self.versions or {}, "rows": rows}

    @classmethod
    def read(cls, path: Path) -> Compared:
        """Return what `write` wrote."""
        return cls.from_facts(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Compared:
        """Return what has these facts."""
        names = ("point", "measure", "difference", "tolerance")
        rows = tuple(Row(**{name: row[name] for name in names}) for row in facts["rows"])
        return cls(facts["benchmark"], rows, facts["missing"], facts["versions"])


class MissingError(Exception):
    """A benchmark, or a part of it, cannot be compared here; the message says what is missing and how to install it."""


def relative(ours: Any, official: Any) -> float:
    """Return the largest difference of two arrays or tensors over the largest value of the official one."""
    ours, official = (np.asarray(values, np.float64) for values in (ours, official))
    if ours.shape != official.shape:
        return float("inf")
    scale = np.abs(official).max(initial=0.0) or 1.0
    return float(np.abs(ours - official).max(initial=0.0) / scale)


def largest_relative(pairs: Iterable[tuple[Any, Any]]) -> float:
    """Return the largest `relative` difference of pairs (ours, official)."""
    return max(relative(*pair) for pair in pairs)


def spread_ratios(pairs: Iterable[tuple[Any, Any]]) -> float:
    """Return how far the ratio of standard deviations is from 1 in the worst of pairs of large arrays."""
    ratios = [float(np.std(np.asarray(ours)) / np.std(np.asarray(official))) for ours, official in pairs]
    return max(abs(ratio - 1) for ratio in ratios)


def told(results: dict[str, Compared | None]) -> int:
    """Tell what is beyond its tolerance, failed or was not run; return the exit status."""
    found = set()
    for name, result in results.items():
        if result is None:
            print(f"error: {name}: the comparison failed; see above", file=sys.stderr)
            found.add(BEYOND)
            continue
        if result.missing:
            print(f"not run: {name}: {result.missing}", file=sys.stderr)
            found.add(NOT_RUN)
        for row in result.failed:
            print(f"error: {name}: {row.point}: {row.difference:.2e}, at most {row.tolerance:.0e}", file=sys.stderr)
            found.add(BEYOND)
    return min(found, default=0)


def page(record: dict[str, Any]) -> str:
    """Return the Markdown page of a record."""
    return "\n".join(describe(record)) + "\n"


def describe(record: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Parity with the official code"
    yield ""
    yield (
        f"`bench/parity.py`, {describe_machine(record)}, beside commit {record['hpc']} of mlcommons/hpc. A difference "
        "beyond its tolerance is **bold** and fails with 1, a part that could not run with 3. The same again:"
    )
    yield ""
    yield "```"
    yield "git clone https://github.com/mlcommons/hpc ../hpc"
    yield "make parity-env                 # once: TensorFlow, torch-geometric 1.7.2 and pymatgen, in .parity (2 GB)"
    yield "make parity HPC=../hpc          # tables on the screen and in runs/parity.md"
    yield "```"
    yield ""
    yield (
        "The official models, schedules, losses, metrics and preprocessing are run, not re-written; each file of "
        "`bench/parity/` tells what had to be replaced. Differences are relative to the largest official value of a "
        "tensor, and the worst of all tensors counts, unless the row says otherwise. Where official code computes in "
        "float64, some of its constants stay float32: hence 1e-8 and not 1e-15. Not compared: LAMB, whose official "
        "form is NVIDIA's apex and needs a GPU; bf16, our default where the device computes it; several ranks."
    )
    for facts in record["benchmarks"]:
        yield from ["", *section(Compared.from_facts(facts))]


TITLES = {"cosmoflow": "CosmoFlow", "deepcam": "DeepCAM", "oc20": "OC20"}


def section(result: Compared) -> Iterator[str]:
    """Yield the lines about one benchmark."""
    yield f"## {TITLES[result.benchmark]}"
    yield ""
    if result.rows:
        yield from _list_rows(result)
    if result.missing:
        yield from [""] * bool(result.rows)
        yield f"Not run: {result.missing}"


def _list_rows(result: Compared) -> Iterator[str]:
    yield ", ".join(f"{name} {version}" for name, version in (result.versions or {}).items()) + "."
    yield ""
    yield "| point | difference | tolerance |"
    yield "|---|---:|---:|"
    for row in result.rows:
        limit = "" if row.tolerance is None else f"{row.tolerance:.0e}" if row.tolerance else "0"
        found = f"{row.difference:.0f}" if float(row.difference).is_integer() else f"{row.difference:.1e}"
        found = found if row.passed else f"**{found}**"
        measure = "" if row.measure == "relative" else f": {row.measure}"
        yield f"| {row.point}{measure} | {found} | {limit} |"
