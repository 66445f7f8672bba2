"""A cluster of four nodes: as many ranks as this machine holds, and a cable that is pulled."""

import pytest

from tests.cluster.problem import ended, until_trained
from tests.cluster.slurm import Cluster, until
from tests.problems import curve


@pytest.fixture(scope="module")
def four_nodes(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("four"), nodes=4) as cluster:
        yield cluster


@pytest.mark.exhaustive
def test_64_ranks_train_the_curve_of_one_process(four_nodes, problem, tmp_path):
    """Each imports torch, for which a machine of few cores takes minutes."""
    settings = ("train.global_batch_size=64", "staging.mode=replicate", "staging.stage_dir=/mnt/staged")
    patience = "dist.start_timeout_s=600"
    launcher = "srun --nodes 4 --ntasks 64 --overcommit python".split()
    done = four_nodes.run(*launcher, *problem.words(tmp_path / "many", *settings, patience), timeout_s=900)
    assert "64 ranks on 4 node(s)" in done.text, str(done)
    assert ended(tmp_path / "many") == "target_not_met", str(done)
    assert four_nodes.left_on_nodes() == []
    alone = four_nodes.run("python", *problem.words(tmp_path / "one", settings[0]), timeout_s=300)
    assert ended(tmp_path / "one") == "target_not_met", str(alone)
    for many, one in zip(curve(tmp_path / "many"), curve(tmp_path / "one"), strict=True):
        assert many == pytest.approx(one, rel=1e-3)


@pytest.mark.exhaustive
def test_a_pulled_cable_ends_the_job_which_names_the_node(four_nodes, problem, tmp_path):
    """The processes behind it live on, so that no connection breaks."""
    launcher = "srun --nodes 3 --ntasks 3 --no-kill python".split()
    running = four_nodes.start(*launcher, *problem.words(tmp_path, "train.epochs=4000", "dist.timeout_s=20"))
    until_trained(tmp_path, timeout_s=200)
    four_nodes.pull_cable("nid003")
    try:
        until(lambda: ended(tmp_path) == "failed", "rank 0 records the end", 120)
        four_nodes.slurm("scancel", "--user=root")
    finally:
        four_nodes.pull_cable("nid003", "up")
    done = running.wait(120)
    assert "no answer from rank 2 on nid003" in (tmp_path / "ended.json").read_text(), str(done)
