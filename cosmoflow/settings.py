"""What can be configured of a CosmoFlow run, and what the closed division asks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from common.reference import (
    AMOUNT,
    EXECUTION,
    FREE,
    GRAPH,
    HYPERPARAMETERS,
    PREPROCESSING,
    REPRESENTATION,
    Check,
    equals,
    number,
)
from common.settings.keys import PLACE, ROUTE, ClosedRule, LogValue, check_least, key, log_if, take
from common.settings.optim import EpochSchedule
from common.settings.run import RunConfig, SamplesConfig
from cosmoflow.reference import REFERENCE

AXES: Final = "DH"
"""The axes of a sample that ranks can share."""
FACTORS: Final = Check(
    "factors with 0 < v < 1",
    lambda value: all(int(epoch) >= 0 and 0 < value[epoch] < 1 for epoch in value),
    {"19": 0.5, "21": 0.25, "22": 0.125, "23": 0.0625},
)


@dataclass(frozen=True, slots=True)
class DataConfig(SamplesConfig):
    """Which samples are read, and how."""

    sample_shape: tuple[int, int, int, int] = key(
        (128, 128, 128, 4), "D, H, W, C of a sample", closed=equals([128, 128, 128, 4]), cite=REPRESENTATION
    )
    format: Literal["tfrecord", "npy", "packed"] = key(
        "tfrecord",
        "tfrecord (gzipped or not), npy (pairs of files, see cosmoflow/data/sample_files.py), or packed (the same "
        "counts in a quarter of the bytes, see cosmoflow/data/packed.py)",
        ROUTE,
        cite="training_rules.adoc#data-state-at-start-of-run",
    )
    apply_log: bool = key(
        True,
        "feed the network log(1 + x); otherwise each sample divided by its mean",
        closed=equals(True),
        cite=PREPROCESSING,
    )
    shift: float = key(
        0.0, "for the open division: the network sees (input - shift) / scale", closed=equals(0.0), cite=PREPROCESSING
    )
    scale: float = key(1.0, "for the open division: see shift", closed=equals(1.0), cite=PREPROCESSING)
    augment: Literal["none", "symmetries", "vector_symmetries"] = key(
        "none",
        "of training samples, for the open division; symmetries: each epoch shows a sample under one of the 48 "
        "symmetries of the cube; vector_symmetries: the last three labels are a vector along its axes and turn with it",
        closed=equals("none"),
        cite=PREPROCESSING,
    )
    roll_step: int = key(
        0,
        "with symmetries, also shift samples periodically by multiples of this; 0: do not. Valid for whole boxes, "
        "if a shift maps the particle lattice to itself: 2 for 48 particles on 32 voxels",
        unit="voxels",
        closed=equals(0),
        cite=PREPROCESSING,
    )
    verify_crc: bool = key(False, "compare the CRC of each TFRecord", PLACE)
    pipeline: Literal["native", "dali"] = key(
        "native", "dali: NVIDIA DALI, see cosmoflow/data/dali.py; not measured on a GPU", PLACE
    )

    def __post_init__(self) -> None:
        SamplesConfig.__post_init__(self)
        if not math.isfinite(self.shift):
            raise ValueError(f"shift is {self.shift}; expected a finite number")
        if not 0 < self.scale < math.inf or self.roll_step < 0:
            raise ValueError(f"scale is {self.scale}, roll_step {self.roll_step}; expected above 0 and at least 0")
        if min(self.sample_shape) < 1:
            raise ValueError(f"sample_shape is {self.sample_shape}; expected four numbers of at least 1")
        if self.augment != "none" and len(set(self.sample_shape[:3])) > 1:
            raise ValueError(
                f"augment is {self.augment!r}, but sample_shape is {list(self.sample_shape)}, not a cube; "
                "set augment=none"
            )
        if self.verify_crc and self.format != "tfrecord":
            raise ValueError(
                "verify_crc needs format=tfrecord: npy files have no checksum, and packed ones are always compared"
            )
        if self.pipeline == "dali" and (self.verify_crc or self.cache):
            raise ValueError(
                "pipeline is dali, which neither verifies checksums nor caches; set verify_crc=false, cache=false"
            )
        if self.pipeline == "dali" and self.format == "packed":
            raise ValueError("pipeline is dali, which reads no packed samples; set pipeline=native")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The network."""

    cite: ClassVar = GRAPH

    conv_size: int = key(
        32, "channels of the first convolution; each further one doubles them", unit="channels", closed=equals(32)
    )
    kernel_size: int = key(
        3, "side of the kernels; 2 in round 0.7", unit="voxels", closed={"0.7": equals(2), "1.0": equals(3)}
    )
    conv_layers: int = key(
        5, "convolutions, each followed by pooling that halves the sides", unit="layers", closed=equals(5)
    )
    fc1: int = key(128, "size of the first hidden dense layer", unit="features", closed=equals(128))
    fc2: int = key(64, "size of the second hidden dense layer", unit="features", closed=equals(64))
    dropout: float = key(
        0.5,
        "share of the hidden dense features that a training step leaves out",
        closed=number("with 0 <= v < 1", lambda value: 0 <= value < 1).such_as(0.0),
        cite=HYPERPARAMETERS,
        logged_as="dropout",
    )
    l2: float = key(
        0.0,
        "lambda of the L2 regularisation of the hidden dense layers",
        closed=AMOUNT.such_as(0.01),
        cite=HYPERPARAMETERS,
    )
    kernels: Literal["torch", "triton", "fused"] = key(
        "torch",
        "how a block is computed: by torch's own operations; triton, on a GPU: pooling, bias and activation are one "
        "kernel (cosmoflow/kernels.py); fused: so is the whole first block, in bf16 and fp16",
        ROUTE,
        cite=EXECUTION,
    )

    def __post_init__(self) -> None:
        check_least(self, 1, "conv_size", "kernel_size", "conv_layers", "fc1", "fc2")
        check_least(self, 0, "l2")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; expected 0 <= dropout < 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RunConfig):
    """The configuration of a CosmoFlow run."""

    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    schedule: EpochSchedule = field(default_factory=EpochSchedule)

    shares_samples = True
    reference = REFERENCE
    closed: ClassVar[Mapping[str, ClosedRule]] = {
        "optim.name": equals("sgd"),
        "optim.momentum": equals(0.9),
        "optim.weight_decay": equals(0.0),
        **dict.fromkeys(("optim.betas", "optim.eps", "optim.max_grad_norm"), FREE),  # sgd has none of them
        "schedule.decay": FACTORS,
    }
    logs: ClassVar[Mapping[str, LogValue]] = {
        "gradient_accumulation_steps": take("train.accumulation"),
        "sgd_opt_momentum": log_if("optim.name", ("sgd",), take("optim.momentum")),
        # Lambda of the L2 regularisation, or that of the optimizer.
        "opt_weight_decay": lambda config: config("model.l2") or config("optim.weight_decay"),
    }

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)  # super() fails in classes with slots before Python 3.14
        check_sides(self.model, self.data.sample_shape)
        check_shared(self)


