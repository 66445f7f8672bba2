"""A node's stage_dir: which files it has, and how new ones are written and verified."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pwd
import shlex
import shutil
import stat
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

from common.console import print_warning
from common.data.build import OUT_OF_SPACE, readable_bytes
from common.data.manifest import describe_file
from common.files import NO_INODES, out_of_inodes
from common.locks import LockedError, LockFile
from common.staging.plan import Piece, SourceFile, StagingError

try:  # several times faster, with the same functions
    inflater: Any = import_module("isal.isal_zlib")
except ImportError:
    inflater = zlib

GZIP_MAGIC: Final = b"\x1f\x8b"
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
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


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

    source: the dataset's folder or address, for messages. checksum: compare contents, not only sizes. inflate:
    decompress gzip files. bytes_written: by this rank.
    The record has a line of JSON per file, so that ranks and threads can append to it at once. A line is written before
    its file gets its name: staging has not written a file without a line. Until then a file is in the folder of the
    lock, where what killed jobs have left is found without looking through the others.
    Nothing there is believed that another user could have written: see `_expect_own`.
    """

    def __init__(self, root: Path, source: Path | str, checksum: bool, inflate: bool) -> None:
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
                self.root.mkdir(0o700, parents=True)
                self._made_folders.add(".")
            except FileExistsError:
                if self.root.is_symlink() and not self.root.exists():
                    raise StagingError(
                        f"staging.stage_dir {self.root} is a link to nothing, {self.root.readlink()}; make that "
                        "folder, or remove the link"
                    ) from None
                if not self.root.is_dir():
                    raise
            self._check_folders()

    def take_folder(self) -> str:
        """Take the folder for this job and remove what killed jobs left unfinished, on one rank of a node.

        Return "", or the process of another job that uses it. All ranks call `open_record` next.
        """
        with self._explain_errors():
            self._check_folders()
            try:
                self._lock.take(f"{os.getpid()} ({shlex.join(sys.argv)[:LONGEST]})")
                self._remove_leftovers()
                for name in self._made_folders:
                    self._append_record({"folder": name})
                self._lock.share()
            except LockedError as error:
                return error.holder
            except FileNotFoundError:
                return "that has just removed it"
            return ""

    def open_record(self) -> None:
        """Read the record; a line that was cut off when a run was killed is skipped."""
        with self._explain_errors():
            self._check_folders()
            self._lock.share()
            self._read_record()

    def _check_folders(self) -> None:
        """Raise StagingError if others can change stage_dir or staging's own folder in it, which is made if missing."""
        link, status = self.root.lstat(), self.root.stat()
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
            _expect_own(self.root, link)
        # A site makes such a folder for all; what is in it is checked, and nobody can rename what others own there.
        if status.st_uid != 0 or (status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX):
            _expect_own(self.root, status)
        with suppress(FileExistsError):
            self.workplace.mkdir(0o700)
        _expect_own(self.workplace, self.workplace.lstat())

    def holds_file(self, file: SourceFile) -> bool:
        """Tell whether the file exists and is intact.

        Raises StagingError for a file of that name that staging has not written, unless it equals the source, and for
        one that others can change.
        """
        path = self.root / file.name
        try:
            self._check_folder(PurePath(file.name).parent)
            status = path.lstat()
        except FileNotFoundError:
            return False
        _expect_own(path, status)
        entry, right_size = self._record.get(file.name), status.st_size == file.staged_size
        if entry is not None and not (right_size and entry.size == status.st_size and entry.identity == file.identity):
            return False
        if not self.checksum:
            is_intact = True
        elif self.compares_with_manifest(file):
            is_intact = right_size and describe_file(path).sha256 == file.sha256
        else:
            is_intact = entry is not None and entry.crc32 == _compute_crc32(path)
        if entry is not None or (right_size and is_intact):
            return is_intact
        raise StagingError(
            f"{path}: exists, was not written by staging, and may differ from the source; "
            "nothing was overwritten: move it away or choose another staging.stage_dir"
        )

    def compares_with_manifest(self, file: SourceFile) -> bool:
        """Tell whether a file that is there is compared with the manifest; that does not know a decompressed one."""
        return self.checksum and file.sha256 is not None and file.raw_size is None

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
                self._check_folder(PurePath(file.name).parent, make=True)
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
            with self._warn_of_errors():
                if last:
                    self._read_record()
                    if remove or not self._record:  # without files only folders are left
                        self._remove_files()
            with self._warn_of_errors():
                self._lock.release(remove=last)
        if last:
            for folder in (self.workplace, *([self.root] if "." in self._made_folders else [])):
                with suppress(OSError):  # not empty
                    folder.rmdir()
            self._made_folders.clear()

    def _remove_files(self) -> None:
        with self._warn_of_errors():
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
            with open(self.root / RECORD, "rb", opener=_open_own) as record:
                text = record.read().decode(errors="replace")
        except FileNotFoundError:
            return
        for line in text.splitlines():
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                entry = json.loads(line)
                if "folder" in entry:
                    self._made_folders.add(_check_inside(entry["folder"]))  # "." is the stage_dir
                else:
                    self._record[_check_inside(entry["name"])] = StagedFile(**entry)

    def _check_folder(self, folder: PurePath, make: bool = False) -> None:
        """Raise StagingError if others can change a folder below stage_dir, or one that has it. make: missing ones."""
        if folder in self._safe_folders:
            return
        self._check_folder(folder.parent, make)
        path = self.root / folder
        if make and not os.path.lexists(path):
            self._append_record({"folder": str(folder)})
            path.mkdir(0o700, exist_ok=True)
        _expect_own(path, path.lstat())
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
        with self._threads, open(self.root / RECORD, "ab", buffering=0, opener=_open_own) as record:
            record.write(f"\n{json.dumps(entry)}".encode())  # starts a line: the last one may have been cut off

    @contextmanager
    def _warn_of_errors(self) -> Iterator[None]:
        """Show an error of the system as a warning: what is left over ends no run."""
        try:
            yield
        except OSError as error:
            print_warning(f"staging.stage_dir {self.root}: {error}")

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StagingError(f"staging.stage_dir {self.root}: {error.strerror}; choose another") from error


