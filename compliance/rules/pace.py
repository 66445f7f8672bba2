"""Rules about how long epochs take, compared with the others of the run, and how plausible the speed of a run is.

The speed is compared with the run's own records, its siblings and published systems. No finding on it is an error: a
faster system breaks no rule. They tell a reviewer where to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

from common.command import counted, list_some
from common.reference import FULL
from common.values import is_number
from compliance.logs.course import LEVEL_SPREAD, NO_TIME_SHARE, Course, steps
from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER, Record
from compliance.logs.run import is_resumed
from compliance.logs.timeline import samples_per_second
from compliance.model.judging import ERROR, NOTE, WARNING, Case, Finding, first_text
from compliance.model.result_set import ResultSet, names_of
from compliance.rules.bounds import read_table
from compliance.rules.epochs import course_of, more
from compliance.rules.rule import LogRule, SetRule, show

SHORTEST_SHARE: Final = 0.1
"""Of the usual time; in round 0.7 some evaluate within epochs, and the target may end the last epoch early."""
FOLLOWS_SHARE: Final = 0.4
"""Of the usual time from epoch to epoch; in the 1,545 published logs it takes at least 0.68 of it."""
FEW_SHARE: Final = 0.2
"""Of the epochs: if more take half of the usual time, the others may be those that are unusual."""
NOISE_MS: Final = 1000
"""Epochs differ by this without a reason: the start of workers, the first step after a resumption, a busy machine."""
FEWEST: Final = 3
"""Epochs, runs or results, of which one can be unlike the others."""


class EpochTakesTime(LogRule, strict_only=True):
    """No epoch takes less than half the time of the others, and no two overlap."""

    id = "ORD18"
    follows = ("ORD09",)
    cite = "hpc_training_rules.adoc#benchmarks; training_rules.adoc#run-time"
    severity = WARNING
    differs = "the official tool does not compare times"
    why = (
        "An epoch trains on all samples; one much shorter than the others did not, or its record is wrong. Slow "
        "epochs break no rule; if the machine changed its speed, a short one is only a note."
    )
    fix = "Log epoch_start when the epoch begins to train and eval_start when that training is done."
    good = (lambda log: log().drop("epoch_stop", -1),)
    bad = (lambda log: log().move("eval_start", after="epoch_start").move("epoch_stop", after="epoch_start"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        course = course_of(log, case)
        if len(course.training_ms) >= FEWEST and not course.untrained:  # otherwise ORD11 says so
            early = case.round == "0.7"
            # In the 1,410 published logs since round 1.0, each epoch takes at least 0.76 of the usual time.
            short = self._find_short(log, course, SHORTEST_SHARE if early else 0.5)
            yield from [*short] or [*self._find_crowded(log, course, early)] or self._find_slow(log, course)

    def _find_crowded(self, log: Log, course: Course, early: bool) -> Iterator[Finding]:
        """Yield the first epoch that comes too soon after the one before it; an error if both are at one time.

        Too soon for its own training, or for the usual distance where that training is unknown; early: for both, as
        some evaluate within epochs.
        """
        advance, lengths = course.advance_ms, course.training_ms
        usual = sorted(advance.values())[len(advance) // 4] if advance else 0  # a slow epoch shows in two of them
        longest = max(usual, course.usual_ms, *lengths.values())
        if min(advance.values(), default=longest) >= _least_time(longest, FOLLOWS_SHARE):
            return  # the usual case
        expected_ms = {epoch: max(usual if early else 0, lengths.get(epoch, usual)) for epoch in advance}
        crowded = [epoch for epoch in advance if advance[epoch] < _least_time(expected_ms[epoch], FOLLOWS_SHARE)]
        parallel = [epoch for epoch in advance if advance[epoch] < _least_time(course.usual_ms, SHORTEST_SHARE)]
        if crowded or parallel:
            number = (parallel or crowded)[0]
            start = course.started[number]
            distance = f"comes {advance[number] / 1000:.1f} s after the epoch before it"
            relation = "overlaps the epoch before it completely" if parallel else distance
            message = f"epoch {show(number)} {relation}{more(parallel or crowded, 'epochs')}"
            expected = f"about {max(usual, course.usual_ms) / 1000:.1f} s later, as other epochs"
            overlaps = any(advance[epoch] < _least_time(lengths.get(epoch, usual), FOLLOWS_SHARE) for epoch in crowded)
            # Beside slow epochs, usual ones come soon.
            is_odd = overlaps or are_steady(usual, [advance[epoch] for epoch in advance.keys() - crowded])
            severity = first_text(((parallel, ERROR), (is_odd, WARNING), (True, NOTE)))
            yield self.finding_at(log, start, message, expected, severity)

    def _find_short(self, log: Log, course: Course, share: float) -> Iterator[Finding]:
        """Yield the epochs that end or are evaluated before this share of the usual time: one finding."""
        usual, times = course.usual_ms, course.training_ms
        if min(times.values()) >= _least_time(usual, share):
            return  # the usual case
        suspects = sorted(number for number, time_ms in times.items() if time_ms < _least_time(usual, share))
        parts = _trained_parts(course, suspects)
        short = [number for number in suspects if times[number] < _least_time(usual * parts[number], share)]
        if not short:
            return
        shares = {epoch: times[epoch] / max(usual * parts[epoch], 1) for epoch in short}
        number = min(short, key=lambda epoch: shares[epoch])
        # Not as many as a busy machine leaves, and not the last, which the target may have ended.
        # An epoch that a busy machine slows down no more than others takes a third of the usual time at least.
        few = len(short) <= FEW_SHARE * len(times) or shares[number] < 1 / 3
        kinds = (
            (shares[number] < NO_TIME_SHARE and not is_resumed(log), ERROR),
            (len(short) > 1000 or shares[number] < SHORTEST_SHARE, WARNING),
            (few and short != [max(times)] and not _may_be_faster(course, shares), WARNING),
            (True, NOTE),
        )
        severity = first_text(kinds)
        start = course.started[number]
        ends = [*course.evaluations, *course.epoch_stops]
        later = [record for epoch, record in ends if epoch == number and record.order > start.order]
        yield self._compare_epochs(log, times, short, min(later, key=FILE_ORDER, default=start), severity)

    def _find_slow(self, log: Log, course: Course) -> Iterator[Finding]:
        """Yield a note if a few slow epochs take most of the time: the others may have been put in."""
        usual, times = course.usual_ms, course.training_ms
        # In no published log two such epochs take most of the time.
        slow = sorted(number for number, time_ms in times.items() if time_ms > max(3 * usual, NOISE_MS))
        if len(slow) > 1 and 2 * sum(times[number] for number in slow) > sum(times.values()):
            yield self._compare_epochs(log, times, slow, course.started[slow[0]], NOTE)

    def _compare_epochs(
        self, log: Log, times: dict[float, float], odd: list[float], record: Record, severity: str
    ) -> Finding:
        """Return a finding that names the odd epochs, with their times and that of the others."""
        others = sorted(times[epoch] for epoch in times.keys() - odd)
        lengths = [times[epoch] / 1000 for epoch in odd]
        seconds = dict.fromkeys((f"{min(lengths):.1f}", f"{max(lengths):.1f}"))
        usual_s = f"{others[len(others) // 2] / 1000:.1f} s"
        message = (
            f"{'epochs' if odd[1:] else 'epoch'} {list_some([show(epoch) for epoch in odd], 4)}"
            f" {'take' if odd[1:] else 'takes'} {' to '.join(seconds)} s; the median of the other"
            f" {counted(len(others), 'epoch')} is {usual_s}"
        )
        return self.finding_at(log, record, message, f"about {usual_s}", severity)


def _may_be_faster(course: Course, short: dict[float, float]) -> bool:
    """Tell whether the machine may have been faster in these epochs: it was so in evaluations, or is unsteady.

    short: which share of the usual time each was trained.
    """
    times, evaluated = course.training_ms, course.evaluation_ms
    others = times.keys() - short.keys()
    fast, slow = (sorted(evaluated[n] for n in numbers & evaluated.keys()) for numbers in (short.keys(), others))
    share = fast[len(fast) // 2] / max(slow[len(slow) // 2], 1) if fast and slow else 1.0
    # So much shorter evaluations were made on a faster machine.
    faster = share < 0.7 and min(short.values()) >= 0.6 * share
    return faster or not are_steady(course.usual_ms, [times[epoch] for epoch in others])


def are_steady(usual_ms: float, times_ms: list[float]) -> bool:
    """Tell whether three quarters of these times are near the usual one: the machine did not change its speed."""
    near = sum(usual_ms <= LEVEL_SPREAD * time_ms <= LEVEL_SPREAD**2 * usual_ms for time_ms in times_ms)
    return near >= 0.75 * len(times_ms)


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


SPEED = "bench/published_rates.py"
FASTER_THAN_PUBLISHED: Final = 10
FASTER_THAN_SIBLINGS: Final = 1.5
"""No published run is more than 1.17 times as fast as the median of its result; from twice on, it is a warning."""


class PublishedRate(NamedTuple):
    """Of one benchmark: samples per second of the fastest run, and of the fastest run per accelerator.

    result, result_per_accelerator: whose runs these are.
    """

    total: float
    per_accelerator: float
    result: str
    result_per_accelerator: str


@cache
def read_published() -> dict[str, PublishedRate]:
    """Return the fastest training among published results, by benchmark; SPEED writes the file."""
    return {benchmark: PublishedRate(*entry) for benchmark, entry in read_table("published_rates.json").items()}


class FasterThanPublished(LogRule, strict_only=True):
    """The run trains at most ten times as fast as the fastest published one, in total and per accelerator."""

    id = "SET14"
    severity = NOTE
    once = True
    cite = SPEED
    differs = "the official tool does not compare speeds"
    why = "Such a speed more often comes from wrong times, node counts or sample counts than from a faster system."
    fix = "Check the times, number_of_nodes, accelerators_per_node and train_samples of the log."
    bad = (lambda log: log().times(lambda ms: 1_690_000_000_000 + (ms - 1_690_000_000_000) / 1000),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if case.reference is None or case.reference.variant != FULL:
            return
        rate, best = samples_per_second(log, case.reference), read_published().get(case.reference.name)
        if rate is None or best is None:
            return
        nodes, accelerators = log.value("number_of_nodes"), log.value("accelerators_per_node")
        scale = nodes * accelerators if is_number(nodes) and is_number(accelerators) else 0
        each = rate / scale if scale and nodes > 0 else 0
        for scope, ours, theirs, result in (
            ("", rate, best.total, best.result),
            (" per accelerator", each, best.per_accelerator, best.result_per_accelerator),
        ):
            if ours > FASTER_THAN_PUBLISHED * theirs:
                message = (  # the same in all logs of a result
                    f"the run trains more than {FASTER_THAN_PUBLISHED} times as many samples/s{scope} as the fastest"
                    f" published result ({theirs:,.4g}, {result})"
                )
                expected = f"at most {FASTER_THAN_PUBLISHED * theirs:,.4g} samples/s{scope}, not {ours:,.4g}"
                yield self.finding(log.path, log["run_start"][0].line if log["run_start"] else 0, message, expected)
                return


class FasterThanSiblings(SetRule, strict_only=True):
    """No run of a result trains much faster than the others."""

    id = "RUN18"
    severity = NOTE
    cite = SPEED
    differs = "the official tool does not compare the runs"
    why = "The runs of a result are made on one system; no published run is 1.2 times as fast as the median."
    fix = "Check the times of the run; nothing to fix if the system was busy with something else during the other runs."
    bad = (
        lambda package: package().edit(
            2, lambda log: log.times(lambda ms: 1_690_000_000_000 + (ms - 1_690_000_000_000) / 2)
        ),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        runs = [run for run in results.runs if not run.mini and not run.damage]
        rates = [(run, run.samples_per_s) for run in runs if run.samples_per_s is not None]
        if len(rates) < FEWEST:
            return
        ascending = sorted(rate for _, rate in rates)
        usual, most = ascending[(len(rates) - 1) // 2], ascending[-1]
        fast = [run for run, rate in rates if rate > FASTER_THAN_SIBLINGS * usual]
        if fast:
            message = (
                f"{names_of(fast)}: {most:,.4g} samples/s, {most / usual:.3g} times the median of the"
                f" {len(rates)} runs ({usual:,.4g})"
            )
            # None of the others was made on a busy machine, on which few runs are alone.
            steady = usual <= LEVEL_SPREAD * ascending[0] and len(fast) <= max(1, FEW_SHARE * len(rates))
            severity = WARNING if steady and most > 2 * usual else NOTE
            yield self.finding(
                fast[0].path, 0, message, f"at most {FASTER_THAN_SIBLINGS} times the median", severity=severity
            )
