"""Our side of `bench/oc20.py`: steps of training by the code that `python -m oc20.train` runs.

    python bench/oc20_measures.py CASE          steps on a graph that lies on the device
    python bench/oc20_measures.py CASE FOLDER   steps on graphs that are read from the files of a folder

A step is the basis functions, forward, forces, loss, backward through both and the optimizer.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from oc20_frames import frames, sizes
from steps import Training, serve_reading, serve_steps
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from workers import given_case

from common.training.optim import OptimConfig
from oc20 import model
from oc20.data import dataset as data
from oc20.graphs import Graph, build_graph, link_frames
from oc20.reference import ENERGY_STD_EV
from oc20.train import FORCE_COEFFICIENT


def loss(network: nn.Module, graph: Graph) -> Tensor:
    """Return the sum of the absolute errors of the normalised forces on free atoms."""
    _, forces_A3 = network(graph)
    errors_A3 = (forces_A3 - graph.forces / ENERGY_STD_EV).abs()
    return FORCE_COEFFICIENT * (errors_A3 * graph.free[:, None]).sum()


def operations(network: nn.Module, graph: Graph) -> int:
    """Return the operations of the matrix products of a step, as they are done rather than by a list of triplets."""
    with FlopCounterMode(display=False) as counter:
        loss(network, graph).backward()
    network.zero_grad()
    return int(counter.get_total_flops())


def main() -> None:
    case = given_case()
    torch.set_num_threads(case.threads)
    batch = frames(case)
    known, graph = sizes(batch), build_graph(batch)
    config = model.ModelConfig(**case.model)
    network = model.build_model(config, seed=0)
    counted = model.build_model(
        replace(config, kernels="torch"), seed=0
    )  # of other kernels nobody knows the operations
    known["flops_per_sample"] = sum(operations(counted, build_graph([frame])) for frame in batch) / case.batch
    training = Training(case, network, loss, OptimConfig(name="adamw", weight_decay=0.01), known)
    if len(sys.argv) > 2:
        folder = Path(sys.argv[2])
        given = data.DataConfig(folder, format=folder.name)  # type: ignore[arg-type]
        dataset = data.Dataset(folder / "train", given)
        serve_reading(training, dataset, data.load_batches, lambda batch: (link_frames(batch.graph),))
    else:
        serve_steps(training, graph)


if __name__ == "__main__":
    main()
