"""The runs of a round, with stand-ins for the training: runs that crash, are killed, or miss the target."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from common.ending import NAME as ENDED
from common.ending import Ending, write_ending
from common.files import instance_folder
from common.locks import LockedError
from compliance.model.layout import discover
from submission.round.plan import make_runs, plan_runs
from submission.runs.plan import RECORD, PlanError, PlannedRun, check_records, is_finished
from submission.runs.processes import JobRunner, hold_lock

ROOT = Path(__file__).parents[3]
STAND_IN = """
import os, sys, time
from pathlib import Path
from common.ending import Ending, write_ending
from compliance.samples.log import SampleLog

settings = dict(word.split("=", 1) for word in sys.argv[2:])
folder, seed = Path(settings["output_dir"]), int(settings["train.seed"])
stories, number = os.environ["STORIES"].split(), int(folder.name.removeprefix("run_"))
story = stories[number] if number < len(stories) else "good"
if story == "refused":
    print("error: no such key")
    sys.exit(2)
if story == "crash_once":
    story = "good" if (folder.parent / "attempts").exists() else "crash"
log = SampleLog("cosmoflow", variant="mini", run=seed % 1000, epochs=3).set("seed", seed)
if story in ("weak", "fail", "stopped"):
    log.last_evaluation(0.5).meta("run_stop", "status", "aborted")
if story in ("crash", "sleep"):
    log.drop("run_stop")
folder.joinpath("result_0.txt").write_bytes(log.bytes())
if story not in ("crash", "sleep"):
    how = {"weak": "target_not_met", "fail": "failed", "stopped": "stopped"}.get(story, "target_met")
    write_ending(folder, Ending(how, "the disk is full" if how == "failed" else ""))
folder.joinpath("pid").write_text(str(os.getpid()))
print("threads", os.environ["OMP_NUM_THREADS"])
if story == "crash":
    print("out of luck\\r\\x1b[31mat the end", flush=True)
    os.kill(os.getpid(), 11)
if story == "sleep":
    time.sleep(600)
if story == "together":
    folder.parent.joinpath(folder.name + ".here").touch()
    while len(list(folder.parent.glob("*.here"))) < 2:
        time.sleep(0.02)
sys.exit(story in ("weak", "fail"))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of a round of two benchmarks whose train modules are the stand-in."""
    for benchmark in ("first", "second"):
        (tmp_path / "code" / benchmark).mkdir(parents=True)
        (tmp_path / "code" / benchmark / "train.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'code'}{os.pathsep}{ROOT}")
    return tmp_path / "round"


def make(folder, counts, *stories, **workers):
    """Make the runs of a round: run i has the i-th story, all later runs are good; return them and their logs."""
    os.environ["STORIES"] = " ".join(stories)
    runs = plan_runs(folder, counts)
    return runs, list(make_runs(runs, JobRunner(**workers)).values())


def test_a_run_that_crashed_restarts_with_its_seed(folder, capsys):
    runs, logs = make(folder, {"first": 2}, "good", "crash_once")
    out = capsys.readouterr().out
    kept = folder / "first/attempts/run_1-1"
    assert f"first/run_1 crashed (ended by SIGSEGV), restarting; its output: {kept}/output" in out
    assert "  | \\x1b[31mat the end\n" in out and "[2/2] first/run_1 met the target after 3 evaluations" in out
    seeds = [run.seed for run in runs]
    assert len(logs) == 2 and len(set(seeds)) == 2 and plan_runs(folder, {"first": 2}) == runs
    for path in (kept / "result_0.txt.interrupted", folder / "first/run_1/result_0.txt"):
        assert f'"key": "seed", "value": {seeds[1]}' in path.read_text()


def test_a_run_that_missed_the_target_is_kept(folder, capsys):
    make(folder, {"first": 1}, "weak")
    assert "first/run_0 did NOT meet the target (the run is kept) after 3 evaluations (0.5)" in capsys.readouterr().out
    before = (folder / "first/run_0/result_0.txt").stat()
    _, logs = make(folder, {"first": 2})
    assert (folder / "first/run_0/result_0.txt").stat() == before
    assert [log.status for log in logs] == ["aborted", "success"]
    assert "[2/2] first/run_1 met" in capsys.readouterr().out


def test_a_run_that_always_crashes_is_given_up_and_other_benchmarks_continue(folder, capsys):
    _, logs = make(folder, {"first": 2, "second": 1}, "crash", attempts=2)
    assert discover([str(folder / "first/attempts")]).folders[0].logs == [], "no log, though the output is kept"
    assert "given up after 2 attempts" in capsys.readouterr().out
    assert not logs and len(list((folder / "first/attempts").iterdir())) == 2
    assert list((folder / "first/run_1").iterdir()) == [folder / "first/run_1" / RECORD], "it was not started"
    assert (folder / "second/attempts").exists()
    assert len(make(folder, {"first": 2, "second": 1})[1]) == 3


def test_a_run_that_is_called_in_a_wrong_way_is_not_restarted(folder, capsys):
    make(folder, {"first": 2}, "refused")
    kept = folder / "first/attempts"
    said = f"first/run_0 was refused (wrong use), not restarted; its output: {kept}/run_0-1/output\n"
    assert f"{said}  | error: no such key\n" in capsys.readouterr().out
    assert [path.name for path in kept.iterdir()] == ["run_0-1"] and not (folder / "first/run_1/output").exists()


def test_concurrent_runs_share_the_cores(folder):
    make(folder, {"first": 2}, "together", "together", size=2, threads=3)
    assert (folder / "first/run_1/output").read_text() == "threads 3\n"


def test_what_takes_long_says_so_and_gives_no_advice(folder, capfd, monkeypatch):
    monkeypatch.setattr("submission.runs.progress.BEAT_S", 0.0)
    make(folder, {"first": 1})
    line = capfd.readouterr().out.splitlines()[0]
    assert line.startswith("first/run_0: ") and "so far; 0 of 1 run finished, time left: no basis" in line
    inner = "import sys; print('next: train'); sys.exit('error: no space')"
    assert JobRunner().run_silently([sys.executable, "-c", inner]) == 1
    out, error = capfd.readouterr()
    assert "next" not in out and "no space" in error


@contextlib.contextmanager
def in_the_middle(folder):
    """Yield a process that trains three runs, and the process id of its second run, which does not end."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from common.command import run_command
