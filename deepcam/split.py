"""The command that splits the published snapshots into training, validation and test, as the reference does.

The rule: the sorted names data*.h5 are shuffled by NumPy's legacy generator (MT19937) with the seed 12345; the first
80 % are for training, the next 10 % for validation, the rest for tests (mlcommons/hpc,
deepcam/src/utils/split_data.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from common.command import CommandParser, folder_path, run_command
from common.console import open_bar
from common.data.build import BuildError
from common.files import list_data

SPLITS: Final = ("train", "validation", "test")
SEED: Final = 12345
PUBLISHED: Final = 151_583
"""Snapshots of the published dataset: they give 121,266 for training, 15,158 for validation and 15,159 for tests."""
DESCRIPTION: Final = """\
Split the snapshots of SOURCE_DIR (data*.h5) into OUTPUT_DIR/train, validation and test, as the reference does: by a
shuffle with a fixed seed, 80 : 10 : 10. The same names give the same split, on every machine.

The three folders get relative symbolic links: move SOURCE_DIR and OUTPUT_DIR together, or delete the links and split
again. An interrupted call resumes, and a second call changes nothing. Folders with anything but the links of this split
are refused.
"""
EXAMPLES: Final = """\
examples:
  python -m deepcam.split All-Hist/all All-Hist        then: python -m deepcam.summarize All-Hist
"""


def split_names(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of each split in the reference's order, for any order of `names`."""
    order = sorted(names)
    np.random.RandomState(SEED).shuffle(order)
    train, validation = int(0.8 * len(order)), int(0.1 * len(order))
    parts = (order[:train], order[train : train + validation], order[train + validation :])
    return dict(zip(SPLITS, parts, strict=True))


def link_splits(source: Path, output: Path) -> dict[str, list[str]]:
    """Link the snapshots in `source` from the folders of the splits below `output`, relatively; return their names.

    BuildError, with nothing changed, if there are no snapshots or a folder has anything else.
    """
    if not source.is_dir():
        raise BuildError(f"{source} is not a folder: expected the folder with all data-*.h5")
    names = [name for name in list_data(source) if name.startswith("data") and name.endswith(".h5")]
    if not names:
        is_split = all((source / side).is_dir() for side in SPLITS)
        fix = "it is split already; go on with python -m deepcam.summarize" if is_split else "name their folder"
        raise BuildError(f"no data*.h5 in {source}: expected snapshots like data-1996-06-14-03-2.h5; {fix}")
    parts = split_names(names)
    missing = {side: sorted(set(parts[side]) - _find_links(source, output / side, parts[side])) for side in SPLITS}
    there = len(names) - sum(map(len, missing.values()))
    with open_bar(total=len(names), initial=there, unit=" links", disable=None) as bar:
        for side in SPLITS:
            (output / side).mkdir(parents=True, exist_ok=True)
            start = os.path.relpath(source.resolve(), (output / side).resolve())
            for name in missing[side]:
                (output / side / name).symlink_to(Path(start, name))
                bar.update()
    return parts


def _find_links(source: Path, folder: Path, names: Sequence[str]) -> set[str]:
    """Return the names in the folder; BuildError unless all are links that belong there."""
    existing = set(list_data(folder)) if folder.is_dir() else set()
    expected = set(names)
    for name in sorted(existing):
        path = folder / name
        if name not in expected or not path.is_symlink() or path.resolve() != (source / name).resolve():
            raise BuildError(
                f"{path} is not a link of this split of {source}; nothing was changed. If snapshots were added or "
                f"removed, or a folder was moved, since the links were made, delete {', '.join(SPLITS)} in "
                f"{folder.parent} and split again; else choose another folder"
            )
    return existing


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = CommandParser("python -m deepcam.split", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("source_dir", type=Path, metavar="SOURCE_DIR", help="all snapshots in one folder")
    parser.add_argument("output_dir", type=folder_path, metavar="OUTPUT_DIR", help="for train, validation and test")
    args = parser.parse_args(argv)

    def run() -> int:
        parts = link_splits(args.source_dir, args.output_dir)
        print(f"{args.output_dir}: " + ", ".join(f"{len(names):,} for {side}" for side, names in parts.items()))
        if (total := sum(map(len, parts.values()))) != PUBLISHED:
            print(f"note: found {total:,} snapshots; the published dataset has {PUBLISHED:,}")
        return 0

    return run_command(run, (BuildError, OSError))


if __name__ == "__main__":
    sys.exit(main())
