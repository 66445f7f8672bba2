"""The choice between torch's own operations and kernels in Triton, and where the latter can run."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec

import torch


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
