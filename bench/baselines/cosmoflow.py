"""CosmoFlow: what statistics of a universe tell of its parameters, without the network.

Each universe is reduced to numbers that cosmologists and students of turbulence have used before deep learning, and a
linear model is fitted to them: isotropic statistics, which do not tell one direction from another, and structure
functions along the axes, which do (Kolmogorov 1941, Dokl. Akad. Nauk SSSR 32, 16).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from baselines import Baseline
from common.data.manifest import NAME, read_manifest
from cosmoflow.data.dataset import Dataset
from cosmoflow.settings import DataConfig

SHELLS: Final = 16
"""Of wavenumbers, each one fundamental wavenumber wide."""
LARGEST_COUNT: Final = 30
PENALTIES: Final = np.geomspace(1e-3, 1e4, 15)
STEPS: Final = (1, 2, 4)
"""Distances in voxels over which structure functions take differences."""
METHODS: Final = {
    "power spectra": "the spectra of all pairs of redshifts",
    "isotropic statistics": "spectra, histograms, moments and counts in cells",
    "structure functions": "moments of differences along each axis",
    "all statistics": "isotropic statistics and structure functions",
}

Counts = np.ndarray
"""int16 (N, N, N, C), C redshifts."""


class Statistics:
    """The isotropic statistics of universes of `side`³ voxels."""

    def __init__(self, side: int) -> None:
        full, half = np.fft.fftfreq(side, 1 / side), np.fft.rfftfreq(side, 1 / side)
        wavenumber = np.sqrt(full[:, None, None] ** 2 + full[:, None] ** 2 + half**2)
        shell = np.rint(wavenumber).astype(int).ravel()
        self.order = np.argsort(shell, kind="stable")
        self.starts = np.searchsorted(shell[self.order], np.arange(1, min(SHELLS, side // 2) + 2))
        # Modes that also represent their conjugates count twice.
        twice = np.broadcast_to(np.where((half == 0) | (half == side / 2), 1.0, 2.0), wavenumber.shape).ravel()
        self.weight = twice[self.order]
        self.modes = self._sum_shells(self.weight)

    def __call__(self, counts: Counts) -> np.ndarray:
        """Return the statistics of a universe: spectra, histograms, moments and counts in cells."""
        dense = counts.astype(np.float64)
        logs = np.log1p(dense)
        parts = [self.measure_spectra(dense / dense.mean((0, 1, 2)) - 1), self.measure_spectra(logs)]
        for channel in range(counts.shape[3]):
            few = np.minimum(counts[..., channel], LARGEST_COUNT).ravel()
            parts += [np.log1p(np.bincount(few, minlength=LARGEST_COUNT + 1)), measure_moments(logs[..., channel])]
            parts += [measure_moments(in_cells(dense[..., channel], side))[1:] for side in (2, 4)]
        return np.concatenate(parts)

    def measure_spectra(self, fields: np.ndarray) -> np.ndarray:
        """Return the logarithms of the power spectra of fields (N, N, N, C), and the coherences of all pairs."""
        modes = np.fft.rfftn(fields, axes=(0, 1, 2)).reshape(-1, fields.shape[3])[self.order]
        power = [self._sum_shells(self.weight * np.abs(mode) ** 2) for mode in modes.T]
        parts = [np.log(spectrum / self.modes) for spectrum in power]
        for i in range(len(power)):
            for j in range(i + 1, len(power)):
                cross = self._sum_shells(self.weight * (modes[:, i] * modes[:, j].conj()).real)
                parts.append(cross / np.sqrt(power[i] * power[j]))
        return np.concatenate(parts)

    def _sum_shells(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values, in the order of the modes, over the shells."""
        return np.add.reduceat(values, self.starts)[:-1]


