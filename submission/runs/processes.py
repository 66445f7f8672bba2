"""Make runs as parallel processes: restart those that crash, and let none outlive this process.

The settings of a run are resolved, and its data provided, as its own train command does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.config import ConfigError, to_yaml
from common.data.manifest import NAME as MANIFEST
from common.ending import read_ending
from common.errors import UsageError
from common.files import follow_no_link, read_end
from common.installed import missing_extra
from common.locks import LockFile
from common.processes import find_death_signal, stop_processes, usable_cores
from common.reference import FULL, OWN
from common.settings.keys import find_config_class
from common.stop import NAMES, find_signals
from common.training.resolve import resolve_config
from compliance.benchmarks import require_reference
from compliance.model.layout import RESULT_NAME
from submission.runs.plan import RECORD, PlanError, PlannedRun, is_finished

OUTPUT: Final = "output"
"""The file with what a run printed; named so that no checker takes it for a log."""
ATTEMPTS: Final = 3
SET_ASIDE: Final = "attempts"
"""The folder of crashed attempts, beside the runs; its logs are renamed so that no checker picks them up."""
POLL_S: Final = 0.1
BEAT_S: Final = 60.0
"""The longest time without a line that says what is being done."""
GRACE_S: Final = 20.0
"""Time for a process to end after SIGTERM."""
WRONG_USE: Final = 2
"""Exit status of a command that was called with wrong arguments."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a run that has ended.

    exit_status: negative for a signal, as in `subprocess`. number: from 1. finished: the run has its result.
    folder: with the files of the attempt, set aside after a crash. last: the run is not restarted.
    """

    run: PlannedRun
    exit_status: int
    number: int
    finished: bool
    folder: Path
    last: bool

    @property
    def refused(self) -> bool:
        """Whether the command was called with wrong arguments, which another attempt does not change."""
        return self.exit_status == WRONG_USE and not self.finished

    @property
    def cause(self) -> str:
        """How the run ended by its own record, else by the exit status."""
        if ending := read_ending(self.folder):
            return ending.text
        if self.exit_status >= 0:
            return f"exit status {self.exit_status}"
        return f"ended by {signal.Signals(-self.exit_status).name}"


@dataclass(frozen=True, slots=True)
class JobRunner:
    """A pool that makes runs as processes.

    size: concurrent runs. threads: per process; 0 divides the usable cores equally. attempts: per run. repeats_errors:
    also after an error that the run itself has reported, which in a round may have been of the machine. lock: file
    descriptor that the processes inherit, so that a lock on it is held until the last of them has ended; -1 for none.
    """

    size: int = 1
    threads: int = 0
    attempts: int = ATTEMPTS
    repeats_errors: bool = True
    lock: int = -1

    def run_all(self, runs: Sequence[PlannedRun], tick: Callable[[Sequence[PlannedRun]], None]) -> Generator[Attempt]:
        """Make the runs in order; yield each attempt as it ends.

        What an attempt without a result has written is set aside and the run is restarted, unless it was called with
        wrong arguments; after the last attempt no further run of its group is started. tick: called several times a
        second with the active runs. Closing the iterator, or an exception, ends the active processes.
        """
        waiting = deque((run, 1) for run in runs)
        active: dict[subprocess.Popen[bytes], tuple[PlannedRun, int]] = {}
        given_up: set[str] = set()
        try:
            while waiting or active:
                while waiting and len(active) < self.size:
                    run, number = waiting.popleft()
                    if run.group_name not in given_up:
                        active[self._start_run(run)] = run, number
                time.sleep(POLL_S)
                tick([run for run, _ in active.values()])
                for process in [process for process in active if process.poll() is not None]:
                    attempt = self._end_attempt(*active.pop(process), process.returncode)
                    if not attempt.last:
                        waiting.appendleft((attempt.run, attempt.number + 1))
                    elif not attempt.finished:
                        given_up.add(attempt.run.group_name)
                    yield attempt
        finally:
            stop_processes(list(active), GRACE_S)

    def _end_attempt(self, run: PlannedRun, number: int, status: int) -> Attempt:
        finished = is_finished(run)
        last = finished or number == self.attempts or status == WRONG_USE
        last = last or not (self.repeats_errors or status < 0 or not read_error(run.folder))
        folder = run.folder if finished or run.instances else set_aside(run.folder)
        return Attempt(run, status, number, finished, folder, last)

    def run_silently(self, command: Sequence[str]) -> int:
        """Run a process without its standard output, on all cores; return its exit status."""
        process = self._open_process(command, usable_cores(), subprocess.DEVNULL, errors=None)
        try:
            return process.wait()
        finally:
            stop_processes([process], GRACE_S)

    def _start_run(self, run: PlannedRun) -> subprocess.Popen[bytes]:
        if run.folder.exists() and not run.instances:  # left by a call that was killed
            set_aside(run.folder)
        run.write_record()
        threads = self.threads or max(1, usable_cores() // (self.size * run.ranks))
        with open(run.folder / OUTPUT, "ab", opener=follow_no_link) as output:
            return self._open_process(run.command(), threads, output.fileno(), environment=run.environment)

    def _open_process(
        self,
        command: Sequence[str],
        threads: int,
        output: int,
        errors: int | None = subprocess.STDOUT,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        # In a new session: Ctrl-C reaches only this process, which then ends the others.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            # Without colours: read_error reads what it prints.
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "NO_COLOR": "1"} | dict(environment or {}),
            start_new_session=True,
            pass_fds=() if self.lock < 0 else (self.lock,),
            preexec_fn=_end_with(os.getpid()),  # noqa: PLW1509  (no thread of ours holds a lock)
        )


@contextmanager
def hold_lock(folder: Path) -> Iterator[int]:
    """Hold an exclusive lock on the folder inside the `with`; yield its file descriptor, for `JobRunner.lock`.

    The system releases the lock when this process and all that inherited the descriptor have ended, for whatever
    reason. Raises LockedError if another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = LockFile(folder / "lock")
    lock.take(str(os.getpid()))
    try:
        yield lock.handle
    finally:
        lock.release()


