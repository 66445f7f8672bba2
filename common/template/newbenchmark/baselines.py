"""`python -m newbenchmark.baselines`: what classical methods reach on the mini problem."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from common.data.manifest import NAME, read_manifest

from newbenchmark.data.dataset import Dataset
from newbenchmark.reference import MINIS
from newbenchmark.settings import DataConfig
from newbenchmark.synthesize import SYNTHESIS


def fit_baselines(folder: Path) -> Iterator[tuple[str, float]]:
    """Yield name and quality of the baselines of the data in a folder, fitted to the training split alone."""
    (x, y), (judged_x, judged_y) = (read_spectra(folder, split) for split in ("train", "validation"))
    mean = y.mean(0)
    yield "the mean of the labels", float(np.abs(judged_y - mean).mean())
    weights = np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ (y - mean))
    yield "linear model of log spectra", float(np.abs(judged_x @ weights + mean - judged_y).mean())


def read_spectra(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithm of the power of each frequency (samples, frequencies), and the labels (samples, 1)."""
    samples = Dataset(folder / split, DataConfig(folder, side=read_manifest(folder / NAME).facts["side"]))
    fields, labels = zip(*(samples.read(i) for i in range(len(samples))), strict=True)
    power = np.abs(np.fft.rfft2(np.stack(fields))).reshape(len(samples), -1)
    return np.log(power + 1e-6), np.stack(labels).astype(np.float64)


def main(argv: Sequence[str] | None = None) -> None:
    """Fit the baselines and print them beside the target."""
    parser = argparse.ArgumentParser("python -m newbenchmark.baselines")
    parser.add_argument("data_dir", nargs="?", type=Path, default=Path("data/newbenchmark-mini"))
    folder = parser.parse_args(argv).data_dir
    SYNTHESIS.provide_data(folder, MINIS[0].variant)
    for name, quality in fit_baselines(folder):
        print(f"{quality:.4f}  {name}; target {MINIS[0].target.range_text}")


if __name__ == "__main__":
    main()
