"""What figures call a result, and the colour of its organisation: the same in every figure and round."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from submission.analysis.model import AnalysedSet
from submission.text_table import shortened

ORGANISATIONS: Final = (
    "nvidia lbnl fujitsu cscs helmholtzai tacc riken dell anl clemson ncsa fujitsuriken hpelbnl".split()
)
"""The organisations of rounds 0.7 to 3.0; each has the colour of its place here, `.org-<place>` in page.css."""
SPARE: Final = 4
"""Further colours, for all other organisations."""
LONGEST: Final = 24
"""Characters of a system's name that a figure shows."""
FRAMEWORK: Final = re.compile(r"[_-](tf|pt|fjpytorch|pytorch|tensorflow|mxnet|ngc)[\d.]*([_-].*)?$", re.IGNORECASE)
"""The part of many systems' names that says more of the software than of the system, and what comes after it."""
SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
YEARS: Final = {"0.7": "2020", "1.0": "2021", "2.0": "2022", "3.0": "2023"}
"""The year of each round."""


def colour(organisation: str) -> str:
    """Return the class of an organisation's colour; its spellings, as TACC and tacc, have the same."""
    key = "".join(filter(str.isalnum, organisation.lower()))
    if key in ORGANISATIONS:
        return f"org-{ORGANISATIONS.index(key)}"
    return f"org-{len(ORGANISATIONS) + zlib.crc32(key.encode()) % SPARE}"


def by_benchmark(sets: Sequence[AnalysedSet]) -> dict[str, list[AnalysedSet]]:
    """Return the results of each benchmark in a fixed order; those of mini problems are apart.

    A result with the same runs in several rounds is there once, with all of its rounds.
    """
    found: dict[str, dict[tuple[object, ...], AnalysedSet]] = {}
    for each in sorted(sets, key=lambda each: (each.row.mini, each.row.benchmark, each.row.round, each.name)):
        row = each.row
        runs = tuple(sorted(run.values.get("run_time", 0.0) for run in each.runs))
        same = (colour(row.organisation), row.system.lower(), row.scaling, row.division, each.units, runs)
        known = found.setdefault(each.marked_benchmark, {})
        if same in known:
            rounds = f"{known[same].row.round}, v{row.round}"
            each = replace(known[same], row=replace(known[same].row, round=rounds))
        known[same] = each
    return {name: list(known.values()) for name, known in found.items()}


def labels(sets: Sequence[AnalysedSet]) -> list[str]:
    """Return "organisation system" of each result, as short as they stay different; with the round if several."""
    several = len({each.row.round for each in sets}) > 1
    rounds = [f" v{each.row.round}" if several else "" for each in sets]
    short = [f"{each.row.organisation} {_cut(FRAMEWORK.sub('', each.row.system))}" for each in sets]
    whole = [f"{each.row.organisation} {_cut(each.row.system)}" for each in sets]
    kinds = [(each.row.division, each.row.scaling) for each in sets]
    looks = list(zip(short, rounds, kinds, strict=True))
    texts = (short[at] if looks.count(look) == 1 else whole[at] for at, look in enumerate(looks))
    return [text.strip() + round_ for text, round_ in zip(texts, rounds, strict=True)]


def _cut(name: str) -> str:
    return shortened(name, LONGEST, "…")


def amount(value: float) -> str:
    """Return a number with at most three significant digits."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{_digits(value / (1e3 if letter == 'k' else limit))}{letter}"
    return _digits(value)


def _digits(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:.0f}"
    digits, _, power = f"{value:.3g}".partition("e")
    if not power:
        return digits
    return f"{'' if digits == '1' else digits + '·'}10{str(int(power)).translate(SUPERSCRIPT)}"
