"""Power files: what they contain after meters and clocks that work or do not, and that the checker accepts them."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest

from common.measure import power_sources
from common.measure.__main__ import main
from common.measure.power import Energy, Measurement, Recorder, TimedReader, read_energy, record_power
from common.measure.power_sources import Clock, ReadingError, open_source, read_command
from common.record import PARTS_SCOPE
from compliance.engine import Options, check_paths
from compliance.logs.power import read_power
from compliance.samples.package import SamplePackage
from tests.common.files import write_files, write_program
from tests.problems import ROOT

BEGIN_S = 1_700_000_000.0
WINDOW = (BEGIN_S * 1000, (BEGIN_S + 100) * 1000)


class Time:
    """A simulated clock; `events` happen after each wait."""

    def __init__(self, begin_s=BEGIN_S):
        self.seconds, self.begin_s, self.events = 0.0, begin_s, lambda seconds: None
        self.clock = Clock(lambda: self.begin_s + self.seconds, lambda: self.seconds, self.sleep)

    def sleep(self, seconds):
        self.seconds += seconds
        self.events(self.seconds)


def make_meter(watts=(), scope="node"):
    """Return a source with these readings, and then 250 W."""
    return SimpleNamespace(
        name="cat power1", scope=scope, read_watts=itertools.chain(watts, itertools.repeat(250.0)).__next__
    )


def recorded(path, source, time, seconds=100):
    said = []
    summary = record_power(path, Measurement("file", source), lambda s: s >= seconds, time.clock, said.append)
    return summary, read_power([str(path)], [], BEGIN_S * 1000, (BEGIN_S + seconds) * 1000).nodes[0], said


def record(output, *arguments, source="command:node:watts:echo 1"):
    """Run `python -m common.measure power`; return its exit status."""
    return main(["power", "--source", source, "-o", str(output), *arguments])


def meter_file(tmp_path, time, runs=lambda seconds: True):
    path = tmp_path / "watts"
    path.write_text("17\n250\n")

    def update(seconds):
        if runs(seconds):
            os.utime(path, ns=(0, int(seconds * 1e9)))

    time.events = update
    return open_source(f"file:node:watts:{path}", time.clock)[1]


def test_a_stopped_meter_leaves_a_gap(tmp_path):
    time = Time()
    source = meter_file(tmp_path, time, lambda seconds: not 40 <= seconds < 60)
    summary, log, said = recorded(tmp_path / "node_0.txt", source, time)
    assert summary.gaps == log.gaps.count == 1
    assert log.gaps.value == pytest.approx(18_500, abs=1000)
    assert summary.covered_s == pytest.approx(81.5, abs=1)
    assert summary.joules == pytest.approx(250 * summary.covered_s)
    assert "meter seems to have stopped" in said[-1]


@pytest.mark.parametrize("jump_s", [30, 1, 0.5, 0.3, -0.5, -30])
def test_a_clock_that_is_set_leaves_a_gap(jump_s, tmp_path):
    time = Time()

    def jump(seconds):
        time.begin_s = BEGIN_S + (jump_s if seconds >= 50 else 0)

    time.events = jump
    summary, log, said = recorded(tmp_path / "node_0.txt", make_meter(), time)
    assert summary.gaps == 1 and summary.missed >= 1
    assert summary.covered_s < (100 if jump_s > 0 else 100 + jump_s)
    assert (log.backward.count, log.gaps.count) == (0, 1)
    assert f"no reading: the clock was set by {jump_s:+.1f} s" in said
    assert log.joules <= 25_000 * 1.001, "nothing is invented"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e308])
def test_what_is_no_power_is_not_written(value, tmp_path):
    summary, log, _ = recorded(tmp_path / "node_0.txt", make_meter([100.0, value, value, value]), Time(), 10)
    assert (summary.missed, log.readings, log.invalid.count) == (3, 17, 0)


@pytest.mark.parametrize(
    ("value", "unit", "change"),
    [(312e6, "microwatts", "/ 1000000"), (312e3, "milliwatts", "/ 1000"), (0.312, "kilowatts", "* 1000")],
)
def test_a_reading_in_another_unit_is_told_with_the_conversion(value, unit, change, tmp_path):
    said = recorded(tmp_path / "node_0.txt", make_meter([value]), Time(), 10)[2]
    assert f"cat power1: the {'' if value > 1e6 else 'first '}reading is {value:,.10g}" in said[0]
    assert unit in said[0] and change in said[0] and len(said) == 1


@pytest.mark.parametrize(("script", "said"), [("sleep 300", "answer within"), ("exec yes", "printed 1,048,576 bytes")])
def test_a_command_that_does_not_answer_is_killed_with_its_children(script, said, tmp_path, capsys):
    program = write_program(tmp_path / "meter", f"#!/bin/sh\n{script} & echo $! > {tmp_path}/child\nwait\n")
    assert record(tmp_path / "node_0.txt", "--seconds", "0.5", source=f"command:node:watts:{program}") == 1
    assert said in capsys.readouterr().err
    deadline = time.monotonic() + 60  # a killed process takes a moment to end
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(int((tmp_path / "child").read_text())).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("script", "output", "told"),
    [
        ("yes warn | head -c 200000 >&2; echo 250", "250", None),
        ("yes warn | head -c 200000 >&2; echo last >&2; exit 3", None, "exit status 3: .*warn last$"),
        ("exit 3", None, "exit status 3: it printed nothing$"),
        ("printf 'a\\033[31mb' >&2; exit 3", None, r"exit status 3: a\[31mb$"),
        ("setsid sleep 3 & echo 250", None, "no answer within 1.8 s"),  # it cannot be killed with the others
        ("cd /; X=250 && echo $X", "250", None),
    ],
)
def test_what_a_command_prints(script, output, told):
    if told is None:
        assert read_command(script) == output
    else:
        with pytest.raises(ReadingError, match=told):
            read_command(script)


@pytest.mark.parametrize("start", ["#!/nowhere\n", "garbage"])
def test_a_command_that_cannot_be_run_leaves_no_file(start, tmp_path, capsys):
    command, output = write_program(tmp_path / "bad", start), tmp_path / "node_0.txt"
    assert record(output, "--", str(command)) == 2
    assert f"{command}: cannot be run: " in capsys.readouterr().err and not output.exists()


def test_a_disk_that_is_full_at_once_is_told_with_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Recorder, "write_start", Mock(side_effect=OSError(28, "No space left on device")))
    output, ran = tmp_path / "node_0.txt", tmp_path / "ran"
    assert record(output, "--", "touch", str(ran)) == 1
    assert "readings are missing, and the command was not run" in capsys.readouterr().err
    assert not output.exists() and not ran.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_the_status_of_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Recorder, "take_reading", lambda _: Path("/dev/full").write_bytes(b"x"))
    assert record(tmp_path / "node_0.txt", "--interval", "0.05", "--", "sh", "-c", "sleep 0.3; exit 3") == 3
    assert "node_0.txt: No space left on device; readings are missing" in capsys.readouterr().err


def test_a_source_that_hangs_is_left_alone():
    reader = TimedReader(open_source("command:node:watts:sleep 1", Clock())[1], timeout_s=0.05)
    with pytest.raises(ReadingError, match=r"did not answer within 0\.05 s"):
        reader.read_watts()
    with pytest.raises(ReadingError, match="still does not answer"):
        reader.read_watts()


# -- RAPL ----------------------------------------------------------------------------------------------------

RANGE_UJ = 262_143_328_850


@pytest.fixture
def powercap(tmp_path):
    zones = {"intel-rapl:0": "package-0", "intel-rapl:1": "package-1", "intel-rapl:0:0": "dram", "intel-rapl:2": "psys"}
    write_files(tmp_path / "powercap", {f"{zone}/name": f"{name}\n".encode() for zone, name in zones.items()})
    write_files(tmp_path / "powercap", dict.fromkeys([f"{zone}/energy_uj" for zone in zones], b"0\n"))
    draw(tmp_path / "powercap", 0)
    return tmp_path / "powercap"


def draw(root, used_uj):
    for path in root.glob("*/energy_uj"):
        path.write_text(f"{(RANGE_UJ - 20_000_000 + int(used_uj)) % RANGE_UJ}\n")


def test_rapl_counts_packages_once_and_across_a_wrap(powercap, tmp_path):
    time = Time()
    time.events = lambda seconds: draw(powercap, (seconds - 5) * 120e6)  # wraps after 5.17 s
    summary, log, said = recorded(tmp_path / "rapl_0.txt", open_source(f"rapl:{powercap}", time.clock)[1], time, 20)
    assert log.lowest == pytest.approx(240) and log.highest == pytest.approx(240)
    assert (log.readings, summary.joules) == (38, pytest.approx(4800))
    assert [f"{powercap}: waiting until the counter rises" in message for message in said] == [True, True]


# -- tools and the command --------------------------------------------------------------------------------


PAGE = (ROOT / "docs/guide/power.md").read_text()
DCMI = """
    Instantaneous power reading:                   {watts:3} Watts
    Minimum during sampling period:                {watts:3} Watts
    Maximum during sampling period:                {watts:3} Watts
    Average power reading over sample period:      {watts:3} Watts
    IPMI timestamp:                           Thu Jan  1 00:00:00 1970
    Sampling period:                          00000000 Seconds.
    Power reading state is:                   {state}

