"""The record of how a run ended."""

import json
import os

import pytest

from common.ending import NAME, Ending, classify_error, forget_ending, read_ending, write_ending
from common.stop import StopAsked


@pytest.mark.parametrize(
    ("how", "status", "final"),
    [("target_met", 0, True), ("target_not_met", 4, True), ("completed", 0, True), ("diverged", 1, True),
     ("stopped", 3, False), ("failed", 1, False)],
)  # fmt: skip
def test_each_ending_has_an_exit_status_and_comes_back_from_its_file(tmp_path, how, status, final):
    ending = Ending(how, "why" if not final else "", 7)
    assert (ending.exit_status, ending.final) == (status, final)
    write_ending(tmp_path, ending)
    assert read_ending(tmp_path) == ending and json.loads((tmp_path / NAME).read_text())["how"] == how
    forget_ending(tmp_path)
    assert read_ending(tmp_path) is None and read_ending(tmp_path / "nowhere") is None


def record(key, **metadata):
    fields = {"namespace": "", "time_ms": 1, "event_type": "INTERVAL_END", "key": key, "value": None}
    return f":::MLLOG {json.dumps(fields | {'metadata': metadata})}\n"


def stop(**metadata):
    return record("run_stop", **metadata)


EVALUATED = record("eval_stop", epoch_num=6) + record("eval_stop", epoch_num=7) + record("eval_start", epoch_num=8)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (stop(status="success", epoch_num=3, ended="target_met"), Ending("target_met", epochs=3)),
        (stop(status="success", epoch_num=3), Ending("target_met", epochs=3)),
        (stop(status="aborted", ended="target_not_met"), Ending("target_not_met")),
        (EVALUATED + stop(status="aborted", ended="completed"), Ending("completed", epochs=7)),
        (EVALUATED + stop(status="aborted", ended="target_not_met"), Ending("target_not_met", epochs=7)),
        (stop(status="aborted", ended="stopped", cause="SIGUSR1"), Ending("stopped", "SIGUSR1")),
        (stop(status="aborted"), None),  # of another suite, or of an older version: it does not say why
        (stop(status="aborted", ended="anything"), None),
        (':::MLLOG {"key": "run_stop", "met', None),
        ("x" * 100_000 + "\n" + stop(status="success"), Ending("target_met")),
        ("", None),
    ],
)
def test_the_log_tells_where_the_job_died_before_the_record(tmp_path, log, expected):
    (tmp_path / "result_0.txt").write_text(log)
    assert read_ending(tmp_path) == expected
    for damaged in ("", "[" * 100_000, '{"how": ["x"]}', '{"how": "won"}'):
        (tmp_path / NAME).write_text(damaged)
        assert read_ending(tmp_path) == expected, damaged
    (tmp_path / NAME).unlink()
    os.mkfifo(tmp_path / NAME)
    assert read_ending(tmp_path) == expected


ABORTED = stop(status="aborted", ended="target_not_met")


@pytest.mark.parametrize(
    ("log", "recorded", "believed"),
    [
        (EVALUATED, Ending("target_not_met", epochs=8), None),
        (
            EVALUATED + stop(status="aborted", ended="stopped"),
            Ending("target_not_met", epochs=8),
            Ending("stopped", epochs=7),
        ),
        (EVALUATED + ABORTED, Ending("target_met", epochs=7), Ending("target_not_met", epochs=7)),
        (EVALUATED + ABORTED, Ending("target_not_met", epochs=9), Ending("target_not_met", epochs=7)),
        (stop(status="success", epoch_num=3), Ending("failed", "full disk", 3), Ending("target_met", epochs=3)),
        (stop(status="aborted"), Ending("target_met", epochs=7), None),
        (EVALUATED + ABORTED, Ending("target_not_met", epochs=7), Ending("target_not_met", epochs=7)),
        (EVALUATED + ABORTED, Ending("failed", "later", 7), Ending("failed", "later", 7)),
        (EVALUATED, Ending("failed", "later", 7), Ending("failed", "later", 7)),
        (stop(status="aborted"), Ending("diverged", "nan", 7), Ending("diverged", "nan", 7)),
    ],
)
def test_a_record_that_contradicts_the_log_is_not_believed(tmp_path, capsys, log, recorded, believed):
    (tmp_path / "result_0.txt").write_text(log)
    write_ending(tmp_path, recorded)
    assert read_ending(tmp_path) == believed
    said = capsys.readouterr().err
    assert ("the log is believed" in said and NAME in said) == (believed != recorded)


def test_exceptions_say_how_a_run_ends_and_logs_name_no_folders():
    assert classify_error(StopAsked(10)) == Ending("stopped", "SIGUSR1")
    assert classify_error(FloatingPointError("the loss is nan")).how == "diverged"
    assert classify_error(RuntimeError("x")) == Ending("failed", "RuntimeError: x")
    full = OSError(28, "No space left on device", "/home/me/run/history.csv")
    assert classify_error(full).metadata == {
        "ended": "failed",
        "cause": "[Errno 28] No space left on device: 'history.csv'",
    }
    with pytest.raises(ValueError, match="how is 'won'"):
        Ending("won")
