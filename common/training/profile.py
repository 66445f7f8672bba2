"""Trace a few training steps: a file for a trace viewer, and torch's own table of their operations."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from torch.profiler import ProfilerActivity, profile, record_function, schedule

from common.files import naming, open_whole_file, write_whole_file
from common.ranks.dist import Dist
from common.settings.machine import ProfileConfig

FOLDER: Final = "profile"
TRACE: Final = "trace.json.gz"
TABLE: Final = "table.txt"
ROWS: Final = 25
"""Operations in the table, the heaviest ones."""
WAITING: Final = "waiting for data"

B = TypeVar("B")


class Profiler:
    """Traces steps on rank 0 inside its first `with`, and then writes the files; on other ranks it does nothing.

    folder: of the files; made at once, so that one that cannot be is known before the run. say: prints a line.
    """

    def __init__(self, config: ProfileConfig, folder: Path, dist: Dist, say: Callable[[str], None]) -> None:
        self.config, self.folder, self._dist, self._say = config, folder, dist, say
        self._waits = config.steps > 0 and dist.is_main
        self._trace: Any = None
        self._counted = 0
        if self._waits:
            folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        if self._waits:
            self._waits = False
            os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # lower levels print that tracing starts and stops
            activities = [ProfilerActivity.CPU]
            if self._dist.device.type != "cpu":
                activities.append(ProfilerActivity[self._dist.device.type.upper()])
            when = schedule(wait=self.config.skip - 1, warmup=1, active=self.config.steps, repeat=1)
            self._trace = profile(activities=activities, schedule=when, record_shapes=True, with_flops=True)
            self._trace.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._trace is not None:
            self._stop_trace(failed=kind is not None)

    def watched(self, batches: Iterator[B]) -> Iterator[B]:
        """Return the batches; while steps are traced, the trace shows how long the loop waited for them."""
        return batches if self._trace is None else _watch_batches(batches)

    def step_done(self) -> None:
        """Count a step; after the last one, write the files."""
        if self._trace is not None:
            self._counted += 1
            self._trace.step()
            if self._counted == self.config.needed:
                self._stop_trace()

    def _stop_trace(self, failed: bool = False) -> None:
        trace, self._trace = self._trace, None
        trace.stop()
        traced = self._counted - self.config.skip
        if failed:
            return
        if traced <= 0:
            self._say(
                f"profile: no step traced: {self._counted} step(s) were made, and profile.skip={self.config.skip}"
            )
            return
        try:
            self._write_files(trace, traced)
        except OSError as error:  # such as a full disk
            self._say(f"profile: {error}; going on without it")

    def _write_files(self, trace: Any, traced: int) -> None:
        path = self.folder / TRACE
        with open_whole_file(path) as output, tempfile.TemporaryDirectory() as scratch:
            plain = Path(scratch, "trace.json")
            trace.export_chrome_trace(str(plain))
            with naming(path), plain.open("rb") as source, gzip.open(output, "wb", compresslevel=6) as packed:
                shutil.copyfileobj(source, packed)
        steps = self.config.steps
        fewer = f", fewer than profile.steps={steps}: there were no more" if traced < steps else ""
        head = f"{traced} step(s) of rank 0 of {self._dist.world_size}, after {self.config.skip} others{fewer}"
        by = "self_cpu_time_total" if self._dist.device.type == "cpu" else "self_device_time_total"
        table = self.folder / TABLE
        write_whole_file(table, f"{head}\n{trace.key_averages().table(sort_by=by, row_limit=ROWS)}\n")
        self._say(f"profile: {traced} step(s) traced{fewer}; read {table}, and open {path} in ui.perfetto.dev")


def _watch_batches(batches: Iterator[B]) -> Iterator[B]:
    while True:
        with record_function(WAITING):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch
