"""Published datasets: addresses, sizes, checksums, unpacking; `<benchmark>/fetch.py` lists those of its benchmark.

A dataset is archives, which are unpacked, or folders with a file for each sample, whose names the server lists.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from common.datasets.journal import Journal, Part
from common.datasets.manifest import ManifestEntry
from common.fetch.download import DownloadError
from common.files import open_whole_file
from common.reference import FULL

GB, TB = 10**9, 10**12
LARGER: Final = 2.0
"""An archive that unpacks to this times its published size is not the published one."""
MOST_MEMBERS: Final = 10_000_000

DAMAGED: Final = (
    *(tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError),  # of the bytes
    *(ValueError, OverflowError, RecursionError),  # of headers
)
"""Errors of tarfile for a damaged archive: headers may have impossible numbers, or be too many in a row."""


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


# -- unpacking -----------------------------------------------------------------------------------------------
# Only regular files are taken, each to a place that the dataset knows: names, owners, modes and links of the archive
# count for nothing, so that it can write nowhere else. What it may unpack to is limited.


def unpack_archive(
    archive: Archive, path: Path, journal: Journal, record: Part, notify: Callable[[int], object]
) -> None:
    """Unpack what belongs to the dataset, but for files that the journal has; each is recorded when it is complete.

    notify: gets the bytes of each file. DownloadError for a damaged archive, a member that is a link, two members with
    one path, or more bytes than published.
    """
    bytes_left, names_seen = LARGER * archive.unpacked_bytes, set[str]()
    with _errors_named(path), tarfile.open(path, "r:*") as members:
        for number, member in enumerate(iter(members.next, None)):
            members.members.clear()  # type: ignore[attr-defined]  # or it would keep half a million of them
            name = archive.dataset_path(member.name)
            if number >= MOST_MEMBERS:
                raise DownloadError(f"{path}: more than {MOST_MEMBERS:,} members; this is not the published archive")
            if name is None or member.isdir():
                continue
            source = members.extractfile(member) if member.isreg() else None
            if source is None:
                raise DownloadError(f"{path}: {member.name} is a link or a device; expected a file. It is not unpacked")
            bytes_left -= member.size
            if name in names_seen or bytes_left < 0:
                problem = f"there are two of {name}" if name in names_seen else "it unpacks to twice its published size"
                raise DownloadError(f"{path}: {problem}; this is not the published archive")
            names_seen.add(name)
            if not journal.has_files((name,)):
                record.add_files({name: _write_file(source, journal.folder / name)})
            notify(member.size)
    if not names_seen:
        raise DownloadError(f"{path} has no file of the dataset; this is not the published archive")


def _write_file(source: IO[bytes], path: Path) -> ManifestEntry:
    """Write a file whole or not at all; return its size and checksum."""
    digest, size = hashlib.sha256(), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_whole_file(path) as file:
        while block := source.read(BLOCK):
            digest.update(block)
            size += file.write(block)
    return ManifestEntry(size, digest.hexdigest())


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        raise DownloadError(
            f"{path} is damaged, or no tar file: {error or 'it ends too early'}; unpacked files are kept. Remove it, "
            "and run the command again, which downloads it"
        ) from error
