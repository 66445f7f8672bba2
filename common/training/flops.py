"""Count the floating-point operations of a network from its shapes, without running it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count


class Flops(NamedTuple):
    """Operations of convolutions and matrix products; a multiplication with its addition counts as two.

    training: forward and backward pass, without the gradient of the inputs.
    """

    forward: int
    training: int


def count(module: nn.Module, *inputs: Tensor) -> Flops:
    """Return the operations of `module`, whose output is one tensor, on inputs of these shapes.

    Nothing is computed, and the module is not changed.
    """
    module = copy.deepcopy(module).to("meta")
    formulas = {torch.ops.aten.convolution_backward: _convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        output = module(*(tensor.detach().to("meta") for tensor in inputs))
        forward = counter.get_total_flops()
        output.sum().backward()
    return Flops(forward, counter.get_total_flops())


def _convolution_backward(grad: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """Return the operations for the requested gradients of a convolution; each takes as many as the forward pass.

    torch's own formula counts the gradient of a grouped convolution's weights as that of a dense one, which more than
    doubles the count for DeepCAM.
    """
    transposed, wanted = rest[4], rest[7]  # after bias, stride, padding, dilation; output padding, groups
    return int(conv_flop_count(list(x), list(weight), list(grad), transposed)) * sum(map(bool, wanted[:2]))
