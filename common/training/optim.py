"""The optimizers: SGD with Keras's momentum, Adam, AdamW and LAMB, Muon for the open division, and those registered.

`build` returns the one of a configuration. All that changes between its steps is in tensors, but for the rate on a CPU,
which is a tensor if it is given as one: a step can be recorded once and repeated, as CUDA graphs do.

`optim.fused` names an optimizer of NVIDIA apex, which has neither releases nor stable interfaces. `build_fused` is
written against the sources of `WRITTEN_FOR`, whose Python part the tests run with a stand-in for its compiled kernels
(`MLPERF_HPC_APEX`); on a GPU it has not run.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from common.candidate import Candidate
from common.errors import UsageError
from common.own_code import find_registered, list_registered
from common.settings.optim import LOG_NAMES
from common.settings.optim import OptimConfig as OptimConfig  # also for callers of `build`
from common.spatial import shards

WRITTEN_FOR: Final = "apex 0.1 at commit 6424da3 of 2026-07-08"
FUSED_SGD: Final = Candidate("fused-sgd")
"""`KerasSGD` by one kernel for all weights, where its rate is a tensor."""
TENSOR_RATE: Final = {"FusedLAMB": False, "FusedMixedPrecisionLamb": True, "FusedAdam": True}
"""The classes, and whether their rate is a tensor on the device; FusedAdam's is with `capturable`."""
ALIGNMENT: Final = 64
"""A view begins at a multiple of this many numbers in its buffer, for kernels that access 16 bytes at a time."""
LAMB_SCRATCH: Final = Candidate("lamb-scratch")
"""LAMB computes its steps in one buffer, which takes a few launches instead of two for each parameter."""


def build_fused(
    name: str, setting: str, parameters: Sequence[nn.Parameter], lr: float | Tensor, options: Mapping[str, Any]
) -> Optimizer:
    """Return the optimizer of this class of `apex.optimizers`.

    setting: the key that asks for it and its value, in words. options: of the constructor. ValueError if apex or its
    kernels are missing, parameters are not on a GPU, or the class is not as expected.
    """
    kind = _find_class(name, setting)
    if not _on_gpu(parameters):
        raise ValueError(
            f"{setting}, which needs a GPU, but parameters are on {parameters[0].device.type}; set it to auto"
        )
    _check_signature(kind.__init__, setting, name, [None, parameters, float(lr)], options)
    _check_signature(kind.step, setting, f"{name}.step", [None], {})
    # Its own load_state_dict, where there is one, calls no hooks and leaves what it loads on the CPU.
    kind = type(name, (kind,), {"load_state_dict": Optimizer.load_state_dict})
    optimizer: Optimizer = kind(parameters, float(lr), **options)
    for group in optimizer.param_groups:
        if isinstance(group.get("lr"), Tensor) != TENSOR_RATE[name]:
            expected = "a tensor" if TENSOR_RATE[name] else "a number"
            raise _make_version_error(setting, name, f"its rate, param_groups[...]['lr'], is not {expected}")
        if name == "FusedAdam":  # which makes it in the first step: too late for a saved one to be moved to its device
            group.setdefault("step", torch.zeros(1, dtype=torch.int32, device=group["params"][0].device))
    return optimizer


def _find_class(name: str, setting: str) -> Any:
    """Return the class; ValueError without it.

    The `apex` on PyPI is another project: the files tell which it is, before any of its code runs.
    """
    spec = find_spec("apex")
    folders = (spec and spec.submodule_search_locations) or []
    if not any((Path(folder) / "optimizers" / "fused_lamb.py").is_file() for folder in folders):
        raise ValueError(
            f"{setting}, which needs NVIDIA's apex{', and the apex here is another project' if spec else ''}: build "
            "it from github.com/NVIDIA/apex (it is not on PyPI), or set it to auto"
        )
    if find_spec("amp_C") is None:
        raise ValueError(
            f"{setting}, but apex was built without its kernels (amp_C): build it with APEX_CPP_EXT=1 and "
            "APEX_CUDA_EXT=1 in the environment, or set it to auto"
        )
    kind = getattr(importlib.import_module("apex.optimizers"), name, None)
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise _make_version_error(setting, name, "apex.optimizers has no such optimizer")
    return kind


def _on_gpu(parameters: Sequence[nn.Parameter]) -> bool:
    return all(parameter.is_cuda for parameter in parameters)


def _check_signature(function: Any, setting: str, name: str, values: list[Any], options: Mapping[str, Any]) -> None:
    """Raise ValueError unless the function can be called with these values and options."""
    try:
        inspect.signature(function).bind(*values, **options)
    except TypeError as error:
        raise _make_version_error(setting, name, f"it {error}") from None


def _make_version_error(setting: str, name: str, reason: str) -> ValueError:
    return ValueError(
        f"{setting}, but {name} of the apex here is not the one that this suite was written for ({WRITTEN_FOR}): "
        f"{reason}; install that one, or set it to auto"
    )


