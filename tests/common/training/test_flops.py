"""Operations are counted as layers have them."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from common.training.profile import count_sample, count_table3
from cosmoflow.model import CosmoFlow, ModelConfig


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
    first = 8 * 8 * 16
    assert count_sample(nn.Sequential(pointwise, layer), torch.empty(1, 8, 4, 4)).training == 2 * (
        2 * first + 3 * products
    )


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride, early):
        super().__init__()
        first, second = (stride, 1) if early else (1, stride)
        self.main = nn.Sequential(
            *normalised(before, width, 1, first),
            nn.ReLU(),
            *normalised(width, width, 3, second),
            nn.ReLU(),
            *normalised(width, 4 * width, 1),
        )
        new = stride > 1 or before != 4 * width
        self.skip = nn.Sequential(*(normalised(before, 4 * width, 1, stride) if new else ()))

    def forward(self, x):
        return functional.relu(self.main(x) + self.skip(x))


def normalised(before, after, kernel, stride=1):
    return nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(after)


def resnet50(early):
    """Return the network; early: halve the map in a block's first convolution (v1), not in that of 3×3 (v1.5)."""
    layers, before = [*normalised(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(before, width, 1 if block else stride, early))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


@pytest.mark.parametrize(
    ("early", "products", "operations"),
    [(True, 3_857_973_248, 7_739_387_904), (False, 4_089_184_256, 8_202_863_616)],
    ids=["v1", "v1.5"],
)
def test_resnet50_in_both_conventions(early, products, operations):
    with torch.device("meta"):
        network, image = resnet50(early), torch.empty(1, 3, 224, 224)
    assert sum(weights.numel() for weights in network.parameters()) == 25_557_032
    image_gradient = 64 * 3 * 49 * 112 * 112  # which is not needed
    assert count_sample(network, image).training == 2 * (3 * products - image_gradient)
    assert count_table3(network, image) == 3 * operations


@pytest.mark.parametrize(
    ("layer", "shape", "operations"),
    [
        (nn.Conv3d(2, 4, 3, padding=1), (1, 2, 4, 4, 4), 2 * 27 * 2 * 64 * 4),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), (1, 8, 4, 4), 2 * 9 * 8 * 16),
        (nn.ConvTranspose2d(8, 4, 2, stride=2, groups=2), (1, 8, 4, 4), 2 * 4 * 8 * 16 * 2),
        (nn.Linear(8, 5), (3, 8), 3 * 8 * 5),
        (nn.GroupNorm(2, 8), (1, 8, 4, 4), 8 * 16),
        (nn.MaxPool3d(2), (1, 8, 4, 4, 4), 8 * 8),
        (nn.AdaptiveAvgPool2d(1), (1, 8, 4, 4), 8 * 16),
        (nn.LeakyReLU(), (1, 8, 4, 4), 8 * 16),
        (nn.Dropout(), (1, 8, 4, 4), 0),
        (nn.Flatten(), (1, 8, 4, 4), 0),
    ],
)
def test_table3_counts_each_kind_of_layer(layer, shape, operations):
    assert count_table3(layer, torch.empty(shape)) == 3 * operations
    assert layer.training


def test_gradients_of_inputs_count_where_they_are_asked_for():
    with torch.device("meta"):
        network, x_BDHWC = CosmoFlow(ModelConfig(), (128, 128, 128, 4)), torch.empty(1, 128, 128, 128, 4)
    assert count_sample(network, x_BDHWC.requires_grad_()).training == pytest.approx(206.59e9, rel=1e-4)
