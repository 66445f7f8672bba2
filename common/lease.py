"""The owner of a run's folder: one training at a time, also where several machines share the file system.

The owner holds the file lease-N.json and touches it every 30 s. Who finds it takes over only if the owner's process is
gone on the same machine, or its last heartbeat is 5 minutes old by the clock of the file system: it creates
lease-N+1.json, which only one can do, and removes the older one. An owner looks for its file before it writes anything;
if it is gone, or has a successor, the owner has lost the folder and ends without a word in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from common.ending import STOPPED, Ending, EndingError
from common.files import CHECKPOINTS, UNFINISHED, open_regular

HEARTBEAT_S: Final = 30.0
STALE_S: Final = 300.0
MOST_BYTES: Final = 1 << 16
"""Of a lease; more is not one."""
LOOK_S: Final = 2.0
"""How often one that waits looks."""
NAME: Final = re.compile(r"lease-(\d+)\.json")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
JOB_VARIABLES: Final = ("SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID", "LSB_JOBID", "COBALT_JOBID")


class InUseError(EndingError):
    """Another training owns the folder; the message names it."""

    def __init__(self, message: str) -> None:
        super().__init__(Ending(STOPPED, "another owner of the folder"), message)


class LeaseLostError(InUseError):
    """Another training took the folder over; nothing more is written there."""


class _Held(NamedTuple):
    """A lease that was found. owner: its content, empty if it is damaged."""

    path: Path
    number: int
    owner: Mapping[str, Any]


class Lease:
    """The ownership of a folder by this process; only one rank of a run takes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path: Path | None = None
        self._me = _me()
        self._content = json.dumps(self._me).encode() + b"\n"
        self._waits_since: float | None = None
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._keep, name="lease", daemon=True)

    def take(self, wait: bool) -> bool:
        """Try to become the owner; return whether that worked. Then what a killed owner left half-written is removed.

        Raises InUseError where it is useless to try again later. wait: never. Without it only a job that was queued
        again may wait, for what is left of its earlier start, whose process cannot be seen from another machine.
        """
        held = self._owner_before()
        if held:
            if not self._may_wait(held, wait):
                raise InUseError(
                    f"{self.folder} is in use by {_named(held)}; wait for it (--wait), or choose another output_dir. "
                    f"It counts as dead {STALE_S / 60:.0f} minutes after its last sign of life"
                )
            return False
        self._beat.start()
        # Not in other folders: an instance in its own may have another owner.
        for path in [*self.folder.glob(UNFINISHED), *(self.folder / CHECKPOINTS).glob(UNFINISHED)]:
            path.unlink(missing_ok=True)
        return True

    def _may_wait(self, held: _Held, wait: bool) -> bool:
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
            if wait or _same_job(held, self._me):
                print(f"{self.folder} is in use by {_named(held)}; waiting until it is free", flush=True)
        return wait or (_same_job(held, self._me) and now - self._waits_since < STALE_S + HEARTBEAT_S)

    @property
    def held(self) -> bool:
        """Whether this process took the folder."""
        return self._path is not None

    def check(self) -> None:
        """Raise LeaseLostError if another training took the folder over; a training that owns no folder may write."""
        if self._path is None:
            return
        try:
            if self._path.read_bytes() == self._content and not _successor(self._path).exists():
                return
        except FileNotFoundError:
            pass
        except OSError:  # a file system that does not answer for a while says nothing about the owner
            return
        held = _newest(self.folder)
        by = f" by {_named(held)}" if held else ""
        raise LeaseLostError(
            f"{self.folder} was taken over{by}, because this training showed no sign of life for "
            f"{STALE_S / 60:.0f} minutes; nothing more is written there"
        )

    def release(self) -> None:
        """Give the folder up; an empty one is removed."""
        self._ended.set()
        if self._path is None:
            return
        with suppress(LeaseLostError):
            self.check()
            self._path.unlink(missing_ok=True)
            with suppress(OSError):  # something is in it
                self.folder.rmdir()
        self._path = None

    def _owner_before(self) -> _Held | None:
        """Become the owner unless another one is alive, which is returned."""
        while True:
            # Suppressed: another process was faster, with its lease, with its clean-up, or with removing the folder.
            self.folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError, FileNotFoundError):
                held = _newest(self.folder)
                with _draft(self.folder, self._content) as draft:
                    if held and not _dead(held, draft):
                        return held
                    path = self.folder / f"lease-{held.number + 1 if held else 1}.json"
                    _link(draft, path)
                self._path = path
                for older in _all(self.folder):
                    if older.number < _number(path):
                        older.path.unlink(missing_ok=True)
                return None

    def _keep(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            path = self._path
            with suppress(OSError):  # a file system that does not answer for a while; `check` finds a lost lease
                if path is not None:
                    os.utime(path)


@contextlib.contextmanager
def _draft(folder: Path, content: bytes) -> Iterator[Path]:
    """Yield a file with the content, which is removed at the end; its time is the clock of the file system."""
    draft = folder / f"lease.{secrets.token_hex(8)}.tmp"
    try:
        draft.write_bytes(content)
        yield draft
    except OSError as error:
        if error.filename is None:
            error.filename = str(draft)  # a full disk does not say which file it was
        raise
    finally:
        draft.unlink(missing_ok=True)


def _link(draft: Path, path: Path) -> None:
    """Give the draft a second name; FileExistsError if another was faster."""
    try:
        os.link(draft, path)  # on NFS as well, only one can
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # a file system without links
        with path.open("xb") as file:
            file.write(draft.read_bytes())


def _me() -> dict[str, Any]:
    """Return what tells this process from all others."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "began": _began(os.getpid()),
        "machine": _machine(),
        "job": _job(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "token": secrets.token_hex(8),
    }


def _job() -> str:
    """Return the number of the scheduler's job, the same after the job was queued again; "" without a scheduler."""
    return next((os.environ[name] for name in JOB_VARIABLES if os.environ.get(name)), "")


def _machine() -> str:
    """Return the identity of this running system and its process numbers; "" where it is unknown."""
    with suppress(OSError):
        return f"{BOOT_ID.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _began(pid: int) -> str:
    """Return when a process began, in the kernel's ticks; "" if there is none, or if it has ended."""
    with suppress(OSError):
        # The command, in parentheses, may contain anything; field 3 is the state, field 22 the start (proc(5)).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    return ""


def _dead(held: _Held, draft: Path) -> bool:
    """Tell whether an owner is gone. draft: a file that was written just now.

    FileNotFoundError if the lease was given up, or the draft removed, just now: look again.
    """
    owner = held.owner
    if owner.get("machine") and owner["machine"] == _machine():
        return _began(int(owner["pid"])) != str(owner.get("began"))
    return draft.stat().st_mtime - held.path.stat().st_mtime > STALE_S


def _same_job(held: _Held | None, me: Mapping[str, Any]) -> bool:
    return bool(held and me["job"] and held.owner.get("job") == me["job"])


def _named(held: _Held | None) -> str:
    owner = held.owner if held else {}
    job = f" of job {owner['job']}" if owner.get("job") else ""
    return f"process {owner.get('pid', '?')}{job} on {owner.get('host', 'another machine')}, since {owner.get('since')}"


def _newest(folder: Path) -> _Held | None:
    return max(_all(folder), key=lambda held: held.number, default=None)


def _all(folder: Path) -> list[_Held]:
    return [
        _Held(path, _number(path), _owner(path)) for path in folder.glob("lease-*.json") if NAME.fullmatch(path.name)
    ]


def _owner(path: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError, RecursionError), open(open_regular(path), "rb") as file:
        found = json.loads(file.read(MOST_BYTES))
        if isinstance(found, dict) and str(found.get("pid")).isdecimal():
            return found
    return {}


def _number(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _successor(path: Path) -> Path:
    return path.with_name(f"lease-{_number(path) + 1}.json")
