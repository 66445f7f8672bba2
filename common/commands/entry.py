"""`python -m BENCHMARK COMMAND`, and how this and the console script run a command of the table.

A command is imported only when it is called, so that help, and the checker, start without torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from common.command import BENCHMARK, COMMANDS, Command, CommandParser
from common.console import print_error
from common.installed import missing_extra, require_training

HELP: Final = ("-h", "--help")


def main(package: str, argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name of the benchmark in a package; return its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    folder = Path(str(sys.modules[package].__file__)).parent
    commands = {name.split()[-1]: command for name, command in COMMANDS.items() if has_command(folder, command)}
    parser = CommandParser(
        f"python -m {package}",
        {0: "done, or as COMMAND --help says"},
        description=f"Run a command of {package}; COMMAND --help shows its examples and options.",
    )
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for word, command in commands.items():
        parsers.add_parser(word, help=command.summary, add_help=False)
    return run_row(commands[parser.parse_args(words[:1]).command], package, words[1:])


def has_command(folder: Path, command: Command) -> bool:
    """Tell whether the benchmark in a folder has a command, by the names of its files; False for a command of none."""
    return command.argument == BENCHMARK and (folder / command.needed_file).exists()


def start_training(benchmark: str) -> None:
    """Begin `python -m BENCHMARK.train` before its imports: from now on, a signal stops the run in order.

    The process ends here if its arguments ask for no training, or if training is not installed.
    """
    from common.stop import STOP

    STOP.listen()
    from common.commands.train import answer_at_once

    answer_at_once(benchmark)
    require_training(benchmark)


def run_row(command: Command, benchmark: str, arguments: Sequence[str]) -> int:
    """Run a command, of a benchmark if it is not ""; return its exit status, 1 if a package is missing."""
    module, *first = command.module.replace(BENCHMARK, benchmark).split()
    try:
        if command is COMMANDS["train"]:  # what needs no network is answered without torch
            from common.commands.train import answer_at_once

            answer_at_once(benchmark, arguments)
        elif command.is_shared and any(word in HELP for word in arguments):
            from common.commands.arguments import PARSERS

            PARSERS[module.rpartition(".")[2]](benchmark, arguments)
        run = import_module(module).main
        if command.is_shared:
            trainer = f"{benchmark}.train"
            run = partial(run, import_module(trainer).BENCHMARK)
        return run([*first, *arguments])
    except ModuleNotFoundError as error:
        problem = missing_extra(error, command.name_module(benchmark))
        if problem is None:
            raise
        print_error(problem)
        return 1
