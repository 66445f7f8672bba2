"""Optimizer and learning rate: the keys, the rate as a function of epoch and step, and what a log states of both."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from common.reference import FREE, SHARE, equals
from common.settings.keys import ROUTE, Configuration, LogValue, check_least, key, log_if, take

LOG_NAMES: Final = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "lamb": "LAMB", "muon": "Muon"}
WITH_MOMENTS: Final = ("adam", "adamw", "lamb")


def log_name(config: Configuration) -> str:
    """Return the name that the references log as opt_name."""
    name: str = config("optim.name")
    return LOG_NAMES.get(name, name)


def log_betas(config: Configuration) -> list[Any]:
    """Return the decay rates of both moments; an optimizer with only a momentum logs it as its only beta."""
    return list(config("optim.betas")) if config("optim.name") in WITH_MOMENTS else [config("optim.momentum")]


MOMENTS_LOGGED: Final[Mapping[str, LogValue]] = {
    "opt_betas": log_betas,
    "opt_eps": log_if("optim.name", WITH_MOMENTS, take("optim.eps"), 0.0),
    "opt_weight_decay": log_if("optim.name", WITH_MOMENTS, take("optim.weight_decay"), 0.0),
    "opt_bias_correction": log_if("optim.name", ("lamb",), lambda config: True),
    "opt_grad_averaging": log_if("optim.name", ("lamb",), lambda config: True),
    "opt_max_grad_norm": log_if("optim.name", ("lamb",), take("optim.max_grad_norm")),
}
"""The optimizer's constants, as DeepCAM's reference logs them."""


@dataclass(frozen=True, slots=True)
class OptimConfig:
    """The optimizer and its constants; constants of other optimizers are ignored; one of your own may read any."""

    name: str = key(
        "sgd",
        "the optimizer: sgd, adam, adamw, lamb, muon, which is for the open division, or one that a module of "
        "train.imports registers",
        aliases=("optimizer",),
    )
    momentum: float = key(0.9, "momentum of sgd and muon")
    weight_decay: float = key(
        0.0, "of adam, as an L2 term of the gradient; of adamw and lamb, decoupled from the gradient"
    )
    betas: tuple[float, float] = key((0.9, 0.999), "of adam, adamw and lamb: decay rates of both moments")
    eps: float = key(1e-8, "of adam, adamw and lamb: added to the square root of the second moment")
    max_grad_norm: float = key(1.0, "of lamb: the global gradient norm is clipped to this")
    fused: Literal["auto", "apex", "mixed_precision", "off"] = key(
        "auto",
        "auto: torch's fused kernels; off: none, except that lamb always updates its moments with them; apex, for "
        "adam, adamw and lamb: FusedAdam and FusedLAMB of NVIDIA's apex, an error without it or a GPU (FusedLAMB takes "
        "its rate as a number, so that steps are not recorded); mixed_precision, for lamb: apex's variant that keeps "
        "rate and step count on the device and unscales fp16 gradients itself",
        ROUTE,
    )

    def __post_init__(self) -> None:
        for name, value in (("momentum", self.momentum), ("betas", self.betas[0]), ("betas", self.betas[1])):
            if not 0 <= value < 1:
                raise ValueError(f"{name} has {value}; expected 0 <= value < 1")
        check_least(self, 0, "weight_decay")
        if self.name == "sgd" and self.weight_decay:
            raise ValueError(
                f"weight_decay is {self.weight_decay}, but name is sgd, which has none; set weight_decay=0 "
                "(CosmoFlow's L2 regularisation is model.l2)"
            )
        if self.eps <= 0 or self.max_grad_norm <= 0:
            raise ValueError(f"eps is {self.eps} and max_grad_norm is {self.max_grad_norm}; expected both above 0")
        if self.fused == "mixed_precision" and self.name != "lamb":
            raise ValueError(f"fused is mixed_precision, which is for lamb, but name is {self.name}; set fused=auto")
        if self.fused == "apex" and self.name not in WITH_MOMENTS:
            raise ValueError(f"fused is apex, which has no kernels for {self.name} here; set fused=auto")

    logs: ClassVar[Mapping[str, LogValue]] = {"opt_name": log_name}


RATE: Final = ("lr", "learning_rate")
"""Other names that users try for base_lr."""


class Schedule(ABC):
    """The section `schedule` of a configuration, which gives the learning rate of each step."""

    __slots__ = ()
    base_lr: float

    @abstractmethod
    def rate(self, global_batch_size: int, epoch: int, step: int = 0, steps: int = 1) -> float:
        """Return the learning rate of a step of an epoch that has `steps` steps; both count from 0."""

    def warmed_up(self, steps: int | None) -> dict[str, float]:
        """Return, by the key that says so, after how many epochs the warm-up ends. steps: of an epoch, if known."""
        return {}


def scaling_factor(scaling: str, global_batch_size: int, base_batch_size: int) -> float:
    """Return the peak rate divided by base_lr."""
    ratio = global_batch_size / base_batch_size
    return {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[scaling]


def log_factor(config: Configuration) -> float:
    """Return the peak rate divided by schedule.base_lr."""
    return scaling_factor(
        config("schedule.scaling"), config("train.global_batch_size"), config("schedule.base_batch_size")
    )


def log_peak(config: Configuration) -> float:
    """Return the peak rate."""
    return float(config("schedule.base_lr") * log_factor(config))


def list_decay_epochs(config: Configuration) -> list[int]:
    """Return the epochs after which the rate decays; in the JSON of a log they are text."""
    return sorted(map(int, config("schedule.decay")))


def log_decay(config: Configuration) -> float | list[float]:
    """Return the decay factors in the order of their epochs, a single one as a number.

    The reference logs only the largest; here each boundary has its factor, as the rules ask.
    """
    by_epoch = {int(epoch): factor for epoch, factor in config("schedule.decay").items()}
    factors = [by_epoch[epoch] for epoch in list_decay_epochs(config)]
    return factors[0] if len(factors) == 1 else factors


@dataclass(frozen=True, slots=True)
class EpochSchedule(Schedule):
    """CosmoFlow's schedule, in epochs: warm-up from base_lr to a peak, then decay. Epochs count from 0, in logs from 1.

    As in the reference, a factor of `decay` applies to the epochs *after* its key: key 32 changes the rate from epoch
    33 on, epoch_num 34 of the log. (NVIDIA's PyTorch submissions change it in the epoch itself; their 20 is 19 here.)
    """

    base_lr: float = key(
        0.001,
        "rate at the start of the warm-up; the peak rate is base_lr times the scaling factor",
        aliases=RATE,
        closed=FREE,
    )
    scaling: Literal["linear", "sqrt", "none"] = key(
        "linear",
        "scaling factor: train.global_batch_size / base_batch_size (linear), its square root (sqrt), or 1 (none)",
        closed=FREE,
    )
    base_batch_size: int = key(64, "global batch size at which base_lr is the peak rate", unit="samples", closed=FREE)
    warmup_epochs: int = key(
        4,
        "the rate grows linearly from base_lr in epoch 0 to the peak in this epoch; 0: no warm-up",
        unit="epochs",
        closed=FREE,
        logged_as="opt_learning_rate_warmup_epochs",
    )
    kind: Literal["piecewise", "cosine"] = key(
        "piecewise",
        "piecewise, as in the reference: the rate changes between epochs only, as decay says; cosine: it changes with "
        "each step, and after the warm-up falls along half a cosine to 0 at cosine_epochs",
        closed=equals("piecewise"),
    )
    decay: dict[int, float] = key(
        {},
        "{epoch: factor}: from the next epoch on, the rate is the peak times the factor; epochs count from 0",
        unit="epochs",
        closed=FREE,
    )
    cosine_epochs: int = key(0, "of cosine: epochs after which the rate is 0", unit="epochs", closed=FREE)

    logs: ClassVar[Mapping[str, LogValue]] = {
        "opt_base_learning_rate": log_peak,
        "opt_learning_rate_warmup_factor": log_factor,
        "opt_learning_rate_decay_boundary_epochs": list_decay_epochs,
        "opt_learning_rate_decay_factor": log_decay,
    }

    def __post_init__(self) -> None:
        if self.base_lr <= 0:
            raise ValueError(f"base_lr is {self.base_lr}; expected above 0")
        check_least(self, 1, "base_batch_size")
        check_least(self, 0, "warmup_epochs")
        for epoch, factor in self.decay.items():
            if epoch < 1 or factor <= 0:
                raise ValueError(f"decay has {epoch}: {factor}; expected an epoch of at least 1 and a factor above 0")
        if self.kind == "cosine" and (self.decay or self.cosine_epochs <= self.warmup_epochs):
            raise ValueError(
                f"kind cosine needs cosine_epochs above warmup_epochs = {self.warmup_epochs} and no decay; "
                f"got cosine_epochs = {self.cosine_epochs}, decay = {self.decay}"
            )

    def rate(self, global_batch_size: int, epoch: int, step: int = 0, steps: int = 1) -> float:
        """Return the learning rate, the same for all steps of an epoch with "piecewise"."""
        peak = self.base_lr * scaling_factor(self.scaling, global_batch_size, self.base_batch_size)
        time = epoch + step / steps if self.kind == "cosine" else epoch
        if time < self.warmup_epochs:
            return self.base_lr + time * (peak - self.base_lr) / self.warmup_epochs
        if self.kind == "cosine":
            share = (time - self.warmup_epochs) / (self.cosine_epochs - self.warmup_epochs)
            return peak * (1 + math.cos(math.pi * min(share, 1))) / 2
        past = [boundary for boundary in self.decay if boundary < epoch]
        return peak * self.decay[max(past)] if past else peak

    def warmed_up(self, steps: int | None) -> dict[str, float]:
        """Return when the warm-up ends; no number of steps is needed."""
        return {"warmup_epochs": float(self.warmup_epochs)}


@dataclass(frozen=True, slots=True)
class StepSchedule(Schedule):
    """DeepCAM's schedule: warm-up and decay in optimizer steps.

    The reference never reaches the full rate after a warm-up (it stays at the last rate of the warm-up, base_lr times
    (warmup_steps - 1) / warmup_steps), without one its multistep decays a step earlier than after one, and its cosine
    rises again after t_max steps. Here each number means what its key says: a milestone changes the rate of the step
    with number warmup_steps + milestone + 1, as in the reference after a warm-up, and the cosine ends, as there, t_max
    steps after its first, which is the first at the full rate.
    """

    base_lr: float = key(
        0.001, "rate after the warm-up, divided by warmup_factor", aliases=RATE, closed=FREE, logged_as="opt_lr"
    )
    warmup_steps: int = key(
        0,
        "number of the first step at the full rate, counted from 1; 0: no warm-up",
        unit="steps",
        closed=FREE,
        logged_as="scheduler_lr_warmup_steps",
    )
    warmup_factor: float = key(
        1.0,
        "1: the rate grows linearly from 0 to base_lr; above 1: from base_lr to base_lr times this factor",
        closed=FREE,
        logged_as="scheduler_lr_warmup_factor",
    )
    kind: Literal["multistep", "cosine_annealing"] = key(
        "multistep",
        "multistep: at each milestone the rate is multiplied by decay_rate; cosine_annealing: it falls along half a "
        "cosine to eta_min within t_max steps and stays there",
        closed=FREE,
        logged_as="scheduler_type",
    )
    milestones: tuple[int, ...] = key(
        (), "of multistep: steps after the warm-up at which the rate decays", unit="steps", closed=FREE
    )
    decay_rate: float = key(0.1, "of multistep: factor at each milestone", closed=FREE)
    t_max: int = key(0, "of cosine_annealing: length of the decay", unit="steps", closed=FREE)
    eta_min: float = key(0.0, "of cosine_annealing: final rate", closed=FREE)

    logs: ClassVar[Mapping[str, LogValue]] = {
        "scheduler_milestones": log_if("schedule.kind", ("multistep",), take("schedule.milestones")),
        "scheduler_decay_rate": log_if("schedule.kind", ("multistep",), take("schedule.decay_rate")),
        "scheduler_t_max": log_if("schedule.kind", ("cosine_annealing",), take("schedule.t_max")),
        "scheduler_eta_min": log_if("schedule.kind", ("cosine_annealing",), take("schedule.eta_min")),
    }

    def __post_init__(self) -> None:
        if self.base_lr <= 0 or not 0 <= self.eta_min < self.base_lr:
            raise ValueError(f"base_lr is {self.base_lr}, eta_min {self.eta_min}; expected 0 <= eta_min < base_lr")
        if self.warmup_steps < 0 or self.warmup_factor < 1:
            raise ValueError(
                f"warmup_steps is {self.warmup_steps}, warmup_factor {self.warmup_factor}; expected at least 0 and 1"
            )
        if not 0 < self.decay_rate <= 1:
            raise ValueError(f"decay_rate is {self.decay_rate}; expected 0 < decay_rate <= 1")
        if list(self.milestones) != sorted(set(self.milestones)) or min(self.milestones, default=1) < 1:
            raise ValueError(f"milestones is {list(self.milestones)}; expected rising numbers of at least 1")
        if self.kind == "cosine_annealing" and (self.milestones or self.t_max < 1):
            raise ValueError(
                f"kind cosine_annealing needs t_max of at least 1 and no milestones; got t_max = {self.t_max}, "
                f"milestones = {list(self.milestones)}"
            )

    def rate(self, global_batch_size: int, epoch: int, step: int = 0, steps: int = 1) -> float:
        """Return the learning rate; the global batch size does not affect it."""
        number = epoch * steps + step + 1
        if number < self.warmup_steps:
            share = number / self.warmup_steps
            return self.base_lr * (1 + (self.warmup_factor - 1) * share if self.warmup_factor > 1 else share)
        full = self.base_lr * self.warmup_factor
        if self.kind == "cosine_annealing":
            share = min((number - max(self.warmup_steps, 1)) / self.t_max, 1)
            return self.eta_min + (full - self.eta_min) * (1 + math.cos(math.pi * share)) / 2
        since = number - self.warmup_steps - 1
        return full * self.decay_rate ** sum(milestone <= since for milestone in self.milestones)

    def warmed_up(self, steps: int | None) -> dict[str, float]:
        """Return when the warm-up ends."""
        return {"warmup_steps": self.warmup_steps / steps} if steps else {}


@dataclass(frozen=True, slots=True)
class BoundarySchedule(Schedule):
    """OC20's schedule: warm-up and decay in optimizer steps, which count from 0."""

    base_lr: float = key(
        0.0004, "rate after the warm-up", aliases=RATE, closed=FREE, logged_as="opt_base_learning_rate"
    )
    warmup_steps: int = key(
        0,
        "the rate grows linearly from warmup_factor * base_lr in step 0 to base_lr in this step; 0: no warm-up",
        unit="steps",
        closed=FREE,
        logged_as="opt_learning_rate_warmup_steps",
    )
    warmup_factor: float = key(
        0.2,
        "the rate in step 0, divided by base_lr",
        closed=SHARE.such_as(0.2),
        logged_as="opt_learning_rate_warmup_factor",
    )
    boundaries: tuple[int, ...] = key(
        (),
        "steps at which the rate is multiplied by decay_factor",
        unit="steps",
        closed=FREE,
        logged_as="opt_learning_rate_decay_boundary_steps",
    )
    decay_factor: float = key(
        0.1, "factor at each boundary", closed=SHARE.such_as(0.1), logged_as="opt_learning_rate_decay_factor"
    )

    def __post_init__(self) -> None:
        if self.base_lr <= 0 or self.warmup_steps < 0:
            raise ValueError(
                f"base_lr is {self.base_lr}, warmup_steps {self.warmup_steps}; expected above 0 and at least 0"
            )
        for name in ("warmup_factor", "decay_factor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 to 1")
        if list(self.boundaries) != sorted(set(self.boundaries)) or min(self.boundaries, default=1) < 1:
            raise ValueError(f"boundaries is {list(self.boundaries)}; expected rising numbers of at least 1")

    def rate(self, global_batch_size: int, epoch: int, step: int = 0, steps: int = 1) -> float:
        """Return the learning rate; the global batch size does not affect it."""
        number = epoch * steps + step
        if number < self.warmup_steps:
            share = number / self.warmup_steps
            return self.base_lr * (self.warmup_factor * (1 - share) + share)
        return self.base_lr * self.decay_factor ** sum(boundary <= number for boundary in self.boundaries)

    def warmed_up(self, steps: int | None) -> dict[str, float]:
        """Return when the warm-up ends."""
        return {"warmup_steps": self.warmup_steps / steps} if steps else {}
