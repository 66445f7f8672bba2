"""The command that converts DeepCAM's data to formats that are read faster, and checks data by their manifest."""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

from common.commands.prepare import PrepareCommand, add_work, build_and_compare, read_first
from common.datasets.build import BuildError, DatasetPlan, Item
from common.datasets.manifest import read_variant_and_digest
from common.files import whole_file
from deepcam.data import snapshot, stats
from deepcam.data.conversion import BLOCK, FORMATS, Format, SingleFileFormat, compare_item, verify_singles
from deepcam.data.snapshot import SnapshotError
from deepcam.data.stats import StatsError
from deepcam.data.values import read_contents
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
  python -m deepcam.prepare verify npy --values   and their numbers plausible?

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


def convert_item(format: Format, item: Item, folder: Path) -> None:
    """Make an item: the copy of stats.h5, or an item of the format."""
    if item.name != stats.NAME:
        format.make_item(item, folder)
        return
    with whole_file(folder / stats.NAME) as part:
        copyfile(item.source, part)


def plan_conversion(source: Path, format_name: str) -> DatasetPlan:
    """Return the plan of `convert`: an item for stats.h5, and for each snapshot or block of snapshots.

    BuildError or StatsError if the input is incomplete.
    """
    splits = find_splits(source)
    stats.read_stats(source / stats.NAME)
    shape_HWC = read_first([path for paths in splits.values() for path in paths], _read_shape, "snapshot")
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
    begin, make = partial(format.create_files, splits), partial(convert_item, format)
    return DatasetPlan("deepcam", variant, facts, tuple(items), make, data_bytes, begin=begin)


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


def _read_shape(path: Path) -> tuple[int, int, int]:
    with snapshot.open_hdf5(path) as file:
        shape = snapshot.hdf5_array(file, snapshot.DATA).shape
    if len(shape) != 3 or shape[2] != len(CHANNELS):
        raise SnapshotError(f"{path}: `{snapshot.DATA}` has the shape {shape}; expected (H, W, {len(CHANNELS)})")
    height, width, channels = shape
    return height, width, channels


def convert_items(args: argparse.Namespace) -> int:
    """Make all items of this task, and compare them if asked to; return the exit code."""
    plan = plan_conversion(args.input_dir, args.format)
    assert isinstance(plan.make, partial)
    compare = partial(compare_item, plan.make.args[0], args.output_dir)
    return build_and_compare(plan, args, compare, skip=stats.NAME)


def _add_commands(commands: Any) -> None:
    """Add the subcommand that converts snapshots."""
    texts = "published snapshots to other formats", CONVERT_HELP, "folder with train, validation, stats.h5"
    convert = add_work(commands, "convert", convert_items, texts, verify=True)
    convert.add_argument("--format", choices=FORMATS, required=True, help="format of the new files")


COMMAND: Final = PrepareCommand(
    "deepcam.prepare",
    DESCRIPTION,
    EXAMPLES,
    _add_commands,
    SPLITS,
    read_contents,
    files=(stats.NAME,),
    errors=(SnapshotError, StatsError),
    inside=verify_singles,
    pairs=[("data-*.npy", "label-*.npy")],
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
