"""The result log of a run, written by rank 0 to a new file with the official logger; it always ends with `run_stop`.

Its times are those of the wall clock at its first record, and what has passed since by a clock that nobody sets: a wall
clock that is corrected during a run changes no interval.

The log is the evidence of a run, so an existing file is neither overwritten nor appended to. A resumed run gets a new
file that starts with the records up to the checkpoint; the old file keeps all its records under another name.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self, cast

from mlperf_logging.mllog import constants
from mlperf_logging.mllog.mllog import MLLogger

from common.benchmarks import ROOT
from common.ending import FAILED, TARGET_MET, Ending, classify_error
from common.files import follow_no_link, read_end, write_whole_file
from common.record import find_records, parse_line, read_records
from common.settings.run import SubmissionConfig

DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")
FRAMES_TO_CALLER: Final = 3
"""From MLLogger's method through `_write_record` and the method of ResultLog to its caller."""

CALLER_ROOT: Final = f"(?:{re.escape(str(ROOT))}|.*)"
"""The prefix that MLLogger removes from the caller's file, a regular expression: the folder of the suite, else any
folder, since a log must not name the folders of a machine."""
LOCK_S: Final = 1.0
"""For a record that another thread writes, perhaps to a file system that hangs."""
CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It also counts while the machine sleeps; so does the other one where this one is unknown."""
PUT_BACK: Final = "put the log of the interrupted run there, or begin again in another output_dir"


class LogError(ValueError):
    """A log cannot be started or continued; the message says how to fix it."""


class LogMismatchError(LogError):
    """A log is not the one that a checkpoint states."""


class _Line(logging.Logger):
    """Captures the official logger's output, and rejects anything but a record."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        text = str(msg).strip()
        if level != logging.INFO:
            raise TypeError(f"not a log record: {text}; values are numbers, text, lists and dicts; `file` is reserved")
        self.text = text


def _allow_anyone() -> None:
    """Let anyone write."""


