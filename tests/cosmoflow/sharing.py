"""One rank of the tests in test_spatial.py: `sharing.py FOLDER SPATIAL NAME...` trains each case, and saves it.

FOLDER has case.yaml and the data. Without a launcher it is the one process that the ranks must agree with.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from common.config import load
from common.precision import Precision
from common.ranks.connect import connect
from common.spatial.shards import gather_whole
from common.training import optim
from common.training.step import Step
from cosmoflow.train import Config, CosmoFlow


@dataclass(frozen=True)
class Case:
    """A training of three steps. side: of the samples. dtype: of weights, input and sums. words: overrides."""

    side: int
    dtype: torch.dtype
    words: tuple[str, ...] = ()
    seed: int = 3

    @property
    def overrides(self):
        shape = [self.side] * 3 + [4]
        return (f"data.data_dir=data-{self.side}", f"data.sample_shape={shape}", *self.words)


GATE = {"16": Case(16, torch.float64, ("model.conv_layers=3",))}
GATE["16-turned"] = Case(16, torch.float64, (*GATE["16"].words, "data.augment=vector_symmetries"))
"""What `make test` trains: the smallest sample of which four ranks have a part, and the same turned at random."""
DOUBLE = {
    "32": Case(32, torch.float64),
    "64": Case(64, torch.float64),
    "lamb": Case(32, torch.float64, ("optim.name=lamb", "optim.weight_decay=0.01")),
    "muon": Case(32, torch.float64, ("optim.name=muon", "train.accumulation=2")),
    "adamw-even-kernel": Case(32, torch.float64, ("optim.name=adamw", "model.kernel_size=2")),
    "long-kernel": Case(32, torch.float64, ("model.kernel_size=5", "model.conv_layers=3")),
    "indivisible-features": Case(32, torch.float64, ("model.conv_size=1", "model.conv_layers=5", "model.fc1=6")),
}
DROPOUT = {"dropout": Case(32, torch.float64, ("model.dropout=0.4",))}
"""Masks are those of one process only if all ranks share each sample."""
HALF = {"half": Case(32, torch.float32, ("precision.dtype=bf16",))}
FEW = ("train.global_batch_size=1", "data.train_samples=3")
SEEDS = (3, 4, 5)
SINGLE = {f"32-single-{seed}": Case(32, torch.float32, seed=seed) for seed in SEEDS}
SINGLE |= {f"64-single-{seed}": Case(64, torch.float32, FEW, seed) for seed in SEEDS}
CASES = GATE | DOUBLE | DROPOUT | HALF | SINGLE


class Problem(CosmoFlow):
    """CosmoFlow in any format of numbers, double precision too."""

    dtype = torch.float64

    @property
    def input_dtype(self):
        return self.dtype

    def predictions(self, model, batch):
        return model(batch.x)


def trained(folder, case, spatial, dist):
    """Train seven samples in batches of three; return what the ranks must agree on, tensors by name."""
    config = load(Config, folder / "case.yaml", [f"dist.spatial={spatial}", *case.overrides])
    Problem.dtype = case.dtype
    problem = Problem(config, dist, case.seed)
    torch.manual_seed(case.seed + dist.data_rank)
    problem.model.to(case.dtype)
    optimizer = optim.build(config.optim, problem.model.parameters(), 0.01)
    step = Step(problem, optimizer, Precision(config.precision, dist.device), dist)
    found = {}
    problem.model.train()
    batches = problem.batches(0, 0)
    for number in range(problem.steps(0)):
        weight = problem.step_weight(0, number)
        step(batches, config.train.accumulation, weight, 0.01)
        found[f"loss {number}"] = dist.all_reduce(step.summed.clone()) / weight
        found[f"norm {number}"] = step.results[1].clone()
        step.summed.zero_()
        if number == 0:
            gradients = ((name, gather_whole(one, one.grad).clone()) for name, one in problem.model.named_parameters())
            found |= {f"gradient of {name}": gradient for name, gradient in gradients}
    batches.close()
    found |= {f"weight {name}": tensor.clone() for name, tensor in problem.model.state_dict().items()}
    for place, tensors in optimizer.state_dict()["state"].items():
        found |= {f"{name} {place}": torch.as_tensor(tensor).clone() for name, tensor in tensors.items()}
    problem.model.eval()
    with torch.inference_mode():
        found["quality"] = torch.tensor(problem.evaluate())
    return found


if __name__ == "__main__":
    folder, spatial, *names = sys.argv[1:]
    folder = Path(folder)
    config = load(Config, folder / "case.yaml", [f"dist.spatial={spatial}"])
    with connect(config.dist) as dist:
        for name in names:
            torch.save(trained(folder, CASES[name], spatial, dist), folder / f"{name}.{dist.rank}.pt")
