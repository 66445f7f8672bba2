"""Staging on one node: what is read and written, what is refused beforehand, and what is left after a failure."""

import errno
import gzip
import hashlib
import json
import os
import re
import signal
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from common.ranks.connect import connect
from common.ranks.dist import Dist
from common.settings.machine import DistConfig
from common.staging import plan, stage_dir
from common.staging import stage as staging
from common.staging.stage import SourceFile, StagingConfig, StagingError, stage_dataset
from common.staging.stage_dir import StageDir, UnfinishedFile
from common.staging.storage import SharedStorage
from common.stop import STOP, StopAsked

SAMPLES = {"train": 12, "validation": 3}
CPU = DistConfig(device="cpu", timeout_s=60)


def make_source(root, compress=()):
    """Write a small dataset; return its files. `compress`: numbers of the training samples that are gzipped."""
    random = np.random.default_rng(1)
    for folder, n in SAMPLES.items():
        (root / folder).mkdir(parents=True)
        for i in range(n):
            data = bytes(random.integers(0, 9, 1000 + 37 * i, np.uint8))
            if folder == "train" and i in compress:
                data = gzip.compress(data)
            (root / folder / f"{i:02}.bin").write_bytes(data)
    return [described(root, folder, i) for folder, n in SAMPLES.items() for i in range(n)]


def described(root, folder, i):
    data = (root / folder / f"{i:02}.bin").read_bytes()
    return SourceFile(f"{folder}/{i:02}.bin", len(data), sample=i, sha256=hashlib.sha256(data).hexdigest())


