"""The owner of a run's folder: processes that really hold it, die, and are taken over."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from common import locks
from common.locks import InUseError, Lease, LeaseLostError
from tests.problems import ROOT

HOLD = """
import sys, time
from pathlib import Path
from common.locks import Lease
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
    monkeypatch.setattr(locks, "STALE_S", 200.5)
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


@pytest.mark.parametrize("number", [1, 5])
def test_an_owner_that_gives_up_during_a_takeover_is_followed_by_one(tmp_path, monkeypatch, number):
    """One has seen its old lease, another the empty folder: they create different files."""
    old, link = tmp_path / f"lease-{number}.json", locks._link_draft
    old.touch()
    os.utime(old, (1, 1))
    first, second = Lease(tmp_path), Lease(tmp_path)

    def after_the_old_one_left(draft, path):
        def after_the_first(second_draft, second_path):
            monkeypatch.setattr(locks, "_link_draft", link)
            link(draft, path)
            link(second_draft, second_path)

        old.unlink()
        monkeypatch.setattr(locks, "_link_draft", after_the_first)
        with pytest.raises(InUseError):
            second.take(wait=False)

    monkeypatch.setattr(locks, "_link_draft", after_the_old_one_left)
    assert first.take(wait=False) and not second.held
    first.check()
    assert [path.name for path in tmp_path.iterdir()] == [f"lease-{number + 1}.json"]
    first.release()


DAMAGED = {
    "empty": Path.touch,
    "of another kind": lambda path: path.write_text('{"pid": "9"}'),
    "a pipe": os.mkfifo,
    "a dangling link": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_lease_is_named_and_counts_as_dead_after_a_while(tmp_path, damage):
    path = tmp_path / "lease-1.json"
    damage(path)
    with pytest.raises(InUseError) as error:
        Lease(tmp_path).take(wait=False)
    assert f"in use by an unknown process, since {path} is damaged or cannot be read; wait" in str(error.value)
    assert str(error.value).endswith(
        f"5 minutes after its last sign of life; if no training is active there, remove {path}"
    )
    os.utime(path, (1, 1), follow_symlinks=False)
    second = Lease(tmp_path)
    assert second.take(wait=False) and not os.path.lexists(path)
    second.release()


def test_a_folder_that_cannot_be_used_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name, reason in {"file": "not a folder", "link/run": "link: not a folder", "file/run": "below a file"}.items():
        with pytest.raises(OSError, match=rf"^{tmp_path}/{name} cannot be .*{reason}\); set output_dir to a folder"):
            Lease(tmp_path / name).take(wait=False)

    monkeypatch.setattr("common.locks.new_file", Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
    with pytest.raises(OSError, match=rf"^{tmp_path} cannot be used for a run \(.*: Read-only file system\); set"):
        Lease(tmp_path).take(wait=False)


def test_a_folder_that_is_removed_just_now_is_made_again(tmp_path, monkeypatch):
    mkdir = Path.mkdir

    def too_late(path, **_):
        monkeypatch.setattr(Path, "mkdir", mkdir)
        raise FileExistsError(errno.EEXIST, "File exists", str(path))

    monkeypatch.setattr(Path, "mkdir", too_late)
    owner = Lease(tmp_path / "run")
    assert owner.take(wait=False)
    owner.release()


def test_a_lease_whose_answer_nfs_has_lost_is_held(tmp_path, monkeypatch):
    link = os.link

    def ask_twice(*names):
        link(*names)
        link(*names)

    monkeypatch.setattr(os, "link", ask_twice)
    owner = Lease(tmp_path)
    assert owner.take(wait=False)
    owner.check()
    owner.release()
    assert not tmp_path.exists()


def test_an_owner_whom_proc_hides_is_alive_as_long_as_its_heart_beats(holder, tmp_path, monkeypatch):
    began = locks._read_start_time
    monkeypatch.setattr(locks, "_read_start_time", lambda pid: "" if pid == holder.pid else began(pid))
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted")))
    with pytest.raises(InUseError, match=f"process {holder.pid} "):
        Lease(tmp_path / "run").take(wait=False)
    os.utime(tmp_path / "run/lease-1.json", (1, 1))
    second = Lease(tmp_path / "run")
    assert second.take(wait=False)
    second.release()
