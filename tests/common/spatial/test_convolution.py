"""Convolutions of blocks: torch's own, whatever the shape."""

import pytest
import torch
import torch.nn.functional as F

from common.spatial import convolution
from common.spatial.convolution import convolved, gradients

LAST = torch.channels_last_3d
# Shape of the input, of the kernel, and the zeros before and after the voxels along D, H and W.
SHAPES = {
    "one sample in halves": ((1, 4, 6, 10, 8), (3, 3, 3), ((1, 1), (1, 1), (1, 1))),
    "halves, even kernel": ((1, 4, 6, 10, 8), (2, 2, 2), ((0, 1), (0, 1), (0, 1))),
    "two samples": ((2, 4, 6, 10, 8), (3, 3, 3), ((1, 1), (1, 1), (1, 1))),
    "one plane": ((2, 4, 1, 10, 8), (1, 3, 3), ((0, 0), (1, 1), (1, 1))),
    "one row": ((2, 4, 6, 1, 8), (3, 1, 3), ((1, 1), (0, 0), (1, 1))),
    "an edge": ((1, 4, 1, 1, 8), (1, 1, 3), ((0, 0), (0, 0), (1, 1))),
    "an edge, even kernel": ((1, 4, 1, 1, 8), (1, 1, 2), ((0, 0), (0, 0), (0, 1))),
    "two planes, five voxels": ((1, 4, 2, 10, 8), (2, 5, 5), ((0, 1), (2, 2), (2, 2))),
    "no samples": ((0, 4, 6, 10, 8), (3, 3, 3), ((1, 1), (1, 1), (1, 1))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "kernel", "pads"), SHAPES.values(), ids=SHAPES)
def test_outputs_and_gradients_are_those_of_torch(shape, kernel, pads, dtype):
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape):
        # A few binary digits, so that all sums are exact in any format and order.
        return torch.randint(-2, 3, shape, generator=generator).to(dtype)

    x = drawn(*shape).contiguous(memory_format=LAST).requires_grad_()
    weight, bias = drawn(5, shape[1], *kernel).requires_grad_(), drawn(5).requires_grad_()
    wide = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
    expected = F.conv3d(F.pad(wide[0], [number for pair in reversed(pads) for number in pair]), *wide[1:])
    found = convolved(x.detach(), weight.detach(), bias.detach(), pads)
    assert found.shape == expected.shape and found.is_contiguous(memory_format=LAST)
    torch.testing.assert_close(found.double(), expected)
    by_y = drawn(*found.shape).contiguous(memory_format=LAST)
    expected.backward(by_y.double())
    ours = gradients(by_y, x.detach(), weight.detach(), pads, (True, True, True))
    for mine, right in zip(ours, wide, strict=True):
        assert mine.shape == right.shape
        torch.testing.assert_close(mine.double(), right.grad, rtol=2e-2 if dtype == torch.bfloat16 else 0, atol=0)
    assert gradients(by_y, x.detach(), weight.detach(), pads, (False, True, False))[0] is None


def test_only_small_inputs_in_float32_are_halved(monkeypatch):
    """What is halved has twice the samples when torch sees it."""
    seen = []
    monkeypatch.setitem(
        convolution.CONVOLUTIONS, 3, lambda x, *others, **named: seen.append(len(x)) or F.conv3d(x, *others, **named)
    )
    weight = torch.randn(2, 4, 3, 3, 3)
    pads = ((1, 1),) * 3
    small, large = torch.zeros(1, 4, 4, 8, 8), torch.zeros(1, 4, 80, 80, 2)
    for x in (small, small.double(), large):
        convolved(x, weight.to(x.dtype), None, pads)
    assert seen == [2, 1, 1]
