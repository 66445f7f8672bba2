"""Batch normalisation over the samples of several ranks.

With small local batches, the mean and variance of one rank's samples are poor estimates: `share_statistics` lets groups
of ranks use those of all their samples together, as one process would with the samples of the whole group. A layer
makes one small all-reduce in each direction, and unlike torch.nn.SyncBatchNorm never waits for the device, so that a
step can run ahead of it and be captured in a CUDA graph. Where several groups train one model, their running statistics
differ until `average_statistics` makes them equal for an evaluation or a checkpoint; within a group they are equal
always, computed by each rank from the same numbers.

Tested on CPUs with gloo, and with one rank of NCCL on an H200, recorded; untested on several GPUs.

Shapes: B batch, C channels, H W space, R ranks of the group.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from common.ranks.dist import Dist


def share_statistics(model: nn.Module, group: Dist) -> nn.Module:
    """Return the model with batch normalisation over the ranks of the group; unchanged for a group of one.

    Parameters, buffers and their names stay the same, so that checkpoints fit with and without groups.
    """
    if group.world_size == 1:
        return model
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, SharedBatchNorm(child, group))
    return model


def average_statistics(model: nn.Module, dist: Dist) -> None:
    """Set the floating-point buffers (running means and variances) of every rank to their mean over all ranks.

    As in the reference, variances are averaged without the spread of the means. Running statistics depend linearly on
    those of the batches, so that averaging more often does not change a later average.
    """
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if dist.world_size == 1 or not buffers:
        return
    with torch.no_grad():
        flat = dist.all_reduce(torch.cat([buffer.flatten() for buffer in buffers])) / dist.world_size
        for buffer, mean in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(mean.view_as(buffer))


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch normalisation (Ioffe and Szegedy 2015, arXiv:1502.03167) with the statistics of all samples of a group.

    Ranks may have different numbers of samples; on a GPU none may be without. The parameters and buffers are those of
    `former`.
    """

    def __init__(self, former: nn.BatchNorm2d, group: Dist) -> None:
        super().__init__(former.num_features, former.eps, former.momentum, former.affine, former.track_running_stats)
        self.weight, self.bias = former.weight, former.bias
        self.running_mean, self.running_var = former.running_mean, former.running_var
        self.num_batches_tracked = former.num_batches_tracked
        self.training = former.training
        self.group = group

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return the normalised input, in its shape and type."""
        if not self.training:
            return super().forward(x_BCHW)
        self.num_batches_tracked += 1
        y_BCHW: Tensor = _Normalize.apply(x_BCHW, self.weight, self.bias, self)
        return y_BCHW


class _Normalize(torch.autograd.Function):
    """Normalise with the mean and variance over a group of ranks, and update the running statistics.

    The steps are those operations of torch that SyncBatchNorm has for GPUs; other devices take the same from _Plain.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, module: SharedBatchNorm) -> Tensor:
        operations: Any = torch if x.is_cuda else _Plain
        x, channels, group = x.contiguous(memory_format=torch.channels_last), x.shape[1], module.group
        mean, scale = operations.batch_norm_stats(x, module.eps)
        # Gathered by a sum in which each rank has its own row and zeros for the others.
        rows = mean.new_zeros(group.world_size, 2 * channels + 1)
        torch.cat((mean, scale, mean.new_full((1,), x.numel() // channels)), out=rows[group.rank])
        means_RC, scales_RC, counts_R1 = group.all_reduce(rows).split((channels, channels, 1), dim=1)
        running, counts_R = (module.running_mean, module.running_var), counts_R1.view(-1)
        mean, scale = operations.batch_norm_gather_stats_with_counts(
            x, means_RC, scales_RC, *running, module.momentum, module.eps, counts_R
        )
        ctx.save_for_backward(x, weight, mean, scale, counts_R.int())
        ctx.operations, ctx.group = operations, group
        return operations.batch_norm_elemt(x, weight, bias, mean, scale, module.eps)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, counts = ctx.saved_tensors
        grad_y = grad_y.contiguous(memory_format=torch.channels_last)
        *sums, grad_weight, grad_bias = ctx.operations.batch_norm_backward_reduce(
            grad_y, x, mean, scale, weight, True, True, True
        )
        by_mean, by_scale = ctx.group.all_reduce(torch.cat(sums)).chunk(2)
        grad_x = ctx.operations.batch_norm_backward_elemt(grad_y, x, mean, scale, weight, by_mean, by_scale, counts)
        return grad_x, grad_weight, grad_bias, None


class _Plain:
    """Operations of torch, by their names and with their arguments there, for devices where torch has none.

    Statistics are float32, or float64 for an input of that type. invstd: 1 / sqrt(var + eps).
    """

    @staticmethod
    def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Return mean and invstd of each channel; 0 and 1 without values."""
        x = _wide(input)
        if not x.numel():
            return x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
        var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        return mean, (var + eps).rsqrt()

    @staticmethod
    def batch_norm_gather_stats_with_counts(  # noqa: PLR0913  # torch's
        input: Tensor,
        mean: Tensor,
        invstd: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
        counts: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return mean and invstd over all ranks of those of each rank, (R, C); update the running statistics."""
        total = counts.sum()
        share_R1 = (counts / total)[:, None]
        whole = (share_R1 * mean).sum(0)
        var = (share_R1 * (invstd**-2 - eps + (mean - whole) ** 2)).sum(0)
        running_mean.lerp_(whole, momentum)
        running_var.lerp_(var * (total / (total - 1).clamp(min=1)), momentum)  # unbiased, as in torch
        return whole, (var + eps).rsqrt()

    @staticmethod
    def batch_norm_elemt(  # noqa: PLR0913  # torch's
        input: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, invstd: Tensor, eps: float
    ) -> Tensor:
        """Return the normalised input."""
        y = torch.addcmul(_along(bias - mean * invstd * weight), _wide(input), _along(invstd * weight))
        return y.to(input.dtype)

    @staticmethod
    def batch_norm_backward_reduce(  # noqa: PLR0913  # torch's
        grad_out: Tensor,
        input: Tensor,
        mean: Tensor,
        invstd: Tensor,
        weight: Tensor,
        input_g: bool,
        weight_g: bool,
        bias_g: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the sums of the gradient and of its product with input - mean, and weight's and bias' gradients."""
        sum_dy = _wide(grad_out).sum(dim=(0, 2, 3))
        sum_dy_xmu = (input - _along(mean)).mul_(grad_out).sum(dim=(0, 2, 3))
        return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy

    @staticmethod
    def batch_norm_backward_elemt(  # noqa: PLR0913  # torch's
        grad_out: Tensor,
        input: Tensor,
        mean: Tensor,
        invstd: Tensor,
        weight: Tensor,
        sum_dy: Tensor,
        sum_dy_xmu: Tensor,
        count: Tensor,
    ) -> Tensor:
        """Return the gradient of the input, from sums over all ranks, each of which had `count` values."""
        total, scale = count.sum(), invstd * weight
        grad = (grad_out - _along(sum_dy / total)).mul_(_along(scale))
        slope = scale * invstd**2 * sum_dy_xmu / total
        return grad.addcmul_(input - _along(mean), _along(slope), value=-1).to(input.dtype)


def _wide(x: Tensor) -> Tensor:
    """Return the values in float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _along(values_C: Tensor) -> Tensor:
    """Return one value per channel in the shape (1, C, 1, 1)."""
    return values_C.view(1, -1, 1, 1)
