"""Climate samples in NetCDF files: a variable for each channel and one for the labels, as those of ClimateNet have.

Classic files (NetCDF-3) are read by scipy; NetCDF-4 files are HDF5, and read by h5py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from common.data.build import BadItemError
from common.data.hdf5 import find_dataset, name_damage, open_hdf5
from common.file_kind import HDF5, HEAD_BYTES, NETCDF, explain_kind, find_kind
from common.tree import open_regular
from deepcam.data.snapshot import SnapshotBuffer
from deepcam.data.values import FILL

CLASSIC_ERRORS: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, struct.error)
"""Errors that scipy raises for damaged files."""
LABELS: Final = "LABELS"
MISSING: Final = ("_FillValue", "missing_value")
"""Attributes with the number that stands for no value."""


Variable = tuple[np.ndarray, Mapping[str, Any]]
"""What a file has under a name: numbers of any type, as stored, and attributes."""


class Names(NamedTuple):
    """The names of the variables: of each channel, in the order of CHANNELS, and of the labels."""

    channels: tuple[str, ...]
    labels: str


def read_sample(path: Path, names: Names) -> tuple[np.ndarray, np.ndarray]:
    """Return the channels, float32 (H, W, C), and the labels, uint8 (H, W), of a file with one time.

    Packed numbers (scale_factor, add_offset) are unpacked. BadItemError for a damaged file, and for a variable that is
    missing or has no numbers, another shape than the first one, or pixels without a value; OSError if it is unreadable.
    """
    with _open_variables(path) as find:
        fields = [_unpack_field(f"{path}: `{name}`", *find(name)) for name in names.channels]
        stored, attributes = find(names.labels)
    for name, field in zip(names.channels, fields, strict=True):
        if field.shape != fields[0].shape:
            raise BadItemError(
                f"{path}: `{name}` has the shape {field.shape}, but `{names.channels[0]}` {fields[0].shape}; expected "
                "the same for all channels"
            )
    labels_HW = np.empty(fields[0].shape, np.uint8)
    title = f"{path}: `{names.labels}`"
    numbers = _select_pixels(title, stored)
    _check_values(title, numbers, attributes)
    if (fractions := numbers % 1 != 0).any():
        raise BadItemError(
            f"{title} is not a label: it has {numbers[fractions][0]:g}; expected 0, 1 or 2 at each pixel: name the "
            "variable of the labels by --labels NAME"
        )
    SnapshotBuffer(np.empty(0, np.float32), labels_HW).take_labels(numbers, title)
    return np.stack(fields, axis=-1), labels_HW


def _unpack_field(title: str, stored: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """Return the numbers of a channel, float32 (H, W)."""
    packed = _select_pixels(title, stored)
    _check_values(title, packed, attributes)
    scale = _read_number(attributes, "scale_factor", 1.0)
    offset = _read_number(attributes, "add_offset", 0.0)
    field: np.ndarray = (packed if (scale, offset) == (1, 0) else packed * scale + offset).astype(np.float32)
    _check_values(title, field, {})
    return field


def _select_pixels(title: str, values: np.ndarray) -> np.ndarray:
    """Return the numbers without axes of length one before the last two, such as that of time."""
    if values.dtype.kind not in "iuf":
        raise BadItemError(f"{title} has the type {values.dtype}; expected numbers")
    if values.ndim < 2 or values.size != np.prod(values.shape[-2:]) or not values.size:
        raise BadItemError(
            f"{title} has the shape {values.shape}; expected (latitude, longitude) of one time: write a file for each "
            "time, as `cdo splitsel,1` does"
        )
    return values.reshape(values.shape[-2:])


def _check_values(title: str, values_HW: np.ndarray, attributes: Mapping[str, Any]) -> None:
    """Raise BadItemError if pixels have no value: a mark of that, or no plausible number."""
    wrong = ~(np.abs(values_HW.astype(np.float64)) < FILL)  # NaN compares false
    for name in MISSING:
        wrong |= values_HW == _read_number(attributes, name, np.nan)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise BadItemError(
            f"{title} has no value at {wrong.sum():,} of {wrong.size:,} pixels: {values_HW[row, column]:g} in row "
            f"{row}, column {column}; expected a number at each: interpolate them, or leave the file out"
        )


def _read_number(attributes: Mapping[str, Any], name: str, default: float) -> float:
    value = np.asarray(attributes.get(name, default))
    return float(value.flat[0]) if value.size and value.dtype.kind in "iuf" else default


@contextmanager
def _open_variables(path: Path) -> Iterator[Callable[[str], Variable]]:
    """Yield a function that returns the variable of a name; BadItemError if there is none."""
    if not path.exists():
        raise BadItemError(f"{path} is missing, or a link to nothing; fetch it again, or remove the link")
    with open(open_regular(path), "rb") as file:
        start = file.read(HEAD_BYTES)
        kind = find_kind(start)
        if kind is None or kind.name not in (HDF5, NETCDF):
            beginning = f"it begins with {start[:4]!r}; fetch it again" if start else "it is empty; fetch it again"
            problem = explain_kind(start, NETCDF) or beginning
            raise BadItemError(f"{path} is not NetCDF, neither classic nor NetCDF-4: {problem}")
        if kind.name == HDF5:
            with open_hdf5(path) as hdf5:
                yield lambda name: _read_hdf5(path, hdf5, name)
            return
        if start[3] not in (1, 2):  # 32-bit and 64-bit offsets; 5 (64-bit data) is not read
            raise BadItemError(f"{path} is NetCDF of version {start[3]}; write it again by `nccopy -k nc4`")
        from scipy.io import netcdf_file  # takes long to import

        file.seek(0)
        try:
            classic = netcdf_file(file, mmap=False)
        except CLASSIC_ERRORS as error:
            raise BadItemError(f"{path}: not a readable NetCDF file ({error}); fetch it again") from error
        yield lambda name: _read_classic(path, classic, name)


def _read_classic(path: Path, file: Any, name: str) -> Variable:
    if name not in file.variables:
        raise _report_missing(path, name, list(file.variables))
    variable = file.variables[name]
    return np.asarray(variable.data), variable._attributes


def _read_hdf5(path: Path, file: Any, name: str) -> Variable:
    with name_damage(f"{path}: `{name}`"):
        dataset = find_dataset(file, name)
        if dataset is None:
            raise _report_missing(path, name, list(file))
        return np.asarray(dataset[()]), dict(dataset.attrs)


def _report_missing(path: Path, name: str, others: Sequence[str]) -> BadItemError:
    return BadItemError(
        f"{path} has no variable `{name}`; it has: {', '.join(others) or 'none'}. Name yours by --variable "
        "CHANNEL=NAME or --labels NAME"
    )
