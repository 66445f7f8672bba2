"""Tables as text: for a terminal of limited width, as Markdown, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from compliance.formats.markdown import code, escaped

GAP: Final = "  "
NARROWEST: Final = 8
"""No column is cut to fewer letters."""
FORMULA: Final = ("=", "+", "-", "@")
"""What a spreadsheet takes for the beginning of a formula."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """What a table shows, and its columns; of each its heading, one line for the name and one for the unit.

    rows: cells that are safe to print, one for each column. numeric: which columns hold numbers. groups: what each row
    belongs to, or nothing at all; rows of one group stand together.
    """

    title: str
    headings: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    groups: tuple[str, ...] = ()

    def without_empty(self) -> TextTable:
        """Return the table without the columns in which no row has an entry."""
        kept = [at for at in range(len(self.headings)) if any(row[at] for row in self.rows)]
        headings = tuple(self.headings[at] for at in kept)
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return TextTable(self.title, headings, rows, tuple(self.numeric[at] for at in kept), self.groups)


def terminal_text(table: TextTable, width: int) -> str:
    """Return the table in lines of at most `width` letters: long text is cut in its middle, numbers never are.

    A table that is too wide even so has narrower gaps, and in the end wider lines.
    """
    heads = [line for line in zip(*table.headings, strict=True) if any(line)]
    widths = [max(map(len, column)) for column in zip(*heads, *table.rows, strict=True)]
    room = width - len(GAP) * (len(widths) - 1)
    while sum(widths) > room and (wide := _shrinkable(widths, table.numeric)):
        widths[max(wide, key=lambda at: widths[at])] -= 1
    gap = GAP if sum(widths) <= room else " "
    groups = table.groups or ("",) * len(table.rows)
    lines = [table.title, *(_line(head, widths, table.numeric, gap) for head in heads)]
    for before, group, row in zip(("", *groups), groups, table.rows, strict=False):
        lines += [group] if group != before else []
        lines.append(_line(row, widths, table.numeric, gap))
    return "\n".join(lines)


def _shrinkable(widths: Sequence[int], numeric: Sequence[bool]) -> list[int]:
    return [at for at, right in enumerate(numeric) if not right and widths[at] > NARROWEST]


def _line(cells: Iterable[str], widths: Sequence[int], numeric: Sequence[bool], gap: str) -> str:
    aligned = (
        cell.rjust(width) if right else shortened(cell, width).ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return gap.join(aligned).rstrip()


def shortened(text: str, width: int) -> str:
    """Return the text with at most `width` letters: its middle is left out, as long names differ at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def markdown_text(table: TextTable) -> str:
    """Return the table as Markdown, the group in a column; text from logs and descriptions is no markup there."""
    heads = [escaped(" ".join(filter(None, heading))) for heading in table.headings]
    rules = ["---:" if numeric else "---" for numeric in table.numeric]
    rows = [
        [escaped(cell) if numeric else code(cell) for cell, numeric in zip(row, table.numeric, strict=True)]
        for row in table.rows
    ]
    lines = [heads, rules, *rows]
    if table.groups:
        lines = [
            [first, *line] for first, line in zip(("benchmark", "---", *map(code, table.groups)), lines, strict=True)
        ]
    return "\n".join([f"**{escaped(table.title)}**", "", *(f"| {' | '.join(line)} |" for line in lines)])


def csv_text(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a CSV table with one line of headings; numbers in full, nothing for None.

    Text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    return target.getvalue()


def _csv_cell(cell: object) -> object:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
