"""The power of a node in its description: one reading of a meter of the whole node, or why there is none."""

import json
import os

import pytest

from common.measure.power_sources import Clock
from submission.system.__main__ import main
from submission.system.machine import Reading, power_note, read_node

NOTE = "power of a node when described: "


class Time:
    """A clock that only waiting moves; `waits` are called one after the other."""

    def __init__(self, *waits):
        self.now, self.waits = 0.0, list(waits)

    def sleep(self, seconds):
        self.now += seconds
        if self.waits:
            self.waits.pop(0)()

    def clock(self):
        return Clock(lambda: self.now, lambda: self.now, self.sleep)


@pytest.fixture
def describe(tmp_path, call):
    """Describe this machine with the options; return what is said, and hw_notes."""

    def describe_machine(*words):
        said = call(main, "-o", tmp_path / "system.json", *words).err
        return said, json.loads((tmp_path / "system.json").read_text())["hw_notes"]

    return describe_machine


def test_the_power_is_told_and_noted(describe):
    said, notes = describe("--power", "command:node:watts:echo 250")
    assert notes.endswith(f"{NOTE}250 W (command)") and "node 0 (" in said.partition("): 250 W\n")[0]


def test_a_note_of_people_keeps_its_text_and_gets_the_new_reading(tmp_path, describe):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"hw_notes": f"hot water; {NOTE}999 W (ipmi)"}))
    words = ("--from", other, "--power", "command:node:watts:echo 250")
    assert describe(*words)[1] == f"hot water; {NOTE}250 W (command)"
    assert describe(*words, "--set", "hw_notes=as given", "--force")[1] == "as given"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("command:node:watts:echo broken >&2; exit 3", "echo broken >&2; exit 3: ended with exit status 3: broken"),
        ("command:node:watts:echo {host}", "expected watts, one number above 0, not "),
        ("command:node:watts:echo -5", "expected watts, one number above 0, not '-5'"),
        ("command:node:watts:echo nan", "not 'nan'"),
        ("command:node:watts:echo 2e6", "2000000.0 is not a power in watts"),
        ("command:node:watts:no-such-meter", "no-such-meter: ended with exit status 127"),
        ("file:node:watts:missing", "missing: no such file"),
    ],
)
def test_without_a_reading_the_reason_is_told(source, said, describe, monkeypatch):
    monkeypatch.setattr("submission.system.machine.PATIENCE_S", 0)
    text, notes = describe("--power", source)
    assert said in text.partition("warning: no power of node")[2].partition("\n")[0] and "power" not in notes


@pytest.mark.parametrize("source", ["rapl", "nvml", "rapl:/tmp", "command:device:watts:echo 250", "bogus", "", "250"])
def test_a_source_that_does_not_read_whole_nodes_is_wrong_use(source, tmp_path, call):
    error = call(main, "-o", tmp_path / "system.json", "--power", source, status=2).err
    assert "reads parts of a node" in error or "expected one of command, file" in error
    assert list(tmp_path.iterdir()) == []


def test_a_file_counts_once_its_meter_writes(tmp_path):
    path = tmp_path / "n1"
    path.write_text("240\n")
    os.utime(path, (1, 1))
    time = Time(lambda: None, lambda: path.write_text("250\n"))
    assert read_node(f"file:node:watts:{tmp_path}/{{host}}", "n1.example.org", time.clock()) == Reading(250.0)
    assert "waiting until it changes" in read_node(f"file:node:watts:{path}", "n1", Time().clock()).problem


def test_the_note_has_the_range_of_the_nodes_that_were_read():
    readings = [Reading(watts) for watts in (260, 240.04, 251.7)]
    assert power_note(readings, "command:x") == f"{NOTE}240 to 260 W (command)"
    assert power_note([*readings, Reading(None, "x")], "file:x") == f"{NOTE}240 to 260 W (file, 3 of 4 nodes)"
    assert power_note([Reading(None, "x")], "command:x") == ""
