"""Write tables as CSV, for spreadsheets and programs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence

from common.command import clean


def csv_text(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a CSV table with one line of headings, numbers in full precision, and empty cells for None, inf, nan.

    Lists and objects are JSON. Invisible characters are escapes, and text that a spreadsheet would run as a formula
    gets a leading apostrophe.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    return target.getvalue()


def csv_records(records: Sequence[Mapping[str, object]]) -> str:
    """Return a CSV table of at least one record; all have the same keys."""
    return csv_text(tuple(records[0]), [list(record.values()) for record in records])


def _csv_cell(cell: object) -> object:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        text = clean(cell)
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text  # a spreadsheet takes it for a formula
    if isinstance(cell, list | tuple | dict):
        return json.dumps(cell)
    return "" if isinstance(cell, float) and not math.isfinite(cell) else cell
