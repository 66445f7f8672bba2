"""The configuration that all benchmarks share: `RunConfig`, from which a benchmark derives its own, and sections."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from common.reference import (
    BENCHMARKS,
    DATA_STATE,
    DIVISIONS,
    EXECUTION,
    FREE,
    FULL,
    HYPERPARAMETERS,
    NO_TARGET,
    ORDER,
    OWN,
    RANDOM,
    RESULTS,
    ROUNDS,
    SAMPLES,
    TARGET_RECORD,
    THROUGHPUT,
    WEIGHTS,
    Check,
    Reference,
    either,
    equals,
    null_or,
)
from common.settings.keys import (
    DRAW,
    LENGTH,
    PLACE,
    PROBLEM,
    REQUIRED,
    ClosedRule,
    Configuration,
    LogValue,
    check_least,
    key,
    take,
)
from common.settings.machine import (
    CheckpointConfig,
    DistConfig,
    PowerConfig,
    PrecisionConfig,
    ProfileConfig,
    StagingConfig,
    StopConfig,
    TrackConfig,
)
from common.settings.optim import OptimConfig, Schedule

Bagging = Literal["none", "bootstrap", "poisson"]
NONE: Final = "none"
NULL: Final = Check("null", lambda value: value is None)
POISSON: Final = "poisson"
"""The value of `instances.bagging` with which an instance draws a random number of samples."""


def whole_set(counts: str) -> ClosedRule:
    """Return what closed asks of a number of samples: that of the dataset, or null for all. counts: its name there."""
    return lambda reference: {
        round_: null_or(either(*numbers)) for round_, numbers in getattr(reference.dataset, counts).items()
    }


def own_target(reference: Reference) -> Check:
    """Return what closed asks of train.target: the benchmark's, or null for it."""
    return null_or(equals(reference.target.value))


def count_steps(samples: int, global_batch_size: int, tail: str) -> int:
    """Return the number of steps in an epoch; ValueError if there are none."""
    steps = samples // global_batch_size if tail == "drop" else -(-samples // global_batch_size)
    if steps == 0:
        raise ValueError(
            f"{samples} samples make no batch of {global_batch_size} with tail={tail!r}: use a smaller global batch "
            "size or tail='keep'"
        )
    return steps


def look_up_instances(config: Configuration, name: str) -> Any:
    """Return the value of a key of section instances; None in a configuration of a version without."""
    with suppress(LookupError):
        return config(f"instances.{name}")
    return None


def log_seed(config: Configuration) -> Any:
    """Return the seed of a run, that of instance 0 plus the number of its own; None if it is drawn."""
    seed, first = config("train.seed"), look_up_instances(config, "first")
    return seed + first if isinstance(seed, int) and isinstance(first, int) else seed


def log_train_samples(config: Configuration) -> Any:
    """Return the number of training samples that the configuration asks for; None if chance decides it."""
    return None if look_up_instances(config, "bagging") == POISSON else config("data.train_samples")


