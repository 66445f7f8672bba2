"""Write comparisons as plain text, Markdown or JSON: `FORMATS[name](comparisons, width)` returns the text."""

from __future__ import annotations

import json
from typing import Any, Final

from common.command import as_called, clean, counted
from common.values import is_number, same
from compliance.formats.json import json_text
from compliance.formats.markdown import code, markdown_text
from compliance.formats.table import TextTable, plain_text, shortened
from submission.results.comparison.comparison import Comparison, ComparisonLine, Section
from submission.results.comparison.sides import ABSENT, Varied, yaml_text

Cells = tuple[str, ...]

MAX_FACT: Final = 48
"""Maximum characters of a fact in a table; some system descriptions have hundreds."""
MAX_LISTED_RUNS: Final = 12
"""Up to this number of runs each value is shown; above it, only the range."""
SMALLEST: Final = 0.001
"""Smaller values, such as the minutes of an empty staging, are shown as `< 0.001`."""
NUMERIC: Final = (False, False, False, False)


def table(comparisons: list[Comparison], width: int | None = None) -> str:
    """Return each comparison as a table in lines of at most `width` characters, and the changes, which are not cut."""
    blocks = []
    for one in comparisons:
        headings = (("", ""), ("A", clean(one.pair.a.name)), ("B", clean(one.pair.b.name)), ("", ""))
        rows: list[Cells] = []
        for section in one.sections:
            head, *lines = _rows(section)
            rows += [("", "", "", ""), (head[0], "", "", head[3]), *(("  " + line[0], *line[1:]) for line in lines)]
        blocks.append(plain_text(TextTable(_title(one), headings, tuple(rows), NUMERIC), width))
        blocks.append("\n".join([_ending(one), *(f"  {clean(change)}" for change in one.changes)]))
    return "\n\n".join(blocks) + "\n"


def markdown(comparisons: list[Comparison], _: int | None = None) -> str:
    """Return the comparisons as Markdown; text from logs is escaped."""
    blocks = []
    for one in comparisons:
        blocks.append(f"## {_title(one)}\n\nA: {code(one.pair.a.name)}  \nB: {code(one.pair.b.name)}")
        for section in one.sections:
            (title, *titles), *rows = _rows(section)
            headings = tuple((name, "") for name in ("", *titles))
            blocks.append(markdown_text(TextTable(title, headings, tuple(rows), NUMERIC)))
        blocks.append(_ending(one))
        blocks += ["\n".join(f"- {code(change)}" for change in one.changes)] if one.changes else []
    return "\n\n".join(blocks) + "\n"


def as_json(comparisons: list[Comparison], _: int | None = None) -> str:
    """Return the comparisons as one JSON object in ASCII; absent values are left out."""
    return json_text({"schema": 1, "comparisons": [_document(one) for one in comparisons]})


FORMATS: Final = {"table": table, "markdown": markdown, "json": as_json}


# -- texts -------------------------------------------------------------------------------------------------


def _rows(section: Section) -> list[Cells]:
    """Return heading and lines of a section as cells that are safe to print."""
    measures = section.kind == "measures"
    rows: list[Cells] = [(section.title, "A", "B", "B / A" if measures else "")]
    show, note = (_measure, _compare_measures) if measures else (_fact, _compare_facts)
    rows += [(line.what, show(line.a), show(line.b), note(line)) for line in section.lines]
    if section.same:
        rows.append((f"({counted(section.same, 'more value')} the same)", "", "", ""))
    return [tuple(map(clean, row)) for row in rows]


def _compare_measures(line: ComparisonLine) -> str:
    return f"{line.ratio:.3f}" if line.ratio is not None else "" if line.comparable else "clocks differ"


def _measure(value: Any) -> str:
    if isinstance(value, tuple):
        known = [number for number in value if number is not None]
        if len(value) <= MAX_LISTED_RUNS or not known:
            # Three digits are enough for a value among many.
            return " ".join(_measure(number and float(f"{number:.3g}")) for number in value)
        return f"{_measure(min(known))} to {_measure(max(known))}"
    if not is_number(value):
        return "–"
    if 0 < value < SMALLEST:
        return f"< {SMALLEST}"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _compare_facts(line: ComparisonLine) -> str:
    if line.a is ABSENT or line.b is ABSENT:
        return "only B" if line.a is ABSENT else "only A"
    return "" if same(line.a, line.b) else "differs"


def _fact(value: Any) -> str:
    """Return a logged value; text is quoted only if it could be read as another type."""
    if value is ABSENT:
        return "–"
    if isinstance(value, Varied):
        return ", ".join(f"{_fact(one)} ({counted(runs, 'run')})" for one, runs in value.counts)
    text = value if isinstance(value, str) and not _is_json(value) else yaml_text(value)
    return shortened(text, MAX_FACT)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _title(one: Comparison) -> str:
    return f"{one.pair.benchmark} ({one.pair.why})" if one.pair.why else one.pair.benchmark


def _ending(one: Comparison) -> str:
    """Return the line that introduces the changes."""
    if not one.changes:
        return "B has A's hyperparameters."
    if one.as_overrides:
        command = as_called(f"python -m {one.pair.benchmark}.train CONFIG")
        return f"To train B with A's hyperparameters, add to {command}:"
    return "To train B with A's hyperparameters, set these (keys of the log):"


# -- for programs ------------------------------------------------------------------------------------------


def _document(one: Comparison) -> dict[str, Any]:
    return {
        "benchmark": one.pair.benchmark,
        **({"paired_by": one.pair.why} if one.pair.why else {}),
        **{name: {"path": side.path, "name": side.name} for name, side in (("a", one.pair.a), ("b", one.pair.b))},
        "sections": [
            {
                "title": section.title,
                "kind": section.kind,
                "same": section.same,
                "lines": [
                    {"what": line.what}
                    | {side: _value(value) for side, value in (("a", line.a), ("b", line.b)) if value is not ABSENT}
                    for line in section.lines
                ],
            }
            for section in one.sections
        ],
        "changes": list(one.changes),
        "as_overrides": one.as_overrides,
    }


def _value(value: Any) -> Any:
    if isinstance(value, Varied):
        return {"varied": [{"value": None if one is ABSENT else one, "runs": runs} for one, runs in value.counts]}
    return value
