"""Rules about how long epochs take, compared with the other epochs of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from compliance.logs.course import Course, steps
from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER
from compliance.model.finding import WARNING, Finding
from compliance.rule import STRICT, Case, LogRule, show
from compliance.rules.epochs import course_of, more

SHORTEST_SHARE: Final = 0.1
"""Of the time of a slow epoch; in the 1,410 published logs since round 1.0 each takes at least 0.79 of the median."""
FEWEST: Final = 3
"""Epochs, of which one can be unlike the others."""


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
    good = (
        lambda log: log(),
        lambda log: log().drop("epoch_stop", -1),
        lambda log: (
            log(benchmark="deepcam", epochs=12).steps().shorten(12, 200).meta("eval_accuracy", "step_num", 1100, -1)
        ),
    )
    bad = (
        lambda log: log().move("eval_start", after="epoch_start").move("epoch_stop", after="epoch_start"),
        lambda log: log(epochs=4).move("epoch_stop", after="epoch_start"),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        course = course_of(log, case)
        slow, times = course.usual_ms, course.training_ms
        if len(times) < FEWEST or min(times.values()) >= SHORTEST_SHARE * slow or course.untrained:
            return  # the usual case, or ORD16 says so
        suspects = [number for number, time_ms in times.items() if time_ms < SHORTEST_SHARE * slow]
        parts = _parts(course, suspects)
        short = [number for number in suspects if times[number] < SHORTEST_SHARE * slow * parts[number]]
        if short:
            number = min(short, key=lambda one: course.started[one].order)
            start = course.started[number]
            ends = [*course.evaluations, *course.epoch_stops]
            end = min((r for one, r in ends if one == number and r.order > start.order), key=FILE_ORDER, default=start)
            took = f"{times[number] / 1000:.1f} s after its epoch_start"
            message = f"{end.key} of epoch {show(number)} {took}{more(short, 'epochs')}"
            expected = f"about {slow / 1000:.1f} s, the time of other epochs"
            yield self.found(log.path, end.line, message, expected, end.key)


def _parts(course: Course, numbers: Iterable[float]) -> dict[float, float]:
    """Return which part of each epoch was trained before its first evaluation or its end; without step_num, all."""
    starts, stops, results = steps(course.epochs), steps(course.epoch_stops), steps(reversed(course.results))
    whole = sorted(stops[one] - starts[one] for one in starts if one in stops)
    usual = whole[len(whole) // 2] if whole else 0
    parts = dict.fromkeys(numbers, 1.0)
    for number in parts:
        end = results.get(number, stops.get(number))
        if usual > 0 and end is not None and number in starts:
            parts[number] = max(0.0, min(1.0, (end - starts[number]) / usual))
    return parts
