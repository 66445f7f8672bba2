"""Forgeries that contradict nothing: what a log, or a copy with its original, cannot show. The docs list them."""

from __future__ import annotations

import random

from tests.conformance.forgeries.clock import first_epochs_forgotten, without_first
from tests.conformance.forgeries.copies import (
    jittered_by_percent,
    other_values,
    rounded_to_seconds_with_other_values,
    scaled_in_two_parts_with_other_values,
    shifted_with_other_values,
)
from tests.conformance.forgeries.logtext import LogText
from tests.conformance.forgeries.results import stop_with


def all_intervals_halved(log: LogText, rng: random.Random) -> None:
    """Divide all times from the start on by two."""
    first = log.timed[0].time
    for line in log.timed:
        line.time = first + (line.time - first) // 2


def one_epoch_shorter(log: LogText, rng: random.Random) -> None:
    """Take a part of the time of an epoch away."""
    number = log.numbers[log.inner(rng)]
    start, stop = log.first("epoch_start", number), log.last("epoch_stop", number)
    log.delay(start, -round((stop.time - start.time) * rng.uniform(0.05, 0.3)))


def better_result_and_stop(log: LogText, rng: random.Random) -> None:
    """Replace the result of an earlier evaluation by one that meets the target, and stop."""
    numbers = [line.number for line in log.results]
    number = numbers[log.inner(rng, 3, 1) if len(numbers) == len(log.numbers) else len(numbers) // 2]
    result = log.last(log.target.key, number)
    result.record["value"] = log.hit(rng)
    stop_with(log, log.end_of(number))


UNSEEN = (all_intervals_halved, one_epoch_shorter, better_result_and_stop, first_epochs_forgotten)


def remade(log: LogText, other: LogText, rng: random.Random) -> None:
    """Change every interval by up to a percent and every result a little: another run could look like this."""
    jittered_by_percent(log, other, rng)
    other_values(log, other, rng)


def of_which_one_epoch_is_left(log: LogText, other: LogText, rng: random.Random) -> None:
    """Leave out all epochs but the last one, and change all results a little: one interval proves nothing."""
    without_first(log, len(log.numbers) - 1)
    shifted_with_other_values(log, other, rng)


UNSEEN_COPIES = (
    remade,
    rounded_to_seconds_with_other_values,
    scaled_in_two_parts_with_other_values,
    of_which_one_epoch_is_left,
)
