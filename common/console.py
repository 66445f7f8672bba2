"""The terminal: when texts have styles, the lines for errors and warnings, and a bar for long work.

Elsewhere than on a terminal the bar is a line a minute.
"""

from __future__ import annotations

import io
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from common.files import follow_no_link

if TYPE_CHECKING:
    from tqdm import tqdm

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


def print_error(text: object) -> None:
    """Print an error on standard error."""
    _print_message(f"{_style_label('error:', RED)} {text}")


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


NOTE: Final = "console.txt"
"""The file with the note, in the folder of the run."""


class Console:
    """The standard streams of this process, and the folder with the note of what became of them."""

    def __init__(self) -> None:
        self._losses: dict[str, str] = {}
        self._noted: set[str] = set()
        self._folder: Path | None = None

    def install_streams(self) -> None:
        """Replace the standard streams by those that drop what they cannot write, unless others took their place."""
        # Otherwise the next file that is opened would take the number of a closed stream, and get what others print.
        while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(handle, True)
        os.close(handle)
        for name, words in (("stdout", "standard output"), ("stderr", "standard error")):
            if (stream := getattr(sys, name)) is getattr(sys, f"__{name}__"):
                setattr(sys, name, self._make_stream(stream, words))

    def begin_notes(self, folder: Path) -> None:
        """Note in this folder what is lost, and what was lost before, unless a folder around it has the notes."""
        self._folder = self._folder or folder
        self._write_notes()

    def end_notes(self, folder: Path) -> None:
        """Write nothing more in this folder."""
        if self._folder == folder:
            self._folder, self._noted = None, set()

    def _make_stream(self, stream: Any, words: str) -> IO[str]:
        if stream is None:
            self._take_loss(words, "closed")
        descriptor = os.open(os.devnull, os.O_WRONLY) if stream is None else stream.fileno()
        return io.TextIOWrapper(
            io.BufferedWriter(_DroppingFile(descriptor, lambda error: self._take_loss(words, str(error.strerror)))),
            encoding=stream and stream.encoding,
            errors="backslashreplace",
            line_buffering=stream is not None and stream.line_buffering,
            write_through=stream is not None and stream.write_through,
        )

    def _take_loss(self, words: str, reason: str) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        self._losses.setdefault(words, f"{now} {words}: {reason}; what it cannot take is dropped, the training goes on")
        self._write_notes()

    def _write_notes(self) -> None:
        """Write the notes that the folder lacks, if that is possible now."""
        due = self._losses.keys() - self._noted
        if self._folder is not None and due:
            with suppress(OSError), open(self._folder / NOTE, "a", encoding="utf-8", opener=follow_no_link) as file:
                file.writelines(f"{self._losses[words]}\n" for words in sorted(due))
                self._noted |= due


class _DroppingFile(io.FileIO):
    """A file that drops what cannot be written, after a call of `report` with the error."""

    def __init__(self, descriptor: int, report: Callable[[OSError], None]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._report = report

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:  # a terminal that another program made non-blocking
                select.select([], [self], [])
        except OSError as error:
            self._report(error)
            return len(data)
        return written


CONSOLE: Final = Console()
"""The console of this process."""


PAUSE_S: Final = 60.0


class _Lines:
    """A file for a bar without a terminal: each of its pictures becomes a line of standard error."""

    def write(self, text: str) -> None:
        if text := text.strip():
            print(text, file=sys.stderr, flush=True)


def open_bar(iterable: Iterable[Any] | None = None, *, disable: bool | None = None, **options: Any) -> tqdm[Any]:
    """Return a bar of tqdm, with its options; without a terminal it prints a line every PAUSE_S, none if work is short.

    disable: True on ranks and tasks other than the first.
    """
    # It takes longer to import than a small log to check.
    from tqdm import tqdm

    if disable or sys.stderr.isatty():
        return tqdm(iterable, disable=disable, **options)
    name = "{desc}: " if options.get("desc") else ""
    lines = name + "{n_fmt} of {total_fmt}{unit}, {elapsed} so far, about {remaining} left"
    often: dict[str, Any] = {"delay": PAUSE_S, "mininterval": PAUSE_S, "miniters": 1, "smoothing": 0, "leave": False}
    return tqdm(iterable, file=_Lines(), bar_format=lines, **options | often)


ACTIVITY_S: Final = 2.0  # from when on a terminal shows what is being done


class Activity:
    """What this process is doing: `text`, set by what does it, which a terminal shows once it takes long."""

    text = ""

    @contextmanager
    def showing(self, shows: bool) -> Iterator[None]:
        """Show it inside the `with`, in a line of standard error, which is gone afterwards. shows: False for never.

        The system's timer wakes what writes it: beside a thread, no processes could be started by a fork.
        """
        if not (shows and hasattr(os, "fork")):
            yield
            return
        import signal  # only terminals pay for these
        import threading

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        begin = time.monotonic()

        def write_line(*_: object) -> None:
            text = f"{self.text} ({time.monotonic() - begin:.0f} s)"
            line = "".join(c if c.isprintable() else "?" for c in text)
            with suppress(OSError):
                os.write(2, f"\r{line[: max(os.get_terminal_size(2).columns, 40) - 1]}\x1b[K".encode(errors="replace"))

        former = signal.signal(signal.SIGALRM, write_line)
        signal.setitimer(signal.ITIMER_REAL, ACTIVITY_S, ACTIVITY_S / 4)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
            if time.monotonic() - begin >= ACTIVITY_S:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)


ACTIVITY: Final = Activity()  # of this process


def format_duration(seconds: float) -> str:
    """Return a duration for people: 8.0 s, 1:05, 2:00:09."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    if minutes:
        return f"{minutes}:{rest:02}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{rest} s"
