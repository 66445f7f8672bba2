"""`python -m common.measure COMMAND`: record the power of this node, or measure what limits a training step."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.command import (
    CommandParser,
    UsageError,
    any_path,
    check_new,
    file_path,
    folder_path,
    run_command,
)
from common.errors import LaunchError
from common.measure.power import Measurement, record_power
from common.measure.power_sources import Clock, open_source
from common.record import PARTS_SCOPE
from common.settings.machine import check_power_settings
from common.stop import STOP

POWER_DESCRIPTION: Final = """\
Record the power of this node to a power file of MLPerf: until Ctrl-C, for some seconds, or while a command runs.

sources:
  command:SCOPE:UNIT:COMMAND   a shell command that prints a number
  file:SCOPE:UNIT:PATH         a file whose last line is a number, rewritten for every reading
  rapl[:ROOT]                  energy counters of the processors; ROOT is /sys/class/powercap
  nvml                         the sum of all GPUs, from nvidia-smi
SCOPE is node for a meter of the whole node, device for one of parts of it, as rapl and nvml are. A command of devices
may print a number in each line; they are added. UNIT is watts, or joules for a counter of energy.
docs/guide/power.md has commands for ipmitool, Redfish, nvidia-smi and rocm-smi.

examples:
  python -m common.measure power --source "command:node:watts:echo 250" -o node_0.txt               until Ctrl-C
  python -m common.measure power --source "command:node:watts:echo 250" -o node_0.txt -- sleep 60   while it runs"""
GRACE_S: Final = 10.0
"""After a stop signal, how long to wait for the command before the file is completed."""
POLL_S: Final = 0.1


class Child:
    """The measured command. It gets the stop signals of this process. process: None until `has_ended` starts it."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self.process: subprocess.Popen[bytes] | None = None
        self._stopped_s: float | None = None

    def has_ended(self) -> bool:
        """Start it at the first call; tell whether it has ended, or had GRACE_S to end after a stop signal."""
        if self.process is None:
            try:
                self.process = subprocess.Popen(self._words)
            except OSError as error:
                raise UsageError(f"{self._words[0]}: cannot be run: {error.strerror}") from error
        ended = self.process.poll() is not None
        if STOP.number and self._stopped_s is None and not ended:
            self._stopped_s = time.monotonic()
            self.process.send_signal(STOP.number)
        return ended or (self._stopped_s is not None and time.monotonic() - self._stopped_s > GRACE_S)

    def wait_for_end(self) -> int:
        """Wait for its end; return its exit status, 0 if it never started."""
        if self.process is None:
            return 0
        while self.process.poll() is None:
            self.has_ended()
            time.sleep(POLL_S)
        status = self.process.returncode
        return status if status >= 0 else 128 - status


def add_power_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--source", required=True, metavar="SOURCE", help="where the readings come from; see above")
    parser.add_argument("-o", "--output", required=True, type=file_path, help="the file to write, such as node_0.txt")
    parser.add_argument("--interval", type=float, default=0.5, metavar="S", help="seconds between readings (0.5)")
    parser.add_argument("--efficiency", type=float, default=1.0, help="of the power supplies at their load (1)")
    parser.add_argument("--dc", action="store_true", help="the meter is behind the power supplies")
    parser.add_argument("--append", action="store_true", help="go on with the file if it exists")
    parser.add_argument("--parent", type=int, metavar="PID", help="stop when the parent, this process, has ended")
    parser.add_argument("--seconds", type=float, metavar="N", help="stop after so long")
    parser.add_argument("words", nargs="*", metavar="-- COMMAND", help="run the command, and stop when it ends")


