"""Batch normalisation over ranks in one process; tests/common/ranks/ranks.py compares several with one."""

import torch
from torch import nn

from common.ranks.dist import Dist, make_single_dist
from common.training.batchnorm import SharedBatchNorm


def test_a_step_needs_no_value_of_the_device():
    layer = SharedBatchNorm(nn.BatchNorm2d(3), Dist(make_single_dist().position, torch.device("meta"))).to("meta")
    x = torch.empty(2, 3, 4, 5, device="meta", requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.is_meta and layer.weight.grad.is_meta
