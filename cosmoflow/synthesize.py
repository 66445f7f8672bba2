"""The command line that makes universes from physics, in the published formats: data for a laptop, and for tests."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.command import UsageError, count, positive, run_command
from common.processes import usable_cores
from common.production import MENDABLE, Crew, Item, Plan, produce, report
from common.reference import MINI
from cosmoflow import universe
from cosmoflow.raw import write_universe
from cosmoflow.samples import CHANNELS, FORMATS, SPLITS, SampleFormat
from cosmoflow.universe import ORIGINAL, WIDE, Box

DESCRIPTION: Final = """\
Makes universes from physics: the linear spectrum of matter, displaced particles (2LPT), four redshifts, and four
parameters drawn from a prior. The files have the published formats and names; job and seed in the names are invented.
Without options it makes the data of the mini problem: 2,048 + 256 universes of 32 x 32 x 32 x 4.

The same arguments give the same data, whatever the number of workers. Stop it at any time: the same command goes on
where it stopped. A folder with other data is refused.
"""
EXAMPLES: Final = """\
examples:
  python -m cosmoflow.synthesize data/cosmoflow-mini            the mini problem, half a minute on two cores
  python -m cosmoflow.synthesize data/cosmoflow-mini --verify   again: nothing to make, checksums compared
  python -m cosmoflow.synthesize data/seed7 --seed 7            the mini problem with other universes
  python -m cosmoflow.synthesize data/full --preset full-size   12 samples of 128^3, as large as the published ones
  python -m cosmoflow.synthesize data/raw --preset full-size --grid 64 --subvolumes 2 --format hdf5
                                                                raw universes, input of cosmoflow.prepare convert
  python -m cosmoflow.synthesize --plot                         no data: slices and spectra in universes.png
"""
PRIORS: Final = {"original": ORIGINAL, "wide": WIDE}
RAW: Final = "hdf5"


@dataclass(frozen=True)
class Recipe:
    """Which universes there are. grid: voxels per side of a sample; a universe is cut into subvolumes³ samples."""

    prior: str
    grid: int
    subvolumes: int
    particles: int
    length_mpc_h: float | None
    train: int
    validation: int

    def __post_init__(self) -> None:
        try:
            _ = self.box
        except ValueError as error:
            raise UsageError(str(error)) from error

    @property
    def box(self) -> Box:
        """The box of a universe."""
        return Box(self.grid * self.subvolumes, self.particles, self.length_mpc_h)

    def simulate(self, seed: int, split: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Universe i of a split: its counts, int16 (N, N, N, 4), and its labels, float32 (4,)."""
        rng = np.random.default_rng([seed, split, i])
        labels = universe.draw_labels(rng, 1)[0]
        return universe.simulate(labels, PRIORS[self.prior], self.box, rng), labels


# The mini problem is fixed: whoever changes it makes other data, and all reference runs are void.
PRESETS: Final = {
    "mini": Recipe("wide", 32, 1, particles=48, length_mpc_h=256.0, train=2_048, validation=256),
    "full-size": Recipe("original", 128, 1, particles=128, length_mpc_h=None, train=8, validation=4),
}


@dataclass(frozen=True)
class Generator:
    """Makes one universe; the source of an item is the number of its split, its own, and the stem of its files."""

    recipe: Recipe
    seed: int
    samples: SampleFormat | None  # None: raw universes

    def __call__(self, item: Item, folder: Path) -> None:
        split, i, stem = item.source
        counts, labels = self.recipe.simulate(self.seed, split, i)
        if self.samples is None:
            write_universe(folder / f"{stem}.{RAW}", counts, labels, PRIORS[self.recipe.prior])
        else:
            slabs = np.split(counts, self.recipe.subvolumes)
            self.samples.write_universe(folder / stem, slabs, labels)


def synthesis(recipe: Recipe, seed: int, samples: SampleFormat | None) -> Plan:
    """The plan of a synthetic dataset, one item per universe; without a format of samples it is raw universes."""
    items = []
    job = 20_000_000 + seed % 10_000_000
    for code, (split, universes) in enumerate(zip(SPLITS, (recipe.train, recipe.validation), strict=True)):
        for i in range(universes):
            name = f"univ_ics_2019-03_a{10_000_000 + 5_000_000 * code + i}"
            stem = f"{job}/{name}" if samples is None else f"{split}/{job}_{name}"
            files = (f"{stem}.{RAW}",) if samples is None else samples.names_of_universe(stem, recipe.subvolumes)
            items.append(Item(name, files, (code, i, stem)))
    is_mini = recipe == PRESETS["mini"] and samples is not None
    size = (samples or SampleFormat(gzip=False)).bytes_of(recipe.box.grid)
    generator = Generator(recipe, seed, samples)
    facts = facts_of(recipe, seed, samples)
    return Plan("cosmoflow", MINI if is_mini else "synthetic", facts, tuple(items), generator, size, "universes")


