"""Operations are counted as layers have them."""

import pytest
import torch
from torch import nn

from common.training.flops import count


@pytest.mark.parametrize(
    ("layer", "products"),
    [
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), 8 * 9 * 16),
        (nn.Conv2d(8, 4, 3, padding=1), 8 * 4 * 9 * 16),
        (nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2), 8 * 2 * 9 * 16),
    ],
)
def test_a_convolution_takes_as_much_for_each_gradient(layer, products):
    pointwise = nn.Conv2d(8, 8, 1)  # needs no gradient of its input
    flops = count(nn.Sequential(pointwise, layer), torch.empty(1, 8, 4, 4))
    first = 8 * 8 * 16
    assert flops.forward == 2 * (first + products)
    assert flops.training == 2 * (2 * first + 3 * products)
