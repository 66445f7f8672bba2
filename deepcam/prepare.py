"""The command that converts DeepCAM's data to formats that are read faster, and checks data by their manifest."""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

from common.command import CommandParser, run_command
from common.commands.prepare import (
    DatasetLayout,
    add_output,
    add_worker_options,
    build_and_report,
    compare_items,
)
from common.datasets.build import DATASET_ERRORS, BuildError, DatasetPlan, Item
from common.datasets.manifest import read_variant_and_digest
from common.files import whole_file
from deepcam.data import snapshot, stats
from deepcam.data.conversion import BLOCK, FORMATS, Format, SingleFileFormat, compare_item, verify_singles
from deepcam.data.snapshot import SnapshotError
from deepcam.data.stats import StatsError
from deepcam.reference import CHANNELS
from deepcam.split import SPLITS

DESCRIPTION: Final = """\
Convert the DeepCAM data, and check existing data. If the download has no folders train, validation and test, run
`python -m deepcam.split` first; if it has no stats.h5, `python -m deepcam.summarize`.
"""
EXAMPLES: Final = """\
examples:
  python -m deepcam.prepare convert All-Hist npy --format npy
  srun -N 8 --ntasks-per-node 4 python -m deepcam.prepare convert All-Hist single --format hdf5-single
  python -m deepcam.prepare manifest All-Hist      once, after a download
  python -m deepcam.prepare verify npy             are all files present and unchanged?

Each subcommand has its own help, as in: python -m deepcam.prepare convert --help
"""
CONVERT_HELP: Final = """\
Convert the snapshots INPUT_DIR/{train,validation,test}/data*.h5, and copy INPUT_DIR/stats.h5 (test may be missing).

  npy           OUTPUT_DIR/train/data-X.npy  float32 (H, W, C), and label-X.npy  uint8 (H, W), for each data-X.h5
  hdf5-single   OUTPUT_DIR/train.h5  one file per split: data (N, H, W, C), labels (N, H, W), names (N), and
                OUTPUT_DIR/checksums  of the samples. All processes write to the same file: on a parallel file system
                stripe it over many servers, as by `lfs setstripe -c -1 OUTPUT_DIR` on Lustre.

You can stop at any time: the same command resumes, also with other numbers of workers and tasks. Damaged snapshots are
skipped (in blocks of 16 with hdf5-single) and listed at the end; fix them and run the command again. With npy you may
remove them instead; with hdf5-single that needs another OUTPUT_DIR. The manifest, with sizes and checksums, is written
once everything is done.

Under srun, mpirun or torchrun each rank takes its share; in a job array use --task and --n-tasks. The task that
finishes last writes the manifest; `prepare manifest OUTPUT_DIR` does the same by hand.
"""
LAYOUT: Final = DatasetLayout("deepcam.prepare", SPLITS, files=(stats.NAME,), inside=verify_singles)


@dataclass(frozen=True)
class Converter:
    """Makes an item: the copy of stats.h5, or an item of the format."""

    format: Format

    def __call__(self, item: Item, folder: Path) -> None:
        if item.name != stats.NAME:
            self.format.make_item(item, folder)
            return
        with whole_file(folder / stats.NAME) as part:
            copyfile(item.source, part)


def plan_conversion(source: Path, format_name: str) -> DatasetPlan:
    """Return the plan of `convert`: an item for stats.h5, and for each snapshot or block of snapshots.

    BuildError or StatsError if the input is incomplete.
    """
    splits = find_splits(source)
    stats.read_stats(source / stats.NAME)
    shape_HWC = _read_shape([path for paths in splits.values() for path in paths])
    format = FORMATS[format_name](shape_HWC)
    variant, source_digest = read_variant_and_digest(source)
    facts: dict[str, Any] = {
        "converter": "deepcam.prepare",
        "format": format_name,
        "sample_shape": list(shape_HWC),
        "source_digest": source_digest,
    }
    data_bytes = float(math.prod(shape_HWC) * 4 + math.prod(shape_HWC[:2]))
    if isinstance(format, SingleFileFormat):  # a row must stay that of its sample
        file_names = "\n".join(f"{split}/{path.name}" for split, paths in splits.items() for path in paths)
        facts["samples"] = {split: len(paths) for split, paths in splits.items()}
        facts["names_sha256"] = hashlib.sha256(file_names.encode()).hexdigest()
        data_bytes *= BLOCK
    items = [Item(stats.NAME, (stats.NAME,), source / stats.NAME)]
    for split, paths in splits.items():
        items += format.list_items(split, paths)
    begin = partial(format.create_files, splits)
    return DatasetPlan("deepcam", variant, facts, tuple(items), Converter(format), data_bytes, begin=begin)


def find_splits(folder: Path) -> dict[str, list[Path]]:
    """Return the snapshots of each split, sorted by name; BuildError if there are none for training or validation."""
    splits = {
        split: [folder / split / name for name in snapshot.find_snapshots(folder / split)]
        for split in SPLITS
        if (folder / split).is_dir()
    }
    for split in ("train", "validation"):
        if not splits.get(split):
            raise BuildError(
                f"no data*.h5 in {folder / split}: expected published snapshots in splits; run python -m deepcam.split"
            )
    return {split: paths for split, paths in splits.items() if paths}


def _read_shape(paths: Sequence[Path]) -> tuple[int, int, int]:
    errors = []
    for path in paths[:10]:
        try:
            with snapshot.open_hdf5(path) as file:
                shape = snapshot.hdf5_array(file, snapshot.DATA).shape
            if len(shape) == 3 and shape[2] == len(CHANNELS):
                height, width, channels = shape
                return height, width, channels
            errors.append(f"{path}: `{snapshot.DATA}` has the shape {shape}; expected (H, W, {len(CHANNELS)})")
        except (SnapshotError, OSError) as error:
            errors.append(str(error))
    raise BuildError("no snapshot can be read:\n  " + "\n  ".join(errors))


def convert_items(args: argparse.Namespace) -> int:
    """Make all items of this task, and compare them if asked to; return the exit code."""
    plan = plan_conversion(args.input_dir, args.format)
    code = build_and_report(plan, args)
    if code or not args.verify:
        return code
    assert isinstance(plan.make, Converter)
    return compare_items(partial(compare_item, plan.make.format, args.output_dir), plan, args, skip=stats.NAME)


def _build_parser() -> argparse.ArgumentParser:
    parser = CommandParser("python -m deepcam.prepare")
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    commands = parser.add_subparsers(dest="command", required=True)
    convert = commands.add_parser("convert", help="published snapshots to other formats")
    convert.description = CONVERT_HELP
    convert.set_defaults(run=convert_items)
    convert.add_argument("input_dir", type=Path, metavar="INPUT_DIR", help="folder with train, validation, stats.h5")
    add_output(convert)
    convert.add_argument("--format", choices=FORMATS, required=True, help="format of the new files")
    convert.add_argument(
        "--verify", action="store_true", help="read everything again at the end and compare it with INPUT_DIR"
    )
    add_worker_options(convert)
    LAYOUT.add_commands(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    args = _build_parser().parse_args(argv)
    return run_command(lambda: args.run(args), (*DATASET_ERRORS, SnapshotError, StatsError))


if __name__ == "__main__":
    sys.exit(main())
