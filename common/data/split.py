"""The samples of a split, such as data_dir/train: their files, where those are now, and a cache in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from common.data.manifest import NAME, describe_file, read_manifest
from common.data.node_memory import share_names
from common.file_kind import HEAD_BYTES, find_kind
from common.files import explain_lost_link, is_foreign, list_data, suggest_folder
from common.settings.run import SamplesConfig
from common.tree import ANYWHERE

if TYPE_CHECKING:  # torch takes a second to import, and the commands that make data do without
    from torch import Tensor

    from common.ranks.dist import Dist


SPLITS: Final = ("train", "validation", "test")


MOST_COMPARED: Final = 1000
"""Files that are compared with those of the manifest to say what they are."""
RAW: Final = (".hdf5", ".h5", ".nc", ".nc4", ".xz", ".extxyz", ".lmdb", ".tfrecord")
"""Endings of published data."""


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

    def __init__(self, folder: Path | str, names: Sequence[str], samples: int | None, config: SamplesConfig) -> None:
        folder = Path(folder)
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

    def prepare_input(self, x: Tensor) -> Tensor:
        """Return inputs as the network takes them, float32 on a CPU; by default as they are read."""
        return x

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the input of the network, see `prepare_input`, and the truth; not augmented, for a `DataLoader`.

        IndexError beyond the last sample, otherwise as `read`.
        """
        x, y = self.buffer(1, pinned=False)
        self.load(find_index(index, len(self)), (x[0].numpy(), y[0].numpy()))
        return self.prepare_input(x)[0], y[0]

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
            for array, cached in zip(into, self._kept[index], strict=True):
                np.copyto(array, cached)
            return
        self.read_into(index, into)
        if self.config.cache:
            self._kept[index] = tuple(array.copy() for array in into)


def find_index(index: int, count: int) -> int:
    """Return an index from 0 on, of one that may count from the end; IndexError beyond either."""
    try:
        return range(count)[index]
    except IndexError:
        raise IndexError(f"there is no sample {index}: the split has {count:,}") from None


# -- the folder of a split, compared with the manifest beside it ----------------------------------------------


@dataclass(frozen=True)
class Listing:
    """The names of the files in a folder. manifest_names: those that the manifest lists there; empty without one."""

    folder: Path
    names: frozenset[str]
    manifest_names: Collection[str] = ()
    benchmark: str = ""

    def select_samples(
        self,
        format: str,
        names: Mapping[str, Collection[str]],
        pattern: str,
        files_of: Callable[[str], Iterable[str]],
    ) -> list[str]:
        """Return the sorted names of the samples in a format; DatasetError if there are none, or not all their files.

        names: of samples, by format. pattern: of the files of this format. files_of: returns the files of a sample.
        """
        if not names[format]:
            others = [f"{len(some):,} samples as {kind}: set data.format" for kind, some in names.items() if some]
            content = others[0] if others else f"none among its {len(self.names)} files{self._describe_other()}"
            raise DatasetError(f"{self.folder}: expected samples as {format} ({pattern}), found {content}")
        files = {file for name in names[format] for file in files_of(name)}
        if missing := files - self.names:
            raise DatasetError(f"{self.folder}: {len(missing)} files are missing, such as {min(missing)}")
        extra = sorted(files.difference(self.manifest_names)) if self.manifest_names else ()
        if extra:  # although the manifest lists others beside them
            beside = self.folder.parent
            owners = {entry: name for name, entry in read_manifest(beside / NAME).files.items()}
            originals = [owners.get(describe_file(self.folder / name)) for name in extra[:MOST_COMPARED]]
            if all(originals) and len(extra) <= MOST_COMPARED:
                raise DatasetError(
                    f"{self.folder / extra[0]} has the content of {beside / str(originals[0])}, and {beside / NAME} "
                    f"has it only there ({len(extra):,} files in {self.folder.name}/ are not in it, all such copies): "
                    f"remove these copies from {self.folder}"
                )
            raise DatasetError(
                f"{self.folder / extra[0]} is not in {self.folder.parent / NAME} ({len(extra):,} of the samples in "
                f"{self.folder.name}/ are not): the folder mixes several datasets; move these files away, or, if they "
                f"belong to it, delete {NAME} and write it again by `python -m {self.benchmark}.prepare manifest "
                f"{self.folder.parent}`"
            )
        return sorted(names[format])

    def _describe_other(self) -> str:
        """Return an example of a file that is none of the samples, with its kind if that is known."""
        if not self.names:
            return ""
        name = min(self.names)
        kind = find_kind(ANYWHERE.begin(self.folder / name, HEAD_BYTES))
        return f", such as {name}" + (f", {kind.name}" if kind else "") + " (of another benchmark?)"


def find_once(find: Callable[[], list[str]], ranks: Dist | None) -> Sequence[str]:
    """Return the names that `find` finds for the first rank, on all ranks: a collective call, unless `ranks` is None.

    A shared file system takes long to list half a million files, and manifests are large.
    """
    return find() if ranks is None else share_names(find() if ranks.is_main else [], ranks)


def list_folder(folder: Path | str, benchmark: str, between: str = "") -> Listing:
    """Return the data in the folder of a split. between: what to do between fetching and training.

    DatasetError if it is not a folder, or if it lacks a file that the manifest lists, whether or not a run reads it:
    with other files, the first N samples would be others. ManifestError for an unusable manifest.
    """
    folder = Path(folder)
    try:
        names = frozenset(list_data(folder))
    except (FileNotFoundError, NotADirectoryError) as error:
        fix = suggest_folder(folder.parent, [folder.name], "set data.data_dir=")
        inside = chain(folder.parent.glob("*.*"), folder.parent.glob("*/*.*"))
        data = (path for path in inside if path.is_file() and path.suffix in RAW)
        if not fix and (file := next(data, None)):
            fix = f"; are the data there, such as {file}, as they were published? Then `python -m {benchmark}.prepare`"
            fix += " converts them"
        fix = fix or (
            f"; `python -m {benchmark}.fetch` downloads the published data (docs/guide/data.md), {between}"
            f"`python -m {benchmark}.synthesize` generates some"
        )
        if problem := explain_lost_link(folder):
            raise DatasetError(f"data.data_dir: {folder}: {problem}") from error
        raise DatasetError(
            f"{folder} is not a folder: data.data_dir must contain train/ and validation/{fix}"
        ) from error
    path = folder.parent / NAME
    if not path.exists():
        return Listing(folder, names)
    manifest = read_manifest(path)
    start = f"{folder.name}/"
    files = (name.removeprefix(start) for name in manifest.files if name.startswith(start))
    expected = {name for name in files if not is_foreign(name)}
    if missing := expected - names:
        raise DatasetError(
            f"{folder / min(missing)} is missing: {path} lists it ({len(missing):,} of the {len(expected):,} files in "
            f"{start} are missing); fetch or make them again. `python -m {manifest.benchmark}.prepare verify "
            f"{folder.parent}` lists them all"
        )
    return Listing(folder, names, expected, manifest.benchmark)
