"""Take the files of a dataset out of a tar file that others made.

Only regular files are taken, each to a place that the dataset knows: names, owners, modes and links of the archive
count for nothing, so that it can write nowhere else. What it may unpack to is limited.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from common.datasets.journal import Journal, Part
from common.datasets.manifest import ManifestEntry
from common.fetch.download import DownloadError
from common.fetch.published import Archive
from common.files import open_whole_file

BLOCK: Final = 1 << 20
LARGER: Final = 2.0
"""An archive that unpacks to this times its published size is not the published one."""
MOST_MEMBERS: Final = 10_000_000

DAMAGED: Final = (
    *(tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError),  # of the bytes
    *(ValueError, OverflowError, RecursionError),  # of headers
)
"""What tarfile raises for a damaged archive: headers may have impossible numbers, or be too many in a row."""


def unpack(archive: Archive, path: Path, journal: Journal, record: Part, told: Callable[[int], object]) -> None:
    """Unpack what belongs to the dataset, but for files that the journal has; each is recorded when it is complete.

    told: gets the bytes of each file. DownloadError for a damaged archive, a member that is a link, two members for one
    place, or more bytes than published.
    """
    left, taken = LARGER * archive.unpacked_bytes, set[str]()
    with _errors_named(path), tarfile.open(path, "r:*") as members:
        for number, member in enumerate(iter(members.next, None)):
            members.members.clear()  # type: ignore[attr-defined]  # or it would keep half a million of them
            place = archive.place(member.name)
            if number >= MOST_MEMBERS:
                raise DownloadError(f"{path}: more than {MOST_MEMBERS:,} members; this is not the published archive")
            if place is None or member.isdir():
                continue
            source = members.extractfile(member) if member.isreg() else None
            if source is None:
                raise DownloadError(f"{path}: {member.name} is a link or a device; expected a file. It is not unpacked")
            left -= member.size
            if place in taken or left < 0:
                what = f"there are two of {place}" if place in taken else "it unpacks to twice its published size"
                raise DownloadError(f"{path}: {what}; this is not the published archive")
            taken.add(place)
            if not journal.has((place,)):
                record.add({place: _write(source, journal.folder / place)})
            told(member.size)
    if not taken:
        raise DownloadError(f"{path} has no file of the dataset; this is not the published archive")


def _write(source: IO[bytes], path: Path) -> ManifestEntry:
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
            f"{path} is damaged, or no tar file: {error or 'it ends too early'}; what was unpacked is kept. Remove it, "
            "and run the command again, which downloads it"
        ) from error