def build(config: OptimConfig, parameters: Iterable[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """Return the optimizer of the parameters; `set_rate` changes its learning rate.

    On accelerators the rate is a tensor, so that a step can be recorded; with apex's FusedLAMB it remains a number. A
    saved state can be loaded by the same optimizer on any device. One that is registered (`common.own_code`) gets the
    rate as given; its steps are recorded if it makes that a tensor. ValueError where the kernels of `config.fused`
    cannot run, or for a name that nothing registers.
    """
    parameters = list(parameters)
    own = None if config.name in LOG_NAMES else find_optimizer(config.name)
    if config.fused in ("apex", "mixed_precision"):
        if config.name == "lamb" and any(map(shards.shard_of, parameters)):
            raise ValueError(
                f"optim.fused is {config.fused}, whose kernels for lamb know no shards (dist.spatial); set it to auto"
            )
        optimizer = _apex_optimizer(config, parameters, lr)
    elif own is not None:
        if any(map(shards.shard_of, parameters)):
            raise ValueError(f"optim.name is {config.name}, which knows no shards (dist.spatial); set dist.spatial=1")
        optimizer = own(parameters, lr, config)
        _check_class(type(optimizer), config.name)
    else:
        optimizer = _build_own(config, parameters, lr)
        if parameters[0].device.type != "cpu":
            _use_tensor_rate(optimizer)  # after construction, in which torch reads the rate
    optimizer.register_load_state_dict_pre_hook(_in_place)
    shards.save_whole(optimizer)
    return optimizer


def find_optimizer(name: str) -> Any:
    """Return what makes a registered optimizer; UsageError if nothing does, or it is a class that is no Optimizer."""
    maker = find_registered("optimizer", name, "optim.name", LOG_NAMES)
    if isinstance(maker, type):
        _check_class(maker, name)
    return maker


def _check_class(cls: type, name: str) -> None:
    if not issubclass(cls, Optimizer):
        (code,) = list_registered("optimizer", name)
        raise UsageError(f"{code.text}: {cls.__qualname__} is no torch.optim.Optimizer; derive it from that")


def _apex_optimizer(config: OptimConfig, parameters: list[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """Return NVIDIA's optimizer, with the options that make its algorithm that of torch or of `Lamb`."""
    setting = f"optim.fused is {config.fused}"
    options = {**_adam_options(config), "bias_correction": True}
    if config.name != "lamb":
        options |= {"adam_w_mode": config.name == "adamw", "capturable": True}
        return build_fused("FusedAdam", setting, parameters, lr, options)
    name = "FusedLAMB" if config.fused == "apex" else "FusedMixedPrecisionLamb"
    options |= {"max_grad_norm": config.max_grad_norm, "adam_w_mode": True, "grad_averaging": True, "use_nvlamb": False}
    return build_fused(name, setting, parameters, lr, options)


def _build_own(config: OptimConfig, parameters: list[nn.Parameter], lr: float | Tensor) -> Optimizer:
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
            optimizer = adam(parameters, lr, fused=config.fused == "auto", capturable=_on_gpu(parameters), **options)
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


def allocate_views(tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return a buffer of zeros in the type of the tensors, and views of it in the memory order of each."""
    sizes = [-(-tensor.numel() // ALIGNMENT) * ALIGNMENT for tensor in tensors]
    buffer = torch.zeros(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
    views = zip(buffer.split(sizes), (torch.empty_like(tensor, device="meta") for tensor in tensors), strict=True)
    return buffer, [part.as_strided(like.shape, like.stride()) for part, like in views]


def _in_place(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Return a saved state as `load_state_dict` needs it for this optimizer, which may compute in another way.

    Rate and step count become tensors on its device where it has tensors; earlier versions saved numbers.
    """
    groups = []
    for own, saved in zip(optimizer.param_groups, state["param_groups"], strict=False):
        own_values = {name: own[name] for name in ("fused", "foreach", "capturable") if name in own}
        for name in ("lr", "step"):
            if name in own and name in saved:
                value = float(saved[name])
                own_values[name] = torch.full_like(own[name], value) if isinstance(own[name], Tensor) else value
        groups.append(saved | own_values)
    return state | {"param_groups": groups}


# -- algorithms that torch does not have ---------------------------------------------------------------------


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
                velocities = _list_states(self, "velocity", parameters)
                if FUSED_SGD.enabled and isinstance(group["lr"], Tensor):
                    from common.training import sgd_kernel  # an optional package, slow to import

                    sgd_kernel.update_weights(parameters, velocities, gradients, group["lr"], group["momentum"])
                else:
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
        super().__init__(parameters, {"lr": lr, **options})
        for group in self.param_groups:
            group["step"] = torch.zeros((), dtype=torch.float32, device=group["params"][0].device)
        self._scratch: dict[tuple[int, ...], tuple[list[Tensor], Tensor, Tensor]] = {}

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        norm = shards.gradient_norm(parameter for group in self.param_groups for parameter in group["params"])
        for group in self.param_groups:
            with torch.no_grad():
                parameters, gradients = _with_gradients(group)
                group["step"].add_(1)
                steps, rows, owner_R = self._provide_steps(parameters)
                self._add_adam_updates(steps, group, parameters, gradients, norm)
                if group["weight_decay"]:
                    torch._foreach_add_(steps, parameters, alpha=group["weight_decay"])
                    ratios = shards.tensor_norms(parameters, parameters) / shards.tensor_norms(parameters, steps)
                    trust = torch.where(ratios.isfinite() & (ratios > 0), ratios, 1.0)  # 1 where either norm is 0
                    rates = trust * group["lr"]
                    if rows is not None:
                        rows.mul_(rates[owner_R, None])
                    else:
                        torch._foreach_mul_(steps, list(rates.unbind()))
                else:
                    torch._foreach_mul_(steps, group["lr"])
                torch._foreach_sub_(parameters, steps)

    def _provide_steps(self, parameters: list[Tensor]) -> tuple[list[Tensor], Tensor | None, Tensor | None]:
        """Return steps of 0; where they are views of rows (R, ALIGNMENT), also these, and the step of each row (R)."""
        if not LAMB_SCRATCH.enabled:
            return [torch.zeros_like(parameter) for parameter in parameters], None, None
        key = tuple(map(id, parameters))
        if key not in self._scratch:
            buffer, steps = allocate_views(parameters)
            starts = torch.tensor([step.storage_offset() // ALIGNMENT for step in steps])
            owner_R = torch.bucketize(torch.arange(len(buffer) // ALIGNMENT), starts, right=True) - 1
            self._scratch[key] = steps, buffer.view(-1, ALIGNMENT), owner_R.to(buffer.device)
        self._scratch[key][1].zero_()
        return self._scratch[key]

    def _add_adam_updates(
        self,
        steps: list[Tensor],
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        norm: Tensor,
    ) -> None:
        """Update the moments; add mean / (sqrt(mean of squares) + eps), both corrected for bias, to steps of 0."""
        beta1, beta2 = group["betas"]
        # That is Adam's step from weights of 0 at a rate of -1, for which torch has a kernel.
        torch._fused_adam_(
            steps,
            gradients,
            _list_states(self, "mean", parameters),
            _list_states(self, "square", parameters),
            [],
            [group["step"]] * len(steps),
            lr=-1.0,
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=(norm / group["max_grad_norm"]).clamp(min=1).float(),
        )


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
                sums = _list_states(self, "sum", parameters)
                torch._foreach_mul_(sums, group["momentum"])
                torch._foreach_add_(sums, gradients)
                ahead = torch._foreach_add(gradients, sums, alpha=group["momentum"])  # Nesterov momentum
                for pairs in _by_matrix(parameters, ahead).values():
                    moves = make_orthogonal(torch.stack([matrix for _, matrix in pairs])) * group["lr"]
                    for (parameter, _), move in zip(pairs, moves, strict=True):
                        parameter.sub_(shards.take_own(parameter, move).reshape(parameter.shape))


def make_orthogonal(matrices: Tensor) -> Tensor:
    """Return each matrix with its singular values set to about 1 (0.7 to 1.2), times sqrt(rows / columns) if tall.

    matrices: (..., rows, columns); a batch of one shape is faster than one at a time.
    """
    # They bring singular values close to 1 in five iterations, but not exactly to 1 (Jordan et al. 2024).
    a, b, c = 3.4445, -4.7750, 2.0315
    rows, columns = matrices.shape[-2:]
    tall = rows > columns
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + torch.finfo(x.dtype).tiny)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT * math.sqrt(rows / columns) if tall else x


def _by_matrix(parameters: list[Tensor], moves: list[Tensor]) -> dict[torch.Size, list[tuple[Tensor, Tensor]]]:
    """Return the parameters with their moves as matrices, those of shards whole, grouped by the shape of the matrix."""
    groups: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
    for parameter, part in zip(parameters, moves, strict=True):
        move = shards.gather_whole(parameter, part)
        matrix = move.reshape(1 if move.ndim < 2 else len(move), -1)
        groups.setdefault(matrix.shape, []).append((parameter, matrix))
    return groups


def _with_gradients(group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters of a group that have a gradient, and their gradients."""
    parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
    return parameters, [parameter.grad for parameter in parameters]


def _list_states(optimizer: Optimizer, name: str, parameters: list[Tensor]) -> list[Tensor]:
    """Return the optimizer's state tensor of this name for each parameter, zeros at first."""
    states = [optimizer.state[parameter] for parameter in parameters]
    for state, parameter in zip(states, parameters, strict=True):
        if name not in state:
            state[name] = torch.zeros_like(parameter)
    return [state[name] for state in states]
