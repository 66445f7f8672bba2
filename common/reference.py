"""The types for the facts of a benchmark: target, runs, dataset, allowed settings.

A benchmark's `reference.py` fills them in; the trainer and the checker read them. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from common.rounds import BY_NAME, HPC, KNOWN, find_usage
from common.values import is_integer, is_number

ROUNDS: Final = tuple(round_.name for round_ in KNOWN if round_.usage == HPC)
"""Rounds of MLPerf HPC, oldest first."""
FIRST_RUNS_MS: Final = {name: BY_NAME[name].first_ms for name in ROUNDS[1:]}
"""When the runs of a round began; older ones had been submitted to the round before."""

FULL: Final = "full"
MINI: Final = "mini"
MINI_2: Final = "mini2"
VARIANTS: Final = (FULL, MINI, MINI_2)
"""The problems of the suite: values of `dataset_variant` in a log; a log without it is about the full problem."""
OWN: Final = "own"
"""A user's own data: without published sizes, target and reference runs, and never an MLPerf result."""
VALIDATION: Final = "validation"
SPLITS: Final = ("train", VALIDATION)
"""The folders of a dataset, by what its samples are for."""


def since(first: str, last: str = ROUNDS[-1]) -> tuple[str, ...]:
    """Return the rounds from `first` to `last`, both included."""
    return ROUNDS[ROUNDS.index(first) : ROUNDS.index(last) + 1]


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on the value of one log record or key of a configuration, in words and as a test.

    If `test` raises on a value of another type, the value is not allowed. example: an allowed value, for example logs.
    """

    text: str
    test: Callable[[Any], Any]
    example: Any = None

    def allows(self, value: Any) -> bool:
        """Tell whether `value` meets the condition; never raises."""
        try:
            return bool(self.test(value))
        except (TypeError, ValueError, OverflowError, AttributeError):
            return False

    def such_as(self, example: Any) -> Check:
        """Return the check with an example of what it allows."""
        return replace(self, example=example)


ANY: Final = Check("any value", lambda value: True)


def number(condition: str, test: Callable[[Any], bool]) -> Check:
    """Return a check for a finite number that also meets `test`."""
    return Check(f"a number {condition}", lambda value: is_number(value) and test(value))


def integer(condition: str, test: Callable[[Any], bool]) -> Check:
    """Return a check for a whole number that also meets `test`."""
    return Check(f"a whole number {condition}", lambda value: is_integer(value) and test(value))


def one_of(*allowed: str) -> Check:
    """Return a check for one of a few strings, spelled exactly."""
    return Check(" or ".join(repr(word) for word in allowed), lambda value: value in allowed, allowed[0])


def equals(wanted: Any) -> Check:
    """Return a check for one value; 1 equals 1.0 but not True, and a list equals a tuple of the same members."""
    if isinstance(wanted, list):
        return Check(repr(wanted), lambda value: isinstance(value, list | tuple) and list(value) == wanted, wanted)
    is_bool = isinstance(wanted, bool)
    return Check(repr(wanted), lambda value: value == wanted and isinstance(value, bool) is is_bool, wanted)


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


NO_TARGET: Final = "none"
"""The value of train.target with which a run trains past all targets."""
TARGET_RECORD: Final = "quality_target"
"""The key of a log that says so."""


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

    def choose(self, own: float | Literal["none"] | None) -> Target:
        """Return the target of a run with this value of `train.target`."""
        if own is None:
            return self
        if isinstance(own, str):
            return NoTarget(self.key, self.value, self.lower_is_better)
        return replace(self, value=own)


@dataclass(frozen=True, slots=True)
class NoTarget(Target):
    """That of a run without a target: no evaluation meets it. value: of the target that the benchmark has."""

    @property
    def range_text(self) -> str:
        """That there is none."""
        return NO_TARGET

    def met(self, value: Any) -> bool:
        """Return False."""
        return False


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
            self._make_setting(key, round_, counts)
            for key, by_round in (("train_samples", self.train_samples), ("eval_samples", self.eval_samples))
            for round_, counts in by_round.items()
        )

    def _make_setting(self, key: str, round_: str, counts: tuple[int, ...]) -> Setting:
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
SHARE: Final = number("with 0 <= v <= 1", lambda value: 0 <= value <= 1)

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

OPEN_SETTINGS: Final = tuple(Setting(key, COUNT, NOT_EMPTY) for key in ("train_samples", "eval_samples"))
"""The open division leaves hyperparameters and data free, but the log still states the number of samples."""


FREE: Final = Check("free", lambda value: True)
"""The closed division asks nothing."""


def null_or(check: Check) -> Check:
    """Return a check for null, which stands for what the benchmark asks for, or a value that meets `check`."""
    return Check(f"null or {check.text}", lambda value: value is None or check.test(value))


def either(*amounts: int) -> Check:
    """Return a check for one of a few numbers."""
    return Check(" or ".join(map(str, amounts)), amounts.__contains__)


# Where the rules are, for `cite`.
RESULTS: Final = "hpc_training_rules.adoc#results"
BENCHMARKS: Final = "hpc_training_rules.adoc#benchmarks"
DIVISIONS: Final = "training_rules.adoc#divisions"
DATA_STATE: Final = "hpc_training_rules.adoc#data-state-at-start-of-run"
REPRESENTATION: Final = "training_rules.adoc#data-representation"
PREPROCESSING: Final = "training_rules.adoc#preprocessing-during-the-run"
SAMPLES: Final = "training_rules.adoc#training-and-test-sets"
ORDER: Final = "training_rules.adoc#training-data-order"
HYPERPARAMETERS: Final = "hpc_training_rules.adoc#hyperparameters-and-optimizer"
GRAPH: Final = "training_rules.adoc#graph-definition"
EXECUTION: Final = "training_rules.adoc#graph-execution"
WEIGHTS: Final = "training_rules.adoc#weight-and-bias-initialization"
FORMATS: Final = "training_rules.adoc#numerical-formats"
RANDOM: Final = "training_rules.adoc#random-numbers"
THROUGHPUT: Final = "hpc_training_rules.adoc#throughput"
POWER: Final = "power_measurement.adoc#measure-all-nodes"


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
    epoch_unit: what `epoch_num` counts: "epochs" or "samples"; "" where only a log tells.
    points: file with the reference convergence points, from its package's folder on: PACKAGE/rcps.yaml.
    cite: where the rules say so.
    example: a run that follows the rules.
    trained_by: the module whose Config has the keys of the trainer's configuration; "": there is no trainer.
    parameters: number of trainable parameters of the network, by round.
    staging: overrides with which the full dataset reaches the nodes of a cluster; none: it is read where it is.
    variant: "full", the name of the mini problem that the facts are of, or "own".
    baseline: of a mini problem, the quality of the best classical method (docs/performance/records/mini.md).
    constant: the quality of what predicts the same for each sample; None if it is not known.
    data_sha256: of a mini problem, known digests of the manifest of its generated data.
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
    trained_by: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    staging: tuple[str, ...] = ()
    variant: str = FULL
    baseline: float | None = None
    constant: float | None = None
    data_sha256: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The suite of the benchmark: HPC or TRAINING."""
        return find_usage(self.rounds[0])

    def settings_of(self, round_: str, division: str) -> tuple[Setting, ...]:
        """Return the settings for which a log of this round and division is checked.

        A mini log states those of the closed division too, as it is compared with reference runs.
        """
        if division == "open" and self.variant == FULL:
            return OPEN_SETTINGS
        active = [s for s in (*COMMON_SETTINGS, *self.dataset.settings(), *self.settings) if round_ in s.rounds]
        return tuple({setting.key: setting for setting in active}.values())


