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
        if x_BCHW.is_cuda:
            return _Normalize.apply(x_BCHW, self.weight, self.bias, self)
        x = x_BCHW.to(torch.promote_types(x_BCHW.dtype, torch.float32))
        mean, var, count = _Statistics.apply(x, self.group)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * (count / (count - 1).clamp(min=1)), self.momentum)  # unbiased, as in torch
        scale = self.weight * (var + self.eps).rsqrt()
        return torch.addcmul(_view_channels(self.bias), x - _view_channels(mean), _view_channels(scale)).to(
            x_BCHW.dtype
        )


class _Normalize(torch.autograd.Function):
    """Normalise on a GPU by the operations that SyncBatchNorm has there, and update the running statistics."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, module: SharedBatchNorm) -> Tensor:
        x, channels, group = x.contiguous(memory_format=torch.channels_last), x.shape[1], module.group
        mean, scale = torch.batch_norm_stats(x, module.eps)
        # Gathered by a sum in which each rank has its own row and zeros for the others.
        rows = mean.new_zeros(group.world_size, 2 * channels + 1)
        torch.cat((mean, scale, mean.new_full((1,), x.numel() // channels)), out=rows[group.rank])
        means_RC, scales_RC, counts_R1 = group.all_reduce(rows).split((channels, channels, 1), dim=1)
        running, counts_R = (module.running_mean, module.running_var), counts_R1.view(-1)
        mean, scale = torch.batch_norm_gather_stats_with_counts(
            x, means_RC, scales_RC, *running, module.momentum, module.eps, counts_R
        )
        ctx.save_for_backward(x, weight, mean, scale, counts_R.int())
        ctx.group = group
        return torch.batch_norm_elemt(x, weight, bias, mean, scale, module.eps)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, counts = ctx.saved_tensors
        grad_y = grad_y.contiguous(memory_format=torch.channels_last)
        *sums, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
            grad_y, x, mean, scale, weight, True, True, True
        )
        by_mean, by_scale = ctx.group.all_reduce(torch.cat(sums)).chunk(2)
        grad_x = torch.batch_norm_backward_elemt(grad_y, x, mean, scale, weight, by_mean, by_scale, counts)
        return grad_x, grad_weight, grad_bias, None


class _Statistics(torch.autograd.Function):
    """Mean and variance of each channel over a group of ranks, and the number of values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Dist) -> tuple[Tensor, Tensor, Tensor]:
        channels, count = x.shape[1], x.numel() // x.shape[1]
        var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0) if count else x.new_zeros(2, channels)
        rows = mean.new_zeros(group.world_size, 2 * channels + 1)  # gathered as above
        torch.cat((mean, var, mean.new_full((1,), count)), out=rows[group.rank])
        means_RC, vars_RC, counts_R1 = group.all_reduce(rows).split((channels, channels, 1), dim=1)
        total = counts_R1.sum()
        share_R1 = counts_R1 / total
        mean = (share_R1 * means_RC).sum(0)
        var = (share_R1 * (vars_RC + (means_RC - mean) ** 2)).sum(0)
        ctx.save_for_backward(x, mean, total)
        ctx.group = group
        ctx.mark_non_differentiable(total)
        return mean, var, total

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_var: Tensor, _: Any) -> tuple[Tensor, None]:
        x, mean, total = ctx.saved_tensors
        grad_mean, slope = (ctx.group.all_reduce(torch.cat((grad_mean, 2 * grad_var))) / total).chunk(2)
        return torch.addcmul(_view_channels(grad_mean - slope * mean), x, _view_channels(slope)), None


def _view_channels(values_C: Tensor) -> Tensor:
    """Return one value per channel in the shape (1, C, 1, 1)."""
    return values_C.view(1, -1, 1, 1)
