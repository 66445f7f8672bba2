"""Run sections one after the other, each in a process with a deadline; keep and print what they find.

This process never touches the device, so that an error there, or a call that never returns, ends one section only. It
needs nothing but torch, so that a missing package ends the sections that need it only.
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
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from common.programs import ask_program
from common.provenance import git_revision, source_hash
from gpu.background import mini_data
from gpu.page import summary
from gpu.results import MARKS, ResultsError, Row, describe_fault, read_results, write_json
from gpu.sections import BUDGETS_S, NAMES, PARTS, Section, select_sections

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "cosmoflow", "deepcam", "oc20")
LEAST_S = 8.0
"""A section is not started with less time left."""
RESERVE_S = 6.0
"""Of the budget, for the end of the last section and the tables."""
TICK_S: Final = 10.0
"""How often rows are kept and clocks noted while a section measures."""
CLOCKS: Final = ("nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu", "--format=csv,noheader")
NO_GPU: Final = "no GPU, so that times mean nothing"


@dataclass
class Waiting:
    """A section's process that has loaded what it needs and waits for its turn. rows: the file that it writes."""

    section: Section
    process: subprocess.Popen[bytes]
    rows: Path
    log: Path

    def read_rows(self) -> list[Row]:
        """Return the rows so far."""
        rows: list[Row] = json.loads(self.rows.read_text(encoding="utf-8")) if self.rows.exists() else []
        return rows


