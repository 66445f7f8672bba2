"""LAMB on flat buffers: a few kernels for all parameters, instead of operations on hundreds of tensors.

Weights, gradients and each kind of moment lie in one buffer each, and the parameters, their gradients and the state of
the optimizer are views of these. What is saved has the form of the plain LAMB, which loads it and vice versa.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from common.training.optim.algorithms import Lamb
from common.training.optim.kernels import CHUNK, Buffers, Chunks, Constants, lamb_step

MOMENTS: Final = ("mean", "square")
"""Names of the state of `Lamb`, but for the step count."""


class Buffer(NamedTuple):
    """A flat tensor, and its views: one for each parameter, of its shape and order of memory."""

    flat: Tensor
    views: list[Tensor]


class FlatParameters:
    """Parameters that are views of one buffer from now on, and more buffers like it.

    Each parameter begins with a chunk (of `kernels.CHUNK` numbers); behind its end, buffers contain zeros.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        if len({(parameter.dtype, parameter.device) for parameter in parameters}) > 1:
            raise ValueError("optim.fused is flat, which needs parameters of one type, on one device: set it to auto")
        self.parameters = parameters
        self._sizes = [-(-parameter.numel() // CHUNK) for parameter in parameters]
        self._begins = list(accumulate(self._sizes, initial=0))
        self.weights = self.buffer()
        with torch.no_grad():
            torch._foreach_copy_(self.weights.views, list(parameters))
        for parameter, view in zip(parameters, self.weights.views, strict=True):
            parameter.data = view

    def buffer(self) -> Buffer:
        """Return a buffer of zeros."""
        first = self.parameters[0]
        flat = torch.zeros(self._begins[-1] * CHUNK, dtype=first.dtype, device=first.device)
        views = []
        for parameter, begin in zip(self.parameters, self._begins, strict=False):
            stride = torch.empty_like(parameter, device="meta").stride()  # dense, in the parameter's order
            views.append(flat.as_strided(parameter.shape, stride, begin * CHUNK))
        return Buffer(flat, views)

    def chunks(self, chosen: Sequence[int]) -> Chunks:
        """Return the chunks of the chosen parameters."""
        sizes = [self._sizes[place] for place in chosen]
        numbers = [number for place in chosen for number in range(self._begins[place], self._begins[place + 1])]
        owners = [owner for owner, size in enumerate(sizes) for _ in range(size)]
        device = self.weights.flat.device
        values = (numbers, owners, list(accumulate(sizes, initial=0)))
        return Chunks(*(torch.tensor(value, dtype=torch.int32, device=device) for value in values))


class FlatLamb(Lamb):
    """`Lamb` that keeps all that a step changes in flat buffers.

    Gradients that are not views of their buffer, as after `zero_grad()`, are copied into it by the next step. The
    parameters that have a gradient in the first step must have one in each; the others are not updated.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float | Tensor, **options: Any) -> None:
        super().__init__(parameters, lr, **options)
        (group,) = self.param_groups
        self.flat = FlatParameters(group["params"])
        self._gradients = self.flat.buffer()
        self._state = {name: self.flat.buffer() for name in MOMENTS}
        self._updated: list[int] = []

    def gather(self) -> Tensor:
        """Return the buffer of the gradients, which are views of it from now on, wherever they were."""
        parameters, views = self.flat.parameters, self._gradients.views
        given = [place for place, parameter in enumerate(parameters) if parameter.grad is not None]
        if not self._updated:
            self._begin(given)
        self._check(given)
        apart = [place for place in given if parameters[place].grad is not views[place]]
        if apart:
            torch._foreach_copy_([views[place] for place in apart], [parameters[place].grad for place in apart])
        for place in apart:
            parameters[place].grad = views[place]
        return self._gradients.flat

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        gradients, (group,) = self.gather(), self.param_groups
        group["step"].add_(1)
        moments = tuple(self._state[name].flat for name in MOMENTS)
        buffers = Buffers(self._chunks, self.flat.weights.flat, gradients, moments)
        constants = Constants(group["betas"], group["eps"], group["weight_decay"], group["max_grad_norm"])
        lamb_step(buffers, group["lr"], group["step"], constants)

    def _begin(self, given: list[int]) -> None:
        """Take these parameters for those to update."""
        self._updated, self._chunks = given, self.flat.chunks(given)
        for name, buffer in self._state.items():
            for place in given:
                self.state[self.flat.parameters[place]][name] = buffer.views[place]

    def _check(self, given: list[int]) -> None:
        """Raise ValueError unless these are the parameters to update, and all are where they were put."""
        parameters = self.flat.parameters
        if changed := sorted(set(given) ^ set(self._updated)):
            now, before = ("has a", "had none") if changed[0] in given else ("has no", "had one")
            raise ValueError(
                f"parameter {changed[0]}, of shape {tuple(parameters[changed[0]].shape)}, {now} gradient and {before} "
                "in the first step: optim.fused=flat needs the same ones in each step; set it to auto"
            )
        if any(p.data_ptr() != view.data_ptr() for p, view in zip(parameters, self.flat.weights.views, strict=True)):
            raise ValueError(
                "parameters were moved after optim.fused=flat had put them in one buffer; move them before"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Copy the state of the plain LAMB, or of this one, into the buffers."""
        super().load_state_dict(state_dict)
        for name, buffer in self._state.items():
            for parameter, view in zip(self.flat.parameters, buffer.views, strict=True):
                if parameter in self.state:
                    view.copy_(self.state[parameter][name])
                    self.state[parameter][name] = view
