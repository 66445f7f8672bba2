"""Atomic writing of files, opening of regular ones, and the names of files and folders that every run writes."""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from common.tree import NO_LINK, RefusedFileError, expect_regular, open_regular

LOG_NAME: Final = "result_0.txt"
"""The log of a run, in its folder."""
CHECKPOINTS: Final = "checkpoints"
"""The folder with the checkpoints of a run, in its folder."""
POWER: Final = "power"
"""The folder with the power files of a run, in its folder."""
INSTANCE: Final = r"instance_(\d+)"
"""The folder of one of several trainings, in the folder of their job."""
TAIL_BYTES: Final = 1 << 16
"""The end of a file: of a log, where the last record of a finished run is."""
UNFINISHED: Final = "*.tmp"
"""Files that are being written; those of a killed process stay until their folder has another owner."""
TOKEN_BYTES: Final = 8
"""Of the random part of their names."""
FOREIGN: Final = frozenset({"__macosx", "thumbs.db", "desktop.ini", "lost+found", "$recycle.bin"})
"""Names, in small letters, that operating systems leave in folders."""
NO_INODES: Final = "the file system has no free inodes, so that no more files fit: remove some, or use another disk"
"""What a full disk with free bytes means, and what to do."""


def is_foreign(name: str) -> bool:
    """Tell whether a name in a folder of data is none of the data: hidden, unfinished, or of an operating system.

    Such as `._a.h5`, `.DS_Store` and `__MACOSX` of macOS, `Thumbs.db` of Windows, `.nfs0012` of NFS, and `a.h5.part`.
    """
    return name.startswith(".") or name.endswith((".part", UNFINISHED[1:])) or name.lower() in FOREIGN


def list_data(folder: Path) -> list[str]:
    """Return the sorted names in a folder of data, without those that are none of the data; OSError as os.listdir."""
    return sorted(name for name in os.listdir(folder) if not is_foreign(name))


def suggest_folder(folder: Path, names: Sequence[str], verb: str = "name ") -> str:
    """Return `; name …` if the folder above, or one in it, has files or folders of these names; "" if none has."""
    above = folder.parent if folder.name else folder / ".."
    below = sorted(folder.iterdir())[:100] if folder.is_dir() else []
    near = next((path for path in (above, *below) if all((path / name).exists() for name in names)), None)
    return f"; {verb}{near}, which has {' and '.join(names)}" if near else ""


def instance_folder(job: Path, number: int) -> Path:
    """Return the folder of an instance in that of its job."""
    return job / f"instance_{number}"


def instance_folders(job: Path) -> dict[int, Path]:
    """Return the folders of the instances that there are, by number."""
    matches = {path: re.fullmatch(INSTANCE, path.name) for path in job.glob("instance_*") if path.is_dir()}
    return dict(sorted((int(match[1]), path) for path, match in matches.items() if match))


