"""common.training.faults: signs that a network does not learn are said once, and others are not."""

import re
from dataclasses import replace

import pytest

from common.reference import Target
from common.training.faults import Sanity
from cosmoflow.reference import REFERENCE


@pytest.mark.parametrize(
    ("lower_is_better", "constant", "qualities", "text"),
    [
        (True, 0.5, [0.5, 0.499, 0.495], "eval is 0.495 and was no better .* has 0.5: see whether"),
        (True, 0.5, [0.6, 0.7, 0.48], ""),
        (True, 0.5, [0.5, 0.5], ""),
        (False, 0.32, [0.33, 0.5, 0.32, 0.321, 0.325], "eval is 0.325 and was no better"),
        (False, 0.32, [0.32, 0.33, 0.34], ""),
        (True, None, [0.7, 0.7, 0.7], "eval is 0.7 in 3 evaluations, to the last digit"),
        (True, None, [0.7, 0.7, 0.70001], ""),
    ],
)
def test_what_a_quality_shows(lower_is_better, constant, qualities, text):
    said = []
    sanity = Sanity(replace(REFERENCE, target=Target("eval", 0.1, lower_is_better), constant=constant), said.append)
    for _ in range(2):
        for count in range(len(qualities)):
            sanity.look_at_qualities(qualities[: count + 1])
    assert len(said) == bool(text)
    assert not text or re.search(text, said[0]), said


def test_a_gradient_of_zero_is_said_once():
    said = []
    sanity = Sanity(REFERENCE, said.append, steps=1)
    for norms in ([1.0, 1e-30], [2.0, 0.0], [0.0]):
        sanity.look_at_norms(norms)
    assert len(said) == 1 and said[0].startswith("warning: the gradient of a step is exactly 0")
    sanity.look_at_qualities([0.5, 0.5, 0.51])
    assert "global_batch_size is too large" in said[1]
