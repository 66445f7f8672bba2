"""Steps of training in a worker, made as `common.training.loop` makes them, and the peak that they are held against.

The parts for an accelerator (case.device) are written after torch's documentation: **untested**, for want of one.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from workers import serve, took

# Before the folder of this file, whose modules have names of packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.data.prefetch import AHEAD
from common.precision import DTYPES, Precision, PrecisionConfig
from common.processes import keep_freed_memory
from common.training import optim, profile
from common.training.optim import OptimConfig

PEAK_SIDES = {"cpu": (1024, 2048)}
PEAK_SIDES_ACCELERATOR = (8192,)


class Training:
    """A network with its optimizer, trained as by `common.training.loop`.

    loss: the sum of the losses of a batch. known: what is told beside the measurements, flops_per_sample too.
    """

    def __init__(
        self, case: Any, model: nn.Module, loss: Callable[..., Tensor], config: OptimConfig, known: dict[str, Any]
    ) -> None:
        torch.set_num_threads(case.threads)
        self.case, self.device, self.loss, self.known = case, torch.device(case.device), loss, known
        if self.device.type == "cpu":
            keep_freed_memory()  # as in training
        self.model = model.to(self.device).train()
        self.precision = Precision(PrecisionConfig(case.dtype), self.device)
        self.optimizer = optim.build(config, self.model.parameters(), 0.001)

    def step(self, *batch: Any) -> None:
        """Make one step on the batch, which `loss` gets after the network."""
        self.optimizer.zero_grad()
        with self.precision.autocast():
            summed = self.loss(self.model, *batch)
        self.precision.backward(summed / self.case.batch)
        self.precision.step(self.optimizer)

    def facts(self) -> dict[str, Any]:
        """Return the facts that are printed once, after the warm-up."""
        return facts(self.model) | self.known


def counted(model: nn.Module, sample_shape: Sequence[int]) -> dict[str, Any]:
    """Return the operations of a training step for one sample of this shape, as the network wants it."""
    return {"flops_per_sample": profile.count_sample(model, torch.empty(1, *sample_shape)).training}


def facts(model: nn.Module) -> dict[str, Any]:
    """Return what is to be told of any network and its process."""
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "versions": {"torch": torch.__version__},
    }


def autocast_plainly(case: Any) -> torch.autocast:
    """Return torch's own autocast in the case's number format, for a peer; off in float32."""
    return torch.autocast("cpu", torch.bfloat16, enabled=case.dtype == "bf16")


def timed(device: torch.device, work: Callable[[], Any], times: int) -> dict[str, float]:
    """Return what one of several calls took; on an accelerator the seconds are those between two of its events."""
    if device.type == "cpu":
        return took(work, times)
    begin, end = (torch.Event(device, enable_timing=True) for _ in range(2))

    def all_of_them() -> None:
        begin.record()
        for _ in range(times):
            work()
        end.record()
        end.synchronize()

    return {"cpu_s": took(all_of_them, 1)["cpu_s"] / times, "wall_s": begin.elapsed_time(end) / 1e3 / times}


def peak(case: Any) -> dict[str, float]:
    """Return the FLOP/s of the best of some products of square matrices, per second and per CPU second."""
    device, best = torch.device(case.device), {"flop_per_cpu_s": 0.0, "flop_per_s": 0.0}
    for side in PEAK_SIDES.get(device.type, PEAK_SIDES_ACCELERATOR):
        a, b = (torch.randn(side, side, device=device).to(DTYPES[case.dtype]) for _ in range(2))
        for _ in range(3):
            run = timed(device, partial(torch.mm, a, b), 1)
            for name, key in (("flop_per_cpu_s", "cpu_s"), ("flop_per_s", "wall_s")):
                best[name] = max(best[name], 2 * side**3 / run[key])
    return best


def copy_rate(device: torch.device) -> float:
    """Return the bytes per second, read and written, of copies on the device."""
    source = torch.empty(2**30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    runs = [timed(device, lambda: target.copy_(source), 10) for _ in range(5)]
    return 2 * int(source.numel()) / median(run["wall_s"] for run in runs[1:])


def serve_steps(training: Training, *batch: Any) -> None:
    """Serve steps on a batch on the device, of tensors or other objects with `to`."""
    case, device = training.case, training.device
    batch = tuple(part.to(device) for part in batch)

    def about() -> dict[str, Any]:
        if device.type == "cpu":
            return training.facts()
        memory = torch.accelerator.max_memory_allocated() / 1e6  # before the copies take theirs
        return training.facts() | {"device_memory_mb": memory, "copied_bytes_per_s": copy_rate(device)}

    def turn(steps: int) -> dict[str, float]:
        return timed(device, lambda: training.step(*batch), steps) | peak(case)

    serve(case, lambda: training.step(*batch), about, turn)


def serve_reading(
    training: Training,
    dataset: Any,
    batches: Callable[..., Generator[Any]],
    parts: Callable[[Any], tuple[Any, ...]] = attrgetter("x", "y"),
) -> None:
    """Serve steps on batches that `batches` reads from the dataset; a turn also reports the wait for data.

    parts: of a batch, as arguments of `Training.step`.
    """
    case, ahead = training.case, AHEAD
    order = itertools.cycle(range(len(dataset)))

    def indices() -> Iterator[np.ndarray]:
        while True:
            yield np.array(list(itertools.islice(order, case.batch)))

    source = batches(dataset, indices(), training.device)
    waits: list[float] = []

    def step() -> None:
        batch = next(source)
        waits.append(batch.wait_s)
        training.step(*parts(batch))

    def turn(steps: int) -> dict[str, float]:
        # Long enough for the queue of batches that were read ahead to run dry, if it does.
        steps = max(steps, 2 * ahead)
        waits.clear()
        begin = time.perf_counter()
        spent = timed(training.device, step, steps)
        return spent | {"wait_share": sum(waits) / (time.perf_counter() - begin)}

    for _ in range(ahead):
        step()
    serve(case, step, training.facts, turn)
    source.close()
