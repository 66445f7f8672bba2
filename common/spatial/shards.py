"""Weights that the ranks of a group divide: a dense layer after blocks of samples, and its optimizer.

The features of a sample are divided among the ranks that share it, and so are the columns of the first dense layer's
weight: each rank computes what its features contribute, and one small sum makes the output, the same on all ranks.
Gradient and optimizer state are as large as the part. What is saved is whole, as without shards.

A rank's loss is its share of the sample's, 1 / ranks of it, so that gradients of weights that all ranks have are summed
over all ranks. Up to the shards, gradients are those of the share; from there down, each rank's are those of its block
by the whole loss, hence the factor in `_Scaled`, and where `common.spatial.halo` gathers. The gradient of a shard is
complete but for samples of other groups: its mean over the `peers`, which have the same part, is what the mean over all
ranks is for the others.

Shapes: B batch, F features, O outputs, S ranks of the group, D H W space, C channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from common.ranks.dist import Dist

_SHARD: Final = "shard"


class Shard:
    """The columns of a weight that a rank has.

    columns: (S, F / S), those of each rank. group: the ranks that have the others; peers: those that have the same.
    """

    def __init__(self, columns: Tensor, group: Dist, peers: Dist) -> None:
        self.columns, self.group, self.peers = columns, group, peers
        self.own_columns = columns[group.rank]

    def gather_whole(self, part: Tensor) -> Tensor:
        """Return the tensor (O, F) from the ranks' parts (O, F / S). A collective call of the group."""
        parts = torch.stack(self.group.all_gather(part), 1)
        whole = parts.new_empty(len(part), self.columns.numel())
        whole[:, self.columns] = parts
        return whole

    def take_own(self, whole: Tensor) -> Tensor:
        """Return this rank's part of a tensor (O, F), as a tensor of its own."""
        return whole[:, self.own_columns.to(whole.device)]

    def is_part(self, tensor: Any) -> bool:
        """Tell whether it can be a part of a tensor like the weight."""
        return isinstance(tensor, Tensor) and tensor.ndim == 2 and tensor.shape[1] == len(self.own_columns)

    def is_whole(self, tensor: Any) -> bool:
        """Tell whether it can be a tensor like the whole weight."""
        return isinstance(tensor, Tensor) and tensor.ndim == 2 and tensor.shape[1] == self.columns.numel()


def shard_of(parameter: Tensor) -> Shard | None:
    """Return which part of a weight the parameter is; None: all of it."""
    return getattr(parameter, _SHARD, None)


def whole_size(parameter: Tensor) -> int:
    """Return the number of weights of a parameter on all ranks of the group together."""
    shard = shard_of(parameter)
    return int(parameter.numel()) * (shard.group.world_size if shard else 1)


# -- the dense layer -----------------------------------------------------------------------------------------


class ShardedLinear(nn.Linear):
    """A dense layer whose columns the ranks divide, each with those for its features.

    former: the layer on one device. gathered: all ranks have all features, and each uses its own.
    """

    def __init__(self, former: nn.Linear, shard: Shard, *, gathered: bool) -> None:
        super().__init__(len(shard.own_columns), former.out_features, device="meta")
        self.shard, self.gathered = shard, gathered
        self.bias = former.bias
        self.weight = nn.Parameter(shard.take_own(former.weight.detach()))
        setattr(self.weight, _SHARD, shard)

    def forward(self, x_BF: Tensor) -> Tensor:
        """Return the outputs (B, O), the same on all ranks."""
        x_BF = _Own.apply(x_BF, self.shard) if self.gathered else _Scaled.apply(x_BF, self.shard.group.world_size)
        part_BO = F.linear(x_BF, self.weight)
        return _Summed.apply(part_BO.to(self.bias.dtype), self.shard.group) + self.bias

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.shard.gather_whole(self.weight.detach())

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
        name = f"{prefix}weight"
        if self.shard.is_whole(state_dict.get(name)):
            state_dict = {**state_dict, name: self.shard.take_own(state_dict[name])}
        super()._load_from_state_dict(state_dict, prefix, *others)


class _Scaled(torch.autograd.Function):
    """Pass on the input; its gradient is that of the whole loss, and not of one rank's share."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: int) -> Tensor:
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.ranks, None


class _Summed(torch.autograd.Function):
    """Add up what the ranks have; each gets the gradient of its share of the loss."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Dist) -> Tensor:
        return group.all_reduce(part.clone()) if part.numel() else part.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Own(torch.autograd.Function):
    """Take this rank's features of all; their gradients are gathered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return shard.take_own(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.shard.gather_whole(gradient), None


# -- gradients and optimizers --------------------------------------------------------------------------------


def share_weights(model: nn.Module, dist: Dist) -> None:
    """Set the parameters of all ranks to those of rank 0, each shard to that of the first of its peers."""
    with torch.no_grad():
        for parameter in model.parameters():
            shard = shard_of(parameter)
            (shard.peers if shard else dist).broadcast(parameter)


def tensor_norms(parameters: Sequence[Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of a tensor like each parameter (T,), those of shards over all ranks of their group."""
    norms = torch.stack(torch._foreach_norm(list(tensors)))
    for index, parameter in enumerate(parameters):
        if shard := shard_of(parameter):
            norms[index] = shard.group.all_reduce(norms[index].square()).sqrt()
    return norms


def gradient_norms(parameters: Iterable[Tensor]) -> Tensor:
    """Return the norm of the gradient of each parameter that has one (T,)."""
    with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
    return tensor_norms(with_gradient, [parameter.grad for parameter in with_gradient])


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """Return the norm of the gradients of all parameters together, ()."""
    return torch.linalg.vector_norm(gradient_norms(parameters))


def gather_whole(parameter: Tensor, tensor: Tensor) -> Tensor:
    """Return a tensor like a parameter on all ranks of the group together; the tensor itself without shards."""
    shard = shard_of(parameter)
    return shard.gather_whole(tensor) if shard else tensor


def take_own(parameter: Tensor, tensor: Tensor) -> Tensor:
    """Return this rank's part of what `gather_whole` returns."""
    shard = shard_of(parameter)
    return shard.take_own(tensor) if shard else tensor


def save_whole(optimizer: Optimizer) -> None:
    """Let an optimizer save and load its state as if it had the whole weights. Saving is then a collective call."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shards = {index: shard for index, parameter in enumerate(parameters) if (shard := shard_of(parameter))}

    def gather_state(_: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        return change_tensors(state, lambda shard, value: shard.gather_whole(value) if shard.is_part(value) else value)

    def take_state(_: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        return change_tensors(state, lambda shard, value: shard.take_own(value) if shard.is_whole(value) else value)

    def change_tensors(state: dict[str, Any], change: Any) -> dict[str, Any]:
        tensors = dict(state["state"])
        for index, shard in shards.items():
            if index in tensors:
                tensors[index] = {name: change(shard, value) for name, value in tensors[index].items()}
        return {**state, "state": tensors}

    if shards:
        optimizer.register_state_dict_post_hook(gather_state)
        optimizer.register_load_state_dict_pre_hook(take_state)
