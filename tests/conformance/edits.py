"""Damage to the bytes of a log: to one line (`LINE_EDITS`) and to the whole file (`FILE_EDITS`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

Edit = Callable[[bytes], bytes]

TOKEN = b":::MLLOG "
MEMBERS = ("namespace", "time_ms", "event_type", "key", "value", "metadata")
SPACES = {
    "a blank": b" ",
    "a tab": b"\t",
    "VT": b"\x0b",
    "FF": b"\x0c",
    "FS": b"\x1c",
    "US": b"\x1f",
    "NEL in Latin-1": b"\x85",
    "a no-break space in Latin-1": b"\xa0",
    "NEL in UTF-8": b"\xc2\x85",
    "a no-break space in UTF-8": b"\xc2\xa0",
    "an em space in UTF-8": b"\xe2\x80\x83",
    "a line separator in UTF-8": b"\xe2\x80\xa8",
    "a byte order mark": b"\xef\xbb\xbf",
    "NUL": b"\0",
    "a Latin-1 letter": b"\xe9",
}
LINE_ENDS = {
    "CRLF": b"\r\n",
    "CR": b"\r",
    "CR CR LF": b"\r\r\n",
    "LF CR": b"\n\r",
    "LF LF": b"\n\n",
    "CRLF CRLF": b"\r\n\r\n",
}
NO_OBJECTS = (b"[1, 2]", b"null", b"1", b'"text"', b"{}", b"[]", b"", b"NaN", b"true")
VALUES = (
    *(b"01", b"1.", b".5", b"+1", b"0x10", b"1e5", b"1E+400", b"-1e400", b"-0", b"NaN", b"-NaN", b"nan"),
    *(b"Infinity", b"-Infinity", b"inf", b"True", b"None", b"undefined", b"'text'", b"1_000", b"1,", b"[1,]", b"{,}"),
    *(b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\x41"', b'"\\u00"', b'"\t"', b'"\x7f"', b'"\x85"', b'"\xe9"'),
    *(b'"\xc3\xa9"', b'"\xff\xfe"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"open', b"/* no */ 1", b"1 // no", b"9" * 30),
    *(b"9" * 5000, b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300),
    *(b'"a\nb"', b'"a\rb"', b'"a\\nb"', b'":::MLLOG "', b'":::MLLOG {}"', b'{"a": 1, "a": 2}', b"0", b"-1", b"1.0"),
)
KEYS: tuple[Any, ...] = (1, None, True, 1.5, [1], {"a": 1}, [], "", "unknown", "RUN_STOP", "run_stop ", "run_stop\n")


def _body(line: bytes) -> bytes:
    return line.split(TOKEN, 1)[1]


def _changed(line: bytes, /, **members: Any) -> bytes:
    record = json.loads(_body(line))
    record.update(members)
    return TOKEN + json.dumps(record).encode()


def _without(line: bytes, name: str) -> bytes:
    record = json.loads(_body(line))
    del record[name]
    return TOKEN + json.dumps(record).encode()


def _with_value(line: bytes, text: bytes) -> bytes:
    """Return the line with this text as its value, whatever it is."""
    head, tail = _changed(line, value="VALUE").split(b'"VALUE"')
    return head + text + tail


def _line_edits() -> Iterator[tuple[str, Edit]]:
    for name, space in SPACES.items():
        yield f"{name} after the record", lambda line, space=space: line + space
        yield f"{name} before the record", lambda line, space=space: TOKEN + space + _body(line)
        yield f"{name} before the token", lambda line, space=space: space + line
        yield f"{name} for the token's blank", lambda line, space=space: TOKEN[:-1] + space + _body(line)
        yield f"{name} after the first member", lambda line, space=space: line.replace(b", ", b"," + space, 1)
    for text in NO_OBJECTS:
        yield f"record {text.decode()!r}", lambda line, text=text: TOKEN + text
    for text in VALUES:
        name = repr(text[:24])[2:-1] + (f"… ({len(text)} bytes)" if len(text) > 24 else "")
        yield f"value {name}", lambda line, text=text: _with_value(line, text)
    for key in KEYS:
        yield f"key {key!r}", lambda line, key=key: _changed(line, key=key)
    for name in MEMBERS:
        yield f"without {name}", lambda line, name=name: _without(line, name)
        twice = b'{"%s": 1, ' % name.encode()
        yield f"{name} twice", lambda line, twice=twice: line.replace(b"{", twice, 1)
        again = b', "%s": 1}' % name.encode()
        yield f"{name} again at the end", lambda line, again=again: line[:-1] + again
        yield f"{name} null", lambda line, name=name: _changed(line, **{name: None})
    yield "cut in half", lambda line: line[: len(line) // 2]
    yield "broken in two", lambda line: line[: len(line) // 2] + b"\n" + line[len(line) // 2 :]
    yield "with {# for {", lambda line: line.replace(b"{", b"{#", 1)
    yield "one brace more", lambda line: line + b"}"
    yield "one brace less", lambda line: line[:-1]
    yield "text behind", lambda line: line + b" done"
    yield "text before", lambda line: b"12: gpu-07 | " + line
    yield "another record behind", lambda line: line + b" " + _changed(line, key="unknown")
    yield "another record before", lambda line: _changed(line, key="unknown") + b" " + line
    yield "an empty token behind", lambda line: line + b" " + TOKEN
    yield "half a token behind", lambda line: line + b" :::MLLOG"
    yield "token in lower case", lambda line: line.replace(TOKEN, TOKEN.lower())
    yield "token of another tool", lambda line: line.replace(TOKEN, b":::MLPv0.5.0 ")
    yield "in single quotes", lambda line: line.replace(b'"', b"'")
    yield "CRLF", lambda line: line + b"\r"
    yield "CR in between", lambda line: line.replace(b", ", b",\r", 1)
    yield "written twice", lambda line: line + b"\n" + line
    yield "commented out", lambda line: b"# " + line
    yield "unknown members", lambda line: _changed(line, rank=3, line=1, order=0)
    yield "members of other types", lambda line: _changed(line, namespace=[1], event_type={"a": 1})


def _file_edits() -> Iterator[tuple[str, Edit]]:
    yield "empty", lambda data: b""
    yield "text only", lambda data: b"epoch 1 loss 0.3\n" * 50
    yield "token without records", lambda data: data.replace(TOKEN, b"")
    yield "no line end at the end", lambda data: data[:-1]
    for name, end in LINE_ENDS.items():
        yield f"line ends {name}", lambda data, end=end: data.replace(b"\n", end)
    for name, space in SPACES.items():
        yield f"{name} before every line end", lambda data, space=space: data.replace(b"\n", space + b"\n")
        yield f"{name} for every line end", lambda data, space=space: data.replace(b"\n", space)
        yield f"{name} at the start", lambda data, space=space: space + data
        yield f"{name} at the end", lambda data, space=space: data + space
        yield f"{name} for every blank", lambda data, space=space: data.replace(b" ", space)
    yield "ranks before every line", lambda data: data.replace(TOKEN, b"0: " + TOKEN)
    yield "text with tokens around", lambda data: b"see :::MLLOG\n" + data + b":::MLLOG\n"
    yield "an empty record at the end", lambda data: data + TOKEN
    yield "a record cut at the end", lambda data: data + data[:60]
    yield "FF FE at the start", lambda data: b"\xff\xfe" + data
    yield "FE FF at the start", lambda data: b"\xfe\xff" + data
    yield "UTF-16 with mark", lambda data: data.decode().encode("utf-16")
    yield "UTF-16 LE", lambda data: data.decode().encode("utf-16-le")
    yield "UTF-16 BE", lambda data: data.decode().encode("utf-16-be")
    yield "UTF-32", lambda data: data.decode().encode("utf-32")
    yield "twice", lambda data: data + data
    yield "its lines backwards", lambda data: b"\n".join(reversed(data.splitlines())) + b"\n"
    yield "its lines sorted", lambda data: b"\n".join(sorted(data.splitlines())) + b"\n"
    for part in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        yield f"cut after {part:.0%}", lambda data, part=part: data[: int(len(data) * part)]
        yield f"first {part:.0%} lost", lambda data, part=part: data[int(len(data) * part) :]
    yield "all in one line", lambda data: data.replace(b"\n", b" ")
    deep = TOKEN + b'{"time_ms": 1, "key": "k", "metadata": {}, "value": ' + b"[" * 12_000 + b"]" * 12_000 + b"}"
    yield "a deeply nested record at the end", lambda data: data + deep
    yield "a long line of text", lambda data: b"x" * 100_000 + b"\n" + data
    foreign = TOKEN + b'{"time_ms": 1, "key": "k", "value": 1, "metadata": {}}\n'
    yield "a thousand foreign records", lambda data: data + foreign * 1000


LINE_EDITS: dict[str, Edit] = dict(_line_edits())
FILE_EDITS: dict[str, Edit] = dict(_file_edits())