"""
OLDER_REDFISH = "command:node:watts:curl -sSf --netrc https://bmc/redfish/v1/Chassis/1/Power "
ROCM = "device,Average Graphics Package Power (W)\n"


def documented(start):
    """Return the source of the page that begins so."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(start)]
    return line


@pytest.fixture
def reads(tmp_path, monkeypatch):
    """Return what a documented source reads where its tool prints a text."""

    def read(start, output, errors="", status=0):
        source = documented(start)
        (tmp_path / "output").write_text(output)
        write_program(
            tmp_path / source.split(":")[3].split()[0],
            f"#!/bin/sh\necho '{errors}' >&2; cat {tmp_path}/output; exit {status}\n",
        )
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return open_source(source, Clock())[1].read_watts()

    return read


@pytest.mark.parametrize(
    ("source", "output", "watts"),
    [
        ("command:node:watts:ipmitool dcmi", DCMI.format(watts=250, state="activated"), 250),
        ("command:node:watts:ipmitool sdr", "Fan1 | 90 RPM | ok\nPwr Consumption  | 240 Watts         | ok\n", 240),
        ("command:device:watts:nvidia-smi", "70.5\n100\n", 170.5),
        ("command:device:watts:rocm-smi", f"{ROCM}card0,42.0\ncard1,N/A (Secondary die)\ncard2,41.5\n\n", 83.5),
    ],
)
def test_documented_commands_read_what_tools_print(source, output, watts, reads):
    assert reads(source, output) == watts


