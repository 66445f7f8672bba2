"""Intersection over union of hand-made masks: per image, with background, 1 for absent classes; and the loss.

The loss against its definition: weights of the classes, mean over all pixels, sum over images.
"""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional

from deepcam.predictor import class_iou, cross_entropy, sum_pixel_losses
from deepcam.reference import CLASS_FREQUENCIES, CLASS_WEIGHTS

WEIGHTS = torch.tensor(CLASS_WEIGHTS, dtype=torch.float64)


def mask(*rows):
    return torch.tensor([[int(letter) for letter in row] for row in rows])[None]


@pytest.mark.parametrize(
    ("prediction", "labels", "expected"),
    [
        (mask("00", "00"), mask("00", "00"), [1, 1, 1]),  # in neither: right
        (mask("01", "00"), mask("00", "00"), [3 / 4, 0, 1]),  # predicted only
        (mask("00", "00"), mask("02", "22"), [1 / 4, 1, 0]),  # labelled only
        (mask("11", "11"), mask("22", "22"), [1, 0, 0]),
    ],
)
def test_a_class_that_is_absent_is_right_if_it_is_in_neither(prediction, labels, expected):
    assert class_iou(prediction, labels).tolist() == [expected]


def test_scores_are_those_of_sets_of_pixels():
    rng = np.random.default_rng(3)
    labels = rng.choice(3, (5, 16, 24), p=[0.9, 0.02, 0.08]).astype(np.uint8)
    prediction = np.where(rng.random(labels.shape) < 0.9, labels, rng.integers(0, 3, labels.shape))
    found = class_iou(torch.from_numpy(prediction), torch.from_numpy(labels))
    assert found.shape == (5, 3) and found.dtype is torch.float64
    for image in range(5):
        for number in range(3):
            ours, theirs = (set(np.flatnonzero(mask[image] == number)) for mask in (prediction, labels))
            assert found[image, number] == len(ours & theirs) / len(ours | theirs)


def test_any_split_of_the_images_gives_the_same_scores():
    generator = torch.Generator().manual_seed(0)
    prediction, labels = (torch.randint(0, 3, (7, 8, 8), generator=generator) for _ in range(2))
    whole = class_iou(prediction, labels.to(torch.uint8))
    for sizes in ([7], [4, 3], [3, 3, 1], [5, 0, 2]):
        parts = [class_iou(p, y) for p, y in zip(prediction.split(sizes), labels.split(sizes), strict=True)]
        assert torch.equal(torch.cat(parts), whole) and sum(map(len, parts)) == 7
        assert float(sum(part.mean(dim=1).sum() for part in parts)) / 7 == pytest.approx(float(whole.mean()), rel=1e-14)


# -- the loss ------------------------------------------------------------------------------------------------


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


def plain(loss):
    return loss


@pytest.mark.parametrize(
    ("dtype", "compiler"),
    [
        (torch.bfloat16, plain),
        (torch.float32, plain),
        (torch.float64, plain),
        pytest.param(torch.bfloat16, torch.compile, marks=pytest.mark.exhaustive),
    ],
)
def test_the_loss_for_the_compiler_is_the_same(dtype, compiler):
    exact_BKHW, labels_BHW = images(3)
    wide_BKHW = functional.pad(exact_BKHW, (0, 0, 0, 0, 0, 5)).to(dtype, memory_format=torch.channels_last)
    logits_BKHW = wide_BKHW[:, :3]  # as a network with eight outputs gives them
    within = {torch.bfloat16: 1e-2, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    results = []
    for loss, kind in ((compiler(sum_pixel_losses), dtype), (cross_entropy, torch.float64)):
        x_BKHW = logits_BKHW.to(kind).requires_grad_()
        summed = loss(x_BKHW, labels_BHW, WEIGHTS.to(torch.promote_types(kind, torch.float32)))
        results.append((summed, *torch.autograd.grad(summed, x_BKHW)))
    (ours, by_ours), (theirs, by_theirs) = results
    assert ours.item() == pytest.approx(theirs.item(), rel=min(within, 1e-6)) and by_ours.dtype is dtype
    torch.testing.assert_close(by_ours.double(), by_theirs, rtol=within, atol=within * float(by_theirs.abs().max()))
