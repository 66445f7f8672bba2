"""Heat that spreads on a plate: ∂T/∂t = D ΔT, periodic in both directions, solved exactly in Fourier space.

Lengths in mm, times in s, diffusivities D in mm²/s: glass has 0.3, steel 4, brass 34.
"""

from typing import Final

import numpy as np

CELL_MM: Final = 2.0
TIME_S: Final = 1.0
NOISE: Final = 0.01
"""Of the camera, relative to the contrast of the picture."""
LOG10_CENTRE: Final = 0.5
"""The label is log10(D) - 0.5; with D from 10^-0.5 to 10^1.5 it fills [-1, 1]."""


def physical(label: np.ndarray) -> np.ndarray:
    """Return the diffusivity in mm²/s that a label stands for."""
    diffusivity: np.ndarray = 10 ** (label.astype(float) + LOG10_CENTRE)
    return diffusivity


def diffuse(start_HW: np.ndarray, cell_mm: float, diffusivity: float, time_s: float) -> np.ndarray:
    """Return the temperatures of cells after a time; each Fourier mode k decays as exp(-D k² t)."""
    height, width = start_HW.shape
    k_y = 2 * np.pi * np.fft.fftfreq(height, cell_mm)
    k_x = 2 * np.pi * np.fft.rfftfreq(width, cell_mm)
    decay = np.exp(-diffusivity * time_s * (k_y[:, None] ** 2 + k_x**2))
    end_HW: np.ndarray = np.fft.irfft2(np.fft.rfft2(start_HW) * decay, s=start_HW.shape)
    return end_HW


def plate(rng: np.random.Generator, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a picture of a plate, float32 (side, side), of mean 0 and contrast 1, and its label, float32 (1,).

    The plate starts with an independent random temperature in each cell.
    """
    label = rng.uniform(-1, 1, size=1).astype(np.float32)
    end = diffuse(rng.standard_normal((side, side)), CELL_MM, float(physical(label)[0]), TIME_S)
    picture = (end - end.mean()) / end.std() + NOISE * rng.standard_normal((side, side))
    return picture.astype(np.float32), label
