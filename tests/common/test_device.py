"""common.device: which device a rank takes, with devices as Slurm binds them; no accelerator is needed."""

import re
import types

import pytest

torch = pytest.importorskip("torch")

from common import device  # noqa: E402
from common.errors import LaunchError  # noqa: E402

MASK = "CUDA_VISIBLE_DEVICES"
# What each rank of a node has: CUDA_VISIBLE_DEVICES and the devices behind it, as srun sets it from its options. With
# cgroups each rank's devices are numbered from 0, without them the mask has the numbers of the node.
BOUND = {
    "all visible": ([("0,1,2,3", "abcd")] * 4, [0, 1, 2, 3]),
    "no mask": ([(None, "abcd")] * 4, [0, 1, 2, 3]),
    "more devices than ranks": ([("0,1,2,3", "abcd")] * 2, [0, 1]),
    "--gpus-per-task=1, cgroups": ([("0", "a"), ("0", "b"), ("0", "c"), ("0", "d")], [0, 0, 0, 0]),
    "--gpus-per-task=1, no cgroups": ([("0", "a"), ("1", "b")], [0, 0]),
    "--gpu-bind=single:1": ([("2", "c"), ("3", "d")], [0, 0]),
    "--gpu-bind=closest, one each": ([("3", "d"), ("1", "b")], [0, 0]),
    "by uuid": ([("GPU-1f", "a"), ("GPU-2e", "b")], [0, 0]),
    "parts of one GPU (MIG)": ([("MIG-1", "a"), ("MIG-2", "a")], [0, 0]),
    "one rank, one device": ([("0", "a")], [0]),
    "--gpus-per-task=2": ([("0,1", "ab"), ("0,1", "cd")], [0, 1]),
    "shared: --gpu-bind=none, one GPU": ([("0", "a")] * 2, None),
    "shared: --gpu-bind=single:2": ([("0", "a"), ("0", "a"), ("1", "b"), ("1", "b")], None),
    "shared: two devices for four ranks": ([("0,1", "ab")] * 4, None),
}


@pytest.fixture
def become(monkeypatch):
    """Return a function that makes this process the rank that sees `seen`: the mask and a letter per device."""
    chosen = []

    def become(seen):
        mask, devices = seen
        for name in device.MASKS:
            monkeypatch.delenv(name, raising=False)
        if mask is not None:
            monkeypatch.setenv(MASK, mask)
        kind = types.SimpleNamespace(get_device_properties=lambda index: types.SimpleNamespace(uuid=devices[index]))
        accelerator = types.SimpleNamespace(type="cuda") if devices else None
        monkeypatch.setattr(torch, "get_device_module", lambda _: kind)
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: len(devices))
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: accelerator)
        monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
        return chosen

    return become


@pytest.mark.parametrize(("ranks", "expected"), BOUND.values(), ids=BOUND)
def test_each_rank_takes_a_device_of_its_own(ranks, expected, become):
    only = set()
    for seen in ranks:
        become(seen)
        only.add(device.identify_only_device("cuda"))
    for rank, seen in enumerate(ranks):
        chosen = become(seen)
        place = (rank, len(ranks), len(only))
        if expected is None:
            with pytest.raises(LaunchError, match=f"{len(ranks)} ranks on .* at most one rank per device"):
                device.choose_device("cuda", *place)
        else:
            assert device.choose_device(device.find_device_type("auto"), *place) == torch.device("cuda", expected[rank])
            assert chosen[-1] == expected[rank]


# srun(1): SLURM_GPUS_ON_NODE is the number for the step on this node, the others are lists of IDs.
GIVEN = {
    "no Slurm": ({}, ""),
    "no GPUs asked for": ({"SLURM_JOB_ID": "7"}, ""),
    "srun --gpus-per-task=1": ({"SLURM_STEP_GPUS": "0,1", "SLURM_GPUS_ON_NODE": "2"}, "SLURM_GPUS_ON_NODE=2"),
    "a step with the first GPU": ({"SLURM_STEP_GPUS": "0"}, "SLURM_STEP_GPUS=0"),
    "batch script": ({"SLURM_JOB_GPUS": "0"}, "SLURM_JOB_GPUS=0"),
    "a step without GPUs, in a batch script with some": ({"SLURM_JOB_GPUS": "0,1", "SLURM_STEP_NUM_TASKS": "2"}, ""),
    "a number": ({"SLURM_JOB_GPUS": "0,1", "SLURM_GPUS_ON_NODE": "0"}, ""),
    "recorded, Slurm 22.05: files that stand for GPUs": (
        {"SLURM_GPUS": "1", "SLURM_GPUS_ON_NODE": "1", "SLURM_STEP_NUM_TASKS": "1"},
        "SLURM_GPUS_ON_NODE=1",
    ),
    "empty": ({"SLURM_STEP_GPUS": "", "SLURM_JOB_GPUS": ""}, ""),
}


@pytest.mark.parametrize("mask", ["", None, "NoDevFiles", "0"])
@pytest.mark.parametrize(("environ", "told"), GIVEN.values(), ids=GIVEN)
def test_no_silent_cpu_where_slurm_gave_gpus(environ, told, mask, become, monkeypatch):
    become((mask, ""))
    for name in ("SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert device.find_device_type("cpu") == "cpu"
    if not told:
        assert device.find_device_type("auto") == "cpu"
        return
    with pytest.raises(LaunchError, match=rf"Slurm gave this job GPUs \({told}\).*sees none.*dist.device=cpu") as error:
        device.find_device_type("auto")
    assert (f"{MASK}={mask!r}" in str(error.value)) == (mask is not None)


@pytest.mark.parametrize("found", ["2.9.0+cu128", "2.9.1"])
def test_torch_2_9_is_refused_on_gpus_of_nvidia(found, become, monkeypatch):
    become((None, "a"))
    monkeypatch.setattr(torch, "__version__", found)
    with pytest.raises(LaunchError, match=rf"torch {re.escape(found)} computes .* without cuDNN.*install torch 2\.8"):
        device.find_device_type("auto")
    assert device.find_device_type("cpu") == "cpu"
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert device.find_device_type("cuda") == "cuda"


def test_a_missing_kind_of_device(become):
    become((None, "a"))
    with pytest.raises(LaunchError, match=r"dist.device is 'xpu'.* has cuda: expected auto, cpu or cuda"):
        device.find_device_type("xpu")
