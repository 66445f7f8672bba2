"""A project outside the suite: its own network, loss and loop on the suite's data; `mypy --strict` accepts it."""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from common.api import Callback, Epoch, SampleProblem, register_problem, resolve_config
from cosmoflow import train
from cosmoflow.data.dataset import Dataset
from cosmoflow.settings import Config


class Means(nn.Module):
    """Predicts the four parameters from the mean of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.last = nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        predicted: Tensor = self.last(x.mean(dim=(1, 2, 3)))
        return predicted


def absolute_error(predicted: Tensor, labels: Tensor) -> Tensor:
    return (predicted - labels).abs().mean()


def train_alone(folder: Path) -> list[float]:
    config = resolve_config(Config, "mini", [{"data.data_dir": folder}])
    samples = Dataset(folder / "train", config.data)
    x, _ = samples[0]
    network, losses = Means(x.shape[-1]), []
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for x, y in DataLoader(samples, batch_size=8, shuffle=True, num_workers=2):
        loss = absolute_error(network(x), y)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


@register_problem("means")
class MeansProblem(train.CosmoFlow):
    @staticmethod
    def own_network(config: Config) -> nn.Module:
        return Means(config.data.sample_shape[-1])


class Show(Callback):
    def epoch(self, epoch: Epoch) -> None:
        self.stop(f"the quality is {epoch.quality:.3f}")


if __name__ == "__main__":
    data, output = map(Path, sys.argv[1:])
    print(f"{len(train_alone(data))} steps of an own loop; {issubclass(MeansProblem, SampleProblem)}")
    run = train.run("mini", {"data.data_dir": data, "train.problem": "means"}, output_dir=output, callbacks=[Show])
    print("ended:", run.ending.text if run.ending else "killed", [epoch.quality for epoch in run.history])
