"""What the command lines share: numbers as arguments, and errors that a user can fix, told without a traceback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable


class UsageError(ValueError):
    """Arguments do not fit together; the message says which."""


def count(text: str) -> int:
    """The whole number of at least 0 that an argument is; an `argparse` type."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, not {text!r}")
    return int(text)


def positive(text: str) -> int:
    """The whole number of at least 1 that an argument is; an `argparse` type."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def run_command(command: Callable[[], int], expected: tuple[type[Exception], ...]) -> int:
    """The exit code of a command: its own, 2 after wrong use, 1 after a `expected` error, 130 after Ctrl-C."""
    try:
        return command()
    except KeyboardInterrupt:
        print("interrupted: what is finished is kept; --help says how to go on", file=sys.stderr)
        return 130
    except UsageError as error:
        print(f"error: {error}; --help shows the use", file=sys.stderr)
        return 2
    except expected as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
