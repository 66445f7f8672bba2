"""What can be wrong with the records of a log: mutations of a `SampleLog`, by family and key."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from compliance.logs.log import STRUCTURE, SUBMISSION
from compliance.samples.log import SampleLog

PUBLISHED = ("cosmoflow", "deepcam", "oc20", "openfold")
"""The benchmarks of the rounds that were held: the official tool knows no other."""
NEIGHBOURS = ("init_start", "init_stop", "run_start", "run_stop", "epoch_start")
JUDGED_IN_OPEN = (*SUBMISSION, *STRUCTURE, "train_samples", "eval_samples")

WRONG_TYPES = ("text", "", "1", None, True, False, [], [1, 2], {}, {"a": 1}, math.nan, math.inf, -math.inf)
NUMBERS = (0, -1, 1, -0.0, 5e-324, -5e-324, 0.5, 1e300, 2**64)
UNIT = (math.nextafter(1, 0), 1.0, math.nextafter(1, 2), 10)
SEQUENCES = ([0.9], [0.9, 0.99], [0.9, 0.99, 0.999], [2, -1], ["a", "b"], [[1], [2]], "ab", {"a": 1, "b": 2})
INTERESTING: dict[str, tuple[Any, ...]] = {
    "submission_division": ("Closed", "CLOSED", "open", "closed", "closed ", ["closed"], "opne"),
    "submission_status": ("cloud", "onprem", "preview", "research", "Cloud", "available", ["cloud"]),
    "submission_benchmark": (*PUBLISHED, "CosmoFlow", "common", "../../etc/passwd", ["cosmoflow"], "resnet"),
    "submission_org": ("Université", "\ud800", "a" * 5000),
    "opt_name": ("sgd", "SGD", "Sgd", "Adam", "adam", "AdamW", "adamw", "LAMB", "lamb", ["LAMB"]),
    "opt_betas": SEQUENCES,
    "opt_eps": (1e-8, *(1e-6 * (1 + part) for part in (9e-10, -9e-10, 1.1e-9, -1.1e-9, 1e-6, -1e-6))),
    "scheduler_type": ("multistep", "MultiStep", "cosine_annealing", "Cosine_annealing", "poly", ["multistep"]),
    "scheduler_milestones": SEQUENCES,
    "train_samples": (121_266, 121_216, 524_288, 262_144, 2_000_000, 594_595, 594_595.0, "121266"),
    "eval_samples": (15_158, 65_536, 999_866, 180, 180.0, "180"),
    "dropout": UNIT,
    "opt_max_grad_norm": UNIT,
    "scheduler_decay_rate": UNIT,
    "scheduler_t_max": UNIT,
    "scheduler_lr_warmup_factor": UNIT,
}
TIMES = (0, -1, 1.5, math.nan, math.inf, -math.inf, 1e300, 10**25, 10**400, True, None, [1], {"a": 1})
TIME_TEXTS = ("1694000000000", " 1694000000000 ", "1.2.3", "1_000", "nan", "-inf", "", "soon")
METADATA = (None, "text", "epoch_num status epoch_count first_epoch_num", ["epoch_num", "status"], {}, 3)
NUMBERING = (None, "3", [], 0, -1, 1.5, True, math.nan)
INIT_LIMIT_MS = 30 * 60_000
AROUND_MS = (-1, -0.25, 0, 0.25, 1)


class Mutation(NamedTuple):
    """One thing to do to a log: what, to which key, and the function that does it, with its arguments."""

    label: str
    key: str
    change: Callable[..., Any]
    arguments: tuple[Any, ...]

    def apply(self, log: SampleLog) -> None:
        """Damage the log."""
        self.change(log, *self.arguments)


def does(label: str, key: str, change: Callable[..., Any], *arguments: Any) -> Mutation:
    """Return the mutation that calls `change(log, *arguments)`."""
    return Mutation(label, key, change, arguments)


def mutations(log: SampleLog, keys: tuple[str, ...], plain: bool) -> Iterator[Mutation]:
    """Yield what can be wrong with these keys of this log; in the plain log also qualities and times.

    The rules on events are those of no benchmark: one log has its events damaged in every way, the others in a few.
    """
    thorough, special = log.benchmark == "cosmoflow", (log.reference.target.key, "opt_name", "scheduler_type")
    for key in keys:
        if log.division == "open" and key not in JUDGED_IN_OPEN:
            yield does("missing", key, SampleLog.drop, key)
            continue
        if log.records_of(key):
            yield from presence(key)
            if key in special or (thorough and key in (*STRUCTURE, *SUBMISSION)):
                yield from places(log, key)
            if key in special or (thorough and key in STRUCTURE):
                yield from metadata(log, key)
        if key in STRUCTURE:
            yield does("value of another type", key, SampleLog.set, key, "text")
        else:
            yield from values(log, key)
    if plain:
        yield from quality(log)
        if thorough:
            yield from times(log)


def presence(key: str) -> Iterator[Mutation]:
    """Yield: the key is missing, or too often there."""
    yield does("missing", key, SampleLog.drop, key)
    yield does("missing once", key, SampleLog.drop, key, 0)
    yield does("doubled", key, SampleLog.double, key)
    yield does("doubled with another value", key, SampleLog.double, key, 0, "another")
    yield does("repeated at the end", key, _repeat, key, -1)
    yield does("repeated at the start", key, _repeat, key, 0)


def values(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the value has another type, lies on a boundary, or just beside it."""
    valid = [record["value"] for record in log.records_of(key)[:1]]
    near = [value for kept in valid for value in _near(kept)]
    for value in (*WRONG_TYPES, *NUMBERS, *near, *INTERESTING.get(key, ())):
        yield does(named(value), key, SampleLog.set, key, value)
    for value in ("text", 0, -1) if valid else ():
        yield does(f"first {value!r}, then right", key, _precede, key, value)


