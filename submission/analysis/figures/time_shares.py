"""The shares of staging, training and evaluation in the time of a run, as stacked bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from submission.analysis.figures.boxes import LINE, fitted, text_width
from submission.analysis.figures.names import amount, by_benchmark, labels
from submission.analysis.figures.panel import WIDE, Figure, mark, mark_items
from submission.analysis.model import AnalysedSet
from submission.analysis.quantities import NO_STAGING, STAGING
from submission.web.html import Html

PARTS: Final = {"staging": "staging_time", "train": "train_time", "eval": "eval_time"}
"""The class of each part, and its quantity."""
NAMES: Final = {"staging": "staging", "train": "training", "eval": "evaluation", "rest": "rest"}
BAR: Final = 19
NAME_WIDTH, TIME_WIDTH = 350, 214
"""Width of the names before the bars and of the times after them, in a wide figure."""
NOT_COUNTED, NOT_LOGGED = "staging not counted", "no staging logged"
SIGNS: Final = {"": "", NOT_COUNTED: " *", NOT_LOGGED: " †"}
"""What a narrow figure has beside a time in place of these words."""


def time_shares(sets: Sequence[AnalysedSet], name: str, width: int = WIDE) -> Html:
    """Draw a bar for each result, from the longest run of a benchmark to the shortest."""
    found = by_benchmark([each for each in sets if shares(each)])
    if not found:
        return Html("")
    figure = Figure(name, "Shares of the time of a run", _text(found), width)
    top = 6.0
    for title, several in found.items():
        figure.text((8, top + 16), title, "heading")
        top += 34
        rows = sorted(zip(several, labels(several), strict=True), key=lambda row: -(row[0].mean("run_time") or 0))
        for each, label in rows:
            top = _bar(figure, each, label, top)
        top += 10
    items = [(f"part {part}", text) for part, text in NAMES.items()]
    shown = [each for several in found.values() for each in several]
    said = set() if figure.is_wide else {_missing(each) for each in shown}
    hints = [("", f"{sign.strip()} {words}") for words, sign in SIGNS.items() if words and words in said]
    return figure.finish([*items, *hints, *mark_items(shown)], top + 10)


def shares(each: AnalysedSet) -> dict[str, float]:
    """Return the share of each part in the time of a run, and the rest; empty if the logs give no part."""
    known = {
        part: share
        for part, quantity in PARTS.items()
        if (share := each.ratios.get(f"{quantity}/run_time")) is not None and share >= 0
    }
    if not known:
        return {}
    return known | {"rest": max(1 - sum(known.values()), 0.0)}


def _missing(each: AnalysedSet) -> str:
    """Return why a bar has no staging, "" if it has."""
    if "staging" in shares(each):
        return ""
    return NOT_LOGGED if each.excluded.get(STAGING) == NO_STAGING else NOT_COUNTED


def _bar(figure: Figure, each: AnalysedSet, label: str, top: float) -> float:
    """Draw the bar of a result; return its lower end."""
    found = shares(each)
    missing = _missing(each)
    minutes = each.mean("run_time")
    time = f"{amount(minutes)} min" if minutes else ""
    if figure.is_wide:
        left, length = NAME_WIDTH, figure.width - NAME_WIDTH - TIME_WIDTH
        figure.text((left - 22, top + 14), fitted(label, NAME_WIDTH - 30), "name", "end")
        mark(figure, (left - 11, top + 9), each)
        figure.text((left + length + 66, top + 14), time, "name", "end")
        if missing:
            figure.text((left + length + 74, top + 14), missing)
    else:
        left, length = 8, figure.width - 16
        mark(figure, (15, top + 8), each)
        figure.text((26, top + 13), fitted(label, length - 100), "name")
        figure.text((left + length, top + 13), f"{time}{SIGNS[missing]}", "label", "end")
        top += LINE + 2
    total = sum(found.values())
    x = float(left)
    for part, share in found.items():
        wide = length * share / total
        figure.box((x, top), wide, BAR, f"part {part}", f"{label}: {NAMES[part]} {share:.1%} of the run")
        text = f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"
        if wide > text_width(text) + 4:
            figure.text((x + wide / 2, top + 14), text, f"share {part}", "middle")
        x += wide
    return top + BAR + (7 if figure.is_wide else 11)


def _text(found: dict[str, list[AnalysedSet]]) -> str:
    parts = []
    for title, sets in found.items():
        low, high = (pick(shares(each).get("eval", 0.0) for each in sets) for pick in (min, max))
        staged = [shares(each)["staging"] for each in sets if "staging" in shares(each)]
        most = f"staging up to {max(staged):.0%}" if staged else " or ".join(dict.fromkeys(map(_missing, sets)))
        parts.append(f"{title}: evaluation takes {low:.0%} to {high:.0%} of a run, {most}.")
    return " ".join(parts)
