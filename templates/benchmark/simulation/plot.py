"""A picture of the first plates, with their diffusivities."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from common.datasets.build import BuildError
from newbenchmark.simulation.diffusion import CELL_MM, physical
from newbenchmark.simulation.recipe import Recipe

PLATES: Final = 4


def plot_samples(recipe: Recipe, seed: int, path: Path) -> None:
    """Draw the first training plates into a file.

    Raises BuildError without matplotlib, or for a file that cannot be written.
    """
    try:
        from matplotlib.figure import Figure  # an optional package
    except ImportError as error:
        raise BuildError("pictures need matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(3 * PLATES, 3.3), layout="constrained")
    extent = (0, recipe.side * CELL_MM, 0, recipe.side * CELL_MM)
    for i, axes in enumerate(figure.subplots(1, PLATES)):
        picture, label = recipe.simulate_plate(seed, 0, i)
        axes.imshow(picture, origin="lower", extent=extent, cmap="inferno", vmin=-3, vmax=3)
        axes.set_title(f"D = {float(physical(label)[0]):.2g} mm²/s")
        axes.set_xlabel("x in mm")
    try:
        figure.savefig(path, dpi=120)
    except ValueError as error:  # such as an unknown format
        raise BuildError(f"{path}: the picture cannot be written: {error}") from error
