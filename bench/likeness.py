"""Measure how much the intervals and results of different published runs, and those of copies, have in common.

    python bench/likeness.py                                    reads ../shared/corpus, shows the page
    python bench/likeness.py -o docs/reference/likeness.md
    python bench/likeness.py --corpus FOLDER                    with published_v*.tar.xz, or logs

The thresholds in compliance/logs/fingerprint.py lie between what the tables of the page show.
"""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path
from statistics import median

from msgspec.structs import replace
from published import write_page

from compliance.logs.fingerprint import (
    LEVELS,
    LEVELS_OF_PERIODS,
    SAME_VALUE,
    Fingerprint,
    Levels,
    alike,
    best_alignment,
    fingerprint,
    match_values,
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
JITTERS_MS = (5, 10, 20, 30, 60, 1000)
NOISES = (0, 1e-5, 3e-5, 5e-5, 1e-4, 2e-4, 1e-3)

HEAD = """# How alike different runs are

Rules about copies count evidence in bits: how improbable it is that the intervals (RUN05, RUN12) or the evaluation
results (RUN05, RUN12) of two different runs agree as well. Written by
`python bench/likeness.py -o docs/reference/likeness.md`; do not edit.
"""
DISTANCES = """## The closest of these pairs

Medians of relative differences at the same places: of results, and of the lengths of epochs, those of one run scaled.
{equal:,} pairs are left out whose results agree (one seed for all runs, or a run submitted twice). Results that agree
within {same:g} are those of copies; epochs that agree are those of a steady machine.

| of | one result | two results |
|---|---:|---:|"""
EDITED = """## Two copies of each of these runs with edited times and results

How many of {count:,} pairs are found: by the times where each moves by up to so many milliseconds, or by the results
where each moves by up to the share of itself in the first column.

| results | {jitters} |
|---:|{lines}|"""


def page(folder: Path) -> str:
    """Return the page about the runs below a folder."""
    results: dict[Path, list[Log]] = {}
    for path in sorted(folder.rglob(RESULT)):
        results.setdefault(path.parent, []).append(read_log(path))
    prints = {place: [fingerprint(log) for log in logs] for place, logs in results.items()}
    within = [pair for runs in prints.values() for pair in combinations(runs, 2)]
    between = list(_between(prints))
    logs = [log for logs in results.values() for log in logs]
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
        *_copies(logs),
        "",
        *_edited_copies(logs),
        "",
        *_distances(within, between),
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


Pair = tuple[Fingerprint, Fingerprint]
Pairs = Iterable[Pair]


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


def _edited_copies(logs: list[Log]) -> Iterator[str]:
    times = [[alike(*_jittered(log, by_ms)) is not None for by_ms in JITTERS_MS] for log in logs]
    jitters = " | ".join(f"{by_ms} ms" for by_ms in JITTERS_MS)
    yield EDITED.format(count=len(logs), jitters=jitters, lines="---:|" * (len(JITTERS_MS) - 1) + "---:")
    for noise in NOISES:
        values = [bool(match_values(*_noisy(fingerprint(log), noise))) for log in logs]
        counts = (
            sum(by_time[at] or value for by_time, value in zip(times, values, strict=True))
            for at in range(len(JITTERS_MS))
        )
        yield f"| {noise:g} | {' | '.join(f'{count:,}' for count in counts)} |"


def _jittered(log: Log, by_ms: int) -> list[Fingerprint]:
    chances = (random.Random(1), random.Random(2))
    return [_changed(log, lambda ms, chance=chance: ms + chance.randint(-by_ms, by_ms)) for chance in chances]


def _noisy(run: Fingerprint, noise: float) -> list[Fingerprint]:
    chance = random.Random(1)
    noisy = ([value * (1 + noise * chance.uniform(-1, 1)) for value in run.values] for _ in range(2))
    return [replace(run, values=array("d", values)) for values in noisy]


def _distances(within: list[Pair], between: list[Pair]) -> Iterator[str]:
    honest = [[pair for pair in pairs if not match_values(*pair)] for pairs in (within, between)]
    yield DISTANCES.format(equal=len(within) + len(between) - sum(map(len, honest)), same=SAME_VALUE)
    values = (min(_distance(a.values, b.values) for a, b in pairs) for pairs in honest)
    yield f"| results | {' | '.join(f'{least:.1e}' for least in values)} |"
    periods = (min(_distance(a.periods, b.periods, scaled=True) for a, b in pairs) for pairs in honest)
    yield f"| epochs | {' | '.join(f'{least:.1e}' for least in periods)} |"


def _distance(first: array[float], second: array[float], scaled: bool = False) -> float:
    """Return the median relative difference of numbers at the same places, infinity for fewer than FEWEST."""
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a and b]
    if len(pairs) < FEWEST:
        return float("inf")
    scale = median(a / b for a, b in pairs) if scaled else 1.0
    return median(abs(1 - scale * b / a) for a, b in pairs)


if __name__ == "__main__":
    sys.exit(write_page(__doc__, page))
