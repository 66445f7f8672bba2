"""The ranks of a run: who they are, what they tell each other, and how all stop when one fails.

    with connect(config.dist) as dist:
        model = dist.wrap(model.to(dist.device))

The only module that imports torch.distributed and mpi4py. Tensors in main memory travel by gloo, those of a device by
its own library (nccl, xccl). MPI is used for one thing: under mpirun the ranks learn from it where rank 0 listens.
With several network interfaces, choose one by GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME). Tested on CPUs, started by
torchrun and MPICH; several GPUs and a real Slurm were not at hand.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import FrameType
from typing import Any, Final, Literal, NoReturn

import torch
import torch.distributed as td
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from common.config import PLACE, key
from common.distributed.device import choose_device, device_type, only_device, usable_cores
from common.distributed.failure import GRACE_S, Alarm, cut_connections, handling, open_sockets
from common.distributed.launch import LaunchError, Place, find_place, settle


@dataclass(frozen=True)
class DistConfig:
    """Where the ranks compute and how long they wait for each other."""

    device: str = key(
        "auto", "auto (the accelerator of this machine, else the CPU), cpu, cuda (also for ROCm), xpu", PLACE
    )
    timeout_s: float = key(
        600.0,
        "a rank that waits longer for the others, at the start or in a collective, fails; evaluation, staging and "
        "checkpoints of one rank while the others wait must be shorter",
        PLACE,
        unit="seconds",
    )

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s is {self.timeout_s}; expected seconds above 0")


class Dist:
    """The ranks as one of them sees them; this class itself is the only rank of a run in one process.

    Collective calls (all but `wrap` and `no_sync`) are made by all ranks, in the same order.
    """

    def __init__(self, place: Place, device: torch.device) -> None:
        self.place = place
        self.device = device
        self.rank = place.rank
        self.world_size, self.local_rank, self.local_size, self.node_rank, self.nodes = place.known()
        self.is_main = place.rank == 0

    def barrier(self) -> None:
        """All ranks have come here, and the work given to their devices before is done."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def all_reduce(self, tensor: Tensor, op: Literal["sum", "max", "min"] = "sum") -> Tensor:
        """`tensor` holds, on every rank, the element-wise result over all ranks; returns it."""
        return tensor

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        """`tensor`, of any type and equal shape on all ranks, holds the values of rank `src`; returns it."""
        return tensor

    def broadcast_object(self, value: Any, src: int = 0) -> Any:
        """Return rank `src`'s value, on all ranks; it is pickled."""
        return value

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all ranks in the order of the ranks, on all ranks; they are pickled."""
        return [value]

    def same(self, value: Any, what: str) -> None:
        """All ranks have an equal `value`, for example a seed; otherwise LaunchError on all, naming the odd ranks."""
        values = self.gather_objects(value)
        odd = [rank for rank, other in enumerate(values) if other != values[0]]
        if odd:
            listed = ", ".join(map(str, odd[:8])) + (f" and {len(odd) - 8} more" if len(odd) > 8 else "")
            raise LaunchError(
                f"the ranks disagree on {what}: rank 0 has {values[0]!r}, rank {odd[0]} has {values[odd[0]]!r} "
                f"(different from rank 0: {listed}); start all with the same command, files and environment"
            )

    def wrap(self, module: Module) -> Module:
        """Return the module whose backward pass averages the gradients over the ranks; parameters become rank 0's."""
        return module

    def no_sync(self, module: Module) -> contextlib.AbstractContextManager[None]:
        """Inside the `with`, backward passes of a wrapped module add up gradients without averaging them."""
        return contextlib.nullcontext()

    def leaders(self) -> Dist | None:
        """Return the Dist of one rank per node, those with local rank 0, and None on all other ranks.

        A collective call, and an expensive one: once per run.
        """
        return self

    def group(self, size: int) -> Dist:
        """Return the Dist of the `size` consecutive ranks that this one is among: ranks 0 to size - 1, and so on.

        A collective call, and an expensive one: once per run. ValueError if the groups would not be equally large.
        """
        if self.world_size % size:
            raise ValueError(f"{self.world_size} rank(s) do not fall into groups of {size}; expected a divisor")
        return self

    def split(self, last: int) -> tuple[Dist, Link | None]:
        """Return the Dist of the ranks before the `last` ones, or on these their own, and the link between both.

        The link is None on the ranks before but rank 0. A collective call; ValueError unless both parts have a rank.
        """
        if not last:
            return self, None
        raise ValueError(f"{last} of {self.world_size} rank(s) cannot be set apart; expected fewer than there are")

    @property
    def process_group(self) -> Any:
        """The ranks as torch.distributed knows them, for modules that talk to them on their own; None: nobody."""
        return None

    def close(self) -> None:
        """The ranks no longer need each other; `connect` calls this at its end."""


