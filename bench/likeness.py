"""Measure how much the intervals of different published runs, and those of copies, have in common.

    python bench/likeness.py                                    reads ../shared/corpus, shows the page
    python bench/likeness.py -o docs/reference/likeness.md
    python bench/likeness.py --corpus FOLDER                    with published_v*.tar.xz, or logs

The thresholds in compliance/logs/fingerprint.py lie between what the two tables of the page show.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path

from published import write_page

from compliance.logs.fingerprint import (
    LEVELS,
    LEVELS_OF_PERIODS,
    Fingerprint,
    Levels,
    alike,
    best_alignment,
    fingerprint,
)
from compliance.logs.log import Log, read_log

RESULT = "result_*.txt"
FEWEST = 4
"""Intervals that a run must have to be compared."""
BETWEEN = 200
"""Pairs of runs that are drawn from two results."""
KINDS: tuple[tuple[str, Levels], ...] = (("lengths", LEVELS), ("periods", LEVELS_OF_PERIODS))
NAMES = {"lengths": "record to record", "periods": "epoch to epoch"}
Change = Callable[[float], float]
DISGUISES: dict[str, Change] = {
    "moved by a day": lambda time_ms: time_ms + 86_400_000,
    "3 % shorter": lambda time_ms: round(time_ms * 0.97),
    "0.01 % longer": lambda time_ms: round(time_ms * 1.0001),
    "each time moved by up to 5 ms": lambda time_ms: time_ms + random.Random(time_ms).randint(-5, 5),
}

HEAD = """# How alike different runs are

Rules about copies (RUN05, RUN14) count evidence in bits: how improbable it is that the intervals of two different
runs agree as well. Written by `python bench/likeness.py -o docs/reference/likeness.md`; do not edit.
"""


def page(folder: Path) -> str:
    """Return the page about the runs below a folder."""
    results: dict[Path, list[Log]] = {}
    for path in sorted(folder.rglob(RESULT)):
        results.setdefault(path.parent, []).append(read_log(path))
    prints = {place: [fingerprint(log) for log in logs] for place, logs in results.items()}
    within = [pair for runs in prints.values() for pair in combinations(runs, 2)]
    between = list(_between(prints))
    lines = [
        HEAD,
        f"## {len(within):,} pairs of runs of one result, {len(between):,} of two results of one benchmark",
        "",
        "| intervals | agree within | share that must | bits that it takes | most bits, one result | two results |",
        "|---|---:|---:|---:|---:|---:|",
        *_rows(within, between),
        "",
        "## Copies of each of these runs",
        "",
        "| copy | runs | found | fewest bits |",
        "|---|---:|---:|---:|",
        *_copies([log for logs in results.values() for log in logs]),
    ]
    return "\n".join(lines) + "\n"


def _between(prints: dict[Path, list[Fingerprint]]) -> Iterator[tuple[Fingerprint, Fingerprint]]:
    """Draw pairs of runs of two results of one benchmark; leave out runs that were submitted twice."""
    chance = random.Random(1)
    for one, other in combinations(prints, 2):
        if one.name == other.name:
            for _ in range(BETWEEN):
                first, second = chance.choice(prints[one]), chance.choice(prints[other])
                if first.times != second.times:
                    yield first, second


Pairs = Iterable[tuple[Fingerprint, Fingerprint]]


def _rows(within: Pairs, between: Pairs) -> Iterator[str]:
    for kind, levels in KINDS:
        for tolerance, share, needed in levels:
            found = (_most(pairs, kind, tolerance, share) for pairs in (within, between))
            bits = " | ".join(f"{most:.1f}" for most in found)
            yield f"| {NAMES[kind]} | {tolerance:g} ms | {share:.0%} | {needed:g} | {bits} |"


def _most(pairs: Pairs, kind: str, tolerance: float, share: float) -> float:
    levels = ((tolerance, share, 0.0),)
    found = (best_alignment(getattr(a, kind), getattr(b, kind), True, levels) for a, b in pairs)
    return max((like.bits for like in found if like), default=0.0)


def _copies(logs: list[Log]) -> Iterator[str]:
    runs = [log for log in logs if len(fingerprint(log).lengths) >= FEWEST]
    for name, change in DISGUISES.items():
        found = [alike(fingerprint(log), _changed(log, change)) for log in runs]
        bits = [like.bits for like in found if like]
        yield f"| {name} | {len(runs):,} | {len(bits):,} | {min(bits):.0f} |"


def _changed(log: Log, change: Change) -> Fingerprint:
    """Return the fingerprint of the log with changed times."""
    times = [record.time_ms for record in log.events]
    for record in log.events:
        record.time_ms = change(record.time_ms)
    changed = fingerprint(log)
    for record, time_ms in zip(log.events, times, strict=True):
        record.time_ms = time_ms
    return changed


if __name__ == "__main__":
    sys.exit(write_page(__doc__, page))
