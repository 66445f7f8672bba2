"""One rank of the tests in test_spatial.py: `sharing.py FOLDER NAME...` trains each case of `CASES`, and saves it.

Without a launcher it is the one process that the ranks must agree with.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from common.config import load
from common.distributed.dist import connect
from common.spatial.shards import whole
from common.training import optim
from common.training.precision import Precision
from common.training.step import Step
from cosmoflow.train import Config, CosmoFlow

SEED = 3


@dataclass(frozen=True)
class Training:
    """A training of three steps. side: of the samples. dtype: of weights, input and sums."""

    side: int
    dtype: torch.dtype
    words: tuple[str, ...] = ()
    optimizer: str = "sgd"

    @property
    def overrides(self):
        return [f"data.data_dir=data-{self.side}", f"data.sample_shape=[{self.side},{self.side},{self.side},4]",
                f"optim.name={self.optimizer}", *self.words]  # fmt: skip


DROPOUT = ("model.dropout=0.4",)
"""Masks are those of one process only if all ranks share each sample."""
CASES = {
    "32-fp64": Training(32, torch.float64),
    "32-fp64-lamb": Training(32, torch.float64, ("optim.weight_decay=0.01",), "lamb"),
    "32-fp64-muon": Training(32, torch.float64, ("train.accumulation=2",), "muon"),
    "32-fp64-even": Training(32, torch.float64, ("model.kernel_size=2",), "adamw"),
    "32-fp64-dropout": Training(32, torch.float64, DROPOUT),
    "64-fp64": Training(64, torch.float64),
    "32-fp32": Training(32, torch.float32),
    "64-fp32": Training(64, torch.float32),
}


class Problem(CosmoFlow):
    """CosmoFlow in any format of numbers, double precision too."""

    dtype = torch.float64

    @property
    def input_dtype(self):
        return self.dtype

    def predictions(self, model, batch):
        return model(batch.x)


def trained(folder, case, spatial, dist):
    """Train seven samples in batches of three; return what the ranks must agree on, tensors and numbers by name."""
    config = load(Config, folder / "case.yaml", [f"dist.spatial={spatial}", *case.overrides])
    Problem.dtype = case.dtype
    problem = Problem(config, dist, SEED)
    torch.manual_seed(SEED + dist.data_rank)
    problem.model.to(case.dtype)
    optimizer = optim.build(config.optim, problem.model.parameters(), 0.01)
    step = Step(problem, optimizer, Precision(config.precision, dist.device), dist)
    found = {}
    problem.model.train()
    batches = problem.batches(0, 0)
    for number in range(problem.steps(0)):
        step(batches, config.train.accumulation, problem.step_weight(0, number), 0.01)
        loss = dist.all_reduce(step.summed.clone()) / problem.step_weight(0, number)
        step.summed.zero_()
        found[f"loss {number}"] = loss
        found[f"norm {number}"] = step.found[1].clone()
        for name, parameter in problem.model.named_parameters():
            if number == 0:
                found[f"gradient {name}"] = whole(parameter, parameter.grad).clone()
    batches.close()
    found |= {f"weight {name}": tensor.clone() for name, tensor in problem.model.state_dict().items()}
    for place, tensors in optimizer.state_dict()["state"].items():
        found |= {f"{name} {place}": torch.as_tensor(tensor).clone() for name, tensor in tensors.items()}
    problem.model.eval()
    with torch.inference_mode():
        found["quality"] = torch.tensor(problem.evaluate(), dtype=torch.float64)
    return found


if __name__ == "__main__":
    folder, spatial, *names = sys.argv[1:]
    folder = Path(folder)
    config = load(Config, folder / "case.yaml", [f"dist.spatial={spatial}"])
    with connect(config.dist) as dist:
        for name in names:
            found = trained(folder, CASES[name], spatial, dist)
            torch.save(found, folder / f"{name}.{dist.rank}.pt")
