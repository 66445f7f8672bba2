"""Redaction removes personal data and keeps lines, records and everything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.logs.privacy import personal
from submission.assemble.input_logs import redact_text

PIECES = st.sampled_from(
    [
        "jane@example.org",
        "/home/jane",
        "/home/jane/x",
        "C:\\Users\\jane",
        "\n",
        '"',
        "\\",
        "é",
        "/",
        " ",
        "x",
        "a.b",
        "=",
    ]
)


@given(st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=4), st.booleans())
def test_records_stay_records(values, ascii_only):
    lines = [json.dumps({"value": value}, ensure_ascii=ascii_only) for value in values]
    copy, counts = redact_text("\n".join(lines).encode())
    assert [list(json.loads(line)) for line in copy.decode().split("\n") if line] == [["value"]] * len(lines)
    assert not list(personal(copy)) and bool(counts) == (copy != "\n".join(lines).encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail jane.roe@example.org, now", "mail [mail address], now"),
        ("/home/jane/runs /users/joe", "[home directory]/runs [home directory]"),
        (r'"a\njane@example.org"', r'"a\n[mail address]"'),
        (r'"\/home\/jane\/x"', r'"\/[home directory]\/x"'),
        ("nothing of this kind", "nothing of this kind"),
    ],
)
def test_only_personal_data_are_replaced(text, expected):
    assert redact_text(text.encode())[0].decode() == expected
