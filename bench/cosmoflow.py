"""Measure training steps of CosmoFlow, ours against the same network in Keras on TensorFlow, in the same run.

    python bench/cosmoflow.py                              everything, about ten minutes on two cores
    python bench/cosmoflow.py --quick                      small networks only, under a minute
    python bench/cosmoflow.py --peer-python PYTHON         a Python that has tensorflow-cpu; --no-peer does without
    python bench/cosmoflow.py --keep                       also keeps the record

Without --peer-python, tensorflow-cpu is installed once, in a separate environment below --cache (1.5 GB).

A step starts from int16 counts in memory: log(1 + x), forward, backward, SGD with momentum, batches of the reference's
size. CPU seconds are user + system time of all threads; the main figure is that of one thread, since others may
use the machine. Both sides are warm before they are measured, take turns, and the median of the turns counts. The
share of the peak is that of a large matrix product in the same number format, measured between the turns.

Where there is an accelerator, `--device auto` measures it instead, against its own ceilings. This part is
**untested**, for want of one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison import Comparison, Peer, parser, run, run_module
from table import Page
from workers import Case

TENSORFLOW = "tensorflow-cpu==2.21.0"
PAGE = Page(
    title="CosmoFlow",
    script="bench/cosmoflow.py",
    step="A step is log(1 + counts), forward, backward and SGD with momentum.",
    peer="The peer is the same network in Keras on TensorFlow, bf16 by its policy mixed_bfloat16.",
    bytes_per_sample=2.1e9,  # mostly in the first block
)


@dataclass(frozen=True, kw_only=True)
class CosmoFlowCase(Case):
    """Samples of side³ x 4 voxels; the number of convolutions, and the channels of the first."""

    side: int = 128
    channels: int = 32
    layers: int = 5

    @property
    def network(self) -> str:
        full = (self.channels, self.layers) == (32, 5)
        return f"{self.side}³" if full else f"{self.side}³, {self.layers} layers from {self.channels} channels"


MINI = CosmoFlowCase(side=32, channels=8, layers=4, batch=16)
QUICK = (MINI, CosmoFlowCase(side=32, batch=8))
LARGER = tuple(CosmoFlowCase(side=side, batch=batch) for side, batch in ((64, 2), (64, 8), (128, 1), (128, 2)))
ALL_CORES = (MINI, CosmoFlowCase())
ACCELERATOR = tuple(CosmoFlowCase(batch=batch) for batch in (1, 8, 16, 32))


def synthesize(folder: Path, case: Any, kind: str) -> None:
    """Generate samples in a folder: 8 of the published size, or 64 of the mini problem's."""
    preset = ["--preset", "full-size"] if case.side == 128 else ["--particles", "32", "--train", "64"]
    compress = ["--compress", "none" if kind == "raw" else "gzip"]
    run_module("cosmoflow.synthesize", folder, *preset, "--validation", "1", *compress)


def peer_python(given: argparse.Namespace) -> str:
    """Return the Python that has the peer, installed now if it is in no environment yet."""
    if given.peer_python:
        return str(given.peer_python)
    folder = given.cache / TENSORFLOW
    python, installed = folder / "bin" / "python", folder / "installed"
    if not installed.exists():
        print(f"{TENSORFLOW} is installed in {folder}", file=sys.stderr)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TENSORFLOW]
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            subprocess.run(install, check=True)
        except subprocess.CalledProcessError:
            sys.exit(f"{TENSORFLOW} cannot be installed: name a Python that has it (--peer-python), or use --no-peer")
        installed.touch()
    return str(python)


def main() -> int:
    """Measure, print the tables; exit 1 if the peer needs less CPU time than ours somewhere."""
    given = _arguments()
    alone = given.no_peer or given.beside or given.device != "cpu"
    comparison = Comparison(
        name="cosmoflow",
        page=PAGE,
        script="cosmoflow_measures.py",
        peer=None if alone else Peer("cosmoflow_keras.py", peer_python(given)),
        one_core=QUICK if given.quick else QUICK + LARGER,
        all_cores=() if given.quick else ALL_CORES,
        reading=ALL_CORES[:1] if given.quick else ALL_CORES,
        accelerator=ACCELERATOR,
        kinds=("gzip", "raw"),
        synthesize=synthesize,
    )
    return run(comparison, given)


def _arguments() -> argparse.Namespace:
    arguments = parser(__doc__)
    peer = arguments.add_mutually_exclusive_group()
    peer.add_argument("--peer-python", type=Path, metavar="PYTHON", help=f"a Python that has {TENSORFLOW}")
    peer.add_argument("--no-peer", action="store_true", help="measure this suite alone")
    cache = Path.home() / ".cache" / "mlperf-hpc-suite"
    arguments.add_argument("--cache", type=Path, default=cache, help="where the peer is installed (%(default)s)")
    return arguments.parse_args()


if __name__ == "__main__":
    sys.exit(main())
