"""Measure how fast records of CosmoFlow are read, ours against other readers, in the same run on the same files.

    python bench/data.py                              everything; makes an environment per peer, 2.5 GB in all
    python bench/data.py --peer tf_data=PYTHON ...    uses an environment that has the peer: tfrecord, dali, tf_data
    python bench/data.py --keep                       also keeps the record

The files are universes of this suite's generator at the published size, 128³ × 4 voxels of int16; they are in memory
(the page cache), so that the disk does not count. CPU seconds are user + system time of all threads. Each measurement
runs in a separate process, imports and a first pass not counted; the readers take turns, and the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from machine import about, cores, describe_machine
from records import add_keep_option, keep_record

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cosmoflow.data import tfrecord  # noqa: E402  (from this tree)
from cosmoflow.simulation import ORIGINAL, Box, draw_labels, simulate  # noqa: E402

READERS = Path(__file__).with_name("data_readers.py")
NAMES = {
    "ours": "this suite",
    "ours_verified": "this suite, CRC of the payload checked",
    "tfrecord": "tfrecord",
    "dali": "DALI",
    "tf_data": "tf.data",
}
PACKAGES = {"tfrecord": "tfrecord", "dali": "nvidia-dali-cuda130", "tf_data": "tensorflow-cpu"}
KINDS = {"gzip": ("ours", "tfrecord", "tf_data"), "raw": ("ours", "ours_verified", "tfrecord", "dali", "tf_data")}
LEVEL = 6  # of gzip, that of the published files
RECORDS = 8
SIDE = 128


# -- files and environments ----------------------------------------------------------------------------------


def write_universe(number: int, folder: Path) -> None:
    """Write a universe in each kind of file."""
    rng = np.random.default_rng([20_190_521, number])
    y = draw_labels(rng, 1)[0]
    x = simulate(y, ORIGINAL, Box(grid=SIDE, particles=SIDE, length_mpc_h=None), rng)
    for kind in KINDS:
        path = folder / kind / f"univ_{number:03d}.tfrecord"
        tfrecord.write_sample(path, x, y, compress=kind == "gzip", level=LEVEL)


def write_files(folder: Path) -> None:
    for kind in KINDS:
        (folder / kind).mkdir()
    print(f"generating {RECORDS} universes of {SIDE}³", file=sys.stderr)
    with ProcessPoolExecutor() as pool:
        list(pool.map(write_universe, range(RECORDS), [folder] * RECORDS))


def interpreters(given: list[str], folder: Path) -> dict[str, str]:
    """Return the Python of each peer: as given, or of a new environment."""
    found = dict(peer.split("=", 1) for peer in given)
    if unknown := set(found) - set(PACKAGES):
        sys.exit(f"unknown peer {min(unknown)!r}; expected one of {', '.join(PACKAGES)}")
    for peer, package in PACKAGES.items():
        if peer not in found:
            print(f"{package} is installed", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", str(folder / peer)], check=True)
            found[peer] = str(folder / peer / "bin" / "python")
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package, "numpy"]
            subprocess.run([found[peer], *install], check=True)
    return found | {"ours": sys.executable, "ours_verified": sys.executable}


# -- running -------------------------------------------------------------------------------------------------


def measured(python: str, reader: str, kind: str, folder: Path, passes: int) -> dict[str, Any]:
    """Return what one process took, per record."""
    threads = str(cores())
    # -P: bench/ has a cosmoflow.py too, and must not come before the package of this name.
    command = [python, "-P", str(READERS), reader, kind, str(folder / kind), threads, str(passes)]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT) if reader.startswith("ours") else "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{reader} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for key in ("cpu_s", "wall_s"):
        result[key] /= result["records"]
    print(f"{kind:5} {reader:14} {result['cpu_s'] * 1e3:8.2f} ms CPU {result['wall_s'] * 1e3:8.2f} ms", file=sys.stderr)
    return result


def measure_all(pythons: dict[str, str], folder: Path, runs: int, passes: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return for each kind of file the medians of each reader; all must have read the same voxels."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = {
        kind: {reader: [] for reader in readers} for kind, readers in KINDS.items()
    }
    for _ in range(runs):
        for kind, readers in results.items():
            for reader, found in readers.items():
                found.append(measured(pythons[reader], reader, kind, folder, passes))
    checksums = {one["checksum"] for readers in results.values() for found in readers.values() for one in found}
    if len(checksums) != 1:
        sys.exit(f"the readers do not read the same voxels: {results}")
    return {
        kind: {
            reader: {key: median(one[key] for one in found) for key in ("cpu_s", "wall_s")}
            | {key: found[0][key] for key in ("module", "version")}
            | {"cpu_s_of_runs": [one["cpu_s"] for one in found], "wall_s_of_runs": [one["wall_s"] for one in found]}
            for reader, found in readers.items()
        }
        for kind, readers in results.items()
    }


# -- the table -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A reader's line: per record, and compared with ours in the same run."""

    reader: str
    cpu_ms: float
    range_ms: str
    records_per_s: float
    cpu_ratio: float
    wall_ratio: float


def rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    own = found["ours"]
    for reader, one in found.items():
        yield Row(
            NAMES[reader],
            one["cpu_s"] * 1e3,
            f"{min(one['cpu_s_of_runs']) * 1e3:.0f}–{max(one['cpu_s_of_runs']) * 1e3:.0f}",
            1 / one["wall_s"],
            one["cpu_s"] / own["cpu_s"],
            one["wall_s"] / own["wall_s"],
        )


def table(results: dict[str, dict[str, dict[str, Any]]], facts: dict[str, Any]) -> str:
    """Return the Markdown page."""
    readers = [one for found in results.values() for one in found.values()]
    versions = ", ".join(
        f"{name} {number}" for name, number in sorted({(one["module"], one["version"]) for one in readers})
    )
    lines = [
        "# Performance of reading CosmoFlow's records",
        "",
        f"Measured by `bench/data.py` on {describe_machine(facts)}, {versions}. "
        f"The load average was {facts['load']:.1f} when it began, from other work.",
        f"Samples of {SIDE}³ × 4 voxels (16.8 MB) in the page cache are read into batches in memory with {cores()} "
        "threads (tfrecord has none). Medians of runs that take turns, and least to most; CPU time is user + system. "
        "× is a reader's time over ours.",
    ]
    for kind, found in results.items():
        title = f"gzip level {LEVEL}" if kind == "gzip" else "not compressed"
        lines += ["", f"| {title} | CPU per record | | records/s | |", "|---|---:|---:|---:|---:|"]
        for row in rows(found):
            cpu, wall = (
                f"{row.cpu_ms:.1f} ({row.range_ms}) ms | {row.cpu_ratio:.1f} ×",
                f"{row.records_per_s:.0f} | {row.wall_ratio:.1f} ×",
            )
            lines.append(f"| {row.reader} | {cpu} | {wall} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print the tables; exit 1 if a peer needs less CPU time than ours."""
    given = _arguments()
    facts = about()
    with tempfile.TemporaryDirectory(prefix="bench-data-") as name:
        folder = Path(name)
        pythons = interpreters(given.peer, folder)
        write_files(folder)
        results = measure_all(pythons, folder, given.runs, given.passes)
    print(table(results, facts))
    if given.keep:
        keep_record("data", {**facts, "results": results})
    return 0 if all(row.cpu_ratio >= 1 for found in results.values() for row in rows(found)) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="an environment of a peer")
    parser.add_argument("--runs", type=int, default=5, help="processes per reader and kind of file (default: 5)")
    parser.add_argument("--passes", type=int, default=4, help="passes over the files in each (default: 4)")
    add_keep_option(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