def _near(value: Any) -> list[Any]:
    """Return values that resemble this one."""
    if isinstance(value, bool):
        return [not value, int(value), float(value), str(value).lower()]
    if isinstance(value, (int, float)):
        beside = [math.nextafter(value, -math.inf), math.nextafter(value, math.inf)]
        return [*beside, value + 1, value - 1, -value, float(value), str(value), [value]]
    if isinstance(value, str):
        return [value.upper(), value.lower(), value + " ", value[:-1], [value]]
    return [value[:1], value + value, value[0]]


def places(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the key's first record stands right before or after each event that others are compared with."""
    for neighbour in NEIGHBOURS:
        if neighbour != key and log.records_of(neighbour):
            yield does(f"before {neighbour}", key, SampleLog.move, key, neighbour)
            yield does(f"after {neighbour}", key, SampleLog.move, key, "", neighbour)
    yield does("at the end", key, _carry, key, -1)
    yield does("at the start", key, _carry, key, 0)


def metadata(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the metadata is missing or no object, or lacks what the key needs, or says nonsense there."""
    for value in METADATA:
        yield does(f"metadata {named(value)}", key, SampleLog.field, key, "metadata", value, 0)
    yield does("without metadata", key, SampleLog.without_field, key, "metadata")
    for name in log.records_of(key)[0]["metadata"]:
        if name not in ("file", "lineno"):
            yield does(f"without {name}", key, SampleLog.meta, key, name, None)
            yield does(f"last without {name}", key, SampleLog.meta, key, name, None, -1)
            for value in NUMBERING:
                yield does(f"{name} {named(value)}", key, _number, key, name, value)


def quality(log: SampleLog) -> Iterator[Mutation]:
    """Yield: evaluations around the target, of other types, and in places where they should not count."""
    key, goal = log.reference.target.key, log.reference.target.value
    edge = [math.nextafter(goal, 0), math.nextafter(goal, 1), goal, goal + 1e-9, goal - 1e-9, -goal, *UNIT]
    for value in (*edge, *WRONG_TYPES, *NUMBERS):
        yield does(f"last {named(value)}", key, SampleLog.last_evaluation, value)
        yield does(f"first {named(value)}", key, SampleLog.evaluation, 1, value)
    for place in ("run_start", "run_stop", "init_start"):
        yield does(f"target met after {place} only", key, _meet_after, place, goal)
    other = "eval_error" if key == "eval_accuracy" else "eval_accuracy"
    yield does(f"called {other}", key, SampleLog.rename, key, other)
    yield does(f"joined by {other}", key, SampleLog.add, other, "text", "run_stop")


def times(log: SampleLog) -> Iterator[Mutation]:
    """Yield: times of other types and sizes; an initialisation just as long as allowed."""
    for key in ("init_start", "init_stop", "run_start", "run_stop", log.reference.target.key, "train_samples"):
        for value in (*TIMES, *TIME_TEXTS):
            yield does(f"at {named(value)[:40]}", key, SampleLog.field, key, "time_ms", value)
        yield does("without time", key, SampleLog.without_field, key, "time_ms")
    for extra in AROUND_MS:
        yield does(f"takes 30 min {extra:+} ms", "init_stop", _init_takes, INIT_LIMIT_MS + extra)
        for first in (math.nan, math.inf, -math.inf, 1.0):
            label = f"takes 30 min {extra:+} ms from the second start, after {first}"
            yield does(label, "init_stop", _init_takes, INIT_LIMIT_MS + extra, first)


# -- changes that SampleLog does not know -----------------------------------------------------------------------


def _repeat(log: SampleLog, key: str, at: int) -> None:
    record = log.records_of(key)[0]
    log.records.insert(len(log.records) if at else 0, record)


def _carry(log: SampleLog, key: str, at: int) -> None:
    record = log.records_of(key)[0]
    log.records.remove(record)
    log.records.insert(len(log.records) if at else 0, record)


def _precede(log: SampleLog, key: str, value: Any) -> None:
    log.double(key)
    log.set(key, value)


def _number(log: SampleLog, key: str, name: str, value: Any) -> None:
    log.records_of(key)[0]["metadata"][name] = value


def _meet_after(log: SampleLog, place: str, goal: float) -> None:
    log.last_evaluation(0.5).add_evaluation(goal, after=place)


def _init_takes(log: SampleLog, duration_ms: float, first_ms: float | None = None) -> None:
    start = log.records_of("init_start")[0]
    if first_ms is not None:
        log.double("init_start")
        start["time_ms"] = first_ms
        start = log.records_of("init_start")[1]
    start["time_ms"] = log.records_of("init_stop")[0]["time_ms"] - duration_ms


def named(value: Any) -> str:
    """Return a short text for a value."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
