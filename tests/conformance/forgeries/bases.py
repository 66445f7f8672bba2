"""The logs that are forged: published ones that the checker accepts, and those of the log builder."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from compliance.benchmarks import REFERENCES, benchmarks_of
from compliance.engine.log_checker import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.judging import ERROR, WARNING, Case, Finding, JudgedRun
from compliance.samples.log import SampleLog

BUILDER_ROUNDS = ("0.7", "1.0", "2.0", "3.0")
LARGEST_BYTES = 300_000
Found = Counter[str]


class Base(NamedTuple):
    """A log to forge: where it comes from, by which round and benchmark it is judged, its bytes."""

    name: str
    round: str
    benchmark: str
    data: bytes


class Source(NamedTuple):
    """A published log, or one of the builder (path is "")."""

    name: str
    round: str
    benchmark: str
    path: str = ""
    run: int = 0

    def read(self) -> Base:
        """Return the log."""
        if self.path:
            return Base(self.name, self.round, self.benchmark, Path(self.path).read_bytes())
        epochs = random.Random(f"{self}").randint(9, 30)
        log = SampleLog(self.benchmark, self.round, run=self.run, epochs=epochs)
        if self.benchmark == "deepcam" and self.run < 2:
            log.steps()  # as all published ones
        if self.run % 2 and REFERENCES[self.benchmark].epoch_unit == "epochs":
            log.renumber(0)
        if self.run > 1:
            log.stage(after="run_start")
        return Base(self.name, self.round, self.benchmark, log.bytes())


def built() -> list[Source]:
    """Return the logs of the builder: every benchmark and round, some numbered from 0, with steps or staging."""
    return [
        Source(f"built {benchmark} {round_} run {run}", round_, benchmark, run=run)
        for round_ in BUILDER_ROUNDS
        for benchmark in benchmarks_of(round_)
        if benchmark in REFERENCES
        for run in range(4)
    ]


def published(corpus: Path) -> list[Source]:
    """Return the published logs, but not pruned ones; of every result the same number, as some have hundreds."""
    found = []
    for folder, _, names in sorted(os.walk(corpus)):
        logs = sorted(name for name in names if name.startswith("result_"))
        benchmark = os.path.basename(folder)
        if benchmark not in REFERENCES:
            continue
        for name in logs[:5]:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, corpus)
            if os.path.getsize(path) <= LARGEST_BYTES:
                found.append(Source(relative, relative.split(os.sep)[0].removeprefix("v"), benchmark, path))
    return found


def judge(base: Base, data: bytes) -> JudgedRun:
    """Return the record of a log that is judged by the round of its base."""
    return judge_log(parse_log(data, base.name), LogTask(base.name, Case(base.round)))


@lru_cache(maxsize=1000)
def accepted(source: Source) -> tuple[Base, Found] | None:
    """Return the log and what is found in it, None if it fails."""
    base = source.read()
    run = judge(base, base.data)
    return None if run.verdict == "FAIL" else (base, counted(run.findings))


def counted(findings: Iterable[Finding]) -> Found:
    """Return how often each rule has an error or warning."""
    return Counter(finding.rule for finding in findings if finding.severity in (ERROR, WARNING))
