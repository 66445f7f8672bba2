"""The types for the facts of a benchmark: target, runs, dataset, allowed settings.

A benchmark's `reference.py` fills them in; the trainer and the checker read them. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from common.values import is_integer, is_number
from common.version import version_numbers

ROUNDS: Final = ("0.7", "1.0", "2.0", "3.0")
"""Rounds of MLPerf HPC, oldest first. A round is a value, not a directory."""

FULL: Final = "full"
MINI: Final = "mini"
MINI_2: Final = "mini2"
VARIANTS: Final = (FULL, MINI, MINI_2)
"""The values of `dataset_variant` in a log; a log without it is about the full problem."""


def since(first: str, last: str = ROUNDS[-1]) -> tuple[str, ...]:
    """Return the rounds from `first` to `last`, both included."""
    return ROUNDS[ROUNDS.index(first) : ROUNDS.index(last) + 1]


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on the value of one log record, in words and as a test.

    If `test` raises on a value of another type, the value is not allowed.
    """

    text: str
    test: Callable[[Any], Any]

    def allows(self, value: Any) -> bool:
        """Tell whether `value` meets the condition; never raises."""
        try:
            return bool(self.test(value))
        except (TypeError, ValueError, OverflowError, AttributeError):
            return False


ANY: Final = Check("any value", lambda value: True)


def number(condition: str, test: Callable[[Any], bool]) -> Check:
    """Return a check for a finite number that also meets `test`."""
    return Check(f"a number {condition}", lambda value: is_number(value) and test(value))


def integer(condition: str, test: Callable[[Any], bool]) -> Check:
    """Return a check for a whole number that also meets `test`."""
    return Check(f"a whole number {condition}", lambda value: is_integer(value) and test(value))


def one_of(*allowed: str) -> Check:
    """Return a check for one of a few strings, spelled exactly."""
    return Check(" or ".join(repr(word) for word in allowed), lambda value: value in allowed)


def equals(wanted: Any) -> Check:
    """Return a check for one value; 1 equals 1.0 but not True."""
    return Check(repr(wanted), lambda value: value == wanted and isinstance(value, bool) is isinstance(wanted, bool))


def each(item: Check) -> Check:
    """Return a check for one value or a list of values that each meet `item`."""
    return Check(
        f"{item.text}, or a list of such",
        lambda value: all(map(item.allows, value)) if isinstance(value, list) else item.allows(value),
    )


def list_of(item: Check) -> Check:
    """Return a check for a list (possibly empty) of values that each meet `item`."""
    return Check(f"a list, each {item.text}", lambda value: isinstance(value, list) and all(map(item.allows, value)))


@dataclass(frozen=True, slots=True)
class Setting:
    """One hyperparameter or dataset property that a closed-division log must or may state.

    allowed: what the written rules allow.
    official: what the official checker tests instead; None if it does not know the key.
    required: the key must be logged exactly once; otherwise it is checked wherever it occurs.
    when: (key, check): the setting applies only if some record of that key passes the check.
    identity: all runs of a result must agree on it (false for what may differ, such as the seed).
    """

    key: str
    allowed: Check
    official: Check | None = ANY
    required: bool = True
    rounds: tuple[str, ...] = ROUNDS
    when: tuple[str, Check] | None = None
    identity: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The quality that ends a run: the evaluation key, its threshold, and which side is better."""

    key: str
    value: float
    lower_is_better: bool

    @property
    def range_text(self) -> str:
        """The accepted interval in words, such as `0 < eval_error <= 0.124`."""
        if self.lower_is_better:
            return f"0 < {self.key} <= {self.value}"
        return f"{self.value} <= {self.key} <= 1"

    def better(self, value: float, other: float) -> bool:
        """Tell whether an evaluation is better than another; False if one is not a number."""
        return value < other if self.lower_is_better else value > other

    def met(self, value: Any) -> bool:
        """Tell whether an evaluation with this value reaches the target; False unless it is a number."""
        if not is_number(value):
            return False
        return bool(0 < value <= self.value if self.lower_is_better else self.value <= value <= 1)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Number of samples per epoch of training and per evaluation, by round.

    counts_checked: the official checker also compares the numbers (rounds 1.0 and later).
    """

    train_samples: Mapping[str, tuple[int, ...]]
    eval_samples: Mapping[str, tuple[int, ...]]
    source: str
    counts_checked: bool

    def settings(self) -> tuple[Setting, ...]:
        """Return the settings train_samples and eval_samples, one per round."""
        return tuple(
            self._setting(key, round_, counts)
            for key, by_round in (("train_samples", self.train_samples), ("eval_samples", self.eval_samples))
            for round_, counts in by_round.items()
        )

    def _setting(self, key: str, round_: str, counts: tuple[int, ...]) -> Setting:
        text = " or ".join(map(str, counts))
        allowed = Check(text, lambda value: is_number(value) and value in counts)
        exact = Check(text, lambda value: value in counts)
        official = exact if self.counts_checked and round_ != ROUNDS[0] else NOT_EMPTY
        return Setting(key, allowed, official, rounds=(round_,), why=f"a run uses the whole dataset: {self.source}")


