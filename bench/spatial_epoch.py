"""One rank of bench/spatial.py: trains the first epoch of CosmoFlow's mini problem, in fp32 or in fp64.

    spatial_epoch.py SPATIAL DTYPE DATA_DIR NUDGE     such as 4 fp64 data/cosmoflow-mini 0

The launcher decides the ranks. NUDGE is 0, or the seed by which each initial weight is moved by a unit in its last
place of fp32, up or down.

Rank 0 prints, as JSON on the last line, the loss of the epoch and the quality after it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.config import load
from common.installed import find_config
from common.precision import Precision
from common.ranks.connect import connect
from common.training import optim
from common.training.step import Step
from cosmoflow.train import Config, CosmoFlow

DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


class Problem(CosmoFlow):
    """CosmoFlow in the chosen format, which autocast does not know."""

    dtype = DTYPES[sys.argv[2]]

    @property
    def input_dtype(self) -> torch.dtype:  # type: ignore[override]  # cached there
        return self.dtype

    def predictions(self, model: nn.Module, batch: Any) -> Tensor:
        predicted: Tensor = model(batch.x)
        return predicted


def nudge(model: nn.Module, seed: int) -> None:
    """Move each weight by a unit in the last place of fp32, up or down."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 1 + torch.finfo(torch.float32).eps * (2 * torch.randint(2, weight.shape, generator=generator) - 1)


def main() -> None:
    spatial, _, folder, seed = sys.argv[1:]
    overrides = [f"dist.spatial={spatial}", f"data.data_dir={folder}", "precision.dtype=fp32"]
    config = load(Config, find_config("cosmoflow", "mini"), overrides)
    with connect(config.dist) as dist:
        problem = Problem(config, dist, seed=7)
        problem.model.to(problem.dtype).train()
        if int(seed):
            nudge(problem.model, int(seed))
        optimizer = optim.build(config.optim, problem.model.parameters(), 0.0)
        step = Step(problem, optimizer, Precision(config.precision, dist.device), dist, norms=False)
        steps, batch_size = problem.steps(0), config.train.global_batch_size
        batches = problem.batches(0, 0)
        for number in range(steps):
            rate = config.schedule.rate(batch_size, 0, number, steps)
            step(batches, 1, problem.step_weight(0, number), rate)
        loss = float(dist.all_reduce(step.summed.clone())) / problem.train_samples
        problem.model.eval()
        with torch.inference_mode():
            quality = problem.evaluate()
        if dist.is_main:
            print(json.dumps({"loss": loss, "quality": quality}), flush=True)


if __name__ == "__main__":
    main()
