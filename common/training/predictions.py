"""Predictions, sample by sample: their files, their quality, a summary and a picture.

Files are HDF5, which takes any number of samples, or npz, which is in memory until it is written. A report is filled
batch by batch. It keeps sums, and a bounded number of rows for the picture: its memory does not grow with the data.
`NumberReport` serves benchmarks that predict a few numbers for each sample, judged by their mean absolute error.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.command import UsageError, check_new
from common.files import whole_file
from common.installed import new_figure
from common.reference import FULL

Rows = Mapping[str, np.ndarray]
"""The columns of a batch of samples, by name."""

INDEX: Final = "index"
NAMES: Final = "names"
HDF5: Final = (".h5", ".hdf5")
NPZ: Final = ".npz"
MOST_NPZ_BYTES: Final = 2**30
"""Of the arrays of an npz file, since they are in memory until it is written."""
NAME_BYTES: Final = 128
"""The longest name of a sample in HDF5, whose strings of any length readers have to trust."""
CHUNK_BYTES: Final = 2**18


class PredictionsError(ValueError):
    """A predictions file cannot be written; the message names it, or the sample."""


class Column(NamedTuple):
    """A column. dtype: in the file. meaning: for people, with the unit."""

    name: str
    dtype: str
    meaning: str


class About(NamedTuple):
    """What a file says of all its samples, in HDF5 as attributes.

    batch_size: samples that were predicted, and whose quality is summed up, at a time. variant: of the problem.
    """

    benchmark: str
    split: str
    batch_size: int
    variant: str = FULL


def _load_h5py() -> Any:
    """Return the module h5py; UsageError without it."""
    try:
        import h5py  # an optional package for some benchmarks
    except ImportError as error:
        raise UsageError(f"HDF5 needs h5py: pip install h5py, or use an {NPZ} file") from error
    return h5py


class Output(NamedTuple):
    """What is to be written: facts, columns besides index and names, and how many samples will come."""

    about: About
    columns: Sequence[Column]
    samples: int

    def convert_rows(self, rows: Rows) -> dict[str, np.ndarray]:
        """Return the index and the columns of a batch, each of its type in the file."""
        dtypes = {INDEX: "i8"} | {column.name: column.dtype for column in self.columns}
        return {name: rows[name].astype(dtype, copy=False) for name, dtype in dtypes.items()}


def check_output(path: Path) -> None:
    """Raise UsageError unless predictions can be written to this file, before anything is computed."""
    if path.suffix not in (NPZ, *HDF5):
        raise UsageError(f"-o {path}: expected a file that ends in {NPZ} (numpy) or {HDF5[0]} (HDF5)")
    check_new("-o", path)
    if path.suffix != NPZ:
        _load_h5py()


@contextmanager
def write_predictions(path: Path, output: Output) -> Iterator[Callable[[Rows], None]]:
    """Yield a function that adds the rows of the next samples; the file appears whole at the end, or not at all.

    Rows have the columns, the index and the names. PredictionsError if they cannot be written.
    """
    write = _write_npz if path.suffix == NPZ else _write_hdf5
    with whole_file(path) as part, write(path, part, output) as add:
        yield add


@contextmanager
def _write_npz(path: Path, part: Path, output: Output) -> Iterator[Callable[[Rows], None]]:
    batches: list[Rows] = []

    def add(rows: Rows) -> None:
        size = sum(values.nbytes for values in rows.values()) * output.samples / len(rows[INDEX])
        if not batches and size > MOST_NPZ_BYTES:
            raise PredictionsError(
                f"{path}: some {size / 2**30:.0f} GiB, and the arrays of an npz file are in memory until it is "
                f"written; name a file that ends in {HDF5[0]}, which is written batch by batch"
            )
        batches.append({**output.convert_rows(rows), NAMES: rows[NAMES]})

    yield add
    arrays = {name: np.concatenate([rows[name] for rows in batches]) for name in batches[0]}
    about = {name: np.array(value) for name, value in output.about._asdict().items()}
    with part.open("wb") as file:
        np.savez_compressed(file, **arrays, **about)


@contextmanager
def _write_hdf5(path: Path, part: Path, output: Output) -> Iterator[Callable[[Rows], None]]:
    file = _load_h5py().File(part, "w")
    try:
        file.attrs.update(output.about._asdict())

        def add(rows: Rows) -> None:
            with _name_file(path):
                for name, values in output.convert_rows(rows).items():
                    _append_rows(file, name, values)
                _append_rows(file, NAMES, _encode_names(rows[NAMES]))

        yield add
    finally:
        with _name_file(path):
            file.close()


@contextmanager
def _name_file(path: Path) -> Iterator[None]:
    """Turn the errors of HDF5, such as that of a full disk, into PredictionsError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise PredictionsError(f"{path}: cannot be written ({error})") from error


