"""`python -m newbenchmark.baselines`: what classical methods reach on the mini problem."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from common.commands import baselines
from common.commands.baselines import Baseline, Baselines, Say
from common.datasets.manifest import NAME, read_manifest

from newbenchmark.data.dataset import Dataset
from newbenchmark.reference import MINIS
from newbenchmark.settings import DataConfig
from newbenchmark.synthesize import SYNTHESIS

PENALTY: Final = 1e-3


def fit_baselines(folder: Path, say: Say) -> Iterator[Baseline]:
    """Yield the baselines of the data in a folder, fitted to the training split alone."""
    (x, y), (judged_x, judged_y) = (read_spectra(folder, split) for split in ("train", "validation"))
    mean = y.mean(0)
    yield Baseline("constant", float(np.abs(judged_y - mean).mean()), "the mean of the labels")
    weights = np.linalg.solve(x.T @ x + PENALTY * np.eye(x.shape[1]), x.T @ (y - mean))
    error = float(np.abs(judged_x @ weights + mean - judged_y).mean())
    yield Baseline("ridge", error, "linear model of the logarithm of the spectrum", {"penalty": PENALTY})


def read_spectra(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithm of the power of each frequency (samples, frequencies), and the labels (samples, 1)."""
    samples = Dataset(folder / split, DataConfig(folder, side=read_manifest(folder / NAME).facts["side"]))
    fields, labels = zip(*(samples.read(i) for i in range(len(samples))), strict=True)
    power = np.abs(np.fft.rfft2(np.stack(fields))).reshape(len(samples), -1)
    return np.log(power + 1e-6), np.stack(labels).astype(np.float64)


BASELINES: Final = Baselines("newbenchmark", MINIS, fit_baselines, SYNTHESIS.provide_data)
main = partial(baselines.main, BASELINES)

if __name__ == "__main__":
    sys.exit(main())
