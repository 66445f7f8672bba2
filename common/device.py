"""The accelerator of this process, by torch's interface (CUDA, ROCm, XPU)."""

from __future__ import annotations

import os
import socket
import zlib
from typing import Final

import torch

from common.errors import LaunchError
from common.slurm import find_slurm_devices

MASKS: Final = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that hide devices from a process."""


def find_device_type(setting: str) -> str:
    """Return the setting, or for `auto` the type of the accelerator, `cpu` without one.

    LaunchError if it is missing, if `auto` finds none in a Slurm job that has some, or if this torch is too slow on it.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    here = accelerator.type if accelerator else "cpu"
    if setting == "auto" and not accelerator and (variable := find_slurm_devices(os.environ)):
        masks = ", ".join(f"{mask}={os.environ[mask]!r}" for mask in MASKS if mask in os.environ)
        raise LaunchError(
            f"Slurm gave this job GPUs ({variable}), but torch {torch.__version__} on {socket.gethostname()} sees none"
            f"{f' with {masks}' if masks else ''}: check --gpus-per-task and --gpu-bind of srun, the driver "
            f"(nvidia-smi, rocm-smi) and that torch was built for these GPUs; or set dist.device=cpu to run without"
        )
    if setting not in ("auto", "cpu", here):
        raise LaunchError(
            f"dist.device is {setting!r}, but torch {torch.__version__} on {socket.gethostname()} has "
            f"{here if accelerator else 'no accelerator'}: expected auto, cpu" + (f" or {here}" if accelerator else "")
        )
    chosen = here if setting == "auto" else setting
    if chosen == "cuda" and torch.version.hip is None and torch.__version__.startswith("2.9."):
        raise LaunchError(
            f"torch {torch.__version__} computes 3-D convolutions in bf16 without cuDNN, many times slower and in more "
            "memory (github.com/pytorch/pytorch/issues/166643): install torch 2.8, or 2.10 or later"
        )
    return chosen


def choose_device(kind: str, local_rank: int = 0, local_size: int = 1, devices: int = 1) -> torch.device:
    """Make the device of a rank the current one and return it.

    local_rank, local_size: on its node. devices: how many its ranks see, if each sees one alone. LaunchError if ranks
    would share a device.
    """
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.accelerator.device_count()
    if local_size > count:
        # A launcher may make a single device visible to each rank, which is then number 0 on all.
        if count != 1 or devices < local_size:
            raise LaunchError(
                f"{local_size} ranks on {socket.gethostname()}, but {count} device(s) of type {kind}: "
                f"start at most one rank per device, or set dist.device=cpu"
            )
        local_rank = 0
    torch.accelerator.set_device_index(local_rank)
    return torch.device(kind, local_rank)


def identify_only_device(kind: str) -> int:
    """Return an identity of the only device that this process sees; 0 if it sees more, or none."""
    if kind == "cpu" or torch.accelerator.device_count() != 1:
        return 0
    properties = torch.get_device_module(kind).get_device_properties(0)
    identity = [str(getattr(properties, "uuid", "")), *(os.environ.get(mask, "") for mask in MASKS)]
    return zlib.crc32(" ".join(identity).encode())
