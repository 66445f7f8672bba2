"""Synthetic surfaces: forces that are derivatives of energies, the published layout, the same data for everyone."""

import lzma
import os
import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("ase")
pytest.importorskip("lmdb")

import ase.io
from ase.calculators.emt import EMT

from oc20 import simulation, synthesize
from oc20.data import compact
from oc20.synthesize import PRESETS, Recipe, plan_synthesis
from tests.common.files import contents

SMALL = ["--slab", "2", "2", "2", "--train", "4", "--validation", "2", "--frames", "2"]
RECIPE = Recipe((2, 2, 2), train=4, validation=2, frames=2)


def synthesize_to(out, *options):
    return synthesize.main([str(out), *SMALL, "--workers", "1", *options])


def simulate(relaxing=True, seed=0, frames=3, size=(2, 2, 3)):
    return simulation.simulate(size, frames, relaxing, np.random.default_rng(seed))


WITHOUT_HOME = """
import sys
sys.modules["lmdb"] = None
from pathlib import Path
from common.data.split import DatasetError
from oc20 import prepare, synthesize, train
data, new = sys.argv[1:]
train.BENCHMARK.make_mini(Path(data), "mini", None)
synthesize.SYNTHESIS.provide_few(Path(data), "full")
assert prepare.main(["verify", data]) == prepare.main(["metadata", data, "--workers", "1"]) == 0
assert synthesize.main([new]) == synthesize.main(["--plot", new]) == 1
try:
    train.BENCHMARK.make_mini(Path(new), "mini", None)
except DatasetError as error:
    print("error:", error, file=sys.stderr)
"""


