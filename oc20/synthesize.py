"""The command that generates surfaces with adsorbates, in the published formats: data for a laptop, and for tests."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from common.command import count, positive
from common.commands.synthesize import Synthesis
from common.data.build import DatasetPlan, Item
from common.errors import UsageError
from common.reference import FULL, MINI, SPLITS
from oc20.data import extxyz
from oc20.data.conversion import FORMATS, GRAPH, Published, add_metadata_items, make_shard, names_of
from oc20.reference import MINIS, TARGET

RAW: Final = "raw"
PER_PAIR: Final = 16  # trajectories
BYTES_PER_ATOM: Final = 4_000  # in the largest of the formats
DRAWN: Final = 4  # trajectories
FIRST_SYSTEM: Final = 1_000_000
"""Systems are numbered from this times the index of their split, so that numbers are unique."""


@dataclass(frozen=True)
class Recipe:
    """The systems of a dataset: atoms along the slab's sides and layers, trajectories per split, frames of each."""

    size: tuple[int, int, int]
    train: int
    validation: int
    frames: int

    def __post_init__(self) -> None:
        if min(self.size) < 2:
            raise UsageError(f"--slab is {' x '.join(map(str, self.size))}; expected at least 2 x 2 atoms and 2 layers")

    @property
    def trajectories(self) -> dict[str, int]:
        """Trajectories by split."""
        return {split: getattr(self, split) for split in SPLITS}

    def simulate_trajectory(self, seed: int, split: int, trajectory: int) -> Iterator[extxyz.ExtxyzFrame]:
        """Yield the frames of a trajectory; those with an even number relax."""
        from oc20 import simulation  # needs ase

        rng = np.random.default_rng([seed, split, trajectory])
        run = simulation.simulate(self.size, self.frames, trajectory % 2 == 0, rng)
        for atoms, step in zip(run.frames, run.steps, strict=True):
            yield extxyz.ExtxyzFrame(atoms, split * FIRST_SYSTEM + trajectory, step, run.reference)


# The mini problem is fixed: any change gives other data and invalidates all reference runs.
PRESETS: Final = {
    "mini": Recipe((2, 2, 3), train=480, validation=64, frames=5),
    "full-size": Recipe((4, 5, 4), train=16, validation=4, frames=4),
}


def generate_pair(recipe: Recipe, seed: int, format: str, item: Item, folder: Path) -> None:
    """Generate a pair of files, or its conversion; the item's source: index of its split, its number, its end."""
    split, number, stop = item.source
    records = (record for i in range(number * PER_PAIR, stop) for record in recipe.simulate_trajectory(seed, split, i))
    if format == RAW:
        extxyz.write_pair(folder / SPLITS[split], number, records)
    else:
        with TemporaryDirectory() as scratch:
            pair = extxyz.write_pair(Path(scratch), number, records)
            make_shard(Published(**vars(pair)).read_frames(), FORMATS[format], folder, item.files)


def draw_samples(recipe: Recipe, seed: int, figure: Any) -> None:
    """Draw the first systems in a figure of matplotlib; BuildError if ase cannot be imported."""
    with extxyz.importing_ase():
        from oc20 import simulation

    simulation.draw_frames([next(recipe.simulate_trajectory(seed, 0, i)) for i in range(DRAWN)], figure)
    size = " x ".join(map(str, recipe.size))
    figure.suptitle(f"Slabs of {size} atoms with adsorbates, seed {seed}; hatched atoms are fixed")


