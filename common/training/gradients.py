"""The gradients of a network in a few buffers, which ranks average in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn

from common.distributed.dist import Dist
from common.spatial.shards import shard_of

ALIGNMENT: Final = 64
"""A gradient begins at a multiple of this many numbers in its buffer, for kernels that access 16 bytes at a time."""


class FlatGradients:
    """Makes the gradients of parameters views of buffers: one for each type, and for each group of ranks.

    The parameters that have a gradient in the first step have one in each; the others are left alone.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], dist: Dist) -> None:
        self.parameters, self.dist = list(parameters), dist
        self._views: list[tuple[nn.Parameter, Tensor]] = []
        self._buffers: list[tuple[Dist, Tensor]] = []

    def clear(self) -> None:
        """Set all gradients to 0, where they are; before the first step there are none."""
        for _, buffer in self._buffers:
            buffer.zero_()
        for parameter, view in self._views:
            parameter.grad = view

    def average(self) -> None:
        """Set the gradients of all ranks to their mean, those of shards over their peers. A collective call."""
        if not self._buffers:
            self._take()
        for ranks, buffer in self._buffers:
            if ranks.world_size > 1:
                ranks.traffic = self.dist.traffic
                ranks.average(buffer)

    def _take(self) -> None:
        """Move the gradients of the first step into buffers, in the memory order of their parameters."""
        groups: dict[Any, tuple[Dist, list[nn.Parameter]]] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                shard = shard_of(parameter)
                ranks = shard.peers if shard else self.dist
                groups.setdefault((ranks, parameter.grad.dtype), (ranks, []))[1].append(parameter)
        for (_, dtype), (ranks, parameters) in groups.items():
            sizes = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters]
            buffer = torch.zeros(sum(sizes), dtype=dtype, device=parameters[0].device)
            self._buffers.append((ranks, buffer))
            for parameter, part in zip(parameters, buffer.split(sizes), strict=True):
                view = part.as_strided(parameter.shape, torch.empty_like(parameter, device="meta").stride())
                view.copy_(parameter.grad)
                parameter.grad = view
                self._views.append((parameter, view))
