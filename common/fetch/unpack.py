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
"""Errors of tarfile for a damaged archive: headers may have impossible numbers, or be too many in a row."""


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
