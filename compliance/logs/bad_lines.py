"""Why a line that is meant as a record is none: what wrote it in another way, and a command that undoes that.

Only a log with such lines pays for this module. Each pattern needs time linear in the length of a line with one token.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LONGEST_LINE: Final = 2000
"""Bytes of a torn record that are kept."""
PYTHON: Final = "python3 -c 'import {}, sys; {}'"
EACH_RECORD: Final = PYTHON.format(
    "ast, json, re", '[print(re.sub(r"(?<=:::MLLOG ){}", lambda record: {}, line), end="") for line in sys.stdin]'
)


class BadLine(NamedTuple):
    """What is wrong with a line, and how to repair its log.

    pattern: what such a line contains. fix: what to do at the source, and what the command does to this log. command:
    reads it from standard input; KEY is the first group of the pattern.
    """

    pattern: bytes
    cause: str
    fix: str
    command: str


TORN: Final = "the record breaks off at the end of its line"
BAD_LINES: Final = {
    row.cause: row
    for row in (
        BadLine(
            rb":::MLLOG [^}]*=$",
            "`=` cuts the record at the end of the line: the text of a mail, which is quoted-printable",
            "Send logs as attachments; decode this one",
            "python3 -m quopri -d",
        ),
        BadLine(
            rb":::MLLOG .*\x1b\[",
            "terminal colors (ANSI escape sequences) after the record",
            "Switch colors off where the log is written (NO_COLOR=1); take them out of this one",
            r"perl -pe 's/\x1b\[[0-9;?]*[A-Za-z]//g'",
        ),
        BadLine(
            rb'"([\w@.-]+)"\s*+:\s*+"[^"]*+(?<=:::MLLOG \{\\)',
            "the record is a text inside JSON, as in the log of a container or the export of a log store",
            "Submit what the run itself wrote; take it out of the JSON",
            """jq -r '.. | ."KEY"? | strings'""",
        ),
        BadLine(
            rb':::MLLOG \{""\w',
            'each quote is doubled (""key""), as in a CSV file',
            "Submit what the run itself wrote; take it out of the table",
            PYTHON.format(
                "csv", '[print(cell) for row in csv.reader(sys.stdin) for cell in row if ":::MLLOG" in cell]'
            ),
        ),
        BadLine(
            rb':::MLLOG "\{\\',
            "the record is a text in quotes: json.dumps was applied twice",
            "Write records with mllog, or json.dumps; read these once more",
            EACH_RECORD.format(r"\".*\"", "json.loads(record[0])"),
        ),
        BadLine(
            rb':::MLLOG \{\\+["\']',
            r"each quote has a backslash before it (\")",
            "Submit what the run itself wrote; take the backslashes out of this",
            r"""sed 's/\\"/"/g; /:::MLLOG {/s/}[^}]*$/}/'""",
        ),
        BadLine(
            rb":\s*+(?:(?:torch\.)?[Tt]ensor|array|np\.\w++|numpy\.\w++)\(",
            "a value is a tensor or an array as Python prints it, not a number",
            "Log float(value), or tensor.item(). To have the rest judged, take the numbers out of these",
            r"perl -pe 's/: *\K[\w.]+\(\[?([^][,()]*)[^()]*\)/$1/g if /:::MLLOG \{/'",
        ),
        BadLine(
            rb'"time_ms"\s*+:\s*+"\d{4}-\d\d-\d\d',
            "time_ms is a date, not milliseconds since 1970",
            "Log int(time.time() * 1000), as mllog does; convert these in the time zone of the run (TZ=UTC or another)",
            PYTHON.format(
                "datetime, re",
                r'[print(re.sub(r"(?<=\"time_ms\": )\"(.*?)\"", lambda time:'
                r' f"{datetime.datetime.fromisoformat(time[1]).timestamp() * 1000:.0f}", line), end="")'
                " for line in sys.stdin]",
            ),
        ),
        BadLine(
            rb":::MLLOG \{(?:\s*'|.*:\s*+(?:None|True|False)\b)",
            "a Python dictionary (single quotes, None, True), not JSON",
            "Write records with mllog, or json.dumps; convert these",
            EACH_RECORD.format(
                r"\{.*\}",
                'json.dumps(ast.literal_eval(re.sub(r"(?<=: )(null|true|false)",'
                ' lambda word: word[0].title().replace("Null", "None"), record[0])))',
            ),
        ),
        BadLine(
            rb":::MLLOG \{.*&(?:quot|#34|#x22);",
            "quotes are HTML entities (&quot;)",
            "Download the file itself, not a page that shows it; or decode it",
            PYTHON.format("html", "sys.stdout.writelines(map(html.unescape, sys.stdin))"),
        ),
        BadLine(
            rb":::MLLOG \{.*\xe2\x80[\x9c-\x9f]",
            "typographic quotes, as an editor or a chat makes them",
            "Submit what the run itself wrote, not edited; make the quotes straight",
            r"""perl -pe 's/\xe2\x80[\x9c-\x9f]/"/g'""",
        ),
        BadLine(
            rb":::MLLOG \{.*\xc2\xa0",
            "no-break spaces in place of blanks, as on a web page",
            "Submit what the run itself wrote; put blanks in their place",
            r"perl -pe 's/\xc2\xa0/ /g'",
        ),
        BadLine(
            rb":::MLLOG[^{ \w]*+\{",
            "`:::MLLOG` without the one blank that must follow it (there is none, a tab or a no-break space)",
            "Write records with mllog, which writes the blank; put it into this log",
            "LC_ALL=C sed 's/:::MLLOG[^{]*{/:::MLLOG {/'",
        ),
        BadLine(
            rb"^(?!.*:::MLLOG )(?i:.*LLOG[^{\w]*+\{)",
            "the token before the record is not `:::MLLOG `, to the letter",
            "Write records with mllog, which writes the token; correct it in this log",
            r"perl -pe 's/:+\s?\w{0,2}LLOG[^{\w]*\{/:::MLLOG {/i'",
        ),
        BadLine(
            rb'^(?!.*LLOG)\s*+\{.*"time_ms"',
            "no `:::MLLOG ` before the record",
            "Write records with mllog, which puts it there; put it into this log",
            r"""perl -pe 's/^\s*\{(?=.*"time_ms")/:::MLLOG {/'""",
        ),
        BadLine(
            rb'(?<!\\)(?:\\\\)*+\\(?:[^"\\/bfnrtu]|u(?![0-9a-fA-F]{4}))',
            "a backslash that JSON does not allow, as in a path of Windows",
            "Write records with mllog, or json.dumps; double the backslashes in these",
            r"""perl -pe 's/(\\[\\"])|\\/$1 || "\\\\"/ge'""",
        ),
        BadLine(
            rb":::MLLOG \{\s*\w+\s*:",
            "keys without quotes",
            "Write records with mllog, or json.dumps; put the keys of these in quotes",
            r"""sed -E '/:::MLLOG \{/s/([{,] *)([A-Za-z_]\w*) *:/\1"\2":/g'""",
        ),
        BadLine(
            rb",\s*+[}\]]",
            "a comma before a closing bracket",
            "Write records with mllog, or json.dumps; take the commas out of these",
            r"sed -E '/:::MLLOG \{/s/, *([]}])/\1/g'",
        ),
        BadLine(
            rb":\s*+-?\d++,\d",
            "a number with a decimal comma",
            "Log with LC_NUMERIC=C; put points into these",
            r"sed -E '/:::MLLOG \{/s/(: *-?[0-9]+),([0-9])/\1.\2/g'",
        ),
        BadLine(
            rb":\s*+-?(?:nan|inf)\b",
            "a value is nan or inf, and not as json.dumps writes them: the training diverged",
            "Repeat the run. To have the rest of this one judged, write the values as json.dumps does",
            r"perl -pe 's/: *\Knan\b/NaN/g, s/: *-?\Kinf\b/Infinity/g if /:::MLLOG \{/'",
        ),
        BadLine(
            rb":::MLLOG (.*\{[^{}]*+)$",
            TORN,
            "If lines of several ranks mix, write each record with one write call. If a terminal, an editor or a mail"
            " wrapped the text, so that the rest is in the next line, join the two",
            r"perl -pe 's/^(?:> ?)+//; s/\r?\n// if ($open = ($open || /:::MLLOG \{/) && !/\}\s*$/)'",
        ),
        BadLine(
            rb":::MLLOG \{.*\}\s*+[^}\s,][^}]*+$",
            "text after the record, in its line",
            "Write each record and its line end with one write call; cut off what follows these",
            "sed '/:::MLLOG {/s/}[^}]*$/}/'",
        ),
    )
}


def find_cause(line: bytes) -> tuple[str, str]:
    """Return why a line with one token at most is no record, "" if that is unknown, and what stands for KEY."""
    for row in BAD_LINES.values():
        if found := re.search(row.pattern, line):
            return row.cause, found[1].decode("latin-1")[:LONGEST_LINE] if found.groups() else ""
    return "", ""