def record_command_power(arguments: argparse.Namespace) -> int:
    """Record; return the exit status of the measured command, 1 without any reading."""
    clock = Clock()
    _check_arguments(arguments)
    name, source = open_source(arguments.source, clock, "--source")
    parts = source.scope == PARTS_SCOPE
    _check_output(arguments.output, name if parts else None, arguments.append)
    measurement = Measurement(
        name, source, arguments.interval, arguments.efficiency, "DC" if arguments.dc or parts else "AC"
    )
    new = not arguments.output.exists()
    with STOP.listening():
        child = Child(arguments.words) if arguments.words else None

        def is_finished(seconds: float) -> bool:
            if child is not None:
                return child.has_ended()
            orphan = arguments.parent is not None and os.getppid() != arguments.parent
            return orphan or bool(STOP.number) or (arguments.seconds is not None and seconds >= arguments.seconds)

        summary = None
        try:
            summary = record_power(arguments.output, measurement, is_finished, clock, _print_message)
        except OSError as error:  # such as a full disk, which the command may survive
            unrun = child is not None and child.process is None
            missing = f"readings are missing{', and the command was not run' if unrun else ''}"
            _print_message(f"{arguments.output}: {error.strerror or error}; {missing}")
        finally:
            status = child.wait_for_end() if child is not None else 0
            if new and child is not None and child.process is None:
                arguments.output.unlink(missing_ok=True)
    if summary is not None:
        _print_message(f"{arguments.output}: {summary}{' (estimate of parts)' if parts else ''}")
    return status or int(summary is None or not summary.readings)


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Raise UsageError for values that cannot be used."""
    check_power_settings(
        arguments.interval, arguments.efficiency, arguments.dc, names=("--interval", "--efficiency", "--dc")
    )
    if arguments.seconds is not None and not arguments.seconds > 0:
        raise UsageError(f"--seconds is {arguments.seconds:g}; expected more than 0")
    if arguments.seconds is not None and arguments.words:
        raise UsageError("give either --seconds or a command, not both")
    if arguments.words and shutil.which(arguments.words[0]) is None:
        raise UsageError(f"{arguments.words[0]}: no such command")


def _check_output(output: Path, estimate: str | None, append: bool) -> None:
    """Raise UsageError if the file cannot be written. estimate: the source, if it does not measure the whole node."""
    if estimate and re.match(r"(node|sw)_", output.name):
        raise UsageError(
            f"-o {output}: {estimate} estimates parts of the node, and the rules of MLPerf ask for the whole node; "
            f"choose another name, such as {estimate}_0.txt"
        )
    if not append or not output.exists():
        check_new("-o", output)


def _print_message(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


ROOFLINE_DESCRIPTION: Final = """\
Say which part of the machine limits measured training steps: compute, I/O or the network; how far the steps are from
its ceiling; what the others would allow; and draw the roofline. Measure the steps first, and start this command on as
many ranks:

  python -m cosmoflow measure --data /data/cosmoflow
  python -m common.measure roofline runs/cosmoflow-measure/fom.json
  torchrun --nproc-per-node 2 -m common.measure roofline runs/cosmoflow-measure/fom.json

The command measures a matrix product and a convolution in the steps' type, a sum of two vectors, an all-reduce of the
gradients, and reading the steps' files twice: first with the kernel's cache as empty as possible, then again."""
OUTPUT: Final = Path("runs/roofline")


def add_roofline_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("fom", type=any_path, metavar="FOM.json", help="the file that a measurement has written")
    parser.add_argument("--data", type=any_path, metavar="DIR", help="files to read; default: those of the steps")
    parser.add_argument(
        "--beside",
        type=any_path,
        nargs="+",
        default=(),
        metavar="FOM.json",
        help="measurements of other networks on the same units, further points of the roofline",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or xpu")
    parser.add_argument(
        "-o",
        "--output",
        type=folder_path,
        default=OUTPUT,
        metavar="DIR",
        help=f"folder of roofline.json, roofline.svg and, on several ranks, ceilings.yaml (default {OUTPUT})",
    )


def measure_roofline(arguments: argparse.Namespace) -> int:
    """Measure and report; return the exit status."""
    # torch takes seconds to import, and the other commands do without.
    from common.measure.roofline import run_roofline

    return run_roofline(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = CommandParser(prog="python -m common.measure", description="Measure what a run uses.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    roofline = commands.add_parser(
        "roofline",
        help="measure what the machine allows, and what limits a training step",
        description=ROOFLINE_DESCRIPTION,
    )
    add_roofline_arguments(roofline)
    roofline.set_defaults(measure=measure_roofline)
    power = commands.add_parser("power", help="record the power of this node", description=POWER_DESCRIPTION)
    add_power_arguments(power)
    power.set_defaults(measure=record_command_power)
    arguments = parser.parse_args(argv)
    return run_command(lambda: arguments.measure(arguments), (OSError, LaunchError))


if __name__ == "__main__":
    sys.exit(main())
