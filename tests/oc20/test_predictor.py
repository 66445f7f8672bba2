"""The trained network for frames of atoms: what it refuses."""

import numpy as np
import pytest

from oc20.predictor import frame

NUMBERS, POSITIONS, CELL = np.array([29, 29, 8]), np.eye(3) * 2, np.eye(3) * 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"positions": POSITIONS[:2]}, "positions have the shape .2, 3., .* expected .3, 3. for as many"),
        ({"numbers": NUMBERS[:2]}, "expected .2, 3. for as many"),
        ({"cell": np.ones(3)}, "the cell .3,.; expected"),
        ({"numbers": np.array([29, 0, 8])}, "atomic numbers from 0 to 29; expected 1 to 94"),
        ({"numbers": np.array([29, 300, 8])}, "atomic numbers from 8 to 300; expected 1 to 94"),
    ],
)
def test_a_frame_that_is_none_is_refused(changed, message):
    given = {"numbers": NUMBERS, "positions": POSITIONS, "cell": CELL}
    assert len(frame(**given).numbers) == 3
    with pytest.raises(ValueError, match=message):
        frame(**(given | changed))
