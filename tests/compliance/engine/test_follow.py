"""Watching a log that is being written."""

import threading
import time

import pytest

from compliance.check import main
from compliance.engine import follow as following
from compliance.samples.log import SampleLog


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)


def write_slowly(path, data, parts):
    """Append the bytes in pieces that do not end at line ends."""

    def write():
        size = len(data) // parts + 1
        for start in range(0, len(data), size):
            with open(path, "ab") as file:
                file.write(data[start : start + size])
            time.sleep(0.03)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_a_good_run_is_followed_to_its_end(tmp_path, capsys):
    path = tmp_path / "live.txt"
    thread = write_slowly(path, SampleLog().bytes(), 8)
    assert main(["--follow", str(path), "--follow-timeout", "20"]) == 0
    thread.join()
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[-1].endswith("PASS, 86.67 min; not judged as a result; the committee's checker: PASS")
        and "stopped: success" in lines[-2]
    )
    assert any("epochs" in line and "eval_error" in line for line in lines[:-2])
    assert not any("error" in line.split(": ", 1)[1].split()[0] for line in lines)


def test_what_will_fail_is_told_before_the_run_ends_and_once(tmp_path, capsys):
    log = SampleLog().set("opt_name", "adam").drop("cache_clear")
    path = tmp_path / "live.txt"
    thread = write_slowly(path, log.bytes(), 8)
    assert main(["--follow", str(path), "--follow-timeout", "20"]) == 1
    thread.join()
    lines = capsys.readouterr().out.splitlines()
    told = [number for number, line in enumerate(lines) if "will fail" in line]
    assert [line for line in lines if "SET04" in line] == [line for line in lines if "opt_name" in line]
    assert sum("SET04" in line for line in lines) == sum("ORD02" in line for line in lines) == 1
    assert told and max(told) < len(lines) - 3
    assert not any("QUA01" in line or "run_stop is not logged" in line for line in lines)


def test_a_file_that_starts_again_is_read_again(tmp_path, capsys):
    path = tmp_path / "live.txt"
    path.write_bytes(SampleLog().bytes()[:9000])

    def replace():
        time.sleep(0.2)
        path.write_bytes(SampleLog(run=5).bytes()[:4000])
        time.sleep(0.2)
        path.write_bytes(SampleLog(run=5).bytes())

    thread = threading.Thread(target=replace)
    thread.start()
    assert main(["--follow", str(path), "--follow-timeout", "20"]) == 0
    thread.join()
    assert "starts again" in capsys.readouterr().out


def test_it_gives_up_after_the_timeout_and_judges_what_is_there(tmp_path, capsys):
    path = tmp_path / "live.txt"
    path.write_bytes(SampleLog().bytes()[:9000])
    assert main(["--follow", str(path), str(tmp_path / "never.txt"), "--follow-timeout", "0.2"]) == 1
    out = capsys.readouterr().out
    reason = "FAIL; no run_stop yet: nothing was logged for 0.2 s (--follow-timeout); not judged as a result"
    assert "waiting (No such file" in out and out.count(reason) == 2 and out.splitlines()[-1].endswith(reason)
    assert [line.partition(" error ")[0] for line in out.splitlines() if " ORD05 " in line] == [f"{path}:"]


def test_a_last_line_without_an_end_counts_after_the_timeout(tmp_path, capsys):
    path = tmp_path / "live.txt"
    whole = SampleLog().bytes()
    path.write_bytes(whole[: whole.index(b"\n", whole.index(b'"key": "run_stop"'))])
    assert main(["--follow", str(path), "--follow-timeout", "0.2"]) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .endswith("PASS, 86.67 min; not judged as a result; the committee's checker: PASS")
    )


def test_after_an_interruption_it_says_what_is_missing(tmp_path, capsys, monkeypatch):
    def interrupt(seconds):
        raise KeyboardInterrupt

    path = tmp_path / "live.txt"
    path.write_bytes(SampleLog().bytes()[:9000])
    monkeypatch.setattr(following.time, "sleep", interrupt)
    assert main(["--follow", str(path)]) == 130
    out = capsys.readouterr().out
    assert "error QUA01" in out and out.splitlines()[-1].endswith(
        "FAIL; no run_stop yet: interrupted; not judged as a result"
    )


def test_rules_left_out_make_it_partial_and_fail_on_counts(tmp_path, capsys):
    path = tmp_path / "live.txt"
    path.write_bytes(SampleLog().last_evaluation(0.5).double("submission_org").bytes())
    for narrowed in (["--select", "SET"], ["--ignore", "QUA=why"]):
        assert main(["--follow", str(path), *narrowed]) == 0
        assert "PARTIAL" in capsys.readouterr().out.splitlines()[-1]
    assert main(["--follow", str(path), "--select", "SET", "--fail-on", "warning"]) == 1
