"""The result log of a run: records of the official logger in a fresh file, by rank 0, with `run_stop` in every case.

The log is the evidence of a run, so a file that is there is never overwritten nor appended to. A run that goes on from
a checkpoint gets a new file: it begins with the records up to the checkpoint, and the old file keeps all of its records
under another name.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Literal, Self, cast

from mlperf_logging.mllog import constants
from mlperf_logging.mllog.mllog import MLLogger

from common.config import PLACE, key
from common.files import whole_file
from common.provenance import ROOT
from common.reference import FULL, ROUNDS

DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")
SUCCESSFUL_STOP: Final = re.compile(rb'"key": "run_stop".*"status": "success"')
FRAMES_TO_CALLER: Final = 3
"""From MLLogger's method over `_write` and the method that called it to who called that."""

CALLER_ROOT: Final = f"(?:{re.escape(str(ROOT))}|.*)"
"""The folder that MLLogger cuts off from the caller's file, as a regular expression: that of the suite, else any, since
a log must not name the folders of a machine."""


class LogError(ValueError):
    """A log cannot be begun or continued as asked; the message says how to fix it."""


@dataclass(frozen=True, slots=True)
class SubmissionConfig:
    """Who submits the run, and by which rules it is judged."""

    org: str = key("", "organisation, for the log; may be empty until a run begins", PLACE)
    division: Literal["open", "closed"] = key("open", "division of the result", PLACE)
    status: Literal["onprem", "cloud", "preview", "research"] = key("onprem", "availability of the system", PLACE)
    platform: str = key("", "name of the system description; may be empty until a run begins", PLACE)
    round: str = key(ROUNDS[-1], "decides whether data staging counts as part of the run; in quotes", PLACE)

    def __post_init__(self) -> None:
        if self.round not in ROUNDS:
            raise ValueError(f"round is {self.round!r}; expected one of {', '.join(ROUNDS)}")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What each log states of its run beside the hyperparameters; the names are the keys in the log.

    accelerators_per_node: 0 on a system without accelerators.
    """

    seed: int
    number_of_ranks: int
    number_of_nodes: int
    accelerators_per_node: int
    train_samples: int
    eval_samples: int
    dataset_variant: str = FULL


class _Line(logging.Logger):
    """Holds what the official logger wants to write, and refuses what it writes instead of a record."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        text = str(msg).strip()
        if level != logging.INFO:
            raise TypeError(f"no log record: {text}; values are numbers, text, lists and dicts, `file` is reserved")
        self.text = text


