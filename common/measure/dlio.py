"""The command that writes a workload for DLIO from a measurement: how fast storage must be for it, on any machine.

Keys as in github.com/argonne-lcf/dlio_benchmark/docs/source/config.rst. DLIO 2.0.0 says record_length where later
versions and MLPerf Storage say record_length_bytes, and each ignores the other's, so both are written.
"""

from __future__ import annotations

import argparse
import struct
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Final, Literal

import yaml

from common.command import UsageError, check_new, place, positive
from common.files import list_data, write_whole_file
from common.measure.fom import Measurement, read_measurement

SUMMARY: Final = "write a DLIO workload from a measurement"
DESCRIPTION: Final = """\
Write a workload of DLIO 2.0 and MLPerf Storage to test the storage of any machine. Number and size of the training
files come from DIR/train, batch and time of a step without waiting for data from fom.json.

  TFRecord, HDF5   a sample per file; DLIO emulates the bytes of gzipped files, not their decompression
  LMDB             DLIO has none: as mmap_indexed_binary, samples of the mean size at once in a file
Samples of several files (.npy) and other formats are not supported.

example:
  python -m common.measure dlio runs/cosmoflow-measure/fom.json --data data/cosmoflow -o cosmoflow.yaml"""
GZIP: Final = b"\x1f\x8b"
LMDB_MAGIC: Final = struct.pack("=I", 0xBEEFC0DE)


@dataclass(frozen=True)
class Format:
    """A format of files. name, loader: DLIO's for it."""

    ending: str
    name: str
    loader: Literal["tensorflow", "pytorch"]


FORMATS: Final = (
    Format(".tfrecord", "tfrecord", "tensorflow"),  # DLIO reads these in no other way
    Format(".h5", "hdf5", "pytorch"),
    Format(".hdf5", "hdf5", "pytorch"),
    Format(".lmdb", "mmap_indexed_binary", "pytorch"),
)


