"""The optimizer of a configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from common.settings.optim import OptimConfig
from common.spatial.shards import save_whole, shard_of
from common.training.optim import apex
from common.training.optim.algorithms import KerasSGD, Lamb, Muon


def build(config: OptimConfig, parameters: Iterable[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """Return the optimizer of the parameters; `set_rate` changes its learning rate.

    On accelerators the rate is a tensor, so that a step can be recorded; with apex's FusedLAMB it remains a number. A
    saved state can be loaded by the same optimizer on any device. ValueError where the kernels of `config.fused` cannot
    run.
    """
    parameters = list(parameters)
    if config.fused in ("apex", "mixed_precision"):
        if config.name == "lamb" and any(map(shard_of, parameters)):
            raise ValueError(
                f"optim.fused is {config.fused}, whose kernels for lamb know no shards (dist.spatial); set it to auto"
            )
        optimizer = _apex_optimizer(config, parameters, lr)
    else:
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
