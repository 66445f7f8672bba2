"""Workers: processes that make steps of training when they are asked to, so that two sides can take turns.

A worker prints one line of JSON when it is warm, and one for each line that it reads: what its steps took. Needs the
standard library alone, for the Python of a peer runs it too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from types import SimpleNamespace
from typing import Any

TURN_S = 0.3
"""CPU seconds that a turn should take at least."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained, to which a benchmark adds its own; a worker gets its fields.

    alone: the sides do not take turns but follow each other, one step after one to warm up; for steps that take minutes
        and most of the memory.
    """

    batch: int = 1
    dtype: str = "fp32"
    threads: int = 1
    device: str = "cpu"
    alone: bool = False

    @property
    def network(self) -> str:
        """The name of the network and the size of its samples, for tables."""
        raise NotImplementedError


# -- in a worker ---------------------------------------------------------------------------------------------


def given_case() -> Any:
    """Return the fields of the case that this process was started with."""
    return SimpleNamespace(**json.loads(sys.argv[1]))


def cpu_s() -> float:
    """Return the CPU seconds of all threads of this process, user and system."""
    use = getrusage(RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def memory_mb() -> float:
    """Return the most memory that this process has held."""
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def took(work: Callable[[], Any], times: int) -> dict[str, float]:
    """Return what one of several calls took."""
    cpu, wall = cpu_s(), time.perf_counter()
    for _ in range(times):
        work()
    return {"cpu_s": (cpu_s() - cpu) / times, "wall_s": (time.perf_counter() - wall) / times}


def serve(
    case: Any, step: Callable[[], Any], facts: Callable[[], dict[str, Any]], turn: Callable[[int], dict[str, Any]]
) -> None:
    """Warm up, print the facts, and make a turn of N steps for each line N of standard input.

    With a turn the most memory that the process has held is told, which a first step may not have needed.
    """
    for _ in range(1 if case.alone else 3):
        once = took(step, 1)
    steps = max(1, round(TURN_S / max(once["cpu_s"], 1e-4)))
    print(json.dumps(facts()), flush=True)
    for _ in sys.stdin:
        print(json.dumps(turn(steps) | {"memory_mb": memory_mb()}), flush=True)


# -- beside the workers --------------------------------------------------------------------------------------


class Worker:
    """A process that measures; to be closed."""

    def __init__(self, script: str, python: str, case: Case, *arguments: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
        self._name = f"{script} {case}"
        environment = os.environ | {"OMP_NUM_THREADS": str(case.threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            [python, str(Path(__file__).parent / script), json.dumps(asdict(case)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )

    def read(self) -> dict[str, Any]:
        """Return the worker's next line; ends this program with the worker's last words if it has none."""
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries talk too
                found: dict[str, Any] = json.loads(line)
                return found
        self._errors.seek(0)
        sys.exit(f"{self._name} failed:\n{self._errors.read().decode(errors='replace')[-2000:]}")

    def turn(self) -> dict[str, Any]:
        """Return what the steps of one turn took."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe
            pipe.close()
        self._process.wait()
