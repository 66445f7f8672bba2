"""`python -m common.measure COMMAND`: what a run uses, and what the machine allows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from common.command import CommandParser, run_command
from common.measure.power import command as power
from common.measure.roofline import command as roofline
from common.ranks.launch import LaunchError

COMMANDS: Final = {"roofline": roofline, "power": power}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = CommandParser(prog="python -m common.measure", description="Measure what a run uses.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.SUMMARY, description=module.DESCRIPTION))
    arguments = parser.parse_args(argv)
    return run_command(lambda: COMMANDS[arguments.command].run(arguments), (OSError, LaunchError))


if __name__ == "__main__":
    sys.exit(main())
