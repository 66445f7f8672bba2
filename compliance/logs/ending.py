"""Why a run failed, by the text around its records: what launchers, batch systems, kernels and Python print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from common.ending import FINAL
from compliance.logs.record import Record

DECIDED, FAILED, FOLLOWED = range(3)
"""How much a cause explains: the system says why it ended the run; a process failed; this follows from a failure.

The one that explains most is the cause, and of those the first: other ranks fail after the one that failed first.
"""


class Cause(NamedTuple):
    """Why a run ended.

    text: in plain words; fix: what to do about it. words: what the lines have that say so, and no line of a run that
    succeeds; late: what only says so at the end of a run that failed.
    """

    rank: int
    text: str
    fix: str
    words: tuple[bytes, ...]
    late: tuple[bytes, ...] = ()


LONGER: Final = "Resume the run from its last checkpoint, or repeat it, with a longer time limit"
AGAIN: Final = "Resume the run from its last checkpoint, or repeat it."
LOOK: Final = "Look for the error of the process that failed first, in its own output too; then repeat the run."
PYTHON: Final = Cause(
    FAILED,
    "Python ended with an error",
    "Correct what the error names, then repeat the run.",
    (b"Traceback (most recent call last)",),
)
CAUSES: Final = (
    Cause(DECIDED, "Slurm ended the run at its time limit", f"{LONGER} (sbatch --time).", (b"TIME LIMIT",)),
    Cause(DECIDED, "PBS ended the run at its time limit", f"{LONGER} (walltime).", (), (b"job killed: walltime",)),
    Cause(
        DECIDED,
        "the memory of the accelerator was full",
        "Repeat the run on more accelerators, so that each has fewer samples, with nothing else running on them.",
        (b"OutOfMemory",),
        (b"CUDA out of memory", b"HIP out of memory", b"CUDA error: out of memory", b"CUDA_ERROR_OUT_OF_MEMORY"),
    ),
    Cause(
        DECIDED,
        "the memory of the host, or of the job, was full",
        "Repeat the run with more memory (sbatch --mem), or with fewer workers and less data in memory.",
        (b"out of memory", b"oom-kill", b"oom_kill"),
        (
            *(b"Out of memory", b"Out Of Memory", b"OUT_OF_MEMORY", b"OOM Killed", b"OOMKilled", b"MemoryError"),
            *(b"Cannot allocate memory", b"can't allocate memory", b"std::bad_alloc"),
            *(b"TERM_MEMLIMIT", b"memory usage limit", b"job killed: mem", b"job killed: vmem"),
        ),
    ),
    Cause(
        DECIDED,
        "LSF ended the run at one of its limits",
        f"{LONGER} (bsub -W), or whatever LSF names.",
        (b"killed after reaching",),
        (b"TERM_RUNLIMIT",),
    ),
    Cause(
        DECIDED,
        "the batch system preempted the job",
        AGAIN,
        (b"DUE TO PREEMPTION",),
        (b"TERM_PREEMPT", b"DUE TO JOB REQUEUE"),
    ),
    Cause(
        DECIDED,
        "a node of the job failed",
        "Resume or repeat the run without this node (sbatch --exclude), and report it.",
        (),
        (b"DUE TO NODE FAILURE", b"NODE_FAIL", b"Node failure on", b"lost connection to", b"lost communication with"),
    ),
    Cause(
        DECIDED,
        "the disk or the quota was full",
        "Free some space, or write elsewhere; then resume the run or repeat it.",
        (b"No space left",),
        (b"isk quota exceeded", b"Errno 122"),
    ),
    Cause(
        FAILED,
        "a process died of a bus error (SIGBUS), perhaps because /dev/shm was full",
        "Repeat the run with a larger /dev/shm (docker run --shm-size) or fewer workers.",
        (b"Bus error",),
        (b"SIGBUS", b"(signal 7)", b"exitcode: -7", b": -7 (pid", b"exit code 135"),
    ),
    Cause(
        FAILED,
        "a process died of a segmentation fault (SIGSEGV)",
        "Find the library that crashes (python -X faulthandler), then repeat the run.",
        (b"Segmentation fault",),
        (b"SIGSEGV", b"(signal 11)", b"exitcode: -11", b": -11 (pid", b"exit code 139"),
    ),
    Cause(FAILED, "Slurm cancelled the job, as scancel does", AGAIN, (), (b"error: *** JOB ",)),
    Cause(FAILED, "srun was stopped, as by Ctrl-C or a signal", AGAIN, (), (b"srun: forcing job termination",)),
    Cause(FAILED, "the run was interrupted, as by Ctrl-C", AGAIN, (), (b"KeyboardInterrupt",)),
    Cause(
        FAILED,
        "a process was killed (SIGKILL), perhaps because memory was full",
        "Ask the system why (sacct -j JOB -o State,MaxRSS; dmesg), then resume the run or repeat it.",
        (b"Killed",),
        (b"SIGKILL", b"(signal 9)", b"exitcode: -9", b": -9 (pid", b"exit code 137", b"on signal 9 "),
    ),
    Cause(
        FAILED,
        "ranks waited for another one until the time-out",
        "Find the rank that failed or stood still first; then resume the run or repeat it.",
        (b"NCCL timeout",),
        (b"caught collective operation timeout", b"Timed out waiting"),
    ),
    Cause(FAILED, "a rank called MPI_Abort", LOOK, (b"MPI_ABORT",), (b"MPI_Abort",)),
    Cause(
        FOLLOWED,
        "the connection to another rank broke, which failed before",
        LOOK,
        (),
        (b"Connection closed by peer", b"Connection reset by peer", b"remote process exited", b"ncclRemoteError"),
    ),
    Cause(
        FOLLOWED,
        "a process ended with an error",
        LOOK,
        (b"exited with exit code",),
        (
            *(b"Exited with exit code", b"Exit code:", b"EXIT CODE:"),
            *(b"(exitcode: ", b"ChildFailedError", b"CalledProcessError"),
        ),
    ),
    Cause(FOLLOWED, "a process was told to end (SIGTERM)", AGAIN, (), (b"SIGTERM", b"(signal 15)", b"Terminated")),
    Cause(
        FAILED,
        "a process crashed",
        LOOK,
        (b"core dumped", b"exited on signal"),
        (b"SIGABRT", b"(signal 6)", b"exitcode: -6", b": -6 (pid", b"exit code 134", b"terminate called"),
    ),
    Cause(FOLLOWED, "Slurm cancelled the job or one of its steps", AGAIN, (b"CANCELLED AT",)),
    Cause(
        FOLLOWED,
        "the program says that the target was missed",
        "Repeat the run, or train longer.",
        (b"target not reached", b"did not reach the target", b"NOT reached"),
    ),
)
"""A line has the first cause of which it has a word."""
FAILURES: Final = (*PYTHON.words, *(word for cause in CAUSES for word in cause.words))
"""What programs and launchers write when a run fails; no published log has any of it."""
EXCEPTION: Final = rb"(?:\W{0,3}\w{1,12}\W{1,3})?[A-Za-z_][\w.]{0,99}(?:Error|Exception|Interrupt|Exit)(?::|$)"
"""The begin of the line with which a traceback ends, perhaps after the label of its rank."""
RECENT: Final = 10
"""Events of the course, since the first of which the text may tell of the end: other ranks still log for a while."""


class End(NamedTuple):
    """Why a run failed, and the line of the log that says so."""

    line: int
    cause: Cause
    said: bytes

    @property
    def text(self) -> str:
        """The cause, and the words that say so."""
        return f'{self.cause.text}: "{self.said.decode("utf-8", "replace").strip(" =-")[:160]}"'


def find_end(tail: Iterable[tuple[int, bytes]], events: Sequence[Record], stop: Record | None) -> End | None:
    """Return why a run failed; None if it did not, or if the last lines of text do not tell.

    tail: these, with their numbers. A run that has its result ends as its run_stop says; of one that was stopped
    otherwise, launchers report the status, and a text without a record may have any word.
    """
    if stop and (stop.meta("status") == "success" or stop.meta("ended") in FINAL):
        return None
    since = min(event.line for event in events[-RECENT:]) if len(events) > RECENT else 0
    ends = [End(line, cause, text) for line, text in tail if line > since and (cause := _find_cause(text))]
    first = min(ends, key=lambda end: (end.cause.rank, end.line), default=None)
    return first if first and (first.cause.rank < FOLLOWED or (events and not stop)) else None


def _find_cause(text: bytes) -> Cause | None:
    named = (cause for cause in CAUSES if any(word in text for word in (*cause.words, *cause.late)))
    return next(named, PYTHON if re.match(EXCEPTION, text) else None)
