"""The ranks of a run: their numbers, their communication, and how all stop when one fails.

    with connect(config.dist) as dist:
        model = dist.wrap(model.to(dist.device))

Only this room imports torch.distributed and mpi4py. Tensors in main memory are sent by gloo,
those on a device by its own library (nccl, xccl). MPI serves one purpose: under mpirun it tells the ranks where rank 0
listens. Tested on CPUs under torchrun, Open MPI, MPICH and Slurm (tests/cluster); untested with several GPUs.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Literal, Protocol, Self

import torch
import torch.distributed as td
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from common.ranks.alarm import UNLIMITED, Alarm
from common.ranks.groups import begin_group, explain_connecting, leave_group
from common.ranks.launch import LaunchError, RankPosition
from common.settings.machine import DistConfig
from common.stop import STOP

LONGEST: Final = 2**32
"""Bytes of a message, such as the list of the files to be staged, or a batch of predictions."""


Wait = Callable[[], None]


class Traffic(Protocol):
    """What measures the messages with gradients: `common.measure.meter.Traffic`."""

    def begin_message(self, message: Tensor) -> None:
        """Note that a message is ready to be sent."""

    def end_message(self) -> None:
        """Note that a message has arrived everywhere."""


class Dist:
    """The ranks as seen by one of them; this class itself is the single rank of a run in one process.

    All methods but `wrap`, `no_sync` and `exchange_tensors` are collective: all ranks call them in the same order.
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
    records_reduction = False

    def __init__(self, position: RankPosition, device: torch.device) -> None:
        self.position = position
        self.device = device
        self.rank = position.rank
        self.world_size, self.local_rank, self.local_size, self.node_rank, self.nodes = position.require_facts()
        self.is_main = position.rank == 0
        self.data_rank, self.data_size = self.rank, self.world_size
        self.sharing: Dist = self
        self.peers: Dist = self
        self.leave: Callable[[], None] = self.barrier

    def barrier(self) -> None:
        """Wait until all ranks are here and their devices have finished the work given to them."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def all_reduce(self, tensor: Tensor, op: Literal["sum", "max", "min"] = "sum") -> Tensor:
        """Reduce `tensor` element-wise over all ranks, in place on each, and return it."""
        return tensor

    def average(self, gradients: Tensor) -> Tensor:
        """Replace gradients, in one dimension, by their mean over all ranks, and return them.

        They are sent in the format of `dist.gradients`, in one message, or in several of `dist.bucket_mb`.
        """
        return gradients

    def in_float32(self) -> Dist:
        """Return the same ranks with gradients that travel in float32, whatever `dist.gradients` says."""
        return self

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        """Copy rank `src`'s values into `tensor`, of any type and the same shape on all ranks, and return it."""
        return tensor

    def broadcast_bytes(self, content: bytes, src: int = 0) -> bytes:
        """Return rank `src`'s bytes on all ranks."""
        return content

    def broadcast_json(self, value: Any, src: int = 0) -> Any:
        """Return rank `src`'s value on all ranks, as JSON has it: tuples become lists; NaN and infinity stay."""
        return parse_json(self.broadcast_bytes(format_json(value) if self.rank == src else b"", src))

    def gather_json(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order and as JSON has them, on rank 0, and nothing on the others.

        Each takes as much memory there as the longest: for numbers and short texts.
        """
        return [parse_json(format_json(value))]

    def find_first(self, value: Any) -> Any:
        """Return on all ranks the value of the first rank that has one, as JSON has it; None if all have None."""
        return self.broadcast_json(value)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, in their order; they have equal shapes."""
        return [tensor]

    def exchange_tensors(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> Wait:
        """Start to send tensors to ranks and to receive others, dense ones, from ranks; return what waits for the end.

        Between two ranks at most one tensor is under way in each direction.
        """
        raise ValueError("one process has no other rank to exchange tensors with")

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

    def wrap(self, module: Module) -> Module:
        """Return the module with gradients averaged over the ranks in backward passes, and rank 0's parameters."""
        return module

    def no_sync(self, module: Module) -> contextlib.AbstractContextManager[None]:
        """Return a context in which backward passes of a wrapped module add up gradients without averaging them."""
        return contextlib.nullcontext()

    def find_leaders(self) -> Dist | None:
        """Return the Dist of the ranks with local rank 0, one per node; None on all other ranks.

        An expensive call: make it once per run.
        """
        return self

    def group(self, size: int) -> Dist:
        """Return the Dist of this rank's group of `size` consecutive ranks: ranks 0 to size - 1, and so on.

        An expensive call: make it once per run. ValueError if `size` does not divide the number of ranks.
        """
        self.check_divisor(size)
        return self

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
        raise ValueError(f"{last} of {self.world_size} rank(s) cannot be separated; expected fewer than all")

    def rejoin_ranks(self, chosen: range, store: Any, alarm: Alarm) -> Dist:
        """Return the Dist of the chosen ranks, which include this one and connect by the store, after `close`."""
        return Dist(self.position, self.device)

    def note_progress(self, progress: str) -> None:
        """Say how far the work is, such as in which step, for the sign of life that other ranks see of this one."""
        if self.alarm:
            self.alarm.progress = progress

    def first_failure(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that raises the failure of another rank instead of what follows from it, on this rank alone.

        Where an error is recorded, or decides what is cleaned up, a lost connection is not the cause.
        """
        return self.alarm.first_failure() if self.alarm else contextlib.nullcontext()

    def close(self) -> None:
        """End the communication; `connect` calls it at its end."""


class RankGroup(Dist):
    """Several ranks that communicate by a process group of torch.distributed; None is the group of all ranks."""

    def __init__(
        self,
        position: RankPosition,
        device: torch.device,
        config: DistConfig,
        alarm: Alarm | None,
        group: Any = None,
    ) -> None:
        super().__init__(position, device)
        self.alarm, self._config, self._group = alarm, config, group
        self.sharing = Dist(_make_single_position(position.launcher), device)
        self._nodes: list[int] = []
        self.records_reduction = config.record_reduction

    def barrier(self) -> None:
        super().barrier()
        self.all_reduce(torch.zeros(1))

    def all_reduce(self, tensor: Tensor, op: Literal["sum", "max", "min"] = "sum") -> Tensor:
        STOP.check()  # a rank that has failed takes part no more
        operation = {"sum": td.ReduceOp.SUM, "max": td.ReduceOp.MAX, "min": td.ReduceOp.MIN}[op]
        td.all_reduce(tensor.detach(), operation, group=self._group)
        return tensor

    def average(self, gradients: Tensor) -> Tensor:
        sent = self._begin_message(gradients)
        bucket_mb = self._config.bucket_mb
        bucket_bytes = sent.nbytes if bucket_mb is None else int(bucket_mb * 2**20)
        for bucket in sent.split(max(1, bucket_bytes // sent.element_size())):
            self.all_reduce(bucket)
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
        ranks = copy.copy(self)
        ranks._config = replace(self._config, gradients="fp32")
        ranks.peers = ranks if self.peers is self else self.peers.in_float32()
        return ranks

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        STOP.check()
        whole = tensor.detach().contiguous()
        td.broadcast(_as_bytes(whole), group=self._group, group_src=src)
        if whole.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(whole)
        return tensor

    def broadcast_bytes(self, content: bytes, src: int = 0) -> bytes:
        size = int(self.broadcast(torch.tensor(len(content)), src))
        packed = _pack_bytes(content if self.rank == src else b"", size)
        return bytes(self.broadcast(packed, src).numpy())

    def gather_json(self, value: Any) -> list[Any]:
        content = format_json(value)
        size = int(self.all_reduce(torch.tensor(len(content)), "max"))
        packed = _pack_bytes(content, size, self.world_size)
        received = [torch.empty_like(packed) for _ in range(self.world_size)] if self.is_main else None
        td.gather(packed, received, group=self._group, group_dst=0)
        return [parse_json(content.numpy().tobytes()) for content in received or []]

    def find_first(self, value: Any) -> Any:
        rank = self.world_size if value is None else self.rank
        first = int(self.all_reduce(torch.tensor(rank), "min"))
        return None if first == self.world_size else self.broadcast_json(value, first)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        whole = tensor.detach().contiguous()
        if not whole.numel():
            return [whole] * self.world_size
        gathered = [torch.empty_like(whole) for _ in range(self.world_size)]
        td.all_gather([_as_bytes(part) for part in gathered], _as_bytes(whole), group=self._group)
        return gathered

    def exchange_tensors(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> Wait:
        group = self._group or td.group.WORLD
        sending = [(rank, _as_bytes(tensor)) for rank, tensor in sent]  # until they have arrived
        operations = [td.P2POp(td.isend, tensor, group=group, group_peer=rank) for rank, tensor in sending]
        operations += [td.P2POp(td.irecv, _as_bytes(tensor), group=group, group_peer=rank) for rank, tensor in received]
        works = td.batch_isend_irecv(operations) if operations else []

        def wait() -> None:
            for work in works:
                work.wait()
            sending.clear()

        return wait

    def share_samples(self) -> Self:
        """Form the groups of ranks that share samples, neighbours on a node first, and return this Dist.

        LaunchError if the ranks cannot form them. An expensive call, for all ranks of a job or of a part of it.
        """
        size = self._config.sharing
        with explain_connecting(self.rank, td.get_backend()):  # the first collective
            self.check_equal([self.device.type, self._config.extents], "dist.device or dist.spatial")
        check_sharing(self._config, self.world_size)
        self._nodes = self._gather_numbers(self.node_rank)
        if size == 1:
            return self
        near = sorted(range(self.world_size), key=lambda rank: (self._nodes[rank], rank))
        groups = [sorted(near[first : first + size]) for first in range(0, self.world_size, size)]
        self.data_rank, self.data_size = next(i for i, group in enumerate(groups) if self.rank in group), len(groups)
        mine = groups[self.data_rank]
        self.sharing, number = self._form_group(mine), mine.index(self.rank)
        self.peers = self._form_group([group[number] for group in groups])
        return self

    def wrap(self, module: Module) -> Module:
        devices = None if self.device.type == "cpu" else [self.device]
        wrapped = DistributedDataParallel(
            module,
            device_ids=devices,
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
        return module.no_sync()

    def find_leaders(self) -> Dist | None:
        chosen = [rank for rank, local in enumerate(self._gather_numbers(self.local_rank)) if local == 0]
        group = self._form_group(chosen)
        return group if self.local_rank == 0 else None

    def group(self, size: int) -> Dist:
        self.check_divisor(size)
        if size == 1:
            return Dist(_make_single_position(self.position.launcher), self.device)
        first = self.rank - self.rank % size
        return self._form_group(range(first, first + size))

    def split(self, last: int) -> tuple[Dist, Dist | None]:
        if not 0 < last < self.world_size:
            return super().split(last)
        first = self.world_size - last
        own = self._form_group(range(first) if self.rank < first else range(first, self.world_size))
        link = self._form_group([0, *range(first, self.world_size)], UNLIMITED, "gloo")
        return own, None if 0 < self.rank < first else link

    def _gather_numbers(self, number: int) -> list[int]:
        """Return a number of each rank."""
        return [int(value) for value in self.all_gather(torch.tensor(number))]

    def _form_group(
        self, chosen: Sequence[int], timeout: timedelta | None = None, backend: str | None = None
    ) -> RankGroup:
        """Return the Dist of the chosen ranks, on another rank that of this one alone: all make the call.

        Else groups of ranks that have made unequally many would wait for each other, as torch counts them in their
        names. The process group is a new one even for all ranks, so that its calls cannot mix with those of others.
        """
        chosen = chosen if self.rank in chosen else [self.rank]
        of_all = td.get_process_group_ranks(self._group)
        with explain_connecting(self.rank, td.get_backend()):
            group = td.new_group(
                [of_all[rank] for rank in chosen],
                timeout=timeout or timedelta(seconds=self._config.timeout_s),
                backend=backend,
                use_local_synchronization=True,
            )
        ranks = RankGroup(self._find_position(chosen), self.device, self._config, self.alarm, group)
        ranks._nodes = [self._nodes[rank] for rank in chosen]
        return ranks

    def _find_position(self, chosen: Sequence[int]) -> RankPosition:
        """Return the position of this rank among the chosen ones."""
        rank, nodes = chosen.index(self.rank), [self._nodes[rank] for rank in chosen]
        node, distinct = nodes[rank], list(dict.fromkeys(nodes))
        local = (nodes[:rank].count(node), nodes.count(node))
        return RankPosition(self.position.launcher, rank, len(nodes), *local, distinct.index(node), len(distinct))

    def rejoin_ranks(self, chosen: range, store: Any, alarm: Alarm) -> Dist:
        position = self._find_position(chosen)
        if len(chosen) == 1:
            return Dist(position, self.device)
        return join_ranks(position, store, self.device, self._config, alarm)

    def close(self) -> None:
        leave_group(self._group)


def join_ranks(position: RankPosition, store: Any, device: torch.device, config: DistConfig, alarm: Alarm) -> RankGroup:
    """Connect the ranks that find each other in the store, and return their Dist; LaunchError if they cannot."""
    begin_group(position.rank, position.require_facts()[0], store, device, config)
    return RankGroup(position, device, config, alarm).share_samples()


def format_json(value: Any) -> bytes:
    """Return a value as JSON; NaN and infinity are written as Python has them."""
    return json.dumps(value, separators=(",", ":")).encode()


def parse_json(content: bytes) -> Any:
    """Return the value in JSON that a rank sent, padded by blanks; LaunchError for anything else."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LaunchError(f"a rank sent what is not JSON ({error}): is this port open to others?") from None


def _pack_bytes(content: bytes, size: int, ranks: int = 1) -> Tensor:
    """Return bytes as a tensor, with blanks up to `size`, which may be 0; LaunchError for too many of all ranks."""
    if not 0 <= size * ranks <= LONGEST:
        raise LaunchError(f"the ranks announce a message of {size * ranks:,} bytes, expected at most {LONGEST:,}")
    return torch.frombuffer(bytearray(content.ljust(max(size, 1))), dtype=torch.uint8)[:size]


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
