"""Connect this process with the others that its launcher started, on a device, and end all when one fails.

The device comes from torch's accelerator interface (CUDA, ROCm, XPU).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import torch
import torch.distributed as td

from common.processes import bound_cores, find_death_signal, usable_cores
from common.ranks.alarm import LOOK_EVERY_S, Alarm, Stores
from common.ranks.control import Rendezvous
from common.ranks.dist import MOST_CONNECTED, Dist, check_sharing, join_ranks
from common.ranks.groups import check_open_files
from common.ranks.launch import LaunchError, RankPosition, complete_position, find_rank_position
from common.ranks.meeting import (
    Facts,
    Seat,
    choose_interface,
    claim_rank,
    find_address,
    find_route,
    introduce_ranks,
    open_store,
)
from common.settings.machine import DistConfig
from common.stop import STOP

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


def choose_device(kind: str, position: RankPosition, devices: int = 1) -> torch.device:
    """Make this rank's device the current one and return it.

    devices: how many the ranks of this node see, if each sees one alone. LaunchError if ranks would share a device.
    """
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.accelerator.device_count()
    _, local_rank, local_size, _, _ = position.require_facts()
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
    return _hash_text(" ".join([str(getattr(properties, "uuid", "")), *(os.environ.get(mask, "") for mask in MASKS)]))


def _hash_text(text: str) -> int:
    return zlib.crc32(text.encode())


_DEFAULTS: Final = DistConfig()
_connections = itertools.count()


@contextlib.contextmanager
def connect(
    config: DistConfig = _DEFAULTS, expected: tuple[type[BaseException], ...] = (), failure: Exception | None = None
) -> Iterator[Dist]:
    """Yield the Dist of this process among all that its launcher started; the end is a barrier.

    If the body raises on one of several ranks, its error is shown with the rank, `alarm.Stopped` is raised on the
    others, and all exit by SystemExit with the status that the error stands for: put all cleaning up inside the `with`.
    A stop signal ends the body by StopAsked, unless the caller listens to it. A single process raises what the body
    raises.
    expected: errors that are shown without a traceback. failure: why this rank takes no part, for the others.

    Raises LaunchError if the launcher's variables are incomplete, the ranks cannot connect, a node has more ranks than
    devices, or the device does not exist. Under mpirun it can be called once per process.
    """
    position = find_rank_position(os.environ)
    if "TORCHELASTIC_RUN_ID" in os.environ and (die_with_parent := find_death_signal()):
        die_with_parent()  # a torchrun that is killed leaves its ranks behind
    with contextlib.ExitStack() as stack:
        if not STOP.listens:
            stack.enter_context(STOP.listening())
            stack.enter_context(STOP.interrupting())
        if position.world_size == 1:
            if failure:
                raise failure
            check_sharing(config, 1)
            yield Dist(position, choose_device(find_device_type(config.device), position))
            return
        yield from _connect_ranks(position, config, expected, failure)


def _connect_ranks(
    position: RankPosition, config: DistConfig, expected: tuple[type[BaseException], ...], failure: Exception | None
) -> Iterator[Dist]:
    server, world_size = open_store(position, config.start_timeout_s)
    connect_again = partial(td.TCPStore, server.host, server.port, is_master=False, wait_for_workers=False)
    # So that neither a later connection nor torchrun's next attempt, which has the same store, finds its notes.
    prefix = f"attempt{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/connect{next(_connections)}"
    stores = Stores(server, connect_again, server.host, server.port).with_prefix(prefix)
    check_open_files(position.rank, world_size, world_size <= MOST_CONNECTED)
    claim_rank(stores.store, position.rank, world_size)
    alarm = Alarm(stores, position.rank, world_size, expected)
    try:
        with alarm:
            if failure:
                raise failure
            kind = find_device_type(config.device)
            cores = _hash_text(str(sorted(bound_cores())))
            facts = Facts(position.rank, cores, identify_only_device(kind), *find_route(server))
            neighbours = introduce_ranks(stores.store, facts, world_size, config.start_timeout_s)
            address = find_address(facts, neighbours.reached_at)
            choose_interface(address)
            if "OMP_NUM_THREADS" not in os.environ and usable_cores() < neighbours.sharing * len(bound_cores()):
                torch.set_num_threads(max(1, usable_cores() // neighbours.sharing))
            position = complete_position(position, world_size, neighbours)
            alarm.speaks = position.local_rank == (1 if position.node_rank == 0 else 0)
            device = choose_device(kind, position, neighbours.devices)
            seats = [Seat(*seat) for seat in neighbours.seats]
            rendezvous = Rendezvous(stores.store, seats, address or "localhost")
            ranks = join_ranks(position, rendezvous, device, config, alarm)
            yield ranks
            ranks.leave()
        ranks.close()
    except BaseException as error:
        ending = alarm.report_error(error)
        if position.rank == 0:
            time.sleep(LOOK_EVERY_S)  # the others still use its store
        raise SystemExit(ending.exit_status) from error
