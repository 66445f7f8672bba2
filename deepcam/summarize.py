"""The command that computes stats.h5, by which channels are scaled to [0, 1], from the training snapshots."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np
import torch

from common.command import CommandParser, run_command
from common.console import open_bar, print_error
from common.data.build import DATASET_ERRORS, ERRORS_SHOWN, BadItemError, BuildError
from common.data.hdf5 import open_hdf5
from common.files import explain_lost_link, suggest_folder
from common.processes import in_threads, usable_cores
from common.ranks.connect import connect
from common.ranks.dist import Dist
from common.settings.machine import DistConfig
from deepcam.data import snapshot, values
from deepcam.data.values import Stats, StatsError
from deepcam.reference import CHANNELS

TOLERANCE: Final = 1e-3
"""Of means, relative to a channel's largest value: the reference sums in float32."""
KEPT: Final = "nothing was written: if the file belongs to other snapshots, delete it and run the command again"
DESCRIPTION: Final = """\
Read DATA_DIR/train/data-*.h5 and write DATA_DIR/stats.h5: their count, and per channel the mean, the mean of the
squares, the smallest and the largest value; all pixels have equal weight, as in the reference.

Under srun, mpirun or torchrun the ranks share the files; the numbers are the same for any number of ranks. An existing
stats.h5 is compared with the new numbers and not changed; a difference is an error.
"""
EXAMPLES: Final = """\
examples:
  python -m deepcam.summarize data/deepcam
  srun -N 8 --ntasks-per-node 16 python -m deepcam.summarize All-Hist
"""


def summarize_folder(folder: Path, dist: Dist) -> Stats:
    """Write the statistics of the snapshots in `folder`/train to `folder`/stats.h5 and return them: a collective call.

    BuildError on all ranks, with nothing written, if there are no snapshots, some are unusable (the message names
    them), a channel is constant, or stats.h5 has other numbers. A damaged stats.h5 is replaced.
    """
    train = folder / "train"
    names = dist.broadcast_json(sorted(path.name for path in train.glob("data-*.h5")) if dist.is_main else None)
    if not names:
        raise BuildError(f"no data-*.h5 in {train}{suggest_folder(folder, ['train'])}: expected the training snapshots")
    table = _gather_measures(train, names, dist)
    mean, sqmean = table[:, :2].mean(axis=0)
    result = Stats(len(names), mean, sqmean, table[:, 2].min(axis=0), table[:, 3].max(axis=0))
    if constant := [CHANNELS[i].name for i in np.flatnonzero(result.minval == result.maxval)]:
        raise BuildError(f"{train}: constant channels cannot be scaled to [0, 1]: {', '.join(constant)}")
    if problem := dist.broadcast_json(_write_or_compare(folder / values.NAME, result) if dist.is_main else None):
        raise BuildError(problem)
    return result


def measure_channels(data_HWC: np.ndarray) -> np.ndarray:
    """Return mean, mean square, minimum and maximum of each channel of a float32 array, as float64 (4, C)."""
    height, width, channels = data_HWC.shape
    total, squares = np.zeros((2, channels))
    for row_WC in data_HWC:  # so that the copy in float64 stays in the cache
        row_WC = row_WC.astype(np.float64)
        total += row_WC.sum(axis=0)
        squares += np.einsum("wc,wc->c", row_WC, row_WC)
    pixels = height * width
    low, high = data_HWC.min(axis=0).min(axis=0), data_HWC.max(axis=0).max(axis=0)
    return np.stack([total / pixels, squares / pixels, low, high])


def _gather_measures(train: Path, names: Sequence[str], dist: Dist) -> np.ndarray:
    """Return the measures of all snapshots, sorted by name, float64 (N, 4, C), on all ranks; BuildError on all."""
    mine = names[dist.rank :: dist.world_size]
    workers = max(1, usable_cores() // dist.local_size)
    with closing(in_threads(_measure_file, [train / name for name in mine], workers)) as measured:
        quiet = None if dist.is_main else True
        results = list(open_bar(measured, total=len(mine), unit=" snapshots", desc=f"summarize {train}", disable=quiet))
    bad = [[name, result] for name, result in zip(mine, results, strict=True) if isinstance(result, str)]
    if count := int(dist.all_reduce(torch.tensor(len(bad)))):
        rows = sorted(row for part in dist.gather_json(bad[:ERRORS_SHOWN]) for row in part)
        lines = [f"{count:,} snapshots cannot be used:"]
        lines += [text for _, text in rows[:ERRORS_SHOWN]]
        if count > ERRORS_SHOWN:
            lines.append(f"and {count - ERRORS_SHOWN:,} more")
        if rows and (lost := explain_lost_link(path := train / rows[0][0], count)):
            lines = [f"{path}: {lost}"]
        raise BuildError(dist.broadcast_json("\n  ".join(lines)))
    table = torch.zeros(len(names), 4, len(CHANNELS), dtype=torch.float64)
    for i, result in enumerate(results):
        table[dist.rank + i * dist.world_size] = torch.from_numpy(result)
    return dist.all_reduce(table).numpy()


def _measure_file(path: Path) -> np.ndarray | str:
    """Return the measures of a snapshot, or an error message."""
    try:
        with open_hdf5(path) as file:
            height, width = (*snapshot.hdf5_array(file, snapshot.DATA).shape, 0, 0)[:2]
        data_HWC, _ = snapshot.read_arrays(path, (height, width, len(CHANNELS)))
    except (BadItemError, OSError) as error:
        return str(error)
    measures = measure_channels(data_HWC)
    if not np.isfinite(measures).all():
        return f"{path}: `{snapshot.DATA}` has values that are not finite; fetch it again"
    return measures


def _write_or_compare(path: Path, result: Stats) -> str:
    """Write the statistics to the file; if it has others, return the first difference."""
    try:
        there = values.read_stats(path)
    except StatsError:
        values.write_stats(path, result)
        return ""
    if there.count != result.count:
        return f"{path} is from {there.count:,} snapshots, but {result.count:,} were found; {KEPT}"
    largest = np.maximum(np.abs(result.minval), np.abs(result.maxval))
    allowed = {"mean": TOLERANCE * largest, "sqmean": TOLERANCE * largest**2}
    for name in values.VECTORS:
        old, new = getattr(there, name), getattr(result, name)
        for i in np.flatnonzero(np.abs(old - new) > allowed.get(name, 0.0)):
            return f"{path}: {name} of {CHANNELS[i].name} is {old[i]:g}, but {new[i]:g} in the snapshots; {KEPT}"
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = CommandParser("python -m deepcam.summarize", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("data_dir", type=Path, metavar="DATA_DIR", help="folder with train, where to write stats.h5")
    folder: Path = parser.parse_args(argv).data_dir

    def run() -> int:
        # A day for the slowest rank: the published data are 8.8 TB.
        with connect(DistConfig(device="cpu", timeout_s=24 * 3600.0)) as dist:
            try:
                result = summarize_folder(folder, dist)
            except BuildError as error:  # on all ranks; one of them reports it
                if dist.is_main:
                    print_error(error)
                return 1
            if dist.is_main:
                print(f"{folder / values.NAME}: statistics of {result.count:,} snapshots")
        return 0

    return run_command(run, DATASET_ERRORS)


if __name__ == "__main__":
    sys.exit(main())
