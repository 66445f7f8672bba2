"""The command that prepares Open Catalyst's data for training, and checks data by their manifest."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from common.command import positive
from common.commands.prepare import PrepareCommand, add_build_command, build_and_compare
from common.console import open_bar
from common.data.build import BadItemError, BuildError, DatasetPlan, Item
from common.data.manifest import read_variant_and_digest
from common.processes import in_processes, usable_cores
from common.reference import SPLITS
from oc20.data import dataset
from oc20.data.conversion import (
    EDGES,
    FORMATS,
    GRAPH,
    SHARD,
    Converted,
    FrameSource,
    Published,
    add_metadata_items,
    compare_frames,
    find_splits,
    make_shard,
    names_of,
)
from oc20.data.dataset import Metadata
from oc20.data.values import read_contents

EXAMPLES: Final = """\
examples:
  python -m oc20.prepare convert s2ef lmdb --format lmdb          as the reference makes them
  srun -N 8 --ntasks-per-node 4 python -m oc20.prepare convert s2ef compact --format compact
  python -m oc20.prepare convert lmdb compact --format compact    a tenth of the size
  python -m oc20.prepare metadata lmdb    once, if metadata.npz is missing or lacks triplets
  python -m oc20.prepare manifest lmdb    once, after a download
  python -m oc20.prepare verify compact   are all files present and unchanged?
  python -m oc20.prepare verify compact --values   and their numbers plausible?

Each subcommand has its own help, as in: python -m oc20.prepare convert --help
"""
CONVERT_HELP: Final = f"""\
Convert the frames in INPUT_DIR/train and INPUT_DIR/validation: the published N.extxyz.xz with N.txt.xz (also
unpacked), *.lmdb by any name, or data.N.bin as this command makes them. To arrange a download in this layout:
mkdir s2ef; ln -s .../s2ef_train_2M s2ef/train; ln -s .../s2ef_val_id s2ef/validation

  lmdb       OUTPUT_DIR/train/data.N.lmdb, pickled graphs as the reference makes them; read without torch-geometric
  lmdb-new   the same for torch-geometric since version 2
  compact    OUTPUT_DIR/train/data.N.bin, about 7 bytes per edge instead of 40

Edges are computed once: the {GRAPH["most_neighbours"]} nearest neighbours of each atom within {GRAPH["cutoff"]:g} \
angstrom, across all borders of the cell.
--edges reference counts as the reference's code does: an atom whose place it rounds in two ways is one of
its own {GRAPH["most_neighbours"]}, and is dropped afterwards, for up to 2 % fewer edges.
Energies are those of the frames minus the reference in the text; forces are unchanged, also on fixed atoms.
metadata.npz beside the data has the sizes of all frames, by which training balances its work.

You can stop at any time: the same command resumes, also with other numbers of workers and tasks. A pair with a damaged
frame is skipped and listed at the end; fix it and run the command again. The manifest, with sizes and checksums, is
written once everything is done.

Under srun, mpirun or torchrun each rank takes its share; in a job array use --task and --n-tasks. The task that
finishes last writes metadata.npz and the manifest.
"""
METADATA_HELP: Final = """\
Read all frames in DATA_DIR/train and DATA_DIR/validation and write metadata.npz beside them: the numbers of atoms,
edges, triplets and free atoms of each. Published files lack the last, and some lack the triplets.
"""


def convert_item(format: str, item: Item, folder: Path) -> None:
    """Make the files of a source."""
    make_shard(item.source.read_frames(), FORMATS[format], folder, item.files)


def plan_conversion(source: Path, format: str, edges: str = "nearest") -> DatasetPlan:
    """Return the plan of `convert`, an item per pair of published files or per shard; BuildError for missing input."""
    splits = find_splits(source, edges)
    variant, source_digest = read_variant_and_digest(source)
    facts: dict[str, Any] = {"converter": "oc20.prepare", "format": format, "source_digest": source_digest, **GRAPH}
    if edges != "nearest":
        facts["edges"] = edges
    items = [
        Item(f"{split}/{entry.path.name}", names_of(split, entry.number, FORMATS[format]), entry)
        for split, sources in splits.items()
        for entry in sources
    ]
    if any(isinstance(item.source, Converted) and not SHARD.fullmatch(item.source.path.stem) for item in items):
        # Their numbers are those of their order, in which more files would change them.
        facts["sources"] = [item.name for item in items]
    plan = DatasetPlan(
        "oc20",
        variant,
        facts,
        tuple(items),
        make=partial(convert_item, format),
        bytes_per_item=max(item.source.lmdb_bytes for item in items) * FORMATS[format].share,
        noun="files",
    )
    return add_metadata_items(plan)


def convert_items(args: argparse.Namespace) -> int:
    """Make all items of this task, and compare them if asked to; return the exit code."""
    plan = plan_conversion(args.input_dir, args.format, args.edges)
    return build_and_compare(plan, args, partial(_find_differences, args.output_dir, FORMATS[args.format].read_as))


def _find_differences(folder: Path, format: str, item: Item) -> list[str]:
    return compare_frames(item.source, Converted(folder / item.files[0], item.source.number, format))


def complete_metadata(args: argparse.Namespace) -> int:
    """Write a metadata.npz with all sizes for each split; return the exit code."""
    for split, sources in find_splits(args.data_dir).items():
        folder = args.data_dir / split
        if isinstance(sources[0], Published):
            raise BuildError(f"{folder} has frames without edges; add them by: python -m oc20.prepare convert")
        bar = open_bar(
            in_processes(_count_parts, sources, args.workers or usable_cores()),
            total=len(sources),
            unit=" files",
            desc=str(folder),
            disable=None,
        )
        try:
            sizes_by_file = {source.path.name: sizes for source, sizes in bar}
        except BadItemError as error:
            raise BuildError(str(error)) from error
        sizes = [size for name in sorted(sizes_by_file) for size in sizes_by_file[name]]
        dataset.write_metadata(folder / dataset.NAME, Metadata.from_sizes(sizes))
        print(f"{folder / dataset.NAME}: sizes of {len(sizes):,} frames")
    return 0


def _count_parts(source: FrameSource) -> list[tuple[int, ...]]:
    return [dataset.count_parts(frame) for frame in source.read_frames()]


def _add_commands(commands: Any) -> None:
    """Add the subcommands that convert frames, and count what is in them."""
    convert = add_build_command(
        commands,
        "convert",
        convert_items,
        ("published frames to other formats", CONVERT_HELP, "folder with train and validation"),
        verify=True,
    )
    convert.add_argument("--format", choices=FORMATS, required=True, help="format of the new files")
    convert.add_argument(
        "--edges", choices=EDGES, default="nearest", help="how the edges of published frames are counted (%(default)s)"
    )
    sized = commands.add_parser("metadata", help="write the sizes of existing frames", description=METADATA_HELP)
    sized.set_defaults(run=complete_metadata)
    sized.add_argument("data_dir", type=Path, metavar="DATA_DIR", help="folder with train and validation")
    sized.add_argument("--workers", type=positive, help="processes (default: the usable cores)")


COMMAND: Final = PrepareCommand(
    "oc20.prepare",
    """\
Prepare the frames of Open Catalyst for training, convert them to formats that are read faster, and check existing data.
""",
    EXAMPLES,
    _add_commands,
    SPLITS,
    read_contents,
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
