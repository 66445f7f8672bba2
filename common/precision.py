"""The number formats in which a run computes, applied from outside the model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor

from common.config import PLACE, key

Format = Literal["fp32", "tf32", "bf16", "fp16"]
DTYPES: Final[Mapping[Format, torch.dtype]] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class PrecisionConfig:
    """The format of matrix products and convolutions; weights, gradients, losses and optimizer stay in float32."""

    dtype: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = key(
        "auto",
        "fp32; tf32: float32 with matrix products in TF32 on NVIDIA's tensor cores; bf16; fp16: with an adaptive loss "
        "scale; auto: bf16 where the device computes it natively, otherwise fp32",
    )
    tune: bool = key(
        True,
        "on NVIDIA GPUs, time cuDNN's algorithms for each shape and take the fastest; equal runs may then differ in "
        "rounding. false: cuDNN's own choice among its deterministic algorithms, the same in each run, not measured",
        PLACE,
    )


class Precision:
    """Runs forward pass, backward pass and optimizer in the chosen format; `name` is the format that "auto" became.

    What cuDNN may do, and whether float32 products may use tf32, is set for the whole process. With bf16 they may not:
    the products that are then left in float32 (bases, sums over triplets, heads) are those that need its digits.
    """

    def __init__(self, config: PrecisionConfig, device: torch.device) -> None:
        self.name = resolved(config, device)
        self._device = device.type
        # A disabled scaler passes losses and steps through.
        self._scaler = torch.amp.GradScaler(device.type, enabled=self.name == "fp16")
        torch.backends.cuda.matmul.allow_tf32 = self.name == "tf32"
        torch.backends.cudnn.allow_tf32 = self.name == "tf32"
        torch.backends.cudnn.benchmark = config.tune
        torch.backends.cudnn.deterministic = not config.tune

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which to compute predictions and losses."""
        dtype = DTYPES[self.name]
        context: AbstractContextManager[Any] = torch.autocast(
            self._device,
            dtype,
            enabled=dtype is not torch.float32,
            # A CUDA graph would go on reading a converted weight that was cached before it was recorded.
            cache_enabled=self._device == "cpu",
        )
        return context

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradients of the loss, which is scaled for fp16."""
        self._scaler.scale(loss).backward()

    def unscaled(self, norm: Tensor) -> Tensor:
        """Return the norm of the gradients without the scale of the loss."""
        return norm / self._scaler.scale(torch.ones_like(norm)) if self._scaler.is_enabled() else norm

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Make the optimizer's step with unscaled gradients; with fp16, skip it if a gradient overflowed."""
        self._scaler.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Return the loss scale and its history, empty without one."""
        state: dict[str, Any] = self._scaler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; raise ValueError if only one of the two runs has a loss scale."""
        if bool(state) != self._scaler.is_enabled():
            before = "in fp16" if state else "without fp16"
            raise ValueError(
                f"the checkpoint was written {before}, but precision.dtype is {self.name}; restore the former value"
            )
        self._scaler.load_state_dict(dict(state))


def resolved(config: PrecisionConfig, device: torch.device) -> Format:
    """Return the name of the format that a run on the device computes in."""
    if config.dtype != "auto":
        return config.dtype
    return "bf16" if _computes_bf16(device) else "fp32"


def product_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which products and convolutions of x are computed: autocast's, where that is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _computes_bf16(device: torch.device) -> bool:
    """Tell whether the device has instructions for bfloat16; emulating them gains nothing."""
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported()  # type: ignore[no-any-return]  # torch has no public function for this
    module = torch.get_device_module(device)
    return hasattr(module, "is_bf16_supported") and bool(module.is_bf16_supported(including_emulation=False))
