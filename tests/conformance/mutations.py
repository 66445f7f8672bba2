"""Damaged logs for the comparison with the official checker: each honest sample log, with one thing wrong.

Pure: the same cases in every run. `mutants()` yields them; a base is an honest log (round, division, benchmark,
variant), a mutation changes its records, an edit its bytes.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from compliance.log import STRUCTURE, SUBMISSION
from compliance.references import REFERENCES, benchmarks_of
from compliance.samples import SampleLog

ROUNDS = ("1.0", "2.0", "3.0")
NEIGHBOURS = ("init_start", "init_stop", "run_start", "run_stop", "epoch_start")
COUNTED = ("epoch_start", "epoch_stop", "eval_start", "eval_stop", "block_start", "block_stop")
MADE_UP = object()

WRONG_TYPES = ("text", "", "1", " ", None, True, False, [], [1, 2], {}, {"a": 1}, math.nan, math.inf, -math.inf)
NUMBERS = (0, -1, 1, 1.0, -0.0, 5e-324, -5e-324, 0.5, 1e300, 2**64, 10**30)
LISTS = ([0.9], [0.9, 0.99], [0.9, 0.99, 0.999], [2, -1], ["a", "b"], [[1], [2]], "ab", {"a": 1, "b": 2})
OPTIMIZERS = ("sgd", "SGD", "Sgd", "Adam", "adam", "AdamW", "adamw", "LAMB", "lamb", ["LAMB"])
SCHEDULES = ("multistep", "MultiStep", "cosine_annealing", "COSINE_ANNEALING", "lamb", "poly", ["multistep"])
LEARNING = (0.0, 0.9999999999999999, 1, 1.0000000000000002, -1e-300, 10)
EPSILONS = tuple(1e-6 * (1 + sign * part) for sign in (1, -1) for part in (9e-10, 1.1e-9, 1e-6)) + (1e-8,)

INTERESTING: dict[str, tuple[Any, ...]] = {
    "submission_division": ("Closed", "CLOSED", "open", "closed", "closed ", ["closed"], "opne"),
    "submission_status": ("cloud", "onprem", "preview", "research", "Cloud", "available", ["cloud"]),
    "submission_benchmark": (*REFERENCES, "CosmoFlow", "common", "../../etc/passwd", ["cosmoflow"], "resnet"),
    "submission_org": ("SUBMISSION_ORG_PLACEHOLDER", "Université", "\ud800", "a" * 5000),
    "opt_name": OPTIMIZERS,
    "opt_betas": LISTS,
    "opt_eps": EPSILONS,
    "scheduler_type": SCHEDULES,
    "scheduler_milestones": LISTS,
    "train_samples": (121_266, 121_216, 524_288, 262_144, 2_000_000, 594_595, 594_595.0, "121266"),
    "eval_samples": (15_158, 65_536, 999_866, 180, 180.0, "180"),
    **dict.fromkeys(("dropout", "opt_lr", "opt_max_grad_norm", "scheduler_decay_rate", "scheduler_t_max"), LEARNING),
    **dict.fromkeys(("scheduler_lr_warmup_factor", "scheduler_eta_min", "opt_learning_rate_warmup_factor"), LEARNING),
}
TIMES = (0, -1, 1.5, math.nan, math.inf, -math.inf, 1e300, 10**25, 10**400, True, None, [1], {"a": 1})
TIME_TEXTS = ("1694000000000", " 1694000000000 ", "1.2.3", "1_000", "nan", "-inf", "", "soon")


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
        elif self.variant == "adam":
            log.set("opt_name", "Adam").drop("opt_bias_correction").drop("opt_grad_averaging").drop("opt_max_grad_norm")
        elif self.variant == "cosine":
            log.set("scheduler_type", "cosine_annealing").drop("scheduler_milestones").drop("scheduler_decay_rate")
            log.set("scheduler_t_max", 9000).set("scheduler_eta_min", 0.0)
        elif self.variant == "optional":
            log.add("gradient_accumulation_steps", 1).add("sgd_opt_momentum", 0.9)
        return log

    def __str__(self) -> str:
        return " ".join(self) if self.variant != "plain" else " ".join(self[:3])


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
        for division in ("closed", "open"):
            for benchmark in benchmarks_of(round_):
                yield Base(round_, division, benchmark)
        for variant in ("adam", "cosine"):
            yield Base(round_, "closed", "deepcam", variant)
        for variant in ("blocks", "staged", "optional"):
            yield Base(round_, "closed", "cosmoflow", variant)


def mutants() -> Iterator[Mutant]:
    """Yield every case, each with a name of its own."""
    for base in bases():
        yield Mutant(f"{base}: honest", base, "", base.log().bytes())
        known = list(mutations(base))
        for mutation in known:
            log = base.log()
            mutation.apply(log)
            yield Mutant(f"{base}: {mutation.key} {mutation.label}", base, mutation.key, log.bytes())
        yield from pairs(base, known)
        yield from shuffled(base)
        if base.benchmark == "cosmoflow" and base.variant == "plain":
            yield from edited(base)


def mutations(base: Base) -> Iterator[Mutation]:
    """Yield what can be wrong with the records of this log."""
    log = base.log()
    keys = list(dict.fromkeys(record["key"] for record in log.records))
    target, deep = log.reference.target.key, base.benchmark == "cosmoflow" and base.division == "closed"
    for key in keys:
        if base.variant in ("plain", "optional") or key not in base._replace(variant="plain").log().keys():
            yield from presence(key)
            if key not in STRUCTURE:
                yield from values(log, key)
    if base.variant == "plain" or base.variant in ("blocks", "staged"):
        for key in keys:
            if key in STRUCTURE or key in SUBMISSION:
                yield from metadata(key, log.metadata_of(key))
                if deep:
                    yield from places(key)
    if base.variant == "plain":
        yield from quality(log, target)
        yield from times(target)
