"""Intersection over union of hand-made masks: per image, with background, 1 for absent classes."""

import numpy as np
import pytest
import torch

from deepcam.metrics import class_iou


def mask(*rows):
    return torch.tensor([[int(letter) for letter in row] for row in rows])[None]


def test_background_counts_like_the_other_classes():
    prediction, labels = mask("0012", "0012"), mask("0022", "0012")
    assert class_iou(prediction, labels).tolist() == [[1.0, 1 / 2, 2 / 3]]


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


def test_images_are_not_pooled():
    prediction, labels = torch.cat((mask("0001"), mask("1111"))), torch.cat((mask("0000"), mask("1111")))
    scores = class_iou(prediction, labels)
    assert scores.tolist() == [[3 / 4, 0, 1], [1, 1, 1]]
    assert float(scores.mean()) == pytest.approx((7 / 12 + 1) / 2)  # pooled: class 1 has 4/5, the mean is 0.85


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
