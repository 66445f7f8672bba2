"""The lock of the system on a file, for the processes of one machine; a folder that machines share has a lease.

The system releases a lock when all processes that hold or inherited it have ended, for whatever reason. On a file
system that has no locks everyone gets every lock.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from common.errors import NEEDS_POSIX, UsageError
from common.tree import NO_LINK

NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Of a file system that has none."""
LONGEST_HOLDER: Final = 400
"""Bytes of a holder's description that an error shows."""
HINT: Final = "wait until it has ended, or choose another folder"


class LockedError(OSError):
    """Another process has the lock. holder: its description of itself."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(errno.EWOULDBLOCK, f"in use by process {holder}, or one that it started; {HINT}", str(path))
        self.holder = holder


def try_lock(file: IO[Any] | int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False if another process has it.

    shared: together with all that share it, not alone. A lock that this process has becomes one of the new kind.
    UsageError on Windows, which has no such locks.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        raise UsageError(f"this command {NEEDS_POSIX}") from None
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            return False
        if error.errno not in NO_LOCKS:
            raise OSError(error.errno, f"cannot be locked: {error.strerror}") from error
    return True


class LockFile:
    """A file of its own to lock, in a folder that is there.

    handle: of the open file, for processes that inherit the lock; -1 without it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle = -1
        self._close: Callable[[], object] = int

    def take(self, holder: str) -> None:
        """Take the lock for this process alone; raise LockedError if another has it. holder: describes this process."""
        self._take(shared=False)
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, holder.encode(), 0)

    def share(self) -> None:
        """Take the lock, or turn it into one, together with others that share it; the same LockedError."""
        if self.handle < 0:
            self._take(shared=True)
        else:
            self._lock(self.handle, shared=True)

    def is_last(self) -> bool:
        """Tell whether no other process shares the lock any more; then none can until `release`."""
        return try_lock(self.handle)

    def release(self, *, remove: bool = False) -> None:
        """Give the lock back. remove: the file, too, which whoever waits for it notices."""
        try:
            if remove:
                self.path.unlink(missing_ok=True)
        finally:
            self._close()
            self.handle = -1

    def _take(self, *, shared: bool) -> None:
        while self.handle < 0:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
            close = weakref.finalize(self, os.close, handle)
            try:
                self._lock(handle, shared=shared)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(handle), os.stat(self.path)):
                        self.handle, self._close = handle, close
            finally:
                if self.handle != handle:
                    close()

    def _lock(self, handle: int, *, shared: bool) -> None:
        if not try_lock(handle, shared=shared):
            raise LockedError(self.path, os.pread(handle, LONGEST_HOLDER, 0).decode(errors="replace"))