@dataclass(frozen=True, slots=True)
class SubmissionConfig:
    """The submitter of the run, and the rules that apply to it."""

    cite: ClassVar = RESULTS

    org: str = key("", "organisation, for the log; may be empty until a run starts", PLACE)
    division: Literal["open", "closed"] = key(
        "open", "division of the result", PROBLEM, closed=equals("closed"), cite=DIVISIONS
    )
    status: Literal["onprem", "cloud", "preview", "research"] = key("onprem", "availability of the system", PLACE)
    platform: str = key("", "name of the system description; may be empty until a run starts", PLACE)
    round: str = key(
        ROUNDS[-1], "decides whether data staging counts as part of the run; in quotes", PROBLEM, closed=FREE
    )

    def __post_init__(self) -> None:
        if self.round not in ROUNDS:
            raise ValueError(f"round is {self.round!r}; expected one of {', '.join(ROUNDS)}")

    @property
    def staging_timed(self) -> bool:
        """Whether a run's clock starts before staging (hpc_training_rules.adoc, "data staging")."""
        return self.round in ("0.7", "1.0", "2.0")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """How long and on how many samples at a time a run trains."""

    cite: ClassVar = HYPERPARAMETERS

    epochs: int = key(
        128,
        "the most epochs to train; the run ends earlier when the target is met",
        LENGTH,
        unit="epochs",
        aliases=("n_epochs", "num_epochs", "max_epochs", "e"),
        closed=FREE,
        cite=RESULTS,
    )
    steps: int | None = key(
        None,
        "the most optimizer steps to train: the run ends after them, in the middle of an epoch, with its evaluation; "
        "null: train.epochs alone says it",
        PROBLEM,
        unit="steps",
        closed=NULL,
        cite=RESULTS,
        since="0.3.0",
    )
    flop: float | None = key(
        None,
        "the most floating-point operations to train with, as the log counts those of a sample (flop_per_sample): the "
        "same as train.steps with as many whole steps, at least 1; null: any number",
        PROBLEM,
        unit="FLOP",
        closed=NULL,
        cite=RESULTS,
        since="0.3.0",
    )
    global_batch_size: int = key(
        64,
        "samples per optimizer step, over all ranks",
        unit="samples",
        aliases=("batch_size", "batchsize", "batch", "local_batch_size", "gbs", "b"),
        closed=FREE,
        logged_as="global_batch_size",
    )
    accumulation: int = key(
        1, "number of parts in which each rank computes its share of a step: less memory, the same result", closed=FREE
    )
    target: float | Literal["none"] | None = key(
        None,
        "quality that ends the run; null: the target of the benchmark; none: train through all epochs, which gives no "
        "MLPerf result",
        PLACE,
        closed=own_target,
        cite=BENCHMARKS,
    )
    seed: int | None = key(
        None,
        "seed of weights, sample order and dropout; null: drawn from the system's randomness; kept on --resume",
        DRAW,
        closed=FREE,
        cite=RANDOM,
    )
    eval_ranks: int = key(
        0,
        "number of ranks, the last ones, that only evaluate while the others train; 0: all ranks do both, in turn",
        PLACE,
    )
    eval_batch_size: int | None = key(
        None,
        "samples that a rank evaluates at a time; null: as many as in a part of a step; not compared on a GPU",
        PLACE,
        unit="samples",
    )
    graph: Literal["auto", "off"] = key(
        "auto",
        "auto: on CUDA, record training steps and evaluations as CUDA graphs, one for each shape of a batch, and "
        "replay them; where that is not possible, and with off, each operation is launched by itself",
        PLACE,
        cite=EXECUTION,
    )
    warm_up: Literal["auto", "off"] = key(
        "auto",
        "auto: with an accelerator, execute training steps and evaluations of every usual shape before the run starts, "
        "on made-up batches: libraries choose algorithms, kernels are compiled, steps recorded; changes no number. A "
        "resumed run, whose clock runs, does without",
        PLACE,
        cite=EXECUTION,
        since="0.3.0",
    )
    init_from: Path | None = key(
        None,
        "the weights from which training starts: an export, a checkpoint, or the folder of a run; null: random ones. "
        "With given weights a run is not an MLPerf result",
        PROBLEM,
        closed=NULL,
        cite=WEIGHTS,
    )
    imports: tuple[Path, ...] = key(
        (),
        "modules and Python files of your own that are imported, which runs their code: what they register is named by "
        "optim.name and train.problem. A command that reads a run does not import what that names",
        PLACE,
        since="0.3.0",
    )
    problem: str | None = key(
        None,
        "the registered problem, with a network, loss, augmentation or dataset of your own; null: the benchmark's",
        PROBLEM,
        closed=NULL,
        cite=DIVISIONS,
        since="0.3.0",
    )
    tail: Literal["keep", "drop"] = key(
        "keep",
        "the samples left at the end of an epoch, too few for a global batch: keep makes a smaller last step of them, "
        "drop leaves them out of this epoch (different ones in each epoch, since the order changes)",
        closed=FREE,
        cite=ORDER,
    )

    def __post_init__(self) -> None:
        check_least(self, 1, "epochs", "global_batch_size", "accumulation", "steps", "flop", "eval_batch_size")
        check_least(self, 0, "eval_ranks")
        if self.accumulation > self.global_batch_size:
            raise ValueError(
                f"accumulation is {self.accumulation}, more parts than the {self.global_batch_size} samples of a step "
                "(global_batch_size); lower it"
            )
        if isinstance(self.target, float | int) and not 0 < self.target < math.inf:
            raise ValueError(
                f"target is {self.target}; expected a number above 0, null for the benchmark's own, or none"
            )
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is {self.seed}; expected 0 <= seed < 2**63")

    @property
    def ends_in_epoch(self) -> bool:
        """Whether the run may end in the middle of an epoch; then it has a fixed length."""
        return self.steps is not None or self.flop is not None

    def list_logged(self) -> dict[str, Any]:
        """Return what a log states of the target: that the run had none, if so."""
        return {TARGET_RECORD: NO_TARGET} if self.target == NO_TARGET else {}


