"""Locks: the system's on a file, for the processes of one machine, and the lease of a folder that machines share.

The system releases a lock when all processes that hold or inherited it have ended, for whatever reason. On a file
system that has no locks everyone gets every lock.

A lease gives a run's folder one owner at a time, also where several machines share the file system. The owner holds
the file lease-N.json and touches it every 30 s. Another process takes the folder over only if the owner's process has
ended on the same machine, or if its last heartbeat is 5 minutes old by the clock of the file system: it creates
lease-N+1.json, which only one process can do, and removes the older file. Two processes can create files with
different numbers if one of them looked before an owner left and the other after. So each looks again after it has
created its file, and withdraws it if another living process has one, too: at least one of the two sees the other. An
owner looks for its file before it writes anything; without it the owner has lost the folder, and writes nothing more.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import socket
import stat
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from common.console import print_warning
from common.ending import STOPPED, Ending, EndingError
from common.errors import NEEDS_POSIX, UsageError
from common.files import CHECKPOINTS, UNFINISHED, new_file
from common.tree import NO_LINK, open_regular

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
        self._take_lock(shared=False)
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, holder.encode(), 0)

    def share(self) -> None:
        """Take the lock, or turn it into one, together with others that share it; the same LockedError."""
        if self.handle < 0:
            self._take_lock(shared=True)
        else:
            self._lock_handle(self.handle, shared=True)

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

    def _take_lock(self, *, shared: bool) -> None:
        while self.handle < 0:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
            close = weakref.finalize(self, os.close, handle)
            try:
                self._lock_handle(handle, shared=shared)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(handle), os.stat(self.path)):
                        self.handle, self._close = handle, close
            finally:
                if self.handle != handle:
                    close()

    def _lock_handle(self, handle: int, *, shared: bool) -> None:
        if not try_lock(handle, shared=shared):
            raise LockedError(self.path, os.pread(handle, LONGEST_HOLDER, 0).decode(errors="replace"))


HEARTBEAT_S: Final = 30.0
STALE_S: Final = 300.0
MOST_BYTES: Final = 1 << 16
"""Of a lease; more is not one."""
LOOK_S: Final = 2.0
"""How often one that waits looks."""
NAME: Final = re.compile(r"lease-(\d+)\.json")
MOST_PID: Final = 1 << 31
NO_FOLDER: Final = {errno.EEXIST: "not a folder", errno.ENOTDIR: "below a file"}
JOB_VARIABLES: Final = ("SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID", "LSB_JOBID", "COBALT_JOBID")


class InUseError(EndingError):
    """Another training owns the folder; the message names it."""

    def __init__(self, message: str) -> None:
        super().__init__(Ending(STOPPED, "another owner of the folder"), message)


class LeaseLostError(InUseError):
    """Another training took the folder over; nothing more is written there."""


class _HeldLease(NamedTuple):
    """A lease in the folder. owner: its content, empty if it is damaged. touched: its last heartbeat."""

    path: Path
    number: int
    owner: Mapping[str, Any]
    touched: float


class Lease:
    """The ownership of a folder by this process; only one rank of a run takes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path: Path | None = None
        self._me = {  # what tells this process from all others
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "began": _read_start_time(os.getpid()),
            "machine": _read_machine_id(),
            # The same after the job was queued again; "" without a scheduler.
            "job": next((os.environ[name] for name in JOB_VARIABLES if os.environ.get(name)), ""),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "token": secrets.token_hex(8),
        }
        self._content = json.dumps(self._me).encode() + b"\n"
        self._waits_since: float | None = None
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._send_heartbeats, name="lease", daemon=True)

    def take(self, wait: bool) -> bool:
        """Try to become the owner; return whether that worked. Then what a killed owner left half-written is removed.

        Raises InUseError where it is useless to try again later, OSError where no run can be. wait: never InUseError.
        Without it only a job that was queued again may wait, for what is left of its earlier start, whose process
        cannot be seen from another machine.
        """
        try:
            held = self._take_or_find_owner()
        except OSError as error:
            reason = NO_FOLDER.get(error.errno or 0, error.strerror)
            raise OSError(
                f"{self.folder} cannot be used for a run ({error.filename}: {reason}); set output_dir to a folder that "
                "can be written, or to a new one"
            ) from error
        if held:
            if not self._may_wait(held, wait):
                raise InUseError(
                    f"{self.folder} is in use by {_describe_owner(held)}; wait for it (--wait), or choose another "
                    f"output_dir. It counts as dead {STALE_S / 60:.0f} minutes after its last sign of life"
                    + ("" if held.owner else f"; if no training is active there, remove {held.path}")
                )
            return False
        self._beat.start()
        # Not in other folders: an instance in its own may have another owner.
        for path in [*self.folder.glob(UNFINISHED), *(self.folder / CHECKPOINTS).glob(UNFINISHED)]:
            path.unlink(missing_ok=True)
        return True

    def _may_wait(self, held: _HeldLease, wait: bool) -> bool:
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
            if wait or _is_same_job(held, self._me):
                print(f"{self.folder} is in use by {_describe_owner(held)}; waiting until it is free", flush=True)
        return wait or (_is_same_job(held, self._me) and now - self._waits_since < STALE_S + HEARTBEAT_S)

    def describe(self) -> list[str]:
        """Return what tells this lease, which is held, from others."""
        return [self._path.name if self._path else "", self._content.decode()]

    def is_left(self, lease: list[str]) -> bool:
        """Tell whether the lease that another process described is still that of the folder's owner."""
        name, content = lease
        with suppress(OSError):
            found = [held.path.name for held in _list_leases(self.folder)]
            return found == [name] and (self.folder / name).read_bytes() == content.encode()
        return False

    @property
    def held(self) -> bool:
        """Whether this process took the folder."""
        return self._path is not None

    def check(self) -> None:
        """Raise LeaseLostError if another training took the folder over; a training that owns no folder may write."""
        if self._path is None:
            return
        try:
            if self._path.read_bytes() == self._content:
                return
        except FileNotFoundError:
            pass
        except OSError:  # a file system that does not answer for a while says nothing about the owner
            return
        leases = _list_leases(self.folder)
        reason = f"{self.folder} is no longer owned by this training: {self._path.name} was removed"
        if leases:
            reason = (
                f"{self.folder} was taken over by {_describe_owner(leases[-1])}, because this training showed no sign "
                f"of life for {STALE_S / 60:.0f} minutes"
            )
        raise LeaseLostError(f"{reason}; nothing more is written there")

    def release(self) -> None:
        """Give the folder up; an empty one is removed."""
        self._ended.set()
        if self._path is None:
            return
        with suppress(LeaseLostError):
            self.check()
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:  # its owner has ended, which another one finds out
                print_warning(f"{self._path}: {error.strerror}; it may be removed")
            with suppress(OSError):  # something is in it
                self.folder.rmdir()
        self._path = None

    def _take_or_find_owner(self) -> _HeldLease | None:
        """Become the owner unless another one is alive, which is returned."""
        while True:
            _make_folder(self.folder)
            # Suppressed: another process was faster, with its lease, with its clean-up, or with removing the folder.
            with suppress(FileExistsError, FileNotFoundError), new_file(self.folder / "lease") as (draft, file):
                file.write(self._content)  # its time is the clock of the file system
                now, leases = draft.stat().st_mtime, _list_leases(self.folder)
                if alive := _find_living(leases, now):
                    return alive
                path = self.folder / f"lease-{leases[-1].number + 1 if leases else 1}.json"
                _link_draft(draft, path)
                try:
                    others = [lease for lease in _list_leases(self.folder) if lease.path != path]
                    if not _find_living(others, now):
                        for other in others:
                            other.path.unlink(missing_ok=True)
                        self._path = path
                        return None
                finally:
                    if not self.held:
                        path.unlink(missing_ok=True)

    def _send_heartbeats(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            path = self._path
            with suppress(OSError):  # a file system that does not answer for a while; `check` finds a lost lease
                if path is not None:
                    os.utime(path)


def _make_folder(folder: Path) -> None:
    """Make the folder unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        # Otherwise it was a folder, which its last owner has removed just now.
        if os.path.lexists(error.filename) and not os.path.isdir(error.filename):
            raise


def _link_draft(draft: Path, path: Path) -> None:
    """Give the draft a second name; FileExistsError if another was faster."""
    try:
        os.link(draft, path)  # on NFS as well, only one can
    except FileNotFoundError:
        raise
    except FileExistsError:
        if not os.path.samefile(draft, path):  # NFS may have lost its first answer, and have asked again
            raise
    except OSError:  # a file system without links
        with path.open("xb") as file:
            file.write(draft.read_bytes())


def _read_machine_id() -> str:
    """Return the identity of this running system and its process numbers; "" where it is unknown."""
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot_id} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _read_start_time(pid: int) -> str:
    """Return when a process began, in the kernel's ticks; "" if there is none, or if it has ended."""
    with suppress(OSError):
        # The command, in parentheses, may contain anything; field 3 is the state, field 22 the start (proc(5)).
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    return ""


def _find_living(leases: Sequence[_HeldLease], now: float) -> _HeldLease | None:
    """Return the newest of the leases whose owner lives. now: by the clock of the file system."""
    return next((lease for lease in reversed(leases) if not _is_dead(lease, now)), None)


def _is_dead(held: _HeldLease, now: float) -> bool:
    owner = held.owner
    if owner.get("machine") and owner["machine"] == _read_machine_id():
        began = _read_start_time(owner["pid"])
        if began or not _is_hidden(owner["pid"]):
            return began != str(owner.get("began"))
    return now - held.touched > STALE_S


def _is_hidden(pid: int) -> bool:
    """Tell whether another user has such a process, which /proc may not show (hidepid, proc(5))."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return False


def _is_same_job(held: _HeldLease | None, me: Mapping[str, Any]) -> bool:
    return bool(held and me["job"] and held.owner.get("job") == me["job"])


def _describe_owner(held: _HeldLease) -> str:
    owner = held.owner
    if not owner:
        return f"an unknown process, since {held.path} is damaged or cannot be read"
    words = {name: "".join(filter(str.isprintable, str(owner.get(name) or ""))) for name in ("job", "host", "since")}
    job = f" of job {words['job']}" if words["job"] else ""
    return f"process {owner['pid']}{job} on {words['host'] or 'another machine'}, since {words['since'] or 'unknown'}"


def _list_leases(folder: Path) -> list[_HeldLease]:
    """Return the leases in the folder, the newest last."""
    leases = []
    for path in folder.glob("lease-*.json"):
        if match := NAME.fullmatch(path.name):
            with suppress(FileNotFoundError):  # given up just now
                leases.append(_HeldLease(path, int(match[1]), *_read_lease(path)))
    return sorted(leases, key=lambda lease: lease.number)


def _read_lease(path: Path) -> tuple[Mapping[str, Any], float]:
    """Return the content of a lease, nothing if it is not one, and when it was last touched; a link is not followed."""
    status = path.lstat()
    try:
        if stat.S_ISREG(status.st_mode):
            with open(open_regular(path), "rb") as file:
                status = os.fstat(file.fileno())  # of the file that is read, if another has its name by now
                owner = json.loads(file.read(MOST_BYTES))
            if isinstance(owner, dict) and type(owner.get("pid")) is int and 0 < owner["pid"] < MOST_PID:
                return owner, status.st_mtime
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError):
        pass
    return {}, status.st_mtime
