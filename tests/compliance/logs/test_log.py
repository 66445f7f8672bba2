"""The reader of logs: lines, records, problems, limits; the same log from any pieces of the file."""

import gzip
import io
import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compliance.logs import log as reader
from compliance.logs import record as record_module
from compliance.logs.log import KEYS, LogReader, parse_log, read_log
from compliance.logs.record import EpochRecord
from compliance.samples.log import SampleLog

MS = 1_694_000_000_000
ROOT = Path(__file__).parents[3]


def line(key="seed", value=1, end=b"\n", prefix=b"", **members):
    metadata = members.pop("metadata", {"file": "train.py", "lineno": 7})
    record = {"namespace": "", "time_ms": MS, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return prefix + b":::MLLOG " + json.dumps({**record, "metadata": metadata, **members}).encode() + end


def kinds(log):
    return [problem.kind for problem in log.problems]


def contents(log):
    """All that a log says; the order of problems of different kinds is free."""
    return repr(log.records), sorted(log.problems), sorted(log.others), log.record_count, log.line_count


# -- lines and records ---------------------------------------------------------------------------------------


def test_a_valid_log():
    log = parse_log(SampleLog().bytes())
    assert not log.problems
    assert log.value("submission_benchmark") == "cosmoflow"
    assert log.first("run_start").order < log.last("run_stop").order
    assert log.last("run_stop").meta("status") == "success"
    assert log.line_count == log.record_count == log.last("run_stop").line
    assert [record.order for record in log.events] == sorted(record.order for record in log.events)
    assert log["eval_error"][2].meta("epoch_num") == 3 and log["no such key"] == [] and log.first("no such key") is None


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("prefix", [b"", b"0: ", b"[node7 rank 3] INFO ", b"\xef\xbb\xbf"])
def test_lines_are_counted_as_editors_do(end, prefix):
    data = end.join(
        [b"console output", b"", line(end=b"", prefix=prefix), b"", line("run_stop", end=b"", prefix=prefix)]
    )
    log = parse_log(data)
    assert [log.first("seed").line, log.first("run_stop").line] == [3, 5]
    assert log.line_count == 5 and log.record_count == 2 and not log.problems


def test_mixed_line_ends():
    log = parse_log(line(value=1, end=b"\r\n") + line(value=2, end=b"\r") + b"\r\n\n" + line(value=3, end=b""))
    assert [(record.line, record.value) for record in log["seed"]] == [(1, 1), (2, 2), (5, 3)]


def test_a_last_line_without_end_counts():
    assert [parse_log(data).line_count for data in (b"", line(), line() + line(end=b""))] == [0, 1, 2]


def test_only_keys_that_rules_ask_for_are_kept():
    log = parse_log(line("tracked_stats") + line("seed") + line("throughput") + line("run_stop"))
    assert set(log.records) == {"seed", "run_stop"} <= KEYS
    assert log.others.keys() == {"tracked_stats", "throughput"}
    assert [log.first("seed").order, log.first("run_stop").order, log.record_count] == [1, 3, 4]


def test_the_last_record_of_a_line_counts():
    log = parse_log(line(value=1, end=b"") + b" " + line(value=2) + line(value=3))
    assert [(record.value, record.line) for record in log["seed"]] == [(2, 1), (3, 2)]
    assert log.problems == [("two records", 1, "")]


def test_numbered_and_in_order():
    data = b"".join(
        line("epoch_start", metadata=meta) for meta in ({"epoch_num": 2}, {}, {"epoch_num": "3"}, {"epoch_num": 4.0})
    )
    log = parse_log(data + line("eval_start") + line("epoch_start"))
    assert [number for number, _ in log.numbered("epoch_start")] == [2, 4.0]
    assert [record.order for record in log.in_order("eval_start", "epoch_start")] == [0, 1, 2, 3, 4, 5]


# -- problems ------------------------------------------------------------------------------------------------

PROBLEMS = {
    "json": [b"{", b"", b"nul", b"null", b'{"time_ms": 1,}', b"'a'", b'{"a": 1} x', b'{"a": "\t"}', b"1" * 5000],
    "no object": [b"[]", b"3", b'"text"', b"true", b"NaN"],
    "missing field": [b"{}", b'{"time_ms": 1, "key": "seed", "value": 2}'],
    "deep": [b"[" * 3000 + b"]" * 3000],
    "time type": [line(time_ms=None)[9:], line(time_ms=[])[9:], line(time_ms=10**400)[9:]],
    "time text": [line(time_ms=str(MS))[9:], line(time_ms=f"{MS}.5")[9:]],
    "time": [line(time_ms=time_ms)[9:] for time_ms in (float("nan"), float("inf"), -1, MS // 1000)],
    "field type": [line(key=None)[9:], line(key=["seed"])[9:], line(metadata=None)[9:], line(metadata=[1])[9:]],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in PROBLEMS.items() for text in texts])
def test_problems(kind, text):
    log = parse_log(line("run_start") + b":::MLLOG " + text.rstrip() + b"\n" + line("run_stop"))
    assert (kind, 2) in [(problem.kind, problem.line) for problem in log.problems]
    assert log.first("run_start").line == 1 and log.first("run_stop").line == 3, "reading goes on"


def test_of_each_kind_a_hundred_problems_are_kept():
    log = parse_log(b":::MLLOG x\n" * 500 + b":::MLLOG {}\n" * 500)
    assert kinds(log).count("json") == kinds(log).count("missing field") == 100


REPEATED = {
    "plainly": b'{"time_ms": 1694000000000, "key": "seed", "value": 1, "value": 2, "metadata": {}}',
    "with blanks": b'{"time_ms": 1694000000000, "key": "seed", "value"  : 1, "value"\t:2, "metadata": {}}',
    "without blanks": b'{"time_ms":1694000000000,"key":"seed","value":1,"value":2,"metadata":{}}',
    "escaped": b'{"time_ms": 1694000000000, "key": "seed", "v\\u0061lue": 1, "value": 2, "metadata": {}}',
    "in the metadata": b'{"time_ms": 1694000000000, "key": "seed", "value": 1, "metadata": {"a": 1, "a": 2}}',
    "in the value": b'{"time_ms": 1694000000000, "key": "seed", "value": {"a": [{"b": 1, "b": 2}]}, "metadata": {}}',
    "one less elsewhere": b'{"time_ms": 1694000000000, "key": "x", "key": "seed", "value": 1, "metadata": {}}',
    "beside others": b'{"value": 3, "time_ms": 1694000000000, "key": "seed", "value": 1, "metadata": {}, "a": 1}',
    "of the six usual ones": line().replace(b'"namespace": ""', b'"value": 7')[9:-1],
    "escaped in another way": line().replace(b'"namespace": ""', b'"valu\\u0065": 7')[9:-1],
    "the time": b'{"time_ms": 1, "time_ms": 1694000000000, "key": "seed", "value": 1, "metadata": {}}',
    "in a slow record": b'{"time_ms": "1694000000000", "key": "seed", "value": 1, "value": 2, "metadata": {}}',
}


@pytest.mark.parametrize("how", REPEATED)
def test_repeated_members(how):
    log = parse_log(b":::MLLOG " + REPEATED[how] + b"\n")
    assert "repeated field" in kinds(log) and log.record_count == 1


@pytest.mark.parametrize("value", ["a:b", "::", '{"a":1,"a":2}', {"a": {"a": {}}}, ["a:", "a:"]])
def test_colons_are_no_repeated_members(value):
    log = parse_log(line(value=value, metadata={"a": ":", "value": 1, "metadata": {}}))
    assert not log.problems and log.value("seed") == value


def nested(depth):
    return line().replace(b'"value": 1', b'"value": ' + b"[" * depth + b'"' + b"{[" * 500 + b'\\"{"' + b"]" * depth)


def test_nesting_has_a_limit_of_its_own():
    # Python's limit depends on the version and on how deep the caller is.
    def answers(calls):
        return answers(calls - 1) if calls else [kinds(parse_log(nested(depth))) for depth in (1, 398, 399, 400, 5000)]

    assert answers(0) == answers(300) == [[], [], [], ["deep"], ["deep"]]


def count_depth(text):
    """Return the most brackets that are open at once, outside strings, character by character."""
    deepest = level = 0
    in_string = escaped = False
    for character in text.decode():
        if not in_string:
            level += (character in "[{") - (character in "]}")
            deepest = max(deepest, level)
        if character == '"' and not escaped:
            in_string = not in_string
        escaped = in_string and character == "\\" and not escaped
    return deepest


PARTS = ("[", "]", "{", "}", "[[{", "}]]", '"', '"[', '["', '\\"', "\\", "\\\\", ",", "é")


@settings(derandomize=True, max_examples=300)
@given(st.lists(st.sampled_from(PARTS), max_size=40).map(lambda parts: "".join(parts).encode()))
def test_depth_is_counted_outside_strings(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_module, "MAX_DEPTH", 2)
        assert (record_module.find_excess(text) == "deep") == (count_depth(text) > 2)


@pytest.mark.parametrize(("lists", "found"), [(1_000, []), (record_module.MOST_LISTS, ["long record"])])
def test_a_record_of_many_lists_is_not_decoded(lists, found):
    log = parse_log(line("seed", [[]] * lists) + line(value=2))
    assert kinds(log) == found and [record.line for record in log["seed"]] == [1, 2][len(found) :]


def test_many_members_are_no_slow_path():
    members = ", ".join(f'"{number // 2}": 0' for number in range(30_000))
    log = parse_log(b':::MLLOG {"time_ms": 1, "key": "seed", "value": 0, "metadata": {' + members.encode() + b"}}\n")
    assert kinds(log) == ["time", "repeated field"]


def test_text_that_is_no_utf_8_is_latin_1():
    log = parse_log(line("submission_org", "Universit\xe9").replace(b"\\u00e9", b"\xe9"))
    assert log.value("submission_org") == "Universit\xe9"


def test_times_as_numbers():
    texts = (b"1694000000000", b"1694000000000.5", b"1.694e12", b'"1694000000000"')
    data = b"".join(line().replace(str(MS).encode(), text) for text in texts)
    assert [record.time_ms for record in parse_log(data)["seed"]] == [MS, MS + 0.5, MS, MS]


# -- pieces --------------------------------------------------------------------------------------------------


def in_pieces(data, sizes):
    fed, at = LogReader("<bytes>"), 0
    for size in sizes:
        fed.feed(data[at : at + size])
        at += size
    fed.feed(data[at:])
    return fed.close()


def test_byte_by_byte_is_the_same_log():
    data = SampleLog(epochs=2).prefix(b"0: ").bytes().replace(b"\n", b"\r\n") + b"\r\r\n" + line(end=b"\r")
    assert contents(in_pieces(data, [1] * len(data))) == contents(parse_log(data))


ENDS_AND_JUNK = (b"\n", b"\r", b"\r\n", b":::MLLOG ", b":::MLL", b"OG ", b"x", b"{", b"0: ", b"\0", b"\xff", b"")
LONG = (b"y" * 350, b"z" * 300, line(value="v" * 200, end=b""))
FRAGMENTS = st.sampled_from((*ENDS_AND_JUNK, *LONG, line(end=b""), line("other"), b'{"a":1,"a":2}'))


@settings(derandomize=True, max_examples=400)
@given(st.lists(FRAGMENTS, max_size=12).map(b"".join), st.lists(st.integers(0, 400), max_size=8))
def test_pieces_make_no_difference(data, sizes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "MAX_LINE_BYTES", 400)
        patch.setattr(record_module, "LONG_RECORD_BYTES", 250)
        patch.setattr(reader, "MAX_DEPTH", 100)  # shorter records than twice this are not long
        assert contents(in_pieces(data, sizes)) == contents(in_pieces(data, []))


@settings(derandomize=True, max_examples=200)
@given(st.binary(max_size=60), st.lists(st.integers(0, 20), max_size=8))
def test_any_bytes_in_any_pieces(data, sizes):
    assert contents(in_pieces(data, sizes)) == contents(in_pieces(data, []))


# -- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[], [1] * 400, [50, 50, 1, 1, 1]])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_long_line_is_passed_over(monkeypatch, sizes, end):
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", 300)
    data = line(value=1, end=end) + b"x" * 301 + end + b"x" * 300 + end + line(value=2, end=end)
    log = in_pieces(data, sizes)
    assert log.problems == [("long line", 2, "")]
    assert [(record.line, record.value) for record in log["seed"]] == [(1, 1), (4, 2)] and log.line_count == 4


def test_a_long_last_line_is_a_line(monkeypatch):
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", 300)
    log = in_pieces(line() + b"x" * 1000, [500] * 4)
    assert log.problems == [("long line", 2, "")] and log.line_count == 2


def test_records_are_kept_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(reader, "MAX_KEPT_BYTES", 100_000)
    monkeypatch.setattr(reader, "UNWEIGHED_BYTES", 10_000)
    log = in_pieces(b"".join(line(value=number) for number in range(2000)), [1000] * 100)
    kept = len(log["seed"])
    assert kinds(log) == ["too many records"] and log.problems[0].detail == str(kept) and 50 < kept < 1000
    assert [record.value for record in log["seed"]] == list(range(kept)) and log.record_count == 2000


def test_records_of_epochs_are_the_same_in_less_memory(monkeypatch):
    odd = [
        *({"metadata": {"file": "x", "lineno": 1, "epoch_num": it}} for it in (True, "3", 2.5, None, [], 10**99)),
        {"metadata": []},
        {"metadata": {"epoch_num": 3}},
        {"namespace": [1]},
        {"value": "x"},
        {"value": float("nan")},
    ]
    data = SampleLog().bytes() + b"".join(line(**fields) for fields in odd)
    whole = parse_log(data)
    monkeypatch.setattr(reader, "UNWEIGHED_BYTES", 0)
    compact = parse_log(data)
    names = ("time_ms", "key", "value", "metadata", "namespace", "event_type", "line", "order")
    for key, records in whole.records.items():
        fields = [[repr([getattr(one, name) for name in names]) for one in each] for each in (records, compact[key])]
        assert fields[0] == fields[1] and len(list(whole.numbered(key))) == len(list(compact.numbered(key)))
    kinds = {type(record) for record in compact["epoch_stop"]}
    assert kinds == {EpochRecord} != {type(record) for record in whole["epoch_stop"]}
    assert compact["epoch_stop"][3].meta("epoch_num") == 4 and compact["epoch_stop"][3].meta("nothing") is None


CHECKED = """
import atexit, runpy, sys
atexit.register(lambda: sys.stderr.write(open("/proc/self/status").read()))
runpy.run_module("compliance.check", run_name="__main__")
"""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("wrong", [False, True])
def test_a_log_of_100_000_epochs_is_read_whole_in_bounded_memory(tmp_path, wrong):
    """Long enough to exceed any limit that is meant for logs of no use. wrong: results of other epochs."""
    *_, tail = lines = SampleLog().bytes().splitlines(keepends=True)
    head = itertools.takewhile(lambda text: b"epoch_start" not in text, lines)
    keys = ("epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_error")
    with (tmp_path / "x.txt").open("wb") as file:
        file.writelines(head)
        for epoch in range(1, 100_001):
            for at, key in enumerate(keys):
                number = epoch // 2 if wrong and key in ("epoch_stop", "eval_error") else epoch
                metadata = {"file": "train.py", "lineno": at, "epoch_num": number}
                value = 0.1 + 1 / epoch if key == "eval_error" else None
                file.write(line(key, value, time_ms=MS + 10_000 + 1000 * (5 * epoch + at), metadata=metadata))
        file.write(re.sub(rb'"time_ms": [0-9]+', b'"time_ms": %d' % (MS + 600_000_000), tail))
    command = [sys.executable, "-c", CHECKED, "--select", "FRM,ORD,QUA", "x.txt"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    (peak_kb,) = re.findall(r"VmHWM:\s+(\d+) kB", done.stderr)
    assert "FRM01" not in done.stdout and "epoch" in done.stdout and int(peak_kb) * 1024 < 200e6


def test_numbered_records_are_pairs():
    log = parse_log(SampleLog().bytes())
    pairs = log.numbered("epoch_start")
    whole = [(record.meta("epoch_num"), record) for record in log["epoch_start"]]
    assert list(pairs) == whole and list(pairs[2:5]) == whole[2:5] and pairs[-1] == whole[-1]
    assert list(reversed(pairs)) == whole[::-1] and len(pairs) == len(whole)


def test_nested_values_weigh_more(monkeypatch):
    monkeypatch.setattr(reader, "MAX_KEPT_BYTES", 1 << 20)
    monkeypatch.setattr(reader, "UNWEIGHED_BYTES", 0)
    for value in ([[]] * 9_000, [{"": {}}] * 4_000):
        assert kinds(parse_log(line(value=value))) == ["too many records"]


def test_a_file_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(reader, "MAX_LOG_BYTES", 3 << 20)
    assert "too large" in kinds(parse_log(SampleLog().bytes() + b"x\n" * (4 << 20)))
    monkeypatch.setattr(reader, "MAX_HEAD_BYTES", 1 << 20)
    assert "too large" in kinds(parse_log(b"x\n" * (1 << 20)))


# -- files ---------------------------------------------------------------------------------------------------


def test_gzip_is_the_same_as_plain(tmp_path):
    data, path = SampleLog().bytes(), tmp_path / "a.txt"
    members = [gzip.compress(data[at : at + 999]) + b"\0" for at in range(0, len(data), 999)]
    for packed in (data, gzip.compress(data) + b"\0" * 200_000, b"".join(members)):
        path.write_bytes(packed)
        assert contents(read_log(str(path))) == contents(parse_log(data))


def test_standard_input(monkeypatch):
    for data in (SampleLog().bytes(), SampleLog().gzip()):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        log = read_log("-")
        assert log.path == "-" and not log.problems and log["run_stop"]
        assert not sys.stdin.closed, "the caller's standard input stays open"


def test_lines_that_look_like_records_are_counted():
    record = b'{"namespace": "", "time_ms": 1690000000000, "key": "seed", "value": 1, "metadata": {}}\n'
    text = b"start\n:::mllog " + record + b":::MLLOG " + record + b"srun: :: {\n" + b":::MLLOG" + record
    assert parse_log(text).oddities["near record"][::2] == (2, 2)
    assert parse_log(b"start\n" + b"0: :::MLLOG\t" + record).oddities["near record"][::2] == (2, 1)


def test_many_lines_with_colons_take_no_time():
    begin = time.process_time()
    parse_log((b":::\n" * 300_000 + b":::MLLOG {}\n") * 4)
    assert time.process_time() - begin < 2
