"""The process of a section: loads what it needs, waits for its turn, and measures."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import signal
import sys
import time
from pathlib import Path

import torch

from gpu.cases import Bench
from gpu.results import read_rows
from gpu.sections import select_sections

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl.h."""


def serve(given: argparse.Namespace) -> int:
    """Run a section when a line arrives on standard input: its seconds, and the files of earlier results."""
    with contextlib.suppress(OSError, AttributeError):  # another system
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # no section outlives the run
    (section,) = select_sections([given.section])
    module, _, function = section.place.partition(":")
    measure = getattr(importlib.import_module(f"gpu.{module}"), function)
    seconds, earlier = json.loads(sys.stdin.readline())  # until then the device is left alone
    device = torch.device("cpu" if given.dry_run else "cuda:0")
    if device.type == "cpu":
        from common.processes import keep_freed_memory  # needs packages that some sections do not

        keep_freed_memory()
    known = read_rows(json.loads(Path(path).read_text(encoding="utf-8")) for path in earlier)
    bench = Bench(device, given.dry_run, given.work, given.out, time.monotonic() + seconds, known)
    measure(bench)
    bench.save()
    return 0
