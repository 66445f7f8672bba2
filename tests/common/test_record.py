"""The line format, and the readers for the suite's own logs and power files."""

import json
import math

from common.record import find_records, format_record, parse_line, read_last_record, read_run_times, read_value

FIELDS = {"namespace": "", "time_ms": 5, "event_type": "POINT_IN_TIME", "key": "seed", "value": 7, "metadata": {}}


def line(**changes):
    return format_record(FIELDS | changes)


def test_a_line_gives_its_last_record_whatever_stands_before_it():
    assert parse_line(b"[rank 0] " + line()).value == 7
    assert parse_line(line(value=1)[:-1] + line(value=2)).value == 2
    assert math.isnan(parse_line(line(value=math.nan)).value)  # as json.dumps writes it


def test_what_is_no_record_is_skipped():
    damaged = (
        b"",
        b"loss 0.1\n",
        line()[:-9],
        b":::MLLOG []\n",
        line(metadata=[]),
        line(time_ms="x"),
        b":::MLLOG " + b"[" * 10**6,
    )
    assert [parse_line(text) for text in damaged] == [None] * len(damaged)
    assert [record.value for record in find_records([*damaged, line()], "seed")] == [7]
    assert list(find_records([line(value=json.dumps({"key": "run_stop"}))], "run_stop")) == []


def test_values_times_and_the_last_record_of_a_log(tmp_path):
    log = tmp_path / "result_0.txt"
    assert read_value(log, "seed") is read_run_times(log) is read_last_record(log, "seed") is None
    starts = line(key="run_start", time_ms=10) + line() + line(value=8)
    log.write_bytes(starts)
    assert read_value(log, "seed") == 7 and read_last_record(log, "seed").value == 8 and read_run_times(log) is None
    log.write_bytes(starts + line(key="run_start", time_ms=20) + line(key="run_stop", time_ms=30) + b":::MLLOG {\n")
    assert read_run_times(log) == (10, 30)
