"""The command line that makes the benchmark's data from raw universes, and checks data against their manifest."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from common.command import count, positive
from common.commands.prepare import PrepareCommand, add_build_command, build_and_report, read_first
from common.config import load
from common.data.build import BadItemError, BuildError, DatasetPlan, Item
from common.data.manifest import read_variant_and_digest
from common.errors import UsageError
from common.files import is_foreign, suggest_folder
from common.reference import SPLITS
from cosmoflow.data.raw import open_universe
from cosmoflow.data.sample_files import CHANNELS, ENDINGS, FORMATS, SampleFormat, read_sample
from cosmoflow.data.tfrecord import RecordError, Sample, WrongSizeError, find_side
from cosmoflow.data.values import read_contents

EXAMPLES: Final = """\
examples:
  python -m cosmoflow.prepare convert cosmoUniverse_2019_05_4parE data --train 8192 --validation 1024
  srun -N 8 --ntasks-per-node 4 python -m cosmoflow.prepare convert cosmoUniverse_2019_05_4parE data
  python -m cosmoflow.prepare repack cosmoUniverse_2019_05_4parE_tf_v2 packed --format packed   a quarter of int16
  python -m cosmoflow.prepare repack cosmoUniverse_2019_05_4parE_tf_v2 raw --compress none   read without inflating
  python -m cosmoflow.prepare manifest cosmoUniverse_2019_05_4parE_tf_v2   once, after a download
  python -m cosmoflow.prepare verify data                                  are all files present and unchanged?
  python -m cosmoflow.prepare verify data --values   and their numbers plausible?

Each subcommand has its own help, as in: python -m cosmoflow.prepare convert --help
"""
CONVERT_HELP: Final = """\
Cut every universe (*.hdf5 below INPUT_DIR: `full`, int16 N x N x N x 4, and `unitPar`, four labels) into cubes, one
sample per file:

  OUTPUT_DIR/train/<folder>_<universe>_000.tfrecord ...  OUTPUT_DIR/validation/...  OUTPUT_DIR/manifest.json

<folder> is the name of the folder that contains the universe. All cubes of a universe are in the same split, chosen by
a seeded hash of its name. You can stop at any time: the same command resumes, also with other numbers of workers and
tasks. Damaged universes are skipped and listed at the end; fix or remove them and run the command again. The manifest,
with sizes and checksums, is written once everything is done.

Under srun, mpirun or torchrun each rank takes its share; in a job array use --task and --n-tasks. The task that
finishes last writes the manifest; `prepare manifest OUTPUT_DIR` does the same by hand.
"""
REPACK_HELP: Final = """\
Write the samples of INPUT_DIR/train and INPUT_DIR/validation, whatever their format, in another format. No count
changes: each new file is read again and compared with its source. Checksums in the files are compared, and damaged
samples are skipped and listed at the end. With --format packed they have a quarter of the bytes of int16.

It resumes, and shares the work with other tasks, as `convert` does.
"""


# -- the split into training and validation, by whole universes, since samples of one universe are alike ---------


def split_by_hash(
    names: Sequence[str],
    seed: int = 0,
    fraction: float = 1 / 9,
    train: int | None = None,
    validation: int | None = None,
) -> dict[str, list[str]]:
    """Return the sorted names of each split by a seeded hash of the names, the same on every machine and in every task.

    A universe is for validation if its hash is below `fraction`, independent of the other universes. With counts, the
    lowest hashes are for validation and the highest for training; those in between are left out. UsageError if there
    are too few universes, or by chance none for validation.
    """
    if not 0 < fraction < 1:
        raise UsageError(f"--validation-fraction is {fraction}; expected a number between 0 and 1")
    digests = {name: hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names}
    hashes = {name: int.from_bytes(digest[:8], "big") / 2**64 for name, digest in digests.items()}
    order = sorted(names, key=lambda name: (hashes[name], name))
    validation_count = sum(hashes[name] < fraction for name in names) if validation is None else validation
    train_count = len(order) - validation_count if train is None else train
    if train_count < 0 or train_count + validation_count > len(order):
        raise UsageError(
            f"{max(train_count, 0):,} training and {validation_count:,} validation universes were asked for, but only "
            f"{len(order):,} exist; lower --train or --validation"
        )
    if validation is None and not validation_count:
        raise UsageError(
            f"by chance none of the {len(order):,} universes is for validation; set a number, as in --validation 1"
        )
    return {"train": sorted(order[len(order) - train_count :]), "validation": sorted(order[:validation_count])}


@dataclass(frozen=True)
class _Lists:
    train: tuple[str, ...]
    validation: tuple[str, ...]


def read_split(path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the sorted names of each split by a YAML or JSON file {train: [name, ...], validation: [name, ...]}.

    UsageError for names that are in both, or that no universe has.
    """
    lists = load(_Lists, path)
    split = {side: sorted(getattr(lists, side)) for side in SPLITS}
    all_names = split["train"] + split["validation"]
    if twice := sorted(name for name, times in Counter(all_names).items() if times > 1):
        raise UsageError(f"{path}: {twice[0]} is listed more than once")
    if unknown := sorted(set(all_names) - set(names)):
        example = f"; names look like {min(names)}" if names else ""
        raise UsageError(f"{path}: no universe for {len(unknown):,} names, such as {unknown[0]}{example}")
    return split


