"""Mail addresses and home directories are found, what only looks like them is not, and reports do not repeat them."""

import json

import pytest

from compliance.logs.log import LogReader
from compliance.logs.privacy import HOME, MAIL, masked, personal
from compliance.samples.log import SampleLog
from tests.compliance.judged import find_all, judge_bytes

FOUND = {
    "mail jane.doe@example.org.": "jane.doe@example.org",
    "<jane@cs.example.ac.uk>,": "jane@cs.example.ac.uk",
    "--mail-user=JANE@EXAMPLE.ORG": "JANE@EXAMPLE.ORG",
    "mailto:j+hpc@163.com": "j+hpc@163.com",
    r'{"a": "error\njane@example.org\n"}': "jane@example.org",
    r"J\u00f6rg\u00e9jane@example.org": "jane@example.org",
    "/home/jane": "/home/jane",
    "saved to /home/jane.": "/home/jane",
    '"file": "/home1/05231/jane/train.py"': "/home1/05231/jane",
    "/gpfs/home/j/jane/data": "/home/j/jane",
    "/p/home/jusers/jane1/juwels": "/home/jusers/jane1",
    "PATH=/users/jane/bin:/usr/bin": "/users/jane",
    "gcc -I/home/jane/include": "/home/jane",
    "file:///Users/Jane/x": "/Users/Jane",
    "rsync login:/homes/jane/x .": "/homes/jane",
    r"C:\Users\jane\x": r"C:\Users\jane",
    r'"C:\\Users\\jane\\x"': r"C:\\Users\\jane",
    r'"cd:\n/home/jane/x"': "/home/jane",
    r'"/home/j\u00f6rg/x"': r"/home/j\u00f6rg",
    "/home/jörg/x": "/home/jörg",
    "/home/jane@example.org/x": "/home/jane@example.org",
}
NOT_FOUND = [
    "@torch.no_grad()",
    "return q @k.mT",
    "x@self.weight.data",
    "E5-2690 v3 @ 2.60GHz",
    "suite @ file:///build/suite",
    "pip install suite@git+https://example.org/suite.git",
    "hdf5@1.10.7%gcc@9.3.0 gcc@9.4.rc",
    "git@example.org:suite.git, git@example.org",
    "https://token@example.org/suite",
    "rsync jane@login: jane@login.example.org:/data",
    "noreply@example.org 1+jane@users.noreply.example.org",
    "image@sha256:0123abcd",
    "/home/user/suite /home/ubuntu /home/runner/work",
    "/home/$USER /home/<name> /home/{user} ~/suite",
    "https://example.org/home/index https://example.org/users/jane",
    "src/home/jane app/users/views.py",
    "/homework/jane /usr/home",
]


@pytest.mark.parametrize("text", FOUND)
def test_personal_data_is_found(text):
    data = text.encode()
    assert [data[start:end].decode() for start, end, _ in personal(data)] == [FOUND[text]]


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_looks_like_personal_data_is_not_found(text):
    assert list(personal(text.encode())) == []


def test_all_of_a_text_is_found_in_order():
    text = "\n".join(FOUND).encode()
    spans = list(personal(text))
    assert [text[start:end].decode() for start, end, _ in spans] == list(FOUND.values())
    assert {kind for _, _, kind in spans} == {MAIL, HOME}


def test_a_report_does_not_repeat_a_name():
    for text in FOUND.values():
        shown = masked(text.encode(), MAIL if "@" in text and not text.startswith("/") else HOME)
        assert "jane" not in shown.lower() and "örg" not in shown and "…" in shown


def findings(data):
    return [(found.line, found.severity, found.message) for found in find_all(judge_bytes(data), "PRV01")]


def test_all_lines_of_a_log_are_looked_at():
    lines = SampleLog().bytes().splitlines()
    lines.insert(7, b"0: loading /home/jane/data")
    lines += [b"Traceback", b"done, see joe@example.org", b""]
    expected = [(8, "warning", "/home/j…"), (len(lines) - 1, "warning", "j…@example.org")]
    for end in (b"\n", b"\r\n"):
        found = findings(end.join(lines))
        assert sorted((line, severity, message.split()[-1]) for line, severity, message in found) == expected


def test_lines_are_right_however_the_bytes_come():
    data = SampleLog().prefix(b"/home/jane: ").bytes() + b"x joe@example.org\n"
    reader = LogReader("x")
    for begin in range(0, len(data), 1000):
        reader.feed(data[begin : begin + 1000])
    found = {(mention.line, mention.text) for mention in reader.close().personal}
    assert found == {(1, "/home/j…"), (data.count(b"\n"), "j…@example.org")}


def test_a_few_different_mentions_stand_for_all():
    names = b"\n".join(b"/home/%c%d/x" % (letter, number) for number in range(9) for letter in b"abcdef")
    assert [line for line, _, _ in findings(SampleLog().bytes() + names)] == [
        SampleLog().bytes().count(b"\n") + number for number in (1, 2, 3)
    ]


def test_a_source_file_that_logs_late_is_found_in_a_long_log():
    records = [json.loads(line[9:]) for line in SampleLog(epochs=400).text().splitlines()]
    for record in records[600:]:
        record["metadata"]["file"] = "/home/jane/eval.py"
    data = b"".join(b":::MLLOG " + json.dumps(record).encode() + b"\n" for record in records)
    (line, severity, message), *others = findings(data)
    assert line > 600 and severity == "warning" and message.endswith("/home/j…") and not others


def test_the_contact_is_a_note_unless_it_is_elsewhere():
    contact = SampleLog().add("submission_poc_email", "jane@example.org")
    assert [severity for _, severity, _ in findings(contact.bytes())] == ["note"]
    other = contact.add("notice", "joe@example.org")
    assert [severity for _, severity, _ in findings(other.bytes())] == ["note", "warning"]