from submission.runs.processes import hold_lock
from test_processes import make
folder = Path({str(folder)!r})
with hold_lock(folder) as lock:
    sys.exit(run_command(lambda: make(folder, {{"first": 3}}, "good", "sleep", lock=lock) and 0, ()))
"""
    pid = folder / "first/run_1/pid"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not (pid.exists() and pid.read_text()):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        try:
            yield process, int(pid.read_text())
        finally:
            process.kill()


def has_ended(pid):
    """Return whether a process ends within 50 s."""
    for _ in range(1000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        ):  # a zombie: its parent has not waited for it
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_round_resumes(folder, number):
    with in_the_middle(folder) as (process, pid):
        with pytest.raises(LockedError, match=f"in use by process {process.pid}, or one"), hold_lock(folder):
            pass
        seeds = [run.seed for run in plan_runs(folder, {"first": 3})]
        before = (folder / "first/run_0/result_0.txt").stat()
        process.send_signal(number)
        assert process.wait(120) == (130 if number == signal.SIGINT else -number)
        if sys.platform == "linux":
            assert has_ended(pid)
    with hold_lock(folder) as lock:
        runs, logs = make(folder, {"first": 3}, lock=lock)
    assert len(logs) == 3 and [run.seed for run in runs] == seeds
    assert (folder / "first/run_0/result_0.txt").stat() == before
    assert (folder / "first/attempts/run_1-1/result_0.txt.interrupted").exists()


@pytest.mark.parametrize("story", ["fail", "stopped"])
def test_an_error_of_the_machine_and_a_signal_are_no_results(folder, story, capsys):
    """The log has a run_stop as that of a run that missed its target."""
    runs, logs = make(folder, {"first": 1}, story, attempts=2)
    said = "crashed (failed: the disk is full)" if story == "fail" else "crashed (stopped)"
    assert not logs and said in capsys.readouterr().out
    again, logs = make(folder, {"first": 1})
    assert len(logs) == 1 and again == runs, "with the same seed"


def test_a_success_counts_whoever_saw_it_end(folder):
    """The round was killed before it noted anything, and the training before it wrote its own record."""
    make(folder, {"first": 1})
    (folder / "first/run_0" / ENDED).unlink()
    before = (folder / "first/run_0/result_0.txt").stat()
    assert len(make(folder, {"first": 1})[1]) == 1 and (folder / "first/run_0/result_0.txt").stat() == before


def test_a_round_only_grows(folder):
    for run in plan_runs(folder, {"first": 2, "second": 1}):
        run.write_record()
    for fewer in ({"first": 1, "second": 1}, {"first": 2}):
        with pytest.raises(PlanError, match="a round can only grow"):
            plan_runs(folder, fewer)
    (folder / "first/run_0" / RECORD).write_text('["seed"]')
    with pytest.raises(PlanError, match=r"run\.json is not the plan of a run"):
        plan_runs(folder, {"first": 2, "second": 1})


def test_another_plan_is_refused(folder):
    make(folder, {"first": 1})
    runs = [replace(run, overrides=("train.epochs=2",)) for run in plan_runs(folder, {"first": 1})]
    with pytest.raises(PlanError, match=r"run_0/run\.json: overrides has changed: none before, train.epochs=2"):
        make_runs(runs, JobRunner())


def test_a_round_may_be_named_by_another_path(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (run,) = plan_runs(Path(folder.name), {"first": 1})
    run.write_record()
    check_records(plan_runs(folder, {"first": 1}))


def test_a_seed_is_never_replaced(folder):
    runs, _ = make(folder, {"first": 1})
    run, record = runs[0], runs[0].folder / RECORD
    record.unlink()
    assert plan_runs(folder, {"first": 1}) == runs, "the log has it, too"
    for seed, words in ((run.seed + 1, f"but .* has {run.seed}"), ("1", "whole number"), (-1, "whole number")):
        record.write_text(json.dumps({"seed": seed}))
        with pytest.raises(PlanError, match=words):
            plan_runs(folder, {"first": 1})
    record.unlink()
    (run.folder / "result_0.txt").write_text("")
    with pytest.raises(PlanError, match="a log without a seed"):
        plan_runs(folder, {"first": 1})
    (folder / "round.json").touch()
    with pytest.raises(PlanError, match="a version before"):
        plan_runs(folder, {"first": 1})


def test_a_job_of_instances_is_continued_and_grows(folder):
    job = PlannedRun(benchmark="first", kind="training", config="mini", folder=folder, instances=2)
    job.write_record()
    for number in range(2):
        assert not is_finished(job)
        instance_folder(folder, number).mkdir()
        write_ending(instance_folder(folder, number), Ending("target_met"))
    assert is_finished(job) and "instances.count=2" in job.words() and "--auto-resume" in job.words()
    more = replace(job, instances=3, ranks=2)
    check_records([more])
    assert not is_finished(more)


def test_seeds_are_distinct(folder):
    for counts in ({"first": 40, "second": 40}, {"first": 60, "second": 40}):
        runs = plan_runs(folder, counts)
        for run in runs:
            run.write_record()
    assert len({run.seed for run in runs}) == 100