def test_ase_is_imported_only_where_data_are_made(tmp_path):
    """It ends in a RuntimeError where a user has no home folder, as in containers."""
    assert synthesize_to(tmp_path / "data") == 0
    (tmp_path / "ase").mkdir()
    (tmp_path / "ase/__init__.py").write_text("raise RuntimeError('Could not determine home directory.')")
    path = os.pathsep.join([str(tmp_path), os.getcwd(), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-c", WITHOUT_HOME, str(tmp_path / "data"), str(tmp_path / "new")]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    message = "ase cannot be imported: Could not determine home directory. Set HOME to any folder"
    assert done.returncode == 0 and done.stderr.count(message) == done.stderr.count("error: ") == 3, done.stderr
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    out = tmp_path_factory.mktemp("raw") / "out"
    assert synthesize_to(out, "--format", "raw") == 0
    return out


def test_the_mini_problem_is_what_the_design_says():
    plan = plan_synthesis(PRESETS["mini"], 0, "lmdb")
    assert plan.variant == "mini" and len(plan.items) == 34 and len(plan.files) == 34 * 3 + 2
    assert plan.facts == plan.facts | {
        "slab": [2, 2, 3],
        "trajectories": {"train": 480, "validation": 64},
        "frames_per_trajectory": 5,
        "largest_force": 10,
        "cutoff": 6,
        "most_neighbours": 50,
    }


@pytest.mark.parametrize("relaxing", [True, False])
def test_forces_are_derivatives_of_energies_on_free_and_fixed_atoms(relaxing):
    frame = simulate(relaxing).frames[-1]
    forces = frame.get_forces(apply_constraint=False)
    apart = frame.copy()
    apart.set_constraint()
    apart.calc = EMT()
    for atom in (0, 7, len(frame) - 1):
        for axis in range(3):
            energies = []
            for step in (1e-4, -1e-4):
                apart.positions[atom, axis] += step
                energies.append(apart.get_potential_energy())
                apart.positions[atom, axis] -= step
            np.testing.assert_allclose(forces[atom, axis], (energies[1] - energies[0]) / 2e-4, atol=1e-5)


def test_systems_have_tags_and_a_fixed_layer_as_open_catalyst():
    seen = set()
    for seed in range(12):
        trajectory = simulate(seed=seed, frames=2, size=(2, 3, 4))
        first, last = trajectory.frames
        symbols = first.get_chemical_symbols()
        tags = first.get_tags()
        assert (tags[:24] < 2).all() and (tags[24:] == 2).all() and 1 <= (tags == 2).sum() <= 2
        height = first.positions[:, 2]
        assert (tags == 1).sum() == 6 and height[tags == 1].min() > height[tags == 0].max()
        (fixed,) = (constraint.index for constraint in first.constraints)
        assert set(fixed) == set(np.argsort(height)[:6])
        np.testing.assert_array_equal(first.positions[fixed], last.positions[fixed])
        assert first.pbc.all() and 1 <= len(set(symbols[:24])) <= 2
        assert set(symbols[:24]) <= set(simulation.LATTICE) and set(symbols[24:]) <= set("HCNO")
        seen |= set(symbols)
    assert len(seen) > 6


def test_relaxing_goes_downhill_and_moving_keeps_warm():
    down = [frame.get_potential_energy() for frame in simulate(True, frames=12).frames]
    assert down[-1] < down[0] - 0.3 and down[-1] <= min(down) + 0.05
    moving = simulate(False, frames=12).frames
    moved = [np.abs(a.positions - b.positions).max() for a, b in pairwise(moving)]
    assert min(moved) > 0.02


def test_energies_are_those_of_adsorption():
    slab, reference = simulation.build_system((2, 2, 3), np.random.default_rng(3))
    apart = slab[[atom.index for atom in slab if atom.tag < 2]], slab[[atom.index for atom in slab if atom.tag == 2]]
    for part in apart:
        part.calc = EMT()
    clean, alone = (part.get_potential_energy() for part in apart)
    assert 0 < clean + alone - reference < 10  # the clean slab of the reference is not rattled


def test_no_force_is_above_the_limit_and_no_frame_is_missing(monkeypatch):
    free = [simulate(seed=seed, relaxing=False, frames=4) for seed in range(4)]
    largest = [simulation.largest_force(frame) for run in free for frame in run.frames]
    assert all(run.steps == [20, 30, 40, 50] for run in free) and max(largest) < simulation.LARGEST_FORCE
    monkeypatch.setattr(simulation, "LARGEST_FORCE", float(np.median(largest)))
    bound = [simulate(seed=seed, relaxing=False, frames=4) for seed in range(4)]
    assert all(len(run.frames) == 4 and (np.diff(run.steps) >= 10).all() for run in bound)
    assert {run.steps[-1] for run in bound} != {50}
    for run in bound:
        assert max(map(simulation.largest_force, run.frames)) <= simulation.LARGEST_FORCE


def test_pairs_have_the_published_layout_and_plain_ase_reads_them(raw):
    systems = {}
    for code, (split, trajectories) in enumerate(RECIPE.trajectories.items()):
        assert sorted(os.listdir(raw / split)) == ["0.extxyz.xz", "0.txt.xz"]
        frames = ase.io.read(raw / split / "0.extxyz.xz", ":")
        lines = lzma.decompress((raw / split / "0.txt.xz").read_bytes()).decode().splitlines()
        assert len(frames) == len(lines) == trajectories * 2
        records = [record for i in range(trajectories) for record in RECIPE.simulate_trajectory(0, code, i)]
        for frame, line, record in zip(frames, lines, records, strict=True):
            assert re.fullmatch(r"random\d+,frame\d+,-?\d+\.\d+", line)
            sid, fid, energy = line.split(",")
            assert (sid, fid) == (f"random{record.sid}", f"frame{record.fid}")
            assert float(energy) == pytest.approx(record.reference, abs=1e-7)
            np.testing.assert_allclose(frame.positions, record.atoms.positions, atol=1e-8)
            forces = [atoms.get_forces(apply_constraint=False) for atoms in (frame, record.atoms)]
            np.testing.assert_allclose(*forces, atol=1e-8)
            assert frame.get_potential_energy() == record.atoms.get_potential_energy()
            assert frame.get_chemical_symbols() == record.atoms.get_chemical_symbols()
            np.testing.assert_array_equal(frame.get_tags(), record.atoms.get_tags())
            np.testing.assert_array_equal(frame.constraints[0].index, record.atoms.constraints[0].index)
        systems[split] = {line.split(",")[0] for line in lines}
    assert not systems["train"] & systems["validation"] and len(systems["train"]) == 4


@pytest.mark.exhaustive
def test_workers_do_not_change_the_data_and_seeds_do(tmp_path):
    for workers, seed in (("1", "0"), ("2", "0"), ("1", "1")):
        options = ("--train", "17", "--format", "compact", "--workers", workers, "--seed", seed)
        assert synthesize_to(tmp_path / f"{workers}-{seed}", *options) == 0
    one, two, other = (contents(tmp_path / name) for name in ("1-0", "2-0", "1-1"))
    assert one == two and one["train/data.0000.bin"] != other["train/data.0000.bin"]
    shards = {name: compact.CompactShard(tmp_path / "1-0" / name) for name in one if name.endswith(".bin")}
    train, validation = (shards[f"{split}/data.0000.bin"].read_frame(0).cell for split in ("train", "validation"))
    assert not np.array_equal(train, validation) and len(shards["train/data.0001.bin"]) == 2


def test_what_is_missing_is_made_again(tmp_path):
    out = tmp_path / "out"
    assert synthesize_to(out) == 0
    before = contents(out)
    for names in (["train/metadata.npz"], ["train/data.0000.lmdb", "validation/data_log.0000.txt"]):
        for name in names:
            (out / name).unlink()
        assert synthesize_to(out) == 0 and contents(out) == before
