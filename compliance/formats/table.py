"""Write tables as text: plain, or limited to the width of a terminal; as Markdown: `markdown_text`."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from compliance.formats.words import aligned

GAP: Final = "  "
CUT: Final = "..."
"""What stands for the part of a text that is cut, on terminals without UTF-8, too."""
NOTE_WIDTH: Final = 120
"""Characters per line of notes where the output has no width."""
Item = TypeVar("Item")


class Column(NamedTuple, Generic[Item]):
    """A column of a table: its heading on two lines, and the cell of an item: a text that is safe to print, or a float.

    numeric: it holds numbers. decimals: the least of its floats, which all have the same. key: by what users and
    programs name it, "" if they cannot; meaning: what it holds; value: what is sorted and goes to programs.
    """

    name: str
    unit: str
    cell: Callable[[Item], str | float | None]
    numeric: bool = True
    decimals: int = 2
    key: str = ""
    meaning: str = ""
    value: Callable[[Item], Any] = str


class TextTable(NamedTuple):
    """The contents of a table.

    headings: (name, unit) of each column, on two lines. rows: cells that are safe to print, one for each column.
    numeric: which columns hold numbers. groups: the group of each row, or empty; rows of one group are adjacent.
    """

    title: str
    headings: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    groups: tuple[str, ...] = ()

    def without_empty(self) -> TextTable:
        """Return the table without its empty columns."""
        kept = [at for at in range(len(self.headings)) if any(row[at] for row in self.rows)]
        headings = tuple(self.headings[at] for at in kept)
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return TextTable(self.title, headings, rows, tuple(self.numeric[at] for at in kept), self.groups)


def make_table(
    title: str, columns: Sequence[Column[Item]], items: Sequence[Item], groups: Sequence[str] = ()
) -> TextTable:
    """Return the table with a row for each item."""
    headings = tuple((column.name, column.unit) for column in columns)
    cells = (aligned([column.cell(item) for item in items], column.decimals) for column in columns)
    rows = tuple(tuple(map(str, row)) for row in zip(*cells, strict=True))
    return TextTable(title, headings, rows, tuple(column.numeric for column in columns), tuple(groups))


def output_width() -> int | None:
    """Return the characters per line of standard output: COLUMNS, else the terminal's; None for a pipe or file."""
    columns = os.environ.get("COLUMNS", "")
    if not (sys.stdout.isatty() or (columns.isdecimal() and int(columns) > 0)):
        return None
    import shutil  # only terminals pay for it

    return shutil.get_terminal_size().columns


def plain_text(table: TextTable, width: int | None = None) -> str:
    """Return the table as plain text, in lines of at most `width` characters; None: without a limit.

    Long text is cut in the middle, numbers never are. A table that is still too wide gets narrower gaps, then longer
    lines.
    """
    heads = [line for line in zip(*table.headings, strict=True) if any(line)]
    widths = [max(map(len, column)) for column in zip(*heads, *table.rows, strict=True)]
    available = sum(widths) if width is None else width - len(GAP) * (len(widths) - 1)
    while sum(widths) > available:
        texts = [at for at, right in enumerate(table.numeric) if not right and widths[at] > 8]  # shorter ones stay
        if not texts:
            break
        widths[max(texts, key=lambda at: widths[at])] -= 1
    gap = GAP if sum(widths) <= available else " "
    groups = table.groups or ("",) * len(table.rows)
    title = textwrap.wrap(table.title, width or max(len(table.title), 1))
    lines = [*title, *(_line(head, widths, table.numeric, gap) for head in heads)]
    for before, group, row in zip(("", *groups), groups, table.rows, strict=False):
        lines += [group] if group != before else []
        lines.append(_line(row, widths, table.numeric, gap))
    return "\n".join(lines)


def wrap_notes(notes: Iterable[str], width: int | None) -> str:
    """Return notes in lines of at most `width` characters, NOTE_WIDTH without a width."""
    return "\n".join(textwrap.fill(note, width or NOTE_WIDTH, subsequent_indent="  ") for note in notes)


def _line(cells: Iterable[str], widths: Sequence[int], numeric: Sequence[bool], gap: str) -> str:
    aligned = [
        cell.rjust(width) if right else shortened(cell, width).ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    ]
    return gap.join(aligned).rstrip()


def shortened(text: str, width: int, cut: str = CUT) -> str:
    """Return the text cut to `width` characters in the middle, because long names differ at their ends."""
    if len(text) <= width:
        return text
    kept = max(width - len(cut), 0)
    tail = kept // 2
    return f"{text[: kept - tail]}{cut}{text[len(text) - tail :]}"
