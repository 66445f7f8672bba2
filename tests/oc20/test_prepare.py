"""oc20.prepare: published pairs become LMDB files or compact ones, in parallel, resumably, verified; and back."""

import lzma
import re
import shutil

import numpy as np
import pytest

pytest.importorskip("ase")
lmdb = pytest.importorskip("lmdb")

from ase import Atoms  # noqa: E402
from ase.calculators.singlepoint import SinglePointCalculator  # noqa: E402
from ase.constraints import FixAtoms  # noqa: E402

from common.data.manifest import read_manifest  # noqa: E402
from oc20 import prepare  # noqa: E402
from oc20.data import compact, conversion, extxyz, records  # noqa: E402
from oc20.data.dataset import DataConfig, Dataset  # noqa: E402
from oc20.graphs import find_neighbours  # noqa: E402
from tests.common.files import contents, read_errors  # noqa: E402

PAIRS = {"train": (0, 3, 11), "validation": (2,)}
FRAMES = 3
SHARD = {"lmdb": records.LmdbShard, "lmdb-new": records.LmdbShard, "compact": compact.CompactShard}
VACUUM = """\
2
Lattice="20 0 0 0 20 0 0 0 20" Properties=species:S:1:pos:R:3:move_mask:L:1:tags:I:1:forces:R:3 energy=1.5 pbc="T T T"
C 9 10 10 F 2 0 0 1
O 10.2 10 10 F 2 0 0 -1
"""
every = pytest.mark.parametrize("form", SHARD)


def frame_of(split, number, fid):
    """Return a frame in a skewed cell, some atoms outside of it, the first two fixed; sometimes crowded."""
    rng = np.random.default_rng([len(split), number, fid])
    cell = np.array([[5.1, 0, 0], [2.5, 4.4, 0], [0.2, 0, 18.5]]) * (0.8 if fid == 1 else 1)
    pos = (np.indices((2, 2, 2)).reshape(3, -1).T / [2, 2, 5] + rng.normal(0, 0.05, (8, 3))) @ cell
    pos[3] += cell[0] - cell[2]
    atoms = Atoms("Pt6CO", pos, cell=cell, pbc=True, tags=[0, 0, 0, 0, 1, 1, 2, 2], constraint=FixAtoms([0, 1]))
    atoms.calc = SinglePointCalculator(atoms, energy=-300.5 - fid, forces=rng.normal(size=(8, 3)))
    return extxyz.ExtxyzFrame(atoms, 1000 + number, 7 * fid, -300.0)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    for split, numbers in PAIRS.items():
        (folder / split).mkdir(parents=True)
        for number in numbers:
            extxyz.write_pair(folder / split, number, [frame_of(split, number, fid) for fid in range(FRAMES)])
    return folder


def convert(source, out, form, *options):
    return prepare.main(["convert", str(source), str(out), "--format", form, "--workers", "1", *options])


def edit(path, change):
    """Change the text of a compressed file."""
    text = lzma.decompress(path.read_bytes()).decode()
    changed = change(text)
    assert changed != text
    path.write_bytes(lzma.compress(changed.encode()))


@every
def test_every_frame_is_that_of_its_pair(source, tmp_path, form, capsys):
    out = tmp_path / "out"
    assert convert(source, out, form, "--verify") == 0
    assert "4 files with their sources: 0 differ" in capsys.readouterr().out
    for split, numbers in PAIRS.items():
        for number in numbers:
            shard = SHARD[form](out / split / f"data.{number:04d}{conversion.FORMATS[form].ending}")
            assert len(shard) == FRAMES
            for fid in range(FRAMES):
                frame, atoms = shard.read_frame(fid), frame_of(split, number, fid).atoms
                np.testing.assert_array_equal(frame.pos, np.round(atoms.positions, 8).astype("f4"))
                forces = atoms.get_forces(apply_constraint=False)
                np.testing.assert_array_equal(frame.force, np.round(forces, 8).astype("f4"))
                np.testing.assert_array_equal(frame.fixed, [True] * 2 + [False] * 6)
                np.testing.assert_array_equal(frame.tags, atoms.get_tags())
                np.testing.assert_array_equal(frame.numbers, atoms.numbers)
                assert (frame.sid, frame.fid, frame.energy) == (1000 + number, 7 * fid, -0.5 - fid)
                nearest = find_neighbours(atoms.positions, atoms.cell[:])
                np.testing.assert_array_equal(np.hstack((frame.edges, frame.offsets)), np.hstack(nearest))
            log = (out / split / f"data_log.{number:04d}.txt").read_text().splitlines()
            assert log == [f"random{1000 + number},frame{7 * fid}" for fid in range(FRAMES)]
    manifest = read_manifest(out / "manifest.json")
    assert manifest.facts["format"] == form and manifest.facts["cutoff"] == 6 and manifest.variant == "full"


