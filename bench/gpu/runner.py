"""Run sections one after the other, each in a process with a deadline; keep and print what they find.

This process never touches the device, so that an error there, or a call that never returns, ends one section only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from common.provenance import git_revision, source_hash
from gpu.background import mini_data
from gpu.cases import write_json
from gpu.page import summary
from gpu.sections import BUDGET_S, SECTIONS, Section, of_run

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "cosmoflow", "deepcam", "oc20")
LEAST_S = 8.0
"""A section is not started with less time left."""
RESERVE_S = 6.0
"""Of the budget, for the end of the last section and the tables."""


@dataclass
class Waiting:
    """A section's process that has loaded what it needs and waits for its turn. rows: the file that it writes."""

    section: Section
    process: subprocess.Popen[bytes]
    rows: Path
    log: Path


class Runner:
    """A run of the command."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.out, self.dry = given, given.out, given.dry_run
        self.began = time.monotonic()
        self.budget_s = given.budget or (1e6 if self.dry else BUDGET_S)
        self._stack = contextlib.ExitStack()
        self.results: dict[str, Any] = {"sections": {}}
        if self.out.exists():
            self.results = json.loads(self.out.read_text(encoding="utf-8"))

    def run(self) -> int:
        """Measure; return the exit status."""
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that sections are ended
        with self._stack:
            self.scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-")))
            self.work = self.given.work or self.scratch / "work"
            self.work.mkdir(parents=True, exist_ok=True)
            self.results["machine"] = facts(self.dry) | {"run": self.given.run}
            self.save()
            todo = self._todo()
            names = dict.fromkeys(name for section in todo for name in section.data)
            self._stack.enter_context(mini_data(self.work, names, self.dry))
            self._measure(todo)
        print()
        print(summary([self.results]))
        states = {name: one["status"] for name, one in self.results["sections"].items()}
        print(f"{time.monotonic() - self.began:.0f} s; {self.out}")
        bad = [name for name, state in states.items() if state != "done"] + [
            f"{name}: {row['what']}"
            for name, one in self.results["sections"].items()
            for row in one["rows"]
            if {"error", "wrong", "late", "under_way"} & row.keys()
        ]
        if bad:
            print("not done or not right: " + ", ".join(dict.fromkeys(bad)))
        return 1 if bad else 0

    def _todo(self) -> list[Section]:
        chosen = list(SECTIONS) if self.dry else of_run(self.given.run)
        if self.given.sections:
            chosen = [one for one in SECTIONS if one.name in self.given.sections]
        done = {name for name, one in self.results["sections"].items() if one["status"] == "done"}
        return [one for one in chosen if self.given.again or one.name not in done]

    def _measure(self, todo: list[Section]) -> None:
        following = self._start(todo[0]) if todo else None
        for number, section in enumerate(todo):
            waiting = following
            assert waiting is not None
            left = self.budget_s - RESERVE_S - (time.monotonic() - self.began)
            following = self._start(todo[number + 1]) if number + 1 < len(todo) and left > LEAST_S else None
            if left < LEAST_S:
                _kill(waiting.process)
                for late in todo[number:]:
                    self._keep(late, "skipped", 0.0, [], f"{max(left, 0):.0f} s were left")
                break
            self._section(waiting, 900.0 if self.dry else min(section.limit_s, left))

    def _start(self, section: Section) -> Waiting:
        """Start the process of a section, which loads its libraries and waits."""
        rows, log = self.scratch / f"{section.name}.json", self.scratch / f"{section.name}.log"
        command = [sys.executable, str(ROOT / "bench" / "gpu.py"), "--section", section.name, "--out", str(rows)]
        command += ["--work", str(self.work)] + (["--dry-run-section"] if self.dry else [])
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        if self.dry:
            environment |= {"TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
        else:
            environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(self.work / "inductor"))
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=ROOT,
                start_new_session=True,
            )
        self._stack.callback(_kill, process)
        return Waiting(section, process, rows, log)

    def _section(self, waiting: Waiting, limit_s: float) -> None:
        """Let a section measure until its end or its deadline."""
        process, begin = waiting.process, time.monotonic()
        assert process.stdin
        status, error = "done", ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps([limit_s, str(self.out)]).encode() + b"\n")
            process.stdin.close()
        try:
            if process.wait(limit_s):
                status, error = "failed", _last_words(waiting.log) or f"ended by {process.returncode}"
        except subprocess.TimeoutExpired:
            status, error = "overran", f"killed after {limit_s:.0f} s"
        _kill(process)  # what it has started, too
        rows = json.loads(waiting.rows.read_text(encoding="utf-8")) if waiting.rows.exists() else []
        self._keep(waiting.section, status, time.monotonic() - begin, rows, error)
        with self.out.with_suffix(".log").open("ab") as all_of_them:
            all_of_them.write(f"== {waiting.section.name}\n".encode() + waiting.log.read_bytes() + b"\n")
        profile = waiting.rows.with_suffix(".profile.txt")
        if profile.exists():
            with self.out.with_suffix(".profile.txt").open("a", encoding="utf-8") as tables:
                tables.write(profile.read_text(encoding="utf-8"))

    def _keep(self, section: Section, status: str, seconds: float, rows: list[dict[str, Any]], error: str) -> None:
        """Keep and print the result of a section."""
        result = {"status": status, "seconds": round(seconds, 1), "error": error, "rows": rows}
        self.results["sections"][section.name] = result
        self.save()
        counts = [f"{len(rows)} cases"]
        for kind in ("error", "wrong", "late", "under_way"):
            if names := [row["what"] for row in rows if kind in row]:
                counts.append(f"{len(names)} {kind.replace('_', ' ')}")
        print(f"{section.name:<19} {status:<8} {seconds:6.1f} s  {', '.join(counts)}  {error}".rstrip(), flush=True)

    def save(self) -> None:
        """Write the results."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.out, self.results)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a section and all that it has started: first with a request, on which torchrun ends its ranks."""
    for number, patience_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    if process.stdin and not process.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def facts(dry: bool) -> dict[str, Any]:
    """Return what the results are of, without anything that names the machine."""
    import torch  # only asked for its version here: the device stays untouched
    import triton

    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    device = ""
    if not dry:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            device = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    return {
        "device": device or "no GPU, so that times mean nothing",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "date": date.today().isoformat(),
        "commit": git_revision() or "unknown",
        "sources": source_hash(PACKAGES),
    }
