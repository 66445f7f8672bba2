"""Several trainings in one job: the same curves as alone, each byte staged once, and errors that end one of them."""

import json
import os
import re
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

import cosmoflow.train
import submission.round.__main__
from common.config import ConfigError, load
from common.ending import Ending, read_ending, write_ending
from common.files import instance_folder
from common.record import read_run_times, read_value
from common.settings.run import InstancesConfig, TrainConfig
from common.stop import STOP
from common.training.job import (
    InstancesJob,
    check_ranks,
    config_of,
    job_ending,
    order_text,
    ranks_of_each,
    resolve_node_ranks,
    throughput_text,
)
from submission.round.make import find_best_count
from tests.cosmoflow.case import CASE
from tests.problems import ROOT, STAGED, curve, mpirun, torchrun

FOUR = ("instances.count=4", "instances.ranks=1")


@pytest.fixture
def case():
    return CASE


def endings(job):
    return [ending and ending.how for ending in (read_ending(Path(job) / f"instance_{i}") for i in range(4))]


def records(folder):
    return [json.loads(line[line.index("{") :]) for line in (Path(folder) / "result_0.txt").open()]


def staged_bytes(job):
    """Return the bytes that staging has read, by the log of each instance."""
    found = (record for i in range(4) for record in records(f"{job}/instance_{i}"))
    return [record["metadata"]["staging_bytes_read"] for record in found if record["key"] == "staging_stop"]


# -- in one process ------------------------------------------------------------------------------------------


def test_an_instance_has_the_curve_that_it_has_alone(run, data, capsys):
    assert run(*FOUR, "output_dir=job", "train.epochs=2", *STAGED) == 4
    out = capsys.readouterr().out
    assert "4 instances of 1 rank(s) each, 1 at a time" in out and "0 of 4 instances met the target" in out
    assert run("instances.first=2", "output_dir=alone", "train.epochs=2") == 4
    assert curve("job/instance_2") == curve("alone/instance_2") != curve("job/instance_1")
    logs = [records(f"job/instance_{number}") for number in range(4)]
    assert [[r["value"] for r in log if r["key"] == "seed"] for log in logs] == [[11], [12], [13], [14]]
    named = [[r["metadata"]["instance"] for r in log if r["key"] == "submission_benchmark"] for log in logs]
    assert named == [[0], [1], [2], [3]]
    assert staged_bytes("job")[1:] == [0, 0, 0]
    whole = sum(path.stat().st_size for path in data.rglob("*.tfrecord"))
    assert whole <= staged_bytes("job")[0] <= 1.02 * whole
    keys = [record["key"] for record in logs[3]]
    assert keys.index("staging_stop") < keys.index("run_start") and keys.count("staging_start") == 1
    assert not list(Path("node").rglob("*.tfrecord"))


def test_a_single_run_names_no_instance_and_instance_0_alone_does(run):
    run("train.epochs=1")
    run("train.epochs=1", "instances.first=0", "output_dir=alone")
    found = [records(folder) for folder in ("run", "alone/instance_0")]
    named = [[r["metadata"].get("instance") for r in log if r["key"] == "submission_benchmark"] for log in found]
    assert named == [[None], [0]]
    keys = [record["key"] for record in found[0]]
    assert keys[:2] == ["cache_clear", "init_start"] and keys.index("staging_start") == keys.index("run_start") - 2


def test_an_error_ends_one_instance(run, monkeypatch, capsys):
    """Then they go on: those that have a result stay as they are, to the byte."""
    loss = cosmoflow.train.CosmoFlow.loss

    def with_errors(problem, model, batch):
        number = problem.config.instances.number
        if number == 1:
            raise OSError(2, "No such file", "train/lost.tfrecord")
        return loss(problem, model, batch) * (float("nan") if number == 2 else 1.0)

    with monkeypatch.context() as patch:
        patch.setattr(cosmoflow.train.CosmoFlow, "loss", with_errors)
        assert run(*FOUR, "output_dir=job", "train.epochs=1", "train.target=0.9") == 1
    assert endings("job") == ["target_met", "failed", "diverged", "target_met"]
    assert read_ending(Path("job")) == Ending("failed", "1 of 4 instances failed", 2)
    stops = [records(f"job/instance_{number}")[-1]["metadata"]["status"] for number in range(4)]
    assert stops == ["success", "aborted", "aborted", "success"]
    said, errors = capsys.readouterr()
    assert "continue those without a result: the same command with --resume, or with --auto-resume" in said
    assert "evaluate them: python -m cosmoflow evaluate job/instance_0 job/instance_3 " in said  # with a checkpoint
    assert (
        "instance 1: error:" in errors and "lost.tfrecord" in errors and "instance 2: error: the loss is nan" in errors
    )
    before = {path: path.read_bytes() for path in Path("job").glob("instance_[023]/*.*")}
    assert run(*FOUR, "output_dir=job", "train.epochs=1", "train.target=0.9", "--resume") == 4
    assert endings("job") == ["target_met", "target_met", "diverged", "target_met"]
    said = capsys.readouterr().out
    assert "3 of 4 instances met the target, in" in said and "continue those" not in said
    assert {path: path.read_bytes() for path in before} == before


def test_a_drawn_seed_is_kept_by_all(run, capsys):
    assert run(*FOUR, "output_dir=job", "train.seed=null", "train.epochs=1", "train.target=0.9") == 0
    seeds = [read_value(Path(f"job/instance_{number}/result_0.txt"), "seed") for number in range(4)]
    assert [seed - seeds[0] for seed in seeds] == [0, 1, 2, 3]
    again = ("train.seed=null", "output_dir=job", "train.epochs=1", "train.target=0.9", "instances.ranks=1")
    assert run(*again, "instances.count=5", "--auto-resume") == 0
    assert read_value(Path("job/instance_4/result_0.txt"), "seed") == seeds[0] + 4
    out = capsys.readouterr().out
    assert "1 instance of 1 rank(s) each, 1 at a time; already finished: 4" in out
    assert out.splitlines()[-1].startswith("FOM cosmoflow samples/s ")
    words = out.splitlines()[-1].split()[2:]
    merit = dict(zip(words[::2], words[1::2], strict=True))
    rates = [json.loads(Path(f"job/instance_{number}/fom.json").read_text())["samples_per_s"] for number in range(5)]
    assert (merit["units"], merit["models"]) == ("1", "5") and float(merit["models/min"]) > 0
    assert float(merit["samples/s"]) == pytest.approx(sum(rates) / 5, rel=1e-5)
    flop = read_value(Path("job/instance_0/result_0.txt"), "flop_per_sample")["training"]
    assert float(merit["flop/s"]) == pytest.approx(flop * sum(rates) / 5, rel=1e-5)
    figure = json.loads(Path("job/fom.json").read_text())
    jsonschema.validate(figure, json.loads((ROOT / "docs/reference/fom.schema.json").read_text()))
    qualities = [curve(f"job/instance_{number}")[-1][1] for number in range(5)]
    assert figure["qualities"] == qualities and figure["quality"] == pytest.approx(sum(qualities) / 5)
    valid = sum(flop * rate * (0.124 / quality) ** 5 for rate, quality in zip(rates, qualities, strict=True)) / 5
    assert float(merit["vflop/s"]) == pytest.approx(valid, rel=1e-5) == pytest.approx(figure["vflop_per_s"])


def test_what_cannot_be_is_said_in_one_line(run, capsys):
    for arguments, message in (
        (("instances.count=4",), "instances.ranks is null, all ranks divided by instances.count, but 1 rank(s) do not"),
        (("instances.ranks=2",), "instances.ranks is 2, which does not divide the 1 rank(s) of the job; expected 1"),
        ((*FOUR, "train.eval_ranks=1"), "train.eval_ranks is 1 and instances.count 4; expected 0"),
        ((*FOUR, "--resume"), "nothing to resume: no instance has a log; start without --resume"),
        ((*FOUR, "--resume", "job/instance_1"), "--resume job/instance_1 names one run, but instances.count is 4"),
        (
            (*FOUR, "staging.mode=memory", "submission.round='2.0'"),
            "submission.round is '2.0', in which staging is part of each run's time",
        ),
    ):
        assert run(*arguments) in (1, 2)
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error and error.count("\n") == 1
        assert not Path("run").exists()


def test_instances_in_one_folder_are_alike(run, capsys):
    few = (*FOUR, "output_dir=job", "train.epochs=1")
    assert run(*few) == 4
    before = {path: path.read_bytes() for path in Path("job").rglob("*.*") if path.is_file()}
    for arguments, message in (
        ((), "job/instance_0/result_0.txt: a log already exists; continue the instances by --resume"),
        (("--resume", "schedule.base_lr=0.5"), "schedule.base_lr is 0.5, but 0.01 in job/instance_0/result_0.txt"),
        (("--auto-resume", "train.seed=12"), "has seed 11, so that instance 0 has 11, but train.seed is 12"),
    ):
        capsys.readouterr()
        assert run(*few, *arguments) in (1, 2)
        assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
    shutil.copytree("job/instance_0", "job/instance_7")
    assert run(*few, "train.seed=null", "--auto-resume") == 2
    assert "job/instance_7/result_0.txt has seed 11, so that instance 0 has 4, but" in capsys.readouterr().err


def test_a_single_run_and_instances_do_not_share_a_folder(run, capsys):
    few = "train.epochs=1"
    assert run("output_dir=run", few) == 4 and run("output_dir=job", few, "instances.first=2") == 4
    before = {path: path.read_bytes() for path in Path().rglob("*/*.*") if path.is_file()}
    for arguments, message in (
        ((*FOUR, "output_dir=run"), "run/result_0.txt: the log of a single run; instances cannot be trained in the"),
        (("instances.first=2", "output_dir=run"), "run/result_0.txt: the log of a single run; instances cannot be"),
        (("output_dir=job",), "job/instance_2/result_0.txt: the log of an instance of a job; a single run cannot be"),
    ):
        for flag in ((), ("--auto-resume",)):
            capsys.readouterr()
            assert run(*arguments, few, *flag) == 1
            error = capsys.readouterr().err
            assert message in error and error.count("\n") == 1
    assert {path: path.read_bytes() for path in Path().rglob("*/*.*") if path.is_file()} == before


# -- how the job itself ends ---------------------------------------------------------------------------------


def stop_this_process(*_):
    os.kill(os.getpid(), signal.SIGUSR1)
    STOP.check()


def test_a_job_that_cannot_stage_its_data_has_failed(run):
    staging = (*STAGED, "train.epochs=1")
    Path("node").touch()
    assert run(*FOUR, "output_dir=job", *staging) == 1
    ended = read_ending(Path("job"))
    assert ended.how == "failed" and "staging.stage_dir node: File exists" in ended.cause
    Path("node").unlink()
    assert run(*FOUR, "output_dir=job", *staging) == 4
    assert read_ending(Path("job")) == Ending("target_not_met", "4 of 4 instances missed the target", 4)
    assert run(*FOUR, "output_dir=job", *staging) == 1  # a log exists
    assert read_ending(Path("job")).how == "target_not_met"
    assert run(*FOUR, "output_dir=wrong", "data.train_samples=25") == 1 and not Path("wrong").exists()


@pytest.mark.parametrize("moment", ["stage", "read_from"])
def test_a_stop_signal_while_staging_is_recorded(run, monkeypatch, moment):
    """Also when all data are staged, but the job does not know it yet: they are removed."""
    with monkeypatch.context() as patch:
        patch.setattr(cosmoflow.train.CosmoFlow, moment, stop_this_process)
        assert run(*FOUR, *STAGED, "output_dir=job", "train.epochs=1") == 3
    assert read_ending(Path("job")).how == "stopped"
    assert not [path for path in Path("node").rglob("*") if path.is_file()]


# -- what is asked for ---------------------------------------------------------------------------------------


def asked(config, count, ranks=None):
    instances, train = InstancesConfig(count=count, ranks=ranks), TrainConfig(seed=None)
    return replace(load(cosmoflow.train.Config, Path(config)), instances=instances, train=train)


def test_the_ranks_of_an_instance(config):
    assert [ranks_of_each(asked(config, *of), 8) for of in ((1,), (4,), (8,), (5, 2), (16, 1))] == [8, 2, 1, 2, 1]
    for count, ranks, message in (
        (3, None, "8 rank(s) do not divide into 3"),
        (3, 3, "instances.ranks is 3, which does not divide the 8 rank(s) of the job; expected 1, 2, 4, 8, or null"),
        (2, 2, "so that 4 of 8 ranks are never used; start 4 ranks"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            check_ranks(asked(config, count, ranks), 8, None)
    assert order_text(5, 2, 8) == "5 instances of 2 rank(s) each, 4 at a time; the last 1 of them leave 6 rank(s) idle"
    assert order_text(8, 2, 8) == "8 instances of 2 rank(s) each, 4 at a time"
    alone = config_of(asked(config, 4, 2), 3, 40)
    assert (alone.train.seed, alone.instances) == (40, InstancesConfig(first=3))


def test_an_instance_on_each_node(config):
    def resolve(rank, local_rank, local_size):
        own = {"rank": rank, "local_rank": local_rank, "local_size": local_size}
        dist = SimpleNamespace(world_size=8, nodes=2, find_first=lambda value: value, **own)
        return resolve_node_ranks(asked(config, 2, "node"), dist)

    assert resolve(5, 1, 4).instances.ranks == 4 and resolve(3, 3, 4).instances.ranks == 4
    for numbered in ((5, 2, 4), (3, 3, 5)):  # node by node they are not, and more than half are here
        with pytest.raises(ConfigError, match=r"is node, but the 8 ranks are not numbered node by node"):
            resolve(*numbered)


def test_how_a_job_ends():
    met, missed, stopped = Ending("target_met", "", 3), Ending("target_not_met"), Ending("stopped", "SIGTERM")
    for found, how, status in (
        ([met, met], "target_met", 0),
        ([met, missed], "target_not_met", 4),
        ([met, Ending("diverged")], "target_not_met", 4),
        ([met, Ending("completed")], "completed", 0),
        ([missed, Ending("completed")], "target_not_met", 4),
        ([met, missed, Ending("failed")], "failed", 1),
        ([Ending("failed"), stopped], "stopped", 3),
        ([met, None], "stopped", 3),
    ):
        ending = job_ending(dict(enumerate(found)))
        assert (ending.how, ending.exit_status) == (how, status)
        assert ending.epochs == 3 * found.count(met)
    clocks = [(0, 60_000), (30_000, 120_000)]
    assert throughput_text(clocks, 3, "met the target").endswith(
        "in 2.00 min from the first start to the last stop: 1 models/min"
    )


def test_pruning_by_hand():
    """Ten models in 10 min, but nine of them in 5: 1.8 instead of 1 per minute."""
    clocks = [(0.0, 300_000.0)] * 9 + [(0.0, 600_000.0)]
    assert find_best_count(clocks, 5) == 9
    assert find_best_count(clocks, 10) == 10
    assert find_best_count(clocks[:3], 5) == 3


# -- by launchers --------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize(("launcher", "ranks", "size"), [(torchrun, 2, 1), (torchrun, 4, 2), (mpirun, 4, 2)])
def test_curves_under_launchers(run, start, data, launcher, ranks, size):
    """Four instances, two at a time; staged in shards. Alone, on as many ranks, instance 3 has the same curve."""
    staging = ("staging.mode=shard", "staging.stage_dir=node")
    many = ("instances.count=4", f"instances.ranks={size}", "output_dir=job", "train.target=0.4")
    out, err = start(*many, *staging, launcher=launcher(ranks)).communicate(timeout=300)
    assert f"4 instances of {size} rank(s) each, 2 at a time" in out, err
    one = start("instances.first=3", "output_dir=alone", "train.target=0.4", launcher=launcher(size))
    _, err = one.communicate(timeout=300)
    assert curve("job/instance_3") == curve("alone/instance_3"), err
    whole = sum(path.stat().st_size for path in data.rglob("*.tfrecord"))
    assert whole <= sum(staged_bytes("job")) <= 1.02 * whole


@pytest.mark.exhaustive
def test_a_killed_rank_ends_the_job(run, start, capsys):
    """Resumed, all four have the curves of an undisturbed job, and those that were finished stay as they were."""
    assert run(*FOUR, "output_dir=whole") == 4
    slow = (*FOUR, "dist.device=cpu", "train.epochs=4", "output_dir=job")
    job = start(*slow, launcher=torchrun(2))
    begin = time.monotonic()
    while endings("job").count("target_not_met") < 2 and time.monotonic() - begin < 120:
        time.sleep(0.01)
    os.kill(int(Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()[-1]), signal.SIGKILL)
    assert job.wait(timeout=120) != 0
    assert read_ending(Path("job")).how == "failed"
    ended = [number for number, how in enumerate(endings("job")) if how == "target_not_met"]
    before = {path: path.read_bytes() for number in ended for path in Path(f"job/instance_{number}").glob("*.*")}
    _, err = start(*slow, "--resume", launcher=torchrun(2)).communicate(timeout=300)
    assert endings("job") == ["target_not_met"] * 4, err
    assert {path: path.read_bytes() for path in before} == before
    assert [curve(f"job/instance_{i}") for i in range(4)] == [curve(f"whole/instance_{i}") for i in range(4)]


@pytest.mark.exhaustive
def test_a_throughput_result(config, data, tmp_path, capfd):
    """The score is that by hand; the second call trains nothing."""
    Path(config).write_text("variant: mini2\n" + Path(config).read_text() + "\n")
    Path("round.yaml").write_text(f"cosmoflow: {{config: {config}, overrides: [train.target=0.9, train.epochs=3]}}")
    arguments = ["--config", "round.yaml", "--throughput", "4", "--jobs", "2", "-o", "round", "--threads", "1"]
    assert submission.round.__main__.main(arguments) == 1  # the problem of the test is not the mini problem
    clocks = [read_run_times(Path(f"round/cosmoflow/throughput/instance_{number}/result_0.txt")) for number in range(4)]
    weak = Path("round/package/Example_University/results/test_n1/weak/cosmoflow").glob("*.txt")
    assert sorted(path.name for path in weak) == [f"result_{number}.txt" for number in range(4)]
    minutes = (max(stop for _, stop in clocks) - min(begin for begin, _ in clocks)) / 60_000
    assert "throughput done: 4 of 4 instances met the target\n" in capfd.readouterr().out
    told = f"4 of 4 instances met the target, in {minutes:.2f} min from the first start to the last stop"
    assert told in Path("round/cosmoflow/throughput/output").read_text()
    assert submission.round.__main__.main(arguments) == 1
    assert "epoch" not in capfd.readouterr().out.partition("Round 3.0")[0]


@pytest.mark.parametrize(
    ("recorded", "told", "how"),
    [
        (Ending("target_not_met", epochs=4), "target_met", "target_not_met"),
        (None, "target_met", None),
        (Ending("stopped"), "target_met", "stopped"),
        (None, "failed", "failed"),
        (Ending("stopped"), "failed", "failed"),
        (Ending("target_met"), None, "target_met"),
        (Ending("completed", epochs=3), "stopped", None),  # of an earlier job of fewer epochs
        (Ending("completed", epochs=3), "completed", None),
    ],
)
def test_the_store_of_the_ranks_gives_no_instance_its_result(recorded, told, how, tmp_path, monkeypatch):
    """The folder does; the store, which a stranger may reach, says at most that an instance failed before it began."""
    monkeypatch.setattr("common.training.job.FILE_DELAY_S", 0.1)
    folder = instance_folder(tmp_path, 0)
    folder.mkdir()
    if recorded:
        write_ending(folder, recorded)
    config = SimpleNamespace(output_dir=tmp_path, train=SimpleNamespace(epochs=4, ends_in_epoch=False))
    ending = InstancesJob._read_ending(SimpleNamespace(config=config), SimpleNamespace(read_text=lambda _: told), 0)
    assert (ending and ending.how) == how
