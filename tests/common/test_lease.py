"""The owner of a run's folder: processes that really hold it, die, and are taken over."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from common import lease
from common.lease import InUseError, Lease, LeaseLostError

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from common.lease import Lease
held = Lease(Path(sys.argv[1]))
assert held.take(wait=False)
print("held", flush=True)
sys.stdin.readline()
held.release()
"""


@pytest.fixture
def holder(tmp_path):
    """Start a process that owns the folder until a line is written to it."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "61"}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def elsewhere(path):
    """Let the owner look as if it were on another machine."""
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": "another", "host": "nid002"}))


def test_a_second_owner_is_told_the_first(holder, tmp_path):
    second = Lease(tmp_path / "run")
    with pytest.raises(InUseError, match=rf"run is in use by process {holder.pid} of job 61 on .*--wait") as error:
        second.take(wait=False)
    assert error.value.ending.exit_status == 3
    second.release()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lease-1.json"]
    holder.communicate("\n")
    assert not (tmp_path / "run").exists(), "an empty folder goes with its owner"


def test_one_that_waits_gets_a_free_folder(holder, tmp_path, capsys):
    threading.Timer(0.3, holder.stdin.write, "\n").start()
    threading.Timer(0.4, holder.stdin.flush).start()
    second = Lease(tmp_path / "run")
    while not second.take(wait=True):
        time.sleep(0.05)
    assert capsys.readouterr().out.count("waiting until it is free") == 1
    second.release()


def test_a_killed_owner_is_taken_over_at_once_and_its_unfinished_files_go(holder, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir()
    for name in ("history.csv.77.tmp", "checkpoints/epoch-0001-step-0000000.pt.77.tmp"):
        (run / name).touch()
    (run / "checkpoints/epoch-0001-step-0000000.pt").touch()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    second = Lease(run)
    second.take(wait=False)
    files = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    assert files == ["checkpoints/epoch-0001-step-0000000.pt", "lease-2.json"]
    second.check()
    second.release()


def test_the_clock_of_the_file_system_decides_about_other_machines(holder, tmp_path, monkeypatch):
    """A stopped owner that goes on later finds out before it writes."""
    path = tmp_path / "run/lease-1.json"
    elsewhere(path)
    os.utime(path, (time.time() - 200, time.time() - 200))
    with pytest.raises(InUseError, match="on nid002"):
        Lease(tmp_path / "run").take(wait=False)
    monkeypatch.setenv("SLURM_JOB_ID", "61")  # queued again: waits for what is left of its earlier start
    monkeypatch.setattr(lease, "STALE_S", 200.5)
    first, second = Lease(tmp_path / "run"), Lease(tmp_path / "run")
    while not first.take(wait=False):
        time.sleep(0.1)
    elsewhere(tmp_path / "run/lease-2.json")
    os.utime(tmp_path / "run/lease-2.json", (1, 1))
    second.take(wait=False)
    with pytest.raises(LeaseLostError, match=r"taken over by process .*nothing more is written"):
        first.check()
    first.release()
    second.check()
    second.release()


def test_of_many_that_take_over_at_once_one_wins(tmp_path):
    dead = Lease(tmp_path)
    dead.take(wait=False)
    elsewhere(tmp_path / "lease-1.json")
    os.utime(tmp_path / "lease-1.json", (1, 1))
    script = HOLD.replace("sys.stdin.readline()", "time.sleep(2)")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    rivals = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env=environment, stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    ended = [process.communicate(timeout=60) and process.returncode for process in rivals]
    assert sorted(ended) == [0, 1, 1, 1, 1, 1]
    dead.release()
    assert not list(tmp_path.glob("lease-*"))
