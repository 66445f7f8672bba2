"""Published datasets: addresses, sizes, checksums; `<benchmark>/fetch.py` lists those of its benchmark.

A dataset is archives, which are unpacked, or folders with a file for each sample, whose names the server lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from common.reference import FULL

GB, TB = 10**9, 10**12


@dataclass(frozen=True, slots=True)
class Archive:
    """A tar file, compressed or not, below the address of its dataset.

    bytes, unpacked_bytes: about, as published. md5: as published, "" if there is none. dataset_path: returns the path
    of a member below the dataset's folder; None leaves it out.
    """

    name: str
    bytes: float
    unpacked_bytes: float
    dataset_path: Callable[[str], str | None]
    md5: str = ""


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """A folder of a server with a file for each sample. name: also that of the split. bytes: of a file, about."""

    name: str
    pattern: re.Pattern[str]
    bytes: float


@dataclass(frozen=True, slots=True)
class Published:
    """A dataset, or a part of one under a name of its own.

    counts: files of each split, None where the number is not published. beside: files that may lie at the address, and
    belong beside the splits. notes: for users.
    """

    name: str
    text: str
    address: str
    counts: Mapping[str, int | None]
    archives: tuple[Archive, ...] = ()
    folders: tuple[RemoteFolder, ...] = ()
    beside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """The variant in the manifest: a part of a dataset never has that of the whole."""
        return self.name if self.name == FULL else f"subset-{self.name}"

    @property
    def bytes(self) -> float:
        """The bytes to transfer, about."""
        folders = sum(folder.bytes * (self.counts[folder.name] or 0) for folder in self.folders)
        return sum(archive.bytes for archive in self.archives) + folders

    def take_first(self, samples: int, shares: Mapping[str, int]) -> Published:
        """Return the part with the first files of each split: `samples` divided by the split's share, rounded up."""
        counts = {split: -(-samples // share) for split, share in shares.items()}
        return replace(self, name=str(samples), text=f"the first {samples:,} samples by name", counts=counts)


def by_name(pattern: str, folders: Mapping[str, str]) -> Callable[[str], str | None]:
    """Return the `dataset_path` of members whose names match a pattern with the groups `folder` and `file`.

    folders: the folder below the dataset for each `folder` of the archive; members of others are left out. A file keeps
    its own name and nothing else of its path, so that none can lead out of the dataset.
    """
    compiled = re.compile(pattern)

    def dataset_path(member: str) -> str | None:
        match = compiled.search(member)
        folder = folders.get(match["folder"]) if match else None
        return f"{folder}/{match['file']}" if match and folder else None

    return dataset_path
