"""What counts as a result: how the training ended, whatever its launcher and its machine make of that."""

import os
import signal

import pytest

from tests.cluster.problem import curve, ended, kill_rank, launchers, newest, unfinished, until_trained
from tests.cluster.scripts import Round

FINAL = {"target_met", "target_not_met", "diverged"}


@pytest.fixture
def round_(cluster, problem, tmp_path):
    return Round(cluster, problem, tmp_path)


@pytest.mark.exhaustive
def test_a_full_disk_is_not_a_result(cluster, round_):
    round_.emit("--emit", "plain", epochs=4)
    round_.output.mkdir()
    on_login = ("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(round_.output))
    assert cluster.run(*on_login).status == 0
    run = cluster.inside("login1", round_.run)
    full = cluster.run("bash", str(round_.script))
    assert full.status == 1 and "the checkpoint cannot be written" in full.text, str(full)
    assert ended(run) == "failed", str(full)
    assert cluster.run("mount", "-o", "remount,size=100m", str(round_.output)).status == 0
    done = cluster.run("bash", str(round_.script))
    assert ended(run) == "target_not_met", str(done)
    assert len(curve(run)) == 4
    assert unfinished(run) == []
    cluster.run("umount", str(round_.output))


def test_a_killed_rank_and_a_stopped_launcher_are_not_results(cluster, round_):
    """Each of them is exit status 1 of torchrun."""
    round_.emit("--emit", "plain", "--ranks-per-node", "2", epochs=12)
    for interrupt in (kill_a_rank, stop_torchrun):
        running = cluster.start("bash", str(round_.script))
        until_trained(round_.run)
        interrupt(round_.run)
        done = running.wait(60)
        assert done.status != 0, str(done)
        assert ended(round_.run) not in FINAL, str(done)
    assert ended(round_.run) == "stopped", str(done)
    done = cluster.run("bash", str(round_.script))
    assert ended(round_.run) == "target_not_met", str(done)
    assert len(curve(round_.run)) == 12


def kill_a_rank(run):
    kill_rank(run, 1)


def stop_torchrun(run):
    (pid,) = launchers(run)
    os.kill(pid, signal.SIGTERM)


@pytest.mark.exhaustive
def test_a_success_counts_whoever_saw_it_end(cluster, round_):
    """The job dies after the last line of the log, and before anything else is noted."""
    round_.emit("--emit", "plain", epochs=4, settings=("train.target=0.9",))
    done = cluster.run("bash", str(round_.script))
    assert ended(round_.run) == "target_met", str(done)
    (round_.run / "ended.json").unlink()
    before = (round_.run / "result_0.txt").read_bytes()
    done = cluster.run("bash", str(round_.script))
    assert done.status == 0, str(done)
    assert ended(round_.run) == "target_met", str(done)
    assert (round_.run / "result_0.txt").read_bytes() == before


@pytest.mark.exhaustive
def test_a_damaged_checkpoint_is_skipped(cluster, problem, tmp_path):
    settings = ("train.epochs=3", "checkpoint.keep=3")
    cluster.run("python", *problem.words(tmp_path, *settings))
    damaged = tmp_path / "checkpoints" / newest(tmp_path)
    damaged.write_bytes(damaged.read_bytes()[:600_000])
    done = cluster.run("python", *problem.words(tmp_path, "train.epochs=4", "checkpoint.keep=3", "--auto-resume"))
    assert damaged.name in done.text and len(curve(tmp_path)) == 4, str(done)
    assert ended(tmp_path) == "target_not_met"
