"""The command line that makes plates from physics: data for a laptop, and for tests."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from common.command import count, positive
from common.commands.synthesize import Synthesis
from common.data.build import DatasetPlan, Item

from newbenchmark.data import files
from newbenchmark.reference import TARGET
from newbenchmark.simulation.plot import draw_samples
from newbenchmark.simulation.recipe import PRESETS, Recipe

DESCRIPTION: Final = """\
Makes pictures of plates on which heat has spread for a second; the label is the diffusivity of the plate.
Without options it makes the data of the mini problem: 1,024 + 128 plates of 32 x 32 cells.

The same arguments give the same data, whatever the number of workers. Stop it at any time: the same command goes on
where it stopped. A folder with other data is refused.
"""
EXAMPLES: Final = """\
examples:
  python -m newbenchmark.synthesize data/newbenchmark-mini            the mini problem, a second
  python -m newbenchmark.synthesize data/newbenchmark-mini --verify   compare the checksums
  python -m newbenchmark.synthesize data/seed7 --seed 7               the mini problem with other plates
  python -m newbenchmark.synthesize data/newbenchmark --preset full-size
                                                                      the full problem
  python -m newbenchmark.synthesize --plot                            no data: the first plates in plates.png
"""
SPLITS: Final = ("train", "validation")


@dataclass(frozen=True)
class Generator:
    """Makes one plate; the source of an item is the number of its split, its own, and the stem of its files."""

    recipe: Recipe
    seed: int

    def __call__(self, item: Item, folder: Path) -> None:
        split, i, stem = item.source
        files.write_sample(folder / stem, *self.recipe.simulate_sample(self.seed, split, i))


class Synthesize(Synthesis):
    """The command of New Benchmark."""

    module = "newbenchmark.synthesize"
    description = DESCRIPTION
    examples = EXAMPLES
    presets = PRESETS
    sources = (
        "newbenchmark.simulation.diffusion",
        "newbenchmark.simulation.recipe",
        "newbenchmark.data.files",
    )
    target = TARGET
    picture = "plates.png"
    draw = staticmethod(draw_samples)

    def add_options(self, content: Any, files: Any) -> None:
        """Add the options of plates."""
        content.add_argument("--side", type=positive, metavar="N", help="cells per side of a plate")
        content.add_argument("--train", type=count, metavar="N", help="plates for training")
        content.add_argument("--validation", type=count, metavar="N", help="plates for validation")

    def plan_dataset(self, recipe: Recipe, args: argparse.Namespace) -> DatasetPlan:
        """Return what is to be made: an item per plate."""
        items = []
        for code, (split, plates) in enumerate(zip(SPLITS, (recipe.train, recipe.validation), strict=True)):
            for i in range(plates):
                stem = f"{split}/{i:06}"
                items.append(Item(stem, (stem + files.FIELD, stem + files.LABEL), (code, i, stem)))
        variant = SYNTHESIS.variant_of(recipe)
        facts = {
            **self.describe_generator(),
            "seed": args.seed,
            **asdict(recipe),
        }
        make, size = Generator(recipe, args.seed), 4 * recipe.side**2
        return DatasetPlan("newbenchmark", variant, facts, tuple(items), make, size, "plates")


SYNTHESIS: Final = Synthesize()
main = SYNTHESIS.main


if __name__ == "__main__":
    sys.exit(main())
