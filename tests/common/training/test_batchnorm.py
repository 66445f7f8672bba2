"""Batch normalisation over ranks in one process; tests/common/ranks/ranks.py compares several with one."""

import inspect

import pytest
import torch
from torch import nn

from common.ranks.dist import Dist, alone
from common.training.batchnorm import SharedBatchNorm, _Plain

OPERATIONS = [name for name in vars(_Plain) if name.startswith("batch_norm")]


def test_plain_operations_take_the_arguments_of_torch():
    assert len(OPERATIONS) == 5
    for name in OPERATIONS:
        known = getattr(torch.ops.aten, name).default._schema.arguments
        assert list(inspect.signature(getattr(_Plain, name)).parameters) == [argument.name for argument in known]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_operations_give_what_those_of_the_device_give(dtype):
    x = (torch.randn(4, 24, 9, 12) * 3 + 2).to("cuda", dtype, memory_format=torch.channels_last)
    weight, bias = torch.rand(2, 24, device="cuda")
    grad = torch.randn_like(x)
    running = [torch.zeros(2, 24, device="cuda") for _ in range(2)]
    found = []
    for operations, (mean, var) in ((torch, running[0]), (_Plain, running[1])):
        local = operations.batch_norm_stats(x, 1e-5)
        means, scales = (torch.stack((one, one)) for one in local)
        counts = torch.full((2,), x.numel() / 24, device="cuda")
        both = operations.batch_norm_gather_stats_with_counts(x, means, scales, mean, var, 0.1, 1e-5, counts)
        y = operations.batch_norm_elemt(x, weight, bias, *both, 1e-5)
        sums = operations.batch_norm_backward_reduce(grad, x, *both, weight, True, True, True)
        back = operations.batch_norm_backward_elemt(grad, x, *both, weight, 2 * sums[0], 2 * sums[1], counts.int())
        assert y.dtype is back.dtype is dtype
        found.append((*local, *both, mean, var, y, *sums, back))
    for device, plain in zip(*found, strict=True):
        close = {"rtol": 2e-2, "atol": 2e-2} if device.dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-3}
        torch.testing.assert_close(device, plain, **close)


def test_a_step_needs_no_value_of_the_device():
    layer = SharedBatchNorm(nn.BatchNorm2d(3), Dist(alone().position, torch.device("meta"))).to("meta")
    x = torch.empty(2, 3, 4, 5, device="meta", requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.is_meta and layer.weight.grad.is_meta
