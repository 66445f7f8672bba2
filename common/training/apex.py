"""NVIDIA's fused optimizers, for a run that names them (`optim.fused`): found, checked against what is expected, made.

apex has neither releases nor stable interfaces. What follows is written against the sources of `WRITTEN_FOR`, whose
Python part the tests run with a stand-in for its compiled kernels (`MLPERF_HPC_APEX`); on a GPU it has not run.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

WRITTEN_FOR: Final = "apex 0.1 at commit 6424da3 of 2026-07-08"
TENSOR_RATE: Final = {"FusedLAMB": False, "FusedMixedPrecisionLamb": True, "FusedAdam": True}
"""The classes, and whether their rate is a tensor on the device; FusedAdam's is with `capturable`."""


def build(
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
