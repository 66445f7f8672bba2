"""Rules about how long epochs take, compared with the other epochs of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import sub
from typing import Final

from compliance.logs.course import Block, Course, steps
from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER
from compliance.model.case import STRICT, Case
from compliance.model.finding import ERROR, WARNING, Finding
from compliance.rules.epochs import course_of, more
from compliance.rules.rule import LogRule, show

SHORTEST_SHARE: Final = 0.1
"""Of the time of a slow epoch; in round 0.7 some evaluate within epochs."""
EVALUATED_SHARE: Final = 0.4
"""Of it, since round 1.0; in the 1,410 published logs each epoch takes at least 0.61 of the time of a slow one."""
FOLLOWS_SHARE: Final = 0.4
"""Of the usual time from epoch to epoch; in the 1,545 published logs it takes at least 0.7 of that of a slow one."""
NO_TIME_SHARE: Final = 0.02
"""Of the time of a slow epoch: nothing was trained; an error, but for an epoch that goes on after a resumption."""
NOISE_MS: Final = 1000
"""Epochs differ by this without a reason: the start of workers, the first step after a resumption, a busy machine."""
FEWEST: Final = 3
"""Epochs, of which one can be unlike the others."""


class EpochTakesTime(LogRule):
    """No epoch ends, and none is evaluated, long before the time that the other epochs take; no two are at one time."""

    id = "ORD18"
    cite = "hpc_training_rules.adoc#benchmarks; training_rules.adoc#run-time"
    severity = WARNING
    profiles = (STRICT,)
    differs = "the official tool does not compare times"
    why = "An epoch trains on all samples; one much shorter than the others did not, or its record is wrong."
    fix = "Log epoch_start when the epoch begins to train and eval_start when that training is done."
    good = (
        lambda log: log(),
        lambda log: log().drop("epoch_stop", -1),
        lambda log: (
            log(benchmark="deepcam", epochs=12).steps().shorten(12, 4_000).meta("eval_accuracy", "step_num", 1102, -1)
        ),
        lambda log: log(epochs=9).times(lambda time_ms: time_ms // 200).shorten(3, 100),
    )
    bad = (
        lambda log: log().move("eval_start", after="epoch_start").move("epoch_stop", after="epoch_start"),
        lambda log: log(epochs=4).move("epoch_stop", after="epoch_start"),
        lambda log: log().split_epoch(5, 2, at_once=True),
        lambda log: log().split_epoch(9, 4),
        lambda log: log().blocks().meta("block_start", "epoch_count", 8, 5),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        course = course_of(log, case)
        if len(course.blocks) >= FEWEST:
            yield from self._full_blocks(log, course.blocks)
        if len(course.training_ms) >= FEWEST and not course.untrained:  # otherwise ORD16 says so
            shortest = SHORTEST_SHARE if case.round == "0.7" else EVALUATED_SHARE
            yield from [*self._find_short(log, course, shortest)] or self._find_crowded(log, course)

    def _full_blocks(self, log: Log, blocks: list[Block]) -> Iterator[Finding]:
        """Yield the first block that is too short for its epochs; run_stop may cut the last one short."""
        stops = dict(log.numbered("block_stop", "first_epoch_num"))
        whole = [block for block in blocks if block.first in stops]
        lengths = [(stops[first].time_ms - start.time_ms) / (last - first + 1) for first, last, start in whole]
        usual = sorted(lengths)[len(lengths) // 2] if lengths else 0
        for block, length in zip(whole, lengths, strict=True):
            if length < _least_time(usual, SHORTEST_SHARE if block is blocks[-1] else FOLLOWS_SHARE):
                block_name = f"the block of epochs {show(block.first)} to {show(block.last)}"
                expected = f"about {usual / 1000:.1f} s, as in other blocks"
                message = f"{block_name} takes {length / 1000:.1f} s per epoch"
                yield self.finding(log.path, block.start.line, message, expected, "block_start")
                return

    def _find_crowded(self, log: Log, course: Course) -> Iterator[Finding]:
        """Yield the first epoch that comes too soon after the one before it; an error if both are at one time."""
        if self._start_evenly(course):
            return  # the usual case
        advance, lengths = course.advance_ms, course.training_ms
        usual = sorted(advance.values())[len(advance) // 2] if advance else 0
        soon = [
            epoch for epoch in advance if advance[epoch] < _least_time(max(usual, lengths.get(epoch, 0)), FOLLOWS_SHARE)
        ]
        same = [epoch for epoch in advance if advance[epoch] < _least_time(course.usual_ms, SHORTEST_SHARE)]
        if soon or same:
            number = (same or soon)[0]
            start = course.started[number]
            if same:
                message = f"epoch {show(number)} is trained at the same time as the one before it{more(same, 'epochs')}"
            else:
                message = f"epoch {show(number)} comes {advance[number] / 1000:.1f} s after the one before it"
                message += more(soon, "epochs")
            expected = f"about {max(usual, course.usual_ms) / 1000:.1f} s later, as other epochs"
            yield self.finding(log.path, start.line, message, expected, start.key, ERROR if same else WARNING)

    @staticmethod
    def _start_evenly(course: Course) -> bool:
        """Tell, from the starts alone, whether each epoch surely comes long enough after the one before it."""
        begins = [course.started[number].time_ms for number in sorted(course.started)]
        gaps, lengths = sorted(map(sub, begins[1:], begins)), course.training_ms.values()
        if not gaps:
            return False
        slowest = max(lengths)
        longest = max(slowest, gaps[len(gaps) // 2] + slowest - min(lengths))
        return bool(gaps[0] >= max(FOLLOWS_SHARE * longest, SHORTEST_SHARE * course.usual_ms))

    def _find_short(self, log: Log, course: Course, share: float) -> Iterator[Finding]:
        """Yield the shortest epoch, if it ends or is evaluated before this share of the time of a slow one."""
        slow, times = course.usual_ms, course.training_ms
        if min(times.values()) >= _least_time(slow, share):
            return  # the usual case
        suspects = [number for number, time_ms in times.items() if time_ms < _least_time(slow, share)]
        parts = _trained_parts(course, suspects)
        short = [number for number in suspects if times[number] < _least_time(slow * parts[number], share)]
        if short:
            number = min(short, key=lambda epoch: times[epoch] / parts[epoch])
            start = course.started[number]
            ends = [*course.evaluations, *course.epoch_stops]
            end = min(
                (r for epoch, r in ends if epoch == number and r.order > start.order), key=FILE_ORDER, default=start
            )
            took = f"{times[number] / 1000:.1f} s after its epoch_start"
            message = f"{end.key} of epoch {show(number)} {took}{more(short, 'epochs')}"
            expected = f"about {slow / 1000:.1f} s, the time of other epochs"
            nothing = times[number] < NO_TIME_SHARE * slow * parts[number] and not log["run_resumed"]
            yield self.finding(log.path, end.line, message, expected, end.key, ERROR if nothing else WARNING)


def _least_time(usual_ms: float, share: float) -> float:
    """Return the shortest time that is not too short: this share of the usual time, or NOISE_MS less than it."""
    return min(share * usual_ms, usual_ms - NOISE_MS)


def _trained_parts(course: Course, numbers: Iterable[float]) -> dict[float, float]:
    """Return which part of each epoch was trained before its first evaluation or its end; without step_num, all."""
    starts, stops, results = steps(course.epochs), steps(course.epoch_stops), steps(reversed(course.results))
    whole = sorted(stops[epoch] - starts[epoch] for epoch in starts if epoch in stops)
    usual = whole[len(whole) // 2] if whole else 0
    parts = dict.fromkeys(numbers, 1.0)
    for number in parts:
        end = results.get(number, stops.get(number))
        if usual > 0 and end is not None and number in starts:
            parts[number] = max(0.0, min(1.0, (end - starts[number]) / usual))
    return parts
