"""Styles of a terminal: when texts have them, and the two lines that all commands print alike, errors and warnings."""

from __future__ import annotations

import os
import sys
from typing import IO, Any, Final

BOLD: Final = 1
RED: Final = 31
GREEN: Final = 32
YELLOW: Final = 33
CYAN: Final = 36


def use_styles(stream: IO[str] | Any) -> bool:
    """Tell whether texts for a stream have styles: NO_COLOR says no, then FORCE_COLOR yes; else a terminal has them."""
    if os.environ.get("NO_COLOR"):
        return False
    if force := os.environ.get("FORCE_COLOR"):
        return force != "0"
    return os.environ.get("TERM") != "dumb" and stream is not None and bool(stream.isatty())


def style_text(text: str, style: int) -> str:
    """Return the text with a style."""
    return f"\x1b[{style}m{text}\x1b[0m"


def label_error(text: object) -> str:
    """Return an error as it is printed on standard error."""
    return f"{_style_label('error:', RED)} {text}"


def print_error(text: object) -> None:
    """Print an error on standard error."""
    _print_message(label_error(text))


def print_warning(text: object) -> None:
    """Print a warning on standard error."""
    _print_message(f"{_style_label('warning:', YELLOW)} {text}")


def open_stderr() -> None:
    """Give a process that was started without standard error one that goes nowhere: texts would be on its output."""
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  # for as long as the process


def _print_message(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # such as a full disk, at which Python would fail again at its end
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _style_label(label: str, style: int) -> str:
    return style_text(label, style) if use_styles(sys.stderr) else label
