"""Count the floating-point operations of a network from its shapes, without running it.

Two conventions: `count` is the usual one, of convolutions and matrix products; `table3` is that of HPC AI500 V3.0,
Table 3 (BenchCouncil Transactions on Benchmarks, Standards and Evaluations 2 (2022) 100083).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count, flop_registry

aten = torch.ops.aten
NORMALISATIONS = ("batch_norm", "group_norm", "layer_norm")
COPIES = (aten.clone, aten.fill, aten.fill_)  # torch calls them element-wise


class SampleFlops(NamedTuple):
    """Operations of a network for one sample.

    training, evaluation: of convolutions and matrix products in a training step and in a forward pass, see `count`.
    """

    training: float
    evaluation: float


def count(module: nn.Module, *inputs: Tensor) -> int:
    """Return the operations of forward and backward pass of `module`, whose output is one tensor, by inputs' shapes.

    These are convolutions and matrix products; a multiplication with its addition counts as two. Training has the
    gradients of inputs only where they require one. Nothing is computed, and the module is not changed.
    """
    return int(count_sample(module, *inputs).training)


def count_sample(module: nn.Module, *inputs: Tensor) -> SampleFlops:
    """Return the operations of `module` on one sample; see `count`."""
    module = copy.deepcopy(module).to("meta")
    formulas = {aten.convolution_backward: _convolution_backward}
    inputs = tuple(tensor.detach().to("meta").requires_grad_(tensor.requires_grad) for tensor in inputs)
    return count_passes(lambda: module(*inputs), formulas)


def count_passes(forward: Callable[[], Tensor], formulas: Mapping[Any, Any] | None = None) -> SampleFlops:
    """Return the operations of a forward pass, with those of the backward pass in `training`.

    formulas: see `custom_mapping` of torch's counter.
    """
    with FlopCounterMode(display=False, custom_mapping=dict(formulas or {})) as counter:
        outputs = forward()
        evaluation = int(counter.get_total_flops())
        outputs.sum().backward()
    return SampleFlops(int(counter.get_total_flops()), evaluation)


def table3(module: nn.Module, *inputs: Tensor) -> int:
    """Return the operations of forward and backward pass of `module` as HPC AI500 V3.0 counts them.

    A convolution, also a transposed one, counts as in `count`; a matrix product one for a multiplication with its
    addition; normalisation one for each element of its input; pooling, activations and other element-wise operations
    one for each element of the output, but the mean over a whole map one for each element of its input. The source
    leaves open which map it means by pooling's. Biases and the rest are ignored. Training is three times the forward
    pass. Nothing is computed, and the module is not changed; it is counted as in evaluation, without dropout.
    """
    module = copy.deepcopy(module).to("meta").eval()
    with torch.no_grad():
        return 3 * table3_forward(lambda: module(*(tensor.detach().to("meta") for tensor in inputs)))


def table3_forward(work: Callable[[], object]) -> int:
    """Return the operations of a forward pass, `work`, as `table3` counts them."""
    with _Table3() as counter:
        work()
    return int(counter.total)


class _Table3(TorchDispatchMode):
    """Adds up the operations that are called inside it."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet, name = func.overloadpacket, func.overloadpacket.__name__
        first = result[0] if isinstance(result, (tuple, list)) else result
        if packet in flop_registry:
            products = flop_registry[packet](*args, **kwargs, out_val=result)
            self.total += products if "conv" in name else products // 2
        elif packet is aten.mean or any(kind in name for kind in NORMALISATIONS):
            self.total += args[0].numel()
        elif "pool" in name or (torch.Tag.pointwise in func.tags and packet not in COPIES):
            self.total += first.numel()
        return result


def _convolution_backward(grad: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """Return the operations for the requested gradients of a convolution; each takes as many as the forward pass.

    torch's own formula counts the gradient of a grouped convolution's weights as that of a dense one, which more than
    doubles the count for DeepCAM.
    """
    transposed, wanted = rest[4], rest[7]  # after bias, stride, padding, dilation; output padding, groups
    return int(conv_flop_count(list(x), list(weight), list(grad), transposed)) * sum(map(bool, wanted[:2]))
