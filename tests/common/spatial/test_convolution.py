"""Convolutions of blocks: torch's own, whatever the shape."""

import pytest
import torch
import torch.nn.functional as F

from common.spatial import halo
from common.spatial.halo import PaddedConv3d, compute_gradients, convolve_padded

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
    "as many planes as the kernel reaches": ((2, 16, 2, 4, 4), (3, 3, 3), ((1, 1),) * 3),
    "four planes, a longer kernel": ((2, 16, 4, 4, 4), (5, 5, 5), ((2, 2),) * 3),
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
    found = convolve_padded(x.detach(), weight.detach(), bias.detach(), pads)
    assert found.shape == expected.shape and found.is_contiguous(memory_format=LAST)
    torch.testing.assert_close(found.double(), expected)
    by_y = drawn(*found.shape).contiguous(memory_format=LAST)
    expected.backward(by_y.double())
    ours = compute_gradients(by_y, x.detach(), weight.detach(), pads, (True, True, True))
    for mine, right in zip(ours, wide, strict=True):
        assert mine.shape == right.shape
        torch.testing.assert_close(mine.double(), right.grad, rtol=2e-2 if dtype == torch.bfloat16 else 0, atol=0)
    assert compute_gradients(by_y, x.detach(), weight.detach(), pads, (False, True, False))[0] is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("sides", "size"),
    [((2, 4, 4), 3), ((2, 2, 2), 3), ((4, 4, 4), 5), ((3, 6, 6), 4), ((6, 6, 6), 3), ((6, 1, 1), 5), ((7, 2, 17), 7)],
)
def test_thin_inputs_have_right_gradients(sides, size, dtype):
    """In bf16 torch's own are wrong for some inputs thinner than the kernel (torch 2.13, AVX-512)."""
    generator = torch.Generator().manual_seed(2)

    def drawn(*shape):
        return torch.randint(-2, 3, shape, generator=generator).double()

    former = torch.nn.Conv3d(16, 32, size, padding="same", dtype=torch.float64)
    with torch.no_grad():
        former.weight.copy_(drawn(*former.weight.shape))
    x, by_y = drawn(2, 16, *sides), drawn(2, 32, *sides)
    former(x).backward(by_y)
    expected = [former.weight.grad.clone(), former.bias.grad.clone()]
    ours = PaddedConv3d(former.to(dtype, memory_format=LAST))
    ours.zero_grad()
    ours(x.to(dtype, memory_format=LAST)).backward(by_y.to(dtype, memory_format=LAST))
    assert ours.weight is former.weight and ours.bias is former.bias
    for mine, right in zip((ours.weight.grad, ours.bias.grad), expected, strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-2 if dtype == torch.bfloat16 else 0, atol=0)


def test_only_small_inputs_in_float32_are_halved(monkeypatch):
    """What is halved has twice the samples when torch sees it."""
    seen = []
    monkeypatch.setitem(
        halo.CONVOLUTIONS, 3, lambda x, *others, **named: seen.append(len(x)) or F.conv3d(x, *others, **named)
    )
    weight = torch.randn(2, 4, 3, 3, 3)
    pads = ((1, 1),) * 3
    small, large = torch.zeros(1, 4, 4, 8, 8), torch.zeros(1, 4, 80, 80, 2)
    for x in (small, small.double(), large):
        convolve_padded(x, weight.to(x.dtype), None, pads)
    assert seen == [2, 1, 1]
