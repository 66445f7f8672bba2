"""The optimizers: SGD with Keras's momentum, Adam, AdamW and LAMB, and Muon for the open division."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from common.config import ROUTE, key

LOG_NAMES: Final = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "lamb": "LAMB", "muon": "Muon"}


@dataclass(frozen=True, slots=True)
class OptimConfig:
    """The optimizer and its constants; constants of other optimizers are ignored."""

    name: Literal["sgd", "adam", "adamw", "lamb", "muon"] = key("sgd", "the optimizer; muon is for the open division")
    momentum: float = key(0.9, "momentum of sgd and muon")
    weight_decay: float = key(
        0.0, "of adam, as an L2 term of the gradient; of adamw and lamb, decoupled from the gradient"
    )
    betas: tuple[float, float] = key((0.9, 0.999), "of adam, adamw and lamb: decay rates of both moments")
    eps: float = key(1e-8, "of adam, adamw and lamb: added to the square root of the second moment")
    max_grad_norm: float = key(1.0, "of lamb: the global gradient norm is clipped to this")
    fused: Literal["auto", "mixed_precision", "off"] = key(
        "auto",
        "auto: the fused kernels of NVIDIA's apex where it is installed, otherwise torch's; off: neither, except that "
        "lamb always updates its moments with torch's; mixed_precision, for lamb: the variant of apex that keeps rate "
        "and step count on the device and unscales fp16 gradients itself, an error where apex is not installed",
        ROUTE,
    )

    def __post_init__(self) -> None:
        for name, value in (("momentum", self.momentum), ("betas", self.betas[0]), ("betas", self.betas[1])):
            if not 0 <= value < 1:
                raise ValueError(f"{name} has {value}; expected 0 <= value < 1")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay is {self.weight_decay}; expected at least 0")
        if self.name == "sgd" and self.weight_decay:
            raise ValueError("weight_decay is not used by sgd; set CosmoFlow's L2 regularisation by model.l2")
        if self.eps <= 0 or self.max_grad_norm <= 0:
            raise ValueError(f"eps is {self.eps} and max_grad_norm is {self.max_grad_norm}; expected both above 0")
        if self.fused == "mixed_precision" and self.name != "lamb":
            raise ValueError(f"fused is mixed_precision, which is for lamb; {self.name} has auto and off")

    @property
    def log_name(self) -> str:
        """The name that the references log as opt_name."""
        return LOG_NAMES[self.name]


def logged(config: OptimConfig) -> dict[str, Any]:
    """Return the optimizer's keys and values for the log, in the order of DeepCAM's reference, without the rate.

    An optimizer with only a momentum logs it as its only beta; one without epsilon logs 0.
    """
    with_moments = config.name in ("adam", "adamw", "lamb")
    entries: dict[str, Any] = {
        "opt_name": config.log_name,
        "opt_betas": list(config.betas) if with_moments else [config.momentum],
        "opt_eps": config.eps if with_moments else 0.0,
        "opt_weight_decay": config.weight_decay if with_moments else 0.0,
    }
    if config.name == "lamb":
        entries |= {"opt_bias_correction": True, "opt_grad_averaging": True, "opt_max_grad_norm": config.max_grad_norm}
    return entries


def build(config: OptimConfig, parameters: Iterable[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """Return the optimizer of the parameters; `set_rate` changes its learning rate.

    On CUDA, adam, adamw and lamb use the kernels of apex (untested: written from apex's documentation).
    """
    parameters = list(parameters)
    on_cuda = all(parameter.is_cuda for parameter in parameters)
    apex = apex_optimizers() if config.fused != "off" and on_cuda else None
    options: dict[str, Any] = {"betas": config.betas, "eps": config.eps, "weight_decay": config.weight_decay}
    match config.name:
        case "sgd":
            return KerasSGD(parameters, lr, config.momentum)
        case "muon":
            return Muon(parameters, lr, config.momentum)
        case "lamb":
            return _lamb(config.fused, apex)(parameters, lr, max_grad_norm=config.max_grad_norm, **options)
        case "adam" | "adamw" if apex:
            adam_w_mode = config.name == "adamw"
            return apex.FusedAdam(parameters, lr, adam_w_mode=adam_w_mode, **options)
        case _:
            adam = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
            return adam(parameters, lr, fused=config.fused == "auto", **options)


def _lamb(fused: str, apex: Any) -> Any:
    """Return the class for lamb; those of apex, with their defaults, implement the same algorithm as ours."""
    if fused == "mixed_precision":
        if apex is None:
            raise ValueError("optim.fused is mixed_precision, which needs NVIDIA's apex and a GPU; set it to auto")
        return apex.FusedMixedPrecisionLamb
    return apex.FusedLAMB if apex else Lamb


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of the next step; a rate that is a tensor is changed in place."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def apex_optimizers() -> Any:
    """Return NVIDIA's `apex.optimizers`, or None if it or its kernels are not installed.

    The `apex` on PyPI is another project: the files tell which it is, before any of its code runs.
    """
    found = importlib.util.find_spec("apex")
    folders = (found and found.submodule_search_locations) or []
    is_nvidia = any((Path(folder) / "optimizers" / "fused_lamb.py").is_file() for folder in folders)
    if not is_nvidia or importlib.util.find_spec("amp_C") is None:
        return None
    return importlib.import_module("apex.optimizers")


class KerasSGD(Optimizer):
    """SGD with the rate inside the velocity: v = momentum * v - lr * g, then w = w + v.

    torch.optim.SGD has the rate outside (v = momentum * v + g, w = w - lr * v). At a constant rate both are equal; when
    the rate changes, torch's also rescales the past velocity. lr may be a tensor, for CUDA graphs.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float | Tensor, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            with torch.no_grad():
                parameters, gradients = _with_gradients(group)
                velocities = _state(self, "velocity", parameters)
                torch._foreach_mul_(velocities, group["momentum"])
                torch._foreach_sub_(velocities, torch._foreach_mul(gradients, group["lr"]))
                torch._foreach_add_(parameters, velocities)


class Lamb(Optimizer):
    """Adam with each tensor's step scaled to the norm of its weights (You et al. 2020, arXiv:1904.00962, algorithm 2).

    As in apex's FusedLAMB, the global gradient norm is first clipped to max_grad_norm, and without weight decay the
    step is Adam's. Moments are corrected for bias.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float | Tensor, **options: Any) -> None:
        """Take betas, eps, weight_decay and max_grad_norm of `OptimConfig` as options."""
        super().__init__(parameters, {"lr": lr, "step": 0, **options})

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        norm = torch.nn.utils.get_total_norm(
            [gradient for group in self.param_groups for gradient in _with_gradients(group)[1]]
        )
        for group in self.param_groups:
            with torch.no_grad():
                parameters, gradients = _with_gradients(group)
                group["step"] += 1
                steps = self._adam_steps(group, parameters, gradients, norm)
                rates = group["lr"]
                if group["weight_decay"]:
                    torch._foreach_add_(steps, parameters, alpha=group["weight_decay"])
                    rates = list((_trust_ratios(parameters, steps) * group["lr"]).unbind())
                torch._foreach_mul_(steps, rates)
                torch._foreach_sub_(parameters, steps)

    def _adam_steps(
        self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor], norm: Tensor
    ) -> list[Tensor]:
        """Update the moments; return mean / (sqrt(mean of squares) + eps), both corrected for bias."""
        beta1, beta2 = group["betas"]
        # That is Adam's step from weights of 0 at a rate of -1, for which torch has a kernel.
        steps = [torch.zeros_like(parameter) for parameter in parameters]
        torch._fused_adam_(
            steps,
            gradients,
            _state(self, "mean", parameters),
            _state(self, "square", parameters),
            [],
            [torch.full((), group["step"], dtype=torch.float32, device=norm.device)] * len(steps),
            lr=-1.0,
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=(norm / group["max_grad_norm"]).clamp(min=1).float(),
        )
        return steps


class Muon(Optimizer):
    """SGD with orthogonalised momentum: each weight matrix moves equally far along all singular directions.

    A convolution kernel counts as a matrix with one row per output channel, a bias as one row.
    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; Bernstein and Newhouse 2024, arXiv:2409.20325.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float | Tensor, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            with torch.no_grad():
                parameters, gradients = _with_gradients(group)
                sums = _state(self, "sum", parameters)
                torch._foreach_mul_(sums, group["momentum"])
                torch._foreach_add_(sums, gradients)
                ahead = torch._foreach_add(gradients, sums, alpha=group["momentum"])  # Nesterov momentum
                for pairs in _by_matrix(parameters, ahead).values():
                    moves = orthogonal(torch.stack([matrix for _, matrix in pairs])) * group["lr"]
                    for (parameter, _), move in zip(pairs, moves, strict=True):
                        parameter.sub_(move.reshape(parameter.shape))


NEWTON_SCHULZ: Final = (3.4445, -4.7750, 2.0315)
"""Coefficients that bring singular values close to 1 in few iterations, but not exactly to 1 (Jordan et al. 2024)."""


def orthogonal(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Return each matrix with its singular values set to about 1 (0.7 to 1.2), times sqrt(rows / columns) if tall.

    matrices: (..., rows, columns); a batch of one shape is faster than one at a time.
    """
    a, b, c = NEWTON_SCHULZ
    rows, columns = matrices.shape[-2:]
    tall = rows > columns
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + torch.finfo(x.dtype).tiny)
    for _ in range(iterations):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT * math.sqrt(rows / columns) if tall else x


def _by_matrix(parameters: list[Tensor], moves: list[Tensor]) -> dict[torch.Size, list[tuple[Tensor, Tensor]]]:
    """Return the parameters with their moves as matrices, grouped by the shape of the matrix."""
    found: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
    for parameter, move in zip(parameters, moves, strict=True):
        matrix = move.reshape(1 if move.ndim < 2 else len(move), -1)
        found.setdefault(matrix.shape, []).append((parameter, matrix))
    return found


def _trust_ratios(parameters: list[Tensor], steps: list[Tensor]) -> Tensor:
    """Return |w| / |step| of each tensor, or 1 where either is 0."""
    ratios = torch.stack(torch._foreach_norm(parameters)) / torch.stack(torch._foreach_norm(steps))
    return torch.where(ratios.isfinite() & (ratios > 0), ratios, 1.0)


def _with_gradients(group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters of a group that have a gradient, and their gradients."""
    parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
    return parameters, [parameter.grad for parameter in parameters]


def _state(optimizer: Optimizer, name: str, parameters: list[Tensor]) -> list[Tensor]:
    """Return the optimizer's state tensor of this name for each parameter, zeros at first."""
    states = [optimizer.state[parameter] for parameter in parameters]
    for state, parameter in zip(states, parameters, strict=True):
        if name not in state:
            state[name] = torch.zeros_like(parameter)
    return [state[name] for state in states]