def variant_of(
    references: Sequence[Reference], variant: str, own_target: float | Literal["none"] | None = None
) -> Reference:
    """Return the facts of a benchmark's variant; ValueError if it has no such variant.

    references: of the full problem, whose metric is that of OWN data, too, and of the mini problems. own_target: of
    OWN data, for which a configuration must have one.
    """
    if variant == OWN and own_target is not None:
        return replace(references[0], variant=OWN, target=references[0].target.choose(own_target))
    for reference in references:
        if reference.variant == variant:
            return reference
    variants = " or ".join(reference.variant for reference in references)
    raise ValueError(f"variant is {variant}; {references[0].name} has {variants}")


def mini_of(reference: Reference, variant: str, target: float, samples: tuple[int, int], source: str) -> Reference:
    """Return a mini problem of a benchmark, with its own data and target; settings must be logged, values are free.

    Only what divides the work, such as the global batch size, must still be a whole number. samples: for training and
    for evaluation.
    """
    train_samples, eval_samples = samples
    return replace(
        reference,
        target=replace(reference.target, value=target),
        dataset=Dataset(
            train_samples=dict.fromkeys(reference.rounds, (train_samples,)),
            eval_samples=dict.fromkeys(reference.rounds, (eval_samples,)),
            source=source,
            counts_checked=False,
        ),
        settings=tuple(
            setting if setting.allowed is COUNT else replace(setting, allowed=ANY, why="")
            for setting in reference.settings
        ),
        parameters={},
        cite="docs/reference/profiles.md (the mini round)",
        variant=variant,
    )
