"""Write comparisons: `FORMATS[name](comparisons, width)` gives plain text, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from common.command import clean, counted
from common.values import are_same, is_number
from compliance.benchmarks import describe_plugin
from compliance.formats.json import json_text
from compliance.formats.markdown import code, markdown_text
from compliance.formats.table import TextTable, plain_text, shortened
from submission.results.comparison.compare import Comparison, ComparisonLine, Section
from submission.results.comparison.sides import ABSENT, Varied
from submission.results.rows import mark_benchmark

MAX_LISTED_RUNS: Final = 12
"""Up to this number of runs each value is shown; above it, only the range."""


def write_table(comparisons: Sequence[Comparison], width: int | None = None) -> str:
    """Return each comparison as a table in lines of at most `width` characters."""
    tables = (
        _make_comparison_table(_name_comparison(comparison), comparison, comparison.sections)
        for comparison in comparisons
    )
    return "\n\n".join(plain_text(table, width) for table in tables) + "\n"


def write_markdown(comparisons: Sequence[Comparison], _: int | None = None) -> str:
    """Return the comparisons as Markdown; text from logs is escaped."""
    blocks = []
    for comparison in comparisons:
        names = f"A: {code(comparison.a.name)}  \nB: {code(comparison.b.name)}"
        blocks.append(f"## {_name_comparison(comparison)}\n\n{names}")
        for section in comparison.sections:
            table = _make_comparison_table(section.title, comparison, [section])
            headings = tuple((name, "") for name, _ in table.headings)
            blocks.append(markdown_text(table._replace(headings=headings, groups=())))
    return "\n\n".join(blocks) + "\n"


def write_json(comparisons: Sequence[Comparison], _: int | None = None) -> str:
    """Return the comparisons as one JSON object in ASCII; absent values are left out."""
    return json_text(
        {
            "schema": 2,
            "comparisons": [_describe_comparison(comparison) for comparison in comparisons],
        }
    )


FORMATS: Final = {"table": write_table, "markdown": write_markdown, "json": write_json}


# -- texts -------------------------------------------------------------------------------------------------


def _make_comparison_table(title: str, comparison: Comparison, sections: Sequence[Section]) -> TextTable:
    """Return sections as one table, with their titles as groups and their lines indented."""
    a, b = (clean(side.name) for side in (comparison.a, comparison.b))
    cells = [(clean(section.title), (f"  {name}", *row)) for section in sections for name, *row in _list_cells(section)]
    return TextTable(
        title,
        (("", ""), ("A", a), ("B", b), ("B / A", "")),
        tuple(row for _, row in cells),
        (False,) * 4,
        tuple(group for group, _ in cells),
    )


def _list_cells(section: Section) -> list[tuple[str, ...]]:
    """Return the lines of a section as cells that are safe to print."""
    show = _format_measure if section.kind == "measures" else _format_fact
    rows = [(line.what, show(line.a), show(line.b), _format_difference(line, section.kind)) for line in section.lines]
    if section.same:
        rows.append((f"({counted(section.same, 'more value')} the same)", "", "", ""))
    return [tuple(map(clean, row)) for row in rows]


def _format_measure(value: Any) -> str:
    if isinstance(value, tuple):
        numbers = [number for number in value if number is not None]
        if len(value) <= MAX_LISTED_RUNS or not numbers:
            # Three digits are enough for a value among many.
            return " ".join(_format_measure(number and float(f"{number:.3g}")) for number in value)
        return f"{_format_measure(min(numbers))} to {_format_measure(max(numbers))}"
    if not is_number(value):
        return "–"
    if 0 < value < 0.001:  # such as the minutes of an empty staging
        return "< 0.001"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _format_difference(line: ComparisonLine, kind: str) -> str:
    if kind == "measures":
        return line.unlike if line.ratio is None else f"{line.ratio:.3f}"
    if line.a is ABSENT or line.b is ABSENT:
        return "only B" if line.a is ABSENT else "only A"
    return "" if are_same(line.a, line.b) else "differs"


def _format_fact(value: Any) -> str:
    """Return a logged value; text is quoted only if it could be read as another type."""
    if value is ABSENT:
        return "–"
    if isinstance(value, Varied):
        return ", ".join(f"{_format_fact(each)} ({counted(runs, 'run')})" for each, runs in value.counts)
    text = value if isinstance(value, str) and not _is_json(value) else json.dumps(value)
    return shortened(text, 48)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _name_comparison(comparison: Comparison) -> str:
    return mark_benchmark(comparison.benchmark, False, describe_plugin(comparison.benchmark))


# -- for programs ------------------------------------------------------------------------------------------


def _describe_comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "benchmark": comparison.benchmark,
        "a": {"path": comparison.a.path, "name": comparison.a.name},
        "b": {"path": comparison.b.path, "name": comparison.b.name},
        "sections": [
            {key: getattr(section, key) for key in ("title", "kind", "same")}
            | {"lines": [_line_record(line) for line in section.lines]}
            for section in comparison.sections
        ],
        "plugin": describe_plugin(comparison.benchmark),
    }


def _line_record(line: ComparisonLine) -> dict[str, Any]:
    record: dict[str, Any] = {"what": line.what}
    for side, value in (("a", line.a), ("b", line.b)):
        if isinstance(value, Varied):
            counts = [{"value": None if each is ABSENT else each, "runs": runs} for each, runs in value.counts]
            record[side] = {"varied": counts}
        elif value is not ABSENT:
            record[side] = value
    return record
