"""Measure the formats of CosmoFlow's samples: bytes, CPU time to read, and what a slow storage makes of them.

    python bench/packed.py
    python bench/packed.py --keep     also keeps the record

Fields of 128³ × 4 are simulated (2LPT, as bench/feed.py has them) and clumped as N-body fields are (Poisson counts of a
lognormal density). One thread reads each format from the page cache; the formats take turns, and the median counts.

Then a consumer computes for a fixed time per sample, and the storage gives 16 % of the int16 counts that it asks for:
what a node of eight H100s has (25 of 157 GB/s). The storage is a bucket of tokens in front of the readers.

Of DeepCAM's snapshots, bits of equal weight are put together and compressed without loss.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from machine import about, describe_machine
from records import add_keep_option, keep_record

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from common.command import positive
from common.data.prefetch import read_batches
from cosmoflow.data import raw, tfrecord
from cosmoflow.data.dataset import DataConfig, Dataset
from cosmoflow.data.sample_files import ENDINGS, SampleFormat, read_sample
from cosmoflow.data.tfrecord import Sample
from cosmoflow.simulation import ORIGINAL, Box, draw_labels, simulate
from deepcam.simulation.snapshot_generator import PRESETS as WEATHER

SIDE: Final = 128
SHAPE: Final = (SIDE, SIDE, SIDE, 4)
SPREADS: Final = (2.0, 1.7, 1.2, 0.8)
"""Standard deviations of the logarithm of the density at the four redshifts, so that halos have 1,000 particles."""
NODE_GB_PER_S: Final = 157
"""That a node of eight H100s asks for, in int16."""
SHARE: Final = 0.16
"""Of the int16 counts that the consumer asks for, what the storage gives in bytes."""
FORMATS: Final = {
    "packed": "packed",
    "gzip": "TFRecord, gzip level 6, as published",
    "gzip 1": "TFRecord, gzip level 1, as `repack` writes it",
    "raw": "TFRecord, not compressed",
    "npy": "npy",
    "hdf5": "HDF5, a raw universe",
}
THROTTLED: Final = ("packed", "gzip", "raw")
FOLDERS: Final = {"packed": "packed", "gzip": "tfrecord", "raw": "tfrecord"}
"""Their `data.format`."""
CODECS: Final = {"zlib 1": partial(zlib.compress, level=1), "zlib 6": zlib.compress}
GOAL_CPU, GOAL_BYTES, GOAL_GZIP = 1.5e9, 3.5, 4.0
"""Of packed samples: int16 bytes per CPU second, times fewer bytes than int16, times gzip's rate at level 1."""


def draw_lognormal(rng: np.random.Generator) -> np.ndarray:
    """Return Poisson counts of a lognormal density with the spectrum k^-2.4 and a mean of one particle per voxel."""
    full, half = np.fft.fftfreq(SIDE), np.fft.rfftfreq(SIDE)
    k2 = full[:, None, None] ** 2 + full[:, None] ** 2 + half**2
    k2[0, 0, 0] = 1
    field = np.fft.irfftn(np.fft.rfftn(rng.standard_normal((SIDE,) * 3)) * k2**-0.6, s=(SIDE,) * 3, axes=(0, 1, 2))
    field /= field.std()
    counts = [rng.poisson(np.minimum(np.exp(s * field - s * s / 2), 30_000)).astype(np.int16) for s in SPREADS]
    return np.stack(counts, axis=-1)


def draw_universe(rng: np.random.Generator) -> np.ndarray:
    return simulate(draw_labels(rng, 1)[0], ORIGINAL, Box(grid=SIDE, particles=SIDE, length_mpc_h=None), rng)


FIELDS: Final = {"lognormal-Poisson": draw_lognormal, "2LPT": draw_universe}


# -- bytes and CPU time --------------------------------------------------------------------------------------


def write_format(folder: Path, kind: str, name: str, x: np.ndarray) -> None:
    """Write a sample."""
    folder.mkdir(parents=True, exist_ok=True)
    y = np.zeros(4, np.float32)
    if kind == "hdf5":
        raw.write_universe(folder / f"{name}.hdf5", x, y, ORIGINAL)
    elif kind.startswith("gzip"):
        tfrecord.write_sample(folder / f"{name}.tfrecord", x, y, level=1 if kind == "gzip 1" else 6)
    else:
        SampleFormat("tfrecord" if kind == "raw" else kind, gzip=False).write_sample(folder / name, x, y)


def read_format(folder: Path, kind: str, name: str, into: Sample) -> None:
    """Read a sample."""
    if kind == "hdf5":
        with raw.open_universe(folder / f"{name}.hdf5") as universe:
            (into.x[:],) = universe.read_slabs(SIDE)
    else:
        format = "tfrecord" if kind.startswith("gzip") or kind == "raw" else kind
        read_sample([folder / f"{name}{ending}" for ending in ENDINGS[format]], into)


