"""The command line that makes the benchmark's data from raw universes, and checks data against their manifest."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tqdm import tqdm

from common.command import UsageError, count, positive, run_command
from common.launch import find_place
from common.ledger import PARTS, Ledger
from common.manifest import NAME, Manifest, describe_file, read_manifest, verify_files, write_manifest
from common.processes import usable_cores
from common.production import MENDABLE, Crew, Item, Plan, ProductionError, produce, report
from common.reference import FULL
from cosmoflow.raw import UniverseError, open_universe
from cosmoflow.samples import CHANNELS, FORMATS, SPLITS, SampleFormat
from cosmoflow.splits import Split, SplitFile

DESCRIPTION: Final = """\
Makes the CosmoFlow data from raw universes, and checks data that are there.
"""
EXAMPLES: Final = """\
examples:
  python -m cosmoflow.prepare convert cosmoUniverse_2019_05_4parE data --train 8192 --validation 1024
  srun -N 8 --ntasks-per-node 4 python -m cosmoflow.prepare convert cosmoUniverse_2019_05_4parE data
  python -m cosmoflow.prepare manifest cosmoUniverse_2019_05_4parE_tf_v2   once, after a download
  python -m cosmoflow.prepare verify data                                  are all files there and unchanged?

Each has its own help, as in: python -m cosmoflow.prepare convert --help
"""
CONVERT_HELP: Final = """\
Cuts every universe (*.hdf5 below INPUT_DIR: `full`, int16 N x N x N x 4, and `unitPar`, four labels) into cubes, one
sample per file:

  OUTPUT_DIR/train/<folder>_<universe>_000.tfrecord ...  OUTPUT_DIR/validation/...  OUTPUT_DIR/manifest.json

<folder> is the name of the folder in which the universe lies. All cubes of a universe are in the same split, which
follows from a seeded hash of its name. Stop it at any time: the same command goes on where it stopped, also with
other numbers of workers and tasks. Damaged universes are left out and listed at the end; mend or remove them and give
the command again. The manifest, with sizes and checksums, is written when nothing is left to do.

Under srun, mpirun or torchrun each rank takes its share; in a job array use --task and --n-tasks. The task that
finishes last writes the manifest; `prepare manifest OUTPUT_DIR` does the same by hand.
"""
MANIFEST_HELP: Final = """\
Reads all files of DATA_DIR/train and DATA_DIR/validation, and writes sizes and checksums to DATA_DIR/manifest.json.
Where `convert` was at work with several tasks, it merges their records instead, and reads nothing.
"""
VERIFY_HELP: Final = """\
Compares all files with DATA_DIR/manifest.json, lists what is missing, changed or not part of the data, and then
exits with 1.
"""


@dataclass(frozen=True)
class Converter:
    """Cuts one universe into samples; the source of an item is the path of the universe and the stem of its samples."""

    grid: int
    sample_size: int
    samples: SampleFormat

    def __call__(self, item: Item, folder: Path) -> None:
        path, stem = item.source
        with open_universe(path) as universe:
            if universe.grid != self.grid:
                raise UniverseError(f"{path}: `full` has {universe.grid} voxels per side, the others have {self.grid}")
            self.samples.write_universe(folder / stem, universe.slabs(self.sample_size), universe.labels)


def find_universes(folder: Path) -> dict[str, Path]:
    """The raw universes below a folder by name, `<folder>_<universe>`; ProductionError if there are none."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.hdf5")):
        name = f"{path.resolve().parent.name}_{path.stem}"
        if name in found:
            raise ProductionError(f"{found[name]} and {path} would both become {name}_000; rename one of the folders")
        found[name] = path
    if not found:
        raise ProductionError(
            f"no *.hdf5 below {folder}: expected raw universes like 21688988/univ_ics_2019-03_a*.hdf5"
        )
    return found


def conversion(args: argparse.Namespace) -> Plan:
    """The plan of `convert`: one item per universe."""
    universes = find_universes(args.input_dir)
    split = (
        SplitFile(args.split_file)
        if args.split_file
        else Split(args.seed, args.validation_fraction, args.train, args.validation)
    )
    sides = {name: side for side, names in split(sorted(universes)).items() for name in names}
    if unused := len(universes) - len(sides):
        print(f"{unused:,} of {len(universes):,} universes are in neither split and left out")
    grid = _grid([universes[name] for name in sorted(sides)])
    if grid % args.sample_size:
        raise ProductionError(f"universes of {grid} voxels per side cannot be cut into cubes of {args.sample_size}")
    samples = SampleFormat.chosen(args.format, args.compress)
    blocks = grid // args.sample_size
    items = tuple(
        Item(name, samples.names_of_universe(f"{side}/{name}", blocks), (universes[name], f"{side}/{name}"))
        for name, side in sorted(sides.items())
    )
    origin = args.input_dir / NAME
    made_by = read_manifest(origin) if origin.exists() else None
    facts = {
        "converter": "cosmoflow.prepare",
        "universe_grid": grid,
        "sample_shape": [args.sample_size] * 3 + [CHANNELS],
        "split": "by lists" if args.split_file else f"by hash, seed {args.seed}",
        "source_digest": made_by.digest() if made_by else None,
        **samples.facts,
    }
    variant = (made_by.variant if made_by else None) or FULL
    make = Converter(grid, args.sample_size, samples)
    return Plan("cosmoflow", variant, facts, items, make, samples.bytes_of(grid), "universes")


