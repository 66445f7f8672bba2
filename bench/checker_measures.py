"""The measurements of `bench/checker.py`: each function does one piece of work and returns what it took.

CPU seconds are those of this process and its children, so that both sides may be called in process or as commands.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any, NamedTuple

ROUNDS = ("1.0", "2.0", "3.0")
NOT_IN_0_7 = "1.0.0"  # mlperf-logging has no rules of round 0.7: its packages are checked by those of 1.0
MIB = 1 << 20


class Work(NamedTuple):
    """What a measurement gets: the folder with the published rounds, and one to write to."""

    corpus: Path
    scratch: Path


class Clock:
    """CPU seconds of this process and its children, and seconds, since it was made."""

    def __init__(self) -> None:
        self._cpu, self._wall = self._cpu_now(), time.perf_counter()

    @staticmethod
    def _cpu_now() -> float:
        return sum(use.ru_utime + use.ru_stime for use in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))

    def read(self) -> dict[str, float]:
        """Return the seconds since then."""
        return {"cpu_s": self._cpu_now() - self._cpu, "wall_s": time.perf_counter() - self._wall}


def run(arguments: list[str], folder: Path) -> None:
    """Run a Python command that may fail (an invalid log is an exit status); its output is dropped."""
    silent = subprocess.DEVNULL
    subprocess.run([sys.executable, *arguments], cwd=folder, stdout=silent, stderr=silent, check=False)


# -- what is measured, each in a process of its own ----------------------------------------------------------


def ours_logs(work: Work, profile: str) -> dict[str, Any]:
    from compliance.engine import Options, check_paths

    clock = Clock()
    report = check_paths([work.corpus / f"v{round_}" for round_ in ROUNDS], Options(profile=profile, jobs=1))
    return {**clock.read(), "count": len(report.runs)}


def theirs_logs(work: Work) -> dict[str, Any]:
    import logging

    from mlperf_logging.compliance_checker import mlp_compliance

    logging.disable(logging.CRITICAL)
    clock, count = Clock(), 0
    for round_ in ROUNDS:
        for path in logs_of(work.corpus, round_):
            checker = mlp_compliance.make_checker("hpc", f"{round_}.0", False, False)
            mlp_compliance.main(str(path), f"hpc_{round_}.0/common.yaml", checker)
            count += 1
    return {**clock.read(), "count": count}


def ours_packages(work: Work) -> dict[str, Any]:
    clock = Clock()
    run(["-m", "compliance.check", str(work.corpus)], work.scratch)
    return {**clock.read(), "count": len(list(packages(work.corpus)))}


def theirs_packages(work: Work) -> dict[str, Any]:
    copy = work.scratch / "copy"
    total, count = {"cpu_s": 0.0, "wall_s": 0.0}, 0
    for package, rules in packages(work.corpus):
        shutil.copytree(package, copy)
        clock = Clock()
        for tool in ("package_checker", "result_summarizer"):
            run(["-m", f"mlperf_logging.{tool}", str(copy), "hpc", rules], work.scratch)
        total = {name: total[name] + seconds for name, seconds in clock.read().items()}
        count += 1
        shutil.rmtree(copy)
    return {**total, "count": count}


def ours_single(work: Work) -> dict[str, Any]:
    clock = Clock()
    run(["-m", "compliance.check", str(small_log(work.corpus))], work.scratch)
    return clock.read()


def theirs_single(work: Work) -> dict[str, Any]:
    command = ["-m", "mlperf_logging.compliance_checker", "--usage", "hpc", "--ruleset", "3.0.0"]
    clock = Clock()
    run([*command, str(small_log(work.corpus))], work.scratch)
    return clock.read()


def ours_tree(work: Work, jobs: int) -> dict[str, Any]:
    clock = Clock()
    run(["-m", "compliance.check", "--jobs", str(jobs), str(work.corpus)], work.scratch)
    return clock.read()


def decode_only(work: Work) -> dict[str, Any]:
    import msgspec

    from compliance.logs.log import TOKEN
    from compliance.logs.record import Record

    decode = msgspec.json.Decoder(Record).decode
    size = 0
    clock = Clock()
    for round_ in ROUNDS:
        for path in logs_of(work.corpus, round_):
            data = path.read_bytes()
            size += len(data)
            for line in data.split(b"\n"):
                if line.startswith(TOKEN):
                    decode(line[len(TOKEN) :])
    return {**clock.read(), "bytes": size}


def large(work: Work, line: bytes, size: int) -> dict[str, Any]:
    """Check a valid log with `size` bytes of further lines, from a pipe; measure the checking process alone."""
    from compliance.samples.log import SampleLog

    block = line * max(1, MIB // len(line))
    command = [sys.executable, "-m", "compliance.check", "-"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(SampleLog().bytes())
        for _ in range(size // len(block)):
            pipe.write(block)
        pipe.write(b"\n")
    _, _, use = os.wait4(process.pid, 0)
    seconds = {"cpu_s": use.ru_utime + use.ru_stime, "wall_s": time.perf_counter() - start}
    return {
        **seconds,
        "bytes": size,
        "lines": line.count(b"\n") * size // len(line),
        "rss_mb": use.ru_maxrss * 1024 / 1e6,
    }


def record(key: str, value: Any) -> bytes:
    metadata = {"file": "train.py", "lineno": 12, "epoch_num": 1}
    members = {"namespace": "", "time_ms": 1694000001000, "event_type": "POINT_IN_TIME", "key": key}
    return b":::MLLOG " + json.dumps({**members, "value": value, "metadata": metadata}).encode() + b"\n"


MEASURES: dict[str, Callable[[Work], dict[str, Any]]] = {
    "ours_logs": lambda work: ours_logs(work, "strict"),
    "ours_logs_official": lambda work: ours_logs(work, "official"),
    "theirs_logs": theirs_logs,
    "ours_packages": ours_packages,
    "theirs_packages": theirs_packages,
    "ours_single": ours_single,
    "theirs_single": theirs_single,
    "one_job": lambda work: ours_tree(work, 1),
    "all_jobs": lambda work: ours_tree(work, 0),
    "decode_only": decode_only,
    "large_other": lambda work: large(work, record("tracked_stats", {"throughput": 3.4}), 300 * MIB),
    "large_kept": lambda work: large(work, record("eval_error", 0.5), 300 * MIB),
    "large_text": lambda work: large(work, b"step 1234 loss 0.123 lr 0.001\n", 300 * MIB),
    "long_line": lambda work: large(work, b"x" * MIB, 100 * MIB),
}


# -- the corpus ----------------------------------------------------------------------------------------------


def logs_of(corpus: Path, round_: str) -> list[Path]:
    return sorted(corpus.glob(f"v{round_}/*/results/**/result_*.txt"))


def small_log(corpus: Path) -> Path:
    return min(logs_of(corpus, "3.0"), key=lambda path: (path.stat().st_size, path))


def packages(corpus: Path) -> Iterator[tuple[Path, str]]:
    """Yield each organisation's folder and the official rules for it."""
    for round_ in ("0.7", *ROUNDS):
        for package in sorted((corpus / f"v{round_}").iterdir()):
            yield package, NOT_IN_0_7 if round_ == "0.7" else f"{round_}.0"
