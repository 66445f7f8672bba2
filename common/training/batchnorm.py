"""Batch normalisation over the samples of several ranks.

With small local batches, the mean and variance of one rank's samples are poor estimates: `share_statistics` lets groups
of ranks use those of all their samples together, with torch.nn.SyncBatchNorm where the device has its kernel, otherwise
with ours. Both give what one process would give with the samples of the whole group. Where several groups train one
model, their running statistics differ until `average_statistics` makes them equal for an evaluation or a checkpoint.

Shapes: B batch, C channels, H W space.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from common.distributed.dist import Dist


def share_statistics(model: nn.Module, group: Dist) -> nn.Module:
    """Return the model with batch normalisation over the ranks of the group; unchanged for a group of one.

    Parameters, buffers and their names stay the same, so that checkpoints fit with and without groups.
    """
    if group.world_size == 1:
        return model
    if group.device.type != "cpu":
        shared: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model, group.process_group)
        return shared
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

    Ranks may have different numbers of samples. The parameters and buffers are those of `former`.
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
            evaluated: Tensor = super().forward(x_BCHW)
            return evaluated
        y_BCHW, mean_C, var_C, count = _Normalize.apply(x_BCHW, self.weight, self.bias, self)
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean_C, self.momentum)
            self.running_var.lerp_(var_C * (count / (count - 1).clamp(min=1)), self.momentum)  # unbiased, as in torch
        return y_BCHW


class _Normalize(torch.autograd.Function):
    """Normalise with the mean and variance over a group of ranks; also return these and the number of values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, module: SharedBatchNorm) -> tuple[Tensor, ...]:
        count = x.numel() // x.shape[1]
        var, mean = torch.var_mean(x.float(), dim=(0, 2, 3), correction=0) if count else (0 * weight, 0 * weight)
        mean, var = mean.double(), var.double()
        # float64: the difference of squares below cancels.
        sums = (torch.full_like(mean, count), count * mean, count * (var + mean**2))
        moments = module.group.all_reduce(torch.stack(sums))
        total = moments[0, 0]
        mean = (moments[1] / total).float()
        var = (moments[2] / total - (moments[1] / total) ** 2).float()
        scale = (var + module.eps).rsqrt()
        y = torch.addcmul(_along(bias - mean * scale * weight), x.float(), _along(scale * weight)).to(x.dtype)
        ctx.save_for_backward(x, weight, mean, scale, total)
        ctx.group = module.group
        ctx.mark_non_differentiable(mean, var, total)
        return y, mean, var, total.float()

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, total = ctx.saved_tensors
        grad = grad_y.float()
        centred = (x.float() - _along(mean)) * _along(scale)
        grad_bias = grad.sum(dim=(0, 2, 3))
        grad_weight = (grad * centred).sum(dim=(0, 2, 3))
        sums = ctx.group.all_reduce(torch.stack((grad_bias, grad_weight)).double())
        means = (sums / total).float()
        grad_x = (grad - _along(means[0]) - centred * _along(means[1])) * _along(scale * weight)
        return grad_x.to(x.dtype), grad_weight, grad_bias, None


def _along(values_C: Tensor) -> Tensor:
    """Return one value per channel in the shape (1, C, 1, 1)."""
    return values_C.view(1, -1, 1, 1)
