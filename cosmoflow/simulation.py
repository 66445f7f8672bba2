"""Synthetic universes: recipes, labels, the linear power spectrum, growth, and particles displaced by 2LPT and counted.

Stands in for the N-body runs behind the published data (NERSC/cosmoflow-sims: MUSIC initial conditions, evolved by
pyCOLA): the same labels, redshifts, flat LCDM with fixed baryons and nearest-grid-point counts. Haloes do not form
in perturbation theory, so the largest counts are lower here and errors on the labels are no match for published ones.

Lengths are in Mpc/h and wavenumbers in h/Mpc, unless a name says otherwise.

`simulate_drift` makes universes with a drift, for the mini problem: what a network must see in the voxels, because no
spectrum holds it.

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

The recipes of synthetic universes: presets, priors, and the simulation of each universe from its seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.errors import UsageError

REDSHIFTS = (0.0, 0.5, 1.5, 3.0)
OMEGA_B = 0.045
T_CMB_K = 2.7255
FIXED = {"omega_m": 0.3, "sigma_8": 0.8, "n_s": 0.96, "h_0": 70.0, "drift_x": 0.0, "drift_y": 0.0, "drift_z": 0.0}
"""The parameters of a universe where they are not labels. h_0 is in km/s/Mpc, the drift (see DRIFT) in Mpc/h."""


@dataclass(frozen=True)
class Prior:
    """The labels of a universe, four names of FIXED, with what labels of -1 and 1 stand for; uniform in between."""

    ranges: Mapping[str, tuple[float, float]]

    def physical(self, labels: np.ndarray) -> tuple[np.ndarray, ...]:
        """The parameters of labels (..., 4), each of shape (...), in their order."""
        low, high = np.transpose(list(self.ranges.values()))
        values = low + (high - low) * (np.asarray(labels, np.float64) + 1) / 2
        return tuple(np.moveaxis(values, -1, 0))

    def parameters(self, labels: np.ndarray) -> dict[str, float]:
        """All parameters of a universe of labels (4,), by name."""
        return FIXED | dict(zip(self.ranges, map(float, self.physical(labels)), strict=True))


# 10 % around the means of the published data set; what a 32³ box of minutes-long training can tell apart is wider.
ORIGINAL = Prior({"omega_m": (0.27, 0.33), "sigma_8": (0.72, 0.88), "n_s": (0.864, 1.056), "h_0": (63.0, 77.0)})
WIDE = Prior({"omega_m": (0.1, 0.5), "sigma_8": (0.5, 1.2), "n_s": (0.7, 1.25), "h_0": (50.0, 100.0)})


@dataclass(frozen=True)
class Box:
    """A periodic cube of `grid`³ voxels that holds `particles`³ particles.

    Without `length_mpc_h` a voxel measures H_0/70 Mpc/h, as in the published data, so that the side of the box
    tells H_0. `lpt` is the order of the displacements: 1 is the Zel'dovich approximation, 2 adds the tidal term.
    """

    grid: int
    particles: int
    length_mpc_h: float | None = None
    lpt: int = 2

    def __post_init__(self) -> None:
        if self.grid < 1 or self.particles < 2 or self.particles % 2:
            raise UsageError(f"need grid >= 1 and an even number of particles per side, not {self}")
        if self.length_mpc_h is not None and not self.length_mpc_h > 0:
            raise UsageError(f"length_mpc_h must be positive or null, not {self.length_mpc_h}")

    def length(self, h_0: float) -> float:
        """The side of the box in Mpc/h."""
        return self.grid * h_0 / 70 if self.length_mpc_h is None else self.length_mpc_h


def draw_labels(rng: np.random.Generator, n: int) -> np.ndarray:
    """Independent uniform labels (n, 4) in [-1, 1), float32.

    Multiples of 2^-23 as in the published data: exact in float32, hence never 1.
    """
    return (rng.integers(0, 2**24, (n, 4)) / 2**23 - 1).astype(np.float32)


def transfer(k_h_mpc: np.ndarray, omega_m: float, h: float) -> np.ndarray:
    """The matter transfer function without acoustic wiggles: Eisenstein & Hu 1998 (ApJ 496, 605), eqs. 26 and 28-31."""
    matter, fraction = omega_m * h**2, OMEGA_B / omega_m
    sound_horizon_mpc = 44.5 * np.log(9.83 / matter) / np.sqrt(1 + 10 * (OMEGA_B * h**2) ** 0.75)
    alpha = 1 - 0.328 * np.log(431 * matter) * fraction + 0.38 * np.log(22.3 * matter) * fraction**2
    shape = omega_m * h * (alpha + (1 - alpha) / (1 + (0.43 * k_h_mpc * h * sound_horizon_mpc) ** 4))
    q = k_h_mpc * (T_CMB_K / 2.7) ** 2 / shape
    log_term = np.log(2 * np.e + 1.8 * q)
    return log_term / (log_term + (14.2 + 731 / (1 + 62.5 * q)) * q**2)


def sphere_variance(k_h_mpc: np.ndarray, power: np.ndarray, radius_mpc_h: float) -> float:
    """The variance of the density in spheres: the integral of k³ P(k) W²(kR) / 2π² over ln k."""
    x = k_h_mpc * radius_mpc_h
    window = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    return float(np.trapezoid(k_h_mpc**3 * power * window**2, np.log(k_h_mpc)) / (2 * np.pi**2))


def linear_power(k_h_mpc: np.ndarray, omega_m: float, sigma_8: float, n_s: float, h: float) -> np.ndarray:
    """The linear matter spectrum at z = 0 in (Mpc/h)³, with rms `sigma_8` in spheres of 8 Mpc/h; needs k > 0."""
    table = np.geomspace(1e-4, 20.0, 600)  # for every label of WIDE the integral has converged to 0.1 %
    unscaled = table**n_s * transfer(table, omega_m, h) ** 2
    amplitude = sigma_8**2 / sphere_variance(table, unscaled, 8.0)
    return amplitude * k_h_mpc**n_s * transfer(k_h_mpc, omega_m, h) ** 2


def growth(z: float, omega_m: float) -> float:
    """The linear growth factor of flat LCDM, with D(0) = 1: H(a) times the integral of da/(aH)³ (Heath 1977)."""

    def unscaled(a_end: float) -> float:
        a = np.linspace(0, a_end, 200)
        integrand = (a / (omega_m + (1 - omega_m) * a**3)) ** 1.5
        return float(np.sqrt(omega_m / a_end**3 + 1 - omega_m) * np.trapezoid(integrand, a))

    return unscaled(1 / (1 + z)) / unscaled(1.0)


def growth_2lpt(z: float, omega_m: float) -> float:
    """The factor of the second-order displacement: 3/7 D² Omega_m(z)^(-1/143) (Bouchet et al. 1995, eq. 50)."""
    omega_m_z = omega_m / (omega_m + (1 - omega_m) / (1 + z) ** 3)
    return float(3 / 7 * growth(z, omega_m) ** 2 * omega_m_z ** (-1 / 143))


class Modes:
    """The wavenumbers of an n³ lattice in units of 2π/L, in the layout of `rfftn`.

    The mean and the Nyquist frequencies have k2 = 0 and are left out of every field: a real lattice cannot hold
    the sign of a gradient at the Nyquist frequency.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        full = np.fft.fftfreq(n, 1 / n).astype(np.float32)
        half: np.ndarray = np.arange(n // 2 + 1, dtype=np.float32)
        x, y, z = self.k = (full[:, None, None], full[None, :, None], half[None, None, :])
        kept = (abs(x) < n // 2) & (abs(y) < n // 2) & (z < n // 2)
        self.k2 = np.where(kept, x**2 + y**2 + z**2, np.float32(0))
        self.inverse_k2 = np.divide(1, self.k2, out=np.zeros_like(self.k2), where=self.k2 > 0)

    def real(self, modes: np.ndarray) -> np.ndarray:
        """The field (n, n, n) of these modes."""
        return np.fft.irfftn(modes, s=(self.n,) * 3, axes=(0, 1, 2))

    def displacement(self, density: np.ndarray) -> list[np.ndarray]:
        """The three components, in units of L/2π, of the gradient field whose divergence is minus this density."""
        potential = np.complex64(1j) * self.inverse_k2 * density
        return [self.real(k * potential) for k in self.k]

    def amplitudes(self, length_mpc_h: float, parameters: Mapping[str, float]) -> np.ndarray:
        """The factors that give white noise on this lattice the linear spectrum at z = 0 of a universe."""
        omega_m, sigma_8, n_s, h_0 = (parameters[name] for name in ("omega_m", "sigma_8", "n_s", "h_0"))
        k_h_mpc = 2 * np.pi / length_mpc_h * np.sqrt(np.arange(1, 3 * (self.n // 2) ** 2))
        amplitude = np.sqrt(linear_power(k_h_mpc, omega_m, sigma_8, n_s, h_0 / 100) * (self.n / length_mpc_h) ** 3)
        return np.concatenate(([0], amplitude)).astype(np.float32)[self.k2.astype(np.int32)]

    def tidal_source(self, density: np.ndarray) -> np.ndarray:
        """The modes of the source of the second order: Σ_(i>j) φ_ii φ_jj − φ_ij² where ∇²φ is this density."""
        potential = self.inverse_k2 * density
        xx, yy, zz = (self.real(k * k * potential) for k in self.k)
        source = xx * yy + (xx + yy) * zz
        for i, j in ((0, 1), (0, 2), (1, 2)):
            source -= self.real(self.k[i] * self.k[j] * potential) ** 2
        return np.fft.rfftn(source)


def count(displacement: Sequence[np.ndarray], grid: int, counted: np.ndarray | None = None) -> np.ndarray:
    """The particles in each voxel, int16 (grid, grid, grid): a lattice of cells' centres, moved and wrapped around.

    displacement: three components (n, n, n) in voxels; n need not be `grid`. counted: which particles, else all.
    """
    n = len(displacement[0])
    centres = (np.arange(n, dtype=np.float32) + 0.5) * np.float32(grid / n)
    voxel: np.ndarray = np.zeros((n, n, n), np.int32)
    for axis, component in enumerate(displacement):
        position = np.floor(component + centres.reshape([-1 if i == axis else 1 for i in range(3)]))
        voxel = voxel * grid + position.astype(np.int32) % grid
    voxels = voxel.ravel() if counted is None else voxel[counted]
    return np.bincount(voxels, minlength=grid**3).astype(np.int16).reshape((grid,) * 3)


def simulate(labels: np.ndarray, prior: Prior, box: Box, rng: np.random.Generator) -> np.ndarray:
    """The counts of one universe, int16 (grid, grid, grid, 4): the last axis is REDSHIFTS, each sums to particles³.

    labels: (4,) in [-1, 1), read through `prior`; `rng` draws the phases of the initial conditions.
    """
    parameters = prior.parameters(labels)
    omega_m, n = parameters["omega_m"], box.particles
    modes = Modes(n)
    amplitudes = modes.amplitudes(box.length(parameters["h_0"]), parameters)
    density = np.fft.rfftn(rng.standard_normal((n, n, n), np.float32)) * amplitudes

    voxels = np.float32(box.grid / (2 * np.pi))
    first = [voxels * component for component in modes.displacement(density)]
    second = []
    if box.lpt == 2:
        second = [voxels * component for component in modes.displacement(modes.tidal_source(density))]
    counts = []
    for z in REDSHIFTS:
        moved = [np.float32(growth(z, omega_m)) * component for component in first]
        for component, correction in zip(moved, second, strict=False):  # empty in the Zel'dovich approximation
            component += np.float32(growth_2lpt(z, omega_m)) * correction
        counts.append(count(moved, box.grid))
    return np.stack(counts, axis=-1)


DRIFT = Prior({"sigma_8": (0.5, 1.2)} | dict.fromkeys(("drift_x", "drift_y", "drift_z"), (-24.0, 24.0)))
"""The drift, along the axes of the counts, is how far matter one deviation denser than the mean has gone at z = 0."""
SMOOTHING_MPC_H = 8.0
"""Standard deviation of the Gaussian that smooths the density by which tracers are chosen and drift."""
THRESHOLD = 0.5
"""Tracers are where the smooth initial density is so many standard deviations above the mean, 31 % of all matter."""


def simulate_drift(labels: np.ndarray, prior: Prior, box: Box, rng: np.random.Generator) -> np.ndarray:
    """Return the counts of tracers, int16 (grid, grid, grid, 4): the last axis is REDSHIFTS.

    labels: (4,) in [-1, 1), read through `prior`; `rng` draws the phases of the initial conditions.
    """
    parameters = prior.parameters(labels)
    omega_m, length_mpc_h, n = parameters["omega_m"], box.length(parameters["h_0"]), box.particles
    modes = Modes(n)
    amplitudes = modes.amplitudes(length_mpc_h, parameters)
    width = 2 * np.pi / length_mpc_h * SMOOTHING_MPC_H
    smoothing = np.exp(-modes.k2 * np.float32(width**2 / 2))
    voxels = np.float32(box.grid / (2 * np.pi))
    voxels_per_mpc_h = box.grid / length_mpc_h
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
    return np.stack(counts, axis=-1)


PRIORS: Final = {"original": ORIGINAL, "wide": WIDE, "drift": DRIFT}


@dataclass(frozen=True)
class Recipe:
    """The universes of a dataset. grid: voxels per side of a sample; a universe is cut into subvolumes³ samples."""

    prior: str
    grid: int
    subvolumes: int
    particles: int
    length_mpc_h: float | None
    train: int
    validation: int

    def __post_init__(self) -> None:
        _ = self.box  # which raises UsageError

    @property
    def box(self) -> Box:
        """The box of a universe."""
        return Box(self.grid * self.subvolumes, self.particles, self.length_mpc_h)

    def simulate_universe(self, seed: int, split: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts, int16 (N, N, N, 4), and labels, float32 (4,), of universe i of a split."""
        rng = np.random.default_rng([seed, split, i])
        labels = draw_labels(rng, 1)[0]
        generate = simulate_drift if self.prior == "drift" else simulate
        return generate(labels, PRIORS[self.prior], self.box, rng), labels


# The mini problem is fixed: any change gives other data and invalidates all reference runs.
PRESETS: Final = {
    "mini2": Recipe("drift", 32, 1, particles=48, length_mpc_h=256.0, train=2_048, validation=256),
    "full-size": Recipe("original", 128, 1, particles=128, length_mpc_h=None, train=8, validation=4),
}