@pytest.mark.parametrize(
    ("scope", "source", "output", "message"),
    [
        ("node", "ipmitool dcmi", DCMI.format(watts=0, state="deactivated"), "not '0 Power reading state is: deac"),
        ("node", "ipmitool dcmi", DCMI.format(watts=360, state="deactivated"), "not '360 Power reading state is: deac"),
        ("node", "ipmitool dcmi", DCMI.format(watts=0, state="activated"), "watts, one number above 0, not '0'"),
        ("node", "ipmitool sdr", "Pwr Consumption | disabled        | ns\n", "not 'Pwr Consumption | disabled | ns'"),
        ("device", "nvidia-smi", "[N/A]\n[N/A]\n", "expected watts, a number in each line, not '[N/A] [N/A]'"),
        ("device", "nvidia-smi", "[Not Supported]\n250.12\n", "not '[Not Supported] 250.12'"),
        ("device", "nvidia-smi", "250.12\n[Unknown Error]\n", "not '250.12 [Unknown Error]'"),
        ("device", "nvidia-smi", "250.12 W\n", "not '250.12 W'"),
        ("device", "rocm-smi", f"{ROCM}card0,42.0\ncard1,N/A\n", "not '42.0 N/A'"),
    ],
)
def test_what_is_no_reading_is_quoted_with_its_command(scope, source, output, message, reads):
    with pytest.raises(ReadingError, match=rf"^{source}.*{re.escape(message)}"):
        reads(f"command:{scope}:watts:{source}", output)


def test_a_tool_that_fails_is_quoted(reads):
    with pytest.raises(ReadingError, match=r"DCMI request failed because: Invalid command \(c1\)$"):
        reads("command:node:watts:ipmitool dcmi", "", "DCMI request failed because: Invalid command (c1)", 1)
    with pytest.raises(ReadingError, match=r"exit status 15: GPU is lost\. Reboot the system$"):
        reads("command:device:watts:nvidia-smi", "GPU is lost.  Reboot the system\n", "", 15)


def read_joules(texts, pause_s):
    """Return the watts that follow from what a counter of several devices shows, or why there are none."""
    time, values, said = Time(), iter(texts), []
    meter = power_sources.Meter("joules", lambda: next(values), PARTS_SCOPE, "joules", time.clock)
    for _ in texts:
        time.seconds += pause_s
        try:
            said.append(meter.read_watts())
        except ReadingError as error:
            said.append(str(error))
    return said