@contextmanager
def new_file(path: Path) -> Iterator[tuple[Path, io.FileIO]]:
    """Yield the path of a new empty file beside `path`, and the file; at the end it is removed unless renamed.

    Its name is random and it is created exclusively, so that no link that others have put there is followed.
    """
    part = _unused_name(path)
    with name_errors(path, part), open(part, "x+b", buffering=0) as file:
        try:
            yield part, file
        finally:
            file.close()  # Windows removes no open file
            part.unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a new file beside `path`, which takes its name at the end of the `with` and is removed after an error.

    For libraries that open files by their names; otherwise see `open_whole_file`.
    Raises OSError if `path` is a device or a pipe, which is not replaced, and if the new file was exchanged meanwhile.
    """
    with _open_replacement(path, sync=False) as (part, _):
        yield part


@contextmanager
def open_whole_file(path: Path, mode: str = "wb", *, sync: bool = False) -> Iterator[Any]:
    """Yield a file to write, text in UTF-8, that replaces `path` at the end of the `with`, as `whole_file` does.

    sync: to disk before it is renamed.
    """
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    with (
        _open_replacement(path, sync) as (_, part),
        open(part.fileno(), mode, encoding=encoding, newline=newline, closefd=False) as file,
    ):
        yield file


def write_whole_file(path: Path, content: bytes | str, *, errors: str = "strict", sync: bool = False) -> None:
    """Replace a file by one with this content, text in UTF-8, as `whole_file` does. errors: see str.encode."""
    with open_whole_file(path, sync=sync) as file:
        file.write(content.encode(errors=errors) if isinstance(content, str) else content)


def link_whole_file(source: Path, path: Path) -> None:
    """Replace `path` by another name of a file; where the file system has no such links, by a copy."""
    part = _unused_name(path)
    try:
        os.link(source, part)
        part.replace(path)
    except OSError:
        from shutil import copyfile  # rarely: the checker starts without it

        with whole_file(path) as copy:
            copyfile(source, copy)
    finally:
        part.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes have left of a file that they were writing."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 2 * TOKEN_BYTES}{UNFINISHED[1:]}"):
        left.unlink(missing_ok=True)


def follow_no_link(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=follow_no_link)`; OSError if it is a link, which others may have put there.

    On Windows, where few may make links, the system cannot refuse them: one that is made after the look is followed.
    """
    try:
        if not NO_LINK and os.path.islink(path):
            raise OSError(errno.ELOOP, "", path)
        return os.open(path, flags | NO_LINK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "this is a link, which is not followed; remove it, or choose another folder"
        raise


@contextmanager
def _open_replacement(path: Path, sync: bool) -> Iterator[tuple[Path, io.FileIO]]:
    """Yield the path of a new file, and the file; at the end it replaces `path`."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "this is a device or a pipe; expected a file", str(path))
    with new_file(path) as (part, file):
        yield part, file
        status = os.lstat(part)  # perhaps of another file: some libraries, too, write one and rename it
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.fstat(file.fileno()).st_uid:
            raise OSError(errno.EEXIST, "another process exchanged the file while it was written", str(path))
        if sync:
            os.fsync(file.fileno())
        file.close()  # Windows renames no open file
        part.replace(path)


def _unused_name(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.urandom(TOKEN_BYTES).hex()}{UNFINISHED[1:]}")


@contextmanager
def name_errors(path: Path, part: Path | None = None) -> Iterator[None]:
    """Let errors of the system name `path` if they name no file, as on a full disk, or `part`, which stands for it."""
    try:
        yield
    except OSError as error:
        _name_error(error, path, part)
        raise
    except RuntimeError as error:
        full = error.__context__  # torch.save fails again as it closes the file, and tells only that
        if not isinstance(full, OSError) or full.errno is None:
            raise
        _name_error(full, path, part)
        raise full from error


def _name_error(error: OSError, path: Path, part: Path | None) -> None:
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
    """Return how many more files the file system of a folder can hold; None if that is not limited, or not known."""
    if not hasattr(os, "statvfs"):  # Windows
        return None
    status = os.statvfs(folder)
    return status.f_favail if status.f_files else None


def _leads_nowhere(path: Path) -> bool:
    """Tell whether a path is a link to nothing."""
    return os.path.islink(path) and not os.path.exists(path)


def explain_lost_link(path: str | os.PathLike[str], count: int = 0) -> str:
    """Return of the first link to nothing on the way to a file where it leads, and how to repair it; "" without one.

    count: how many such links there are; 0: those beside it are counted.
    """
    paths = (path := Path(path), *path.parents)
    link = next((part for part in reversed(paths) if _leads_nowhere(part)), None)
    if link is None:
        return ""
    target = os.path.realpath(link)
    with suppress(OSError):  # of a folder that may be entered, but not listed
        count = count or sum(map(_leads_nowhere, link.parent.iterdir()))
    name = "this" if link == path else str(link)
    if os.path.islink(target):
        return f"{name} is a link in a loop of links: replace one of them"
    fix = "put back what it leads to (is its disk mounted?), or replace the link by a copy"
    if "annex/objects" in target or "dvc/" in target:
        fix = "fetch its content (git annex get, datalad get, dvc pull)"
    elif link.suffix == ".h5":
        fix = (
            "move the files back to where the links lead or, if `data split` made the links, delete those in train, "
            "validation and test, and split again"
        )
    number = f" ({count:,} such links in {link.parent})" if count > 1 else ""
    return f"{name} is a link to {target}, which does not exist{number}: {fix}"


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
