"""Plot weather: maps of some channels with the outlines of cyclones and rivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from deepcam.reference import CHANNELS, CLASSES
from deepcam.simulation.detection import CYCLONE, RIVER
from deepcam.simulation.planet import Planet
from deepcam.simulation.recipe import Recipe, name_of

SNAPSHOTS: Final = 3
OUTLINES: Final = {CYCLONE: "#ff2d55", RIVER: "#ffffff"}
MAPS: Final = (("TMQ", "YlGnBu_r"), ("WIND", "magma"), ("PSL", "viridis"), ("T500", "RdYlBu_r"), ("PRECT", "cividis"))
NUMBER: Final = {channel.name: number for number, channel in enumerate(CHANNELS)}


def draw_samples(recipe: Recipe, seed: int, figure: Any) -> None:
    """Draw the first training snapshots in a figure: snapshots in columns, channels in rows, labels as outlines."""
    from matplotlib.lines import Line2D

    planet = Planet(recipe.height, recipe.width, recipe.size)
    snapshots = [recipe.simulate_snapshot(seed, 0, i) for i in range(SNAPSHOTS)]
    figure.set_size_inches(4.6 * SNAPSHOTS + 1, 2.35 * len(MAPS) + 0.8)
    axes: Any = figure.subplots(len(MAPS), SNAPSHOTS, squeeze=False, sharex=True, sharey=True)
    for row, (name, colours) in enumerate(MAPS):
        layers, caption = zip(*(_select_layer(name, fields) for fields, _ in snapshots), strict=True)
        low, high = min(layer.min() for layer in layers), max(layer.max() for layer in layers)
        for column, (layer, (_, labels)) in enumerate(zip(layers, snapshots, strict=True)):
            image = _draw_map(axes[row, column], planet, layer, labels, {"cmap": colours, "vmin": low, "vmax": high})
            axes[-1, column].set_xlabel("longitude")
            axes[0, column].set_title(Path(name_of(0, column)).stem, fontsize=9)
        axes[row, 0].set_ylabel("latitude")
        figure.colorbar(image, ax=list(axes[row]), label=caption[0], pad=0.01)
    lines = [Line2D([], [], color=colour, label=CLASSES[label]) for label, colour in OUTLINES.items()]
    figure.legend(handles=lines, loc="outside upper right", ncols=2, facecolor="#555555", labelcolor="white")
    figure.suptitle(f"Synthetic weather, {recipe.height} x {recipe.width} cells, size {recipe.size:g}, seed {seed}")


def _select_layer(name: str, fields: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the values of a map, and its caption."""
    if name == "WIND":
        return np.hypot(fields[..., NUMBER["U850"]], fields[..., NUMBER["V850"]]), "wind at 850 hPa in m/s"
    values = fields[..., NUMBER[name]]
    if name == "PRECT":
        return np.log10(np.maximum(values * 8.64e7, 0.1)), "log10 of rain in mm/day"
    if name == "PSL":
        return values / 100, "PSL in hPa"
    return values, f"{name} in {CHANNELS[NUMBER[name]].unit}"


def _draw_map(axes: Any, planet: Planet, layer: np.ndarray, labels: np.ndarray, colours: dict[str, Any]) -> Any:
    """Draw a layer with coasts and outlines; return the image."""
    image = axes.imshow(layer, origin="lower", extent=(0, 360, -90, 90), aspect="auto", **colours)
    places = planet.lon[0] + 180 / planet.width, planet.lat[:, 0]  # of the cells in the picture
    axes.contour(*places, planet.land, levels=[0.5], colors="black", linewidths=0.6)
    for label, colour in OUTLINES.items():
        if (labels == label).any():
            axes.contour(*places, labels == label, levels=[0.5], colors=colour, linewidths=1.4)
    axes.set_yticks((-60, -30, 0, 30, 60))
    axes.set_xticks((0, 90, 180, 270, 360))
    return image
