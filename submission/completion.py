"""Completion in a shell, by argcomplete: the words of a command here, then the options by the command's own parser."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Sequence

import argcomplete


def complete(list_next: Callable[[Sequence[str]], list[str]], run: Callable[[Sequence[str]], object]) -> None:
    """Answer the shell and end the process, or run a command, whose parser answers: see CommandParser.

    list_next: returns the words that can follow those of a command line, [] where its options begin. run: runs it; gets
    the words.
    """
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    _, prefix, _, (_, *words), _ = argcomplete.split_line(line, point)
    start = 0
    while start < len(words) and list_next(words[:start]):
        start += 1
    choices = list_next(words)
    rest = f"{os.path.basename(line.split()[0])} {shlex.join(words[0 if choices else start :])}".strip()
    rest = f"{rest} {prefix}" if not choices else f"- {prefix}"
    os.environ.update(COMP_LINE=rest, COMP_POINT=str(len(rest.encode())))
    if choices:
        parser = argparse.ArgumentParser(add_help=False)
        parser.add_argument("word", choices=choices)
        argcomplete.autocomplete(parser)
    run(words)
