"""Which optimizer a run has, its constants, and how the references log them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

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
