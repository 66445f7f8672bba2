"""Count the operations of DimeNet++ on graphs, from their shapes, without running it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from common.data.prefetch import map_tensors
from common.training.flops import SampleFlops, table3_forward
from oc20.data.dataset import Dataset
from oc20.graphs import Graph, build_graph
from oc20.model import DimeNet, build_model
from oc20.settings import ModelConfig

COUNTED = 8
"""The most frames whose operations are counted; of more, evenly chosen ones."""


class Operations(NamedTuple):
    """Operations on a graph: of the energy; of energy and forces; of a training step by a loss of the forces."""

    energy: int
    forces: int
    training: int


def count_mean_frame(config: ModelConfig, frames: Dataset) -> SampleFlops:
    """Return the operations for a mean frame: those of a few, scaled to the edges of all, where most operations are."""
    numbers = range(0, len(frames), -(-len(frames) // COUNTED))
    graph = build_graph([frames.read(number) for number in numbers])
    edges = frames.sizes.neighbors
    share = float(edges.mean() / edges[list(numbers)].sum())
    own, table3 = count_own(config, graph), count_table3(config, graph)
    return SampleFlops(own.training * share, own.forces * share, table3.training * share)


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