def facts_of(recipe: Recipe, seed: int, samples: SampleFormat | None) -> dict[str, Any]:
    """What a manifest says about synthetic data: everything that the content depends on."""
    cubes = recipe.subvolumes**3
    source = Path(universe.__file__).read_bytes()
    return {
        "generator": "cosmoflow.synthesize",
        "generator_sha256": hashlib.sha256(source).hexdigest(),
        "seed": seed,
        "prior": {name: list(ends) for name, ends in asdict(PRIORS[recipe.prior]).items()},
        "box": asdict(recipe.box),
        "subvolumes": recipe.subvolumes,
        "sample_shape": [recipe.grid] * 3 + [CHANNELS],
        "samples": {"train": recipe.train * cubes, "validation": recipe.validation * cubes},
        **(samples.facts if samples else {"format": RAW, "compression": "none"}),
    }


def recipe_of(args: argparse.Namespace) -> Recipe:
    """The preset with the changes that the arguments ask for."""
    changes = {
        name: getattr(args, name)
        for name in ("prior", "grid", "subvolumes", "particles", "train", "validation")
        if getattr(args, name) is not None
    }
    if args.length is not None:
        changes["length_mpc_h"] = args.length or None
    return replace(PRESETS[args.preset], **changes)


def run(args: argparse.Namespace) -> int:
    """The data are made and compared with their manifest, the picture is drawn; returns the exit code."""
    recipe = recipe_of(args)
    if args.output_dir is None and args.plot is None:
        raise UsageError("name an OUTPUT_DIR, or --plot for a picture alone")
    if args.format == RAW and args.compress == "gzip":
        raise UsageError("raw universes are not compressed: leave out --compress")
    if args.plot is not None:
        from cosmoflow.plot import draw  # matplotlib is optional

        draw(recipe, args.seed, args.plot)
        print(f"drew {args.plot}")
    if args.output_dir is None:
        return 0
    samples = None if args.format == RAW else SampleFormat.chosen(args.format, args.compress)
    plan = synthesis(recipe, args.seed, samples)
    folder: Path = args.output_dir
    code = report(produce(plan, folder, Crew(args.workers or usable_cores())), plan, folder, checksum=args.verify)
    if not code:
        print(f"next: {_next(plan, folder, samples)}")
    return code


def _next(plan: Plan, folder: Path, samples: SampleFormat | None) -> str:
    if samples is None:
        return f"python -m cosmoflow.prepare convert {folder} DATA_DIR --sample-size {plan.facts['sample_shape'][0]}"
    if plan.variant == MINI:
        return f"python -m cosmoflow.train cosmoflow/mini.yaml data.data_dir={folder}"
    shape = ", ".join(map(str, plan.facts["sample_shape"]))
    counts = "data.train_samples=null data.eval_samples=null"
    return (
        f"python -m cosmoflow.train cosmoflow/config.yaml data.data_dir={folder} {counts} 'data.sample_shape=[{shape}]'"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m cosmoflow.synthesize",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("output_dir", type=Path, nargs="?", metavar="OUTPUT_DIR", help="new, or begun before")
    parser.add_argument("--preset", choices=PRESETS, default="mini", help="what the options below change")
    parser.add_argument("--seed", type=count, default=0, help="of the dataset (default 0)")
    made = parser.add_argument_group("universes (defaults: those of the preset)")
    made.add_argument("--prior", choices=PRIORS, help="original: ±10 %% as published; wide: as the mini problem")
    made.add_argument("--grid", type=positive, metavar="N", help="voxels per side of a sample")
    made.add_argument(
        "--subvolumes", type=positive, metavar="K", help="cut universes of K·N voxels per side into K³ samples"
    )
    made.add_argument("--particles", type=positive, metavar="N", help="particles per side of a universe, even")
    made.add_argument("--length", type=float, metavar="MPC_H", help="side of a universe in Mpc/h; 0: voxels of H_0/70")
    made.add_argument("--train", type=count, metavar="N", help="universes for training")
    made.add_argument("--validation", type=count, metavar="N", help="universes for validation")
    files = parser.add_argument_group("files")
    files.add_argument("--format", choices=(*FORMATS, RAW), default="tfrecord", help="hdf5: raw universes, uncut")
    files.add_argument("--compress", choices=("gzip", "none"), help="default: gzip for tfrecord")
    files.add_argument("--verify", action="store_true", help="compare the checksums of all files at the end")
    files.add_argument("--plot", type=Path, nargs="?", const=Path("universes.png"), help="draw the first universes")
    parser.add_argument("--workers", type=positive, help="processes (default: the usable cores)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(argv)
    return run_command(lambda: run(args), MENDABLE)


if __name__ == "__main__":
    sys.exit(main())
