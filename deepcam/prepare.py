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

from common.command import UsageError
from common.commands.prepare import PrepareCommand, add_build_command, build_and_compare, build_and_report, read_first
from common.data.build import BadItemError, BuildError, DatasetPlan, Item
from common.data.hdf5 import open_hdf5
from common.data.manifest import read_variant_and_digest
from common.files import suggest_folder, whole_file
from common.reference import OWN
from deepcam.data import netcdf, snapshot, values
from deepcam.data.conversion import BLOCK, FORMATS, Format, SingleFileFormat, compare_item, verify_singles
from deepcam.data.netcdf import Names
from deepcam.data.values import StatsError, read_contents
from deepcam.reference import CHANNELS
from deepcam.split import SPLITS

NETCDF: Final = (".nc", ".nc4")
EXAMPLES: Final = """\
examples:
  python -m deepcam.prepare convert All-Hist npy --format npy
  srun -N 8 --ntasks-per-node 4 python -m deepcam.prepare convert All-Hist single --format hdf5-single
  python -m deepcam.prepare import ClimateNet snapshots --labels LABELS --variable TMQ=tmq
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


IMPORT_HELP: Final = """\
Make a snapshot OUTPUT_DIR/F/data-X.h5 of each NetCDF file INPUT_DIR/F/X.nc or X.nc4, classic or NetCDF-4.

A file has one time, a variable of (latitude, longitude) for each of the 16 channels, and one with the labels: 0
background, 1 tropical cyclone, 2 atmospheric river. The names are those of the channels, as in ClimateNet, unless
--variable and --labels name others. Packed numbers are unpacked; nothing else is changed, so the units must be those of
the channels. A file that lacks a variable, or a value at some pixel, is skipped and named.

