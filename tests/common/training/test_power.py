"""Power in a training: one recorder for each node, from before init_start until after run_stop."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from unittest.mock import Mock

import pytest

from common.config import rebuild
from common.measure.power import Measurement, read_energy, record_power
from common.measure.power_sources import Clock, open_source
from common.ranks.dist import make_single_dist
from common.training import merit
from common.training.merit import PowerConfig, recording_power
from compliance.logs.power import read_power
from compliance.logs.run import parse_run
from tests.common.files import write_program
from tests.cosmoflow.case import CASE
from tests.problems import ROOT

METER = "power.source=command:node:watts:echo 250"


@pytest.fixture
def case():
    return CASE


@pytest.fixture
def run(config, monkeypatch):
    """Train in this process; return the exit status."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return lambda *arguments: CASE.train.main([config, "power.interval_s=0.05", *arguments])


def measured(path="run/power/node_0.txt"):
    log = Path("run/result_0.txt")
    run = parse_run(log.read_bytes(), str(log))
    return run, read_power([path], [], run.start_ms, run.stop_ms).nodes[0]


def test_a_node_is_measured_from_before_the_run_until_after_it(run, capsys):
    assert run(METER) == 4
    result, node = measured()
    begin_ms = json.loads(Path("run/result_0.txt").read_text().splitlines()[0].removeprefix(":::MLLOG "))["time_ms"]
    assert node.starts.value < begin_ms and node.end_ms >= result.stop_ms
    assert (node.problems, node.starts.count, node.stops.count, node.gaps.count) == ([], 1, 1, 0)
    seconds = (result.stop_ms - result.start_ms) / 1000
    assert node.joules == pytest.approx(250 * seconds)
    energy = read_energy(Path("run/power"), 1, result.start_ms, result.stop_ms)
    assert (energy.energy_j, energy.energy_scope) == (pytest.approx(250 * seconds), "node")
    told = capsys.readouterr().out
    assert f"power: {Path('run/power/node_0.txt')}: {node.readings} readings, 0 missed" in told
    found = json.loads(Path("run/fom.json").read_text())
    assert {name: found[name] for name in asdict(energy)} == asdict(energy)
    assert (energy.energy_source, energy.energy_window_s) == ("command", pytest.approx(seconds))
    assert told.splitlines()[-1].endswith(f" joules {found['energy_j']:.6g} samples/J {found['samples_per_j']:.4g}")


def test_a_meter_that_falls_silent_gives_no_energy(run, capsys):
    write_program(Path("once"), "#!/bin/sh\n[ ! -e said ] && touch said && echo 250\n")
    assert run("power.source=command:node:watts:./once") == 4
    found, told = json.loads(Path("run/fom.json").read_text()), capsys.readouterr().out
    assert found["energy_j"] is found["energy_scope"] is found["samples_per_j"] is None
    assert "power: run/power/node_0.txt: 1 readings" in told and "quality" in told.splitlines()[-1].split()[-2]


def test_a_figure_that_cannot_be_written_leaves_the_result(run, monkeypatch, capsys):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("common.training.run.compute_figure", Mock(side_effect=full))
    assert run("power.source=") == 4
    assert "fom.json: [Errno 28] No space left on device; going on without it" in capsys.readouterr().err
    assert not Path("run/power").exists()


