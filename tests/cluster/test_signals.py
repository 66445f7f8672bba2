"""A signal that ends a job stops a run in order at any moment, from the imports to the last clean-up."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cluster.problem import LOG, ended, events, trainings, unfinished
from tests.cluster.slurm import until

COPIES = 40
"""How often the data contain each universe, so that staging takes a while."""
ALL, FEW = "data.train_samples=null", "data.train_samples=64"
STAGED = ("staging.mode=replicate", "staging.stage_dir=/mnt/staged", "staging.workers=1")


@pytest.fixture(scope="module")
def many(problem, tmp_path_factory):
    """Return a folder with many files: the universes of the small problem under further names."""
    folder = tmp_path_factory.mktemp("many")
    manifest = json.loads((problem.data / "manifest.json").read_text())
    files = {}
    for name, entry in manifest["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        for copy in range(COPIES if name.startswith("train") else 1):
            further = f"{name.removesuffix('.tfrecord')}-{copy}.tfrecord" if copy else name
            (folder / further).hardlink_to(problem.data / name)
            files[further] = entry
    manifest["files"] = files
    manifest["facts"]["samples"]["train"] *= COPIES
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def imports(pid, _cluster, _folder):
    return "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text()


def stages(_pid, cluster, _folder):
    return len(staged(cluster, "login1")) > 20


def cleans_up(_pid, _cluster, folder):
    return (folder / LOG).exists() and '"run_stop"' in (folder / LOG).read_text()


def staged(cluster, node):
    return list(cluster.local(node).rglob("*.tfrecord*"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("moment", [imports, stages, cleans_up], ids=lambda moment: moment.__name__)
def test_a_signal_stops_in_order(cluster, problem, many, tmp_path, moment, number):
    folder = tmp_path / "run"
    size = FEW if moment is cleans_up else ALL
    settings = ("train.epochs=1", f"data.data_dir={many}", size, *STAGED)
    running = cluster.start("python", *problem.words(folder, *settings))
    until(lambda: trainings(folder), "the process is there")
    (pid,) = trainings(folder)
    until(lambda: moment(pid, cluster, folder), f"it {moment.__name__}", pause_s=0.001)
    os.kill(pid, number)
    done = running.wait()
    if moment is cleans_up:
        # It has its result, and keeps it. The status is 4, or that of the signal if it came when Python itself ended.
        assert ended(folder) == "target_not_met", str(done)
    else:
        assert done.status == 3, str(done)
        assert ended(folder) in ("", "stopped")
        assert not events(folder, "epoch_start")
    assert staged(cluster, "login1") == []
    assert unfinished(folder) == []


@pytest.mark.exhaustive
def test_a_signal_while_nodes_stage_leaves_nothing_there(cluster, problem, many, tmp_path):
    folder = tmp_path / "run"
    settings = ("train.epochs=1", f"data.data_dir={many}", ALL, *STAGED)
    running = cluster.start("srun", "-N", "2", "-n", "2", "python", *problem.words(folder, *settings))
    until(cluster.jobs, "the job is there")
    job = cluster.jobs().split()[0]
    until(lambda: staged(cluster, "nid002"), "files are on the second node", pause_s=0.001)
    cluster.slurm("scancel", "--signal=USR1", job)
    done = running.wait()
    assert done.status == 3, str(done)
    assert not events(folder, "epoch_start")
    assert cluster.left_on_nodes() == []
    assert unfinished(folder) == []
