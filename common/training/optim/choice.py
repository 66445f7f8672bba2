"""Which optimizer a run has: its configuration, how that is logged, and the optimizer built from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from common.config import ROUTE, key
from common.spatial.shards import save_whole, shard_of
from common.training.kernels import check_triton
from common.training.optim import apex
from common.training.optim.algorithms import KerasSGD, Lamb, Muon

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
    fused: Literal["auto", "apex", "mixed_precision", "flat", "off"] = key(
        "auto",
        "auto: torch's fused kernels; off: none, except that lamb always updates its moments with them; apex, for "
        "adam, adamw and lamb: FusedAdam and FusedLAMB of NVIDIA's apex, an error without it or a GPU (FusedLAMB takes "
        "its rate as a number, so that steps are not recorded); mixed_precision, for lamb: apex's variant that keeps "
        "rate and step count on the device and unscales fp16 gradients itself; flat, for lamb: this suite's "
        "Triton kernels on buffers of all parameters, an error without a GPU or Triton; no device has decided yet "
        "whether it stays",
        ROUTE,
    )

    def __post_init__(self) -> None:
        for name, value in (("momentum", self.momentum), ("betas", self.betas[0]), ("betas", self.betas[1])):
            if not 0 <= value < 1:
                raise ValueError(f"{name} has {value}; expected 0 <= value < 1")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay is {self.weight_decay}; expected at least 0")
        if self.name == "sgd" and self.weight_decay:
            raise ValueError(
                f"weight_decay is {self.weight_decay}, but name is sgd, which has none; set weight_decay=0 "
                "(CosmoFlow's L2 regularisation is model.l2)"
            )
        if self.eps <= 0 or self.max_grad_norm <= 0:
            raise ValueError(f"eps is {self.eps} and max_grad_norm is {self.max_grad_norm}; expected both above 0")
        if self.fused in ("mixed_precision", "flat") and self.name != "lamb":
            raise ValueError(f"fused is {self.fused}, which is for lamb, but name is {self.name}; set fused=auto")
        if self.fused == "apex" and self.name in ("sgd", "muon"):
            raise ValueError(f"fused is apex, which has no kernels for {self.name} here; set fused=auto")

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

    On accelerators the rate is a tensor, so that a step can be recorded; with apex's FusedLAMB it remains a number. A
    saved state can be loaded by the same optimizer on any device. ValueError where the kernels of `config.fused` cannot
    run.
    """
    parameters = list(parameters)
    if config.name == "lamb" and config.fused not in ("auto", "off") and any(map(shard_of, parameters)):
        raise ValueError(
            f"optim.fused is {config.fused}, whose kernels for lamb know no shards (dist.spatial); set it to auto"
        )
    match config.fused:
        case "apex" | "mixed_precision":
            optimizer = _apex_optimizer(config, parameters, lr)
        case "flat":
            optimizer = _flat_optimizer(config, parameters, lr)
            _use_tensor_rate(optimizer)
        case _:
            optimizer = _optimizer(config, parameters, lr)
            if parameters[0].device.type != "cpu":
                _use_tensor_rate(optimizer)  # after construction, in which torch reads the rate
    optimizer.register_load_state_dict_pre_hook(_in_place)
    save_whole(optimizer)
    return optimizer


def _apex_optimizer(config: OptimConfig, parameters: list[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """Return NVIDIA's optimizer, with the options that make its algorithm that of torch or of `Lamb`."""
    setting = f"optim.fused is {config.fused}"
    options = {**_adam_options(config), "bias_correction": True}
    if config.name != "lamb":
        options |= {"adam_w_mode": config.name == "adamw", "capturable": True}
        return apex.build("FusedAdam", setting, parameters, lr, options)
    name = "FusedLAMB" if config.fused == "apex" else "FusedMixedPrecisionLamb"
    options |= {"max_grad_norm": config.max_grad_norm, "adam_w_mode": True, "grad_averaging": True, "use_nvlamb": False}
    return apex.build(name, setting, parameters, lr, options)


def _flat_optimizer(config: OptimConfig, parameters: list[nn.Parameter], lr: Any) -> Optimizer:
    """Return LAMB with our own kernels."""
    check_triton("optim.fused is flat", "auto", parameters[0].device)
    from common.training.optim import flat  # Triton is optional, and slow to import

    return flat.FlatLamb(parameters, lr, max_grad_norm=config.max_grad_norm, **_adam_options(config))


def _optimizer(config: OptimConfig, parameters: list[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """Return the optimizer of torch, or the one that torch does not have."""
    options = _adam_options(config)
    match config.name:
        case "sgd":
            return KerasSGD(parameters, lr, config.momentum)
        case "muon":
            return Muon(parameters, lr, config.momentum)
        case "lamb":
            return Lamb(parameters, lr, max_grad_norm=config.max_grad_norm, **options)
        case _:
            adam = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
            on_cuda = all(parameter.is_cuda for parameter in parameters)
            optimizer = adam(parameters, lr, fused=config.fused == "auto", capturable=on_cuda, **options)
            # Keeps torch from warning in runs without graphs that capturable may make steps slower.
            optimizer._warned_capturable_if_run_uncaptured = True
            return optimizer


def _adam_options(config: OptimConfig) -> dict[str, Any]:
    """Return the constants that Adam, AdamW and LAMB share."""
    return {"betas": config.betas, "eps": config.eps, "weight_decay": config.weight_decay}


def _use_tensor_rate(optimizer: Optimizer) -> None:
    """Make the rate a tensor beside the parameters, float32 or better: a recorded step reads it each time."""
    for group in optimizer.param_groups:
        first = group["params"][0]
        if not isinstance(group["lr"], Tensor):
            dtype = torch.promote_types(first.dtype, torch.float32)
            group["lr"] = torch.full((), group["lr"], dtype=dtype, device=first.device)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of the next step; a rate that is a tensor is changed in place."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _in_place(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Return a saved state as `load_state_dict` needs it for this optimizer, which may compute in another way.

    Rate and step count become tensors on its device where it has tensors; earlier versions saved numbers.
    """
    groups = []
    for own, saved in zip(optimizer.param_groups, state["param_groups"], strict=False):
        kept = {name: own[name] for name in ("fused", "foreach", "capturable") if name in own}
        for name in ("lr", "step"):
            if name in own and name in saved:
                value = float(saved[name])
                kept[name] = torch.full_like(own[name], value) if isinstance(own[name], Tensor) else value
        groups.append(saved | kept)
    return state | {"param_groups": groups}