@dataclass(frozen=True, slots=True)
class InstancesConfig:
    """The instances of a job: networks that are trained side by side, each from its own seed.

    The problem of a run is that of one instance, the `first`; a job with several instances makes a problem of each.
    """

    cite: ClassVar = THROUGHPUT

    count: int = key(
        1, "number of instances: networks trained side by side, each with its own seed, log and folder", PLACE
    )
    ranks: int | Literal["node"] | None = key(
        None,
        "ranks of an instance; node: as many as a node of the job has; null: all ranks, divided by count",
        PLACE,
        unit="ranks",
    )
    first: int | None = key(
        None,
        "number of the first instance, which is trained with the seed train.seed + first; with count=1 it is trained "
        "alone, in its folder instance_FIRST; null: 0, and with count=1 a run that is not an instance",
        PROBLEM,
        closed=FREE,
    )
    bagging: Bagging = key(
        NONE,
        "training samples of an instance. none: all; bootstrap: as many as there are, drawn with replacement; poisson: "
        "each as often as a Poisson number of mean 1 says. With bagging a run is not an MLPerf result",
        PROBLEM,
        closed=equals(NONE),
        cite=SAMPLES,
    )

    def __post_init__(self) -> None:
        check_least(self, 1, "count")
        if isinstance(self.ranks, int) and self.ranks < 1:
            raise ValueError(
                f"ranks is {self.ranks}; expected at least 1, node, or null for all ranks divided by count"
            )
        if self.number < 0:
            raise ValueError(f"first is {self.first}; expected 0 or more, the number of an instance")

    @property
    def number(self) -> int:
        """The number of the first instance."""
        return self.first or 0

    @property
    def bags(self) -> bool:
        """Whether each instance draws its own training samples."""
        return self.bagging != NONE

    def list_logged(self) -> dict[str, Any]:
        """Return what a log states of the instances: how their samples were drawn, if they were."""
        return {"bagging": self.bagging} if self.bags else {}


