"""The physics of New Benchmark's plates."""

import numpy as np
import pytest

from newbenchmark.simulation.diffusion import CELL_MM, diffuse, physical, plate


def test_a_sine_decays_as_its_wavenumber_says():
    x_mm = CELL_MM * np.arange(32)
    k = 2 * np.pi * 3 / (32 * CELL_MM)
    start = np.broadcast_to(np.sin(k * x_mm), (32, 32))
    np.testing.assert_allclose(diffuse(start, 4.0, 2.0), np.exp(-4.0 * k**2 * 2.0) * start, atol=1e-12)


def test_heat_is_neither_lost_nor_made():
    start = np.random.default_rng(1).standard_normal((16, 16))
    assert diffuse(start, 10.0, 1.0).sum() == pytest.approx(start.sum())


def test_a_plate_is_the_same_for_the_same_seed():
    first, again = (plate(np.random.default_rng(7), 16) for _ in range(2))
    np.testing.assert_array_equal(first[0], again[0])
    assert first[1] == again[1] and 0.3 < physical(first[1])[0] < 32
