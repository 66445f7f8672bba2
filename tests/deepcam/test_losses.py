"""The loss against its definition: weights of the classes, mean over all pixels, sum over images."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional

from deepcam.metrics import cross_entropy
from deepcam.reference import CLASS_FREQUENCIES, CLASS_WEIGHTS

WEIGHTS = torch.tensor(CLASS_WEIGHTS, dtype=torch.float64)


def images(count, height=6, width=10, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits_BKHW = 3 * torch.randn(count, 3, height, width, generator=generator, dtype=dtype)
    labels_BHW = torch.randint(0, 3, (count, height, width), generator=generator).to(torch.uint8)
    return logits_BKHW, labels_BHW


def test_weights_are_the_published_ones():
    assert pytest.approx([1.00173, 2.61461, 1.71642], abs=5e-6) == CLASS_WEIGHTS
    assert sum(CLASS_FREQUENCIES) == pytest.approx(1, abs=1e-12)


def test_a_pixel_by_hand():
    logits_BKHW = torch.tensor([2.0, 0.0, 1.0]).reshape(1, 3, 1, 1)
    for label, wrong in enumerate(np.log(np.exp([2, 0, 1]).sum()) - np.array([2, 0, 1])):
        loss = cross_entropy(logits_BKHW, torch.full((1, 1, 1), label), torch.tensor([1.0, 2.0, 4.0]))
        assert float(loss) == pytest.approx((1, 2, 4)[label] * wrong, rel=1e-6)


def test_it_is_the_mean_over_pixels_and_not_over_their_weights():
    logits_BKHW, labels_BHW = images(4)
    losses = functional.cross_entropy(logits_BKHW, labels_BHW.long(), WEIGHTS, reduction="none")
    assert float(cross_entropy(logits_BKHW, labels_BHW, WEIGHTS)) == pytest.approx(4 * float(losses.mean()))


def test_parts_of_a_batch_add_up_and_no_images_make_zero():
    logits_BKHW, labels_BHW = images(5)
    whole = float(cross_entropy(logits_BKHW, labels_BHW, WEIGHTS))
    for cuts in ([0, 1, 5], [0, 3, 3, 5], [0, 5, 5]):
        parts = [float(cross_entropy(logits_BKHW[a:b], labels_BHW[a:b], WEIGHTS)) for a, b in itertools.pairwise(cuts)]
        assert sum(parts) == pytest.approx(whole, rel=1e-14)
    nothing = images(0)[0].requires_grad_()
    cross_entropy(nothing, images(0)[1], WEIGHTS).backward()
    assert nothing.grad.shape == nothing.shape


def test_gradients():
    logits_BKHW, labels_BHW = images(2, 2, 3)
    for layout in (torch.contiguous_format, torch.channels_last):
        given = logits_BKHW.to(memory_format=layout).requires_grad_()
        assert torch.autograd.gradcheck(lambda x: cross_entropy(x, labels_BHW, WEIGHTS), given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_logits_lose_nothing_more(dtype):
    logits_BKHW, labels_BHW = images(2)
    short_BKHW = logits_BKHW.to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(short_BKHW, labels_BHW, WEIGHTS.float())
    assert loss.dtype is torch.float32
    assert loss.item() == pytest.approx(cross_entropy(short_BKHW.double(), labels_BHW, WEIGHTS).item(), rel=1e-6)
    loss.backward()
    assert short_BKHW.grad.dtype is dtype


def test_a_label_that_is_no_class_is_an_error():
    logits_BKHW, labels_BHW = images(1)
    labels_BHW[0, 0, 0] = 3
    with pytest.raises(IndexError):
        cross_entropy(logits_BKHW, labels_BHW, WEIGHTS)
