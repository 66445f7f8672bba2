"""The command behind every benchmark's synthesize.py: pictures, wrong use, and help that is true."""

import os
import re
import sys
from dataclasses import replace

import pytest

pytest.importorskip("ase")
pytest.importorskip("lmdb")

import cosmoflow.synthesize
import deepcam.synthesize
import oc20.synthesize
from cosmoflow.simulation.recipe import PRESETS

SMALL = {
    cosmoflow.synthesize: "--grid 8 --particles 8 --train 4 --validation 2".split(),
    deepcam.synthesize: "--height 48 --width 72 --train 6 --validation 2 --test 1".split(),
    oc20.synthesize: "--slab 2 2 2 --train 4 --validation 2 --frames 2".split(),
}
"""Options for data that are made at once."""
WRONG = {
    cosmoflow.synthesize: [
        ("--particles 7", "even number of particles"),
        ("--length -5", "length_mpc_h must be positive"),
        ("--train 0 --validation 0", "at least one"),
        ("--format hdf5 --compress gzip", "raw universes cannot be compressed"),
    ],
    deepcam.synthesize: [
        ("--width 143", "even width"),
        ("--size 9", "size must be from 1"),
        ("--size 1", "at most 190 km"),
        ("--train 0 --validation 0 --test 0", "at least one"),
    ],
    oc20.synthesize: [
        ("--slab 1 2 3", "at least 2 x 2 atoms"),
        ("--train 0 --validation 0", "at least one"),
        ("--frames 0", "--frames: expected a whole number of at least 1"),
        ("--format xyz", "invalid choice"),
    ],
}
ANYWHERE = [
    ("--workers 0", "--workers: expected a whole number of at least 1"),
    ("--seed -1", "--seed: expected a whole number of at least 0"),
]


@pytest.fixture(params=SMALL, ids=lambda module: module.__name__)
def synthesize(request):
    return request.param


def test_a_picture_is_drawn_with_or_without_data(synthesize, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    assert synthesize.main([*SMALL[synthesize], "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG") and os.listdir(tmp_path) == ["picture.png"]
    assert synthesize.main([*SMALL[synthesize], "--plot", str(tmp_path / "no/where.png")]) == 1
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert synthesize.main([*SMALL[synthesize], "--plot", str(picture)]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def test_arguments_that_do_not_fit_are_wrong_use(synthesize, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    named = [(["out", *options.split()], message) for options, message in WRONG[synthesize] + ANYWHERE]
    for arguments, message in [([], "give OUTPUT_DIR"), *named]:
        with pytest.raises(SystemExit) as stop:
            raise SystemExit(synthesize.main(arguments))
        assert stop.value.code == 2, arguments
        assert message in capsys.readouterr().err and not os.listdir(tmp_path), arguments


def test_help_teaches_and_its_examples_are_understood(synthesize, capsys):
    with pytest.raises(SystemExit) as stop:
        synthesize.main(["--help"])
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out
    start = f"python -m {synthesize.__name__} "
    lines = [line for line in synthesize.EXAMPLES.splitlines() if start in line]
    assert len(lines) >= 4
    for line in lines:
        command = line.partition(start)[2]
        synthesize.SYNTHESIS.parser().parse_args(re.split(r"\s{3,}", command)[0].split())


def test_a_mini_problem_is_provided_once_and_asks_for_nothing(tmp_path, monkeypatch, capsys):
    """Training is under way: no command to give next is told."""
    small = replace(PRESETS["mini"], grid=8, particles=8, train=4, validation=2)
    monkeypatch.setattr(cosmoflow.synthesize.Synthesize, "presets", {"mini": small})
    cosmoflow.synthesize.SYNTHESIS.provide(tmp_path / "data")
    said = capsys.readouterr().out
    assert said.startswith(f"no data in {tmp_path / 'data'}; generating the mini dataset") and "next:" not in said
    cosmoflow.synthesize.SYNTHESIS.provide(tmp_path / "data")
    assert capsys.readouterr().out == ""
