"""A log written with these functions passes both checkers, and ends with one run_stop whatever happens."""

import inspect
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlperf_logging.rcp_checker.rcp_checker import read_submission_file

import compliance
from common import mllog
from common.ending import Ending
from common.mllog import (
    LogError,
    LogMismatchError,
    ResultLog,
    RunRecord,
    SubmissionConfig,
    draw_seed,
    log_beginning,
    log_facts,
    open_log,
    read_beginning,
)
from common.reference import FULL
from tests.conformance import official

SUBMISSION = SubmissionConfig(org="Example University", platform="example_n1")
FACTS = {
    "seed": 7,
    "number_of_ranks": 4,
    "number_of_nodes": 1,
    "accelerators_per_node": 4,
    "train_samples": 524_288,
    "eval_samples": 65_536,
    "number_of_parameters": 8_907_556,
    "dataset_variant": FULL,
    "global_batch_size": 64,
    "opt_name": "sgd",
    "opt_base_learning_rate": 0.004,
    "opt_learning_rate_warmup_epochs": 4,
    "opt_learning_rate_warmup_factor": 4.0,
    "opt_learning_rate_decay_boundary_epochs": [16, 32],
    "opt_learning_rate_decay_factor": 0.25,
    "dropout": 0.5,
    "opt_weight_decay": 0.0,
}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Fake epochs take no time, and a run without length is refused: each record is a second after the one before."""
    times = itertools.count(0, 1000)
    monkeypatch.setattr(mllog, "elapsed_ms", lambda: next(times))


@pytest.fixture
def log(tmp_path):
    log = open_log(tmp_path / "result_0.txt", is_main=True)
    yield log
    log.close()


def header(log, submission=SUBMISSION):
    # The configuration names settings, and the official convergence checker searches records for such names.
    log_beginning(log, "cosmoflow", submission, False, {"config": {"train": {"global_batch_size": 64, "seed": None}}})
    log_facts(log, FACTS)
    log.end("init_stop")


def epoch(log, number, quality):
    for part in ("epoch", "eval"):
        log.start(f"{part}_start", epoch_num=number)
        log.end(f"{part}_stop", epoch_num=number)
    log.event("eval_error", quality, epoch_num=number)


def records(path):
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]


def stops(path):
    return [record["metadata"]["status"] for record in records(path) if record["key"] == "run_stop"]


def assert_passes(path, epochs):
    report = compliance.check_logs([path])
    assert report.verdict == "PASS", report.findings
    assert {found.rule for found in report.findings} <= {"SET14"}, "only that epochs of a few seconds are implausible"
    with official.official_tool():
        assert official.check(str(path), "3.0").valid
    assert read_submission_file(str(path), "3.0.0", False) == (0, epochs, 64, "cosmoflow")


def test_a_run_passes_both_checkers(log):
    header(log)
    with RunRecord(log) as run:
        epoch(log, 1, 0.3)
        epoch(log, 2, 0.12)
        run.end(Ending("target_met", epochs=2))
    assert_passes(log.path, 2)
    keys = [record["key"] for record in records(log.path)]
    assert keys[:3] == ["cache_clear", "init_start", "provenance"] and keys.count("run_start") == 1
    assert records(log.path)[-1]["metadata"].items() >= {"status": "success", "epoch_num": 2}.items()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_run_that_ends_otherwise_is_aborted(log, error):
    header(log)
    with pytest.raises(error), RunRecord(log):
        epoch(log, 1, 0.3)
        raise error
    assert stops(log.path) == ["aborted"] and records(log.path)[-1]["key"] == "run_stop"


def test_an_error_after_the_target_does_not_take_it_back(log):
    with pytest.raises(OSError, match="full"), RunRecord(log) as run:
        run.end(Ending("target_met", epochs=1))
        raise OSError("disk full")
    assert stops(log.path) == ["success"]


def test_sys_exit_of_a_process_writes_run_stop_and_nothing_on_the_console(tmp_path):
    code = (
        "import sys; from pathlib import Path; from common.mllog import RunRecord, open_log\n"
        "with RunRecord(open_log(Path('result_0.txt'), True)): sys.exit(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(mllog.ROOT)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")
    assert stops(tmp_path / "result_0.txt") == ["aborted"]


def test_a_log_is_never_overwritten_nor_appended_to(log, tmp_path):
    log.event("seed", 1)
    before = log.path.read_bytes()
    with pytest.raises(LogError, match=r"result_0\.txt: a log already exists; continue the run by --resume, or choose"):
        open_log(tmp_path / "result_0.txt", is_main=True)
    assert log.path.read_bytes() == before


def test_failing_before_the_first_record_leaves_no_file(log):
    with pytest.raises(LogError, match=r"submission\.platform is empty"):
        log_beginning(log, "cosmoflow", SubmissionConfig(org="Example University"), False, {})
    log.close()
    assert not log.path.exists()


def test_a_run_that_never_started_leaves_no_log(log, tmp_path):
    header(log)
    (tmp_path / "notes").write_text("mine")
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_other_ranks_write_nothing(tmp_path):
    log = open_log(tmp_path / "out" / "result_0.txt", is_main=False)
    header(log)
    with RunRecord(log) as run:
        epoch(log, 1, 0.1)
        run.end(Ending("target_met", epochs=1))
    assert log.sync_position() == 0 and not log.has_record("run_start")
    log.close()
    assert not list(tmp_path.iterdir())


def test_resuming_keeps_the_records_up_to_the_checkpoint(log, tmp_path):
    header(log)
    with pytest.raises(KeyboardInterrupt), RunRecord(log):
        epoch(log, 1, 0.3)
        kept = log.sync_position()
        log.start("epoch_start", epoch_num=2)
        raise KeyboardInterrupt
    log.close()
    before = log.path.read_bytes()
    for attempt, quality in ((1, 0.2), (2, 0.12)):
        again = open_log(log.path, True, kept)
        with RunRecord(again) as run:
            assert again.path.read_bytes()[:kept] == before[:kept]
            epoch(again, 2, quality)
            if quality < 0.124:
                run.end(Ending("target_met", epochs=2))
        again.close()
        assert (tmp_path / f"result_0.txt.interrupted-{attempt}").exists()
    assert (tmp_path / "result_0.txt.interrupted-1").read_bytes() == before
    assert stops(tmp_path / "result_0.txt.interrupted-2") == ["aborted"] and stops(log.path) == ["success"]
    assert [record["key"] for record in records(log.path)].count("run_resumed") == 1
    assert_passes(log.path, 2)
    assert len(list(tmp_path.iterdir())) == 3 and len(compliance.check_logs([tmp_path]).runs) == 1
    with pytest.raises(LogError, match="this run is finished and met its target; there is nothing to resume"):
        open_log(log.path, True, kept)


@pytest.mark.parametrize("keep_bytes", [0, -1, 20, 10**6])
def test_resuming_with_a_log_that_does_not_fit_changes_nothing(log, tmp_path, keep_bytes):
    header(log)
    before = log.path.read_bytes()
    with pytest.raises(LogError, match="not the log of the checkpoint"):
        open_log(log.path, True, keep_bytes)
    assert log.path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_a_clock_that_is_set_back_changes_no_interval(log, monkeypatch):
    """By two hours, in a run and again before it goes on: all records stay in order, and the run valid."""

    def set_clock(hours):
        monkeypatch.setattr(time, "time", lambda: 1_760_000_000 + 3600 * hours)
        monkeypatch.setattr(time, "time_ns", lambda: 10**9 * (1_760_000_000 + 3600 * hours))

    set_clock(0)
    header(log)
    with RunRecord(log):
        set_clock(-2)
        epoch(log, 1, 0.3)
        kept = log.sync_position()
    log.close()
    set_clock(-4)
    again = open_log(log.path, True, kept)
    with RunRecord(again) as run:
        epoch(again, 2, 0.12)
        run.end(Ending("target_met", epochs=2))
    again.close()
    times = [record["time_ms"] for record in records(log.path)]
    assert times == sorted(times) and 0 <= times[0] - 1_760_000_000_000 <= 1000 and times[-1] - times[0] < 120_000
    assert_passes(log.path, 2)


def test_the_log_of_a_checkpoint_is_told_from_others(log):
    header(log)
    with RunRecord(log):
        kept, checksum = log.sync_position(), log.crc32
    whole = log.path.read_bytes()
    assert read_beginning(log.path, kept, checksum) == read_beginning(log.path, kept) == whole[:kept]
    log.path.write_bytes(whole.replace(b"Example", b"example"))
    with pytest.raises(LogMismatchError, match="other records"):
        read_beginning(log.path, kept, checksum)
    log.path.write_bytes(whole[: kept - 1])
    with pytest.raises(LogMismatchError, match="only"):
        read_beginning(log.path, kept, checksum)


def test_resuming_without_a_log_or_behind_the_end_of_a_run(log):
    with pytest.raises(LogError, match=r"result_0\.txt: no log to continue"):
        open_log(log.path, True, 100)
    with RunRecord(log):
        pass
    with pytest.raises(LogError, match="not the log of the checkpoint"):
        open_log(log.path, True, log.sync_position())


def test_records_name_the_calling_line_without_folders_of_the_machine(log):
    line = inspect.currentframe().f_lineno
    log.event("seed", 1)
    log.start("epoch_start", epoch_num=1)
    log.end("epoch_stop", epoch_num=1)
    with RunRecord(log):
        pass
    expected = [("tests/common/test_mllog.py", line + after) for after in (1, 2, 3, 4, 4)]
    assert [(r["metadata"]["file"], r["metadata"]["lineno"]) for r in records(log.path)] == expected
    # A caller from outside of the project, which no file of this tree can be.
    exec(compile("log.event('seed', 2)", "/home/somebody/my.run/train.py", "exec"), {"log": log})
    assert records(log.path)[-1]["metadata"]["file"] == "train.py"


def test_what_is_no_record_is_refused(log):
    with pytest.raises(TypeError, match=r"Failed to encode: .*'seed'"):
        log.event("seed", object())
    with pytest.raises(TypeError, match="Metadata fields overridden: file"):
        log.event("seed", 1, file="x")
    log.event("seed", "a\nb")
    assert len(records(log.path)) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_is_an_error_that_names_the_log():
    log = ResultLog(Path("/dev/full"), fresh=False)
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        log.event("seed", 1)
    with pytest.raises(OSError, match="No space left on device"):
        log.close()


def test_records_are_written_even_where_logging_is_disabled(log):
    with official.official_tool():
        log.event("seed", 1)
    assert len(records(log.path)) == 1


def test_dropping_the_page_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(mllog, "DROP_CACHES", tmp_path / "drop_caches")
    mllog.clear_cache(False)
    assert not mllog.DROP_CACHES.exists()
    mllog.clear_cache(True)
    assert mllog.DROP_CACHES.read_text() == "3\n"
    monkeypatch.setattr(mllog, "DROP_CACHES", tmp_path / "missing" / "drop_caches")
    with pytest.raises(LogError, match=r"cannot be dropped.*needs root"):
        mllog.clear_cache(True)


def test_seeds_and_the_round():
    seeds = {draw_seed() for _ in range(50)}
    assert len(seeds) > 45 and all(1 <= seed < 2**31 for seed in seeds)
    with pytest.raises(ValueError, match=r"round is '4\.0'; expected one of 0\.7, 1\.0, 2\.0, 3\.0"):
        SubmissionConfig(round="4.0")
