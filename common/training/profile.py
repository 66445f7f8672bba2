"""Trace a few training steps: a file for a trace viewer, and a page that says where the time goes."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from torch.profiler import ProfilerActivity, profile, record_function, schedule

from common.config import PLACE, key
from common.distributed.dist import Dist
from common.files import naming, open_whole_file, write_whole_file
from common.training.profile_summary import WAITING, summary

FOLDER: Final = "profile"
TRACE: Final = "trace.json.gz"
SUMMARY: Final = "summary.txt"

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """Which steps are traced; docs/guide/train.md says what comes of it."""

    steps: int = key(
        0,
        "steps that torch.profiler traces on rank 0, in the first epoch that this process trains; 0: none",
        PLACE,
        unit="steps",
    )
    skip: int = key(3, "steps before the traced ones, in the last of which tracing starts", PLACE, unit="steps")

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("skip", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least {least}")

    @property
    def needed(self) -> int:
        """The steps until all are traced; 0 if none are."""
        return self.skip + self.steps if self.steps else 0


class Profiler:
    """Traces steps on rank 0 inside its first `with`, and then writes the files; on other ranks it does nothing.

    folder: of the files; made at once, so that one that cannot be is known before the run. say: prints a line.
    """

    def __init__(self, config: ProfileConfig, folder: Path, dist: Dist, say: Callable[[str], None]) -> None:
        self.config, self.folder, self._dist, self._say = config, folder, dist, say
        self._waits = config.steps > 0 and dist.is_main
        self._trace: Any = None
        self._made = 0
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
            self._end(failed=kind is not None)

    def watched(self, batches: Iterator[B]) -> Iterator[B]:
        """Return the batches; while steps are traced, the trace has the time in which they were waited for."""
        return batches if self._trace is None else _watched(batches)

    def step_done(self) -> None:
        """Count a step; after the last one, write the files."""
        if self._trace is not None:
            self._made += 1
            self._trace.step()
            if self._made == self.config.needed:
                self._end()

    def _end(self, failed: bool = False) -> None:
        trace, self._trace = self._trace, None
        trace.stop()
        traced = self._made - self.config.skip
        if failed:
            return
        if traced <= 0:
            self._say(f"profile: no step traced: {self._made} step(s) were made, and profile.skip={self.config.skip}")
            return
        try:
            self._write(trace, traced)
        except OSError as error:  # such as a full disk
            self._say(f"profile: {error}; going on without it")

    def _write(self, trace: Any, traced: int) -> None:
        path = self.folder / TRACE
        with open_whole_file(path) as output, tempfile.TemporaryDirectory() as scratch:
            plain = Path(scratch, "trace.json")
            trace.export_chrome_trace(str(plain))
            with naming(path), plain.open("rb") as source, gzip.open(output, "wb", compresslevel=6) as packed:
                shutil.copyfileobj(source, packed)
        asked = self.config.steps
        fewer = f", fewer than profile.steps={asked}: there were no more" if traced < asked else ""
        head = f"{traced} step(s) of rank 0 of {self._dist.world_size}, after {self.config.skip} others{fewer}"
        page = self.folder / SUMMARY
        write_whole_file(page, summary(trace.events(), traced, self._dist.device, head))
        self._say(f"profile: {traced} step(s) traced{fewer}; read {page}, and open {path} in ui.perfetto.dev")


def _watched(batches: Iterator[B]) -> Iterator[B]:
    while True:
        with record_function(WAITING):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch
