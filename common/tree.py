"""Read files that others wrote: regular files only, never through a link that leads out of their folder.

A package comes from somebody else: a pipe in it would stop the reader for ever, a device or a link could hand it what
is not part of the package. Everything that reads files of a package, of logs or of code to pack does it here. A file
that the user names on the command line is the user's own: it may be a link, a pipe or a process substitution.
"""

from __future__ import annotations

import os
import select
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final, NamedTuple

NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
BINARY: Final = getattr(os, "O_BINARY", 0)
"""Flags of os.open: Windows has only the last one, without which it translates line ends; others have not that one."""
WRITER_S: Final = 10
"""How long the first byte of a pipe may take."""


class RefusedFileError(OSError):
    """A file is not read; `reason` says why, as in "is a pipe, not a file"."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(None, reason, path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.filename} {self.reason}"

    def __reduce__(self) -> tuple[type[RefusedFileError], tuple[str, str]]:
        """Return how to make it again in another process: OSError's own way takes other arguments."""
        return type(self), (self.filename, self.reason)


class Tree(NamedTuple):
    """A folder whose files are read. root: its real path; "": links may lead anywhere."""

    root: str = ""

    @classmethod
    def at(cls, folder: str | os.PathLike[str]) -> Tree:
        """Return the tree below a folder, which may itself be a link."""
        return cls(os.path.realpath(folder))

    def open(self, path: str | os.PathLike[str]) -> BufferedReader:
        """Open a file for reading; never blocks.

        Raises RefusedFileError if it is not a regular file, or not inside the tree; other OSErrors as `open` does.
        """
        name = os.fspath(path)
        expect_regular(name, os.stat(name))  # before opening: even to open a device can do something
        handle = open_regular(name)  # again: it may have been replaced
        try:
            if not self._holds_path(_real_path(handle, name)):
                raise RefusedFileError(name, f"is a link that leads out of {os.path.basename(self.root)}: not followed")
        except OSError:
            os.close(handle)
            raise
        return open(handle, "rb")

    def read(self, path: str | os.PathLike[str], most_bytes: int) -> bytes:
        """Return the contents of a file. Raises as `open` does, and RefusedFileError for more bytes than that."""
        with self.open(path) as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise RefusedFileError(os.fspath(path), f"is larger than {size_text(most_bytes)}")
        return data

    def begin(self, path: str | os.PathLike[str], most_bytes: int) -> bytes:
        """Return the first bytes of a file; b"" if it cannot be read."""
        try:
            with self.open(path) as file:
                return file.read(most_bytes)
        except OSError:
            return b""

    def leads_out(self, path: str | os.PathLike[str]) -> bool:
        """Tell whether a path leads out of the tree, through links or by its name."""
        return not self._holds_path(os.path.realpath(path))

    def _holds_path(self, real: str) -> bool:
        return not self.root or real == self.root or real.startswith(os.path.join(self.root, ""))


class _Named(Tree):
    def open(self, path: str | os.PathLike[str]) -> BufferedReader:
        if is_device(path):
            raise RefusedFileError(os.fspath(path), "is a device or a socket, not a file")
        piped = NO_WAIT and stat.S_ISFIFO(os.stat(path).st_mode)
        return _open_pipe(os.fspath(path)) if piped else open(path, "rb")


def is_device(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is that of a device or a socket, which may have no end; the null device has one."""
    file = Path(path)
    return str(path) != os.devnull and (file.is_char_device() or file.is_block_device() or file.is_socket())


ANYWHERE: Final = Tree()
"""For folders outside any package: regular files, wherever links lead."""
NAMED: Final = _Named()
"""For a file that the user names: also a pipe or process substitution into which something is written."""


def _open_pipe(name: str) -> BufferedReader:
    """Open a pipe once there is something in it, or its writer has ended; RefusedFileError if neither happens."""
    handle = os.open(name, os.O_RDONLY | NO_WAIT)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(1000 * WRITER_S):
        os.close(handle)
        raise RefusedFileError(name, f"is a pipe, and nothing was written to it for {WRITER_S} s")
    os.set_blocking(handle, True)
    return open(handle, "rb")


def open_regular(path: str | os.PathLike[str]) -> int:
    """Open a file to read and return its descriptor; never waits for a writer, as opening a pipe does.

    RefusedFileError if it is not a regular file; other OSErrors as `os.open` does.
    """
    handle = os.open(path, os.O_RDONLY | NO_WAIT | BINARY)
    try:
        expect_regular(os.fspath(path), os.fstat(handle))
        if NO_WAIT:  # file systems over tapes refuse to fetch a file for a reader that does not wait
            os.set_blocking(handle, True)
    except BaseException:
        os.close(handle)
        raise
    return handle


def size_text(size: int) -> str:
    """Return a number of bytes in the largest unit that divides it: 4 MiB."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >> shift and not size % (1 << shift):
            return f"{size >> shift} {unit}"
    return f"{size:,} bytes"


def expect_regular(path: str, status: os.stat_result) -> None:
    """Raise RefusedFileError unless it is the status of a regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    kind = next((name for test, name in kinds if test(status.st_mode)), "something else")
    raise RefusedFileError(path, f"is {kind}, not a file")


def _real_path(handle: int, path: str) -> str:
    """Return the real path of an open file; from the system, so that replacing a folder meanwhile changes nothing."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:  # not Linux
        return os.path.realpath(path)
