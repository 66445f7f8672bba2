"""What can be configured of a New Benchmark run, and what the closed division asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from common.reference import FREE, equals
from common.settings.keys import ClosedRule, LogValue, check_least, key, take
from common.settings.optim import EpochSchedule
from common.settings.run import RunConfig, SamplesConfig

from newbenchmark.reference import REFERENCE


@dataclass(frozen=True, slots=True)
class DataConfig(SamplesConfig):
    """Which samples, and how they are read."""

    side: int = key(64, "side of a plate", unit="cells", closed=equals(64))

    def __post_init__(self) -> None:
        SamplesConfig.__post_init__(self)
        check_least(self, 1, "side")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The network."""

    channels: int = key(16, "of each convolution", unit="channels", closed=equals(16))
    layers: int = key(3, "convolutions; all but the last halve the plate", unit="layers", closed=equals(3))

    def __post_init__(self) -> None:
        check_least(self, 1, "channels", "layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RunConfig):
    """The configuration of a New Benchmark run."""

    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    schedule: EpochSchedule = field(default_factory=EpochSchedule)

    reference = REFERENCE
    closed: ClassVar[Mapping[str, ClosedRule]] = {
        "optim.name": equals("adamw"),
        "optim.weight_decay": equals(0.0),
        "optim.betas": equals([0.9, 0.999]),
        "optim.eps": equals(1e-8),
        **dict.fromkeys(("optim.momentum", "optim.max_grad_norm"), FREE),  # adamw has neither
    }
    """What the closed division asks of keys that benchmarks share: one value, a condition, or nothing."""
    logs: ClassVar[Mapping[str, LogValue]] = {"gradient_accumulation_steps": take("train.accumulation")}
    """Hyperparameters of the log beside the keys that say `logged_as`; the checker compares both."""