def test_unpacked_pairs_give_the_same(source, tmp_path):
    assert convert(source, tmp_path / "packed", "lmdb") == 0
    for path in source.rglob("*.xz"):
        path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        path.unlink()
    assert convert(source, tmp_path / "plain", "lmdb") == 0
    assert contents(tmp_path / "plain") == contents(tmp_path / "packed")


def test_formats_turn_into_each_other(source, tmp_path):
    assert convert(source, tmp_path / "lmdb", "lmdb") == 0
    assert convert(tmp_path / "lmdb", tmp_path / "compact", "compact", "--verify") == 0
    assert convert(tmp_path / "compact", tmp_path / "new", "lmdb-new", "--verify") == 0
    assert convert(tmp_path / "new", tmp_path / "again", "lmdb", "--verify") == 0
    first, last = contents(tmp_path / "lmdb"), contents(tmp_path / "again")
    assert {**first, "manifest.json": None} == {**last, "manifest.json": None}
    digest = read_manifest(tmp_path / "lmdb" / "manifest.json").compute_digest()
    assert read_manifest(tmp_path / "compact" / "manifest.json").facts["source_digest"] == digest
    assert not (set(contents(tmp_path / "new")) ^ set(first))


def test_a_second_call_and_other_tasks_go_on_where_the_first_stopped(source, tmp_path, capsys):
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert convert(source, out, "compact", "--task", "0", "--n-tasks", "2") == 0
    assert "belong to other tasks" in capsys.readouterr().out and not (out / "train" / "metadata.npz").exists()
    assert convert(source, out, "compact", "--task", "1", "--n-tasks", "2") == 0
    assert convert(source, whole, "compact") == 0
    assert contents(out) == contents(whole)
    for name in ("train/data.0003.bin", "train/metadata.npz"):
        (out / name).unlink()
        assert convert(source, out, "compact") == 0
        assert contents(out) == contents(whole)


def truncate(pair):
    pair.path.write_bytes(pair.path.read_bytes()[:-200])


