"""Stands in for `amp_C`, the compiled kernels of NVIDIA's apex: the same functions by torch, on any device.

After csrc/multi_tensor_{l2norm,lamb,lamb_mp,adam}*.cu. Numbers are numbers where the compiled functions want them, and
tensors are tensors.
"""

import torch
from torch import Tensor


def multi_tensor_l2norm(chunk_size, overflow, lists, per_tensor):
    norms = torch.stack([tensor.float().norm() for tensor in lists[0]])
    return norms.norm()[None], norms if per_tensor else norms[:0]


multi_tensor_l2norm_mp = multi_tensor_l2norm


def multi_tensor_lamb(
    chunk_size, overflow, lists, lr, beta1, beta2, eps, step, correct, decay, averaging, mode, norm, max_norm, nvlamb
):
    assert isinstance(lr, float) and isinstance(step, int) and isinstance(max_norm, float)
    _lamb(lists, lr, beta1, beta2, eps, step, correct, decay, averaging, mode, norm, max_norm, nvlamb)


def multi_tensor_lamb_mp(
    chunk_size, overflow, lists, lr, beta1, beta2, eps, step, correct, decay, averaging, mode, norm, max_norm, nvlamb,
    found_inf, inv_scale,
):  # fmt: skip
    assert all(isinstance(tensor, Tensor) for tensor in (lr, step, max_norm, found_inf, inv_scale))
    for gradient in lists[0]:
        gradient.mul_(inv_scale)
    _lamb(lists, lr, beta1, beta2, eps, step, correct, decay, averaging, mode, norm, max_norm, nvlamb)


def _lamb(lists, lr, beta1, beta2, eps, step, correct, decay, averaging, mode, norm, max_norm, nvlamb):
    assert mode == 1, "decay apart from the gradient"
    for g, p, m, v in zip(*lists, strict=True):
        g.div_((norm / max_norm).clamp(min=1))
        m.mul_(beta1).add_(g * ((1 - beta1) if averaging else 1))
        v.mul_(beta2).add_((1 - beta2) * g * g)
        g.copy_(_direction(m, v, beta1, beta2, eps, step, correct) + decay * p)  # the gradient's memory has the update
        ratio = p.norm() / g.norm()
        p.sub_(lr * (torch.where(ratio.isfinite() & (ratio > 0), ratio, 1) if nvlamb or decay else 1) * g)


def multi_tensor_adam_capturable(
    chunk_size, overflow, lists, lr, beta1, beta2, eps, step, mode, correct, decay, inv_scale
):
    assert all(isinstance(tensor, Tensor) for tensor in (lr, step, inv_scale))
    for g, p, m, v in zip(*lists, strict=True):
        gradient = g * inv_scale + (0 if mode else decay * p)
        m.mul_(beta1).add_((1 - beta1) * gradient)
        v.mul_(beta2).add_((1 - beta2) * gradient * gradient)
        p.sub_(lr * (_direction(m, v, beta1, beta2, eps, step, correct) + (decay * p if mode else 0)))


def _direction(m, v, beta1, beta2, eps, step, correct):
    """Return what Adam would go at a rate of 1."""
    first, second = (1 - beta1**step, 1 - beta2**step) if correct else (1, 1)
    return (m / first) / ((v / second).sqrt() + eps)


def multi_tensor_adam(*_arguments):
    raise AssertionError("the suite asks for the one that can be recorded")


multi_tensor_adam_capturable_master = multi_tensor_adam
