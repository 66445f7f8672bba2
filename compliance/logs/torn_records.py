"""Explain lines that are no records, with the lines around them: of a torn record, where its rest is."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

import msgspec

from common.command import clean
from common.record import Record, decode
from compliance.logs.bad_lines import BAD_LINES, TORN
from compliance.logs.log import KEYS, LONGEST_KEY, Log

MOST_PARTS: Final = 20
"""Lines into which a record may be wrapped or torn."""


def explain(log: Log, cause: str, line: int = 0, key: str = "") -> tuple[str, str, str]:
    """Return of lines with a cause what is wrong, how to repair them, and a command for it; "" if that is unknown.

    line: the first of them. key: what `find_cause` returns with it; of a torn record, all that its line has of it.
    """
    row = BAD_LINES.get(cause)
    if not row or cause != TORN:
        return (cause, row.fix, row.command.replace("KEY", key)) if row else (cause, "", "")
    begin, texts = key.encode("latin-1"), dict((*log.tail, *log.text))
    rest = {at: re.sub(rb"^(?:> ?)+", b"", texts[at]) for at in range(line + 1, line + MOST_PARTS) if at in texts}
    if any(_parse(log, whole) for whole in accumulate(rest.values(), initial=begin)):
        return row.cause, row.fix, row.command
    forms = [
        (length, at, record)
        for at, text in rest.items()
        for length in range(len(begin), 0, -1)
        if (record := _parse(log, begin[:length] + text))
    ]
    if not forms:
        name = re.search(r'"key"\s*:\s*"[\w.-]{1,80}"', key)
        text = f"the record{f' of {name[0]}' if name else ''} breaks off, and its rest is not in the next lines"
        return (
            text,
            "Copy the log again from where the run wrote it. If the rest is not there, it is lost.",
            "",
        )
    length, at, record = forms[0]
    epoch = record.meta("epoch_num")
    command = f"s/(.*:::MLLOG .{{{length}}}).*\\n/$1/ if $. == {line}; print if $. <= {line} || $. >= {at}"
    return (
        f'text of another program, "{clean(key[length:][:LONGEST_KEY])}", tears the record of {record.key}'
        f"{'' if epoch is None else f' of epoch {epoch}'}, whose end is in line {at}"
        f"{'; its result may be the one that reaches the target' if record.key in log.metrics else ''}",
        "Write standard error to a file of its own (2> FILE). Here, take out that text, to make the record whole",
        f"perl -ne '{command}'" if len(forms) == 1 else "",
    )


def _parse(log: Log, text: bytes) -> Record | None:
    """Return the record of this text, None if it is none, or of a key that no other record here and no rule has."""
    try:
        record = decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record if record.key in KEYS or record.key in log.records or record.key in log.others else None