# -- conversion ----------------------------------------------------------------------------------------------


def cut_universe(grid: int, sample_size: int, samples: SampleFormat, item: Item, folder: Path) -> None:
    """Cut a universe into samples; the item's source is the path of the universe and the stem of its samples."""
    path, stem = item.source
    with open_universe(path) as universe:
        if universe.grid != grid:
            raise BadItemError(f"{path}: `full` has {universe.grid} voxels per side, the others have {grid}")
        samples.write_universe(folder / stem, universe.read_slabs(sample_size), universe.labels)


def find_universes(folder: Path) -> dict[str, Path]:
    """Return the raw universes below a folder by name, `<folder>_<universe>`; BuildError if there are none."""
    universes: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.hdf5")):
        if any(map(is_foreign, path.relative_to(folder).parts)):
            continue
        name = f"{path.resolve().parent.name}_{path.stem}"
        if name in universes:
            raise BuildError(f"{universes[name]} and {path} would both become {name}_000; rename one of the folders")
        universes[name] = path
    if not universes:
        expected = "raw universes like 21688988/univ_ics_2019-03_a*.hdf5"
        if record := next(folder.rglob(f"*{ENDINGS['tfrecord'][0]}"), None):
            expected += f"; {record} is a sample already: train reads it as it is, `repack` writes it in another format"
        raise BuildError(f"no *.hdf5 below {folder}: expected {expected}")
    return universes