def contents(root):
    """Return the bytes of all data files below a folder."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.bin")}


def total(files):
    return sum(file.size for file in files)


@pytest.fixture(autouse=True)
def _usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def source(tmp_path):
    return tmp_path / "source"


@pytest.fixture
def files(source):
    return make_source(source)


@pytest.fixture
def config(tmp_path):
    return StagingConfig(mode="shard", stage_dir=tmp_path / "node", workers=2)


@pytest.fixture
def run(source):
    """Stage in one process, as a function of files and configuration."""

    def stage_alone(files, config, samples=SAMPLES):
        with connect(CPU) as dist:
            return stage_dataset(files, source, config, dist, samples)

    return stage_alone


def test_without_staging_files_stay_where_they_are(run, files, source, capsys):
    staged = run(files, StagingConfig())
    assert staged.path_of("train/03.bin") == source / "train/03.bin"
    assert staged.log_facts()["staging_bytes_read"] == 0
    assert "read from shared storage" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["shard", "replicate", "memory"])
def test_staged_files_are_equal_read_once_and_removed_at_the_end(run, files, source, config, mode, capsys):
    (config.stage_dir / "train").mkdir(parents=True)
    (config.stage_dir / "train/notes.txt").write_text("of the user")
    staged = run(files, replace(config, mode=mode))
    assert contents(config.stage_dir) == contents(source)
    assert staged.bytes_read == staged.bytes_written == total(files)
    assert staged.path_of("train/03.bin") == config.stage_dir / "train/03.bin"
    assert staged.path_of("elsewhere.bin") == source / "elsewhere.bin"
    shown = capsys.readouterr()
    assert re.fullmatch(rf"staging: {mode}: 15 files, .*\n", shown.out) and not shown.err
    staged.close()
    assert [str(path.relative_to(config.stage_dir)) for path in sorted(config.stage_dir.rglob("*"))] == [
        "train",
        "train/notes.txt",
    ]


def test_no_rank_hears_which_files_the_others_have(run, files, config, monkeypatch):
    told, broadcast = [], Dist.broadcast_json
    monkeypatch.setattr(Dist, "broadcast_json", lambda dist, value: told.append(value) or broadcast(dist, value))
    monkeypatch.setattr(Dist, "gather_json", None)
    for _ in range(2):
        told.clear()
        run(files, replace(config, keep=True)).close()
        # The sizes of four lists, of which no rank says more: the names' ends, the names, their order, the other facts
        # of the files; and the name of the job.
        assert [type(value) for value in told] == [list, list, list, list, str]


def test_memory_has_a_folder_in_the_ram_disk(run, files, source, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "RAM_DISK", tmp_path / "shm")
    staged = run(files, StagingConfig(mode="memory"))
    assert staged.path_of("train/00.bin").is_relative_to(tmp_path / "shm")
    assert contents(staged.root) == contents(source)


@pytest.mark.parametrize("mode", ["shard", "replicate"])
def test_gzip_files_are_inflated_and_others_left_alone(run, source, tmp_path, config, mode, monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_BYTES", 400)  # so that files come in pieces
    files = make_source(source, compress=(0, 5))
    config = replace(config, mode=mode, inflate=True, keep=True)
    staged = run(files, config)
    staged.close()
    make_source(tmp_path / "raw")
    assert contents(config.stage_dir) == contents(tmp_path / "raw")
    sized = 2 * 6 + 13 * 2  # magic numbers and trailers, of which the sizes are learned
    assert staged.bytes_read == total(files) + sized
    assert staged.bytes_written == sum(map(len, contents(tmp_path / "raw").values()))
    assert run(files, config).bytes_read == sized


# --- interrupted, repeated, changed


@pytest.mark.parametrize("mode", ["shard", "replicate"])
def test_an_interrupted_staging_copies_only_the_rest(run, files, source, config, mode, capsys):
    config = replace(config, mode=mode, workers=1)
    read, done = SharedStorage.read_into, []

    def read_or_fail(self, piece, view):
        if len(done) == 8:
            raise StagingError("injected")
        done.append(piece)
        read(self, piece, view)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CHUNK_BYTES", 2000)
        patch.setattr(SharedStorage, "read_into", read_or_fail)
        with pytest.raises(StagingError, match="injected"):
            run(files, config)
    kept = contents(config.stage_dir)
    assert 0 < len(kept) <= 8 and all(data == (source / name).read_bytes() for name, data in kept.items())
    assert not list(config.stage_dir.rglob("*.part"))
    # What only kill -9 leaves: half a file and half a line of the record.
    unfinished = config.stage_dir / stage_dir.WORKPLACE
    unfinished.mkdir()
    for name in ("lock", "0.part", "1.node", "2.txt"):
        (unfinished / name).write_bytes(b"4711 (a job that was killed)")
    (config.stage_dir / "notes.part").write_text("of the user")
    with (config.stage_dir / "staging.jsonl").open("a") as record:
        record.write('\n{"name": "train/1')
    capsys.readouterr()
    staged = run(files, config)
    assert contents(config.stage_dir) == contents(source)
    assert staged.bytes_read == total(files) - sum(map(len, kept.values()))
    assert f"; {len(kept)} of 15 files already staged" in capsys.readouterr().out
    assert [path.name for path in unfinished.iterdir() if path.suffix] == ["2.txt"]
    staged.close()
    left = {path.relative_to(config.stage_dir).as_posix() for path in config.stage_dir.rglob("*")}
    assert left == {"notes.part", stage_dir.WORKPLACE, f"{stage_dir.WORKPLACE}/2.txt"}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("mode", ["shard", "replicate"])
def test_a_signal_ends_staging_soon_and_removes_what_is_there(run, files, config, mode, keep, monkeypatch):
    read, started = SharedStorage.read_into, []

    def read_slowly(self, piece, view):
        started.append(piece)
        if len(started) == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.02 if len(started) < 8 else 0.3)
        read(self, piece, view)

    monkeypatch.setattr(plan, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(SharedStorage, "read_into", read_slowly)
    with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
        run(files, replace(config, mode=mode, workers=1, keep=keep))
    assert len(started) == 8
    assert bool(contents(config.stage_dir)) == keep == config.stage_dir.exists()
    assert not (config.stage_dir / stage_dir.WORKPLACE).exists()


def test_one_job_at_a_time_uses_a_folder_and_others_wait(run, files, config, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["train.py", "mini"])
    first = run(files, config)
    turns = []

    def wait(_seconds):
        turns.append(len(contents(config.stage_dir)))
        if len(turns) == 2:
            first.close()

    monkeypatch.setattr(type(STOP), "sleep", lambda stop, seconds: wait(seconds))
    capsys.readouterr()
    second = run(files, config)
    assert turns == [len(files), len(files)] and second.bytes_read == total(files)
    told = rf"{config.stage_dir} is in use by process {os.getpid()} \(train.py mini\).*waiting.*a folder each.*JOB_ID"
    assert len(re.findall(told, capsys.readouterr().out)) == 1
    second.close()
    assert not config.stage_dir.exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_only_a_file_system_without_locks_needs_none(run, files, config, number, monkeypatch):
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, os.strerror(number))))
    if number == errno.ENOLCK:
        run(files, config).close()
    else:
        with pytest.raises(StagingError, match=rf"{config.stage_dir}: cannot be locked: Input/output error; choose"):
            run(files, config)
        assert not contents(config.stage_dir)


def test_the_last_process_of_a_job_removes_what_all_have_staged(files, source, config):
    first, second = (StageDir(config.stage_dir, source, checksum=True, inflate=False) for _ in range(2))
    first.make_folder()
    first.take_folder()
    for folder in (first, second):
        folder.open_record()

    def write(folder, file):
        (piece,) = plan.split_file(file)
        folder.write_piece(piece, memoryview((source / file.name).read_bytes()))

    write(first, files[0])
    second.close(remove=True)  # a stop signal reaches one process before the other
    write(first, files[1])
    assert len(contents(config.stage_dir)) == 2
    first.close(remove=True)
    assert not config.stage_dir.exists()


def test_nothing_is_removed_beyond_the_folder(run, files, config, tmp_path):
    others = tmp_path / "others"
    others.mkdir()
    (others / "99.bin").write_text("of others")
    config.stage_dir.mkdir()
    with (config.stage_dir / "staging.jsonl").open("w") as record:
        for name in (f"{others}/99.bin", "../others/99.bin", "linked/99.bin"):
            record.write(json.dumps({"name": name, "identity": "", "size": 1, "crc32": None}) + "\n")
            record.write(json.dumps({"folder": os.path.dirname(name)}) + "\n")
    (config.stage_dir / "linked").symlink_to(others)
    run(files, config).close()
    assert (others / "99.bin").read_text() == "of others"
    assert [path.name for path in config.stage_dir.iterdir()] == ["linked"]
    (config.stage_dir / "train").symlink_to(others)
    with pytest.raises(StagingError, match="train is a link"):
        run(files, config)
    assert os.listdir(others) == ["99.bin"]


def test_what_is_no_file_is_not_read(run, files, source, config):
    os.mkfifo(source / "train/12.bin")
    with pytest.raises(StagingError, match=r"train/12.bin: is a pipe, not a file"):
        run([*files, SourceFile("train/12.bin", 0, sample=12)], config, {"train": 13})


def test_kept_files_serve_the_next_run_as_long_as_they_are_right(run, files, source, config, capsys):
    config = replace(config, keep=True)
    run(files, config).close()
    assert run(files, config).bytes_read == 0
    assert "NOT verified" not in capsys.readouterr().out
    damaged = config.stage_dir / "train/04.bin"
    damaged.write_bytes(damaged.read_bytes()[::-1])
    assert run(files, replace(config, checksum=False)).bytes_read == 0  # as its size is right
    assert run(files, config).bytes_read == files[4].size
    (source / "train/05.bin").write_bytes(b"x" * files[5].size)
    files[5] = described(source, "train", 5)
    assert run(files, config).bytes_read == files[5].size
    assert contents(config.stage_dir) == contents(source)


def test_a_record_that_is_wrong_is_not_believed_against_the_manifest(run, files, source, config):
    config = replace(config, keep=True)
    run(files, config).close()
    other = bytes(files[2].size)
    (config.stage_dir / "train/02.bin").write_bytes(other)
    record = config.stage_dir / stage_dir.RECORD
    lines = [json.loads(line) for line in record.read_text().split("\n") if line]
    for line in lines:
        line |= {"crc32": stage_dir.crc32(other)} if line.get("name") == "train/02.bin" else {}
    record.write_text("\n".join(map(json.dumps, lines)))
    assert run(files, config).bytes_read == files[2].size
    assert contents(config.stage_dir) == contents(source)


def spoil(path, how):
    """Let others write to a file or folder, own it, or put a link there."""
    if how == "writable":
        path.chmod(path.stat().st_mode | 0o020)
    elif how == "foreign":
        os.chown(path, 65534, -1)
    else:
        path.rename(path.with_name("moved"))
        path.symlink_to("moved")
        if path.name == "node":  # one's own link may lead to stage_dir, as $TMPDIR often is one
            os.chown(path, 65534, -1, follow_symlinks=False)


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize(
    "how", ["writable", pytest.param("link", marks=AS_ROOT), pytest.param("foreign", marks=AS_ROOT)]
)
@pytest.mark.parametrize("name", ["", "train", "train/03.bin", stage_dir.RECORD, stage_dir.WORKPLACE])
def test_what_others_could_have_written_is_refused(run, files, config, name, how):
    config = replace(config, keep=True)
    run(files, config).close()
    (config.stage_dir / stage_dir.WORKPLACE).mkdir(0o700)
    spoil(config.stage_dir / name, how)
    before = contents(config.stage_dir)
    with pytest.raises(StagingError) as error:
        run(files, config)
    expected = {
        "writable": rf" belongs to \w+ and has mode 0\d[2367]\d.*: chmod go-w .*{name}, or choose",
        "foreign": r" belongs to \w+ and has mode .*remove it, or choose",
        "link": r" is a link",
    }
    assert re.match(re.escape(str(config.stage_dir / name)) + expected[how], str(error.value)), error.value
    assert contents(config.stage_dir) == before


@AS_ROOT
def test_a_folder_of_the_site_is_used_if_nobody_can_rename_what_is_there(run, files, source, config):
    config.stage_dir.mkdir()
    config.stage_dir.chmod(0o1777)
    os.umask(0)
    staged = run(files, config)
    assert contents(config.stage_dir) == contents(source)
    assert {path.stat().st_mode & 0o077 for path in config.stage_dir.rglob("*") if path.name != stage_dir.LOCK} == {0}
    staged.close()
    assert not list(config.stage_dir.iterdir())
    config.stage_dir.chmod(0o777)
    with pytest.raises(StagingError, match="mode 0777"):
        run(files, config)


def test_without_checksums_the_time_of_change_tells_other_sources(run, files, source, config, capsys):
    files = [replace(file, sha256=None) for file in files]
    run(files, config)
    assert run(files, config).bytes_read == 0
    assert "15 of 15 files already staged; 15 staged files NOT verified by a manifest" in capsys.readouterr().out
    changed = source / "train/01.bin"
    changed.write_bytes(b"x" * files[1].size)
    os.utime(changed, ns=(1, 1))
    assert run(files, config).bytes_read == files[1].size
    assert contents(config.stage_dir) == contents(source)


def test_files_of_others_are_never_overwritten(run, files, source, config):
    equal, foreign = config.stage_dir / "train/01.bin", config.stage_dir / "train/07.bin"
    foreign.parent.mkdir(parents=True)
    equal.write_bytes((source / "train/01.bin").read_bytes())
    foreign.write_bytes(b"x" * files[7].size)
    with pytest.raises(StagingError, match=re.escape(f"{foreign}: exists, was not written by staging")):
        run(files, config)
    assert foreign.read_bytes() == b"x" * files[7].size and len(contents(config.stage_dir)) == 2
    foreign.unlink()
    staged = run(files, config)
    assert staged.bytes_read == total(files) - files[1].size
    staged.close()
    assert contents(config.stage_dir) == {"train/01.bin": (source / "train/01.bin").read_bytes()}


# --- damaged sources, full disks


@pytest.mark.parametrize("mode", ["shard", "replicate"])
def test_a_damaged_source_is_named_and_the_others_are_kept(run, files, source, config, mode):
    (source / "train/06.bin").write_bytes(b"x" * files[6].size)
    with pytest.raises(StagingError, match=re.escape(f"{source}/train/06.bin: damaged: sha256")):
        run(files, replace(config, mode=mode, workers=1))
    kept = contents(config.stage_dir)
    assert kept and "train/06.bin" not in kept and not list(config.stage_dir.rglob("*.part"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-8] + b"\0\0\0\0" + data[-4:],  # CRC-32
        lambda data: data[:30] + b"\xff" * 30 + data[60:],  # deflated data
        lambda data: data[:-40] + data[-4:],  # cut
        lambda data: data + data[-8:],  # not the end
    ],
)
def test_damaged_gzip_files_are_named(run, source, config, damage):
    make_source(source, compress=(2,))
    path = source / "train/02.bin"
    path.write_bytes(damage(path.read_bytes()))
    files = [replace(described(source, "train", i), sha256=None) for i in range(12)]
    with pytest.raises(StagingError, match=re.escape(f"{path}: damaged gzip data")):
        run(files, replace(config, inflate=True), {"train": 12})
    assert not (config.stage_dir / "train/02.bin").exists()


@pytest.mark.parametrize("mode", ["shard", "replicate"])
def test_a_full_disk_is_told_and_loses_nothing(run, files, source, config, mode, monkeypatch):
    config = replace(config, mode=mode, workers=1)
    write = UnfinishedFile.write_data

    def write_or_fail(self, data):
        if self.file.name == "train/09.bin":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(UnfinishedFile, "write_data", write_or_fail)
        with pytest.raises(StagingError, match=rf"{config.stage_dir}/train/09.bin: no space left for its 1.33 kB, "):
            run(files, config)
    kept = contents(config.stage_dir)
    assert "train/00.bin" in kept and "train/09.bin" not in kept and not list(config.stage_dir.rglob("*.part"))
    assert run(files, config).bytes_read == total(files) - sum(map(len, kept.values()))


# --- refused before anything is copied


def refused(run, files, config, samples=SAMPLES):
    with pytest.raises(StagingError) as error:
        run(files, config, samples)
    assert not config.stage_dir.exists() or not contents(config.stage_dir)
    return str(error.value)


@pytest.mark.parametrize(
    ("mode", "function", "status", "message"),
    [
        ("shard", "shutil.disk_usage", SimpleNamespace(free=9000), "node: 17.6 kB to be staged, 9 kB free; free disk"),
        (
            "memory",
            "psutil.virtual_memory",
            SimpleNamespace(available=20 * 1024),
            "17.6 kB to be staged in memory, 20.5 kB available; staging may use 80%",
        ),
    ],
)
def test_too_little_space_is_refused_with_numbers(run, files, config, mode, function, status, message, monkeypatch):
    monkeypatch.setattr(function, lambda *_: status)
    assert message in refused(run, files, replace(config, mode=mode))


def test_inflated_sizes_count(run, source, config, monkeypatch):
    files = make_source(source, compress=range(12))
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda path: SimpleNamespace(free=17_000))
    assert total(files) < 17_000
    assert "17.6 kB to be staged" in refused(run, files, replace(config, inflate=True))


def test_wrong_counts_sizes_and_missing_files_are_refused(run, files, source, config):
    asked = {"train": 2048, "validation": 3}
    assert f"{source}/train: 12 samples, but the configuration asks for 2,048" in refused(run, files, config, asked)
    (source / "train/05.bin").unlink()
    assert f"{source}/train/05.bin: No such file" in refused(run, files, config)
    (source / "train/05.bin").write_bytes(b"short")
    assert f"{source}/train/05.bin: 5 bytes, 1,185 expected" in refused(run, files, config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("source", "is the dataset's own folder"),
        ("file/node", r"stage_dir .*file/node: Not a directory; choose another"),
        ("dangling", r"stage_dir .*/dangling is a link to nothing, .*/moved; make that"),
    ],
)
def test_impossible_folders_are_refused(run, files, tmp_path, config, name, message):
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "moved")
    with pytest.raises(StagingError, match=message):
        run(files, replace(config, stage_dir=tmp_path / name))


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (StagingConfig, {"mode": "replicate"}, "mode replicate needs stage_dir"),
        (StagingConfig, {"workers": 0}, "workers is 0"),
        (SourceFile, {"name": "train/../../x", "size": 1}, "below the dataset's folder"),
    ],
)
def test_impossible_values_are_refused(kind, values, message):
    with pytest.raises(ValueError, match=message):
        kind(**values)
