"""What torch-geometric 1.7.2 and the official OC20 code need of packages that are compiled for one version of torch.

`torch_scatter.scatter` by index_add; of `torch_sparse` the matrix that lists triplets, and no more. Other packages that
the modules import, but that nothing here uses, are empty.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parity.rows import MissingError

UNUSED = ("demjson", "matplotlib.backends.backend_agg", "matplotlib.figure")


def scatter(src: Tensor, index: Tensor, dim: int = -1, dim_size: int | None = None) -> Tensor:
    """Return the sums of the rows with equal index."""
    assert dim == 0
    size = int(index.max()) + 1 if dim_size is None else dim_size
    return src.new_zeros((size, *src.shape[1:])).index_add(0, index, src)


class SparseTensor:
    """A sparse matrix in compressed rows, with a value in each entry; entries of a row ascend by column."""

    def __init__(self, row: Tensor, col: Tensor, value: Tensor | None, sparse_sizes: tuple[int, int]) -> None:
        order = torch.argsort(row * sparse_sizes[1] + col, stable=True)
        self._row, self._col = row[order], col[order]
        self._value, self._sizes = None if value is None else value[order], sparse_sizes

    def __getitem__(self, rows: Tensor) -> SparseTensor:
        """Return the matrix of these rows, which may repeat."""
        degree = torch.bincount(self._row, minlength=self._sizes[0])
        first = torch.cumsum(degree, 0) - degree
        counts = degree[rows]
        row = torch.arange(len(rows)).repeat_interleave(counts)
        within = torch.arange(len(row)) - (torch.cumsum(counts, 0) - counts).repeat_interleave(counts)
        taken = first[rows].repeat_interleave(counts) + within
        value = None if self._value is None else self._value[taken]
        found = SparseTensor.__new__(SparseTensor)
        found._row, found._col, found._value = row, self._col[taken], value
        found._sizes = (len(rows), self._sizes[1])
        return found

    def set_value(self, value: Tensor | None) -> SparseTensor:
        found = SparseTensor.__new__(SparseTensor)
        found._row, found._col, found._value, found._sizes = self._row, self._col, value, self._sizes
        return found

    def sum(self, dim: int) -> Tensor:
        """Return the number of entries of each row: values are 1."""
        assert dim == 1 and self._value is None
        return torch.bincount(self._row, minlength=self._sizes[0])

    @property
    def storage(self) -> Any:
        """What has the columns, rows and values."""
        return self

    def row(self) -> Tensor:
        return self._row

    def col(self) -> Tensor:
        return self._col

    def value(self) -> Any:
        return self._value


class Unused(ModuleType):
    """A module in which every name is a class that nothing calls."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def package(name: str, folder: Path) -> ModuleType:
    """Let modules of a package be imported without its `__init__`; names that it lacks are unused classes."""
    made = Unused(name)
    made.__path__ = [str(folder)]
    sys.modules[name] = made
    return made


def use(folder: Path) -> None:
    """Import from the sources of torch-geometric 1.7.2 in a folder from here on."""
    sources = next(iter(sorted(folder.glob("torch_geometric*"))), None)
    if sources is None or not (sources / "torch_geometric" / "nn" / "models" / "dimenet.py").is_file():
        raise MissingError(f"{folder} has no sources of torch-geometric 1.7.2; `make parity-env` fetches them")
    root = sources / "torch_geometric"
    for name in UNUSED:
        for part in (name[: -len(rest)] if rest else name for rest in _rests(name)):
            sys.modules.setdefault(part, Unused(part))
    for name, content in (("torch_scatter", {"scatter": scatter}), ("torch_sparse", {"SparseTensor": SparseTensor})):
        sys.modules[name] = Unused(name)
        sys.modules[name].__dict__.update(content)
    np.math = math  # as it was
    top = package("torch_geometric", root)
    top.is_debug_enabled = lambda: False
    for name in ("data", "nn", "nn.models", "utils"):
        package(f"torch_geometric.{name}", root / name.replace(".", "/"))
    from torch_geometric.data.data import Data

    sys.modules["torch_geometric.data"].Data = Data


def _rests(name: str) -> list[str]:
    """Return what follows each package of a dotted name, from the longest rest on."""
    parts = name.split(".")
    return [("." + ".".join(parts[count:])) if count < len(parts) else "" for count in range(1, len(parts) + 1)]
