"""A node's stage_dir: which files it has, and how new ones are written and verified."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import sys
import threading
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Final

from common.datasets.build import OUT_OF_SPACE, readable_bytes
from common.datasets.manifest import describe_file
from common.files import NO_INODES, follow_no_link, out_of_inodes
from common.lock import LockedError, LockFile
from common.staging.plan import Piece, SourceFile, StagingError

try:  # several times faster, with the same functions
    inflater: Any = import_module("isal.isal_zlib")
except ImportError:
    inflater = zlib

GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_WINDOW: Final = 31  # 32 KiB, with gzip's header and trailer
SLICE_BYTES: Final = 2**20  # hashed, inflated and written while it is in the cache
RECORD: Final = "staging.jsonl"
WORKPLACE: Final = ".mlperf-hpc-staging"
"""Staging's own folder in stage_dir: its lock, and unfinished files."""
LOCK: Final = "lock"
LONGEST: Final = 200
"""Characters of a command that an error shows."""
PART: Final = ".part"
MARKER: Final = ".node"
"""Endings of what jobs leave in the folder of the lock if they are killed."""


def crc32(data: Any, before: int = 0) -> int:
    """Return the CRC-32 of `data`, continued from the CRC-32 of the bytes before it."""
    return int(inflater.crc32(data, before))


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The record of a staged file: the identity of its source, its size, and the CRC-32 of its bytes."""

    name: str
    identity: str
    size: int
    crc32: int | None


class StageDir:
    """A node's stage_dir, with a record of the files and folders that staging has made there.

    source: the dataset's folder, for messages. checksum: compare contents, not only sizes. inflate: decompress gzip
    files. bytes_written: by this rank.
    The record has a line of JSON per file, so that ranks and threads can append to it at once. A line is written before
    its file gets its name: staging has not written a file without a line. Until then a file is in the folder of the
    lock, where what killed jobs have left is found without looking through the others.
    """

    def __init__(self, root: Path, source: Path, checksum: bool, inflate: bool) -> None:
        self.root, self.source, self.checksum, self.inflate = root, source, checksum, inflate
        self.bytes_written = 0
        self._threads = threading.Lock()
        self.workplace = root / WORKPLACE
        self._lock = LockFile(self.workplace / LOCK)
        self._unfinished: dict[str, UnfinishedFile] = {}
        self._record: dict[str, StagedFile] = {}
        self._made_folders: set[str] = set()
        self._safe_folders: set[PurePath] = {PurePath()}

    def make_folder(self) -> None:
        """Create the folder, on one rank of a node, before `take_folder`."""
        with self._explain_errors():
            try:
                self.root.mkdir(parents=True)
                self._made_folders.add(".")
            except FileExistsError:
                if not self.root.is_dir():
                    raise
            with suppress(FileExistsError):
                self.workplace.mkdir()

    def take_folder(self) -> None:
        """Take the folder for this job and remove what killed jobs left unfinished, on one rank of a node.

        StagingError if another job is using it. All ranks call `open_record` next.
        """
        with self._explain_errors():
            self._check_workplace()
            self._lock.take(f"{os.getpid()} ({shlex.join(sys.argv)[:LONGEST]})")
            self._remove_leftovers()
            for name in self._made_folders:
                self._append_record({"folder": name})
            self._lock.share()

    def open_record(self) -> None:
        """Read the record; a line that was cut off when a run was killed is skipped."""
        with self._explain_errors():
            self._check_workplace()
            self._lock.share()
            self._read_record()

    def _check_workplace(self) -> None:
        if self.workplace.is_symlink():
            raise StagingError(f"{self.workplace} is a link; remove it, or choose another staging.stage_dir")

    def holds_file(self, file: SourceFile) -> bool:
        """Tell whether the file exists and is intact.

        Raises StagingError for a file of that name that staging has not written, unless it equals the source.
        """
        path = self.root / file.name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        right_size = size == file.staged_size
        entry = self._record.get(file.name)
        if entry is not None:
            same = right_size and entry.size == size and entry.identity == file.identity
            return same and (not self.checksum or entry.crc32 == _compute_crc32(path))
        # The checksum of a decompressed file is unknown.
        comparable = file.sha256 is not None and file.raw_size is None
        if right_size and (not self.checksum or (comparable and describe_file(path).sha256 == file.sha256)):
            return True
        raise StagingError(
            f"{path}: exists, was not written by staging, and may differ from the source; "
            "nothing was overwritten: move it away or choose another staging.stage_dir"
        )

    def write_piece(self, piece: Piece, data: memoryview) -> None:
        """Write the next piece of a file; after the last one, verify the file and give it its name."""
        file = piece.file
        path = self.root / file.name
        try:
            if piece.start == 0:
                self._unfinished[file.name] = UnfinishedFile(file, self)
            unfinished = self._unfinished[file.name]
            unfinished.write_data(data)
            if piece.is_last:
                self._add_entry(unfinished.finish_file())
                self._make_folders(PurePath(file.name).parent)
                unfinished.part.replace(path)
                del self._unfinished[file.name]
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise StagingError(f"{path}: cannot be written: {error.strerror or error}") from error
            if out_of_inodes(self.root):
                raise StagingError(f"{path}: cannot be written: {NO_INODES}; finished files are kept") from error
            raise StagingError(
                f"{path}: no space left for its {readable_bytes(file.staged_size)}, "
                f"{readable_bytes(shutil.disk_usage(self.root).free)} free; finished files are kept: "
                "free disk space and start again, or choose another staging.stage_dir"
            ) from error

    def remove_unfinished(self) -> None:
        """Remove unfinished files."""
        for unfinished in list(self._unfinished.values()):
            unfinished.remove_part()
        self._unfinished.clear()

    def close(self, remove: bool) -> None:
        """Let other jobs use the folder; the last of its job's processes removes what is of no use to them.

        remove: remove everything that staging has made there, by its record, and nothing else. May be called again.
        What cannot be removed stays, with a warning and its record.
        """
        last = True
        if self._lock.handle >= 0:
            last = self._lock.is_last()
            with self._warned():
                if last:
                    self._read_record()
                    if remove or not self._record:  # without files only folders are left
                        self._remove_files()
            with self._warned():
                self._lock.release(remove=last)
        if last:
            for folder in (self.workplace, *([self.root] if "." in self._made_folders else [])):
                with suppress(OSError):  # not empty
                    folder.rmdir()
            self._made_folders.clear()

    def _remove_files(self) -> None:
        with self._warned():
            self._remove_leftovers()
        failures = []
        for name in self._record:
            if self._is_inside(PurePath(name).parent):
                try:
                    (self.root / name).unlink(missing_ok=True)
                except (IsADirectoryError, NotADirectoryError):  # not what staging has written
                    pass
                except OSError as error:
                    failures.append(error)
        for folder in sorted(self._made_folders - {"."}, key=len, reverse=True):  # the inner ones first
            if self._is_inside(PurePath(folder).parent):
                with suppress(OSError):  # not empty
                    (self.root / folder).rmdir()
        count = len(self._record)
        self._record.clear()
        if failures:
            first, left = failures[0], f"{len(failures)} of {count} files are left"
            raise OSError(first.errno, f"{first.strerror}; {left}", first.filename)
        (self.root / RECORD).unlink(missing_ok=True)

    def _remove_leftovers(self) -> None:
        """Remove unfinished files, of whichever job."""
        for path in self.workplace.iterdir():
            if path.suffix in (PART, MARKER):
                path.unlink(missing_ok=True)

    def _read_record(self) -> None:
        try:
            lines = (self.root / RECORD).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            with suppress(ValueError, TypeError, KeyError):
                entry = json.loads(line)
                if "folder" in entry:
                    self._made_folders.add(_check_inside(entry["folder"]))  # "." is the stage_dir
                else:
                    self._record[_check_inside(entry["name"])] = StagedFile(**entry)

    def _make_folders(self, folder: PurePath) -> None:
        """Create a folder below stage_dir, and those that contain it; StagingError if one is a link."""
        if folder in self._safe_folders:
            return
        self._make_folders(folder.parent)
        path = self.root / folder
        if path.is_symlink():
            raise StagingError(f"{path} is a link, which may lead to others' files; remove it, or choose another")
        if not path.exists():
            self._append_record({"folder": str(folder)})
            path.mkdir(exist_ok=True)
        self._safe_folders.add(folder)

    def _is_inside(self, folder: PurePath) -> bool:
        """Tell whether a folder of the record is in stage_dir, and no link leads out of it."""
        return os.path.realpath(self.root / folder) == os.path.normpath(
            os.path.join(os.path.realpath(self.root), folder)
        )

    def _add_entry(self, entry: StagedFile) -> None:
        self._append_record(asdict(entry))
        with self._threads:
            self._record[entry.name] = entry
            self.bytes_written += entry.size

    def _append_record(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry)
        with self._threads, open(self.root / RECORD, "ab", buffering=0, opener=follow_no_link) as record:
            record.write(f"\n{line}".encode())  # starts a line: the last one may have been cut off

    @contextmanager
    def _warned(self) -> Iterator[None]:
        """Show an error of the system as a warning: what is left over ends no run."""
        try:
            yield
        except OSError as error:
            print(f"warning: staging.stage_dir {self.root}: {error}", file=sys.stderr, flush=True)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except LockedError as error:
            raise StagingError(
                f"staging.stage_dir {self.root} is in use by process {error.holder}: one job at a time may stage "
                "there; wait until that has ended, or choose another folder"
            ) from error
        except OSError as error:
            raise StagingError(f"staging.stage_dir {self.root}: {error.strerror}; choose another") from error


class UnfinishedFile:
    """A file that is being written, under a name of its own."""

    def __init__(self, file: SourceFile, stage: StageDir) -> None:
        self.file, self.stage = file, stage
        self.part = stage.workplace / f"{uuid.uuid4().hex}{PART}"
        self._source = stage.source / file.name
        self._output = self.part.open("xb")
        self._sha256 = hashlib.sha256()
        self._crc32 = 0
        self._size = 0
        self._inflate: Any = None

    def write_data(self, data: memoryview) -> None:
        """Write the next bytes of the source, decompressed if `inflate` is set."""
        if self._size == 0 and self._inflate is None and self.stage.inflate and bytes(data[:2]) == GZIP_MAGIC:
            self._inflate = inflater.decompressobj(wbits=GZIP_WINDOW)
        for start in range(0, len(data), SLICE_BYTES):
            part: memoryview | bytes = data[start : start + SLICE_BYTES]
            if self.stage.checksum and self.file.sha256 is not None:
                self._sha256.update(part)
            if self._inflate is not None:
                try:
                    part = self._inflate.decompress(part)
                except inflater.error as error:
                    raise StagingError(f"{self._source}: damaged gzip data ({error}); fetch it again") from error
            if self.stage.checksum:
                self._crc32 = crc32(part, self._crc32)
            self._size += self._output.write(part)

    def finish_file(self) -> StagedFile:
        """Close the file and return its record; StagingError if size or checksum is wrong."""
        self._output.close()
        file = self.file
        checked = self.stage.checksum and file.sha256 is not None
        if checked and self._sha256.hexdigest() != file.sha256:
            raise StagingError(
                f"{self._source}: damaged: sha256 {self._sha256.hexdigest()}, "
                f"{file.sha256} expected by the manifest; fetch it again"
            )
        if self._inflate is not None and (not self._inflate.eof or self._inflate.unused_data):
            raise StagingError(f"{self._source}: damaged gzip data: its end is not the end of the file; fetch it again")
        if self._size != file.staged_size or self._size != self.part.stat().st_size:
            raise StagingError(
                f"{self.part}: {self._size:,} bytes written, {file.staged_size:,} expected from {self._source}; "
                "start again"
            )
        return StagedFile(file.name, file.identity, self._size, self._crc32 if self.stage.checksum else None)

    def remove_part(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # the disk may be full, and then closing fails
            self._output.close()
        self.part.unlink(missing_ok=True)


def _check_inside(name: str) -> str:
    """Return a name that the record has; ValueError if it leads out of stage_dir."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise ValueError(name)
    return name


def _compute_crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while data := file.read(SLICE_BYTES):
            checksum = crc32(data, checksum)
    return checksum