def plan_conversion(args: argparse.Namespace) -> DatasetPlan:
    """Return the plan of `convert`: one item per universe."""
    universes = find_universes(args.input_dir)
    if args.split_file:
        splits = read_split(args.split_file, sorted(universes))
    else:
        splits = split_by_hash(sorted(universes), args.seed, args.validation_fraction, args.train, args.validation)
    sides = {name: side for side, names in splits.items() for name in names}
    if unused := len(universes) - len(sides):
        print(f"{unused:,} of {len(universes):,} universes are in neither split and will be skipped")
    paths = [universes[name] for name in sorted(sides)]
    grid = read_first(paths, _read_grid, "universe")
    if grid % args.sample_size:
        raise BuildError(
            f"{paths[0]} has {grid} voxels per side, which cannot be cut into cubes of --sample-size "
            f"{args.sample_size}: give --sample-size {grid}, or another divisor of {grid}"
        )
    samples = SampleFormat.from_options(args.format, args.compress)
    items = []
    for name, side in sorted(sides.items()):
        stem = f"{side}/{name}"
        items.append(Item(name, samples.names_of_universe(stem, grid // args.sample_size), (universes[name], stem)))
    variant, source_digest = read_variant_and_digest(args.input_dir)
    return DatasetPlan(
        "cosmoflow",
        variant,
        facts={
            "converter": "cosmoflow.prepare",
            "universe_grid": grid,
            "sample_shape": [args.sample_size] * 3 + [CHANNELS],
            "split": "by lists" if args.split_file else f"by hash, seed {args.seed}",
            "source_digest": source_digest,
            **samples.facts,
        },
        items=tuple(items),
        make=partial(cut_universe, grid, args.sample_size, samples),
        bytes_per_item=samples.bytes_of(grid),
        noun="universes",
    )


def _read_grid(path: Path) -> int:
    with open_universe(path) as universe:
        return universe.grid


def repack_sample(shape: tuple[int, ...], samples: SampleFormat, item: Item, folder: Path) -> None:
    """Write a sample in another format; the source of an item is the paths of its files and the new stem."""
    paths, stem = item.source
    sample = read_shaped(paths, shape)
    samples.write_sample(folder / stem, *sample)
    written = read_sample([folder / name for name in item.files], Sample.empty(shape), verify=True)
    if any(a.tobytes() != b.tobytes() for a, b in zip(sample, written, strict=True)):
        raise BadItemError(f"{folder / stem}: what was written is not what {paths[0]} has; run the command again")


def read_shaped(paths: Sequence[Path], shape: tuple[int, ...]) -> Sample:
    """Return a sample; WrongSizeError if `--sample-size` is not that of the file, RecordError for a damaged one."""
    try:
        return read_sample(paths, Sample.empty(shape), verify=True)
    except WrongSizeError as error:
        content, advice = f"a sample of {error.size:,} bytes", ""
        if (side := find_side(error.size)) is not None:
            content, advice = f"a sample of {side}³ × {CHANNELS} counts", f": give --sample-size {side}"
        raise WrongSizeError(f"{paths[0]}: {content}; --sample-size is {shape[0]}{advice}", error.size) from error


def check_size(paths: Sequence[Path], shape: tuple[int, ...]) -> None:
    """Raise BuildError if the sample has another size, as then all of them have; damage is found later."""
    try:
        read_shaped(paths, shape)
    except WrongSizeError as error:
        raise BuildError(str(error)) from error
    except (RecordError, OSError):
        pass


def plan_repacking(args: argparse.Namespace) -> DatasetPlan:
    """Return the plan of `repack`: one item per sample."""
    samples = SampleFormat.from_options(args.format, args.compress)
    by_kind = {
        kind: {
            f"{split}/{path.name.removesuffix(first)}": [
                path.with_name(path.name.removesuffix(first) + ending) for ending in (first, *others)
            ]
            for split in SPLITS
            for path in sorted((args.input_dir / split).glob(f"*{first}"))
            if not is_foreign(path.name)
        }
        for kind, (first, *others) in ENDINGS.items()
    }
    kinds = [kind for kind, samples_by_stem in by_kind.items() if samples_by_stem]
    if len(kinds) > 1:
        raise BuildError(f"{args.input_dir} has samples as {' and '.join(kinds)}: keep one format per folder")
    if not kinds:
        places = " or ".join(str(args.input_dir / split) for split in SPLITS)
        patterns = " or ".join(f"*{first}" for first, *_ in ENDINGS.values())
        near = suggest_folder(args.input_dir, SPLITS)
        raise BuildError(f"no {patterns} in {places}{near}: expected samples to repack")
    variant, source_digest = read_variant_and_digest(args.input_dir)
    sources, shape = by_kind[kinds[0]], (args.sample_size,) * 3 + (CHANNELS,)
    check_size(next(iter(sources.values())), shape)
    return DatasetPlan(
        "cosmoflow",
        variant,
        facts={
            "converter": "cosmoflow.prepare repack",
            "sample_shape": list(shape),
            "source_digest": source_digest,
            **samples.facts,
        },
        items=tuple(Item(stem, samples.file_names(stem), (paths, stem)) for stem, paths in sources.items()),
        make=partial(repack_sample, shape, samples),
        bytes_per_item=samples.bytes_of(args.sample_size),
        noun="samples",
    )


def _add_commands(commands: Any) -> None:
    """Add the subcommands that make samples."""
    convert = add_build_command(
        commands,
        "convert",
        lambda args: build_and_report(plan_conversion(args), args),
        ("raw universes to samples", CONVERT_HELP, "raw universes: *.hdf5, at any depth"),
    )
    _add_output(convert)
    split = convert.add_argument_group("split by universes")
    split.add_argument("--validation-fraction", type=float, default=1 / 9, help="approximate share (default 1/9)")
    split.add_argument("--train", type=count, metavar="N", help="exact number for training (default: the rest)")
    split.add_argument(
        "--validation", type=count, metavar="N", help="exact number for validation, instead of a fraction"
    )
    split.add_argument("--seed", type=count, default=0, help="seed of the hash that decides (default 0)")
    split.add_argument(
        "--split-file", type=Path, help="YAML or JSON file instead of the hash: {train: [names], validation: [names]}"
    )
    repack = add_build_command(
        commands,
        "repack",
        lambda args: build_and_report(plan_repacking(args), args),
        ("samples to another format", REPACK_HELP, "samples: train/*.tfrecord and so on"),
    )
    _add_output(repack)


def _add_output(command: argparse.ArgumentParser) -> None:
    """Add the options about the samples to be written."""
    command.add_argument("--sample-size", type=positive, default=128, help="voxels per side of a sample (default 128)")
    command.add_argument("--format", choices=FORMATS, default="tfrecord", help="of the new files (default tfrecord)")
    command.add_argument("--compress", choices=("gzip", "none"), help="default: gzip for tfrecord, otherwise none")


COMMAND: Final = PrepareCommand(
    "cosmoflow.prepare",
    "Convert raw universes to CosmoFlow's samples, or samples to another format, and check existing data.\n",
    EXAMPLES,
    _add_commands,
    SPLITS,
    read_contents,
    pairs=[("*_data.npy", "*_label.npy")],
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