def flip(pair):
    data = bytearray(pair.path.read_bytes())
    data[len(data) // 2] ^= 255
    pair.path.write_bytes(data)


def in_line(number, change):
    """Return a change of one line, from 0 on; the second frame begins in line 10."""

    def change_line(text):
        lines = text.splitlines(keepends=True)
        lines[number] = change(lines[number])
        return "".join(lines)

    return change_line


def put_second(values):
    """Return a change that puts these values in place of the coordinates of the first atom of the second frame."""
    return in_line(12, lambda line: re.sub(r"^(\w+)(\s+\S+){3}", rf"\g<1> {values}", line))


def put_head(pattern, new):
    """Return a change of the second frame's line of keys."""
    return in_line(11, lambda line: re.sub(pattern, new, line))


def put_last(number, value):
    """Return a change that puts a value in place of the last one of a line."""
    return in_line(number, lambda line: re.sub(r"\S+\n$", f"{value}\n", line))


def of_frames(change):
    return lambda pair: edit(pair.path, change)


def of_text(change):
    return lambda pair: edit(pair.txt, change)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (truncate, "3.extxyz.xz is damaged: .*fetch it again"),
        (lambda pair: pair.path.write_text("<html>404</html>"), "3.extxyz.xz: this is a web page"),
        (flip, "3.extxyz.xz is damaged: .*fetch it again"),
        (
            of_frames(lambda text: text[: len(text) // 2]),
            "3.extxyz.xz, line 11: the file ends within a frame of 8 atoms",
        ),
        (of_frames(lambda text: text + text.splitlines()[0] + "x\n"), "3.extxyz.xz, line 31: expected the number of"),
        (of_frames(put_last(13, "")), "3.extxyz.xz, frame 2 from line 11: cannot be parsed"),
        (of_frames(put_last(14, "nan")), r"frame 2 from line 11: forces of atom 2 are not finite: .*nan"),
        (
            of_frames(lambda text: text.replace("\nO ", "\nXx ", 1)),
            "frame 1 from line 1: cannot be .*unknown element 'Xx'",
        ),
        (
            of_frames(lambda text: text.replace("\nO ", "\nX ", 1)),
            "frame 1 from line 1: element 0 of atom 7; expected 1 to 94",
        ),
        (of_frames(lambda text: text.replace("energy=", "e=")), "frame 1 from line 1: .*energy missing"),
        (of_frames(lambda text: text.replace("tags:", "t:")), "frame 1 from line 1: .*tags missing"),
        (
            of_frames(lambda text: re.sub('Lattice="[^"]*"', 'Lattice="5 0 0 5 0 0 0 0 9"', text)),
            "3.extxyz.xz, frame 1: the cell",
        ),
        (of_frames(put_second("1 nan 2")), "frame 2 from line 11: positions of atom 0 are not finite: .1.0, nan"),
        (of_frames(put_second("1 -inf 2")), "frame 2 from line 11: positions of atom 0 are not finite"),
        (of_frames(put_second("1 1e60 2")), "frame 2 from line 11: positions of atom 0 are not finite"),
        (of_frames(put_second("1 2,5 2")), "frame 2 from line 11: cannot be parsed"),
        (of_frames(put_second("1 9e9 2")), "3.extxyz.xz, frame 2: .*cells away"),
        (of_frames(put_head("energy=[^ ]*", "energy=nan")), "frame 2 from line 11: the energy or the cell is not"),
        (of_frames(put_head("energy=[^ ]*", "energy=low")), "frame 2 from line 11: cannot be parsed: .*low"),
        (of_frames(put_head('Lattice="[^ ]*', 'Lattice="nan')), "frame 2 from line 11: the energy or the cell is"),
        (of_frames(put_head('Lattice="[^"]*"', 'Lattice="5 0 0"')), "frame 2 from line 11: cannot be parsed"),
        (of_frames(put_head('Lattice="[^"]*"', "")), "3.extxyz.xz, frame 2: the cell has rows .*span a volume"),
        (of_frames(put_head('Lattice="[^"]*"', 'Lattice=".1 0 0 0 .1 0 0 0 .1"')), "frame 2: "),
        (of_frames(put_head("forces:R:3", "forces:R:1:more:R:2")), r"frame 2 from line 11: .*forces have the shape"),
        (of_frames(put_head("tags:I:1", "tags:S:1")), "frame 2 from line 11: .*tags are not"),
        (of_frames(put_head("Properties=", "Properties=:")), "frame 2 from line 11: cannot be parsed"),
        (of_frames(put_head('pbc="T T T"', 'pbc="F F F"')), "frame 2: pbc is F F F, but .* edges cross a border"),
        (of_frames(lambda text: "9" * 5000 + text), "3.extxyz.xz, line 1: expected the number of atoms"),
        (of_text(lambda text: text + "random5,frame5,1.5\n"), "3.extxyz.xz ends after 3 frames; .* has 4 lines"),
        (of_text(lambda text: "\n".join(text.splitlines()[:2])), "3.txt.xz ends after 2 lines; expected one for each"),
        (
            of_text(lambda text: text.replace(",-300.00000000", "", 1)),
            "3.txt.xz, line 1: expected random<number>,frame",
        ),
        (of_text(lambda text: text.replace("-300.00000000", "nan", 1)), "3.txt.xz, line 1: expected random<number>"),
    ],
)
def test_a_damaged_pair_is_named_and_the_others_are_made(source, tmp_path, capsys, spoil, message):
    out, safe = tmp_path / "out", tmp_path / "safe"
    shutil.copytree(source, safe)
    spoil(extxyz.Pair(3, source / "train" / "3.extxyz.xz", source / "train" / "3.txt.xz"))
    assert convert(source, out, "lmdb") == 1
    told = capsys.readouterr()
    assert re.search(f"error: skipped train/3.extxyz.xz: .*{message}", told.err), told.err
    assert "generated 3 files" in told.out and "incomplete: 1 failed" in told.out
    assert not list(out.rglob("*0003*")) and not (out / "manifest.json").exists()
    shutil.rmtree(source)
    safe.rename(source)
    assert convert(source, out, "lmdb") == 0
    assert "generated 1 files" in capsys.readouterr().out
    assert convert(source, tmp_path / "whole", "lmdb") == 0
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("edges", conversion.EDGES)
def test_a_frame_without_periodicity_is_converted_where_no_edge_would_cross_a_border(source, tmp_path, edges):
    expected = {}
    for pbc in ("T T T", "F F F"):
        for path in source.rglob("*.extxyz.xz"):
            path.write_bytes(lzma.compress(VACUUM.replace("T T T", pbc).encode() * FRAMES))
        assert convert(source, tmp_path / pbc[0], "lmdb", "--edges", edges) == 0
        expected[pbc] = contents(tmp_path / pbc[0] / "train")
    assert expected["T T T"] == expected["F F F"]


def test_lmdb_files_of_any_name_are_converted_in_the_order_of_their_names(source, tmp_path, capsys):
    lmdb_folder, out = tmp_path / "lmdb", tmp_path / "out"
    assert convert(source, lmdb_folder, "lmdb") == 0
    assert prepare.main(["metadata", str(lmdb_folder), "--workers", "1"]) == 0
    (lmdb_folder / "manifest.json").unlink()
    for number, name in ((0, "c"), (3, "a"), (11, "b")):
        (lmdb_folder / f"train/data.{number:04d}.lmdb").rename(lmdb_folder / f"train/{name}.lmdb")
    (lmdb_folder / "train/._a.lmdb").write_bytes(b"of a Mac")
    assert convert(lmdb_folder, out, "compact", "--verify") == 0
    samples = Dataset(out / "train", DataConfig(out, format="compact"))
    assert [samples.read(index).sid for index in range(0, 9, 3)] == [1003, 1011, 1000]
    assert prepare.main(["metadata", str(lmdb_folder), "--workers", "1"]) == 0
    before = Dataset(lmdb_folder / "train", DataConfig(lmdb_folder))
    assert [before.read(index).sid for index in range(9)] == [samples.read(index).sid for index in range(9)]
    capsys.readouterr()
    shutil.copy(lmdb_folder / "train/a.lmdb", lmdb_folder / "train/0.lmdb")  # all numbers would be others
    assert "another dataset" in read_errors(capsys, convert(lmdb_folder, out, "compact"))


def test_a_full_disk_is_told_and_loses_nothing(source, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    full = []

    def write(path, frames):
        if full:
            raise lmdb.DiskError("mdb_txn_commit: No space left on device")
        full.append(path)
        return records.write_frames(path, frames)

    monkeypatch.setitem(conversion.FORMATS, "lmdb", conversion.FrameFormat("lmdb", ".lmdb", write))
    error = read_errors(capsys, convert(source, out, "lmdb"))
    assert "No space left on device; 1 of 4 files are finished and kept" in error and "command again" in error
    assert [path.name for path in out.rglob("*.lmdb*")] == ["data.0000.lmdb"]
    monkeypatch.undo()
    assert convert(source, out, "lmdb", "--verify") == 0
    assert "generated 3 files" in capsys.readouterr().out


def test_frames_are_compared_with_their_source(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert convert(source, out, "compact") == 0
    extxyz.write_pair(source / "train", 11, [frame_of("train", 11, fid) for fid in (0, 2, 2)])
    extxyz.write_pair(source / "validation", 2, [frame_of("validation", 2, 0)])
    capsys.readouterr()
    assert convert(source, out, "compact", "--verify") == 1
    told = capsys.readouterr()
    assert "2 differ" in told.out and re.search(r"data.0011.bin, frame 2: pos, .*differ from .*11.extxyz.xz", told.err)
    assert "data.0002.bin has more frames than" in told.err


def test_published_metadata_are_completed(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert convert(source, out, "lmdb") == 0
    paths = [out / split / "metadata.npz" for split in PAIRS]
    right = [path.read_bytes() for path in paths]
    with np.load(paths[0]) as file:
        np.savez(paths[0], natoms=file["natoms"], neighbors=file["neighbors"])
    paths[1].unlink()
    assert prepare.main(["metadata", str(out), "--workers", "1"]) == 0
    assert [path.read_bytes() for path in paths] == right
    assert "sizes of 9 frames" in capsys.readouterr().out
    assert prepare.main(["verify", str(out)]) == 0
    error = read_errors(capsys, prepare.main(["metadata", str(source), "--workers", "1"]))
    assert "has frames without edges; add them by: python -m oc20.prepare convert" in error
    (out / "train" / "data.0003.lmdb").write_bytes(b"")
    assert "data.0003.lmdb" in read_errors(capsys, prepare.main(["metadata", str(out), "--workers", "1"]))
    assert [path.read_bytes() for path in paths] == right


def test_what_is_no_input_is_told(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert "nowhere is not a folder" in read_errors(capsys, convert(tmp_path / "nowhere", out, "lmdb"), 2)
    assert f"name {source}, which has train" in read_errors(capsys, convert(source / "train", out, "lmdb"))
    text = source / "train" / "3.txt.xz"
    text.rename(tmp_path / "kept")
    assert "3.extxyz.xz: 3.txt.xz is missing beside it" in read_errors(capsys, convert(source, out, "lmdb"))
    (tmp_path / "kept").rename(text)
    (source / "train" / "3.extxyz").touch()
    assert "have the same number" in read_errors(capsys, convert(source, out, "lmdb"))
    (source / "train" / "3.extxyz").unlink()
    (source / "train" / "data.0000.lmdb").touch()
    assert "N.extxyz and *.lmdb: keep one kind" in read_errors(capsys, convert(source, out, "lmdb"))
    assert not out.exists()


def test_more_pairs_may_come(source, tmp_path):
    assert convert(source, tmp_path / "out", "lmdb") == 0
    extxyz.write_pair(source / "train", 12, [frame_of("train", 12, 0)])
    assert convert(source, tmp_path / "out", "lmdb", "--verify") == 0
    assert len(Dataset(tmp_path / "out/train", DataConfig(tmp_path / "out"))) == 10


def test_edges_may_be_counted_as_the_reference_counts_them(source, tmp_path, capsys):
    assert convert(source, tmp_path / "nearest", "lmdb") == 0
    assert convert(source, tmp_path / "reference", "lmdb", "--edges", "reference", "--verify") == 0
    ours, theirs = (
        records.LmdbShard(tmp_path / name / "train" / "data.0000.lmdb").read_frame(1)
        for name in ("nearest", "reference")
    )
    assert len(ours.edges) - 8 <= len(theirs.edges) < len(ours.edges)
    assert read_manifest(tmp_path / "reference" / "manifest.json").facts["edges"] == "reference"
    as_reference = ("--edges", "reference")
    assert "edges: " in read_errors(capsys, convert(source, tmp_path / "nearest", "lmdb", *as_reference))
    error = read_errors(capsys, convert(tmp_path / "nearest", tmp_path / "again", "compact", *as_reference))
    assert "have edges already: leave out --edges" in error
