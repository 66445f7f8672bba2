"""The number formats in which a run computes, and its kernels: torch's own operations, or Triton's where these can run.

Both are applied from outside the model.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, Final, Literal

import torch
from torch import Tensor

from common.settings.machine import PrecisionConfig

Format = Literal["fp32", "tf32", "bf16", "fp16"]
DTYPES: Final[Mapping[Format, torch.dtype]] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


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
        return torch.autocast(
            self._device,
            dtype,
            enabled=dtype is not torch.float32,
            # A CUDA graph would go on reading a converted weight that was cached before it was recorded.
            cache_enabled=self._device == "cpu",
        )

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
        return self._scaler.state_dict()

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
        return torch.cpu._is_avx512_bf16_supported()  # torch has no public function for this
    module = torch.get_device_module(device)
    return hasattr(module, "is_bf16_supported") and bool(module.is_bf16_supported(including_emulation=False))


def check_kernels(kernels: str, device: torch.device) -> None:
    """Raise ValueError if the kernels that `model.kernels` names cannot run on the device.

    Triton itself says whether it has a back end for the device.
    """
    if kernels == "torch":
        return
    setting, instead = f"model.kernels is {kernels}", "set it to torch"
    if find_spec("triton") is None:
        raise ValueError(f"{setting}, which needs Triton: `pip install triton`, or {instead}")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return
    if device.type != "cuda":
        raise ValueError(
            f"{setting}, which needs a GPU of NVIDIA or AMD, but the device is {device.type}: {instead}; "
            "for debugging, TRITON_INTERPRET=1 in the environment runs the kernels slowly on a CPU"
        )
    import triton  # optional, and slow to import
    from triton.compiler.compiler import make_backend

    try:
        make_backend(triton.runtime.driver.active.get_current_target())
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:  # it also compiles a little C at first
        raise ValueError(
            f"{setting}, but Triton {triton.__version__} makes no kernels for this GPU with torch {torch.__version__}: "
            f"{error}; install the Triton that this build of torch requires, or {instead}"
        ) from error
