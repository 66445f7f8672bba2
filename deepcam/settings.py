"""What can be configured of a DeepCAM run, and what the closed division asks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from common.reference import (
    AMOUNT,
    COUNT,
    FREE,
    GRAPH,
    ORDER,
    PREPROCESSING,
    REPRESENTATION,
    Check,
    equals,
    null_or,
    one_of,
)
from common.settings.keys import PLACE, REQUIRED, ROUTE, ClosedRule, LogValue, check_least, key, take
from common.settings.optim import MOMENTS_LOGGED, StepSchedule
from common.settings.run import RunConfig, SamplesConfig
from deepcam.reference import CHANNELS, CLASS_WEIGHTS, CLASSES, FIRST_EPSILONS, HEIGHT, REFERENCE, WIDTH

STRIDE: Final = 16
"""Pixels of the input per pixel of the network's smallest map."""
CHANNEL_UNIT: Final = 8
"""Scaled channel counts are multiples of this, as in the reference and as fast kernels need."""
WIDEST: Final = 64
"""Times the channels of the reference."""
MOST_BLOCKS: Final = 1024
SAME_WEIGHTS: Final = Check(
    str([round(weight, 5) for weight in CLASS_WEIGHTS]),
    lambda value: (
        len(value) == len(CLASS_WEIGHTS) and all(map(partial(math.isclose, rel_tol=1e-6), value, CLASS_WEIGHTS))
    ),
    list(CLASS_WEIGHTS),
)
"""Powers may differ in their last digit between machines."""


