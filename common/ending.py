"""How a run ended: recorded by the training itself, in the folder of the run and in its log.

A round, a job script and a package read this record. The exit status of a launcher says less: torchrun makes 1 of every
status but 0, and srun reports a killed rank as it does an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from common.console import print_warning
from common.files import LOG_NAME, read_end, write_whole_file
from common.record import parse_object, read_last_record

NAME: Final = "ended.json"
How = Literal["target_met", "target_not_met", "completed", "stopped_early", "diverged", "stopped", "failed"]
TARGET_MET, TARGET_NOT_MET, COMPLETED, STOPPED_EARLY, DIVERGED, STOPPED, FAILED = get_args(How)
TRAINED: Final = (TARGET_MET, COMPLETED)
"""The endings of a run that has trained as far as it should."""
FINAL: Final = (*TRAINED, TARGET_NOT_MET, STOPPED_EARLY, DIVERGED)
"""The endings of a run that has its result."""
EXIT_STATUS: Final[dict[How, int]] = {
    **dict.fromkeys(TRAINED, 0),
    FAILED: 1,
    DIVERGED: 1,
    STOPPED: 3,
    STOPPED_EARLY: 4,
    TARGET_NOT_MET: 4,
}
"""Of the training command. 2 is wrong use, which begins no run."""
FOLDERS: Final = r"(?<![\w.-])/(?:[^\s/:'\"]+/)+"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended.

    how: `target_met`; `target_not_met`, after all epochs or steps; `completed`, after them, without a target;
    `stopped_early`, before them, because a callback asked for it, and over; `diverged`, the loss is not a number
    although the samples are finite: what the training did, so it counts as a run that missed its target; `stopped`, to
    be continued; `failed`, by an error, of the data too.
    cause: the signal, the callback with its reason, or the error. epochs: those that were evaluated; of a job, in all
    its instances.
    """

    how: How
    cause: str = ""
    epochs: int = 0

    def __post_init__(self) -> None:
        if self.how not in EXIT_STATUS:
            raise ValueError(f"how is {self.how!r}; expected one of {', '.join(EXIT_STATUS)}")

    @property
    def final(self) -> bool:
        """Whether the run has its result; otherwise it is to be continued, or started again with the same seed."""
        return self.how in FINAL

    @property
    def exit_status(self) -> int:
        """The exit status of the training command."""
        return EXIT_STATUS[self.how]

    @property
    def text(self) -> str:
        """The ending in words."""
        link = " by " if self.how in (STOPPED, STOPPED_EARLY) else ": "
        return self.how.replace("_", " ") + (f"{link}{self.cause}" if self.cause else "")

    @property
    def metadata(self) -> dict[str, Any]:
        """The entries of run_stop in the log, which must not name the folders of a machine."""
        return {"ended": self.how, **({"cause": re.sub(FOLDERS, "", self.cause)} if self.cause else {})}


class EndingError(BaseException):
    """An exception that knows how the run ends by it; not an Exception, so that no code handles it and continues."""

    def __init__(self, ending: Ending, message: str = "") -> None:
        super().__init__(message or ending.text)
        self.ending = ending


def classify_error(error: BaseException) -> Ending:
    """Return how a run ends by an exception."""
    if isinstance(error, EndingError):
        return error.ending
    if isinstance(error, FloatingPointError):
        return Ending(DIVERGED, str(error))
    return Ending(FAILED, str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}")


def write_ending(folder: Path, ending: Ending) -> None:
    """Record the ending in the folder of the run."""
    write_whole_file(folder / NAME, json.dumps(asdict(ending)) + "\n")


def forget_ending(folder: Path) -> None:
    """Remove the record of a run that goes on."""
    (folder / NAME).unlink(missing_ok=True)


def read_ending(folder: Path) -> Ending | None:
    """Return how the run in a folder ended; None if it has not: it is active, or was killed.

    A job may die between the end of the log and the record in the folder, and the record may be damaged: then the log
    tells. Where the record contradicts the log, the log is believed, with a warning.
    """
    log = folder / LOG_NAME
    stop = read_last_record(log, "run_stop")
    logged = stated_ending(stop.metadata, read_logged_epochs(log)) if stop else None
    record = parse_object(read_end(folder / NAME))
    if record.get("how") not in get_args(How):
        return logged
    recorded = Ending(record["how"], str(record.get("cause", "")), _as_count(record.get("epochs")))
    if logged is None:
        # A run_stop without a reason is of an older version; without a log there is nothing to contradict.
        agrees = not recorded.final or not log.is_file() or (stop is not None and recorded.how != TARGET_MET)
    elif recorded.final:
        agrees = logged.how == recorded.how and (logged.epochs == recorded.epochs or not logged.epochs)
    else:  # of a later start, perhaps, which has not changed the log
        agrees = logged.how != TARGET_MET
    if agrees:
        return recorded
    text = f"{logged.text} after epoch {logged.epochs}" if logged else "that the run has not ended"
    says = f"{recorded.text} after epoch {recorded.epochs}"
    print_warning(f"{folder / NAME} says {says}, but {LOG_NAME} says {text}: the log is believed")
    return logged


def read_logged_epochs(log: Path) -> int:
    """Return the last epoch that was evaluated by a log; 0 if it has none, or does not exist."""
    evaluation = read_last_record(log, "eval_stop")
    return _as_count(evaluation.meta("epoch_num")) if evaluation else 0


def stated_ending(metadata: Any, evaluated: int = 0) -> Ending | None:
    """Return how a run ended by the metadata of its run_stop; None if they do not tell. evaluated: the last epoch."""
    if not isinstance(metadata, dict):
        return None
    if metadata.get("status") == "success":
        return Ending(TARGET_MET, epochs=_as_count(metadata.get("epoch_num")))
    how: Any = metadata.get("ended")
    return Ending(how, str(metadata.get("cause", "")), evaluated) if how in get_args(How) else None


def _as_count(value: Any) -> int:
    return value if isinstance(value, int) else 0
