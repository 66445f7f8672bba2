"""The standard streams of a training, which goes on without them: its log, checkpoints and history are in files.

The reader of a pipe may end, the disk with a job's output file may be full, a terminal may be gone, and a daemon has no
streams at all. What a stream cannot take is dropped, which is noted in the folder of the run. Characters that its
encoding lacks are written as escapes.
"""

from __future__ import annotations

import io
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from common.files import follow_no_link

NOTE: Final = "console.txt"
"""The file with the note, in the folder of the run."""
STREAMS: Final = {"stdout": "standard output", "stderr": "standard error"}


class Console:
    """The standard streams of this process, and the folder with the note of what became of them."""

    def __init__(self) -> None:
        self._losses: dict[str, str] = {}
        self._noted: set[str] = set()
        self._folder: Path | None = None

    def install(self) -> None:
        """Replace the standard streams by those that drop what they cannot write, unless others took their place."""
        # Otherwise the next file that is opened would take the number of a closed stream, and get what others print.
        while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(handle, True)
        os.close(handle)
        for name, words in STREAMS.items():
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
