"""The learning rate as a pure function of epoch and step, and how the log states it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """Warm-up from base_lr to a peak, then decay. Epochs count from 0, as in the reference; the log's from 1.

    base_lr, scaling, base_batch_size: the peak is base_lr times global_batch_size / base_batch_size ("linear"), the
        square root of this ("sqrt"), or 1 ("none").
    warmup_epochs: the rate grows evenly from base_lr, in epoch 0, to the peak, in epoch `warmup_epochs`; 0: no warm-up.
    kind: "piecewise", the reference's: the rate changes between epochs only; `decay` says how.
        "cosine": it changes with each step, and after the warm-up falls along half a cosine to 0 after cosine_epochs.
    decay: {epoch: factor of the peak}. As in the reference, a factor counts for the epochs *after* its key: key 32
        changes the rate from epoch 33 on, epoch_num 34 of the log. (NVIDIA's PyTorch submissions change it in the
        epoch itself; their boundary 20 is 19 here.)
    """

    base_lr: float = 0.001
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    base_batch_size: int = 64
    warmup_epochs: int = 4
    kind: Literal["piecewise", "cosine"] = "piecewise"
    decay: dict[int, float] = field(default_factory=dict)
    cosine_epochs: int = 0

    def __post_init__(self) -> None:
        if self.base_lr <= 0:
            raise ValueError(f"base_lr is {self.base_lr}; expected above 0")
        if self.base_batch_size < 1:
            raise ValueError(f"base_batch_size is {self.base_batch_size}; expected at least 1")
        if self.warmup_epochs < 0:
            raise ValueError(f"warmup_epochs is {self.warmup_epochs}; expected at least 0")
        for epoch, factor in self.decay.items():
            if epoch < 1 or factor <= 0:
                raise ValueError(f"decay has {epoch}: {factor}; expected an epoch of at least 1 and a factor above 0")
        if self.kind == "cosine" and (self.decay or self.cosine_epochs <= self.warmup_epochs):
            raise ValueError(
                f"kind cosine needs cosine_epochs above warmup_epochs = {self.warmup_epochs} and no decay; "
                f"got cosine_epochs = {self.cosine_epochs}, decay = {self.decay}"
            )


def scale(config: ScheduleConfig, global_batch_size: int) -> float:
    """Return the peak rate over base_lr."""
    ratio = global_batch_size / config.base_batch_size
    return {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[config.scaling]


def rate(config: ScheduleConfig, global_batch_size: int, epoch: int, step: int = 0, steps: int = 1) -> float:
    """Return the learning rate of a step of an epoch with `steps` steps; all count from 0."""
    peak = config.base_lr * scale(config, global_batch_size)
    time = epoch + step / steps if config.kind == "cosine" else epoch
    if time < config.warmup_epochs:
        return config.base_lr + time * (peak - config.base_lr) / config.warmup_epochs
    if config.kind == "cosine":
        share = (time - config.warmup_epochs) / (config.cosine_epochs - config.warmup_epochs)
        return peak * (1 + math.cos(math.pi * min(share, 1))) / 2
    past = [boundary for boundary in config.decay if boundary < epoch]
    return peak * config.decay[max(past)] if past else peak


def logged(config: ScheduleConfig, global_batch_size: int) -> dict[str, Any]:
    """Return the log's keys and values for the schedule, in the reference's order and with its conventions.

    opt_base_learning_rate is the peak. The reference logs only the largest decay factor; here each boundary has its
    own, as the rules ask, and one alone is a number.
    """
    boundaries = sorted(config.decay)
    factors = [config.decay[boundary] for boundary in boundaries]
    factor = scale(config, global_batch_size)
    return {
        "opt_base_learning_rate": config.base_lr * factor,
        "opt_learning_rate_warmup_epochs": config.warmup_epochs,
        "opt_learning_rate_warmup_factor": factor,
        "opt_learning_rate_decay_boundary_epochs": boundaries,
        "opt_learning_rate_decay_factor": factors[0] if len(factors) == 1 else factors,
    }
