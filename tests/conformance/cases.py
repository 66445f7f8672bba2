"""Thousands of damaged logs for the comparison with the official checker; the same ones in every run.

A `Base` is a valid log (round, division, benchmark, variant); `mutations.py` damages its records, `edits.py`
its bytes; `cases()` yields all damaged logs.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from compliance.benchmarks import benchmarks_of
from compliance.samples.log import SampleLog
from tests.conformance.edits import FILE_EDITS, LINE_EDITS
from tests.conformance.mutations import PUBLISHED, Mutation, mutations

ROUNDS = ("1.0", "2.0", "3.0")
FOCUS = {
    "blocks": ("block_start", "block_stop", "eval_start", "eval_stop"),
    "staged": ("staging_start", "staging_stop"),
    "optional": ("gradient_accumulation_steps", "gradient_accumulation_frequency", "sgd_opt_momentum"),
    "adam": ("opt_name", "opt_bias_correction", "opt_grad_averaging", "opt_max_grad_norm"),
    "cosine": (
        "scheduler_type",
        "scheduler_t_max",
        "scheduler_eta_min",
        "scheduler_milestones",
        "scheduler_decay_rate",
    ),
}
"""Which keys are damaged in the variants; in the plain log all of them."""
DECIDERS = ("submission_division", "submission_benchmark", "opt_name", "scheduler_type")
"""Keys on which other rules depend."""
EVERY_ROUND = ("missing", "doubled", "doubled with another value")
PAIRS = 20
SHUFFLES = 8


class Base(NamedTuple):
    """A valid log to damage."""

    round: str
    division: str
    benchmark: str
    variant: str = "plain"

    @property
    def plain(self) -> bool:
        """Whether it is the log without extras."""
        return self.variant == "plain"

    def log(self) -> SampleLog:
        """Return the valid log, short enough for thousands of checks."""
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

    def keys(self) -> tuple[str, ...]:
        """Return the keys that its records have, in file order."""
        return tuple(dict.fromkeys(record["key"] for record in self.log().records))

    def has_turn(self, key: str, label: str) -> bool:
        """Tell whether this round does a mutation: the rounds take turns, as their rules are nearly the same."""
        turn = zlib.crc32(f"{self.division} {key} {label}".encode()) % len(ROUNDS)
        return label in EVERY_ROUND or turn == ROUNDS.index(self.round)

    def __str__(self) -> str:
        return " ".join(self[: 3 if self.plain else 4])


class Case(NamedTuple):
    """A damaged log: a readable name, the key that was damaged ("" for the file as a whole), its bytes."""

    id: str
    base: Base
    key: str
    data: bytes


def bases() -> Iterator[Base]:
    """Yield every kind of valid log."""
    for round_ in ROUNDS:
        for benchmark in filter(PUBLISHED.__contains__, benchmarks_of(round_)):
            yield Base(round_, "closed", benchmark)
            yield Base(round_, "open", benchmark)
        for variant in ("blocks", "staged", "optional"):
            yield Base(round_, "closed", "cosmoflow", variant)
        for variant in ("adam", "cosine", "optional"):
            yield Base(round_, "closed", "deepcam", variant)


def cases(base: Base) -> Iterator[Case]:
    """Yield every damaged log of a base; no two have the same name."""
    yield Case(f"{base}: valid", base, "", base.log().bytes())
    found = mutations(base.log(), FOCUS.get(base.variant) or base.keys(), base.plain)
    known = list({(mutation.key, mutation.label): mutation for mutation in found}.values())
    for mutation in known:
        if base.has_turn(mutation.key, mutation.label):
            log = base.log()
            mutation.apply(log)
            yield Case(f"{base}: {mutation.key} {mutation.label}", base, mutation.key, log.bytes())
    yield from _two_missing(base)
    yield from _pairs(base, known)
    yield from _shuffled(base)
    if base == Base(base.round, "closed", "cosmoflow"):
        yield from _edited(base)


def _two_missing(base: Base) -> Iterator[Case]:
    """Yield logs without a key on which other rules depend, and without one more."""
    keys = base.keys()
    for decider in DECIDERS if base.variant not in ("blocks", "staged") else ():
        for key in keys if decider in keys else ():
            if key != decider and base.has_turn(key, decider):
                log = base.log().drop(decider).drop(key)
                yield Case(f"{base}: {decider} and {key} missing", base, key, log.bytes())


def _pairs(base: Base, known: list[Mutation]) -> Iterator[Case]:
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
        yield Case(name, base, one.key, log.bytes())


def _shuffled(base: Base) -> Iterator[Case]:
    """Yield logs whose records changed places: all of them, or three."""
    for number in range(SHUFFLES):
        log, choice = base.log(), random.Random(f"shuffle {number} {base}")
        if number % 2:
            choice.shuffle(log.records)
        else:
            for _ in range(3):
                record = log.records.pop(choice.randrange(len(log.records)))
                log.records.insert(choice.randrange(len(log.records)), record)
        yield Case(f"{base}: shuffled {number}", base, "", log.bytes())


def _edited(base: Base) -> Iterator[Case]:
    """Yield logs whose bytes are damaged."""
    valid = base.log()
    for key in ("init_start", "submission_org", "global_batch_size", valid.reference.target.key, "run_stop"):
        for label, line_edit in LINE_EDITS.items():
            if base.has_turn(key, label):
                name = f"{base}: line of {key}: {label}"
                yield Case(name, base, key, base.log().raw(key, line_edit).bytes())
    for key in base.keys()[1:]:
        yield Case(f"{base}: line of {key}: glued to the one before", base, key, base.log().glue(key).bytes())
    for label, file_edit in FILE_EDITS.items():
        yield Case(f"{base}: file: {label}", base, "", file_edit(valid.bytes()))
