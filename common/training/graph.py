"""Record the work on a batch as a CUDA graph, and replay it: one launch instead of thousands.

Work can be recorded if all that changes from one batch to the next is in the batch's tensors, or in tensors that the
work finds where they were: it must not wait for the device, and numbers of Python are those of the recording ever
after. The shapes of a batch decide what the work is, so that each shape has its own recording. Until there is one, and
where there can be none, the work is simply done: the plain way is the reference, and nothing is done twice.

A recording holds memory of the device, and the communicators of messages in it: NCCL waits for it before it ends. Hence
recordings have an owner, which closes them before the ranks part.

Sources: the CUDA graphs of torch (pytorch.org/docs/stable/notes/cuda.html#cuda-graphs); for NCCL, pytorch#115388. Run
on one H200 (docs/performance/gpu.md); messages in recordings have **not run on GPUs yet**. The tests record and replay
on a CPU, operation by operation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor

from common.data.prefetch import list_tensors, map_tensors
from common.ranks.dist import Dist

Mode = Literal["auto", "off"]
Recording = tuple[list[Tensor], Callable[[], None]]
"""The tensors that the work reads instead of a batch's, and what does the work."""
WARM_UP: Final = 3
"""How often work is done before it is recorded: libraries choose their algorithms, optimizers make their state."""
MOST_RECORDINGS: Final = 128
"""Batches of any further shapes are not worth the memory."""


class CudaGraphs:
    """Records on a CUDA device. All recordings share their memory for intermediate results, as they run in turn."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def prepare(self, work: Callable[[], None]) -> None:
        """Do the work now, as it must be done `WARM_UP` times before it is recorded.

        It is done on the stream of the recordings, for which libraries then have their memory.
        """
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            work()
        current.wait_stream(self.stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does the work, on the same memory; nothing is done yet.

        Raises RuntimeError for work that cannot be recorded.
        """
        graph = torch.cuda.CUDAGraph()
        inference = torch.is_inference_mode_enabled()
        # The first recording makes tensors for the random numbers of all: tensors of inference mode could not be
        # written for those of training steps.
        outside = torch.inference_mode(False) if inference else contextlib.nullcontext()
        inside = torch.inference_mode() if inference else contextlib.nullcontext()
        before = torch.cuda.current_stream()
        try:
            # thread_local: the threads of NCCL and of the loader go on using the device meanwhile.
            with outside, torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"), inside:
                work()
        except RuntimeError:
            self._abandon_recording(before)
            raise
        self._graphs.append(graph)
        return graph.replay

    def close(self) -> None:
        """Destroy the graphs, which must not be replayed any more, once the device has done their work."""
        if self._graphs:
            torch.cuda.synchronize(self.stream.device)
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()

    def _abandon_recording(self, stream: torch.cuda.Stream) -> None:
        """End what torch does not if a recording fails: it then leaves stream, memory and random numbers as in one."""
        torch.cuda.set_stream(stream)
        generator = torch.cuda.default_generators[self.stream.device_index]
        generator.graphsafe_set_state(generator.clone_state())  # a copy is not being recorded
        with contextlib.suppress(RuntimeError):  # that of no recording, if torch has ended it
            torch._C._cuda_endAllocateToPool(self.stream.device_index, self.pool)


def make_recorder(mode: Mode, format: str, dist: Dist) -> CudaGraphs | None:
    """Return what records on the rank's device, or None; say the reason where `auto` finds a GPU that cannot."""
    if mode == "off" or dist.device.type != "cuda":
        return None
    if dist.sharing.world_size > 1:
        reason = "ranks that share samples exchange halos (dist.spatial), which is not recorded"
    elif torch.version.hip is not None:
        reason = "recorded steps were not tried on AMD's GPUs yet (ROCm)"
    elif format == "fp16":
        reason = "the loss scale of fp16 is decided on the host"
    else:
        return CudaGraphs(dist.device)
    say_why_not(dist, reason)
    return None


