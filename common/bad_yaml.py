"""Why a text is not YAML, and what is meant where a section belongs: the mistake, its line and how to correct it.

Only a wrong configuration pays for this module.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_ROWS: Final = (
    ("'\\t'", "", "a tab; indent by blanks, not by tabs: `expand -t 2 < FILE > repaired.yaml`"),
    ("mapping values", r"\A *[\w.-]+:[^\s:]+\n", "a blank is missing after the colon in the line above"),
    ("mapping values", r"\A( *)[\w.-]+: +\S.*\n\1 +[\w.-]+:", "indented more than the line above; indent both alike"),
    ("mapping values", "", "a second `: ` in the line; put the value in quotes"),
    ("end of stream", "", "a quotation mark without a second one; add it"),
    ("expected ',' or", "", "a bracket without its closing one; add it"),
    ("cannot start any token", "", "a value that begins with this character; put it in quotes"),
    ("undefined alias", "", "a value that begins with *, which names another place; put it in quotes"),
    ("could not find expected ':'", "", "neither `key: value` nor part of the lines above; write it so"),
    ("expected <block end>", "", "indented unlike the keys above; indent the keys of a section alike"),
)
"""What the reader's message contains, a pattern of the line above and the line, and what is wrong and what to do."""


def find_fault(text: str, error: yaml.MarkedYAMLError) -> tuple[str, str]:
    """Return the place of a mistake, as `:line:column`, and what it is, in the reader's words if it is unknown."""
    if conflict := re.search(r"(?m)^(?:<{7} |={7}\r?$|>{7} )", text):
        line = text.count("\n", 0, conflict.start()) + 1
        return f":{line}:1", "a conflict marker of git, as a merge was left unresolved; keep one side"
    if ":::MLLOG" in text[:4096]:
        return "", "this is a result log; name the file that is meant"
    problem, mark = str(error.problem), error.problem_mark
    if re.search("end of stream|expected ',' or|could not find", problem):  # of what does not end: where it begins
        mark = error.context_mark or mark
    if mark is None:
        return "", problem
    seen = "\n".join(["", *text.splitlines()][mark.line : mark.line + 2])
    words = next((row[2] for row in _ROWS if row[0] in problem and re.search(row[1], seen)), problem)
    return f":{mark.line + 1}:{mark.column + 1}", words


def suggest_section(value: Any) -> str:
    """Return what to write in place of nothing, or of a text, where a section belongs; "" for any other value."""
    if match := re.fullmatch(r"([\w.-]+)(?::|\s*=\s*)(\S.*)", str(value)):
        return f"write `{match[1]}: {match[2]}`, with a blank after the colon, indented below"
    return "indent the keys below it" if value is None else ""
