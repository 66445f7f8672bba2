"""The rule about the learning rates that a run records: they are those of its header."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from math import cos, pi
from operator import mul
from typing import Any, Final, NamedTuple

from common.values import is_number
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.logs.run import PROVENANCE
from compliance.model.judging import WARNING, Case, Finding
from compliance.rules.census import records_of, sample
from compliance.rules.epochs import course_of
from compliance.rules.rule import LogRule, show

NEAR: Final = 0.02
"""Recorded rates are within this part of those of the header in all published logs that state both."""


class Schedule(NamedTuple):
    """The learning rate that a header implies, by step or by epoch.

    start: the rate at the begin of the linear warm-up. multipliers: of the base rate from each boundary on. period: of
    a cosine, in place of them; 0 without one.
    """

    base: float
    start: float
    warmup: float
    boundaries: list[float]
    multipliers: list[float]
    period: float = 0
    least: float = 0

    def find_contradiction(self, rate: float, begin: float, end: float) -> tuple[float, float] | None:
        """Return the least and the largest rate between two places; None if this one lies between them."""
        rates = [self._find_rate(corner) for corner in (self.warmup, *self.boundaries) if begin <= corner <= end]
        rates += (self._find_rate(begin), self._find_rate(end))
        least, most = min(rates), max(rates)
        return None if least * (1 - NEAR) <= rate <= most * (1 + NEAR) else (least, most)

    def _find_rate(self, place: float) -> float:
        if self.warmup > max(place, 0):
            return self.start + (self.base - self.start) * place / self.warmup
        if self.period:
            part = min(max((place - self.warmup) / self.period, 0), 1)
            return self.least + (self.base - self.least) * (1 + cos(pi * part)) / 2
        return self.base * (1, *self.multipliers)[bisect_right(self.boundaries, place)]


class LearningRate(LogRule, strict_only=True):
    """The learning rates that a run records are those of its header."""

    id = "SET21"
    severity = WARNING
    follows = ("AMT01", "AMT08")
    once = True
    cite = "hpc_training_rules.adoc#hyperparameters-and-optimizer"
    divisions = ("closed",)
    differs = "the official tool reads the header only"
    why = "Convergence is judged by the hyperparameters of the header, which must be those of the run."
    fix = "Log the hyperparameters that the run used, or repeat it with those of the header."
    good = (lambda log: log(benchmark="deepcam").steps().learning_rate(0.002),)
    bad = (lambda log: log(benchmark="deepcam").steps().learning_rate(0.001),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if PROVENANCE in log.records:
            return  # SET11
        if record := _find_steps(log, case):
            message = f"{record.key} is {show(record.value)}, more than the epochs of the run: these seem to be steps"
            fix = f"Log {record.key} in epochs: steps * global_batch_size / train_samples."
            yield self.finding_at(log, record, message, "epochs", fix=fix)
            return
        rates = [(record, rate) for record, rate in _list_rates(log, case) if is_number(rate)]
        numbers = course_of(log, case).numbers if rates else []
        schedules = _read_schedules(log, case.benchmark) if numbers and case.benchmark else []
        samples, batch_size = log.value("train_samples"), log.value("global_batch_size")
        if not schedules or not (is_number(samples) and is_number(batch_size) and 0 < batch_size < samples):
            return
        steps = 1 if case.benchmark == "cosmoflow" else samples / batch_size
        places = [(record, rate, _find_place(record, min(numbers), steps)) for record, rate in rates]
        wrong: list[tuple[Record, float, tuple[float, float]]] = []
        for schedule in schedules:
            wrong = [
                (record, rate, span)
                for record, rate, place in places
                if (span := schedule.find_contradiction(rate, *place))
            ]
            if not wrong:
                return
        record, rate, (least, most) = wrong[0]
        expected = " to ".join(dict.fromkeys((f"{least:.4g}", f"{most:.4g}")))
        message = f"the learning rate of epoch {show(record.meta('epoch_num'))} is {rate:.4g}, by the header {expected}"
        others = f" ({len(wrong)} of {len(rates)} records)" if len(wrong) > 1 else ""
        yield self.finding_at(log, record, message + others, expected)


def _find_steps(log: Log, case: Case) -> Record | None:
    """Return the record of a number of epochs that can only be one of steps."""
    # The longest published schedule has 96 epochs.
    longest = max(200, len(course_of(log, case).numbers))
    for key in KEYS.get(case.benchmark or "", ()):
        record = log.first(key) if key.endswith("_epochs") else None
        value: Any = record.value if record else None
        amounts: list[Any] = value if isinstance(value, list) else [value]
        if amounts and all(is_number(amount) and amount > longest for amount in amounts):
            return record
    return None


def _list_rates(log: Log, case: Case) -> list[tuple[Record, Any]]:
    """Return the records of a run's learning rates, and the rates."""
    if case.benchmark == "deepcam":
        return [(r, r.value) for r in sample(records_of(log, "learning_rate"), 8) if is_number(r.meta("epoch_num"))]
    starts = course_of(log, case).epochs if case.benchmark == "cosmoflow" else []
    if not starts or starts[0][1].meta("lr") is None:
        return []
    rates = ((record, record.meta("lr")) for _, record in starts)
    return [(record, max(rate, default=None) if isinstance(rate, list) else rate) for record, rate in rates]


def _find_place(record: Record, first: float, steps: float) -> tuple[float, float]:
    """Return between which steps, or epochs, a rate was recorded. first: number of the first epoch; steps: of an epoch.

    An epoch may leave out its last samples, and one step. step_num is taken where it is in the epoch of the record:
    some count within it, some count parts of steps.
    """
    before, step = record.meta("epoch_num") - first, record.meta("step_num")
    beside = 2 if steps > 1 else 0  # steps by which implementations count differently
    begin, end = max(before * (steps // 1 - beside / 2), 0), (before + 1) * steps
    if is_number(step) and begin - beside <= step <= end + beside:
        begin = end = step
    return max(begin - beside, 0), end + beside


KEYS: Final = {
    "deepcam": (
        "opt_lr",
        "scheduler_lr_warmup_steps",
        "scheduler_milestones",
        "scheduler_decay_rate",
        "scheduler_t_max",
        "scheduler_eta_min",
    ),
    "cosmoflow": (
        "opt_base_learning_rate",
        "opt_learning_rate_warmup_epochs",
        "opt_learning_rate_decay_boundary_epochs",
        "opt_learning_rate_decay_factor",
        "",
        "",
    ),
}
"""Base rate, length of the warm-up, where the rate falls, by what, period of a cosine, and its least rate."""


def _read_schedules(log: Log, benchmark: str) -> list[Schedule]:
    """Return what the header may mean: boundaries count from the end of the warm-up, or from the start."""
    base, warmup, places, factor, period, least = (log.value(key) for key in KEYS[benchmark])
    boundaries = places if isinstance(places, list) else []
    multipliers = factor if isinstance(factor, list) else [factor] * len(boundaries)
    numbers = (base, warmup, period or 0, least or 0, *boundaries, *multipliers)
    if len(multipliers) < len(boundaries) or not all(is_number(number) and number >= 0 for number in numbers):
        return []
    if not isinstance(factor, list):
        multipliers = list(accumulate(multipliers, mul))
    how = log.value("opt_learning_rate_warmup_factor") if benchmark == "cosmoflow" else 0
    low = 0 if not is_number(how) or how <= 0 else base * min(how, 1 / how)
    return [
        Schedule(base, low, warmup, sorted(begin + place for place in boundaries), multipliers, period or 0, least or 0)
        for begin in (warmup, 0)[: 1 + (warmup > 0)]
    ]
