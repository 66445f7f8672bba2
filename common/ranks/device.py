"""Choose the device of a rank through torch's accelerator interface (CUDA, ROCm, XPU)."""

from __future__ import annotations

import os
import socket
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import torch

from common.ranks.launch import LaunchError, RankPosition

MASKS: Final = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that hide devices from a process."""


def find_device_type(wanted: str) -> str:
    """Return `wanted`, or for `auto` the type of the accelerator, `cpu` without one.

    LaunchError if it is missing, if `auto` finds none in a Slurm job that has some, or if this torch is too slow on it.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    here = accelerator.type if accelerator else "cpu"
    if wanted == "auto" and not accelerator and (given := find_slurm_devices(os.environ)):
        masks = ", ".join(f"{mask}={os.environ[mask]!r}" for mask in MASKS if mask in os.environ)
        raise LaunchError(
            f"Slurm gave this job GPUs ({given}), but torch {torch.__version__} on {socket.gethostname()} sees none"
            f"{f' with {masks}' if masks else ''}: check --gpus-per-task and --gpu-bind of srun, the driver "
            f"(nvidia-smi, rocm-smi) and that torch was built for these GPUs; or set dist.device=cpu to run without"
        )
    if wanted not in ("auto", "cpu", here):
        raise LaunchError(
            f"dist.device is {wanted!r}, but torch {torch.__version__} on {socket.gethostname()} has "
            f"{here if accelerator else 'no accelerator'}: expected auto, cpu" + (f" or {here}" if accelerator else "")
        )
    chosen = here if wanted == "auto" else wanted
    if chosen == "cuda" and torch.version.hip is None and torch.__version__.startswith("2.9."):
        raise LaunchError(
            f"torch {torch.__version__} computes 3-D convolutions in bf16 without cuDNN, many times slower and in more "
            "memory (github.com/pytorch/pytorch/issues/166643): install torch 2.8, or 2.10 or later"
        )
    return chosen


def find_slurm_devices(environ: Mapping[str, str]) -> str:
    """Return the variable by which Slurm says that this process has GPUs on its node; empty if it has none."""
    # After the manual of srun: a number, and then lists of IDs. A step inherits the batch script's SLURM_JOB_GPUS, even
    # if it has none itself.
    names = ["SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS"]
    if not environ.get("SLURM_STEP_NUM_TASKS"):
        names.append("SLURM_JOB_GPUS")
    if environ.get("SLURM_GPUS_ON_NODE") == "0":
        return ""
    return next((f"{name}={environ[name]}" for name in names if environ.get(name)), "")


def choose_device(kind: str, position: RankPosition, only_devices: Sequence[Hashable] = ()) -> torch.device:
    """Make this rank's device the current one and return it.

    only_devices: the `identify_only_device` of each rank of this host. LaunchError if ranks would share a device.
    """
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.accelerator.device_count()
    _, local_rank, local_size, _, _ = position.known()
    if local_size > count:
        # A launcher may make a single device visible to each rank, which is then number 0 on all.
        if count != 1 or len(set(only_devices)) < local_size:
            raise LaunchError(
                f"{local_size} ranks on {socket.gethostname()}, but {count} device(s) of type {kind}: "
                f"start at most one rank per device, or set dist.device=cpu"
            )
        local_rank = 0
    torch.accelerator.set_device_index(local_rank)
    return torch.device(kind, local_rank)


def identify_only_device(kind: str) -> str | None:
    """Return an identity of the only device that this process sees; None if it sees more."""
    if kind == "cpu" or torch.accelerator.device_count() != 1:
        return None
    properties = torch.get_device_module(kind).get_device_properties(0)
    return " ".join([str(getattr(properties, "uuid", "")), *(os.environ.get(mask, "") for mask in MASKS)])