def test_joules_become_the_watts_since_the_counter_rose():
    watts = read_joules(["7\n100", "7\n100", "9\n102", "30\n130", "1\n2", "2\n3"], 0.5)
    wait = "joules: waiting until the counter rises above"
    assert watts == [f"{wait} 107 J", f"{wait} 107 J", 4.0, 98.0, f"{wait} 3 J", 4.0]


def test_a_device_that_drops_out_is_no_reading():
    said = read_joules(["7\n100", "107", "8\n101", "9\n103"], 1)
    assert said[1] == "joules: expected 2 numbers as at first, not 1"
    assert said[2] == "joules: waiting until the counter rises above 109 J" and said[3] == 3.0


def test_nvml_is_the_sum_of_all_gpus(tmp_path, monkeypatch):
    write_program(tmp_path / "nvidia-smi", "#!/bin/sh\nprintf '70.5\\n100\\n'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    name, source = open_source("nvml", Clock())
    assert (name, source.scope, source.read_watts()) == ("nvml", "estimate of parts", 170.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "nvml"], "nvidia-smi: not found; install it"),
        (["--source", "meter"], "expected one of command, file, rapl, nvml"),
        (["--source", "nvml:0"], "expected one of command, file, rapl, nvml"),
        (["--source", "command:echo 1"], "'command:echo 1'; expected command:SCOPE:UNIT:COMMAND, with node or device"),
        (["--source", "command:node:kilowatts:echo 1"], "expected command:SCOPE:UNIT:COMMAND"),
        (["--source", "file:device:joules:"], "expected file:SCOPE:UNIT:PATH"),
        (["--source", "ipmi"], f"give instead, in single quotes: {documented('command:node:watts:ipmitool dcmi')}"),
        (["--source", "ipmi:-H bmc"], "give instead, in single quotes: command:node:watts:ipmitool -H bmc dcmi power"),
        (["--source", "redfish:https://bmc/redfish/v1/Chassis/1/Power"], documented(OLDER_REDFISH)),
        (["--source", "rapl:nowhere"], "expected intel-rapl:N"),
        (["--source", "file:node:watts:nowhere"], "nowhere: no such file"),
        (["--source", "command:node:watts:echo 1", "--interval", "2"], "expected 0.05 to 1 seconds"),
        (["--source", "command:node:watts:echo 1", "--interval", "nan"], "expected 0.05 to 1 seconds"),
        (["--source", "command:node:watts:echo 1", "--efficiency", "94"], "expected a share"),
        (["--source", "command:node:watts:echo 1", "--efficiency", "0.9", "--dc"], "nothing is converted"),
        (["--source", "command:node:watts:echo 1", "--seconds", "1", "--", "true"], "not both"),
        (["--source", "command:node:watts:echo 1", "--", "no_such_program"], "no such command"),
    ],
)
def test_wrong_use_is_explained(arguments, message, tmp_path, monkeypatch, capsys):
    programs, folder = tmp_path / "programs", tmp_path / "power"  # no nvidia-smi, even where it is installed
    programs.mkdir()
    folder.mkdir()
    for name in ("echo", "true"):
        (programs / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(programs))
    assert main(["power", "-o", str(folder / "node_0.txt"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_estimates_are_not_written_as_power_of_a_node(powercap, tmp_path, capsys):
    assert record(tmp_path / "node_0.txt", source=f"rapl:{powercap}") == 2
    assert "choose another name, such as rapl_0.txt" in capsys.readouterr().err
    parts = "command:device:watts:printf '70\\n30\\n'"
    assert record(tmp_path / "node_0.txt", source=parts) == 2
    assert "choose another name, such as command_0.txt" in capsys.readouterr().err
    assert record(tmp_path / "command_0.txt", "--seconds", "0.5", "--interval", "0.1", source=parts) == 0
    assert b'"value": 100.0' in (tmp_path / "command_0.txt").read_bytes()


def test_power_is_recorded_while_a_command_runs(tmp_path, capfd):
    path = tmp_path / "node_0.txt"
    assert record(path, "--interval", "0.05", "--", sys.executable, "-c", "import time; time.sleep(0.3); exit(3)") == 3
    (log,) = read_power([str(path)], [], None, None).nodes
    assert log.readings >= 3 and log.lowest == log.highest == 1 and log.stops.count == 1
    assert f"{path}: {log.readings} readings, 0 missed" in capfd.readouterr().err
    before = path.read_bytes()
    assert record(path) == 2
    assert path.read_bytes() == before and "already exists" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_file_is_complete_after_a_signal(number, tmp_path):
    path = tmp_path / "node_0.txt"
    words = f"-m common.measure power --interval 0.1 -o {path} --source".split()
    command = [sys.executable, *words, "command:node:watts:echo 250"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (path.exists() and b"power_reading" in path.read_bytes()):
            assert process.poll() is None
        process.send_signal(number)
        assert "0 gaps" in process.communicate(timeout=20)[1]
    assert process.returncode == 0
    (log,) = read_power([str(path)], [], None, None).nodes
    assert log.stops.count == 1 and log.problems == []


def constant(kind, folder, time):
    """Return a source of 250 W: a meter's file, or two processors of a powercap tree."""
    if kind == "file":
        return meter_file(folder, time)
    time.events = lambda seconds: draw(folder / "powercap", seconds * 125e6)
    return open_source(f"rapl:{folder / 'powercap'}", time.clock)[1]


@pytest.mark.parametrize(
    ("kind", "scope", "waits", "refused"),
    [
        ("file", "node", "waiting until it changes, to know that its meter runs", set()),
        ("rapl", PARTS_SCOPE, "waiting until the counter rises above", {"POW11"}),
    ],
)
def test_250_watts_for_100_seconds_are_25_kilojoules_and_pass_the_checker(
    kind, scope, waits, refused, powercap, tmp_path
):
    time = Time()
    (tmp_path / "power").mkdir()
    summary, log, said = recorded(tmp_path / "power" / "node_0.txt", constant(kind, tmp_path, time), time)
    assert log.joules == pytest.approx(25_000, rel=1e-3) and summary.joules == pytest.approx(25_000, rel=0.01)
    assert log.readings == summary.readings >= 198 and "0 gaps" in str(summary)
    assert (summary.gaps, log.gaps.count, log.problems, log.starts.count, log.stops.count) == (0, 0, [], 1, 1)
    assert len(said) == 1 and waits in said[0]
    energy = read_energy(tmp_path / "power", 1, *WINDOW)
    assert (energy.energy_j, energy.energy_scope) == (pytest.approx(25_000, rel=1e-3), scope)
    assert (energy.energy_source, energy.energy_window_s) == ("file", 100)
    assert energy.energy_rate_hz == pytest.approx(2, rel=0.01)
    # Readings reach beyond this window.
    short = (WINDOW[0] + 10_250, WINDOW[0] + 11_500)
    assert read_energy(tmp_path / "power", 1, *short).energy_rate_hz == pytest.approx(2, rel=0.01)
    package = SamplePackage("deepcam").power(nodes=1)
    for name in [name for name in package.files if name.endswith("/node_0.txt")]:
        lines = package.files[name].splitlines()
        first, last = (json.loads(line.removeprefix(b":::MLLOG "))["time_ms"] / 1000 for line in (lines[0], lines[-1]))
        draw(powercap, 0)
        time, path = Time(first), tmp_path / "new.txt"
        measurement = Measurement(kind, constant(kind, tmp_path, time), efficiency=0.94)
        record_power(path, measurement, lambda seconds, over=last - first: seconds >= over, time.clock, print)
        package.files[name] = path.read_bytes()
        path.unlink()
    findings = check_paths([package.write(tmp_path / "Example")], Options()).findings
    assert {one.rule for one in findings if one.severity == "error" and one.rule.startswith("POW")} == refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"17\n", "not a whole power file"),
        (b"{}\n{}\n", "not a whole power file"),
        (b"no line", "not a whole power file"),
        (b":::MLLOG " + b"[" * 100_000 + b"\n", "not a whole power file"),
        (b'{"key": "", "value": 1, "metadata": {}, "time_ms": Infinity}\n' * 3, "not a whole power file"),
        (None, "has readings of: node, efficiency 1.0, AC; now: node, efficiency 0.9, AC; keep these, or move"),
    ],
)
def test_a_file_of_something_else_is_not_continued(content, message, tmp_path, capsys):
    path = tmp_path / "node_0.txt"
    if content is None:
        power_file(path)
    else:
        path.write_bytes(content)
    before, ran = path.read_bytes(), tmp_path / "ran"
    assert record(path, "--append", "--efficiency", "0.9", "--", "touch", str(ran)) == 2 and not ran.exists()
    assert message in capsys.readouterr().err and path.read_bytes() == before


@pytest.mark.parametrize("end", [None, -20])
def test_a_continued_file_has_one_beginning_and_a_gap(end, tmp_path):
    """The recorder ended in order, or was killed in the middle of a line."""
    path = tmp_path / "node_0.txt"
    power_file(path)
    path.write_bytes(path.read_bytes()[:end])
    power_file(path, seconds=40, begin_s=BEGIN_S + 160)
    (log,) = read_power([str(path)], [], BEGIN_S * 1000, (BEGIN_S + 200) * 1000).nodes
    assert (log.problems, log.starts.count, log.stops.count, log.gaps.count) == ([], 1, 1, 1)
    assert log.backward.count == 0 and log.gaps.value == pytest.approx(60_500, abs=1000)
    energy = read_energy(tmp_path, 1, *WINDOW)
    assert (energy.energy_j, energy.energy_scope) == (pytest.approx(25_000, rel=0.01), "node")
    assert read_energy(tmp_path, 1, WINDOW[0], WINDOW[1] + 100_000) == Energy(), "a gap has no energy"


# -- the energy of a run -------------------------------------------------------------------------------------


def energy_of(*arguments):
    energy = read_energy(*arguments)
    return energy.energy_j, energy.energy_scope


def power_file(path, watts=250.0, seconds=100, begin_s=BEGIN_S, scope="node", **settings):
    measurement = Measurement("file", make_meter(itertools.repeat(watts), scope), **settings)
    record_power(path, measurement, lambda passed: passed >= seconds, Time(begin_s).clock, print)


def test_the_energy_of_a_run_is_that_of_its_nodes(tmp_path):
    assert energy_of(tmp_path, 2, *WINDOW) == (None, None)
    power_file(tmp_path / "rapl_0.txt", 70, scope="estimate of parts")
    power_file(tmp_path / "command_1.txt", 30, scope="estimate of parts")
    assert energy_of(tmp_path, 2, *WINDOW) == (pytest.approx(10_000), "estimate of parts")
    power_file(tmp_path / "node_0.txt")
    assert energy_of(tmp_path, 2, *WINDOW) == (None, None), "the file of a node is missing"
    power_file(tmp_path / "node_1.txt", 500, efficiency=0.9)
    assert energy_of(tmp_path, 2, *WINDOW) == (pytest.approx(25_000 + 45_000), "node")
    window = (BEGIN_S + 10) * 1000, (BEGIN_S + 20) * 1000
    assert energy_of(tmp_path, 2, *window) == (pytest.approx(2500 + 4500), "node")


@pytest.mark.parametrize("window_s", [(0, 100), (50, 60), (90, 110), (-10, 5), (100, 101), (-20, -10)])
def test_readings_that_do_not_cover_a_time_give_no_energy_of_it(window_s, tmp_path):
    power_file(tmp_path / "node_0.txt")
    lines = (tmp_path / "node_0.txt").read_bytes().splitlines(keepends=True)
    (tmp_path / "node_0.txt").write_bytes(b"".join(lines[:82] + lines[122:]))  # 20 s from 40 s on
    assert energy_of(tmp_path, 1, *((BEGIN_S + seconds) * 1000 for seconds in window_s)) == (None, None)
    assert energy_of(tmp_path, 1, BEGIN_S * 1000, (BEGIN_S + 40) * 1000) == (pytest.approx(10_000), "node")


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b":::MLLOG {\n", b"\xff\n", b":::MLLOG []\n", b":::MLLOG " + b"[" * 100_000 + b"\n"]
)
def test_a_file_without_readings_leaves_the_energy_unknown(content, tmp_path):
    power_file(tmp_path / "node_0.txt")
    (tmp_path / "node_1.txt").write_bytes(content)
    assert energy_of(tmp_path, 2, *WINDOW) == (None, None)


def test_files_of_other_times_are_left_out(tmp_path):
    later = tuple(time_ms + 1_000_000 for time_ms in WINDOW)
    power_file(tmp_path / "node_0.txt")
    power_file(tmp_path / "node_1.txt")
    (tmp_path / "notes.txt").write_text("of somebody else")
    assert energy_of(tmp_path, 1, *later) == (None, None)
    power_file(tmp_path / "rapl_0.txt", begin_s=BEGIN_S + 1000)
    assert energy_of(tmp_path, 1, *later) == (pytest.approx(25_000), "estimate of parts")


def test_a_renamed_estimate_is_no_node(tmp_path):
    power_file(tmp_path / "node_0.txt", scope="estimate of parts")
    assert energy_of(tmp_path, 1, *WINDOW) == (pytest.approx(25_000), "estimate of parts")
