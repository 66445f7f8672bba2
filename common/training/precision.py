"""The number formats in which a run computes, applied from outside of the model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor

from common.config import key

DTYPES: Final = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class PrecisionConfig:
    """The format of matrix products and convolutions; weights, gradients, losses and optimizer stay in float32."""

    dtype: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = key(
        "auto",
        "fp32; tf32, the short products of NVIDIA's tensor cores for float32; bf16; fp16, with a loss scale that "
        "adapts itself; auto is bf16 where the device computes it, else fp32",
    )


class Precision:
    """Runs forward, backward and optimizer in the chosen format; `name` is the format chosen for "auto".

    Sets for the whole process whether float32 products on NVIDIA's devices may be short.
    """

    def __init__(self, config: PrecisionConfig, device: torch.device) -> None:
        automatic = "bf16" if _computes_bf16(device) else "fp32"
        self.name = automatic if config.dtype == "auto" else config.dtype
        self._device = device.type
        # Disabled, the scaler hands on losses and steps as they are.
        self._scaler = torch.amp.GradScaler(device.type, enabled=self.name == "fp16")
        torch.backends.cuda.matmul.allow_tf32 = self.name == "tf32"
        torch.backends.cudnn.allow_tf32 = self.name == "tf32"

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which to compute predictions and losses."""
        dtype = DTYPES[self.name]
        context: AbstractContextManager[Any] = torch.autocast(self._device, dtype, enabled=dtype is not torch.float32)
        return context

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of the loss, scaled for fp16, to those of the parameters."""
        self._scaler.scale(loss).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Make the optimizer's step with unscaled gradients; with fp16 it is skipped if a gradient overflowed."""
        self._scaler.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Return the loss scale and its history; empty without one."""
        state: dict[str, Any] = self._scaler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set what `state_dict` returned; raises ValueError if only one of both runs has a loss scale."""
        if bool(state) != self._scaler.is_enabled():
            before = "in fp16" if state else "without fp16"
            raise ValueError(f"the checkpoint is of a run {before}, but precision.dtype is {self.name}")
        self._scaler.load_state_dict(dict(state))


def _computes_bf16(device: torch.device) -> bool:
    """Tell whether the device has instructions for bfloat16; emulation does not pay."""
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported()  # type: ignore[no-any-return]  # no public function says so
    module = torch.get_device_module(device)
    return hasattr(module, "is_bf16_supported") and bool(module.is_bf16_supported(including_emulation=False))