class Link:
    """Between rank 0 and the ranks that are set apart, here ranks 1 and so on. Who waits here, waits without limit."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.rank = rank
        # Not known to torch.distributed, whose timeout for connecting it would be too.
        self._group = td.ProcessGroupGloo(td.PrefixStore("link", store), rank, size, UNLIMITED)

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        """`tensor`, in main memory and of equal shape on all ranks of the link, holds those of rank `src`."""
        whole = tensor.detach().contiguous()
        self._group.broadcast(whole.view(-1).view(torch.uint8), src).wait()
        if whole.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(whole)
        return tensor


class _Ranks(Dist):
    """Several ranks that talk through a process group of torch.distributed; None is the group of all ranks.

    store: where all ranks meet; None if these are not all.
    """

    def __init__(
        self, place: Place, device: torch.device, timeout: timedelta, group: Any = None, store: Any = None
    ) -> None:
        super().__init__(place, device)
        self._timeout, self._group, self._store = timeout, group, store

    def barrier(self) -> None:
        super().barrier()
        td.all_reduce(torch.zeros(1), group=self._group)

    def all_reduce(self, tensor: Tensor, op: Literal["sum", "max", "min"] = "sum") -> Tensor:
        operation = {"sum": td.ReduceOp.SUM, "max": td.ReduceOp.MAX, "min": td.ReduceOp.MIN}[op]
        td.all_reduce(tensor.detach(), operation, group=self._group)
        return tensor

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        # As bytes: gloo does not know all types (int16, for one).
        whole = tensor.detach().contiguous()
        td.broadcast(whole.view(-1).view(torch.uint8), group=self._group, group_src=src)
        if whole.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(whole)
        return tensor

    def broadcast_object(self, value: Any, src: int = 0) -> Any:
        box = [value]
        td.broadcast_object_list(box, group=self._group, group_src=src, device=torch.device("cpu"))
        return box[0]

    def gather_objects(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world_size
        td.all_gather_object(values, value, group=self._group)
        return values

    def wrap(self, module: Module) -> Module:
        devices = None if self.device.type == "cpu" else [self.device]
        wrapped = DistributedDataParallel(
            module, device_ids=devices, process_group=self._group, gradient_as_bucket_view=True
        )
        # Buffers (running statistics) start equal, and then stay each rank's own: sending them costs time in each step.
        wrapped.broadcast_buffers = False
        return wrapped

    def no_sync(self, module: Module) -> contextlib.AbstractContextManager[None]:
        context: contextlib.AbstractContextManager[None] = module.no_sync()
        return context

    def leaders(self) -> Dist | None:
        chosen = [rank for rank, local in enumerate(self.gather_objects(self.local_rank)) if local == 0]
        if self.local_rank != 0:
            self._group_of([])
            return None
        place = replace(self.place, rank=chosen.index(self.rank), world_size=len(chosen), local_size=1)
        return _Ranks(place, self.device, self._timeout, self._group_of(chosen))

    def group(self, size: int) -> Dist:
        super().group(size)
        if size == 1:
            return Dist(_alone(self.place.launcher), self.device)
        rank = self.rank % size
        place = replace(_alone(self.place.launcher), rank=rank, world_size=size, local_rank=rank, local_size=size)
        first = self.rank - rank
        return _Ranks(place, self.device, self._timeout, self._group_of(range(first, first + size)))

    def split(self, last: int) -> tuple[Dist, Link | None]:
        if not 0 < last < self.world_size or self._store is None:
            return super().split(last)
        nodes = self.gather_objects(str(self.node_rank))
        first = self.world_size - last
        mine = range(first) if self.rank < first else range(first, self.world_size)
        place = settle(Place(self.place.launcher, self.rank - mine.start, None), [nodes[rank] for rank in mine])
        own = _Ranks(place, self.device, self._timeout, self._group_of(mine))
        if 0 < self.rank < first:
            return own, None
        return own, Link(self._store, max(0, self.rank - first + 1), last + 1)

    def _group_of(self, chosen: Sequence[int]) -> Any:
        """Return the process group of these ranks, this one among them, if there are any.

        All ranks of the job call it at once, also where they were split, each with its own part. It is a new one also
        for all ranks: its calls come between those of others.
        """
        of_all = td.get_process_group_ranks(self._group)
        mine = tuple(of_all[rank] for rank in chosen)
        parts: list[Any] = [None] * td.get_world_size()
        td.all_gather_object(parts, mine)
        groups = {part: td.new_group(part, timeout=self._timeout) for part in sorted(set(parts)) if part}
        return groups.get(mine)

    @property
    def process_group(self) -> Any:
        return self._group

    def close(self) -> None:
        td.destroy_process_group(self._group)


def alone() -> Dist:
    """Return the Dist of a process that computes on its CPU by itself, also where it is one of several ranks."""
    return Dist(_alone("single"), torch.device("cpu"))


def _alone(launcher: str) -> Place:
    return Place(launcher, rank=0, world_size=1, local_rank=0, local_size=1, node_rank=0, nodes=1)


UNLIMITED: Final = timedelta(days=20)  # gloo counts milliseconds in 32 bits
_DEFAULTS: Final = DistConfig()
_connections = itertools.count()


@contextlib.contextmanager
def connect(config: DistConfig = _DEFAULTS) -> Iterator[Dist]:
    """Yield the Dist of this process among all that its launcher started; at the end all ranks have come there.

    When the body raises on one of several ranks, its error is shown with the rank, `failure.Stopped` is raised on
    the others, and all leave with SystemExit(1): put everything that a rank must clean up inside the `with`. SIGTERM
    ends the body by SystemExit, unless another handler is set. One process alone raises what the body raises.

    Raises LaunchError when the launcher's variables are half-set, the ranks cannot meet, a node has more ranks than
    devices, or there is no such device. Under mpirun it can be called once in a process.
    """
    place = find_place(os.environ)
    with contextlib.ExitStack() as stack:
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            stack.enter_context(handling(signal.SIGTERM, _terminated))
        if place.world_size == 1:
            yield Dist(place, choose_device(device_type(config.device), place))
            return
        yield from _connect_ranks(place, config)


def _connect_ranks(place: Place, config: DistConfig) -> Iterator[Dist]:
    timeout = timedelta(seconds=config.timeout_s)
    store, world_size = _meet(place, timeout)
    # The alarm has a connection of its own: the main thread may wait on the other.
    brief = timedelta(seconds=GRACE_S)
    watched = td.TCPStore(store.host, store.port, is_master=False, wait_for_workers=False, timeout=brief)
    prefix = f"connect{next(_connections)}"  # a later connection finds no notes of this one
    former = open_sockets()
    alarm = Alarm(td.PrefixStore(prefix, watched), place.rank, world_size, lambda: _end_collectives(former, store.port))
    try:
        with alarm:
            ranks = _join(place, td.PrefixStore(prefix, store), world_size, config)
            yield ranks
            ranks.barrier()
        ranks.close()
    except BaseException as error:
        alarm.fail(error)
        raise SystemExit(1) from error


def _meet(place: Place, timeout: timedelta) -> tuple[td.TCPStore, int]:
    """Return the store through which the ranks find each other, and how many they are."""
    if place.address is None or place.world_size is None:
        return _meet_by_mpi(place, timeout)
    host, port = place.address
    # The agent of torchrun may hold the store, and then no rank does.
    master = place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = td.TCPStore(host, port, place.world_size, is_master=master, timeout=timeout, multi_tenant=True)
    except RuntimeError as error:
        raise LaunchError(
            f"rank {place.rank} of {place.world_size} (started by {place.launcher}) did not meet the others at "
            f"{host}:{port} within {timeout.total_seconds():.0f} s: were all started, is the port free, is the host "
            f"rank 0's? MASTER_ADDR and MASTER_PORT name another place. torch says: {str(error).splitlines()[0]}"
        ) from error
    return store, place.world_size


def _meet_by_mpi(place: Place, timeout: timedelta) -> tuple[td.TCPStore, int]:
    """Return the same; MPI tells the ranks where rank 0 listens, and is then no longer needed."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, but no MPI library
        raise LaunchError(
            f"{place.launcher} has started rank {place.rank}, but does not tell where the ranks meet (or how many they "
            f"are), and MPI cannot be asked ({error}): install mpi4py for the MPI that started this (the extra `mpi` "
            f"brings one), or set RANK, WORLD_SIZE, MASTER_ADDR (rank 0's host) and MASTER_PORT (a free one there)"
        ) from error
    world = MPI.COMM_WORLD
    if world.rank != place.rank or place.world_size not in (None, world.size):
        raise LaunchError(
            f"{place.launcher} has started rank {place.rank} of {place.world_size}, but mpi4py takes it for rank "
            f"{world.rank} of {world.size}: mpi4py uses another MPI library ({MPI.get_vendor()[0]}) than the launcher; "
            f"start with that library's mpirun, or install mpi4py from source for the launcher's"
        )
    store = None
    if place.rank == 0:
        host = "localhost" if place.nodes == 1 else socket.gethostname()
        store = td.TCPStore(host, 0, world.size, is_master=True, timeout=timeout, wait_for_workers=False)
    host, port = world.bcast((store.host, store.port) if store else None)
    size = world.size
    MPI.Finalize()
    return store or td.TCPStore(host, port, size, is_master=False, timeout=timeout), size