def measure_reading(folder: Path, runs: int) -> list[dict[str, Any]]:
    """Return bytes and CPU times of each format for each kind of field."""
    rows = []
    into = Sample.empty(SHAPE)
    for field, draw in FIELDS.items():
        x = draw(np.random.default_rng(20_261_130))
        name = field.replace("-", "_")
        for kind in FORMATS:
            write_format(folder / kind, kind, name, x)
        times: dict[str, list[float]] = {kind: [] for kind in FORMATS}
        for _ in range(runs + 1):  # the first is not counted
            for kind, seconds in times.items():
                begin = time.thread_time()
                read_format(folder / kind, kind, name, into)
                seconds.append(time.thread_time() - begin)
                assert np.array_equal(into.x, x)
        for kind, seconds in times.items():
            size = sum(path.stat().st_size for path in (folder / kind).glob(f"{name}*"))
            counted = seconds[1:]
            rows.append(
                {"field": field, "kind": kind, "bytes": size, "cpu_s": median(counted), "cpu_s_of_runs": counted}
            )
            print(f"{field:18} {kind:8} {size / 1e6:6.2f} MB {median(counted) * 1e3:7.2f} ms CPU", file=sys.stderr)
        rows[-len(FORMATS)]["exceptions"] = float(((x < 0) | (x > 15)).mean())
    return rows


# -- a slow storage ------------------------------------------------------------------------------------------


