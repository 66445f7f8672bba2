"""Damaged logs for the comparison with the official checker: honest sample logs, each with something wrong.

Pure, and the same cases in every run. A `Base` is an honest log (round, division, benchmark, variant); a
`Mutation` changes its records; `edits.py` changes its bytes; `mutants()` yields all cases.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from compliance.log import STRUCTURE, SUBMISSION
from compliance.references import REFERENCES, benchmarks_of
from compliance.rules.order import INIT_LIMIT_MINUTES
from compliance.samples import SampleLog
from tests.conformance.edits import FILE_EDITS, LINE_EDITS

ROUNDS = ("1.0", "2.0", "3.0")
NEIGHBOURS = ("init_start", "init_stop", "run_start", "run_stop", "epoch_start")
FOCUS = {
    "blocks": ("block_start", "block_stop", "eval_start", "eval_stop"),
    "staged": ("staging_start", "staging_stop"),
    "optional": ("gradient_accumulation_steps", "gradient_accumulation_frequency", "sgd_opt_momentum"),
    "adam": ("opt_name", "opt_bias_correction", "opt_grad_averaging", "opt_max_grad_norm"),
    "cosine": (
        *("scheduler_type", "scheduler_t_max", "scheduler_eta_min"),
        *("scheduler_milestones", "scheduler_decay_rate"),
    ),
}
"""Which keys are damaged in the variants; in the plain log all of them."""
PAIRS = 60
SHUFFLES = 8

WRONG_TYPES = ("text", "", "1", " ", None, True, False, [], [1, 2], {}, {"a": 1}, math.nan, math.inf, -math.inf)
NUMBERS = (0, -1, 1, 1.0, -0.0, 5e-324, -5e-324, 0.5, 1e300, 2**64, 10**30)
UNIT = (math.nextafter(1, 0), math.nextafter(1, 2), 10)
SEQUENCES = ([0.9], [0.9, 0.99], [0.9, 0.99, 0.999], [2, -1], ["a", "b"], [[1], [2]], "ab", {"a": 1, "b": 2})
INTERESTING: dict[str, tuple[Any, ...]] = {
    "submission_division": ("Closed", "CLOSED", "open", "closed", "closed ", ["closed"], "opne"),
    "submission_status": ("cloud", "onprem", "preview", "research", "Cloud", "available", ["cloud"]),
    "submission_benchmark": (*REFERENCES, "CosmoFlow", "common", "../../etc/passwd", ["cosmoflow"], "resnet"),
    "submission_org": ("SUBMISSION_ORG_PLACEHOLDER", "Université", "\ud800", "a" * 5000),
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


class Base(NamedTuple):
    """An honest log to damage."""

    round: str
    division: str
    benchmark: str
    variant: str = "plain"

    def log(self) -> SampleLog:
        """Return the honest log, short enough for thousands of checks."""
        log = SampleLog(self.benchmark, self.round, self.division, epochs=2)
        if self.variant == "blocks":
            log.blocks()
        elif self.variant == "staged":
            log.stage(after="run_start")
        elif self.variant == "optional":
            for key in FOCUS["optional"]:
                log.set(key, 1)
        elif self.variant == "adam":
            for key in ("opt_bias_correction", "opt_grad_averaging", "opt_max_grad_norm"):
                log.drop(key)
            log.set("opt_name", "Adam")
        elif self.variant == "cosine":
            log.drop("scheduler_milestones").drop("scheduler_decay_rate")
            log.set("scheduler_type", "cosine_annealing").set("scheduler_t_max", 9000).set("scheduler_eta_min", 0.0)
        return log

    def __str__(self) -> str:
        return " ".join(self[: 3 if self.variant == "plain" else 4])


class Mutation(NamedTuple):
    """One thing to do to a log: what, to which key, and how."""

    label: str
    key: str
    apply: Callable[[SampleLog], Any]


class Mutant(NamedTuple):
    """A damaged log: a readable name, the key that was damaged ("" for the file as a whole), its bytes."""

    id: str
    base: Base
    key: str
    data: bytes


def bases() -> Iterator[Base]:
    """Yield every kind of honest log."""
    for round_ in ROUNDS:
        for benchmark in benchmarks_of(round_):
            yield Base(round_, "closed", benchmark)
            yield Base(round_, "open", benchmark)
        for variant in ("blocks", "staged", "optional"):
            yield Base(round_, "closed", "cosmoflow", variant)
        for variant in ("adam", "cosine", "optional"):
            yield Base(round_, "closed", "deepcam", variant)


def mutants() -> Iterator[Mutant]:
    """Yield every case; no two have the same name."""
    for base in bases():
        yield Mutant(f"{base}: honest", base, "", base.log().bytes())
        known = list(_distinct(mutations(base)))
        for label, key, apply in known:
            log = base.log()
            apply(log)
            yield Mutant(f"{base}: {key} {label}", base, key, log.bytes())
        yield from _pairs(base, known)
        yield from _shuffled(base)
        if base.benchmark == "cosmoflow" and base.variant == "plain":
            yield from _edited(base)


def mutations(base: Base) -> Iterator[Mutation]:
    """Yield what can be wrong with the records of this log."""
    log = base.log()
    keys = FOCUS.get(base.variant) or tuple(dict.fromkeys(record["key"] for record in log.records))
    judged = {*SUBMISSION, *STRUCTURE, "train_samples", "eval_samples"}
    for key in keys:
        if log.records_of(key):
            yield from presence(key)
            yield from metadata(log, key)
        if key in STRUCTURE:
            yield Mutation("value of another type", key, lambda log, key=key: log.set(key, "text"))
        elif base.division == "closed" or key in judged:
            yield from values(log, key)
        if key in STRUCTURE or key in SUBMISSION or key == "opt_name":
            yield from places(log, key)
    if base.variant == "plain":
        yield from quality(log)
        yield from times(log)


# -- families of mutations ------------------------------------------------------------------------------------


def presence(key: str) -> Iterator[Mutation]:
    """Yield: the key is missing, or too often there."""
    yield Mutation("missing", key, lambda log: log.drop(key))
    yield Mutation("missing once", key, lambda log: log.drop(key, 0))
    yield Mutation("doubled", key, lambda log: log.double(key))
    yield Mutation("doubled with another value", key, lambda log: log.double(key, value="another"))
    yield Mutation("repeated at the end", key, lambda log: log.records.append(log.records_of(key)[0]))
    yield Mutation("repeated at the start", key, lambda log: log.records.insert(0, log.records_of(key)[-1]))


def values(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the value has another type, lies on a boundary, or just beside it."""
    honest = [record["value"] for record in log.records_of(key)[:1]]
    near = [value for kept in honest for value in _near(kept)]
    for value in (*WRONG_TYPES, *NUMBERS, *near, *INTERESTING.get(key, ())):
        yield Mutation(_named(value), key, lambda log, value=value: log.set(key, value))
    for value in ("text", 0, -1) if honest else ():
        yield Mutation(f"first {value!r}, then right", key, lambda log, value=value: _before(log, key, value))


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


