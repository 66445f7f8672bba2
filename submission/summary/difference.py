"""What changed since the round before: the best score of each organisation and benchmark, and of all organisations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compliance.model.layout import WEAK
from submission.summary.rows import Row

EVERYBODY = "(all)"
"""Stands for the organisation in the lines about the best score of a round."""

Key = tuple[str, bool, str, str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """The best passing score in two rounds, normalised where it is: minutes (less is better) or models per minute.

    before, now: None if there was no such result, or none that passed. speedup: above 1 if now is better.
    """

    organisation: str
    benchmark: str
    scaling: str
    division: str
    mini: bool
    unit: str
    before: float | None
    now: float | None

    @property
    def speedup(self) -> float | None:
        """How many times better it is now, or None without a score in both rounds."""
        if not self.before or not self.now:
            return None
        return self.now / self.before if self.scaling == WEAK else self.before / self.now


def differences(previous: Sequence[Row], rows: Sequence[Row]) -> list[Difference]:
    """Return the changes from one round to another, by benchmark and organisation; letter case makes no difference.

    What passed in neither round is left out.
    """
    before, now = _best(previous), _best(rows)
    names = {row.organisation.lower(): row.organisation for row in (*previous, *rows)}
    found = []
    for key in sorted({*before, *now}):
        benchmark, mini, division, scaling, organisation = key
        unit = "models/min" if scaling == WEAK else "min"
        name = names.get(organisation, organisation)
        found.append(Difference(name, benchmark, scaling, division, mini, unit, before.get(key), now.get(key)))
    return [difference for difference in found if difference.before or difference.now]


def _best(rows: Iterable[Row]) -> dict[Key, float | None]:
    best: dict[Key, float | None] = {}
    for row in rows:
        for organisation in (row.organisation.lower(), EVERYBODY):
            key = (row.benchmark, row.mini, row.division, row.scaling, organisation)
            scores = [best.get(key), row.score if row.verdict != "FAIL" else None]
            known = [score for score in scores if score is not None]
            best[key] = (max if row.scaling == WEAK else min)(known, default=None)
    return best