class ResultLog:
    """Writes records to its file, each at once. Metadata name the line of code that called the method."""

    def __init__(self, path: Path, *, fresh: bool = True) -> None:
        self.path = path
        self._mode = "xb" if fresh else "ab"
        self._line = _Line("result log")
        self._mllog = MLLogger(self._line, default_stack_offset=FRAMES_TO_CALLER, root_dir=CALLER_ROOT)

    @cached_property
    def _file(self) -> BinaryIO:
        # Opened for the first record: a run that fails before it leaves no file that stands in the way of the next.
        return cast(BinaryIO, self.path.open(self._mode))

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        """An interval begins."""
        self._write(MLLogger.start, key, value, metadata)

    def end(self, key: str, value: Any = None, **metadata: Any) -> None:
        """An interval ends."""
        self._write(MLLogger.end, key, value, metadata)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Something holds or happens at a point in time."""
        self._write(MLLogger.event, key, value, metadata)

    def run(self) -> RunRecord:
        """Return a context manager that logs run_start (or run_resumed, if the log has that already) and run_stop."""
        return RunRecord(self)

    def holds(self, key: str) -> bool:
        """Tell whether a record of the key is in the file."""
        return self.path.exists() and _has(self.path.read_bytes(), key)

    def position(self) -> int:
        """Return the size of the log in bytes; so many are safe on disk, and `open_log` can go on from there."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Nothing can be written any more; a log whose run never started makes way for the next under another name."""
        if "_file" in self.__dict__:
            self._file.close()
            if not self.holds(constants.RUN_START):
                self.path.rename(_unused_name(self.path))

    def _write(self, record: Callable[..., None], key: str, value: Any, metadata: dict[str, Any]) -> None:
        record(self._mllog, key, value, metadata)
        try:
            self._file.write(self._line.text.encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error


class SilentLog(ResultLog):
    """The log of the ranks that write none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def holds(self, key: str) -> bool:
        return False

    def position(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def _write(self, record: Callable[..., None], key: str, value: Any, metadata: dict[str, Any]) -> None:
        pass


class RunRecord:
    """The timed run in the log. However it ends, run_stop is written once: `success` only after `succeed()`."""

    def __init__(self, log: ResultLog) -> None:
        self._log = log
        self._metadata: dict[str, Any] = {constants.STATUS: constants.ABORTED}

    def succeed(self, epoch_num: int) -> None:
        """The target was met in this epoch; run_stop will say so."""
        self._metadata = {constants.STATUS: constants.SUCCESS, constants.EPOCH_NUM: epoch_num}

    def __enter__(self) -> Self:
        if self._log.holds(constants.RUN_START):
            self._log._write(MLLogger.event, "run_resumed", None, {})
        else:
            self._log._write(MLLogger.start, constants.RUN_START, None, {})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log._write(MLLogger.end, constants.RUN_STOP, None, self._metadata)


def open_log(path: Path, is_main: bool, keep_bytes: int | None = None) -> ResultLog:
    """Return the log of a run in a file of its own; ranks other than the main one get a silent log.

    keep_bytes: what `position()` was at the checkpoint from which the run goes on. The new file starts with so many
        bytes of the old one, which stays under a new name: result_0.txt as result_0.txt.interrupted-1, and so on.
    Raises LogError where a log is already, or where it does not fit the checkpoint.
    """
    if not is_main:
        return SilentLog(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if keep_bytes is not None:
        _restart(path, keep_bytes)
    elif path.exists():
        raise LogError(f"{path}: a log is there already; choose another output_dir, or go on with --resume")
    return ResultLog(path, fresh=keep_bytes is None)


def begin(
    log: ResultLog, benchmark: str, submission: SubmissionConfig, cache_cleared: bool, evidence: Mapping[str, Any]
) -> None:
    """Initialisation has begun: the log says whether caches were cleared, what runs, and who submits it.

    evidence: versions, revision, hash of the sources, resolved configuration: see `common.provenance`.
    Raises LogError for a submission without names.
    """
    for name in ("org", "platform"):
        if not getattr(submission, name).strip():
            raise LogError(f"submission.{name} is empty, and a log must state it: set submission.{name}=NAME")
    log.event(constants.CACHE_CLEAR, cache_cleared)
    log.start(constants.INIT_START)
    # Before all settings: the official convergence checker searches records for the names of settings as text, and
    # takes the last record that it finds.
    log.event("provenance", dict(evidence))
    log.event(constants.SUBMISSION_BENCHMARK, benchmark)
    log.event(constants.SUBMISSION_ORG, submission.org)
    log.event(constants.SUBMISSION_DIVISION, submission.division)
    log.event(constants.SUBMISSION_STATUS, submission.status)
    log.event(constants.SUBMISSION_PLATFORM, submission.platform)


def describe(log: ResultLog, facts: RunFacts, settings: Mapping[str, Any]) -> None:
    """The log states the facts of the run and its hyperparameters (key -> value); before init_stop."""
    for name, value in (*asdict(facts).items(), *settings.items()):
        log.event(name, value)


def draw_seed() -> int:
    """Return a seed from the system's randomness: 1 <= seed < 2**31."""
    return 1 + secrets.randbelow(2**31 - 1)


def clear_cache(drop: bool) -> bool:
    """Return `drop`; if it is true, this node's page cache is empty now, as the rules want it before a run.

    Raises LogError where this process may not do so (it needs root, and Linux).
    """
    if drop:
        os.sync()  # the kernel drops clean pages only
        try:
            DROP_CACHES.write_text("3\n")
        except OSError as error:
            raise LogError(
                f"the page cache cannot be dropped ({DROP_CACHES}: {error.strerror}); this needs root on Linux: let "
                "the job's prologue do it, or run without"
            ) from error
    return drop


def _has(content: bytes, key: str) -> bool:
    # In a value the quotes would be escaped.
    return f'"key": "{key}"'.encode() in content


def _restart(path: Path, keep_bytes: int) -> None:
    """Replace a log by its first bytes; all of it is kept under a new name. Raises LogError if it does not fit."""
    if not path.is_file():
        raise LogError(f"{path}: no log to go on with; resume in the output_dir of the interrupted run")
    old = path.read_bytes()
    kept = old[:keep_bytes]
    if not 0 < keep_bytes <= len(old) or not kept.endswith(b"\n") or _has(kept, constants.RUN_STOP):
        raise LogError(
            f"{path}: not the log that the checkpoint belongs to: its first {keep_bytes} bytes are no whole records "
            "of a run under way; put the log of the interrupted run there"
        )
    if SUCCESSFUL_STOP.search(old):
        raise LogError(f"{path}: this run met its target and is finished; there is nothing to resume")
    # The copy first: at no time a name holds half a log, nor are records lost.
    _replace(_unused_name(path), old)
    _replace(path, kept)


def _unused_name(path: Path) -> Path:
    """Return a name for a log that is no result: checkers look for result_*.txt."""
    number = 1
    while (name := path.with_name(f"{path.name}.interrupted-{number}")).exists():
        number += 1
    return name


def _replace(path: Path, content: bytes) -> None:
    """The file has this content, or, if the machine fails meanwhile, what it had before."""
    with whole_file(path) as part, part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
