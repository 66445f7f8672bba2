"""The command that generates weather from physics, in the published format, and plots it: for tests and laptops."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.command import count, positive
from common.commands.synthesize import Synthesis
from common.data.build import DatasetPlan, Item
from common.data.manifest import NAME as MANIFEST
from common.ranks.dist import make_single_dist
from deepcam.data import snapshot
from deepcam.data.values import NAME
from deepcam.reference import CHANNELS, CLASSES, MINIS, TARGET
from deepcam.simulation.detection import CYCLONE, RIVER
from deepcam.simulation.planet import Planet
from deepcam.simulation.snapshot_generator import PRESETS, Recipe, name_of
from deepcam.split import SPLITS
from deepcam.summarize import summarize_folder

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
        layers, captions = zip(*(_select_layer(name, fields) for fields, _ in snapshots), strict=True)
        scale = {"cmap": colours, "vmin": np.min(layers), "vmax": np.max(layers)}
        for column, (layer, (_, labels)) in enumerate(zip(layers, snapshots, strict=True)):
            image = _draw_map(axes[row, column], planet, layer, labels, scale)
            axes[-1, column].set_xlabel("longitude")
            axes[0, column].set_title(Path(name_of(0, column)).stem, fontsize=9)
        axes[row, 0].set_ylabel("latitude")
        figure.colorbar(image, ax=list(axes[row]), label=captions[0], pad=0.01)
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
    centres = planet.lon[0] + 180 / planet.width, planet.lat[:, 0]  # of the cells in the picture
    axes.contour(*centres, planet.land, levels=[0.5], colors="black", linewidths=0.6)
    for label, colour in OUTLINES.items():
        if (labels == label).any():
            axes.contour(*centres, labels == label, levels=[0.5], colors=colour, linewidths=1.4)
    axes.set_yticks((-60, -30, 0, 30, 60))
    axes.set_xticks((0, 90, 180, 270, 360))
    return image


def generate_snapshot(recipe: Recipe, seed: int, item: Item, folder: Path) -> None:
    """Generate a snapshot; the item's source is the index of its split and its own index."""
    fields, labels = recipe.simulate_snapshot(seed, *item.source)
    snapshot.write_snapshot(folder / item.files[0], fields, labels)


def plan_synthesis(recipe: Recipe, seed: int) -> DatasetPlan:
    """Return the plan of a synthetic dataset, one item per snapshot."""
    items = []
    for code, number in enumerate(recipe.samples.values()):
        for i in range(number):
            name = name_of(code, i)
            items.append(Item(name, (name,), (code, i)))
    return DatasetPlan(
        "deepcam",
        SYNTHESIS.variant_of(recipe),
        facts={
            **SYNTHESIS.describe_generator(),
            "seed": seed,
            "size": recipe.size,
            "sample_shape": [recipe.height, recipe.width, len(CHANNELS)],
            "samples": recipe.samples,
            "format": "hdf5",
        },
        items=tuple(items),
        make=partial(generate_snapshot, recipe, seed),
        bytes_per_item=recipe.height * recipe.width * 4 * (len(CHANNELS) + 1) + 4096,
        noun="snapshots",
    )


class Synthesize(Synthesis):
    """The command of DeepCAM."""

    module = "deepcam.synthesize"
    description = """\
Generate weather from physics on an invented planet: waves, storms and plumes of vapour with winds, pressure,
temperature and humidity in balance, 16 channels as published. A detector of tropical cyclones and atmospheric rivers
makes the labels from these channels. Without options, generate the mini dataset: 512 + 64 + 64 snapshots of
96 x 144 x 16, and stats.h5.

The same arguments give the same data, for any number of workers. You can stop at any time: the same command resumes.
A folder with other data is refused.
"""
    examples = """\
examples:
  python -m deepcam.synthesize data/deepcam-mini            the mini problem, half a minute on two cores
  python -m deepcam.synthesize data/deepcam-mini --verify   again: reuse everything, compare checksums
  python -m deepcam.synthesize data/seed7 --seed 7          the mini problem with other weather
  python -m deepcam.synthesize data/full --preset full-size
                                                            10 snapshots of 768 x 1152, as large as the published ones
  python -m deepcam.synthesize --plot                       no data, only maps of the first snapshots in weather.png
"""
    presets = PRESETS
    sources = (
        "deepcam.simulation.planet",
        "deepcam.simulation.detection",
        "deepcam.simulation.snapshot_generator",
    )
    known_digests = tuple(digest for mini in MINIS for digest in mini.data_sha256)
    target = TARGET
    picture = "weather.png"
    draw = staticmethod(draw_samples)
    needed = (MANIFEST, NAME)
    few = {kind: f"{options} --test 1" for kind, options in Synthesis.few.items()}  # noqa: RUF012  (constant)

    def add_options(self, content: Any, files: Any) -> None:
        """Add the options of planets."""
        content.add_argument("--height", type=positive, metavar="N", help="cells from pole to pole")
        content.add_argument("--width", type=positive, metavar="N", help="cells around the planet, even")
        content.add_argument(
            "--size",
            type=float,
            metavar="X",
            help="size of storms on the map: the planet is X times smaller than the Earth",
        )
        for split in SPLITS:
            content.add_argument(f"--{split}", type=count, metavar="N", help=f"snapshots in {split}")

    def plan_dataset(self, recipe: Recipe, args: argparse.Namespace) -> DatasetPlan:
        """Return the plan of snapshots."""
        return plan_synthesis(recipe, args.seed)

    def required_facts(self, data: Any) -> dict[str, Any]:
        """Return the format and the shape of samples that a configuration reads."""
        return {"format": data.format, "sample_shape": [data.height, data.width, len(CHANNELS)]}

    def data_keys(self, plan: DatasetPlan) -> str:
        """Return the sides of the samples, but for those of the mini problem."""
        height, width, _ = plan.facts["sample_shape"]
        return "" if plan.variant == self.mini else f" data.height={height} data.width={width}"

    def finish_dataset(self, recipe: Recipe, folder: Path) -> None:
        """Write the statistics of the training samples."""
        if recipe.train:
            summarize_folder(folder, make_single_dist())


SYNTHESIS: Final = Synthesize()
main = SYNTHESIS.main


if __name__ == "__main__":
    sys.exit(main())