You can stop at any time: the same command resumes. Then come `python -m deepcam.split`, if all files are in one folder,
and `python -m deepcam.summarize`.
"""


def convert_item(format: Format, item: Item, folder: Path) -> None:
    """Make an item: the copy of stats.h5, or an item of the format."""
    if item.name == values.NAME:
        with whole_file(folder / values.NAME) as part:
            copyfile(item.source, part)
    else:
        format.make_item(item, folder)


def plan_conversion(source: Path, format_name: str) -> DatasetPlan:
    """Return the plan of `convert`: an item for stats.h5, and for each snapshot or block of snapshots.

    BuildError or StatsError if the input is incomplete.
    """
    splits = find_splits(source)
    values.read_stats(source / values.NAME)
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
    items = [Item(values.NAME, (values.NAME,), source / values.NAME)]
    for split, paths in splits.items():
        items += format.list_items(split, paths)
    return DatasetPlan(
        "deepcam",
        variant,
        facts,
        tuple(items),
        make=partial(convert_item, format),
        bytes_per_item=data_bytes,
        begin=partial(format.create_files, splits),
    )


def plan_import(source: Path, names: Names, variant: str) -> DatasetPlan:
    """Return the plan of `import`: an item for each NetCDF file below a folder; BuildError if there are none."""
    paths = sorted(path for ending in NETCDF for path in source.rglob(f"*{ending}"))
    if not paths:
        raise BuildError(f"no files {' or '.join(NETCDF)} in {source}: expected NetCDF files, one for each sample")
    shape_HWC = read_first(paths, lambda path: netcdf.read_sample(path, names)[0], "sample").shape
    items = []
    for path in paths:
        folder = path.relative_to(source).parent
        stem = path.stem if path.stem.startswith("data") else f"data-{path.stem}"
        items.append(Item(str(path.relative_to(source)), (str(folder / f"{stem}.h5"),), path))
    return DatasetPlan(
        "deepcam",
        variant,
        facts={
            "converter": "deepcam.prepare",
            "format": "hdf5",
            "sample_shape": list(shape_HWC),
            "channels": list(names.channels),
            "labels": names.labels,
        },
        items=tuple(items),
        make=partial(import_item, names, shape_HWC),
        bytes_per_item=float(math.prod(shape_HWC) * 4 + math.prod(shape_HWC[:2]) * 4),
    )


def import_item(names: Names, shape_HWC: tuple[int, ...], item: Item, folder: Path) -> None:
    """Write the snapshot of a NetCDF file; BadItemError if it cannot be used."""
    data_HWC, labels_HW = netcdf.read_sample(item.source, names)
    if data_HWC.shape != shape_HWC:
        raise BadItemError(f"{item.source} has samples of {data_HWC.shape[:2]} pixels, the others {shape_HWC[:2]}")
    snapshot.write_snapshot(folder / item.files[0], data_HWC, labels_HW)


def find_splits(folder: Path) -> dict[str, list[Path]]:
    """Return the snapshots of each split, sorted by name; BuildError if there are none for training or validation."""
    splits = {
        split: [folder / split / name for name in snapshot.find_snapshots(folder / split)]
        for split in SPLITS
        if (folder / split).is_dir()
    }
    for split in (names := ("train", "validation")):
        if not splits.get(split):
            near = suggest_folder(folder, names)
            fix = "expected published snapshots in splits; run python -m deepcam.split"
            raise BuildError(f"no data*.h5 in {folder / split}{near}: {fix}")
    return {split: paths for split, paths in splits.items() if paths}


def _read_shape(path: Path) -> tuple[int, int, int]:
    with open_hdf5(path) as file:
        shape: tuple[int, int, int] = snapshot.hdf5_array(file, snapshot.DATA).shape
    if len(shape) != 3 or shape[2] != len(CHANNELS):
        raise BadItemError(f"{path}: `{snapshot.DATA}` has the shape {shape}; expected (H, W, {len(CHANNELS)})")
    return shape


def convert_items(args: argparse.Namespace) -> int:
    """Make all items of this task, and compare them if asked to; return the exit code."""
    plan = plan_conversion(args.input_dir, args.format)
    format = FORMATS[args.format](tuple(plan.facts["sample_shape"]))
    return build_and_compare(plan, args, partial(compare_item, format, args.output_dir), skip=values.NAME)


def import_items(args: argparse.Namespace) -> int:
    """Make the snapshots of all NetCDF files of this task; return the exit code."""
    channels = [channel.name for channel in CHANNELS]
    renamed: dict[str, str] = {}
    for text in args.variable:
        channel, _, name = text.partition("=")
        if channel not in channels or not name:
            raise UsageError(f"--variable {text}: expected CHANNEL=NAME, with a channel of {', '.join(channels)}")
        if channel in renamed:
            raise UsageError(f"--variable {text}: the variable of {channel} is {renamed[channel]} already; name one")
        renamed[channel] = name
    names = Names(tuple(renamed.get(channel, channel) for channel in channels), args.labels)
    return build_and_report(plan_import(args.input_dir, names, args.variant), args)


def _add_commands(commands: Any) -> None:
    """Add the subcommands that convert snapshots and NetCDF files."""
    convert = add_build_command(
        commands,
        "convert",
        convert_items,
        ("published snapshots to other formats", CONVERT_HELP, "folder with train, validation, stats.h5"),
        verify=True,
    )
    convert.add_argument("--format", choices=FORMATS, required=True, help="format of the new files")
    importing = add_build_command(
        commands,
        "import",
        import_items,
        ("NetCDF files to snapshots", IMPORT_HELP, "folder with NetCDF files"),
    )
    importing.add_argument(
        "--variable", action="append", default=[], metavar="CHANNEL=NAME", help="the variable of a channel; repeat it"
    )
    importing.add_argument("--labels", default=netcdf.LABELS, help="the variable of the labels (default %(default)s)")
    importing.add_argument("--variant", default=OWN, help="dataset variant (default %(default)s)")


COMMAND: Final = PrepareCommand(
    "deepcam.prepare",
    """\
Convert the DeepCAM data, make snapshots of NetCDF files, and check existing data. If the download has no folders train,
validation and test, run `python -m deepcam.split` first; if it has no stats.h5, `python -m deepcam.summarize`.
""",
    EXAMPLES,
    _add_commands,
    SPLITS,
    read_contents,
    files=(values.NAME,),
    errors=(BadItemError, StatsError),
    inside=verify_singles,
    pairs=[("data-*.npy", "label-*.npy")],
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
