"""One rank of bench/spatial.py: makes training steps of CosmoFlow on its part of a sample, and prints what they took.

    spatial_worker.py SPATIAL SIDES DTYPE STEPS      such as [4,1] [128,128,128] fp32 3; the launcher decides the ranks

Rank 0 prints, as JSON on the last line, a row for each rank: CPU seconds of a step, bytes of activations and of halos,
and resident memory.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.data.prefetch import TensorBatch
from common.precision import Precision, PrecisionConfig
from common.processes import keep_freed_memory
from common.ranks.connect import connect
from common.ranks.dist import Dist
from common.settings.machine import DistConfig
from common.spatial.halo import HaloConv3d
from common.training import optim
from common.training.optim import OptimConfig
from common.training.step import Step
from cosmoflow import spatial
from cosmoflow.data.dataset import DataConfig
from cosmoflow.model import ModelConfig, build_model
from cosmoflow.train import Config, CosmoFlow


class Measured(CosmoFlow):
    """CosmoFlow on counts that are drawn, not read."""

    def __init__(self, config: Config, dist: Dist) -> None:
        self.config, self.dist = config, dist
        self.block = spatial.block_with_halo(config, dist)
        self.model = build_model(config.model, config.data.sample_shape, seed=1).to(dist.device)
        spatial.share_layers(self.model, config, dist)

    def batch(self) -> TensorBatch:
        """Return this rank's part of a sample of clumped counts, mean 1."""
        shape = self.block.sides if self.block else self.config.data.sample_shape
        rng, counts = np.random.default_rng(self.dist.rank), np.empty(shape, np.int16)
        for plane in counts:
            plane[:] = rng.negative_binomial(1, 0.5, plane.shape)
        return TensorBatch(torch.from_numpy(counts)[None], torch.zeros(1, 4), np.zeros(1, int), 0.0)


def watched(model: CosmoFlow, group: Dist, sent: Counter[str]) -> None:
    """Count the bytes of halos that this rank sends to each neighbour in a step, by block and direction of the pass.

    A step exchanges before the divided blocks from the second on, and backward before the same ones from the last on.
    """
    divided = [number for number, conv in enumerate(model.convs, 1) if isinstance(conv, HaloConv3d)][1:]
    passes = itertools.cycle(
        [*((block, "forward") for block in divided), *((block, "backward") for block in divided[::-1])]
    )
    exchange, all_gather = group.exchange_tensors, group.all_gather

    def exchanged(messages: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> Callable[[], None]:
        block, way = next(passes)
        for place, tensor in messages:
            sent[f"block {block} {way} to {place}"] += tensor.nbytes
        return exchange(messages, received)

    def gathered(tensor: Tensor) -> list[Tensor]:
        sent["gather"] += tensor.nbytes
        return all_gather(tensor)

    group.exchange_tensors, group.all_gather = exchanged, gathered  # type: ignore[method-assign]  # to look at what passes


class Saved:
    """The bytes that are kept for the backward pass, each memory once, without weights, in whatever format."""

    def __init__(self, model: torch.nn.Module) -> None:
        shapes = [parameter.shape for parameter in model.parameters()]
        self.weights = {*shapes, *(shape[::-1] for shape in shapes)}  # of a dense layer, it is the transposed weight
        self.found: dict[int, int] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if tensor.shape not in self.weights:
            self.found[memory.data_ptr()] = memory.nbytes()
        return tensor

    @property
    def nbytes(self) -> int:
        return sum(self.found.values())


def resident(what: str) -> int:
    """Return VmRSS, the resident memory now, or VmHWM, its peak, in bytes (proc(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def measured(config: Config, dist: Dist, steps: int) -> dict[str, Any]:
    """Make steps; return what this rank found."""
    idle = resident("VmRSS")
    problem = Measured(config, dist)
    optimizer = optim.build(config.optim, problem.model.parameters(), 1e-4)
    step = Step(problem, optimizer, Precision(config.precision, dist.device), dist, norms=False)
    problem.model.train()
    sent: Counter[str] = Counter()
    spent, walls, saved = [], [], Saved(problem.model)
    for number in range(steps + 1):
        batch = problem.prepared(problem.batch())
        dist.barrier()
        begin, cpu = time.perf_counter(), time.process_time()
        if number == 0:  # the warm-up tells what is kept and what is sent
            watched(problem.model, dist.sharing, sent)
            with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda kept: kept):
                step(iter([batch]), 1, 1, 1e-4)
            counted = dict(sent)
        else:
            step(iter([batch]), 1, 1, 1e-4)
            spent.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - begin)
    return {
        "cpu_s": median(spent),
        "wall_s": median(walls),
        "saved_bytes": saved.nbytes,
        "sent_bytes": counted,
        "idle_bytes": idle,
        "peak_bytes": resident("VmHWM"),
    }


def main() -> None:
    extents, sides, dtype, steps = sys.argv[1:]
    shape = (*json.loads(sides), 4)
    torch.manual_seed(0)
    config = Config(
        output_dir=Path(),
        data=DataConfig(Path(), sample_shape=shape),
        model=ModelConfig(dropout=0.0),
        optim=OptimConfig("sgd"),
        precision=PrecisionConfig(dtype),  # type: ignore[arg-type]  # checked by bench/spatial.py
        dist=DistConfig(spatial=tuple(json.loads(extents))),
    )
    keep_freed_memory(config.dist.sharing)
    with connect(config.dist) as dist:
        rows = dist.gather_json(measured(config, dist, int(steps)))
        if dist.is_main:
            print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()
