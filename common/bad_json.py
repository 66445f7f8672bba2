"""Why a text is not JSON: the mistake where the decoder gives up, its line and how to correct it.

Only a file that is not JSON pays for this module. The patterns see a bounded part of the text.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

TOO_DEEP: Final = "it is nested too deeply"
BEFORE, AFTER = 300, 4096
"""Characters before and after the place of an error that the patterns see."""
_MESSAGES: Final = "such as messages of a program (`> FILE 2>&1`)"
_ELSEWHERE: Final = "Delete it; `2> messages.txt` keeps a program's messages apart"


class _Row(NamedTuple):
    r"""A mistake.

    error: how the decoder's message begins. pattern: of the text, with `\a` where the decoder gave up; its group, if it
    has one, stands for {} in the cause. fix: a sentence without its full stop. is_above: the line is that of the last
    character before that place.
    """

    error: str
    pattern: str
    cause: str
    fix: str
    is_above: bool = False


_ROWS: Final = (
    _Row(
        "",
        r'\a(?:<{7}|\|{7}|={7}|>{7})(?:[^\n"]*\n\s*("[^"\n]{1,60}"))?',
        "a conflict marker of git, as a merge was left unresolved at {}",
        "Keep one of the two sides, and delete the lines that begin with <<<<<<<, ======= and >>>>>>>",
    ),
    _Row("Unexpected UTF-8 BOM", "", "a byte order mark", "Save it without: `tail -c +4 FILE > repaired.json`"),
    _Row("", r"\x00", "the encoding UTF-16", "Convert it: `iconv -f UTF-16 -t UTF-8 < FILE > repaired.json`"),
    _Row("", r"\A\s*\a\s*\Z", "the file is empty", "Write it again"),
    _Row(
        "",
        r"\a[\xa0\u2000-\u200b\u202f\ufeff]",
        "a no-break or invisible space, as on a web page",
        r"Put blanks there: `perl -CSD -pe 's/[\xa0\x{2000}-\x{200b}\x{202f}\x{feff}]/ /g' < FILE > repaired.json`",
    ),
    _Row("", r"\a\s*(?://|/\*|#)", "a comment, which JSON does not have", "Delete the comment"),
    _Row("", r"\A[^\"{}]{0,80}\a[^{]*:::MLLOG \{", "a result log, not JSON", "Name the file that is meant"),
    _Row("", r"\A[^\"{}]{0,80}\a[^{]*\{", f"text before the JSON, {_MESSAGES}", _ELSEWHERE),
    _Row("", r"\A\s*\a[\w-]+\s*[:=]", "lines `name: value`, as in YAML", 'Write {"name": "value", ...}'),
    _Row("Expecting value", r"\A\s*\a\s*\S", "text, not JSON", 'Write an object, {"name": "value", ...}'),
    _Row("", r",\s*\a\s*[}\]]|\a,\s*[}\]]", "a comma after the last member", "Delete the comma", True),
    _Row(
        "",
        r"\a\s*[“”„‟]|[“”„‟][^\n\a]*\a",
        "typographic quotation marks; JSON has straight ones",
        r"""Make them straight: `perl -pe 's/\xe2\x80[\x9c-\x9f]/"/g' < FILE > repaired.json`""",
    ),
    _Row(
        "",
        r"\a\s*['‘’]",
        "single quotes, as in a Python dictionary; JSON has double ones",
        "Write double quotes; a whole dictionary becomes JSON by `python3 -c 'import ast, json, sys; "
        "print(json.dumps(ast.literal_eval(sys.stdin.read()), indent=2))' < FILE > repaired.json`",
    ),
    _Row("", r"\a(None|True|False)\b", "{}, as in Python", "Write null, true or false"),
    _Row(
        "Invalid control character",
        r"\a[\r\n]",
        "a text without a quotation mark at its end",
        r'Add the "; a line break inside a text is written \n',
    ),
    _Row("Invalid control", "", "a tab or another control character in a text", r"Write \t, or a blank"),
    _Row("Unterminated", "", "a text without a quotation mark at its end", 'Add the ", or copy the file again'),
    _Row("Invalid \\", "", "a backslash that JSON does not allow, as in a path of Windows", r"Double it: \\"),
    _Row("", r"\a\s*\Z", "the text ends before all brackets are closed", "Add what is missing, or copy the file again"),
    _Row("Expecting", r"\a\s*;", "a semicolon", "Write a comma"),
    _Row("Extra data", r"\a\s*[{\[]", "a second object after the first", "Keep one in the file"),
    _Row("Extra data", r"\a\s*[}\]]", "a closing bracket too many", "Delete it, or add its opening one"),
    _Row("Extra data", r'\A\s*"[^"]*"\s*\a\s*:', "no { before the first name", "Add it, and a } at the end"),
    _Row("Extra data", "", f"text after the JSON, {_MESSAGES}", _ELSEWHERE),
    _Row("", r"\d,\s*\a\d", "a comma inside a number", "Write 0.5 with a point, and 1024 without a comma"),
    _Row("", r"\a[+.]\d", "a number that begins with + or a point", "Write 0.5 for .5, and 5 for +5"),
    _Row("Expecting ','", r"\b0\a\d", "a number that begins with 0", "Write it without, or in quotation marks"),
    _Row("Expecting ','", r"[\d.]\s?\a[\w.:/%-]", "a number with more after it", 'Quote the value: "512 GB"'),
    _Row("Expecting ','", r'"[ ]?\a[^\s",:}\]]', "a quotation mark inside a text", r"Write it \""),
    _Row("Expecting ','", r"\a\s*[}\]]", "a closing bracket of another kind than the opening one", "Correct one"),
    _Row("Expecting ','", r'\a\s*["{\[\w-]', "no comma at the end of the line or value", "Add it", True),
    _Row("Expecting ':'", r"\a\s*=", "= after a name", "Write a colon"),
    _Row("Expecting ':'", r"\a\s*[,}]", "a name without a value", 'Write `"name": "value"`'),
    _Row("Expecting ':'", r'\a\s*[^"\d{\[-]', "a name without a quotation mark at its end", 'Add the "'),
    _Row("Expecting ':'", "", "no colon after a name", "Add it"),
    _Row("Expecting ','", r"\a\s*:", "a name inside a list", "Add the ] that is missing before it"),
    _Row("Expecting property", r'\a[\w.-]+"', "a name without a quotation mark at its beginning", 'Add the "'),
    _Row("Expecting property", r"\a[\w.-]+\s*:", "a name without quotation marks", 'Write `"name":`'),
    _Row("Expecting", r",\s*\a\s*,", "two commas", "Delete one"),
    _Row("Expecting value", r":\s*\a\s*[,}\]]", "no value after a name", 'Write one, or "" or null'),
    _Row("Expecting value", r"[:,\[]\s*\a[^\W\d]", "a text without quotation marks", 'Write `"text"`'),
)


def load_json(data: bytes) -> Any:
    """Return what a text says as JSON; ValueError says in which line it is none, why, and what to do."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise ValueError("line {}: {}. {}".format(*find_fault(error))) from error
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error


def decode_json(data: bytes, kind: type[T]) -> T:
    """Return what a text says as a value of a type; ValueError says why it is none, as `load_json` does of no JSON."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        load_json(data)
        raise ValueError(TOO_DEEP if isinstance(error, RecursionError) else str(error)) from error


def find_fault(error: json.JSONDecodeError) -> tuple[int, str, str]:
    """Return line, cause and fix of the mistake at which the decoder gave up, in its words if it is an unknown one."""
    text, place = error.doc, error.pos
    seen = f"{text[max(0, place - BEFORE) : place]}\a{text[place : place + AFTER]}"
    for row in _ROWS:
        if error.msg.startswith(row.error) and (match := re.search(row.pattern, seen)):
            if row.is_above:
                place = len(text[:place].rstrip())
            cause = row.cause.format(match[1] or "this line") if match.groups() else row.cause
            return text.count("\n", 0, place) + 1, cause, row.fix
    return error.lineno, f"an error ({error.msg})", "Correct it"
