"""One job at a time in a node's stage_dir: a lock that the system releases when all processes of the job are gone.

The lock is on a file in a folder of staging's own, which also has all that staging has not finished. Node-local file
systems have such locks; where there are none, nothing is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.staging.plan import StagingError

FOLDER: Final = ".mlperf-hpc-staging"
"""In stage_dir."""
LOCK: Final = "lock"
NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Of a file system that has none."""
LONGEST: Final = 200
"""Characters of a command that an error shows."""


class StageLock:
    """The lock of a stage_dir as this process holds it: exclusively while it cleans up, then with its job's ranks."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / FOLDER
        self._handle = -1
        self._close: Callable[[], object] = int

    @property
    def held(self) -> bool:
        """Whether this process takes part in the lock."""
        return self._handle >= 0

    def claim(self) -> None:
        """Take the lock for this process alone; StagingError, naming the other process, if another job has it."""
        self._take(fcntl.LOCK_EX)
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()} ({shlex.join(sys.argv)[:LONGEST]})".encode(), 0)

    def share(self) -> None:
        """Share the lock with all processes of the job on this node; the same StagingError."""
        if self.held:
            self._lock(self._handle, fcntl.LOCK_SH)
        else:
            self._take(fcntl.LOCK_SH)

    def is_last(self) -> bool:
        """Tell whether no other process takes part any more; then none can until `release`. Call it just before."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in NO_LOCKS
        return True

    def release(self, last: bool) -> None:
        """Give the lock back; the last process removes its file, which whoever waits for it notices."""
        if last:
            (self.folder / LOCK).unlink(missing_ok=True)
        self._close()
        self._handle = -1

    def _take(self, how: int) -> None:
        while True:
            if self.folder.is_symlink():
                raise StagingError(f"{self.folder} is a link; remove it, or choose another staging.stage_dir")
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                self.folder.mkdir(exist_ok=True)
                handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            except FileNotFoundError:  # just now removed by the last process of another job
                continue
            close = weakref.finalize(self, os.close, handle)
            try:
                self._lock(handle, how)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(handle), os.stat(self.folder / LOCK)):
                        self._handle, self._close = handle, close
                        return
            finally:
                if self._handle != handle:
                    close()

    def _lock(self, handle: int, how: int) -> None:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                who = os.pread(handle, 2 * LONGEST, 0).decode(errors="replace")
                raise StagingError(
                    f"staging.stage_dir {self.root} is in use by process {who}: one job at a time may stage there; "
                    "wait until that has ended, or choose another folder"
                ) from error
            if error.errno not in NO_LOCKS:
                raise StagingError(
                    f"staging.stage_dir {self.root} cannot be locked: {error.strerror}; choose another folder"
                ) from error
