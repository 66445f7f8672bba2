"""The physics of the synthetic universes against integrals and identities that need no simulation."""

import numpy as np
import pytest

from cosmoflow import simulation
from cosmoflow.simulation import (
    DRIFT,
    ORIGINAL,
    REDSHIFTS,
    WIDE,
    Box,
    Modes,
    Prior,
    draw_labels,
    growth,
    linear_power,
    simulate,
)
from tests.bench_script import bench_script

baselines = bench_script("baselines.cosmoflow")
FIDUCIAL = (0.3, 0.8, 0.96, 0.7)


def power_of_counts(counts, length_mpc_h, shells):
    """Mean |δ_k|² V / N² of a grid of counts in shells of |m|² (units of the fundamental), without the NGP window."""
    n = len(counts)
    m = np.fft.fftfreq(n, 1 / n)
    window = np.sinc(m / n)
    contrast = counts / counts.mean() - 1
    modes = np.fft.fftn(contrast) / (window[:, None, None] * window[None, :, None] * window[None, None, :])
    m2 = m[:, None, None] ** 2 + m[None, :, None] ** 2 + m[None, None, :] ** 2
    power = abs(modes) ** 2 * length_mpc_h**3 / n**6
    return np.array([power[m2 == shell].mean() for shell in shells])


@pytest.fixture(scope="module")
def large_scales():
    """Shell powers (boxes, redshifts, shells) of the fiducial universe, and k of the shells in h/Mpc.

    The lattice is fine, 3.5 Mpc/h, because counts answer to displacements only where these reach the lattice constant.
    """
    box, shells = Box(grid=16, particles=64, length_mpc_h=225.0), np.arange(1, 5)
    ends = ((0.2, 0.4), (0.7, 0.9), (0.86, 1.06), (60.0, 80.0))  # label 0 is FIDUCIAL
    prior = Prior(dict(zip(WIDE.ranges, ends, strict=True)))
    powers = []
    for seed in range(40):
        counts = simulate(np.zeros(4), prior, box, np.random.default_rng(seed))
        powers.append([power_of_counts(counts[..., z], box.length_mpc_h, shells) for z in range(4)])
    return np.array(powers), 2 * np.pi / box.length_mpc_h * np.sqrt(shells)


def test_every_particle_is_counted_once_at_every_redshift():
    for box in (Box(16, 16), Box(16, 24, 128.0), Box(24, 16, 128.0, lpt=1)):
        counts = simulate(np.array([0.9, 0.9, -0.9, 0.5]), WIDE, box, np.random.default_rng(0))
        assert counts.dtype == np.int16
        assert counts.shape == (box.grid,) * 3 + (4,)
        assert counts.min() >= 0
        assert counts.sum((0, 1, 2), dtype=int).tolist() == [box.particles**3] * 4