def check_sides(config: ModelConfig, sample_shape: tuple[int, int, int, int]) -> None:
    """Raise ValueError for samples (D, H, W, C) with a side that the blocks would halve to nothing.

    Also for kernels of twice the smallest side or more, whose outer voxels would only ever meet padding.
    """
    *sides, _ = sample_shape
    most = min(sides).bit_length() - 1
    if config.conv_layers > most:
        raise ValueError(
            f"data.sample_shape is {list(sample_shape)}, too small for model.conv_layers = {config.conv_layers}, each "
            f"of which halves the sides; expected at most {most} layers, or larger samples"
        )
    last = min(sides) >> (config.conv_layers - 1)
    if config.kernel_size >= 2 * last:
        raise ValueError(
            f"model.kernel_size is {config.kernel_size}, but the last of model.conv_layers = {config.conv_layers} sees "
            f"only {last} voxels a side of data.sample_shape {list(sample_shape)}; expected less than {2 * last}"
        )


def check_shared(config: Any) -> None:
    """Raise ValueError for a configuration whose samples several ranks cannot share, if that is asked for."""
    spatial, data = config.dist.spatial_text, config.data
    if config.dist.sharing == 1:
        return
    if config.model.kernels != "torch":
        raise ValueError(
            f"dist.spatial is {spatial} and model.kernels {config.model.kernels}, but halos are only for torch's "
            "convolutions; set model.kernels=torch"
        )
    if data.pipeline == "dali":
        raise ValueError(
            f"dist.spatial is {spatial} and data.pipeline dali, which reads whole samples; set it to native"
        )
    if data.format == "packed":
        raise ValueError(
            f"dist.spatial is {spatial} and data.format packed, which is read whole; repack the samples as npy"
        )
    if not data.apply_log:
        raise ValueError(
            f"dist.spatial is {spatial} and data.apply_log false, but no rank knows the mean of a whole sample; set "
            "data.apply_log=true"
        )
    reach = config.model.kernel_size // 2
    for axis, side, extent in zip(AXES, data.sample_shape, config.dist.extents, strict=False):
        if problem := why_indivisible(side, extent, reach):
            raise ValueError(
                f"dist.spatial is {spatial}, but data.sample_shape is {list(data.sample_shape)}: {extent} ranks cannot "
                f"share the {side} voxels along {axis}, {problem}"
            )


def why_indivisible(side: int, extent: int, reach: int) -> str:
    """Return why ranks cannot share the voxels along an axis before a block; "" if they can.

    side: voxels. extent: ranks. reach: voxels on each side of its own that the kernel needs at most.
    """
    share = side // extent
    if extent == 1:
        return ""
    if not share:
        return "some would have none; expected fewer ranks"
    if side % extent:
        return f"which they do not divide; expected a multiple of {2 * extent}"
    if share % 2:
        return f"{share} each, which pooling cannot halve; expected a multiple of {2 * extent}"
    if share < reach:
        return f"{share} each, less than the kernel reaches; expected fewer ranks"
    return ""