@dataclass(frozen=True, slots=True)
class SamplesConfig:
    """The keys that the sections `data` of all benchmarks share: which samples are read, and how."""

    data_dir: Path = key(
        REQUIRED,
        "folder with train and validation, a sample per file",
        PLACE,
        aliases=("data_path", "data_root", "root", "root_dir", "dataset", "d"),
        cite=DATA_STATE,
    )
    train_samples: int | None = key(
        None,
        "train on the first N samples, in the order of files; null: all",
        unit="samples",
        closed=whole_set("train_samples"),
        cite=SAMPLES,
    )
    eval_samples: int | None = key(
        None,
        "evaluate the first N samples, in the order of files; null: all",
        unit="samples",
        closed=whole_set("eval_samples"),
        cite=SAMPLES,
    )
    workers: int | None = key(
        None,
        "threads that read samples; null: on an accelerator two fewer than the cores to which the launcher bound the "
        "rank, from 2 to 16; on a CPU as many as its cores, from 2 to 4",
        PLACE,
        aliases=("num_workers", "n_workers", "j"),
    )
    cache: bool = key(
        False,
        "keep samples in each rank's memory after the first read, of shards only its own; for small datasets",
        PLACE,
    )

    def __post_init__(self) -> None:
        check_least(self, 1, "train_samples", "eval_samples", "workers")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """The keys that all benchmarks share; a benchmark adds `model`, and narrows `data` and `schedule`.

    Sections are dataclasses whose keys are made by `common.settings.keys.key`. data: has at least `data_dir`.
    """

    output_dir: Path = key(
        REQUIRED,
        "folder of the run: log, history, checkpoints",
        PLACE,
        aliases=("output", "out", "o", "log_dir", "run_dir", "save_dir"),
        cite=RESULTS,
    )
    data: Any
    schedule: Schedule
    variant: Literal["full", "mini", "mini2", "own"] = key(
        FULL,
        "full; the name of one of the benchmark's mini problems, whose data are generated if they are missing; or own, "
        "for data of your own, which needs train.target and is never an MLPerf result",
        PROBLEM,
        closed=equals(FULL),
        cite=DIVISIONS,
    )
    drop_page_cache: bool | Literal["prologue"] = key(
        False,
        "drop the nodes' page caches before the run (needs root); prologue: that of the job has dropped them; the log "
        "says that they are dropped unless this is false",
        PLACE,
        cite=DATA_STATE,
    )
    train: TrainConfig = field(default_factory=TrainConfig)
    instances: InstancesConfig = field(default_factory=InstancesConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    staging: StagingConfig = field(default_factory=StagingConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    submission: SubmissionConfig = field(default_factory=SubmissionConfig)
    dist: DistConfig = field(default_factory=DistConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    power: PowerConfig = field(default_factory=PowerConfig)
    profile: ProfileConfig = field(default_factory=ProfileConfig)
    track: TrackConfig = field(default_factory=TrackConfig)

    shares_samples: ClassVar[bool] = False
    """Whether several ranks can share a sample (dist.spatial)."""
    reference: ClassVar[Reference]
    """The facts of the benchmark."""
    closed: ClassVar[Mapping[str, ClosedRule]] = {}
    """What closed asks of keys that the benchmark shares with others, by their dotted names."""
    logs: ClassVar[Mapping[str, LogValue]] = {}
    """Hyperparameters of the log, by its keys, that follow from several keys or have another name in each benchmark."""
    removed: ClassVar[Mapping[str, tuple[str, Check]]] = {
        "data.prefetch": ("0.2.0", FREE),
        "dist.bind": ("0.3.0", FREE),
        "dist.static_graph": ("0.3.0", FREE),
        "staging.shard_seed": ("0.2.0", FREE),
    }
    """Keys that there were: the last version that had each, and what closed asked of it."""
    run_facts: ClassVar[Mapping[str, LogValue]] = {
        **{f"submission_{name}": take(f"submission.{name}") for name in ("org", "status", "platform")},
        "dataset_variant": take("variant"),
        "seed": log_seed,
        "train_samples": log_train_samples,
        "eval_samples": take("data.eval_samples"),
        "bagging": take("instances.bagging"),
    }
    """What a log states beside hyperparameters: the trainer by what it does, which is what the configuration says."""

    def __post_init__(self) -> None:
        if self.variant == OWN and self.train.target is None:
            raise ValueError(
                f"variant is {OWN}, for data of your own, which have no target: set train.target to the "
                f"{self.reference.target.key} that ends the run, or to none"
            )
        if self.dist.sharing == 1:
            return
        setting = f"dist.spatial is {self.dist.spatial_text}"
        if not self.shares_samples:
            raise ValueError(f"{setting}, but of this benchmark each rank has whole samples; set it to 1")
        if self.train.eval_ranks:
            raise ValueError(
                f"{setting} and train.eval_ranks {self.train.eval_ranks}, but no rank has the whole network to send; "
                "set one of them to its default"
            )
        if self.precision.dtype == "fp16":
            raise ValueError(
                f"{setting} and precision.dtype fp16, whose loss scale each rank would decide by its own part of the "
                "weights; set precision.dtype=bf16"
            )