class ResultLog:
    """Writes records to its file, unbuffered. Their metadata name the line of code that called the method.

    crc32: the checksum of what is in the file. guard: called before each record is written; raises if another process
    owns the file now. lock: of the thread that writes.
    """

    def __init__(
        self, path: Path, *, fresh: bool = True, crc32: int = 0, guard: Callable[[], None] = _allow_anyone
    ) -> None:
        self.path, self.crc32, self._guard = path, crc32, guard
        self.lock = threading.RLock()
        self._mode = "xb" if fresh else "ab"
        self._line = _Line("result log")
        self._mllog = MLLogger(self._line, default_stack_offset=FRAMES_TO_CALLER, root_dir=CALLER_ROOT)

    @cached_property
    def _file(self) -> BinaryIO:
        # Opened with the first record: a run that fails before it leaves no file that would block the next.
        return cast(BinaryIO, open(self.path, self._mode, opener=follow_no_link))

    @cached_property
    def _offset_ms(self) -> int:
        """What makes a time since 1970 of `elapsed_ms`: of the wall clock, but not before a record in the file."""
        earlier = () if self._mode == "xb" else map(parse_line, read_end(self.path).splitlines())
        latest_ms = max((int(record.time_ms) for record in earlier if record), default=0)
        return max(time.time_ns() // 1_000_000, latest_ms) - elapsed_ms()

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Log the start of an interval."""
        self._write_record(MLLogger.start, key, value, metadata)

    def end(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Log the end of an interval."""
        self._write_record(MLLogger.end, key, value, metadata)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Log a value, or an event at a point in time."""
        self._write_record(MLLogger.event, key, value, metadata)

    def interval(self, name: str, begin_ms: int, end_ms: int, **metadata: Any) -> None:
        """Log an interval that is over, as NAME_start and NAME_stop; metadata: of its end. Times: of `elapsed_ms`."""
        self._write_record(MLLogger.start, f"{name}_start", None, {}, begin_ms)
        self._write_record(MLLogger.end, f"{name}_stop", None, metadata, end_ms)

    def has_record(self, key: str) -> bool:
        """Tell whether the file has a record of the key."""
        return any(read_records(self.path, key))

    def sync_position(self) -> int:
        """Flush the log to disk and return its size in bytes, from which `open_log` can continue."""
        with self.lock:
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """Write no more; a log whose run never started is removed."""
        if "_file" in self.__dict__:
            self._file.close()
            if not self.has_record(constants.RUN_START):
                self._guard()
                self.path.unlink(missing_ok=True)

    def _write_record(
        self, record: Callable[..., None], key: str, value: Any, metadata: dict[str, Any], at_ms: int | None = None
    ) -> None:
        with self.lock:
            time_ms = self._offset_ms + (elapsed_ms() if at_ms is None else at_ms)
            record(self._mllog, key, value, metadata, time_ms=time_ms)
            self._guard()
            line = self._line.text.encode() + b"\n"
            try:
                self._file.write(line)
                self._file.flush()
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            self.crc32 = zlib.crc32(line, self.crc32)


class SilentLog(ResultLog):
    """The log of the ranks that do not write one."""

    def __init__(self, path: Path) -> None:
        self.path, self.crc32 = path, 0
        self.lock = threading.RLock()

    def has_record(self, key: str) -> bool:
        return False

    def sync_position(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def _write_record(
        self, record: Callable[..., None], key: str, value: Any, metadata: dict[str, Any], at_ms: int | None = None
    ) -> None:
        pass


class RunRecord:
    """The timed run in the log: run_start at the begin of the `with`, or run_resumed if the log already has that.

    However it ends, run_stop is written once; `success` only if the target was met.

    ending: how the run ended; set by `end`, or by the exception that ends the `with`.
    """

    def __init__(self, log: ResultLog) -> None:
        self._log, self._stopped = log, False
        self.ending = Ending(FAILED, "the run was left without an ending")

    def end(self, ending: Ending) -> None:
        """Set how the run ended, for run_stop."""
        self.ending = ending

    def __enter__(self) -> Self:
        if self._log.has_record(constants.RUN_START):
            self._log._write_record(MLLogger.event, "run_resumed", None, {})
        else:
            self._log._write_record(MLLogger.start, constants.RUN_START, None, {})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and not self.ending.final:
            self.ending = classify_error(error)
        self._log._write_record(MLLogger.end, constants.RUN_STOP, None, self._stop_metadata())
        self._stopped = True

    def stop(self) -> None:
        """Write run_stop, unless that is done, and let no other thread write any more: the process is about to end."""
        self._log.lock.acquire(timeout=LOCK_S)
        if not self._stopped:
            self._log._write_record(MLLogger.end, constants.RUN_STOP, None, self._stop_metadata())

    def _stop_metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {constants.STATUS: constants.ABORTED}
        if self.ending.how == TARGET_MET:
            metadata = {constants.STATUS: constants.SUCCESS, constants.EPOCH_NUM: self.ending.epochs}
        return metadata | self.ending.metadata


def open_log(
    path: Path, is_main: bool, keep_bytes: int | None = None, guard: Callable[[], None] = _allow_anyone
) -> ResultLog:
    """Open the log of a run; ranks other than the main one get a silent log.

    keep_bytes: `position()` at the checkpoint from which the run resumes. The new file starts with this many bytes of
        the old one, which is renamed: result_0.txt to result_0.txt.interrupted-1, and so on.
    guard: see ResultLog.
    Raises LogError if a log exists, or if it does not match the checkpoint.
    """
    if not is_main:
        return SilentLog(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if keep_bytes is not None:
        return ResultLog(path, fresh=False, crc32=_restart_log(path, keep_bytes), guard=guard)
    if path.exists():
        raise LogError(f"{path}: a log already exists; continue the run by --resume, or choose another output_dir")
    return ResultLog(path, guard=guard)


def read_beginning(path: Path, size: int, crc32: int | None = None) -> bytes:
    """Return the first `size` bytes of a log that a run continues.

    crc32: their checksum; None: unknown. Raises LogError without a log, and LogMismatchError unless they are there, and
    complete records of an unfinished run.
    """
    if not path.is_file():
        raise LogError(f"{path}: no log to continue; resume in the output_dir of the interrupted run: {PUT_BACK}")
    with path.open("rb") as file:
        beginning = file.read(max(size, 0))
    reason = ""
    if len(beginning) < size:
        reason = f"it has only {len(beginning):,} bytes, "
    elif crc32 not in (None, zlib.crc32(beginning)):
        reason = "it has other records, "
    if reason or not beginning.endswith(b"\n") or any(find_records(beginning.splitlines(), constants.RUN_STOP)):
        raise LogMismatchError(
            f"{path}: not the log of the checkpoint: {reason}expected complete records of an unfinished run in its "
            f"first {size:,} bytes"
        )
    return beginning


def elapsed_ms() -> int:
    """Return the time of a clock that nobody sets, in ms since some moment."""
    return time.clock_gettime_ns(CLOCK) // 1_000_000


def set_aside(path: Path) -> bool:
    """Keep a file or folder of a run that starts over under a name that checkers ignore; tell whether it exists."""
    if not path.exists():
        return False
    path.rename(_unused_name(path))
    return True


def log_beginning(
    log: ResultLog,
    benchmark: str,
    submission: SubmissionConfig,
    cache_cleared: bool,
    provenance: Mapping[str, Any],
    **instance: Any,
) -> None:
    """Log the start of the initialisation: that caches were cleared (null: not by the suite), provenance, submission.

    provenance: versions, revision, hash of the sources, resolved configuration: see `common.provenance`. instance:
    metadata of submission_benchmark that say which of several trainings it is.
    Raises LogError for a submission without names.
    """
    for name in ("org", "platform"):
        if not getattr(submission, name).strip():
            raise LogError(f"submission.{name} is empty, but a log must state it: set submission.{name}=NAME")
    log.event(constants.CACHE_CLEAR, cache_cleared or None)
    log.start(constants.INIT_START)
    # Before all settings: the official convergence checker searches records for names of settings as text, and
    # takes the last record that it finds.
    log.event("provenance", dict(provenance))
    log.event(constants.SUBMISSION_BENCHMARK, benchmark, **instance)
    log.event(constants.SUBMISSION_ORG, submission.org)
    log.event(constants.SUBMISSION_DIVISION, submission.division)
    log.event(constants.SUBMISSION_STATUS, submission.status)
    log.event(constants.SUBMISSION_PLATFORM, submission.platform)


def log_facts(log: ResultLog, facts: Mapping[str, Any]) -> None:
    """Log the facts of the run and its hyperparameters (key -> value); call it before init_stop."""
    for name, value in facts.items():
        log.event(name, value)


def draw_seed() -> int:
    """Return a seed from the system's randomness: 1 <= seed < 2**31."""
    return 1 + secrets.randbelow(2**31 - 1)


def clear_cache(drop: bool) -> None:
    """Drop this node's page cache if `drop` is true, as the rules ask before a run.

    Raises LogError if this process may not do so (it needs root, and Linux).
    """
    if drop:
        os.sync()  # the kernel drops clean pages only
        try:
            DROP_CACHES.write_text("3\n")
        except OSError as error:
            raise LogError(
                f"the page cache cannot be dropped ({DROP_CACHES}: {error.strerror}); this needs root on Linux: let "
                "the job's prologue do it (drop_page_cache=prologue), or run without drop_page_cache"
            ) from error


def _restart_log(path: Path, keep_bytes: int) -> int:
    """Truncate a log to its first bytes and keep all of it under a new name; return the checksum of what is left.

    Raises LogError if it does not match.
    """
    beginning, old = read_beginning(path, keep_bytes), path.read_bytes()
    stops = find_records(old.splitlines(), constants.RUN_STOP)
    if any(stop.meta(constants.STATUS) == constants.SUCCESS for stop in stops):
        raise LogError(f"{path}: this run is finished and met its target; there is nothing to resume")
    # Copy first, so that no file is ever incomplete and no record is lost.
    write_whole_file(_unused_name(path), old, sync=True)
    write_whole_file(path, beginning, sync=True)
    return zlib.crc32(beginning)


def _unused_name(path: Path) -> Path:
    """Return an unused name that checkers, which look for result_*.txt, ignore."""
    number = 1
    while (name := path.with_name(f"{path.name}.interrupted-{number}")).exists():
        number += 1
    return name