def test_counts_follow_from_the_generator_alone():
    box, labels = Box(16, 24, 128.0), np.zeros(4)
    first, again, other = (simulate(labels, WIDE, box, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_labels_are_uniform_in_a_half_open_range_and_exact():
    labels = draw_labels(np.random.default_rng(0), 20_000)
    assert labels.dtype == np.float32
    assert labels.min() >= -1
    assert labels.max() < 1
    assert abs(labels.mean(0)).max() < 4 / np.sqrt(3 * 20_000)  # four standard errors
    assert (labels * 2**23 == np.round(labels * 2**23)).all()


def test_labels_span_the_prior():
    ends = np.transpose(ORIGINAL.physical(np.array([[-1.0] * 4, [0.0] * 4, [1.0] * 4])))
    assert ends == pytest.approx(np.outer([0.9, 1.0, 1.1], [0.3, 0.8, 0.96, 70.0]))


def test_the_spectrum_has_the_sigma_8_that_was_asked_for():
    k = np.geomspace(1e-5, 100, 20_000)
    x = 8 * k
    window = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    for labels in np.array([[0, 0, 0, 0], [-1, 1, 1, -1], [1, -1, -1, 1], [-1, -1, 1, 1], [1, 1, 1, 1]]):
        omega_m, sigma_8, n_s, h_0 = WIDE.physical(labels)
        power = linear_power(k, omega_m, sigma_8, n_s, h_0 / 100)
        variance = np.trapezoid(k**2 * power * window**2, k) / (2 * np.pi**2)
        assert np.sqrt(variance) == pytest.approx(sigma_8, rel=2e-3)


def test_the_spectrum_peaks_at_equality_and_starts_as_the_primordial_one():
    k = np.geomspace(1e-5, 10, 2_000)
    power = linear_power(k, *FIDUCIAL)
    assert 0.01 < k[power.argmax()] < 0.025  # about 0.016 h/Mpc for these parameters
    slope = np.gradient(np.log(power), np.log(k))
    assert slope[0] == pytest.approx(0.96, abs=0.01)
    assert -3 < slope[-1] < -2.4  # n_s - 4 but for the logarithm


def test_growth_has_its_known_limits():
    assert growth(0, 0.3) == 1
    assert [growth(z, 1.0) for z in (1, 3)] == pytest.approx([1 / 2, 1 / 4], rel=1e-4)  # Einstein-de Sitter
    assert growth(1, 0.3) == pytest.approx(0.6118, rel=2e-3)
    assert growth(3, 0.1) > growth(3, 0.3) > growth(3, 0.5)  # structure of an emptier universe is older


def test_large_scales_have_the_linear_power(large_scales):
    powers, k = large_scales
    mean = powers.mean(0)
    modes_per_shell = np.array([6, 12, 8, 6])
    for z, measured in zip(REDSHIFTS, mean, strict=True):
        expected = growth(z, 0.3) ** 2 * linear_power(k, *FIDUCIAL)
        ratio = np.average(measured / expected, weights=modes_per_shell)
        # 40 boxes of 16 independent modes leave 4 % of chance, non-linear growth and the lattice 3 % each.
        assert ratio == pytest.approx(1, abs=0.12)


def test_large_scales_grow_as_the_growth_factor(large_scales):
    powers, _ = large_scales
    # The phases are the same at all redshifts, so that cosmic variance drops out; what is left is non-linear.
    for z, ratio in zip(REDSHIFTS, powers.sum((0, 2)) / powers[:, 0].sum(), strict=True):
        assert ratio == pytest.approx(growth(z, 0.3) ** 2, rel=0.05)


def test_a_displacement_undoes_its_density():
    modes = Modes(16)
    density = np.fft.rfftn(np.random.default_rng(0).standard_normal((16,) * 3, np.float32)) * (modes.k2 > 0)
    psi = modes.displacement(density)
    divergence = sum(1j * k * np.fft.rfftn(component) for k, component in zip(modes.k, psi, strict=True))
    assert abs(divergence + density).max() < 1e-4 * abs(density).max()


def test_a_plane_wave_has_no_second_order():
    modes, x = Modes(16), np.arange(16) / 16
    for direction in ((1, 0, 0), (0, 2, 0), (1, -1, 2)):
        phase = sum(m * x.reshape(np.roll([-1, 1, 1], axis)) for axis, m in enumerate(direction))
        wave = np.fft.rfftn(np.cos(2 * np.pi * phase + 0.3).astype(np.float32))
        assert abs(modes.tidal_source(wave)).max() < 1e-5 * abs(wave).max()


def test_two_crossed_waves_have_the_product_as_second_order():
    modes, x = Modes(16), 2 * np.pi * np.arange(16) / 16
    a, b = np.cos(2 * x)[:, None, None], np.cos(3 * x)[None, :, None]
    density = np.broadcast_to(a + b, (16,) * 3)
    source = np.fft.irfftn(modes.tidal_source(np.fft.rfftn(density)), s=(16,) * 3, axes=(0, 1, 2))
    assert source == pytest.approx(np.broadcast_to(a * b, (16,) * 3), abs=1e-5)  # φ_xx φ_yy, and φ_xy = 0


def test_structure_forms_with_time_and_faster_to_second_order():
    rng_seed, labels = 3, np.zeros(4)
    variance = {
        lpt: simulate(labels, WIDE, Box(32, 32, 256.0, lpt), np.random.default_rng(rng_seed)).var((0, 1, 2))
        for lpt in (1, 2)
    }
    assert (np.diff(variance[2]) < 0).all()
    assert (variance[2] > variance[1]).all()


class Noise:
    """A generator whose only noise is given."""

    def __init__(self, noise):
        self.noise = noise

    def standard_normal(self, shape, dtype):
        return self.noise.astype(dtype).reshape(shape)


def test_in_a_mirror_the_drift_has_the_other_sign_and_isotropic_statistics_are_the_same():
    box, labels = Box(16, 24, 128.0), np.array([0.2, 0.9, -0.6, 0.3])
    noise = np.random.default_rng(5).standard_normal((24, 24, 24))
    counts = simulation.simulate_drift(labels, DRIFT, box, Noise(noise))
    mirrored = simulation.simulate_drift(labels * [1, 1, -1, 1], DRIFT, box, Noise(noise[:, ::-1]))
    assert (mirrored == counts[:, ::-1]).mean() > 0.999  # but for particles between two voxels
    same = simulation.simulate_drift(labels, DRIFT, box, Noise(noise[:, ::-1]))
    assert (same == counts[:, ::-1]).mean() < 0.9

    statistics = baselines.Statistics(16)
    assert statistics(counts[:, ::-1]) == pytest.approx(statistics(counts), rel=1e-9)
    thirds = [baselines.measure_differences(part).reshape(3, -1, 2, 4)[:, :, 0] for part in (counts, counts[:, ::-1])]
    for axis, sign in enumerate((1, -1, 1)):
        assert thirds[1][axis] == pytest.approx(sign * thirds[0][axis], rel=1e-4, abs=1e-5)


def test_without_a_drift_a_universe_has_no_preferred_direction():
    box = Box(16, 24, 128.0)

    def drift_universes(speed):
        labels = np.array([0, speed, 0, 0])
        return [simulation.simulate_drift(labels, DRIFT, box, np.random.default_rng(seed)) for seed in range(6)]

    drifting, still = drift_universes(1.0), drift_universes(0.0)
    skew = [
        np.mean([baselines.measure_differences(counts)[:4] for counts in universes], axis=0)
        for universes in (drifting, still)
    ]
    assert abs(skew[0]).max() > 5 * abs(skew[1]).max()