def _join(place: Place, store: Any, world_size: int, config: DistConfig) -> _Ranks:
    """Return the Dist of all ranks; threads and device are set for those that share a node."""
    kind = device_type(config.device)
    backend = "gloo" if kind == "cpu" else f"cpu:gloo,{kind}:{td.get_default_backend_for_device(kind)}"
    timeout = timedelta(seconds=config.timeout_s)
    td.init_process_group(backend, store=store, rank=place.rank, world_size=world_size, timeout=timeout)
    own = (socket.gethostname(), usable_cores(), only_device(kind))
    ranks: list[Any] = [None] * world_size
    td.all_gather_object(ranks, own)
    place = settle(place, [host for host, _, _ in ranks])
    sharing = sum(rank[:2] == own[:2] for rank in ranks)
    if sharing > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(own[1]) // sharing))
    only_devices = [device for host, _, device in ranks if host == own[0]]
    dist = _Ranks(place, choose_device(kind, place, only_devices), timeout, store=store)
    dist.same(kind, "the type of device")
    return dist


def _end_collectives(former: set[int], store_port: int) -> None:
    # gloo has no other way to end an all_reduce that waits for a rank: after its `abort` it still waits (torch 2.13).
    cut_connections(former, store_port)
    with contextlib.suppress(RuntimeError):  # other backends than nccl may have none
        if td.is_initialized():
            td.group.WORLD.abort()


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
