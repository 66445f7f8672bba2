"""Universes with a drift, for the mini problem: what a network must see in the voxels, because no spectrum holds it.

Their labels are sigma_8 and a vector, the drift. Counted are tracers: matter of regions that begin denser than most,
as galaxies are. They move by gravity, and also along the drift, the farther the denser their surroundings, so that
clumps have a steep front and a long tail. (Gravitational redshift likewise shifts galaxies in deep potentials along the
line of sight, but far less.) The four channels are a light cone: regions of their own, of one universe at four
redshifts.

- In a mirror a component of the drift has the other sign, and every isotropic statistic (spectra, histograms, moments,
  counts in cells) is what it was: none of them can tell the sign.
- Any two-point statistic, also one with directions, is the same for a drift and its opposite: the power spectrum of a
  real field is even in k, and regions of their own share no phases.

So all of these predict the drift no better than its mean does, an error of 0.5. It is an invention of this suite.
"""

from __future__ import annotations

import numpy as np

from cosmoflow.simulation.universe import REDSHIFTS, Box, Modes, Prior, count, growth, growth_2lpt

DRIFT = Prior({"sigma_8": (0.5, 1.2)} | dict.fromkeys(("drift_x", "drift_y", "drift_z"), (-24.0, 24.0)))
"""The drift, along the axes of the counts, is how far matter one deviation denser than the mean has gone at z = 0."""
SMOOTHING_MPC_H = 8.0
"""Standard deviation of the Gaussian that smooths the density by which tracers are chosen and drift."""
THRESHOLD = 0.5
"""Tracers are where the smooth initial density is so many standard deviations above the mean, 31 % of all matter."""


def simulate(labels: np.ndarray, prior: Prior, box: Box, rng: np.random.Generator) -> np.ndarray:
    """Return the counts of tracers, int16 (grid, grid, grid, 4): the last axis is REDSHIFTS.

    labels: (4,) in [-1, 1), read through `prior`; `rng` draws the phases of the initial conditions.
    """
    parameters = prior.parameters(labels)
    omega_m, length_mpc_h, n = parameters["omega_m"], box.length(parameters["h_0"]), box.particles
    modes = Modes(n)
    amplitudes = modes.amplitudes(length_mpc_h, parameters)
    smoothing = np.exp(-modes.k2 * np.float32((2 * np.pi / length_mpc_h * SMOOTHING_MPC_H) ** 2 / 2))
    voxels, voxels_per_mpc_h = np.float32(box.grid / (2 * np.pi)), box.grid / length_mpc_h
    counts = []
    for z in REDSHIFTS:
        density = np.fft.rfftn(rng.standard_normal((n, n, n), np.float32)) * amplitudes
        smooth = modes.real(density * smoothing)
        smooth /= smooth.std()
        moved = [voxels * np.float32(growth(z, omega_m)) * part for part in modes.displacement(density)]
        if box.lpt == 2:
            second = modes.displacement(modes.tidal_source(density))
            for component, part in zip(moved, second, strict=True):
                component += voxels * np.float32(growth_2lpt(z, omega_m)) * part
        for component, name in zip(moved, ("drift_x", "drift_y", "drift_z"), strict=True):
            component += np.float32(parameters[name] * voxels_per_mpc_h * growth(z, omega_m)) * smooth
        counts.append(count(moved, box.grid, smooth > THRESHOLD))
    stacked: np.ndarray = np.stack(counts, axis=-1)
    return stacked
