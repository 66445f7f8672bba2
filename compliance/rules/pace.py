"""Rules about how long epochs take, compared with the other epochs of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from common.values import is_number
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.model.finding import WARNING, Finding
from compliance.rule import STRICT, Case, LogRule

SHORTEST_SHARE: Final = 0.1
"""Of the time of a slow epoch; in the 1,410 published logs since round 1.0 each takes at least 0.79 of the median."""
SLOW_SHARE: Final = 0.9
"""An epoch is compared with one that is slower than this share of all: epochs put in do not make themselves usual."""
FEWEST: Final = 3

Span = tuple[float, Record, float]


class EpochTakesTime(LogRule):
    """No epoch ends, and none is evaluated, long before the time that the other epochs take."""

    id = "ORD18"
    cite = "hpc_training_rules.adoc#benchmarks; training_rules.adoc#run-time"
    severity = WARNING
    profiles = (STRICT,)
    differs = "the official tool does not compare times"
    why = (
        "An epoch trains on all samples; one that takes a tenth of the time of others did not, or its record is wrong."
    )
    fix = "Log epoch_start when the epoch begins to train and eval_start when that training is done."
    good = (lambda log: log(), lambda log: log().drop("epoch_stop", -1))
    bad = (
        lambda log: log().move("eval_start", after="epoch_start").move("epoch_stop", after="epoch_start"),
        lambda log: log(epochs=4).move("epoch_stop", after="epoch_start"),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        # In round 0.7 some evaluated within an epoch, after numbers of steps.
        spans = _spans(log, ("epoch_stop",) if case.round == "0.7" else ("epoch_stop", "eval_start"))
        if len(spans) < FEWEST:
            return
        slow = sorted(took for took, _, _ in spans)[int(SLOW_SHARE * (len(spans) - 1))]
        short = [span for span in spans if span[0] < SHORTEST_SHARE * slow]
        if short:
            took, end, number = short[0]
            more = f" ({len(short)} such epochs)" if len(short) > 1 else ""
            message = f"{end.key} of epoch {number} {took / 1000:.1f} s after its epoch_start{more}"
            expected = f"about {slow / 1000:.1f} s, the time of other epochs"
            yield self.found(log.path, end.line, message, expected, end.key)


def _spans(log: Log, end_keys: tuple[str, ...]) -> list[Span]:
    """Return how long each epoch trains until the first of these keys, the record that says so, its number."""
    starts: dict[float, Record] = {}
    for number, record in log.numbered("epoch_start"):
        starts.setdefault(number, record)
    ends: dict[float, Record] = {}
    for key in end_keys:
        for number, record in log.numbered(key):
            start = starts.get(number)
            if start is not None and record.order > start.order:
                known = ends.get(number)
                if known is None or record.order < known.order:
                    ends[number] = record
    return [
        (end.time_ms - starts[number].time_ms, end, number)
        for number, end in ends.items()
        if is_number(end.time_ms) and is_number(starts[number].time_ms)
    ]