def test_a_resumed_run_goes_on_with_its_file(run):
    with subprocess.Popen(
        [sys.executable, "-m", "cosmoflow.train", "small.yaml", METER, "train.epochs=100000"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    ) as process:
        while not list(Path().glob("run/checkpoints/epoch-0002*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    path = Path("run/power/node_0.txt")
    while b"power_measurement_stop" not in path.read_bytes():  # the recorder sees that its parent is gone
        time.sleep(0.02)
    before = path.read_bytes().splitlines()[:-1]
    assert run("--auto-resume", METER, "power.efficiency=0.9") == 1, "one file has one efficiency"
    assert path.read_bytes().splitlines()[:-1] == before
    assert run("--auto-resume", METER) == 4
    _, node = measured()
    assert path.read_bytes().splitlines()[: len(before)] == before and node.readings > len(before)
    assert (node.problems, node.starts.count, node.stops.count, node.backward.count) == ([], 1, 1, 0)
    Path("run/result_0.txt").rename("elsewhere")
    Path("run/ended.json").unlink()
    assert run(METER, "train.epochs=1") == 4
    assert Path("run/power.interrupted-1/node_0.txt").read_bytes().splitlines()[: len(before)] == before
    assert path.read_bytes().splitlines()[0] != before[0]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["power.source=meter"], 2, "power.source is 'meter'; expected one of command"),
        (
            ["power.source=command:node:watts:no_such_program"],
            1,
            "command:node:watts:no_such_program': no reading: no_such_program: ended with exit status 127",
        ),
        (["power.source=rapl:nowhere"], 1, "power.source is 'rapl:nowhere': nowhere: expected intel-rapl:N"),
        (["power.source=command:node:watts:false"], 1, "': no reading: false: ended with exit status 1"),
        (
            ["power.source=ipmi"],
            2,
            "power.source ipmi was removed; give instead, in single quotes: command:node:watts:ipmitool",
        ),
        ([METER, "power.interval_s=2"], 2, "interval_s is 2; expected 0.05 to 1 seconds"),
        ([METER, "power.efficiency=94"], 2, "efficiency is 94; expected a share"),
        ([METER, "power.efficiency=0.9", "power.dc=true"], 2, "expected 1 with dc"),
        ([METER, "instances.count=2", "instances.ranks=1"], 2, "cannot tell its instances apart"),
    ],
)
def test_a_source_without_readings_fails_the_run_before_it_begins(arguments, status, message, run, monkeypatch, capsys):
    monkeypatch.setattr(merit, "FIRST_READING_S", 5.0)  # in which a busy machine starts the recorder
    assert run(*arguments) == status
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and error.count("\n") == 1
    assert not Path("run/result_0.txt").exists()


def test_a_checkpoint_of_a_former_source_can_be_read():
    assert rebuild(PowerConfig, {"source": "ipmi"}, "checkpoint").source == "ipmi"


@pytest.fixture
def processes(monkeypatch):
    started, begin = [], subprocess.Popen
    monkeypatch.setattr(
        merit.subprocess, "Popen", lambda *words, **how: started.append(begin(*words, **how)) or started[-1]
    )
    return started


@pytest.mark.parametrize("node", [0, 1])
def test_a_recorder_that_dies_is_told_at_the_end(node, tmp_path, processes, capsys):
    ranks = make_single_dist()
    ranks.node_rank, ranks.is_main = node, node == 0
    with recording_power(PowerConfig(source="command:node:watts:echo 1"), tmp_path, ranks):
        assert os.getsid(processes[0].pid) == processes[0].pid, "Ctrl-C would reach it"
        processes[0].kill()
        processes[0].wait()
    error = capsys.readouterr().err
    assert "power: the recorder ended before the run did (exit status -9)" in error
    assert f"node_{node}.txt lacks readings" in error


def test_readings_of_a_clock_that_was_ahead_are_not_those_of_now(tmp_path, monkeypatch):
    monkeypatch.setattr(merit, "FIRST_READING_S", 5.0)
    ahead = Clock(wall=lambda: time.time() + 10_000)
    (tmp_path / "power").mkdir()
    measurement = Measurement("command", open_source("command:node:watts:echo 1", ahead)[1])
    record_power(tmp_path / "power/node_0.txt", measurement, lambda seconds: seconds > 0.5, ahead, print)
    with (
        pytest.raises(ValueError, match="the clock was set"),
        recording_power(PowerConfig(source="command:node:watts:echo 1"), tmp_path, make_single_dist()),
    ):
        pytest.fail("the run began")


def test_another_node_without_readings_fails_the_run_here(tmp_path, processes, monkeypatch):
    ranks = make_single_dist()
    monkeypatch.setattr(ranks, "find_first", lambda value: value or "node 1: no meter")
    with (
        pytest.raises(ValueError, match=r"power\.source is .command:node:watts:echo 1.: node 1: no meter"),
        recording_power(PowerConfig(source="command:node:watts:echo 1"), tmp_path, ranks),
    ):
        pytest.fail("the run began")
    assert processes[0].returncode == 0


def test_one_rank_of_a_node_records(tmp_path, processes):
    ranks = make_single_dist()
    ranks.local_rank = 1
    with recording_power(PowerConfig(source="command:node:watts:echo 1"), tmp_path, ranks):
        assert not processes
