"""How many floating-point operations a network takes, counted and not measured."""

from __future__ import annotations

import copy
from typing import NamedTuple

from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


class Flops(NamedTuple):
    """Operations of convolutions and matrix products; a multiplication with its addition counts as two.

    training: forward and backward pass. No gradient of the inputs is counted, so the first layer has less to do.
    """

    forward: int
    training: int


def count(module: nn.Module, *inputs: Tensor) -> Flops:
    """Return the operations of `module`, whose output is one tensor, on such inputs.

    Only shapes count: nothing is computed, and the module stays as it is.
    """
    module = copy.deepcopy(module).to("meta")
    with FlopCounterMode(display=False) as counter:
        output = module(*(tensor.detach().to("meta") for tensor in inputs))
        forward = counter.get_total_flops()
        output.sum().backward()
    return Flops(forward, counter.get_total_flops())
