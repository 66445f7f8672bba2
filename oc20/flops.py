"""Count the operations of DimeNet++ on graphs, from their shapes, without running it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from common.data.prefetch import map_tensors
from common.training.profile import SampleFlops, count_passes, table3_forward
from oc20.graphs import Graph
from oc20.model import DimeNet
from oc20.settings import ModelConfig


def count_own(config: ModelConfig, graph: Graph) -> SampleFlops:
    """Return the operations of the network here on a graph, with torch's own operations, from its shapes."""
    with _trace_shapes(config, graph) as (network, graph):
        training = count_passes(lambda: network(graph)[1]).training
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(graph)
        return SampleFlops(training, int(counter.get_total_flops()))


def count_table3(config: ModelConfig, graph: Graph) -> SampleFlops:
    """Return the operations of the network here on a graph as `common.training.profile.table3` counts them.

    The forces, a gradient, are part of the forward pass; a training step is three times that pass.
    """
    with _trace_shapes(config, graph) as (network, graph), torch.no_grad():
        forces = table3_forward(lambda: network(graph))
    return SampleFlops(3 * forces, forces)


@contextmanager
def _trace_shapes(config: ModelConfig, graph: Graph) -> Iterator[tuple[DimeNet, Graph]]:
    """Yield the network with torch's own operations, and the graph, inside a mode where only shapes are computed."""
    with torch.device("meta"):
        network = DimeNet(replace(config, kernels="torch"))
    network.to_empty(device="cpu")  # drawing weights takes longer than counting
    with FakeTensorMode(allow_non_fake_inputs=True) as shapes:
        yield network, map_tensors(graph.to("cpu"), shapes.from_tensor)
