"""Synthetic data: the same for everyone who gives the same arguments, whatever happened on the way."""

import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from common.data.manifest import read_manifest
from cosmoflow import prepare, synthesize
from cosmoflow.data import tfrecord
from cosmoflow.data.sample_files import SampleFormat
from cosmoflow.data.tfrecord import Sample
from cosmoflow.simulation import PRESETS, Recipe
from cosmoflow.synthesize import plan_synthesis
from tests.common.files import contents, read_errors

SMALL = ["--prior", "wide", "--grid", "8", "--particles", "8", "--train", "4", "--validation", "2"]
RECIPE = Recipe("wide", 8, 1, particles=8, length_mpc_h=256.0, train=4, validation=2)


def synthesize_to(out, *options, workers="1"):
    return synthesize.main([str(out), *SMALL, "--workers", workers, *options])


def test_the_mini_problem_is_what_the_design_says():
    plan = plan_synthesis(PRESETS["mini2"], 0, SampleFormat())
    assert plan.variant == "mini2" and len(plan.items) == 2_304
    assert plan.facts == plan.facts | {
        "box": {"grid": 32, "particles": 48, "length_mpc_h": 256.0, "lpt": 2},
        "sample_shape": [32, 32, 32, 4],
        "samples": {"train": 2_048, "validation": 256},
    }
    assert list(plan.facts["prior"]) == ["sigma_8", "drift_x", "drift_y", "drift_z"]
    assert plan.items[0].files == ("train/20000000_univ_ics_2019-03_a10000000_000.tfrecord",)


def test_samples_are_the_simulated_universes(tmp_path):
    assert synthesize_to(tmp_path / "out", "--seed", "5") == 0
    for code, (split, count) in enumerate({"train": 4, "validation": 2}.items()):
        files = sorted((tmp_path / "out" / split).iterdir())
        assert len(files) == count
        for i, file in enumerate(files):
            found = tfrecord.read_sample(file, Sample.empty((8, 8, 8, 4)), verify_crc=True)
            counts, labels = RECIPE.simulate_universe(5, code, i)
            np.testing.assert_array_equal(found.x, counts)
            np.testing.assert_array_equal(found.y, labels)


def test_workers_do_not_change_the_data(tmp_path):
    assert synthesize_to(tmp_path / "one") == 0
    assert synthesize_to(tmp_path / "two", workers="2") == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert synthesize_to(tmp_path / "other", "--seed", "1") == 0
    digests = {read_manifest(tmp_path / name / "manifest.json").compute_digest() for name in ("one", "other")}
    assert len(digests) == 2


def test_subvolumes_are_a_universe_cut(tmp_path):
    assert synthesize_to(tmp_path / "out", "--subvolumes", "2", "--format", "npy") == 0
    whole = Recipe("wide", 8, 2, particles=8, length_mpc_h=256.0, train=4, validation=2).simulate_universe(0, 1, 1)[0]
    for i, (a, b, c) in enumerate(np.ndindex(2, 2, 2)):
        x = np.load(tmp_path / f"out/validation/20000000_univ_ics_2019-03_a15000001_{i:03d}_data.npy")
        np.testing.assert_array_equal(x, whole[8 * a : 8 * a + 8, 8 * b : 8 * b + 8, 8 * c : 8 * c + 8])


def test_raw_universes_become_the_same_samples_through_prepare(tmp_path):
    raw, out, direct = tmp_path / "raw", tmp_path / "out", tmp_path / "direct"
    assert synthesize_to(raw, "--format", "hdf5") == 0
    with h5py.File(next(raw.rglob("*.hdf5"))) as file:
        assert set(file) == {"full", "unitPar", "physPar", "namePar", "redshifts"}
        assert file["namePar"][1] == b"sigma_8" and 50 <= file["physPar"][3] < 100
    arguments = ["convert", str(raw), str(out), "--sample-size", "8", "--validation", "2", "--workers", "1"]
    assert prepare.main(arguments) == 0
    assert synthesize_to(direct) == 0
    by_name = [{path.name: path.read_bytes() for path in folder.rglob("*.tfrecord")} for folder in (out, direct)]
    assert by_name[0] == by_name[1] and len(by_name[0]) == 6
    # The split is another one, so that it is not the same dataset, and it never counts as the mini problem.
    assert read_manifest(out / "manifest.json").variant == "synthetic"


