"""The power of the nodes during a training: on each node, `common.measure power` records it in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from common.command import HELP_HINT
from common.files import POWER
from common.measure.power.keys import PARTS, READING
from common.measure.power.recorder import read_readings
from common.measure.power.sources import Clock, open_source
from common.ranks.dist import Dist
from common.settings.machine import PowerConfig
from common.stop import STOP

FIRST_READING_S: Final = 10.0
"""A source that gives no reading for so long fails the run before it begins."""
END_S: Final = 10.0
POLL_S: Final = 0.05
TAIL_BYTES: Final = 4096


@contextlib.contextmanager
def recording_power(config: PowerConfig, run: Path, ranks: Dist) -> Iterator[None]:
    """Record the power of all nodes inside the `with`, to `power/` in the folder of the run. A collective call.

    Raises ValueError on all ranks if a node gets no reading; later faults are printed, and change nothing.
    """
    if not config.source:
        yield
        return
    ranks.barrier()  # no rank failed so far, such as for lack of the right to write the log
    recorder, fault = None, None
    try:
        try:
            if ranks.local_rank == 0:
                recorder = NodeRecorder(config, run / POWER, ranks.node_rank)
                with STOP.interrupting():
                    recorder.wait_for_reading()
        except (ValueError, OSError) as error:
            fault = f"node {ranks.node_rank}: {error}" if ranks.nodes > 1 else str(error)
        if first_fault := ranks.find_first(fault):
            raise ValueError(f"power.source is {config.source!r}: {first_fault}")
        yield
    finally:
        if recorder is not None:
            recorder.end(quiet=fault is not None, brief=not ranks.is_main)
    ranks.barrier()  # all files are whole


class NodeRecorder:
    """The process that records the power of this node.

    It has a session of its own, so that Ctrl-C does not reach it, and ends by itself when this process has ended.
    """

    def __init__(self, config: PowerConfig, folder: Path, node: int) -> None:
        assert config.source
        name, source = open_source(config.source, Clock())
        self.path = folder / f"{name if source.scope == PARTS else 'node'}_{node}.txt"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"interval": config.interval_s, "efficiency": config.efficiency, "parent": os.getpid()}
        options = [f"--{option}={value}" for option, value in settings.items()] + ["--dc"] * config.dc
        command = (sys.executable, "-m", "common.measure", "power", f"--source={config.source}", "--append", *options)
        self._begin_ms = time.time() * 1000
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  (read until the process has ended)
        self._process = subprocess.Popen(
            (*command, "-o", str(self.path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            start_new_session=True,
            env=os.environ | {"NO_COLOR": "1"},  # its last message is read
        )

    def wait_for_reading(self) -> None:
        """Wait for the first reading; raise ValueError if there is none."""
        end_s = time.monotonic() + FIRST_READING_S
        while not self._has_reading():
            if self._process.poll() is not None:
                raise ValueError(self._last_message().removeprefix("error: ").removesuffix(HELP_HINT))
            if time.monotonic() > end_s:
                raise ValueError(self._last_message() or f"no reading within {FIRST_READING_S:g} s")
            STOP.sleep(POLL_S)

    def end(self, quiet: bool, brief: bool) -> None:
        """End the process; print what it recorded, if brief only what went wrong. Never raises for what it did."""
        died = self._process.poll() is not None
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        status, last = self._process.returncode, self._last_message()
        if quiet:
            return
        if status or (died and not STOP.number):  # a scheduler may signal all processes of a job
            how = "ended before the run did" if died else "gave no readings" if status == 1 else "did not end in order"
            print(
                f"power: the recorder {how} (exit status {status}): {last or 'no message'}\n"
                f"power: {self.path} lacks readings; the result of the run stays",
                file=sys.stderr,
                flush=True,
            )
        elif not brief:
            print(f"power: {last}", flush=True)

    def _has_reading(self) -> bool:
        """Tell whether this process has written a reading."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
                records = read_readings(file.read().partition(b"\n")[2])
                times = [record.time_ms for record in records if record.key == READING]
                # One that is later is of a clock that was wrong once.
                return any(self._begin_ms <= time_ms <= 1000 * (time.time() + 1) for time_ms in times)
        except (OSError, ValueError):  # not written yet, or a damaged file: the process says so
            return False

    def _last_message(self) -> str:
        self._messages.seek(0)
        return self._messages.read().decode(errors="replace").strip().rpartition("\n")[2]