def plan_synthesis(recipe: Recipe, seed: int, format: str) -> DatasetPlan:
    """Return the plan of a synthetic dataset, one item per pair of files; BuildError if ase cannot be imported."""
    with extxyz.importing_ase():
        from oc20 import simulation

    items = []
    for code, (split, trajectories) in enumerate(recipe.trajectories.items()):
        for number in range(-(-trajectories // PER_PAIR)):
            if format == RAW:
                files = tuple(f"{split}/{name}" for name in extxyz.names_of(number))
            else:
                files = names_of(split, number, FORMATS[format])
            stop = min((number + 1) * PER_PAIR, trajectories)
            items.append(Item(f"{split}/{number}", files, (code, number, stop)))
    plan = DatasetPlan(
        "oc20",
        SYNTHESIS.variant_of(recipe),
        facts={
            **SYNTHESIS.describe_generator(),
            "ase": version("ase"),
            "seed": seed,
            "slab": list(recipe.size),
            "trajectories": recipe.trajectories,
            "frames_per_trajectory": recipe.frames,
            "largest_force": simulation.LARGEST_FORCE,
            "larger_forces": "in no split: a trajectory records its next frame below",
            "format": format,
            **({} if format == RAW else GRAPH),
        },
        items=tuple(items),
        make=partial(generate_pair, recipe, seed, format),
        bytes_per_item=PER_PAIR * recipe.frames * (int(np.prod(recipe.size)) + 2) * BYTES_PER_ATOM,
        noun="pairs of files",
    )
    return plan if format == RAW else add_metadata_items(plan)


class Synthesize(Synthesis):
    """The command of OC20."""

    module = "oc20.synthesize"
    description = """\
Generate slabs of Al, Ni, Cu, Pd, Ag, Pt, Au and mixtures of two with H, C, N, O or small molecules on them. One half of
the trajectories relax, the others move at 300 to 900 K; energies and forces are those of ase's effective medium theory.
Without options, generate the mini dataset: 2,400 + 320 frames of 13 or 14 atoms.

Each pair of files is written as published (N.extxyz.xz, N.txt.xz) and converted; with --format raw the pairs are
kept, and `python -m oc20.prepare convert` gives the same result.

The same arguments give the same data, for any number of workers. You can stop at any time: the same command resumes.
A folder with other data is refused.
"""
    examples = """\
examples:
  python -m oc20.synthesize data/oc20-mini            the mini problem, half a minute on two cores
  python -m oc20.synthesize data/oc20-mini --verify   again: reuse everything, compare checksums
  python -m oc20.synthesize data/seed7 --seed 7       the mini problem with other systems
  python -m oc20.synthesize data/raw --format raw     as extxyz and text, to be converted
  python -m oc20.synthesize data/full --preset full-size
                                                      slabs of 80 atoms, as large as the published ones
  python -m oc20.synthesize --plot                    no data, only the first systems in surfaces.png
"""
    presets = PRESETS
    sources = ("oc20.simulation",)
    known_digests = tuple(digest for mini in MINIS for digest in mini.data_sha256)
    target = TARGET
    picture = "surfaces.png"
    draw = staticmethod(draw_samples)
    few = {  # noqa: RUF012  (constant)
        FULL: "--preset full-size --train 1 --validation 1 --frames 8",
        MINI: "--train 4 --validation 1 --frames 8",
    }

    def add_options(self, content: Any, files: Any) -> None:
        """Add the options of surfaces."""
        content.add_argument(
            "--slab", dest="size", type=positive, nargs=3, metavar="N", help="atoms along its two sides, and layers"
        )
        content.add_argument("--frames", type=positive, metavar="N", help="frames of each trajectory")
        for split in SPLITS:
            content.add_argument(f"--{split}", type=count, metavar="N", help=f"trajectories in {split}")
        files.add_argument(
            "--format", choices=(RAW, *FORMATS), default="lmdb", help="format of the data (default lmdb)"
        )

    def plan_dataset(self, recipe: Recipe, args: argparse.Namespace) -> DatasetPlan:
        """Return the plan of trajectories."""
        return plan_synthesis(recipe, args.seed, args.format)

    def required_facts(self, data: Any) -> dict[str, Any]:
        """Return the format that a configuration reads."""
        return {"format": data.format}

    def next_step(self, plan: DatasetPlan, folder: Path) -> str:
        """Return the next command: convert raw trajectories, or train."""
        if plan.facts["format"] == RAW:
            return f"python -m oc20.prepare convert {folder} OUTPUT_DIR --format lmdb"
        return super().next_step(plan, folder)

    def data_keys(self, plan: DatasetPlan) -> str:
        """Return the format."""
        return f" data.format={FORMATS[plan.facts['format']].read_as}"


SYNTHESIS: Final = Synthesize()
main = SYNTHESIS.main


if __name__ == "__main__":
    sys.exit(main())