class Runner:
    """A run of the command: a part, or some sections."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.dry, self.again = arguments.dry_run, arguments.again
        self.folder = arguments.out
        self.out = self.folder / f"{arguments.part or 'sections'}.json"
        self.sections = select_sections(arguments.sections or PARTS[arguments.part])
        self.data = NAMES if arguments.part else tuple(name for section in self.sections for name in section.data)
        self.began = time.monotonic()
        self.budget_s = arguments.budget or (1e6 if self.dry else BUDGETS_S.get(arguments.part, 1e6))
        self.work = arguments.work or ROOT / "build" / ("gpu-dry" if self.dry else "gpu")
        self._stack = contextlib.ExitStack()
        self.results: dict[str, Any] = {"sections": {}}
        machine = describe_machine(self.dry)
        if not self.dry and machine["device"] == NO_GPU:
            raise ResultsError("no GPU of NVIDIA here; --dry-run walks the same sections on a CPU")
        if self.out.exists():
            self.results = read_results(self.out)
            for fact in ("device", "sources"):
                if self.results["machine"].get(fact) != machine[fact]:
                    raise ResultsError(
                        f"{self.out} is of {fact} {self.results['machine'].get(fact)}, and this is {machine[fact]}: "
                        "name another folder"
                    )
        self.results["machine"] = machine

    def run(self) -> int:
        """Measure; return the exit status."""
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that sections are ended
        with self._stack:
            self.scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-")))
            for folder in (self.folder, self.work):
                folder.mkdir(parents=True, exist_ok=True)
            self.note_machine()
            self.save()
            done = {name for name, section in self.results["sections"].items() if section["status"] == "done"}
            todo = [section for section in self.sections if self.again or section.name not in done]
            self._stack.enter_context(mini_data(self.work, dict.fromkeys(self.data), self.dry))
            self._measure(todo)
        print()
        print(summary(self.results, list(map(read_results, self.earlier()))))
        print(f"{time.monotonic() - self.began:.0f} s; {self.out}")
        states = {name: section["status"] for name, section in self.results["sections"].items()}
        bad = [name for name, state in states.items() if state != "done"] + [
            f"{name}: {row['what']}"
            for name, section in self.results["sections"].items()
            for row in section["rows"]
            if describe_fault(row)
        ]
        if bad:
            print("not done or not right: " + ", ".join(dict.fromkeys(bad)))
        return 1 if bad else 0

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
            # Whatever it takes, those that follow have the time that they are expected to need.
            left = max(left - sum(later.seconds for later in todo[number + 1 :]), LEAST_S)
            self._section(waiting, 900.0 if self.dry else min(section.limit_s, left))

    def _start(self, section: Section) -> Waiting:
        """Start the process of a section, which loads its libraries and waits."""
        rows, log = self.scratch / f"{section.name}.json", self.scratch / f"{section.name}.log"
        command = [sys.executable, str(ROOT / "bench" / "gpu.py"), "--section", section.name, "--out", str(rows)]
        command += ["--work", str(self.work)] + (["--dry-run"] if self.dry else [])
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        if self.dry:
            environment |= {"TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
        else:
            environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(self.work / "inductor"))
            environment.setdefault("TRITON_CACHE_DIR", str(self.work / "triton"))
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
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(
                json.dumps([limit_s, [str(path) for path in (*self.earlier(), self.out)]]).encode() + b"\n"
            )
            process.stdin.close()
        status, error = self._wait(waiting, begin + limit_s)
        _kill(process)  # what it has started, too
        self._keep(waiting.section, status, time.monotonic() - begin, waiting.read_rows(), error)
        with self.out.with_suffix(".log").open("ab") as all_of_them:
            all_of_them.write(f"== {waiting.section.name}\n".encode() + waiting.log.read_bytes() + b"\n")
        profile = waiting.rows.with_suffix(".profile.txt")
        if profile.exists():
            with self.out.with_suffix(".profile.txt").open("a", encoding="utf-8") as tables:
                tables.write(profile.read_text(encoding="utf-8"))

    def _wait(self, waiting: Waiting, end: float) -> tuple[str, str]:
        """Wait for the end of a section, keeping its rows meanwhile; return its status and error."""
        begin = time.monotonic()
        while (left := end - time.monotonic()) > 0:
            try:
                failed = waiting.process.wait(min(left, TICK_S))
            except subprocess.TimeoutExpired:
                self._store(waiting.section, "under way", time.monotonic() - begin, waiting.read_rows(), "")
                self.note_machine(waiting.section.name)
                continue
            return ("failed", _last_words(waiting.log) or f"ended by {failed}") if failed else ("done", "")
        return "overran", f"killed after {end - begin:.0f} s"

    def earlier(self) -> list[Path]:
        """Return the other files of results that were measured on this device."""
        paths = [self.folder / f"{name}.json" for name in (*PARTS, "sections")]
        paths = [path for path in paths if path != self.out and path.exists()]
        device = self.results["machine"]["device"]
        return [path for path in paths if read_results(path)["machine"]["device"] == device]

    def _store(self, section: Section, status: str, seconds: float, rows: list[Row], error: str) -> None:
        result = {"status": status, "seconds": round(seconds, 1), "error": error, "rows": rows}
        self.results["sections"][section.name] = result
        self.save()

    def _keep(self, section: Section, status: str, seconds: float, rows: list[Row], error: str) -> None:
        """Keep and print the result of a section."""
        self._store(section, status, seconds, rows, error)
        counts = [f"{len(rows)} cases"]
        for mark in MARKS:
            if number := sum(mark in row for row in rows):
                counts.append(f"{number} {mark.replace('_', ' ')}")
        print(f"{section.name:<19} {status:<8} {seconds:6.1f} s  {', '.join(counts)}  {error}".rstrip(), flush=True)
        if section.gate:
            for row in rows:
                if fault := describe_fault(row):
                    names = " ".join(str(row[key]) for key in ("network", "variant", "model", "format") if key in row)
                    print(f"  NOT RIGHT: {section.name} {names}: {fault}", flush=True)

    def note_machine(self, section: str = "") -> None:
        """Add the clocks during a section to machine.txt, or at the start all that the driver tells."""
        with (self.folder / "machine.txt").open("a", encoding="utf-8") as file:
            if section:
                file.write(f"{section}: {query_device(CLOCKS)}\n")
                return
            file.write(f"{json.dumps(self.results['machine'], indent=1)}\n")
            file.write(f"{query_device(('nvidia-smi',))}\n{query_device(('nvidia-smi', '-q', '-d', 'CLOCK,POWER'))}\n")

    def save(self) -> None:
        """Write the results."""
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


def query_device(command: tuple[str, ...]) -> str:
    """Return what a command of the driver says, "" without a driver."""
    return ask_program(*command).output.strip()


def describe_machine(dry: bool) -> dict[str, Any]:
    """Return what the results are of, without anything that names the machine."""
    import torch  # only asked for its version here: the device stays untouched

    query = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    device = "" if dry else query_device(query)
    try:
        triton = metadata.version("triton")
    except metadata.PackageNotFoundError:
        triton = "none"
    return {
        "device": device or NO_GPU,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": triton,
        "python": sys.version.split()[0],
        "date": date.today().isoformat(),
        "commit": git_revision() or "unknown",
        "sources": source_hash(PACKAGES),
    }
