"""The samples of a split, such as data_dir/train: their files, where those are now, and a cache in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from common.settings.run import SamplesConfig

if TYPE_CHECKING:  # torch takes a second to import, and the commands that make data do without
    from torch import Tensor


class DatasetError(ValueError):
    """A folder does not have the samples that the configuration asks for; the message says how to fix it."""


class Sample(NamedTuple):
    """One sample: an input and its truth, as they are in the files."""

    x: np.ndarray
    y: np.ndarray


class Split(ABC):
    """The first N samples of a split, such as data_dir/train; a benchmark defines their files. names: of the samples.

    DatasetError if there are fewer than `samples`.
    """

    config: SamplesConfig

    def __init__(self, folder: Path, names: list[str], samples: int | None, config: SamplesConfig) -> None:
        if samples is not None and len(names) < samples:
            raise DatasetError(
                f"{folder} has {len(names):,} samples, the configuration asks for {samples:,}: lower "
                "data.train_samples or data.eval_samples, set it to null to use all samples, or complete the folder"
            )
        self.split = folder.name
        self.names = names[:samples]
        self.config = config
        self._kept: dict[int, tuple[np.ndarray, ...]] = {}
        self._locate: Callable[[str], Path] = folder.parent.joinpath

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def files_of(self, index: int) -> tuple[str, ...]:
        """Return the names of the files of a sample, below data_dir."""

    @abstractmethod
    def buffer(self, count: int, pinned: bool) -> tuple[Tensor, Tensor]:
        """Allocate memory for the inputs and the truth of `count` samples; pinned: page-locked, for an accelerator."""

    @abstractmethod
    def read_into(self, index: int, into: tuple[np.ndarray, ...]) -> None:
        """Read a sample from its files into two arrays; several threads call it at once."""

    def files(self) -> Iterator[tuple[str, int | None]]:
        """Yield the name of each file below data_dir and the index of its sample; None: it has all samples."""
        yield from ((file, index) for index in range(len(self)) for file in self.files_of(index))

    def paths(self, index: int) -> tuple[Path, ...]:
        """Return the paths of the files of a sample."""
        return tuple(map(self._locate, self.files_of(index)))

    def moved(self, locate: Callable[[str], Path]) -> Self:
        """Return the same samples, each file read from where `locate` finds its name."""
        moved = copy(self)
        moved._locate = locate
        return moved

    def read(self, index: int) -> Sample:
        """Return a sample; the benchmark's error for a damaged file, OSError for an unreadable one."""
        x, y = (tensor[0].numpy() for tensor in self.buffer(1, pinned=False))
        self.load(index, (x, y))
        return Sample(x, y)

    def load(self, index: int, into: tuple[np.ndarray, ...]) -> None:
        """Read a sample into two arrays, from memory if it is cached."""
        if index in self._kept:
            for array, kept in zip(into, self._kept[index], strict=True):
                np.copyto(array, kept)
            return
        self.read_into(index, into)
        if self.config.cache:
            self._kept[index] = tuple(array.copy() for array in into)
