"""The columns of a predictions file: what each has, and which values are valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

Rows = Mapping[str, np.ndarray]
"""The columns of a batch of samples, by name."""

INDEX: Final = "index"
NAMES: Final = "names"
MOST: Final = np.finfo(np.float32).max
KINDS: Final = {"f": "f", "u": "iu", "i": "iu", "b": "b"}
"""The kinds of numbers that a file may have in a column of a kind: `f` floats, `u` classes, `i` counts, `b` truth."""
EXPECTED: Final = {
    "f": "floating-point numbers",
    "u": "whole numbers",
    "i": "whole numbers",
    "b": "truth values (bool)",
}


class PredictionsError(ValueError):
    """A predictions file cannot be written, or is not valid; the message names file, column and sample."""


class Column(NamedTuple):
    """A column. dtype: as this suite writes it. shape: of a row; None: any length, alike in all rows.

    meaning: for people, with the unit. truth: it comes from the data; the network predicts the others. per: the column
    that counts the rows of each sample; "": one. classes: values are from 0 to one less.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    meaning: str
    truth: bool = False
    per: str = ""
    classes: int | None = None

    @property
    def kind(self) -> str:
        """The kind of its numbers: `f`, `u`, `i` or `b`."""
        return np.dtype(self.dtype).kind

    def shape_problem(self, dtype: np.dtype, shape: tuple[int, ...]) -> str:
        """Return what is wrong with the type and shape of an array, "" if nothing is."""
        if dtype.kind not in KINDS[self.kind] or dtype.itemsize > 8:
            return f"has the type {dtype}; expected {EXPECTED[self.kind]}, such as {np.dtype(self.dtype)}"
        wanted = ("N", *("any" if length is None else length for length in self.shape))
        fits = len(shape) == len(wanted) and all(
            found > 0 if length is None else found == length
            for found, length in zip(shape[1:], self.shape, strict=True)
        )
        return "" if fits else f"has the shape {shape}; expected ({', '.join(map(str, wanted))})"

    def wrong_values(self, values: np.ndarray) -> np.ndarray:
        """Return which values are not valid."""
        wrong: np.ndarray = np.zeros(values.shape, bool)
        if self.kind == "f":
            wrong = ~(np.abs(values) <= MOST)
        elif self.classes is not None:
            wrong = (values < 0) | (values >= self.classes)
        elif self.kind == "i":
            wrong = values < 1
        return wrong

    @property
    def range_text(self) -> str:
        """Which values are valid."""
        if self.kind == "f":
            return "finite numbers that float32 can hold"
        return f"0 to {self.classes - 1}" if self.classes is not None else "at least 1"