class UnfinishedFile:
    """A file that is being written, under a name of its own."""

    def __init__(self, file: SourceFile, stage: StageDir) -> None:
        self.file, self.stage = file, stage
        self.part = stage.workplace / f"{uuid.uuid4().hex}{PART}"
        self._source = f"{stage.source}/{file.name}"
        self._output = os.fdopen(_open_own(str(self.part), os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
        self._sha256 = hashlib.sha256()
        self._crc32 = 0
        self._size = 0
        self._inflate: Any = None

    def write_data(self, data: memoryview) -> None:
        """Write the next bytes of the source, decompressed if `inflate` is set."""
        if self._size == 0 and self._inflate is None and self.stage.inflate and bytes(data[:2]) == GZIP_MAGIC:
            self._inflate = inflater.decompressobj(wbits=31)  # 32 KiB, with gzip's header and trailer
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
        if self.stage.checksum and file.sha256 is not None and self._sha256.hexdigest() != file.sha256:
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


def _expect_own(path: Path, status: os.stat_result) -> None:
    """Raise StagingError unless a file or folder is this user's, no link, and nobody else can write to it."""
    mode, mine = stat.S_IMODE(status.st_mode), status.st_uid == os.geteuid()
    if stat.S_ISLNK(status.st_mode):
        raise StagingError(f"{path} is a link, which may lead to others' files; remove it, or choose another")
    if mine and not mode & OTHERS_WRITE:
        return
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = f"user {status.st_uid}"
    fix = f"chmod go-w {shlex.quote(str(path))}" if mine else "remove it"
    raise StagingError(
        f"{path} belongs to {owner} and has mode {mode:04o}, so that others can change what is staged; expected "
        f"your own, which only you can write: {fix}, or choose a staging.stage_dir that does not exist yet, which is "
        "made for you alone"
    )


def _open_own(path: str, flags: int) -> int:
    """Open a file, a new one for this user alone; StagingError if it is a link, or if others can write to it."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _expect_own(Path(path), os.lstat(path))
        raise
    try:
        _expect_own(Path(path), os.fstat(handle))
    except StagingError:
        os.close(handle)
        raise
    return handle


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