NOT_EMPTY: Final = Check("not empty", lambda value: value != "")
ABOVE_ZERO: Final = Check("> 0", lambda value: value > 0)
NOT_NEGATIVE: Final = Check(">= 0", lambda value: value >= 0)

COUNT: Final = integer(">= 1", lambda value: value >= 1)
AMOUNT: Final = number(">= 0", lambda value: value >= 0)

COMMON_SETTINGS: Final = (
    *(
        Setting(key, COUNT, official, required=False, rounds=rounds)
        for key in ("gradient_accumulation_steps", "gradient_accumulation_frequency")
        for official, rounds in ((None, ROUNDS[:1]), (ABOVE_ZERO, since("1.0")))
    ),
    Setting("number_of_parameters", COUNT, None, required=False),
    Setting("number_of_nodes", COUNT, ABOVE_ZERO, rounds=since("1.0")),
    Setting(
        "accelerators_per_node",
        integer(">= 0 (0 for a system without accelerators)", lambda value: value >= 0),
        NOT_NEGATIVE,
        rounds=since("1.0"),
    ),
)
"""What the closed division of every benchmark asks for; a benchmark's own setting of the same key replaces it."""

OPEN_SETTINGS: Final = tuple(
    Setting(key, integer(">= 1", lambda value: value >= 1), NOT_EMPTY) for key in ("train_samples", "eval_samples")
)
"""The open division leaves hyperparameters and data free, but the log still states the number of samples."""


FREE: Final = Check("free", lambda value: True)


@dataclass(frozen=True, slots=True)
class Closed:
    """What the closed division asks of one key of the trainer's configuration.

    key: dotted, such as model.width. allowed: its values, as a log's provenance has them; FREE: any.
    cite: where the rules say so. rounds: those that it is about. example: an allowed value, for example logs.
    since, until: the first and the last version of the suite that has the key; None: it has always been there, and
    still is. Logs are judged by the keys of their own version, so a new key has the coming version as `since`, and a
    key that is removed keeps its row, with the last released version that has it as `until`.
    """

    key: str
    allowed: Check
    cite: str
    rounds: tuple[str, ...] = ROUNDS
    example: Any = None
    since: str | None = None
    until: str | None = None

    def exists_in(self, version: Any) -> bool:
        """Tell whether a version of the suite has the key; anything but a version counts as the earliest."""
        numbers = version_numbers(version)
        return version_numbers(self.since) <= numbers and (self.until is None or numbers <= version_numbers(self.until))


def free(cite: str, *keys: str, since: str | None = None, until: str | None = None) -> tuple[Closed, ...]:
    """Return the keys of which the closed division asks nothing."""
    return tuple(Closed(key, FREE, cite, since=since, until=until) for key in keys)


def fixed(
    cite: str, values: Mapping[str, Any], *, since: str | None = None, until: str | None = None
) -> tuple[Closed, ...]:
    """Return the keys for which the closed division has one value each; a list also stands for a tuple."""
    return tuple(
        Closed(key, same_as(value), cite, example=value, since=since, until=until) for key, value in values.items()
    )


def same_as(wanted: Any) -> Check:
    """Return a check for one value of a configuration, where lists and tuples of the same members are the same."""
    if not isinstance(wanted, list):
        return equals(wanted)
    return Check(repr(wanted), lambda value: isinstance(value, list | tuple) and list(value) == wanted)