def measure_moments(values: np.ndarray) -> np.ndarray:
    """Return the mean, the logarithm of the deviation, the skewness and the kurtosis of values."""
    mean, deviation = values.mean(), values.std()
    scaled = (values - mean) / deviation
    squares = scaled * scaled  # a power costs ten times as much
    return np.array([mean, np.log(deviation), (squares * scaled).mean(), (squares * squares).mean()])


def in_cells(counts: np.ndarray, side: int) -> np.ndarray:
    """Return the counts of one channel (N, N, N) in cells of `side`³ voxels, over their mean."""
    n = len(counts) // side
    cells = counts.reshape(n, side, n, side, n, side).sum((1, 3, 5))
    return cells / cells.mean()


def measure_differences(counts: Counts) -> np.ndarray:
    """Return the structure functions of log counts: third and second moments of differences along each axis."""
    logs = np.log1p(counts.astype(np.float32))
    parts = []
    for axis in range(3):
        for step in STEPS:
            difference = (np.roll(logs, -step, axis) - logs).reshape(-1, logs.shape[3])
            squares = difference * difference
            parts += [(squares * difference).mean(0), squares.mean(0)]
    return np.concatenate(parts)


# -- data and fits -------------------------------------------------------------------------------------------


class Universes:
    """The universes of a split: the statistics of each method (n, F), and labels (n, 4)."""

    def __init__(self, folder: Path, split: str) -> None:
        facts = read_manifest(folder / NAME).facts
        shape = tuple(facts["sample_shape"])
        files = Dataset(folder / split, DataConfig(folder, sample_shape=shape, format=facts["format"]))
        statistics = Statistics(shape[0])
        isotropic, differences, labels = [], [], []
        for number in range(len(files)):
            sample = files.read(number)
            isotropic.append(statistics(sample.x))
            differences.append(measure_differences(sample.x))
            labels.append(sample.y)
        tables = np.array(isotropic), np.array(differences, np.float64)
        columns = (tables[0][:, : 2 * 10 * SHELLS], *tables, np.hstack(tables))
        self.statistics = dict(zip(METHODS, columns, strict=True))
        self.labels = np.array(labels, np.float64)


def fit_baselines(folder: Path) -> Iterator[Baseline]:
    """Yield the baselines of a dataset."""
    train, judged = Universes(folder, "train"), Universes(folder, "validation")
    names = list(read_manifest(folder / NAME).facts["prior"])

    def rate_guess(name: str, guess: np.ndarray, note: str, **details: float) -> Baseline:
        errors = np.abs(guess - judged.labels).mean(0)
        by_label = dict(zip(names, errors.tolist(), strict=True))
        return Baseline(name, float(errors.mean()), note, {"by_label": by_label, **details})

    yield rate_guess("constant", np.median(train.labels, 0)[None], "the median of each label")
    for name, note in METHODS.items():
        guess, penalty = fit_ridge(train.statistics[name], train.labels, judged.statistics[name])
        yield rate_guess(name, guess, f"linear model of {note}", penalty=penalty)


def fit_ridge(x: np.ndarray, y: np.ndarray, judged: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the predictions of a linear model for `judged`, and its penalty, chosen on held-out training samples."""
    mean, deviation = x.mean(0), x.std(0)
    x, judged = ((values - mean) / np.where(deviation > 0, deviation, 1) for values in (x, judged))
    cut = len(x) - len(x) // 6  # the last ones, in the order of universes, choose the penalty
    errors = [np.abs(solve_least_squares(x[:cut], y[:cut], penalty, x[cut:]) - y[cut:]).mean() for penalty in PENALTIES]
    penalty = float(PENALTIES[np.argmin(errors)])
    return solve_least_squares(x, y, penalty, judged), penalty


def solve_least_squares(x: np.ndarray, y: np.ndarray, penalty: float, judged: np.ndarray) -> np.ndarray:
    """Return the predictions for `judged` of the linear model with the least squares plus the penalty."""
    mean = y.mean(0)
    weights = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ (y - mean))
    return judged @ weights + mean