@dataclass(frozen=True)
class Files:
    """The training files: as many samples in each."""

    format: Format
    count: int
    samples_per_file: int
    sample_bytes: float
    sample_bytes_stdev: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("fom", type=place, help="the file that a measurement has written")
    parser.add_argument("--data", required=True, type=place, metavar="DIR", help="a dataset, with train/")
    parser.add_argument("-o", "--output", required=True, type=place, help="the file to write, such as cosmoflow.yaml")
    parser.add_argument("--read-threads", type=positive, default=4, metavar="N", help="of each accelerator (4)")
    parser.add_argument("--epochs", type=positive, default=5, metavar="N", help="(5, as in MLPerf Storage)")
    parser.add_argument(
        "--au", type=float, default=0.9, help="least utilisation of the accelerators; MLPerf Storage: 0.9 or 0.7 (0.9)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the workload."""
    if not 0 < arguments.au <= 1:
        raise UsageError(f"--au is {arguments.au:g}; expected a share, above 0 and at most 1")
    check_new("-o", arguments.output)
    measurement = read_measurement(arguments.fom)
    files = scan_files(arguments.data / "train")
    text = yaml.safe_dump(build_workload(measurement, files, arguments), sort_keys=False)
    write_whole_file(arguments.output, f"{_format_header(measurement, files)}\n{text}")
    size = f"{files.sample_bytes:,.0f} ± {files.sample_bytes_stdev:,.0f} bytes"
    print(
        f"{arguments.output}: {files.count:,} files of {files.format.name}, {files.samples_per_file:,} × {size} in each"
    )
    return 0


def scan_files(folder: Path) -> Files:
    """Return what is in the folder of training files; UsageError for what DLIO cannot emulate."""
    try:
        files = (folder / name for name in list_data(folder))
        entries = [(path.name, path.stat().st_size) for path in files if path.is_file()]
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; expected a folder of training files") from error
    entries_of = {kind: [entry for entry in entries if entry[0].endswith(kind.ending)] for kind in FORMATS}
    formats = [kind for kind in FORMATS if entries_of[kind]]
    if len(formats) != 1:
        endings = ", ".join(kind.ending for kind in FORMATS)
        actual = " and ".join(kind.ending for kind in formats) or f"none among its {len(entries):,} files"
        raise UsageError(f"{folder}: expected files of one format that DLIO can emulate ({endings}); found {actual}")
    kind = formats[0]
    names, sizes = zip(*entries_of[kind], strict=True)
    for name in {names[0], names[sizes.index(min(sizes))]}:
        _check_content(kind, folder / name)
    if kind.ending != ".lmdb":
        return Files(kind, len(sizes), 1, fmean(sizes), pstdev(sizes))
    samples = sum(_lmdb_entries(folder / name) for name in names)
    if samples < len(names):
        raise UsageError(f"{folder}: {len(names)} files hold {samples} samples; expected at least one in each")
    return Files(kind, len(names), round(samples / len(names)), sum(sizes) / samples, 0.0)


def build_workload(measurement: Measurement, files: Files, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the sections of the workload. A step's time is that of the measurement without its waiting for data."""
    mean, stdev = round(files.sample_bytes), round(files.sample_bytes_stdev)
    computing_s = max(0.0, measurement.median_step_ms - measurement.waiting_ms) / 1000
    return {
        "model": measurement.benchmark,
        "framework": files.format.loader,
        "workflow": {"generate_data": False, "train": True},
        "dataset": {
            "data_folder": f"data/dlio-{measurement.benchmark}",
            "format": files.format.name,
            "num_files_train": files.count,
            "num_samples_per_file": files.samples_per_file,
            "record_length": mean,
            "record_length_stdev": stdev,
            "record_length_bytes": mean,
            "record_length_bytes_stdev": stdev,
        },
        "reader": {
            "data_loader": files.format.loader,
            "batch_size": max(1, round(measurement.batch / measurement.units)),
            "read_threads": arguments.read_threads,
            "file_shuffle": "seed",
            "sample_shuffle": "seed",
        },
        "train": {"epochs": arguments.epochs, "computation_time": round(computing_s, 6)},
        "metric": {"au": arguments.au},
    }


def _format_header(measurement: Measurement, files: Files) -> str:
    lines = [
        f"# A workload for DLIO, from a measurement of {measurement.date}. As DIR/workload/NAME.yaml it is run by",
        "# `dlio_benchmark --config-dir DIR workload=NAME`. DLIO generates its own files in data_folder.",
    ]
    if files.format.ending == ".lmdb":
        lines.append("# The samples are in LMDB, which DLIO lacks: mmap_indexed_binary is the nearest to it.")
    return "\n".join(lines)


def _check_content(kind: Format, path: Path) -> None:
    """Raise UsageError if a file is not what its ending says."""
    with path.open("rb") as file:
        head = file.read(24)
    size = path.stat().st_size
    right_heads = {
        ".tfrecord": head[:2] == GZIP or (len(head) >= 12 and struct.unpack("<Q", head[:8])[0] + 16 == size),
        ".lmdb": head[16:20] == LMDB_MAGIC,
    }
    if not right_heads.get(kind.ending, head.startswith(b"\x89HDF\r\n\x1a\n")):
        expected = "a TFRecord of one sample" if kind.ending == ".tfrecord" else f"a whole file of {kind.ending[1:]}"
        raise UsageError(f"{path}: not {expected}, as its ending says; fetch or make it again")


def _lmdb_entries(path: Path) -> int:
    """Return the number of samples in an LMDB file: all keys but `length`."""
    try:
        import lmdb  # an optional package
    except ModuleNotFoundError:
        raise UsageError(f"{path}: counting its samples needs lmdb; pip install lmdb") from None
    try:
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as file, file.begin() as transaction:
            return int(transaction.stat()["entries"]) - (transaction.get(b"length") is not None)
    except lmdb.Error as error:
        raise UsageError(f"{path}: {error}; fetch or make it again") from error