def null_or(check: Check) -> Check:
    """Return a check for null, which stands for what the benchmark asks for, or a value that meets `check`."""
    return Check(f"null or {check.text}", lambda value: value is None or check.test(value))


def closed_samples(
    train: Mapping[str, tuple[int, ...]], evaluation: Mapping[str, tuple[int, ...]]
) -> tuple[Closed, ...]:
    """Return what is asked of the numbers of samples, given by round: those of the dataset, or null for all."""
    return tuple(
        Closed(key, null_or(Check(" or ".join(map(str, counts)), counts.__contains__)), SAMPLES, rounds=(round_,))
        for key, by_round in (("data.train_samples", train), ("data.eval_samples", evaluation))
        for round_, counts in by_round.items()
    )


SAMPLES: Final = "training_rules.adoc#training-and-test-sets"
_RESULTS: Final = "hpc_training_rules.adoc#results"
_DATA: Final = "hpc_training_rules.adoc#data-state-at-start-of-run"
_HYPERPARAMETERS: Final = "hpc_training_rules.adoc#hyperparameters-and-optimizer"
_WEIGHTS: Final = "training_rules.adoc#weight-and-bias-initialization"
CLOSED_RUN: Final = (
    *fixed("training_rules.adoc#divisions", {"variant": FULL, "submission.division": "closed"}),
    *free(_RESULTS, "output_dir", "train.epochs", "checkpoint.every_epochs", "checkpoint.keep", "checkpoint.best"),
    *free(_RESULTS, "dist.device", "dist.timeout_s", "dist.bind"),
    *free(_RESULTS, "submission.org", "submission.status", "submission.platform", "submission.round"),
    *free(_DATA, "data.data_dir", "drop_page_cache", "staging.mode", "staging.stage_dir", "staging.workers"),
    *free(_DATA, "staging.checksum", "staging.inflate", "staging.keep", "staging.shard_seed"),
    *free("training_rules.adoc#graph-execution", "optim.fused", "train.graph", "precision.tune"),
    *free("training_rules.adoc#graph-execution", "dist.bucket_mb", "dist.static_graph", "dist.spatial"),
    *free("training_rules.adoc#training-data-order", "train.tail"),
    *free("training_rules.adoc#numerical-formats", "precision.dtype", "dist.gradients"),
    *free("training_rules.adoc#random-numbers", "train.seed"),
    *free("hpc_training_rules.adoc#throughput", "instances.count", "instances.ranks", "instances.first"),
    *fixed(SAMPLES, {"instances.bagging": "none"}),
    Closed("train.init_from", Check("null", lambda value: value is None), _WEIGHTS),
    *free(
        "power_measurement.adoc#measure-all-nodes", "power.source", "power.interval_s", "power.efficiency", "power.dc"
    ),
    *free(_RESULTS, "profile.steps", "profile.skip"),
    *free(_RESULTS, "track.to", "track.project", "track.name", "track.every_steps"),
    *free(_HYPERPARAMETERS, "train.global_batch_size", "train.accumulation"),
    *free(_HYPERPARAMETERS, "train.eval_ranks", "train.eval_batch_size"),
)
"""What the closed division asks of the keys that all benchmarks have; a benchmark adds its own."""
CLOSED_READING: Final = free("training_rules.adoc#graph-execution", "data.workers", "data.prefetch", "data.cache")
"""The same for the keys of how samples are read, see `common.data.split.Reading`."""


Configuration = Callable[[str], Any]
"""Gives the value of a dotted key of a run's configuration; raises LookupError if it lacks the key."""


def of(key: str) -> Callable[[Configuration], Any]:
    """Return the function that takes the value of a key from a configuration."""
    return lambda config: config(key)


def _seed(config: Configuration) -> Any:
    """Return the seed of a run, that of instance 0 plus the number of its own; None if it is drawn."""
    seed = config("train.seed")
    try:
        first = config("instances.first")
    except LookupError:  # of a version without instances
        return seed
    return seed + first if isinstance(seed, int) and isinstance(first, int) else seed


def _train_samples(config: Configuration) -> Any:
    """Return the number of training samples that the configuration asks for; None if chance decides it."""
    try:
        drawn = config("instances.bagging") == POISSON
    except LookupError:  # of a version without instances
        drawn = False
    return None if drawn else config("data.train_samples")


