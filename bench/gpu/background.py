"""Generate the data of the mini problems on the CPU while the device is measured."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 3
"""Processes for each benchmark: most cores stay free for what is measured meanwhile."""
TINY: Final = {
    "cosmoflow": ("--train", "2", "--validation", "1"),
    "deepcam": ("--height", "48", "--width", "80", "--train", "8", "--validation", "1", "--test", "1"),
    "oc20": ("--train", "2", "--validation", "1"),
}
"""Sizes for a dry run."""


@contextlib.contextmanager
def mini_data(work: Path, names: Iterable[str], tiny: bool) -> Iterator[None]:
    """Generate data of these benchmarks inside the body, at the lowest priority; `wait` waits for one."""
    started = []
    for name in names:
        folder = work / f"mini-{name}"
        if (folder / "done").exists():
            continue
        module = [sys.executable, "-m", f"{name}.synthesize", str(folder / "data"), "--workers", str(WORKERS)]
        module += TINY[name] if tiny else ()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log").open("wb") as log:
            command = ["nice", "-n", "19", "sh", "-c", '"$@" && touch "$0"', str(folder / "done"), *module]
            started.append(
                subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True,
                    env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                )
            )  # fmt: skip
    try:
        yield
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait(work: Path, name: str, seconds: float) -> Path:
    """Return the folder of a mini problem's data once it is made; RuntimeError if it is not within some seconds."""
    folder, end = work / f"mini-{name}", time.monotonic() + seconds
    while not (folder / "done").exists():
        if time.monotonic() > end:
            log = (folder / "log").read_text(errors="replace") if (folder / "log").exists() else ""
            raise RuntimeError(f"the data of {name}'s mini problem are not made yet: {log.strip()[-200:]}")
        time.sleep(0.5)
    return folder / "data"
