"""The physics, of newbenchmark/simulation/diffusion.py: where you replace that, replace this."""

import numpy as np

from newbenchmark.simulation.diffusion import diffuse


def test_a_sine_decays_as_its_wavenumber_says():
    x_mm = 0.5 * np.arange(32)
    k = 2 * np.pi * 3 / 16
    start = np.broadcast_to(np.sin(k * x_mm), (32, 32))
    end = diffuse(start, 0.5, diffusivity=4.0, time_s=0.2)
    np.testing.assert_allclose(end, np.exp(-4.0 * k**2 * 0.2) * start, atol=1e-12)