def say_why_not(dist: Dist, reason: str, work: str = "training") -> None:
    """Print why the work is not recorded, once for all ranks."""
    if dist.is_main:
        print(f"train.graph: {work} without CUDA graphs: {reason}", flush=True)


class Replay:
    """Does `work` on batches, by recordings where it can; called like `work` itself.

    work: takes a batch, of tensors in dataclasses or tuples, and flags; returns nothing. Batches without samples, and
        all where `recorder` is None, are given to it as they are. Work that cannot be recorded is done as it is, too,
        after a line that says why.
    together: the work exchanges messages with these ranks, which all get batches of the same shapes at the same
        time; if one of them cannot record the work, none does.
    """

    def __init__(
        self, work: Callable[..., None], recorder: CudaGraphs | None, dist: Dist, together: Dist | None = None
    ) -> None:
        self.work, self.recorder, self.dist, self.together = work, recorder, dist, together
        self._seen: dict[Hashable, int] = {}
        self._recorded: dict[Hashable, Recording] = {}
        self._sealed = False

    def __call__(self, batch: Any, *flags: Hashable) -> None:
        """Do the work on the batch."""
        batch_tensors = list(list_tensors(batch))
        if self.recorder is None or not all(tensor.numel() for tensor in batch_tensors):
            self.work(batch, *flags)
            return
        key = describe_shapes(batch), flags
        recorded = self._recorded.get(key) or self._warm_up_or_record(key, batch, flags)
        if recorded is None:
            return
        inputs, replay = recorded
        for recorded_input, tensor in zip(inputs, batch_tensors, strict=True):
            recorded_input.copy_(tensor, non_blocking=True)
        replay()

    def seal(self) -> None:
        """Record nothing from now on: work on batches of other shapes is done as it is, which rank 0 says once."""
        self._sealed = True
        self._seen.clear()

    def close(self) -> None:
        """Drop the recordings, which the recorder releases, and what they need; no work is done any more."""
        self._recorded.clear()
        self.work, self.recorder = _refuse_work, None

    def _warm_up_or_record(self, key: Hashable, batch: Any, flags: tuple[Hashable, ...]) -> Recording | None:
        """Do the work, or when it is time to record it return the recording."""
        assert self.recorder is not None
        if self._sealed and self.dist.is_main and not self._seen:
            print("train.graph: batches of a size not recorded before the run do without CUDA graphs", flush=True)
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if self._sealed or seen <= WARM_UP or len(self._recorded) == MOST_RECORDINGS:
            self.recorder.prepare(lambda: self.work(batch, *flags))
            return None
        with torch.inference_mode(False):  # they are written again, in any mode
            inputs = [tensor.clone() for tensor in list_tensors(batch)]
        new = iter(inputs)
        static = map_tensors(batch, lambda _: next(new))
        reason = ""
        try:
            replay = self.recorder.record(lambda: self.work(static, *flags))
        except RuntimeError as error:
            cause = error.__context__ or error  # the end of a recording that failed raises an error of its own
            reason = (str(cause) or type(cause).__name__).splitlines()[0]
        fails = bool(reason)
        if self.together is not None:
            fails = bool(self.together.all_reduce(torch.tensor(int(fails)), "max"))
        if fails:
            self.recorder = None
            say_why_not(self.dist, f"the work cannot be recorded: {reason or 'another rank cannot'}")
            self.work(batch, *flags)
            return None
        self._recorded[key] = inputs, replay
        return self._recorded[key]


def _refuse_work(*_: Any) -> None:
    raise RuntimeError("work on a batch after the end of its run")


def describe_shapes(value: Any) -> Hashable:
    """Return what decides the work on a batch: shapes, memory layouts and types of its tensors, and whole numbers."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    if isinstance(value, tuple):
        return tuple(map(describe_shapes, value))
    if is_dataclass(value):
        return tuple(describe_shapes(getattr(value, field.name)) for field in fields(value))
    return value if isinstance(value, int | str) else None