@dataclass(frozen=True, slots=True)
class DataConfig(SamplesConfig):
    """Which snapshots are read, and how."""

    data_dir: Path = key(
        REQUIRED,
        "folder with stats.h5, train and validation; with hdf5-single: stats.h5, train.h5 and validation.h5",
        PLACE,
        cite="hpc_training_rules.adoc#data-state-at-start-of-run",
    )
    height: int = key(HEIGHT, "latitudes of a snapshot", unit="pixels", closed=equals(HEIGHT), cite=REPRESENTATION)
    width: int = key(WIDTH, "longitudes of a snapshot", unit="pixels", closed=equals(WIDTH), cite=REPRESENTATION)
    channels: tuple[int, ...] = key(
        tuple(range(len(CHANNELS))),
        "numbers of the channels that the network sees, in this order",
        closed=equals(list(range(len(CHANNELS)))),
        cite=REPRESENTATION,
    )
    format: Literal["hdf5", "npy", "hdf5-single"] = key(
        "hdf5",
        "hdf5 as published, npy (pairs of files, see deepcam/data/snapshot.py), or hdf5-single (see "
        "deepcam/data/conversion.py)",
        ROUTE,
        cite="training_rules.adoc#data-state-at-start-of-run",
    )
    shuffle: Literal["global", "node", "rank"] = key(
        "global",
        "source of a rank's part of each global batch: all samples, the fixed shard of its node, or its own fixed "
        "shard; reshuffled in each epoch",
        closed=FREE,
        cite=ORDER,
    )
    direct: bool = key(
        False, "read past the kernel's cache (O_DIRECT): good for data that are read once from a fast disk", PLACE
    )
    augment: Literal["none", "symmetries"] = key(
        "none",
        "of training samples, for the open division; symmetries: rolled by any longitude, mirrored at the equator",
        closed=equals("none"),
        cite=PREPROCESSING,
    )
    pipeline: Literal["native", "dali"] = key("native", "dali: NVIDIA DALI, see deepcam/data/dali.py", PLACE)

    def __post_init__(self) -> None:
        SamplesConfig.__post_init__(self)
        for name in ("height", "width"):
            value = getattr(self, name)
            if value < 1 or value % STRIDE:
                raise ValueError(
                    f"{name} is {value}; expected a multiple of {STRIDE}, since the network halves it 4 times"
                )
        if not self.channels or len(set(self.channels)) < len(self.channels):
            raise ValueError(f"channels is {self.channels}; expected at least one, each once")
        if not set(self.channels) <= set(range(len(CHANNELS))):
            raise ValueError(f"channels is {self.channels}; expected numbers from 0 to {len(CHANNELS) - 1}")
        if self.pipeline == "dali" and (self.format != "npy" or self.cache):
            raise ValueError(
                "pipeline is dali, which reads only npy files and caches nothing; set format=npy, cache=false"
            )

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """H, W, C of a sample."""
        return self.height, self.width, len(self.channels)

    @property
    def selection(self) -> tuple[int, ...] | None:
        """The channels to select from a file; None: all, unchanged."""
        return None if self.channels == tuple(range(len(CHANNELS))) else self.channels

    def shards(self, dist: Any) -> int:
        """Return the number of shards into which `shuffle` divides the training samples. dist: of the run."""
        return {"global": 1, "node": dist.nodes, "rank": dist.world_size}[self.shuffle]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The network."""

    cite: ClassVar = GRAPH

    width: float = key(
        1.0, "factor of all channel counts, which are then rounded to multiples of 8", closed=equals(1.0)
    )
    middle_blocks: int = key(
        16, "residual blocks of three convolutions between entry and exit", unit="blocks", closed=equals(16)
    )
    output_stride: Literal[8, 16] = key(16, "side of the snapshot over that of the deepest features", closed=equals(16))
    aspp_rates: tuple[int, ...] | None = key(
        None,
        "dilations of the parallel convolutions that read the deepest features, 1 for a 1 x 1 convolution; null: "
        "(1, 6, 12, 18), doubled after the first for output_stride 8",
        closed=null_or(equals([1, 6, 12, 18])),
    )
    # The choices of these two are those of the reference and of NVIDIA's closed results, which were accepted in rounds
    # 1.0 to 3.0.
    low_level: Literal["after_relu", "before_relu"] = key(
        "after_relu",
        "whether the decoder sees the features of the first block after the ReLU that follows it. In the reference it "
        "does, as that ReLU works in place; in NVIDIA's implementations it sees those before",
        closed=FREE,
        cite="deepcam/README.md",
    )
    init: Literal["reference", "nvidia"] = key(
        "reference",
        "nvidia: the initial weights of NVIDIA's implementations since round 2.0",
        closed=FREE,
        cite="deepcam/README.md",
    )

    def __post_init__(self) -> None:
        if not 0 < self.width <= WIDEST:
            raise ValueError(f"width is {self.width:g}; expected more than 0, at most {WIDEST}")
        if not 0 <= self.middle_blocks <= MOST_BLOCKS:
            raise ValueError(f"middle_blocks is {self.middle_blocks:,}; expected 0 to {MOST_BLOCKS:,}")
        if self.aspp_rates is not None and (not self.aspp_rates or min(self.aspp_rates) < 1):
            raise ValueError(f"aspp_rates is {self.aspp_rates}; expected one or more numbers from 1 on")

    def channels(self, full: int) -> int:
        """Return the channel count of a layer that has `full` channels in the reference."""
        return max(1, round(full * self.width / CHANNEL_UNIT)) * CHANNEL_UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RunConfig):
    """The configuration of a DeepCAM run."""

    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    schedule: StepSchedule = field(default_factory=StepSchedule)
    batchnorm_group_size: int = key(
        1,
        "number of consecutive ranks that share the statistics of batch normalisation",
        unit="ranks",
        closed=COUNT.such_as(1),
        logged_as="batchnorm_group_size",
    )
    class_weights: tuple[float, ...] = key(
        CLASS_WEIGHTS,
        "weights of background, cyclones and rivers in the loss; default: the reference's",
        closed=SAME_WEIGHTS,
        cite="hpc_training_rules.adoc#closed-division",
    )
    compile: bool | Literal["auto"] = key(
        "auto",
        "true: compile the network by torch.compile before the run starts, which takes about a minute; batches of "
        "other sizes, such as the last of an epoch, are computed without. auto: in the warm-up, on cards where it was "
        "measured (H100: 17 % of a step less at batch 8), in runs long enough to gain",
        PLACE,
    )

    reference = REFERENCE
    closed: ClassVar[Mapping[str, ClosedRule]] = {
        "optim.name": {"0.7": one_of("lamb", "adamw"), "1.0": one_of("adam", "adamw", "lamb").such_as("lamb")},
        "optim.eps": {"0.7": FIRST_EPSILONS.such_as(1e-6), "1.0": equals(1e-6)},
        "optim.weight_decay": AMOUNT.such_as(0.01),
        "optim.max_grad_norm": equals(1.0),
        "optim.betas": FREE,
        "optim.momentum": FREE,  # none of the allowed optimizers has one
    }
    logs: ClassVar[Mapping[str, LogValue]] = {
        "gradient_accumulation_frequency": take("train.accumulation"),
        **MOMENTS_LOGGED,
    }

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)  # super() fails in classes with slots before Python 3.14
        check_least(self, 1, "batchnorm_group_size")
        if len(self.class_weights) != len(CLASSES) or min(self.class_weights) <= 0:
            raise ValueError(f"class_weights is {self.class_weights}; expected {len(CLASSES)} numbers above 0")
        if self.instances.bags and self.data.shuffle != "global":
            raise ValueError(
                f"instances.bagging is {self.instances.bagging}, but data.shuffle is {self.data.shuffle}: shards are "
                "parts of all samples, and an instance draws some several times; set data.shuffle=global"
            )
        if self.staging.mode == "shard" and self.data.format == "hdf5-single":
            raise ValueError(
                "staging.mode is shard, which deals files to the nodes, but data.format is hdf5-single, one file for "
                "all samples: set staging.mode to replicate, memory or none, or data.format to npy or hdf5"
            )
        if self.compile is True and self.batchnorm_group_size > 1:
            raise ValueError(
                f"compile is true, but batchnorm_group_size is {self.batchnorm_group_size}: batch normalisation over "
                "several ranks cannot be compiled; set compile to false or auto"
            )
        if self.dist.record_reduction and self.batchnorm_group_size > 1:
            raise ValueError(
                f"dist.record_reduction is true, but batchnorm_group_size is {self.batchnorm_group_size}: recordings "
                "would have messages of two communicators, of which NCCL warns that they may deadlock; set "
                "dist.record_reduction to false"
            )
