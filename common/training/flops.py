"""Count the floating-point operations of a network, without measuring."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count


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
    formulas = {torch.ops.aten.convolution_backward: _convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        output = module(*(tensor.detach().to("meta") for tensor in inputs))
        forward = counter.get_total_flops()
        output.sum().backward()
    return Flops(forward, counter.get_total_flops())


def _convolution_backward(grad: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """Return the operations for the requested gradients of a convolution; each takes as many as its output.

    torch's own formula takes the gradient of a grouped convolution's weights for that of a dense one: of this suite's
    networks DeepCAM has such, and would seem to do more than twice its work.
    """
    transposed, wanted = rest[4], rest[7]  # after bias, stride, padding, dilation; output padding, groups
    return int(conv_flop_count(list(x), list(weight), list(grad), transposed)) * sum(map(bool, wanted[:2]))
