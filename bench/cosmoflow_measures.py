"""Our side of `bench/cosmoflow.py`: steps of training by the code that `python -m cosmoflow.train` runs.

    python bench/cosmoflow_measures.py CASE          steps on a batch that lies on the device
    python bench/cosmoflow_measures.py CASE FOLDER   steps on batches that are read from the files of a folder

A step is log(1 + counts), forward, backward and SGD with momentum. The parts for an accelerator (case.device) are
written after torch's documentation: **untested**, for want of one.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from cosmoflow_workers import Case, case_of, memory_mb, serve, took
from torch import Tensor

# Before the folder of this file, which has a cosmoflow.py of its own.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import flops, optim
from common.device import keep_freed_memory
from common.optim import OptimConfig
from common.precision import DTYPES, Precision, PrecisionConfig
from cosmoflow import data, model
from cosmoflow.data import Batch, DataConfig, Dataset

PEAK_SIDES = {"cpu": (1024, 2048)}
PEAK_SIDES_ACCELERATOR = (8192,)


class Training:
    """The network with its optimizer, as `common.loop` uses them."""

    def __init__(self, case: Case) -> None:
        self.device = torch.device(case.device)
        shape = (case.side,) * 3 + (4,)
        config = model.ModelConfig(conv_size=case.channels, conv_layers=case.layers)
        self.model = model.build(config, shape, seed=0).to(self.device).train()
        self.precision = Precision(PrecisionConfig(case.dtype), self.device)  # type: ignore[arg-type]
        self.optimizer = optim.build(OptimConfig(), self.model.parameters(), 0.001)
        self.flops = flops.count(self.model, torch.empty(1, *shape)).training

    def step(self, x: Tensor, y: Tensor) -> None:
        """Train on int16 counts (B, D, H, W, 4) and labels (B, 4)."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision.autocast():
            prediction = self.model(data.to_input(x, apply_log=True)).float()
            loss = (prediction - y).square().mean(dim=1).sum() / len(y)
        self.precision.backward(loss)
        self.precision.step(self.optimizer)

    def facts(self) -> dict[str, Any]:
        """What is told once, after the warm-up."""
        on_device = (
            {} if self.device.type == "cpu" else {"device_memory_mb": torch.accelerator.max_memory_allocated() / 1e6}
        )
        return {
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "flops_per_sample": self.flops,
            "memory_mb": memory_mb(),
            "versions": {"torch": torch.__version__},
            **on_device,
        }


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


def peak(case: Case) -> dict[str, float]:
    """Return the FLOP/s of the best of some products of square matrices, per second and per CPU second."""
    device, best = torch.device(case.device), {"flop_per_cpu_s": 0.0, "flop_per_s": 0.0}
    for side in PEAK_SIDES.get(device.type, PEAK_SIDES_ACCELERATOR):
        a, b = (torch.randn(side, side, device=device).to(DTYPES[case.dtype]) for _ in range(2))
        for _ in range(3):
            run = timed(device, lambda a=a, b=b: a @ b, 1)
            for name, key in (("flop_per_cpu_s", "cpu_s"), ("flop_per_s", "wall_s")):
                best[name] = max(best[name], 2 * side**3 / run[key])
    return best


def copy_rate(device: torch.device) -> float:
    """Return the bytes per second, read and written, of copies on the device."""
    source = torch.empty(2**30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    runs = [timed(device, lambda: target.copy_(source), 10) for _ in range(5)]
    return 2 * source.numel() / median(run["wall_s"] for run in runs[1:])


def serve_steps(case: Case) -> None:
    training = Training(case)
    rng = np.random.default_rng(0)
    counts = rng.poisson(1.0, (case.batch, case.side, case.side, case.side, 4)).astype(np.int16)
    x = torch.from_numpy(counts).to(training.device)
    y = torch.rand(case.batch, 4, device=training.device)

    def step() -> None:
        training.step(x, y)

    def facts() -> dict[str, Any]:
        more = {} if case.device == "cpu" else {"copied_bytes_per_s": copy_rate(training.device)}
        return training.facts() | more

    serve(step, facts, lambda steps: timed(training.device, step, steps) | peak(case))


def serve_reading(case: Case, folder: Path) -> None:
    """Steps with the real loader at its usual settings; a turn also tells for how long they waited for data."""
    training = Training(case)
    config = DataConfig(folder, sample_shape=(case.side, case.side, case.side, 4))
    dataset = Dataset(folder / "train", config)
    order = itertools.cycle(range(len(dataset)))

    def indices() -> Iterator[np.ndarray]:
        while True:
            yield np.array(list(itertools.islice(order, case.batch)))

    batches = data.batches(dataset, indices(), training.device)
    waits: list[float] = []

    def step() -> None:
        batch: Batch = next(batches)
        waits.append(batch.wait_s)
        training.step(batch.x, batch.y)

    def turn(steps: int) -> dict[str, float]:
        # Long enough for the queue of batches that were read ahead to run dry, if it does.
        steps = max(steps, 2 * config.prefetch)
        waits.clear()
        begin = time.perf_counter()
        spent = timed(training.device, step, steps)
        return spent | {"wait_share": sum(waits) / (time.perf_counter() - begin)}

    for _ in range(config.prefetch):
        step()
    serve(step, training.facts, turn)
    batches.close()


def main() -> None:
    case = case_of(sys.argv[1])
    torch.set_num_threads(case.threads)
    if case.device == "cpu":
        keep_freed_memory()  # as in training
    if len(sys.argv) > 2:
        serve_reading(case, Path(sys.argv[2]))
    else:
        serve_steps(case)


if __name__ == "__main__":
    main()