def set_aside(folder: Path) -> Path:
    """Move the files of a run without a result into SET_ASIDE; return their new folder, or that of the run if empty.

    The plan of the run stays, and with it the seed.
    """
    paths = [path for path in folder.iterdir() if path.name != RECORD]
    if not paths:
        return folder
    number = 1
    while (kept := folder.parent / SET_ASIDE / f"{folder.name}-{number}").exists():
        number += 1
    kept.mkdir(parents=True)
    for path in paths:  # a log gets a name that no checker picks up
        path.rename(kept / (f"{path.name}.interrupted" if re.fullmatch(RESULT_NAME, path.name) else path.name))
    return kept


def read_error(folder: Path) -> str:
    """Return the error that ended a run, as it reported it; "" if it reported none, as when it was killed."""
    errors = [line for line in read_last_lines(folder / OUTPUT, 100) if line.startswith("error: ")]
    return errors[-1].removeprefix("error: ") if errors else ""


def read_last_lines(path: Path, count: int = 5) -> list[str]:
    """Return the last `count` lines that a process printed; of a progress bar, its last state."""
    lines = read_end(path).decode("utf-8", "replace").split("\n")
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    return [line for line in lines if line.strip()][-count:]


def interrupt_by_signals() -> None:
    """Let what ends a job, such as SIGTERM, do what Ctrl-C does: active runs must end with this process."""
    for number in find_signals(NAMES):
        if signal.getsignal(number) not in (signal.SIG_IGN, signal.default_int_handler):  # ignored: nohup
            signal.signal(number, signal.default_int_handler)


def _end_with(parent: int) -> Callable[[], None] | None:
    """Return the function that lets a new process be killed when its parent ends; None where the OS cannot do it.

    The ranks that torchrun starts do the same, see `common.ranks.connect`.
    On systems other than Linux the lock tells the next call that a process is left.
    """
    if (die_with_parent := find_death_signal()) is None:
        return None

    def end_with_parent() -> None:
        die_with_parent()
        if os.getppid() != parent:  # the parent ended before the call
            os._exit(1)

    return end_with_parent


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a run, resolved by its benchmark. text: the complete configuration as YAML.

    config: name or path, as for the train command. overrides: section.key=value. submission: org, division, status,
    platform and round. imports: modules of your own; a command that reads the run needs them named again.
    """

    benchmark: str
    config: str
    overrides: tuple[str, ...]
    text: str
    variant: str
    data_dir: Path
    submission: dict[str, str]
    imports: tuple[str, ...] = ()


def resolve_setup(benchmark: str, config: str, overrides: Sequence[str], data: Path | None = None) -> Setup:
    """Return the settings as the train command of the benchmark resolves them; UsageError if no run can have them.

    data: parent folder of the dataset; None: as the settings say.
    """
    try:
        resolved = resolve_config(find_config_class(require_reference(benchmark)), config, overrides)
    except ConfigError as error:
        raise UsageError(f"{benchmark}: {error}") from error
    if data is not None:
        folder = quote_yaml(str(data / resolved.data.data_dir.name))
        return resolve_setup(benchmark, config, [*overrides, f"data.data_dir={folder}"])
    names = ("org", "division", "status", "platform", "round")
    return Setup(
        benchmark=benchmark,
        config=config,
        overrides=tuple(overrides),
        text=to_yaml(resolved),
        variant=resolved.variant,
        data_dir=resolved.data.data_dir,
        submission={name: getattr(resolved.submission, name) for name in names},
        imports=tuple(map(str, resolved.train.imports)),
    )


def check_trainer(benchmark: str) -> None:
    """Raise ValueError if the benchmark cannot be trained here, for lack of torch; resolving needs none."""
    if problem := missing_extra(ModuleNotFoundError(name="torch"), f"{benchmark}.train"):
        raise ValueError(problem)


def provide_data(setup: Setup, runner: JobRunner) -> None:
    """Generate the dataset of a mini problem, unless it is complete."""
    folder = setup.data_dir
    if setup.variant in (FULL, OWN) or (folder / MANIFEST).exists():
        return
    data = f"the dataset of the mini problem ({setup.variant})"
    print(f"{setup.benchmark}: no data in {folder}; generating {data}", flush=True)
    command = [f"{setup.benchmark}.synthesize", str(folder), "--preset", setup.variant]
    if runner.run_silently([sys.executable, "-m", *command]):
        raise PlanError(f"cannot generate the data of {setup.benchmark} in {folder}: see the error above")


def quote_yaml(text: str) -> str:
    """Return the text as a quoted YAML string."""
    return "'" + text.replace("'", "''") + "'"
