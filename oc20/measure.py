"""`python -m oc20.measure`: the speed of training steps on this machine, without a dataset."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from common.commands import measure
from common.commands.measure import Measurable
from common.data.prefetch import map_tensors
from common.training.flops import StepFlops, table3_forward
from oc20.graphs import Graph, build_graph
from oc20.model import DimeNet, build_model
from oc20.settings import ModelConfig
from oc20.synthesize import SYNTHESIS
from oc20.train import BENCHMARK, Oc20

COUNTED = 32
"""The most frames whose operations are counted; of more, evenly chosen ones."""


def count_flops(problem: Oc20) -> StepFlops:
    """Return the operations of a training step for a frame, on average."""
    frames = problem.sets["train"]
    chosen = range(0, len(frames), -(-len(frames) // COUNTED))
    graph = build_graph([frames.read(i) for i in chosen])
    config = problem.config.model
    return StepFlops(
        count_own(config, graph).training / len(chosen), count_table3(config, graph).training / len(chosen)
    )


main = partial(measure.main, Measurable(BENCHMARK, SYNTHESIS.provide_few, count_flops))


# -- operations of a step --------------------------------------------------------------------------------------


class Operations(NamedTuple):
    """Operations on a graph: of the energy; of energy and forces; of a training step by a loss of the forces."""

    energy: int
    forces: int
    training: int


def count_own(config: ModelConfig, graph: Graph) -> Operations:
    """Return the operations of the network here on a graph, with torch's own operations, from its shapes."""
    with _trace_shapes(config, graph) as (network, graph):
        with torch.no_grad():
            energy = _count_products(lambda: network.compute_energies(graph, graph.vectors))
            forces = _count_products(lambda: network(graph))
        return Operations(energy, forces, _count_products(lambda: network(graph)[1].sum().backward()))


def count_table3(config: ModelConfig, graph: Graph) -> Operations:
    """Return the operations of the network here on a graph as `common.training.flops.table3` counts them.

    The forces, a gradient, are part of the forward pass; a training step is three times that pass.
    """
    with _trace_shapes(config, graph) as (network, graph), torch.no_grad():
        energy = table3_forward(lambda: network.compute_energies(graph, graph.vectors))
        forces = table3_forward(lambda: network(graph))
    return Operations(energy, forces, 3 * forces)


@contextmanager
def _trace_shapes(config: ModelConfig, graph: Graph) -> Iterator[tuple[DimeNet, Graph]]:
    """Yield the network with torch's own operations, and the graph, inside a mode where only shapes are computed."""
    network = build_model(replace(config, kernels="torch"), seed=0)
    with FakeTensorMode(allow_non_fake_inputs=True) as shapes:
        yield network, map_tensors(graph.to("cpu"), shapes.from_tensor)


def _count_products(work: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


if __name__ == "__main__":
    sys.exit(main())
