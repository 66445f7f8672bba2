"""The command that measures the ceilings of a machine and says which of them limits a training step."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from common.command import folder_place, place

SUMMARY: Final = "measure what the machine allows, and what limits a training step"
DESCRIPTION: Final = """\
Say which part of the machine limits measured training steps: compute, I/O or the network; how far the steps are from
its ceiling; what the others would allow; and draw the roofline. Measure the steps first, and start this command on as
many ranks:

  python -m cosmoflow.measure --data /data/cosmoflow
  python -m common.measure roofline runs/cosmoflow-measure/fom.json
  torchrun --nproc-per-node 2 -m common.measure roofline runs/cosmoflow-measure/fom.json

The command measures a matrix product and a convolution in the steps' type, a sum of two vectors, an all-reduce of the
gradients, and reading the steps' files twice: first with the kernel's cache as empty as possible, then again."""
OUTPUT: Final = Path("runs/roofline")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("fom", type=place, metavar="FOM.json", help="the file that a measurement has written")
    parser.add_argument("--data", type=place, metavar="DIR", help="files to read; default: those of the steps")
    beside = "measurements of other networks on the same units, further points of the roofline"
    parser.add_argument("--beside", type=place, nargs="+", default=(), metavar="FOM.json", help=beside)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or xpu")
    written = f"folder of roofline.json, roofline.svg and, on several ranks, ceilings.yaml (default {OUTPUT})"
    parser.add_argument("-o", "--output", type=folder_place, default=OUTPUT, metavar="DIR", help=written)


def run(arguments: argparse.Namespace) -> int:
    """Measure and report; return the exit status."""
    # torch takes seconds to import, and the other commands do without.
    from common.measure.roofline.ceilings import run_roofline

    return run_roofline(arguments)
