"""The cases of a section: each is measured by itself and kept at once, and a wrong one does not stop the others."""

from __future__ import annotations

import contextlib
import math
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gpu.clock import Clock, clock
from gpu.results import Row, write_json


class WrongError(Exception):
    """The result of a case is wrong, so that its time is of no interest."""


@dataclass
class Bench:
    """What a section works with, in its own process.

    dry: tiny sizes, on a CPU. work: a folder for data of this run. out: file of the rows.
    ends: when the section is killed, by time.monotonic. known: rows of earlier sections.
    """

    device: torch.device
    dry: bool
    work: Path
    out: Path
    ends: float = math.inf
    known: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock: Clock = clock(self.device)
        self.profiles = self.out.with_suffix(".profile.txt")

    @contextlib.contextmanager
    def case(self, what: str, **names: Any) -> Iterator[Row]:
        """Yield the row of a case, to be filled; an error is kept in it."""
        row: Row = {"what": what, **names, "under_way": True}
        self.rows.append(row)
        self.save()
        begin = time.monotonic()
        try:
            self.clock.poison()
            yield row
            self._check(row)
        except WrongError as error:
            row["wrong"] = str(error)
            for time_of_wrong in ("ms", "ms_again", "per_s"):
                row.pop(time_of_wrong, None)
        except Exception as error:  # whatever it is, the next case may work
            traceback.print_exc()
            row["error"] = f"{type(error).__name__}: {self._first_line(error)} ({_place(error)})"
        del row["under_way"]
        row["took_s"] = round(time.monotonic() - begin, 2)
        self.save()

    def lacks_time(self, needs_s: float, what: str, **names: Any) -> bool:
        """Tell whether fewer seconds than a case needs are left; if so, add a row that says it."""
        if self.dry or self.left_s >= needs_s:
            return False
        late = f"{max(self.left_s, 0):.0f} s were left, it needs {needs_s:.0f}"
        self.rows.append({"what": what, **names, "late": late})
        self.save()
        return True

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.ends - time.monotonic()

    def save(self) -> None:
        """Write the rows."""
        write_json(self.out, self.rows)

    def size(self, full: Any, tiny: Any) -> Any:
        """Return the size of a measurement, tiny in a dry run."""
        return tiny if self.dry else full

    def found(self, what: str, **names: Any) -> Row | None:
        """Return a finished row of this section or an earlier one, if there is one."""
        for row in (*reversed(self.rows), *self.known):
            if row["what"] == what and all(row.get(name) == value for name, value in names.items()):
                return None if row.get("under_way") else row
        return None

    def profile(self, title: str, table: str) -> None:
        """Add a table of kernels to the file of profiles."""
        with self.profiles.open("a", encoding="utf-8") as file:
            file.write(f"== {title}\n{table}\n\n")

    def _first_line(self, error: Exception) -> str:
        """Return the first line of an error's text, without the folders of this machine: results travel."""
        text = str(error)
        for folder in (Path(__file__).resolve().parents[2], self.work):
            text = text.replace(f"{folder}/", "")
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[0][:300] if lines else ""

    @staticmethod
    def _check(row: Row) -> None:
        """Raise for numbers that cannot be: NaN, or times of nothing."""
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise WrongError(f"{name} is {value}")


def _place(error: Exception) -> str:
    """Return file and line of the innermost call that is not of a library."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "site-packages" not in frame.filename and "/lib/python" not in frame.filename]
    last = (ours or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"
