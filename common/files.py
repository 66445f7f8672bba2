"""Atomic writing of files, opening of regular ones, and the names of files and folders that every run writes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.tree import RefusedFileError, expect_regular

LOG_NAME: Final = "result_0.txt"
"""The log of a run, in its folder."""
CHECKPOINTS: Final = "checkpoints"
"""The folder with the checkpoints of a run, in its folder."""
POWER: Final = "power"
"""The folder with the power files of a run, in its folder."""
INSTANCE: Final = re.compile(r"instance_(\d+)")
"""The folder of one of several trainings, in the folder of their job."""
TAIL_BYTES: Final = 1 << 16
"""The end of a file: of a log, where the last record of a finished run is."""
UNFINISHED: Final = "*.tmp"
"""Files that are being written; those of a killed process stay until their folder has another owner."""
NO_INODES: Final = "the file system has no free inodes, so that no more files fit: remove some, or use another disk"
"""What a full disk with free bytes means, and what to do."""


def instance_folder(job: Path, number: int) -> Path:
    """Return the folder of an instance in that of its job."""
    return job / f"instance_{number}"


def instance_folders(job: Path) -> dict[int, Path]:
    """Return the folders of the instances that there are, by number."""
    found = {path: INSTANCE.fullmatch(path.name) for path in job.glob("instance_*") if path.is_dir()}
    return dict(sorted((int(match[1]), path) for path, match in found.items() if match))


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` at the end of the `with` and removed after an error.

    Raises OSError if `path` is a device or a pipe, which is not replaced.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "this is a device or a pipe; expected a file", str(path))
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path, part):
            yield part
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def naming(path: Path, part: Path | None = None) -> Iterator[None]:
    """Let errors of the system name `path` if they name no file, as on a full disk, or `part`, which stands for it."""
    try:
        yield
    except OSError as error:
        _name(error, path, part)
        raise
    except RuntimeError as error:
        full = error.__context__  # torch.save fails again as it closes the file, and tells only that
        if not isinstance(full, OSError) or full.errno is None:
            raise
        _name(full, path, part)
        raise full from error


def _name(error: OSError, path: Path, part: Path | None) -> None:
    if error.errno is not None and error.filename2 is None and error.filename in (None, str(part)):
        error.filename = str(path)
    if error.errno == errno.ENOSPC and out_of_inodes(path.parent):
        error.strerror = f"{error.strerror}: {NO_INODES}"


def out_of_inodes(folder: Path) -> bool:
    """Tell whether the file system of a folder has no place for one more file, whatever bytes are free."""
    try:
        return free_inodes(folder) == 0
    except OSError:  # the folder is gone, too
        return False


def free_inodes(folder: Path) -> int | None:
    """Return how many more files the file system of a folder can hold; None if that is not limited."""
    status = os.statvfs(folder)
    return status.f_favail if status.f_files else None


def open_regular(path: Path) -> int:
    """Open a file to read and return its descriptor; never waits for a writer, as opening a pipe does.

    RefusedFileError if it is not a regular file; other OSErrors as `os.open` does.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        expect_regular(str(path), os.fstat(handle))
        os.set_blocking(handle, True)  # file systems over tapes refuse to fetch a file for a reader that does not wait
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_end(path: Path) -> bytes:
    """Return the last TAIL_BYTES of a file; nothing if there is none, or if it is not a regular one."""
    try:
        handle = open_regular(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, RefusedFileError):
        return b""
    with open(handle, "rb") as file:
        file.seek(max(0, os.fstat(handle).st_size - TAIL_BYTES))
        return file.read()


def check_regular(path: Path) -> None:
    """Raise RefusedFileError if it is not a regular file; for libraries that open files themselves."""
    expect_regular(str(path), os.stat(path))
