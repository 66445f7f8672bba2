"""The runs of a round, with stand-ins for the training: runs that crash, are killed, or miss the target."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from submission.round.processes import JobRunner, hold_lock

from common.ending import NAME as ENDED
from common.lock import LockedError
from compliance.model.layout import discover
from submission.round.runs import STATE, Runs, State, StateError, load_state

ROOT = Path(__file__).parents[3]
STAND_IN = """
import os, sys, time
from pathlib import Path
from common.ending import Ending, write_ending
from compliance.samples.log import SampleLog

folder, seed, story = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if story == "refused":
    print("error: no such key")
    sys.exit(2)
if story == "crash once":
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


def stand_in(*stories):
    """Return a function that makes commands: run i has the i-th story; all later runs are good."""

    def command(benchmark, config, folder, seed):
        number = int(folder.name.removeprefix("run_"))
        story = stories[number] if number < len(stories) else "good"
        return sys.executable, "-c", STAND_IN, str(folder), str(seed), story

    return command


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "round"


def load_runs(folder, counts, *stories):
    folder.mkdir(exist_ok=True)
    state = load_state(folder)
    state.request_runs(counts)
    return Runs(folder, state, stand_in(*stories))


def make(folder, counts, *stories, **workers):
    runs = load_runs(folder, counts, *stories)
    runs.make(JobRunner(**workers))
    return runs


def test_a_run_that_crashed_restarts_with_its_seed(folder, capsys):
    runs = make(folder, {"cosmoflow": 2}, "good", "crash once")
    out = capsys.readouterr().out
    kept = folder / "cosmoflow/attempts/run_1-1"
    assert f"cosmoflow/run_1 crashed (ended by SIGSEGV), restarting; its output: {kept}/output" in out
    assert "  | \\x1b[31mat the end\n" in out and "[2/2] cosmoflow/run_1 met the target after 3 evaluations" in out
    assert len(runs.logs()) == 2 and len(runs.finished) == 2
    seeds = [run.seed for run in runs.state.runs["cosmoflow"]]
    assert len(set(seeds)) == 2 and load_state(folder) == runs.state
    for path in (kept / "result_0.txt.interrupted", folder / "cosmoflow/run_1/result_0.txt"):
        assert f'"key": "seed", "value": {seeds[1]}' in path.read_text()


def test_a_run_that_missed_the_target_is_kept(folder, capsys):
    make(folder, {"cosmoflow": 1}, "weak")
    assert (
        "cosmoflow/run_0 did NOT meet the target (the run is kept) after 3 evaluations (0.5)" in capsys.readouterr().out
    )
    before = (folder / "cosmoflow/run_0/result_0.txt").stat()
    grown = make(folder, {"cosmoflow": 2})
    assert (folder / "cosmoflow/run_0/result_0.txt").stat() == before
    assert [run.status for run in grown.finished.values()] == ["aborted", "success"]
    assert "[2/2] cosmoflow/run_1 met" in capsys.readouterr().out


def test_a_run_that_always_crashes_is_given_up_and_other_benchmarks_continue(folder, capsys):
    runs = make(folder, {"cosmoflow": 2, "deepcam": 1}, "crash", attempts=2)
    assert discover([str(folder / "cosmoflow/attempts")]).folders[0].logs == [], "no log, though the output is kept"
    assert "given up after 2 attempts" in capsys.readouterr().out
    assert list(runs.finished) == [] and len(list((folder / "cosmoflow/attempts").iterdir())) == 2
    assert not (folder / "cosmoflow/run_1").exists() and (folder / "deepcam/attempts").exists()
    assert len(make(folder, {"cosmoflow": 2, "deepcam": 1}).finished) == 3


def test_a_run_that_is_called_in_a_wrong_way_is_not_restarted(folder, capsys):
    make(folder, {"cosmoflow": 2}, "refused")
    kept = folder / "cosmoflow/attempts"
    said = f"cosmoflow/run_0 was refused (wrong use), not restarted; its output: {kept}/run_0-1/output\n"
    assert f"{said}  | error: no such key\n" in capsys.readouterr().out
    assert [path.name for path in kept.iterdir()] == ["run_0-1"] and not (folder / "cosmoflow/run_1").exists()


def test_concurrent_runs_share_the_cores(folder):
    make(folder, {"cosmoflow": 2}, "together", "together", size=2, threads=3)
    assert (folder / "cosmoflow/run_1/output").read_text() == "threads 3\n"


def test_what_takes_long_says_so_and_gives_no_advice(folder, capfd, monkeypatch):
    monkeypatch.setattr("submission.round.runs.BEAT_S", 0.0)
    make(folder, {"cosmoflow": 1})
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] in ("cosmoflow/run_0: no output so far", "cosmoflow/run_0: threads 2"), "the last line, if any"
    monkeypatch.setattr("submission.round.processes.BEAT_S", 0.1)
    inner = "import sys, time; print('next: train', flush=True); time.sleep(0.5); sys.exit('error: no space')"
    assert JobRunner().run([sys.executable, "-c", inner], instead="generating data") == 1
    out, error = capfd.readouterr()
    assert "generating data: 0.1 s so far" in out and "next" not in out and "no space" in error


@contextlib.contextmanager
def in_the_middle(folder):
    """Yield a process that trains three runs, and the process id of its second run, which does not end."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from common.command import run_command
from submission.round.processes import hold_lock
from test_processes import make
folder = Path({str(folder)!r})
with hold_lock(folder) as lock:
    sys.exit(run_command(lambda: make(folder, {{"cosmoflow": 3}}, "good", "sleep", lock=lock) and 0, ()))
"""
    pid = folder / "cosmoflow/run_1/pid"
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
        seeds = [run.seed for run in load_state(folder).runs["cosmoflow"]]
        before = (folder / "cosmoflow/run_0/result_0.txt").stat()
        process.send_signal(number)
        assert process.wait(120) == (130 if number == signal.SIGINT else -number)
        if sys.platform == "linux":
            assert has_ended(pid)
    with hold_lock(folder) as lock:
        runs = make(folder, {"cosmoflow": 3}, lock=lock)
    assert len(runs.finished) == 3 and [run.seed for run in runs.state.runs["cosmoflow"]] == seeds
    assert (folder / "cosmoflow/run_0/result_0.txt").stat() == before
    assert (folder / "cosmoflow/attempts/run_1-1/result_0.txt.interrupted").exists()


@pytest.mark.parametrize("story", ["fail", "stopped"])
def test_an_error_of_the_machine_and_a_signal_are_no_results(folder, story, capsys):
    """The log has a run_stop as that of a run that missed its target."""
    runs = make(folder, {"cosmoflow": 1}, story, attempts=2)
    said = "crashed (failed: the disk is full)" if story == "fail" else "crashed (stopped)"
    assert not runs.finished and said in capsys.readouterr().out
    seed = runs.state.runs["cosmoflow"][0].seed
    finished = make(folder, {"cosmoflow": 1})
    assert len(finished.finished) == 1 and finished.state.runs["cosmoflow"][0].seed == seed


def test_a_success_counts_whoever_saw_it_end(folder):
    """The round was killed before it noted anything, and the training before it wrote its own record."""
    make(folder, {"cosmoflow": 1})
    (folder / "cosmoflow/run_0" / ENDED).unlink()
    assert len(load_runs(folder, {"cosmoflow": 1}).finished) == 1


def test_a_round_only_grows(folder):
    load_runs(folder, {"cosmoflow": 2, "oc20": 1}).state.save(folder)
    for fewer in ({"cosmoflow": 1, "oc20": 1}, {"cosmoflow": 2}):
        with pytest.raises(StateError, match="a round can only grow"):
            load_state(folder).request_runs(fewer)
    (folder / STATE).write_text('{"runs": {"cosmoflow": [{"seed": "x"}]}}')
    with pytest.raises(StateError, match=r"round\.json is not the state of a round"):
        load_state(folder)


def test_seeds_are_distinct():
    state = State()
    state.request_runs({"cosmoflow": 40, "deepcam": 40})
    state.request_runs({"cosmoflow": 60, "deepcam": 40})
    assert len({run.seed for runs in state.runs.values() for run in runs}) == 100
