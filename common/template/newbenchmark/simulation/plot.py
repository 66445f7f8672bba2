"""A picture of the first plates, with their diffusivities."""

from __future__ import annotations

from typing import Any, Final

from newbenchmark.simulation.diffusion import CELL_MM, physical
from newbenchmark.simulation.recipe import Recipe

PLATES: Final = 4


def draw_samples(recipe: Recipe, seed: int, figure: Any) -> None:
    """Draw the first training plates in a figure of matplotlib."""
    figure.set_size_inches(3 * PLATES, 3.3)
    extent = (0, recipe.side * CELL_MM, 0, recipe.side * CELL_MM)
    for i, axes in enumerate(figure.subplots(1, PLATES)):
        picture, label = recipe.simulate_sample(seed, 0, i)
        axes.imshow(picture, origin="lower", extent=extent, cmap="inferno", vmin=-3, vmax=3)
        axes.set_title(f"D = {float(physical(label)[0]):.2g} mm²/s")
        axes.set_xlabel("x in mm")