def _grid(paths: Sequence[Path]) -> int:
    errors = []
    for path in paths[:10]:
        try:
            with open_universe(path) as universe:
                return universe.grid
        except UniverseError as error:
            errors.append(str(error))
    raise ProductionError("no universe can be read:\n  " + "\n  ".join(errors))


def crew_of(args: argparse.Namespace) -> Crew:
    """Who works: as the arguments say, or the launcher that started this process."""
    if args.n_tasks is not None or args.task is not None:
        if args.n_tasks is None or args.task is None:
            raise UsageError("--task and --n-tasks belong together")
        return Crew(args.workers or usable_cores(), args.task, args.n_tasks)
    place = find_place(os.environ)
    if place.world_size is None:
        raise ProductionError(f"{place.launcher} does not tell the number of ranks: give --task and --n-tasks")
    workers = args.workers or max(1, usable_cores() // (place.local_size or 1))
    return Crew(workers, place.rank, place.world_size)


def convert(args: argparse.Namespace) -> int:
    """All universes of this task are samples; returns the exit code."""
    crew, plan = crew_of(args), conversion(args)
    return report(produce(plan, args.output_dir, crew), plan, args.output_dir)


def make_manifest(args: argparse.Namespace) -> int:
    """The manifest is there: merged from the records of tasks, or made from the files."""
    folder: Path = args.data_dir
    if (folder / PARTS).exists():
        manifest = Ledger(folder).complete()
    elif (folder / NAME).exists():
        raise ProductionError(f"{folder / NAME} is there already: python -m cosmoflow.prepare verify {folder}")
    else:
        manifest = _described(folder, args.workers or usable_cores(), args.variant)
        write_manifest(folder / NAME, manifest)
    print(f"{folder / NAME}: {len(manifest.files):,} files, digest {manifest.digest()}")
    return 0


def _described(folder: Path, workers: int, variant: str) -> Manifest:
    names = [
        f"{split}/{entry.name}"
        for split in SPLITS
        if (folder / split).is_dir()
        for entry in os.scandir(folder / split)
        if entry.is_file()
    ]
    if not names:
        raise ProductionError(
            f"{folder} has no files in {' and '.join(SPLITS)}: expected a folder that holds these two"
        )
    with ThreadPoolExecutor(workers) as pool:
        entries = pool.map(describe_file, [folder / name for name in names])
        files = dict(zip(names, tqdm(entries, total=len(names), unit=" files", disable=None), strict=True))
    return Manifest(benchmark="cosmoflow", variant=variant, facts={"described_by": "cosmoflow.prepare"}, files=files)


def verify(args: argparse.Namespace) -> int:
    """The files have been compared with the manifest; returns the exit code."""
    manifest = read_manifest(args.data_dir / NAME)
    problems = verify_files(
        args.data_dir, manifest, checksum=not args.sizes_only, workers=args.workers or usable_cores()
    )
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    wrong = f"{len(problems):,} of them are not as they should be" if problems else "all as they should be"
    print(f"{args.data_dir}: {len(manifest.files):,} files, digest {manifest.digest()}: {wrong}")
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m cosmoflow.prepare", formatter_class=raw)
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    commands = parser.add_subparsers(dest="command", required=True)

    made = commands.add_parser("convert", help="raw universes to samples", formatter_class=raw)
    made.description = CONVERT_HELP
    made.set_defaults(run=convert)
    made.add_argument("input_dir", type=Path, metavar="INPUT_DIR", help="raw universes: *.hdf5, at any depth")
    made.add_argument("output_dir", type=Path, metavar="OUTPUT_DIR", help="where the data go, new or begun before")
    made.add_argument("--sample-size", type=positive, default=128, help="voxels per side of a sample (default 128)")
    made.add_argument("--format", choices=FORMATS, default="tfrecord", help="of the samples (default tfrecord)")
    made.add_argument("--compress", choices=("gzip", "none"), help="default: gzip for tfrecord, none for npy")
    split = made.add_argument_group("split by universes")
    split.add_argument("--validation-fraction", type=float, default=1 / 9, help="about so many (default 1/9)")
    split.add_argument("--train", type=count, metavar="N", help="exactly so many for training (default: the rest)")
    split.add_argument("--validation", type=count, metavar="N", help="exactly so many for validation, not a fraction")
    split.add_argument("--seed", type=count, default=0, help="of the hash that decides (default 0)")
    split.add_argument("--split-file", type=Path, help="YAML or JSON instead: {train: [names], validation: [names]}")
    share = made.add_argument_group("who works")
    share.add_argument("--workers", type=positive, help="processes (default: the cores that this task may use)")
    share.add_argument("--task", type=count, help="number of this task, from 0 (default: the rank)")
    share.add_argument("--n-tasks", type=positive, help="how many tasks share the work (default: the ranks)")

    listed = commands.add_parser("manifest", help="checksums of data that are there", formatter_class=raw)
    listed.description = MANIFEST_HELP
    listed.set_defaults(run=make_manifest)
    listed.add_argument("--variant", default=FULL, help=f"what the data are (default {FULL})")
    checked = commands.add_parser("verify", help="compare data with their manifest", formatter_class=raw)
    checked.description = VERIFY_HELP
    checked.set_defaults(run=verify)
    checked.add_argument("--sizes-only", action="store_true", help="quick: sizes, without checksums")
    for command in (listed, checked):
        command.add_argument("data_dir", type=Path, metavar="DATA_DIR", help="has train, validation and manifest.json")
        command.add_argument("--workers", type=positive, help="threads (default: the usable cores)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(argv)
    return run_command(lambda: args.run(args), MENDABLE)


if __name__ == "__main__":
    sys.exit(main())