POISSON: Final = "poisson"
"""The value of `instances.bagging` with which an instance draws a random number of samples."""
LOGGED_RUN: Final[dict[str, Callable[[Configuration], Any]]] = {
    **{f"submission_{what}": of(f"submission.{what}") for what in ("org", "status", "platform")},
    "dataset_variant": of("variant"),
    "seed": _seed,
    "global_batch_size": of("train.global_batch_size"),
    "train_samples": _train_samples,
    "eval_samples": of("data.eval_samples"),
    "opt_name": of("optim.name"),
    "bagging": of("instances.bagging"),
}
"""Keys of a log that follow from the configuration in all benchmarks; a value of None is left open by it."""


@dataclass(frozen=True, slots=True)
class ExampleRun:
    """A run as the closed division wants it, from which sample logs are made.

    epochs: evaluations until the target is met, just more than the reference convergence points ask for.
    settings: keys and values of its log, by round.
    """

    epochs: int
    settings: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Reference:
    """The facts of one benchmark.

    runs: number of runs of a time-to-train result, and the least number of a throughput result.
    settings: what the closed division asks for beyond COMMON_SETTINGS.
    epoch_unit: what `epoch_num` counts: "epochs" or "samples".
    points: file with the reference convergence points, relative to the top of the project.
    cite: where the rules say so.
    example: a run that follows the rules.
    closed: what the closed division asks of each key of the trainer's configuration, in this and in earlier versions
    of the suite; none: there is no trainer.
    logged: keys of the trainer's log, each with how its value follows from the configuration.
    parameters: number of trainable parameters of the network, by round.
    staging: overrides with which the full dataset reaches the nodes of a cluster; none: it is read where it is.
    variant: "full", or the name of the mini problem that the facts are of.
    baseline: of a mini problem, the quality of the best method without a deep network (docs/performance/mini.md).
    """

    name: str
    rounds: tuple[str, ...]
    target: Target
    runs: int
    dataset: Dataset
    settings: tuple[Setting, ...]
    epoch_unit: str
    points: str
    cite: str
    example: ExampleRun
    closed: tuple[Closed, ...] = ()
    logged: Mapping[str, Callable[[Configuration], Any]] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    staging: tuple[str, ...] = ()
    variant: str = FULL
    baseline: float | None = None

    def closed_in(self, version: Any) -> tuple[Closed, ...]:
        """Return what the closed division asks of the keys that a version of the suite has, in any round."""
        return tuple(row for row in self.closed if row.exists_in(version))

    def settings_of(self, round_: str, division: str) -> tuple[Setting, ...]:
        """Return the settings for which a log of this round and division is checked.

        A mini log states those of the closed division too, as it is compared with reference runs.
        """
        if division == "open" and self.variant == FULL:
            return OPEN_SETTINGS
        active = [s for s in (*COMMON_SETTINGS, *self.dataset.settings(), *self.settings) if round_ in s.rounds]
        return tuple({setting.key: setting for setting in active}.values())


def variant_of(references: Sequence[Reference], variant: str) -> Reference:
    """Return the facts of a benchmark's variant; ValueError if it has no such variant."""
    for reference in references:
        if reference.variant == variant:
            return reference
    known = " or ".join(reference.variant for reference in references)
    raise ValueError(f"variant is {variant}; {references[0].name} has {known}")


def mini_of(reference: Reference, variant: str, target: float, samples: tuple[int, int], source: str) -> Reference:
    """Return a mini problem of a benchmark, with its own data and target; settings must be logged, values are free.

    Only what divides the work, such as the global batch size, must still be a whole number. samples: for training and
    for evaluation.
    """
    train_samples, eval_samples = samples
    stated = tuple(
        setting if setting.allowed is COUNT else replace(setting, allowed=ANY, why="") for setting in reference.settings
    )
    return replace(
        reference,
        target=replace(reference.target, value=target),
        dataset=Dataset(
            train_samples=dict.fromkeys(reference.rounds, (train_samples,)),
            eval_samples=dict.fromkeys(reference.rounds, (eval_samples,)),
            source=source,
            counts_checked=False,
        ),
        settings=stated,
        closed=(),
        parameters={},
        cite="docs/reference/profiles.md (the mini round)",
        variant=variant,
    )