def test_a_second_call_makes_nothing_and_restores_what_is_missing(tmp_path, capsys):
    out = tmp_path / "out"
    assert synthesize_to(out) == 0
    before = contents(out)
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    capsys.readouterr()
    assert synthesize_to(out, "--verify") == 0
    text = capsys.readouterr().out
    assert "already complete" in text and "cosmoflow.train" in text
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == stamps

    lost, cut, changed, *_ = sorted((out / "train").iterdir())
    lost.unlink()
    cut.write_bytes(b"")
    assert synthesize_to(out) == 0
    assert "generated 2 universes" in capsys.readouterr().out and contents(out) == before

    data = bytearray(changed.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    assert synthesize_to(out) == 0  # the sizes are right
    assert f"train/{changed.name}: SHA-256" in read_errors(capsys, synthesize_to(out, "--verify"))


def test_other_data_are_refused(tmp_path, capsys):
    out = tmp_path / "out"
    assert synthesize_to(out) == 0
    before = contents(out)
    capsys.readouterr()
    error = read_errors(capsys, synthesize_to(out, "--seed", "1", "--length", "128"))
    assert "seed: 0 in the folder, 1 now" in error and "nothing was changed" in error
    assert "box.length_mpc_h: 256.0 in the folder, 128.0 now" in error and "--seed, --length" in error
    assert synthesize_to(out, "--format", "hdf5") == 1
    assert contents(out) == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("number, code", [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 3)])
def test_a_stopped_call_goes_on_where_it_stopped(tmp_path, number, code):
    out, whole = tmp_path / "out", tmp_path / "whole"
    options = ["--grid", "24", "--particles", "24", "--train", "80", "--validation", "2"]
    command = [sys.executable, "-m", "cosmoflow.synthesize", str(out), *options, "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    record = out / "manifest.parts" / "task-0-of-1.jsonl"
    while process.poll() is None and (not record.exists() or record.read_bytes().count(b"finished") < 3):
        time.sleep(0.002)
    process.send_signal(number)
    _, error = process.communicate()  # which also waits for the workers: they hold the pipe
    assert process.returncode == code and not (out / "manifest.json").exists()
    assert "Traceback" not in error
    if number != signal.SIGKILL:
        assert "the same command resumes" in error
    with record.open("ab") as file:  # as if the end had hit it while writing
        file.write(b'\n{"finished": {"train/universe')
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 < int(again.stdout.split()[1]) < 82
    assert synthesize.main([str(whole), *options, "--workers", "1"]) == 0
    assert contents(out) == contents(whole)


def test_the_spectrum_of_a_plane_wave_is_measured_right():
    from cosmoflow.synthesize import measured_power

    n, length_mpc_h, wave, amplitude = 16, 100.0, 3, 0.1
    phase = 2 * np.pi * wave * np.arange(n) / n
    k, power = measured_power(np.broadcast_to(1 + amplitude * np.cos(phase), (n, n, n)), length_mpc_h)
    side = np.arange(-n // 2, n // 2)
    modes = (np.rint(np.sqrt(side[:, None, None] ** 2 + side[:, None] ** 2 + side**2)) == wave).sum()
    # Two modes hold half the amplitude each; the voxels have smoothed it.
    expected = 2 * (amplitude / 2 / np.sinc(wave / n)) ** 2 * length_mpc_h**3 / modes
    assert len(k) == n // 2 - 1 and power[wave - 1] == pytest.approx(expected, rel=1e-6)
    assert np.delete(power, wave - 1).max() < 1e-12 * expected
    assert 2 * np.pi / length_mpc_h * (wave - 0.5) < k[wave - 1] < 2 * np.pi / length_mpc_h * (wave + 0.5)