def _append_rows(file: Any, name: str, rows: np.ndarray) -> None:
    """Append rows to a dataset of an HDF5 file, which the first ones make."""
    if name not in file:
        shape = rows.shape[1:]
        chunk = max(1, min(2**14, CHUNK_BYTES // max(1, rows[:1].nbytes)))
        file.create_dataset(
            name,
            (0, *shape),
            rows.dtype,
            maxshape=(None, *shape),
            chunks=(chunk, *shape),
            compression="gzip",
            compression_opts=1,
            shuffle=True,
        )
    dataset = file[name]
    start = len(dataset)
    dataset.resize(start + len(rows), axis=0)
    dataset[start:] = rows


def _encode_names(names: np.ndarray) -> np.ndarray:
    """Return names as bytes of a fixed length; PredictionsError for a longer one."""
    encoded = [name.encode() for name in names.tolist()]
    if longer := [name for name in encoded if len(name) > NAME_BYTES]:
        raise PredictionsError(
            f"a sample's name has {len(longer[0])} bytes, and HDF5 files have names of at most {NAME_BYTES}: write "
            f"{NPZ}, or rename the sample {longer[0].decode()!r}"
        )
    return np.array(encoded, f"S{NAME_BYTES}")


ENDINGS: Final = (".png", ".svg", ".pdf")
SAMPLES: Final = 3
"""The samples that are drawn one by one, the first ones."""
POINTS: Final = 5_000
"""The most points in a plot: more would hide each other."""


def arrays(columns: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return columns as arrays in main memory."""
    return {name: values.detach().cpu().numpy() for name, values in columns.items()}


class PredictionReport(ABC):
    """The report on the predictions of a benchmark.

    columns: of its files, besides index and names; the first has one row for each sample. ending: of the files that
    are suggested: .h5 where the full-size problem is too large for npz. variant: of the problem that they are about.
    """

    columns: ClassVar[tuple[Column, ...]]
    ending: ClassVar[str] = ".npz"

    def __init__(self) -> None:
        self.samples, self.variant = 0, FULL
        self._scores = torch.zeros(2, dtype=torch.float64)

    @abstractmethod
    def judge(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Return the sum of the qualities of a batch and their number: what `SampleProblem.judge` returns for it."""

    @abstractmethod
    def count(self, rows: Rows) -> None:
        """Add a batch to what the summary is made of."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the lines of the summary."""

    @abstractmethod
    def draw(self, figure: Any) -> None:
        """Draw the picture in an empty figure of matplotlib."""

    def add(self, rows: Rows, picture_data: Rows | None = None) -> None:
        """Add a batch. picture_data: what the picture needs besides its columns, see `SampleProblem.picture_data`."""
        self.samples += len(rows[self.columns[0].name])
        self._scores += self.judge({column.name: torch.from_numpy(rows[column.name]) for column in self.columns})
        self.count(rows)
        self.keep({**rows, **(picture_data or {})})

    @abstractmethod
    def keep(self, rows: Rows) -> None:
        """Keep some rows of a batch for the picture."""

    @property
    def quality(self) -> float:
        """The quality of all samples so far: the metric of the benchmark."""
        total, number = self._scores.tolist()
        return total / number if number else math.nan


class Thinned:
    """At most POINTS rows of many, evenly spaced."""

    def __init__(self) -> None:
        self._every, self._seen = 1, 0
        self._kept: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Add rows of a table."""
        self._kept.append(rows[-self._seen % self._every :: self._every].copy())
        self._seen += len(rows)
        while sum(map(len, self._kept)) > POINTS:
            self._kept = [np.concatenate(self._kept)[::2]]
            self._every *= 2

    @property
    def rows(self) -> np.ndarray:
        """The rows that were kept."""
        return np.concatenate(self._kept)


def check_picture(path: Path) -> None:
    """Raise UsageError unless a picture can be made and has a known format, before anything is computed."""
    if path.suffix not in ENDINGS:
        raise UsageError(f"--plot {path}: expected a file that ends in {', '.join(ENDINGS)}")
    check_new("--plot", path)
    new_figure()


# -- a few numbers for each sample ---------------------------------------------------------------------------


def absolute_errors(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the absolute errors of numbers, and how many they are: float64 (2,)."""
    total = (predictions - targets).abs().sum(dtype=torch.float64)
    return torch.stack((total, torch.full_like(total, targets.numel())))


def number_columns(labels: tuple[str, ...], meaning: str) -> tuple[Column, ...]:
    """Return the columns for numbers with these names. meaning: what they are."""
    return (
        Column("predictions", "f4", f"{meaning}, as predicted: {', '.join(labels)}"),
        Column("targets", "f4", "the same, from the data"),
    )


class Scale(NamedTuple):
    """A predicted number of 0 stands for `middle`, and one of 1 for `half_range` more, in `unit`."""

    middle: float = 0.0
    half_range: float = 1.0
    unit: str = ""


class NumberReport(PredictionReport):
    """A table and a plot of errors. labels: the names of the numbers; columns: from `number_columns`."""

    labels: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self._points = Thinned()
        self._sums: np.ndarray = np.zeros((5, len(self.labels)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers in this variant of the problem."""
        return self.labels

    @property
    def scales(self) -> tuple[Scale, ...]:
        """How the picture reads each number; here as it is predicted."""
        return (Scale(),) * len(self.labels)

    def judge(self, columns: Mapping[str, Tensor]) -> Tensor:
        return absolute_errors(columns["predictions"], columns["targets"])

    def count(self, rows: Rows) -> None:
        true: np.ndarray = rows["targets"].astype(np.float64)
        wrong = rows["predictions"] - true
        self._sums += np.stack([part.sum(axis=0) for part in (np.abs(wrong), wrong, wrong**2, true, true**2)])

    def keep(self, rows: Rows) -> None:
        self._points.add(np.stack((rows["targets"], rows["predictions"]), axis=1))

    def lines(self) -> Iterator[str]:
        """Yield for each number its errors, and the share of its variance that the predictions explain.

        "-" where the truth of the samples is all the same, as of one sample: it has no variance.
        """
        error, bias, square, t, t_t = self._sums / self.samples
        variance = np.maximum(t_t - t**2, 0.0)
        varies = variance > 1e-12 * t_t  # below, it is rounding
        width = max(8, *map(len, self.names))
        yield f"  {'':<{width}}{'mean |error|':>14}{'mean error':>12}{'rms error':>12}{'R²':>9}"
        for number, label in enumerate(self.names):
            share = f"{1 - square[number] / variance[number]:.4f}" if varies[number] else "-"
            errors = f"{error[number]:>14.5f}{bias[number]:>12.5f}{square[number] ** 0.5:>12.5f}"
            yield f"  {label:<{width}}{errors}{share:>9}"
        if not varies.all():
            yield "  R² is - where the samples do not differ in their truth, as with one sample"

    def draw(self, figure: Any) -> None:
        """Draw for each number the predictions over the truth in its unit, and the errors on one scale for all."""
        points: np.ndarray = self._points.rows.astype(np.float64)
        figure.set_size_inches(max(3.6 * len(self.labels) + 0.6, 8), 5.6)
        axes = figure.subplots(
            2, len(self.labels), squeeze=False, sharex="col", gridspec_kw={"height_ratios": (2.2, 1)}
        )
        dots: dict[str, Any] = {"marker": ".", "linestyle": "", "markersize": 3, "alpha": 0.5}
        largest = 1.05 * float(np.abs(points[:, 1] - points[:, 0]).max()) or 1.0
        for number, (label, scale) in enumerate(zip(self.names, self.scales, strict=True)):
            truth, predicted = scale.middle + scale.half_range * points[:, :, number].T
            upper, lower = axes[:, number]
            ends = (min(truth.min(), predicted.min()), max(truth.max(), predicted.max()))
            upper.plot(ends, ends, color="black", linewidth=0.8)
            upper.plot(truth, predicted, **dots)
            upper.set_title(label)
            lower.axhline(0, color="black", linewidth=0.8)
            lower.plot(truth, predicted - truth, **dots)
            lower.set_ylim(-largest * scale.half_range, largest * scale.half_range)
            lower.set_xlabel(f"true {label}" + (f", {scale.unit}" if scale.unit else ""))
        axes[0, 0].set_ylabel("predicted")
        axes[1, 0].set_ylabel("predicted - true\n(same part of each range)")
