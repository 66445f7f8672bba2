"""Where and how a run computes, and what it records: the sections that change no result, but for rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar, Final, Literal

from common.address import check_address
from common.errors import UsageError
from common.reference import DATA_STATE, FORMATS, FREE, POWER, RESULTS
from common.settings.keys import PLACE, ROUTE, check_least, key
from common.stop import NAMES, SignalName

MOST_MB: Final = 1_000_000
"""More than the memory of any device; torch fails with a traceback at infinity, and at what is not a number."""


SLOWEST_S, FASTEST_S = 1.0, 0.05
"""Limits of the time between readings of power."""

Mode = Literal["none", "shard", "replicate", "memory"]
Tracker = Literal["wandb", "mlflow"]


@dataclass(frozen=True)
class DistConfig:
    """Where the ranks compute and how long they wait for each other."""

    device: str = key(
        "auto", "auto (the accelerator of this machine, else the CPU), cpu, cuda (also for ROCm), xpu", PLACE
    )
    start_timeout_s: float = key(
        180.0,
        "a rank that waits longer for the others at the start fails, and says which ranks are missing",
        PLACE,
        unit="seconds",
        since="0.3.0",
    )
    timeout_s: float = key(
        600.0,
        "a rank that waits longer for the others in a collective fails; evaluation, staging and checkpoints of one "
        "rank while the others wait must be shorter",
        PLACE,
        unit="seconds",
    )
    bucket_mb: float | None = key(
        None,
        "gradients that the ranks average in one message. null: all of them, where steps are recorded (train.graph) or "
        "ranks share samples; elsewhere torch's choice, 1 for the first message and 25 for the others, each sent as "
        "soon as its gradients are known. Not measured on several GPUs",
        PLACE,
        unit="MiB",
    )
    record_reduction: bool = key(
        False,
        "where steps are recorded (train.graph), record also how the ranks average their gradients, if all batches "
        "have equal shapes; not with batchnorm_group_size above 1; not run on GPUs yet",
        PLACE,
        since="0.3.0",
    )
    gradients: Literal["fp32", "bf16"] = key(
        "fp32",
        "format in which gradients travel between ranks; bf16: half the bytes, and rounded sums; not measured on "
        "several GPUs",
        ROUTE,
        cite=FORMATS,
    )
    spatial: int | tuple[int, int] = key(
        1,
        "ranks that share each sample, for CosmoFlow: s of them split its D axis, [s, t] also its H axis; "
        "global_batch_size counts samples",
        PLACE,
        unit="ranks",
    )

    def __post_init__(self) -> None:
        for name in ("start_timeout_s", "timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected seconds above 0")
        if self.bucket_mb is not None and not 0 < self.bucket_mb <= MOST_MB:
            raise ValueError(f"bucket_mb is {self.bucket_mb}; expected MiB above 0 and at most {MOST_MB:,}, or null")
        if min(self.extents) < 1:
            raise ValueError(
                f"spatial is {self.spatial_text}; expected numbers of ranks, 1 or more, such as 4 or [4, 2]"
            )

    @property
    def extents(self) -> tuple[int, int]:
        """The grid of ranks that share a sample, along D and H."""
        return (self.spatial, 1) if isinstance(self.spatial, int) else self.spatial

    @property
    def spatial_text(self) -> str:
        """The value of `spatial`, as a user writes it."""
        return str(self.spatial if isinstance(self.spatial, int) else list(self.spatial))

    @property
    def sharing(self) -> int:
        """The number of ranks that share a sample."""
        return prod(self.extents)


@dataclass(frozen=True, slots=True)
class StopConfig:
    """How a run is asked to stop in order, before its job ends."""

    cite: ClassVar = RESULTS

    signals: tuple[SignalName, ...] = key(
        NAMES,
        "signals after which a run saves a checkpoint and ends with status 3; a scheduler may send others than these; "
        "one that is ignored at the start, such as HUP under nohup, stays ignored",
        PLACE,
        since="0.3.0",
    )


@dataclass(frozen=True, slots=True)
class PrecisionConfig:
    """The format of matrix products and convolutions; weights, gradients, losses and optimizer stay in float32."""

    cite: ClassVar = FORMATS

    dtype: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = key(
        "auto",
        "fp32; tf32: float32 with matrix products in TF32 on NVIDIA's tensor cores; bf16; fp16: with an adaptive loss "
        "scale; auto: bf16 where the device computes it natively, otherwise fp32",
        aliases=("amp", "mixed_precision"),
        closed=FREE,
    )
    tune: bool = key(
        True,
        "on NVIDIA GPUs, time cuDNN's algorithms for each shape and take the fastest; equal runs may then differ in "
        "rounding. false: cuDNN's own choice among its deterministic algorithms, the same in each run, not measured",
        PLACE,
    )


@dataclass(frozen=True, slots=True)
class StagingConfig:
    """How the dataset is copied to the nodes; `common.staging.stage` explains the modes."""

    cite: ClassVar = DATA_STATE

    mode: Mode = key(
        "none",
        "none: read from shared storage; shard: each node gets its part; replicate: each node gets all; memory: each "
        "node gets all, in memory",
        PLACE,
    )
    source: str | None = key(
        None,
        "address of the dataset, https://…, http://… or s3://BUCKET/…, with its manifest.json: all of it is copied to "
        "the nodes before the run, and data.data_dir is not read; needs the extra storage. The log shows it: a user "
        "name, a password or a ? is refused",
        PLACE,
        aliases=("from", "url"),
        since="0.3.0",
    )
    stage_dir: Path | None = key(
        None,
        "folder on each node's own disk, yours alone, for one dataset and one job at a time; memory has a default",
        PLACE,
    )
    workers: int = key(4, "threads of each rank that read, verify and write", PLACE)
    checksum: bool = key(True, "compare contents with the manifest and with what was read, not only sizes", PLACE)
    inflate: bool = key(False, "decompress gzip files, so that they can be memory-mapped", PLACE)
    keep: bool = key(False, "leave the staged files on the nodes after the run, for the next one", PLACE)

    def __post_init__(self) -> None:
        check_least(self, 1, "workers")
        if self.source is not None:  # before what needs stage_dir, or that key would be blamed for a wrong source
            self._check_source(self.source)
        if self.mode in ("shard", "replicate") and self.stage_dir is None:
            raise ValueError(
                f"mode {self.mode} needs stage_dir, a folder on the node's own disk, such as $TMPDIR/staged"
            )

    def _check_source(self, source: str) -> None:
        try:
            check_address(source, ("https", "http", "s3"))
        except ValueError as error:
            raise ValueError(f"source {error}") from None
        if not {"?", "#"}.isdisjoint(source):
            raise ValueError("source has a ? or #; expected the address of a folder, in which manifest.json is")
        if self.mode not in ("replicate", "memory"):
            raise ValueError(
                f"source is set and mode {self.mode}, in which ranks read samples from shared storage; set mode to "
                "replicate or memory, so that each node gets all files"
            )


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """When checkpoints are written, and how many of the newest are kept."""

    cite: ClassVar = RESULTS

    every_epochs: int = key(
        1, "epochs between two checkpoints; the last epoch has one too; 0: write only on a signal", PLACE, unit="epochs"
    )
    keep: int = key(2, "number of the newest checkpoints to keep", PLACE, unit="checkpoints")
    best: bool = key(
        False,
        "also keep the checkpoint of the best evaluation, as checkpoints/best.pt, whatever the other two keys say",
        PLACE,
    )

    def __post_init__(self) -> None:
        if self.every_epochs < 0:
            raise ValueError(f"every_epochs is {self.every_epochs}; expected 0 (only on a signal) or more")
        if self.keep < 1:
            raise ValueError(f"keep is {self.keep}; expected at least 1, the newest checkpoint")


@dataclass(frozen=True, slots=True)
class PowerConfig:
    """How the power of each node is recorded during the run; docs/guide/power.md explains the sources."""

    cite: ClassVar = POWER

    source: str | None = key(
        None,
        "where the readings come from, as --source of common.measure power, such as command:node:watts:COMMAND; null: "
        "no power is recorded. The log shows it: name no password here",
        PLACE,
    )
    interval_s: float = key(0.5, "time between readings", PLACE, unit="s")
    efficiency: float = key(1.0, "of the power supplies at their load, if the meter is in front of them", PLACE)
    dc: bool = key(False, "the meter is behind the power supplies", PLACE)

    def __post_init__(self) -> None:
        check_power_settings(self.interval_s, self.efficiency, self.dc, names=("interval_s", "efficiency", "dc"))


def check_power_settings(interval_s: float, efficiency: float, dc: bool, names: Sequence[str]) -> None:
    """Raise UsageError for values that cannot be used. dc: direct current is measured; names: of the three."""
    interval_name, efficiency_name, dc_name = names
    if not FASTEST_S <= interval_s <= SLOWEST_S:
        raise UsageError(f"{interval_name} is {interval_s:g}; expected {FASTEST_S:g} to {SLOWEST_S:g} seconds")
    if not 0 < efficiency <= 1 or (dc and efficiency != 1):
        expected = f"1 with {dc_name}: nothing is converted" if dc else "a share, above 0 and at most 1"
        raise UsageError(f"{efficiency_name} is {efficiency:g}; expected {expected}")


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """Which steps are traced; docs/guide/train.md says what comes of it."""

    cite: ClassVar = RESULTS

    steps: int = key(
        0,
        "steps that torch.profiler traces on rank 0, in the first epoch that this process trains; 0: none",
        PLACE,
        unit="steps",
    )
    skip: int = key(3, "steps before the traced ones, in the last of which tracing starts", PLACE, unit="steps")

    def __post_init__(self) -> None:
        check_least(self, 0, "steps")
        check_least(self, 1, "skip")

    @property
    def needed(self) -> int:
        """The steps until all are traced; 0 if none are."""
        return self.skip + self.steps if self.steps else 0


@dataclass(frozen=True, slots=True)
class TrackConfig:
    """Where the metrics of a run go besides its folder."""

    cite: ClassVar = RESULTS

    to: tuple[Tracker, ...] = key(
        (), "trackers that get the run: wandb, mlflow; where they send it is set by their own environment", PLACE
    )
    project: str | None = key(
        None, "project of Weights & Biases, experiment of MLflow; null: the name of the benchmark", PLACE
    )
    name: str | None = key(None, "name of the run there; null: that of its folder", PLACE)
    every_steps: int = key(
        1, "steps from one record of a step to the next, everywhere; 0: none, only epochs", PLACE, unit="steps"
    )

    def __post_init__(self) -> None:
        if self.every_steps < 0:
            raise ValueError(f"every_steps is {self.every_steps}; expected 0 (no steps) or more")
        if len(set(self.to)) < len(self.to):
            raise ValueError(f"to is {list(self.to)}; expected each tracker once")