def _before(log: SampleLog, key: str, value: Any) -> None:
    log.double(key)
    log.set(key, value)


def places(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the key's first record stands right before or after each event that others are compared with."""
    for neighbour in NEIGHBOURS:
        if neighbour != key and log.records_of(neighbour):
            yield Mutation(f"before {neighbour}", key, lambda log, at=neighbour: log.move(key, before=at))
            yield Mutation(f"after {neighbour}", key, lambda log, at=neighbour: log.move(key, after=at))
    yield Mutation("at the end", key, lambda log: log.records.append(log.records.pop(log.records.index(_first(log, key)))))
    yield Mutation("at the start", key, lambda log: log.records.insert(0, log.records.pop(log.records.index(_first(log, key)))))


def _first(log: SampleLog, key: str) -> dict[str, Any]:
    return log.records_of(key)[0]


def metadata(log: SampleLog, key: str) -> Iterator[Mutation]:
    """Yield: the metadata is missing or no object, or lacks what the key needs, or says nonsense there."""
    names = [name for name in _first(log, key)["metadata"] if name not in ("file", "lineno")]
    for value in METADATA:
        yield Mutation(f"metadata {_named(value)}", key, lambda log, value=value: log.member(key, "metadata", value))
    for name in names:
        yield Mutation(f"without {name}", key, lambda log, name=name: log.meta(key, name, None))
        yield Mutation(f"last without {name}", key, lambda log, name=name: log.meta(key, name, None, which=-1))
        for value in NUMBERING:
            change = lambda log, name=name, value=value: _first(log, key)["metadata"].update({name: value})  # noqa: E731  (bound in a loop)
            yield Mutation(f"{name} {_named(value)}", key, change)


def quality(log: SampleLog) -> Iterator[Mutation]:
    """Yield: evaluations around the target, of other types, and in places where they should not count."""
    key, goal = log.reference.target.key, log.reference.target.value
    edge = [math.nextafter(goal, 0), math.nextafter(goal, 1), goal, goal + 1e-9, goal - 1e-9, -goal, *UNIT]
    for value in (*edge, *WRONG_TYPES, *NUMBERS):
        yield Mutation(f"last {_named(value)}", key, lambda log, value=value: log.last_evaluation(value))
        yield Mutation(f"first {_named(value)}", key, lambda log, value=value: log.evaluation(1, value))
    for place in ("run_start", "run_stop", "init_start"):
        missed = lambda log, place=place: log.last_evaluation(0.5).add_evaluation(goal, after=place)  # noqa: E731  (bound in a loop)
        yield Mutation(f"target met after {place} only", key, missed)
    other = "eval_error" if key == "eval_accuracy" else "eval_accuracy"
    yield Mutation(f"called {other}", key, lambda log: log.rename(key, other))
    yield Mutation(f"joined by {other}", key, lambda log: log.add(other, "text", before="run_stop"))


def times(log: SampleLog) -> Iterator[Mutation]:
    """Yield: times of other types and sizes; an initialisation just as long as allowed."""
    for key in ("init_start", "init_stop", "run_start", "run_stop", log.reference.target.key, "seed"):
        for value in (*TIMES, *TIME_TEXTS):
            yield Mutation(f"at {_named(value)[:40]}", key, lambda log, value=value: log.member(key, "time_ms", value))
        yield Mutation("without time", key, lambda log: log.without_member(key, "time_ms"))
    limit = INIT_LIMIT_MINUTES[log.round] * 60_000
    for extra in (-1, -0.25, 0, 0.25, 1):
        yield Mutation(f"lasts 30 min {extra:+} ms", "init_stop", lambda log, extra=extra: _init_takes(log, limit + extra))
        second = lambda log, extra=extra: _init_takes(log.double("init_start"), limit + extra, 1)  # noqa: E731  (bound in a loop)
        yield Mutation(f"lasts 30 min {extra:+} ms from the second start", "init_stop", second)
    late = lambda log: _init_takes(log.double("init_start").member("init_start", "time_ms", math.nan, 0), limit, 1)  # noqa: E731
    yield Mutation("too long, after a start at nan", "init_stop", late)


def _init_takes(log: SampleLog, duration_ms: float, which: int = 0) -> None:
    stop = _first(log, "init_stop")["time_ms"]
    log.records_of("init_start")[which]["time_ms"] = stop - duration_ms


# -- cases from mutations -------------------------------------------------------------------------------------


def _pairs(base: Base, known: list[Mutation]) -> Iterator[Mutant]:
    """Yield logs with two things wrong, chosen at random but always the same."""
    choice = random.Random(f"pairs {base}")
    for number in range(PAIRS):
        one, other = choice.sample(known, 2)
        log = base.log()
        try:
            one.apply(log)
            other.apply(log)
        except (IndexError, KeyError, TypeError, AttributeError):
            continue  # the first took away what the second changes
        name = f"{base}: pair {number}: {one.key} {one.label}; {other.key} {other.label}"
        yield Mutant(name, base, one.key, log.bytes())


def _shuffled(base: Base) -> Iterator[Mutant]:
    """Yield logs whose records changed places: all of them, or some."""
    for number in range(SHUFFLES):
        log, choice = base.log(), random.Random(f"shuffle {number} {base}")
        if number % 2:
            choice.shuffle(log.records)
        else:
            for _ in range(3):
                log.records.insert(choice.randrange(len(log.records)), log.records.pop(choice.randrange(len(log.records))))
        yield Mutant(f"{base}: shuffled {number}", base, "", log.bytes())


def _edited(base: Base) -> Iterator[Mutant]:
    """Yield logs whose bytes are damaged."""
    honest = base.log()
    for key in ("init_start", "submission_org", "global_batch_size", honest.reference.target.key, "run_stop"):
        for label, line_edit in LINE_EDITS.items():
            yield Mutant(f"{base}: line of {key}: {label}", base, key, base.log().raw(key, line_edit).bytes())
    for key in dict.fromkeys(record["key"] for record in honest.records[1:]):
        yield Mutant(f"{base}: line of {key}: glued to the one before", base, key, base.log().glue(key).bytes())
    for label, file_edit in FILE_EDITS.items():
        yield Mutant(f"{base}: file: {label}", base, "", file_edit(honest.bytes()))


def _distinct(found: Iterator[Mutation]) -> Iterator[Mutation]:
    seen = set()
    for mutation in found:
        if mutation[:2] not in seen:
            seen.add(mutation[:2])
            yield copy.copy(mutation)


def _named(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
