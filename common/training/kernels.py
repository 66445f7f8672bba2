"""The choice between torch's own operations and kernels in Triton, and where the latter can run."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch


def check_kernels(kernels: str, device: torch.device) -> None:
    """Raise ValueError if the kernels that `model.kernels` names cannot run on the device."""
    if kernels != "torch":
        check_triton(f"model.kernels is {kernels}", "torch", device)


def check_triton(setting: str, instead: str, device: torch.device) -> None:
    """Raise ValueError if kernels in Triton cannot run on the device.

    setting: the key that asks for them and its value, in words. instead: its value without them.
    """
    if find_spec("triton") is None:
        raise ValueError(f"{setting}, which needs Triton: `pip install triton`, or set it to {instead}")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            f"{setting}, which needs a GPU, but the device is {device.type}: set it to {instead}; "
            "for debugging, TRITON_INTERPRET=1 in the environment runs the kernels slowly on a CPU"
        )
