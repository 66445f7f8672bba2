"""The ranks of a run: their numbers, their communication, and how all stop when one fails.

    with connect(config.dist) as dist:
        model = dist.wrap(model.to(dist.device))

Only this room imports torch.distributed and mpi4py. What is in main memory goes by the control plane
(common/ranks/control.py), with and without accelerators; what is on a device by its own library (nccl, xccl). On CPUs
up to MOST_CONNECTED ranks also form a group of gloo, which connects all with each other, for gradients, for sums that
are rounded, and for samples that ranks share; of more ranks all go by the control plane. MPI serves one purpose: under
mpirun it tells the ranks where rank 0 listens. Tested on CPUs under torchrun, Open MPI, MPICH and Slurm
(tests/cluster); untested with several GPUs.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol, Self

import torch
import torch.distributed as td
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from common.errors import LaunchError
from common.ranks.alarm import UNLIMITED, Alarm
from common.ranks.control import (
    OPERATIONS,
    ControlPlane,
    Operation,
    Rendezvous,
    format_json,
    pack_bytes,
    parse_json,
)
from common.ranks.groups import begin_group, explain_connecting, leave_group
from common.ranks.launch import RankPosition
from common.ranks.meeting import seat_ranks
from common.settings.machine import DistConfig
from common.stop import STOP

DEFAULTS: Final = DistConfig()
_ALONE: Final = ControlPlane(0, Rendezvous(None, (), ""), UNLIMITED)
MOST_CONNECTED: Final = 256
"""Ranks on CPUs that all connect with each other."""


Wait = Callable[[], None]


class Traffic(Protocol):
    """What measures the messages with gradients: `common.measure.meter.Traffic`."""

    def begin_message(self, message: Tensor) -> None:
        """Note that a message is ready to be sent."""

    def end_message(self) -> None:
        """Note that a message has arrived everywhere."""


class Dist:
    """The ranks as seen by one of them; by default it is alone. Several are connected by `join_ranks`.

    All methods but `wrap`, `no_sync` and `exchange_tensors` are collective: all ranks call them in the same order.
    reduces_in_backward: whether `wrap` averages gradients; else `average` is for them.
    data_rank, data_size: number of this rank's samples among the parts of a batch, and how many parts there are: rank
    and world_size, unless ranks share samples.
    sharing: the ranks that share their samples with this one, by default it alone. peers: those that hold the same part
    of their samples as this one.
    traffic: what measures the messages with gradients; None: nothing does. Set it before `wrap` is called.
    records_reduction: whether recorded steps have these messages in them, see `dist.record_reduction`.
    alarm: that of the ranks; None in a single process. leave: waits for all at the end of the job.
    """

    alarm: Alarm | None = None
    traffic: Traffic | None = None
    _leaders: Dist | None = None

    def __init__(
        self,
        position: RankPosition,
        device: torch.device,
        config: DistConfig = DEFAULTS,
        plane: ControlPlane = _ALONE,
        group: Any = None,
    ) -> None:
        """Connect nothing. plane: of the ranks. group: theirs of torch.distributed, or None, see the module."""
        self.position = position
        self.device = device
        self.rank = position.rank
        self.world_size, self.local_rank, self.local_size, self.node_rank, self.nodes = position.require_facts()
        self.is_main = position.rank == 0
        self.data_rank, self.data_size = self.rank, self.world_size
        self._config, self._plane, self._group = config, plane, group
        self.sharing = self if self.world_size == 1 else Dist(_make_single_position(position.launcher), device)
        self.peers = self
        self.records_reduction, self.reduces_in_backward = config.record_reduction, group is not None
        self.leave: Callable[[], None] = self.barrier
        self._nodes: list[int] = []
        self._formed = 0

    def barrier(self) -> None:
        """Wait until all ranks are here and their devices have finished the work given to them."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        self.all_reduce(torch.zeros(1, dtype=torch.int32))

    def all_reduce(self, tensor: Tensor, op: Operation = "sum") -> Tensor:
        """Reduce `tensor` element-wise over all ranks, in place on each, and return it.

        Where all ranks connect, numbers are added in an order that does not depend on where the ranks are.
        """
        if self.world_size == 1:
            return tensor
        STOP.check()  # a rank that has failed takes part no more
        is_fact = tensor.device.type == "cpu" and (self.device.type != "cpu" or not tensor.is_floating_point())
        if self._group and not is_fact:
            td.all_reduce(tensor.detach(), OPERATIONS[op], group=self._group)
        else:
            here = tensor.detach().cpu()
            self._plane.all_reduce(here, op)
            _copy_back(here, tensor)
        return tensor

    def average(self, gradients: Tensor) -> Tensor:
        """Replace gradients, in one dimension, by their mean over all ranks, and return them.

        They are sent in the format of `dist.gradients`, in one message, or in several of `dist.bucket_mb`.
        """
        if self.world_size == 1:
            return gradients
        sent = self._begin_message(gradients)
        bucket_mb = self._config.bucket_mb
        bucket_bytes = sent.nbytes if bucket_mb is None else int(bucket_mb * 2**20)
        for bucket in sent.split(max(1, bucket_bytes // sent.element_size())):
            STOP.check()
            if self._group:
                td.all_reduce(bucket, group=self._group)
            else:
                self._plane.all_reduce(bucket, "sum")
        return self._end_message(sent, gradients)

    def _average_bucket(self, bucket: td.GradBucket) -> torch.futures.Future[Tensor]:
        """Average a bucket of gradients over the ranks; DDP calls it.

        torch's own hook for bf16 is refused on a CPU, and divides before it adds.
        """
        sent = self._begin_message(bucket.buffer())
        work = td.all_reduce(sent, group=self._group, async_op=True)
        return work.get_future().then(lambda sums: self._end_message(sums.value()[0], bucket.buffer()))

    def _begin_message(self, gradients: Tensor) -> Tensor:
        """Return gradients in the format in which they travel."""
        sent = gradients.to(torch.bfloat16) if self._config.gradients == "bf16" else gradients
        if self.traffic is not None:
            self.traffic.begin_message(sent)
        return sent

    def _end_message(self, sums: Tensor, gradients: Tensor) -> Tensor:
        """Replace gradients by their mean, and return them. sums: over all ranks, as they travelled."""
        if self.traffic is not None:
            self.traffic.end_message()
        return gradients.copy_(sums).div_(self.world_size)

    def in_float32(self) -> Dist:
        """Return the same ranks with gradients that travel in float32, whatever `dist.gradients` says."""
        ranks = copy.copy(self)
        ranks._config = replace(self._config, gradients="fp32")
        ranks.peers = ranks if self.peers is self else self.peers.in_float32()
        return ranks

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        """Copy rank `src`'s values into `tensor`, of any type and the same shape on all ranks, and return it."""
        if self.world_size == 1:
            return tensor
        STOP.check()
        whole = tensor.detach().contiguous()
        if self._group and whole.device.type != "cpu":
            td.broadcast(_as_bytes(whole), group=self._group, group_src=src)
        else:
            whole = whole.cpu()
            self._plane.broadcast(_as_bytes(whole), src)
        _copy_back(whole, tensor)
        return tensor

    def broadcast_bytes(self, content: bytes, src: int = 0) -> bytes:
        """Return rank `src`'s bytes on all ranks."""
        size = int(self.broadcast(torch.tensor(len(content)), src))
        packed = pack_bytes(content if self.rank == src else b"", size)
        return bytes(self.broadcast(packed, src).numpy())

    def broadcast_json(self, value: Any, src: int = 0) -> Any:
        """Return rank `src`'s value on all ranks, as JSON has it: tuples become lists; NaN and infinity stay."""
        return parse_json(self.broadcast_bytes(format_json(value) if self.rank == src else b"", src))

    def gather_json(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order and as JSON has them, on rank 0, and nothing on the others.

        Each takes as much memory there as the longest: for numbers and short texts.
        """
        STOP.check()
        return self._plane.gather(value)

    def find_first(self, value: Any) -> Any:
        """Return on all ranks the value of the first rank that has one, as JSON has it; None if all have None."""
        first = int(self.all_reduce(torch.tensor(self.world_size if value is None else self.rank), "min"))
        return None if first == self.world_size else self.broadcast_json(value, first)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, in their order; they have equal shapes."""
        whole = tensor.detach().contiguous()
        if self.world_size == 1 or not whole.numel():
            return [whole] * self.world_size
        gathered = whole.new_zeros(self.world_size, *whole.shape)
        if self._group and whole.device.type == self.device.type:
            td.all_gather([_as_bytes(part) for part in gathered], _as_bytes(whole), group=self._group)
        else:
            gathered[self.rank] = whole
            self.all_reduce(_as_bytes(gathered))
        return list(gathered)

    def exchange_tensors(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> Wait:
        """Start to send tensors to ranks and to receive others, dense ones, from ranks; return what waits for the end.

        Between two ranks at most one tensor is under way in each direction.
        """
        sending = [(rank, _as_bytes(tensor)) for rank, tensor in sent]  # until they have arrived
        operations = [td.P2POp(td.isend, tensor, group=self._group, group_peer=rank) for rank, tensor in sending]
        operations += [
            td.P2POp(td.irecv, _as_bytes(tensor), group=self._group, group_peer=rank) for rank, tensor in received
        ]
        works = td.batch_isend_irecv(operations) if operations else []

        def wait() -> None:
            for work in works:
                work.wait()
            sending.clear()

        return wait

    def check_equal(self, value: Any, noun: str) -> None:
        """Raise LaunchError on all ranks, naming one that differs, unless all have an equal value, as JSON has it."""
        digest = int.from_bytes(hashlib.sha256(format_json(value)).digest()[:7])
        if not self.all_reduce(torch.tensor([digest, -digest]), "max").sum():
            return
        main = self.broadcast_json(value)
        differs = parse_json(format_json(value)) != main
        odd, other = self.find_first([self.rank, value] if differs else None)
        count = int(self.all_reduce(torch.tensor(int(differs))))
        raise LaunchError(
            f"the ranks disagree on {noun}: rank 0 has {main!r}, rank {odd} has {other!r} ({count} of "
            f"{self.world_size} differ from rank 0); start all ranks with the same command, files and environment"
        )

    def share_samples(self) -> Self:
        """Form the groups of ranks that share samples, neighbours on a node first, and return this Dist.

        LaunchError if the ranks cannot form them. An expensive call, for all ranks of a job or of a part of it.
        """
        size = self._config.sharing
        self.check_equal([self.device.type, self._config.extents], "dist.device or dist.spatial")
        check_sharing(self._config, self.world_size)
        if size == 1:
            return self
        if not self._group:
            raise LaunchError(
                f"dist.spatial is {self._config.spatial_text} on {self.world_size} ranks, but on CPUs at most "
                f"{MOST_CONNECTED} ranks can share samples: start fewer ranks, or leave dist.spatial out"
            )
        nodes = self.find_nodes()
        near = sorted(range(self.world_size), key=lambda rank: (nodes[rank], rank))
        groups = [sorted(near[first : first + size]) for first in range(0, self.world_size, size)]
        self.data_rank, self.data_size = next(i for i, group in enumerate(groups) if self.rank in group), len(groups)
        mine = groups[self.data_rank]
        self.sharing, number = self._form_group(mine), mine.index(self.rank)
        self.peers = self._form_group([group[number] for group in groups])
        return self

    def wrap(self, module: Module) -> Module:
        """Return the module with gradients averaged over the ranks in backward passes, and rank 0's parameters.

        ValueError if the ranks do not all connect: see `reduces_in_backward`.
        """
        if self.world_size == 1:
            return module
        if not self._group:
            raise ValueError(f"{self.world_size} ranks do not all connect: call `average` after backward passes")
        wrapped = DistributedDataParallel(
            module,
            device_ids=None if self.device.type == "cpu" else [self.device],
            process_group=self._group,
            gradient_as_bucket_view=True,
            bucket_cap_mb=self._config.bucket_mb,
        )
        if self._config.gradients == "bf16" or self.traffic is not None:
            # A lambda: DDP wants annotations that are types, and those of this module are text.
            wrapped.register_comm_hook(None, lambda _, bucket: self._average_bucket(bucket))
        # Buffers (running statistics) start equal and then differ by rank: sending them would cost time in each step.
        wrapped.broadcast_buffers = False
        return wrapped

    def no_sync(self, module: Module) -> contextlib.AbstractContextManager[None]:
        """Return a context in which backward passes of a wrapped module add up gradients without averaging them."""
        return module.no_sync() if isinstance(module, DistributedDataParallel) else contextlib.nullcontext()

    def find_nodes(self) -> list[int]:
        """Return the number of each rank's node; a collective call the first time."""
        if not self._nodes:
            nodes = torch.zeros(self.world_size, dtype=torch.int32)
            nodes[self.rank] = self.node_rank
            self._nodes = self.all_reduce(nodes).tolist()
        return self._nodes

    def find_leaders(self) -> Dist | None:
        """Return the Dist of the ranks with local rank 0, in the order of the nodes; None on all other ranks.

        A collective call, expensive the first time.
        """
        if self._leaders is None:
            leaders = torch.zeros(self.nodes, dtype=torch.int32)
            leaders[self.node_rank] = 0 if self.local_rank else self.rank
            self._leaders = self._form_group(self.all_reduce(leaders).tolist(), connected=False)
        return self._leaders if self.local_rank == 0 else None

    def group(self, size: int) -> Dist:
        """Return the Dist of this rank's group of `size` consecutive ranks: ranks 0 to size - 1, and so on.

        An expensive call: make it once per run. ValueError if `size` does not divide the number of ranks.
        """
        self.check_divisor(size)
        if size == 1:
            return Dist(_make_single_position(self.position.launcher), self.device)
        first = self.rank - self.rank % size
        return self._form_group(range(first, first + size))

    def check_divisor(self, size: int) -> None:
        """Raise ValueError if the ranks cannot form groups of this size."""
        if self.world_size % size:
            raise ValueError(f"{self.world_size} rank(s) cannot form groups of {size}; expected a divisor")

    def split(self, last: int) -> tuple[Dist, Dist | None]:
        """Separate the `last` ranks; return the Dist of this rank's part and the link between the two parts.

        The link joins rank 0 and the separated ranks, which are ranks 1, 2, … there; its calls have no timeout. None on
        the other ranks. ValueError unless both parts have a rank.
        """
        if not last:
            return self, None
        first = self.world_size - last
        if first < 1:
            raise ValueError(f"{last} of {self.world_size} rank(s) cannot be separated; expected fewer than all")
        own = self._form_group(range(first) if self.rank < first else range(first, self.world_size))
        link = self._form_group([0, *range(first, self.world_size)], UNLIMITED, connected=False)
        return own, None if 0 < self.rank < first else link

    def _form_group(self, chosen: Sequence[int], timeout: timedelta | None = None, connected: bool = True) -> Dist:
        """Return the Dist of the chosen ranks, on another rank that of this one alone: all make the call.

        Else groups of ranks that have made unequally many would wait for each other, as torch counts them in their
        names. The process group is a new one even for all ranks, so that its calls cannot mix with those of others.
        connected: they get one if these ranks have one.
        """
        if self.world_size == 1:
            return self
        chosen, nodes = chosen if self.rank in chosen else [self.rank], self.find_nodes()
        timeout, group = timeout or timedelta(seconds=self._config.timeout_s), None
        self._formed += 1
        with explain_connecting(self.rank, self.device):
            name, own = f"group{self._formed}/{chosen[0]}", [nodes[rank] for rank in chosen]
            plane = self._plane.form_part(chosen.index(self.rank), own, name, timeout)
            if connected and self._group:
                of_all = td.get_process_group_ranks(self._group)
                members = [of_all[rank] for rank in chosen]
                group = td.new_group(members, timeout=timeout, use_local_synchronization=True)
        ranks = Dist(self._find_position(chosen), self.device, self._config, plane, group)
        ranks.alarm, ranks._nodes = self.alarm, own
        return ranks

    def _find_position(self, chosen: Sequence[int]) -> RankPosition:
        """Return the position of this rank among the chosen ones."""
        rank, nodes = chosen.index(self.rank), [self._nodes[rank] for rank in chosen]
        node, distinct = nodes[rank], list(dict.fromkeys(nodes))
        local = (nodes[:rank].count(node), nodes.count(node))
        return RankPosition(self.position.launcher, rank, len(nodes), *local, distinct.index(node), len(distinct))

    def rejoin_ranks(self, chosen: range, store: Any, alarm: Alarm) -> Dist:
        """Return the Dist of the chosen ranks, which include this one and connect by the store, after `close`.

        All ranks have called `find_nodes` before that.
        """
        position, nodes = self._find_position(chosen), [self._nodes[rank] for rank in chosen]
        if len(chosen) == 1:
            return Dist(position, self.device)
        rendezvous = self._plane.rendezvous._replace(store=store, seats=seat_ranks(nodes)[position.rank])
        return join_ranks(position, rendezvous, self.device, self._config, alarm)

    def note_progress(self, progress: str) -> None:
        """Say how far the work is, such as in which step, for the sign of life that other ranks see of this one."""
        if self.alarm:
            self.alarm.progress = progress

    def first_failure(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that raises the failure of another rank instead of what follows from it, on this rank alone.

        Where an error is recorded, or decides what is cleaned up, a lost connection is not the cause.
        """
        return self.alarm.first_failure() if self.alarm else contextlib.nullcontext()

    @property
    def has_lost_main(self) -> bool:
        """Whether the process of the job's rank 0 is lost, or the network to it."""
        return self.alarm is not None and self.alarm.has_lost_main

    def close(self) -> None:
        """End the communication; `connect` calls it at its end."""
        self._leaders = None
        self._plane.close()
        if self._group:
            leave_group(self._group)


def join_ranks(
    position: RankPosition, rendezvous: Rendezvous, device: torch.device, config: DistConfig, alarm: Alarm
) -> Dist:
    """Connect the ranks that meet, and return their Dist; LaunchError if they cannot."""
    world_size, timeout, group = position.require_facts()[0], timedelta(seconds=config.timeout_s), None
    with explain_connecting(position.rank, device):
        plane = ControlPlane(position.rank, rendezvous, timeout)
        if device.type != "cpu" or world_size <= MOST_CONNECTED:
            group = begin_group(position.rank, world_size, rendezvous.store, device, timeout)
        ranks = Dist(position, device, config, plane, group)
        ranks.alarm = alarm
        return ranks.share_samples()


def _copy_back(values: Tensor, tensor: Tensor) -> None:
    """Give a tensor its new values unless they are in its memory."""
    if values.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(values)


def _as_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous tensor: gloo does not support all types, such as int16."""
    return tensor.detach().view(-1).view(torch.uint8)


def check_sharing(config: DistConfig, ranks: int) -> None:
    """Raise LaunchError if this many ranks cannot share samples as configured."""
    if ranks % config.sharing:
        raise LaunchError(
            f"dist.spatial is {config.spatial_text}, so that {config.sharing} ranks share each sample, but there are "
            f"{ranks} rank(s); start a multiple of {config.sharing} (torchrun --nproc-per-node {config.sharing})"
        )


def make_single_dist() -> Dist:
    """Return the Dist of a process that computes alone on its CPU, even if it is one of several ranks."""
    return Dist(_make_single_position("single"), torch.device("cpu"))


def _make_single_position(launcher: str) -> RankPosition:
    return RankPosition(launcher, rank=0, world_size=1, local_rank=0, local_size=1, node_rank=0, nodes=1)