class Bucket:
    """A storage that gives so many bytes per second, to whichever thread asks first."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s, self.free_at = bytes_per_s, time.monotonic()
        self.lock = threading.Lock()

    def take(self, size: int) -> None:
        """Wait until the storage has given so many bytes."""
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic()) + size / self.bytes_per_s
            wait_s = self.free_at - time.monotonic()
        time.sleep(max(0.0, wait_s))


class ThrottledDataset(Dataset):
    """A dataset on such a storage."""

    bucket: Bucket

    def read_into(self, index: int, into: tuple[np.ndarray, ...]) -> None:
        self.bucket.take(sum(path.stat().st_size for path in self.paths(index)))
        super().read_into(index, into)


def measure_waiting(folder: Path, step_s: float, samples: int, runs: int) -> list[dict[str, Any]]:
    """Return for each format how long a consumer waits, by the time that it computes; lognormal fields."""
    waits: dict[str, list[float]] = {kind: [] for kind in THROTTLED}
    for kind in THROTTLED:
        (folder / kind / "train").mkdir()
        (source,) = (folder / kind).glob("lognormal*")
        for number in range(4):
            (folder / kind / "train" / f"{number}{source.suffix}").hardlink_to(source)
    for _ in range(runs):
        for kind, found in waits.items():
            config = DataConfig(folder / kind, sample_shape=SHAPE, format=FOLDERS[kind], workers=2)
            dataset = ThrottledDataset(folder / kind / "train", config)
            dataset.bucket = Bucket(SHARE * 2 * np.prod(SHAPE) / step_s)
            order = (np.array([i % 4]) for i in range(samples))
            first, *others = _consume(dataset, order, step_s)
            found.append(sum(others) / len(others))
            print(f"{kind:8} {found[-1]:.3f} s waited for a step of {step_s:g} s, {first:.3f} first", file=sys.stderr)
    return [{"kind": kind, "wait_s": median(found), "wait_s_of_runs": found} for kind, found in waits.items()]


def _consume(dataset: Dataset, order: Iterator[np.ndarray], step_s: float) -> Iterator[float]:
    """Yield the seconds that the consumer waited for each sample."""
    for batch in read_batches(dataset, order, torch.device("cpu")):
        yield batch.wait_s
        time.sleep(step_s)


# -- DeepCAM -------------------------------------------------------------------------------------------------


def shuffle_bits(values: np.ndarray) -> bytes:
    """Return float32 numbers with all their first bits first, then all their second ones, and so on."""
    bits = np.unpackbits(values.reshape(-1).view(np.uint8).reshape(-1, 4)[:, ::-1], axis=1)  # the sign first
    return np.packbits(bits.T).tobytes()


def measure_bit_shuffle() -> list[dict[str, Any]]:
    """Return the bytes of a snapshot of each size by float32, channel by channel."""
    rows = []
    for preset, recipe in WEATHER.items():
        fields, _ = recipe.simulate_snapshot(20_261_130, 0, 0)
        channels = [np.ascontiguousarray(fields[..., channel]) for channel in range(fields.shape[-1])]
        for codec, compress in CODECS.items():
            parts = [len(compress(shuffle_bits(channel))) / channel.nbytes for channel in channels]
            plain = [len(compress(channel.tobytes())) / channel.nbytes for channel in channels]
            share = {"shuffled": float(np.mean(parts)), "plain": float(np.mean(plain)), "least": min(parts)}
            rows.append({"preset": preset, "codec": codec, **share})
            print(f"deepcam {preset} {codec}: {share}", file=sys.stderr)
    return rows


# -- the page ------------------------------------------------------------------------------------------------


def lines(result: dict[str, Any]) -> Iterator[str]:
    int16 = 2 * SIDE**3 * 4
    yield "# Bytes per sample"
    yield ""
    yield (
        f"`bench/packed.py`, {describe_machine(result)}. Load average {result['load']:.1f} before, from other work. "
        f"CosmoFlow's samples of 128³ × 4 counts, read by one thread from the page cache into int16, which is counted; "
        f"medians of {result['runs']} readings that take turns, and least to most. Gzip is inflated by ISA-L. Cores: "
        f"for the {NODE_GB_PER_S} GB/s of int16 that a node of eight H100s asks for."
    )
    yield ""
    yield "| field | format | MB | × fewer than int16 | bits per count | CPU, ms | int16 GB per CPU second | cores |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for row in result["formats"]:
        least, most = (bound(row["cpu_s_of_runs"]) * 1e3 for bound in (min, max))
        yield (
            f"| {row['field']} | {FORMATS[row['kind']]} | {row['bytes'] / 1e6:.2f} | {int16 / row['bytes']:.2f} | "
            f"{row['bytes'] * 16 / int16:.2f} | {row['cpu_s'] * 1e3:.1f} ({least:.1f}–{most:.1f}) | "
            f"{int16 / row['cpu_s'] / 1e9:.2f} | {NODE_GB_PER_S * 1e9 * row['cpu_s'] / int16:.0f} |"
        )
    yield ""
    for field in FIELDS:
        rows = {row["kind"]: row for row in result["formats"] if row["field"] == field}
        ours = rows["packed"]
        times = [rows[kind]["cpu_s"] / ours["cpu_s"] for kind in ("gzip", "gzip 1")]
        yield (
            f"{field}: {ours['exceptions']:.2%} of the counts need more than four bits. Packed samples are read with "
            f"{times[0]:.1f} times the rate of gzip as published and {times[1]:.1f} times that of gzip at level 1 "
            f"(goals: {GOAL_BYTES} × fewer bytes, {GOAL_CPU / 1e9} GB per CPU second, {GOAL_GZIP:g} times gzip)."
        )
        yield ""
    yield "## A slow storage"
    yield ""
    yield (
        f"A consumer computes {result['step_s']:g} s for a sample, and the storage gives {SHARE:.0%} of the int16 "
        "bytes that it asks for, as 25 GB/s do where eight H100s ask for 157. Two threads read lognormal fields; the "
        "seconds waited for a sample, without the first, and the share of the time in which the consumer computes. By "
        "bytes alone: the same share if decoding took no time. Gzip has fewer bytes than four bits for each count, and "
        "is the better form where the cores for it are free."
    )
    yield ""
    yield "| format | waited, s | computes | by bytes alone |"
    yield "|---|---:|---:|---:|"
    sizes = {row["kind"]: row["bytes"] for row in result["formats"] if row["field"] == "lognormal-Poisson"}
    for row in result["waiting"]:
        step_s = result["step_s"]
        yield (
            f"| {FORMATS[row['kind']]} | {row['wait_s']:.3f} | {step_s / (step_s + row['wait_s']):.0%} | "
            f"{min(1.0, SHARE * int16 / sizes[row['kind']]):.0%} |"
        )
    yield ""
    yield "## DeepCAM"
    yield ""
    yield (
        "Bits of equal weight put together, then compressed, channel by channel, of one generated snapshot: the share "
        "of the bytes of float32 that remains. It does not halve them, so that no such format was made; the low bits "
        "of the numbers look random, and those have no shorter form."
    )
    yield ""
    yield "| snapshot | codec | bits put together | as they are | best channel |"
    yield "|---|---|---:|---:|---:|"
    for row in result["deepcam"]:
        yield (
            f"| {row['preset']} | {row['codec']} | {row['shuffled']:.0%} | {row['plain']:.0%} | {row['least']:.0%} |"
        )


def page(result: dict[str, Any]) -> str:
    """Return the Markdown page."""
    return "\n".join(lines(result)) + "\n"


def main() -> int:
    """Measure, and print the page; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=9, help="readings of each format (default: 9)")
    parser.add_argument("--step-ms", type=float, default=200.0, help="of the consumer, per sample (default: 200)")
    parser.add_argument("--samples", type=positive, default=20, help="that the consumer takes (default: 20)")
    add_keep_option(parser)
    given = parser.parse_args()
    result = {**about(), "runs": given.runs, "step_s": given.step_ms / 1e3}
    with tempfile.TemporaryDirectory(prefix="bench-packed-") as name:
        result["formats"] = measure_reading(Path(name), given.runs)
        result["waiting"] = measure_waiting(Path(name), result["step_s"], given.samples, 3)
    result["deepcam"] = measure_bit_shuffle()
    print(page(result))
    if given.keep:
        keep_record("packed", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
