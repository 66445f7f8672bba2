"""Staging from a web server and from an object store: as from a folder, and what is tried again, named or refused."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from common.address import check_redirect
from common.config import ConfigError, load
from common.data import fetch
from common.ranks.connect import connect
from common.staging import plan, stage_dir, storage
from common.staging.stage import SourceFile, StagingConfig, StagingError, stage_dataset, stage_url
from cosmoflow.settings import Config
from tests.common.data.server import FileServer, needs_storage
from tests.common.files import write_files
from tests.common.staging import swift
from tests.common.staging.test_stage import CPU
from tests.cosmoflow.case import CASE
from tests.problems import curve

pytestmark = needs_storage
MANIFEST = "/data/manifest.json"
NAMES = ("train/a b.bin", "train/empty.bin", "validation/c#d.bin", "stats.h5")
FILES = {name: hashlib.shake_128(name.encode()).digest(1200 * ("empty" not in name)) for name in NAMES}


def describe(body):
    return {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


def write_manifest(files):
    entries = {name: describe(body) for name, body in files.items()}
    return json.dumps({"format": 1, "benchmark": "cosmoflow", "files": entries}).encode()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(storage, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(plan, "CHUNK_BYTES", 2000)
    quoted = {f"/data/{name.replace(' ', '%20').replace('#', '%23')}": body for name, body in FILES.items()}
    with FileServer({**quoted, MANIFEST: write_manifest(FILES)}) as running:
        yield running


@pytest.fixture
def staging(server, tmp_path):
    folder = tmp_path / "node"
    return StagingConfig(mode="replicate", source=f"{server.url}/data/", stage_dir=folder, workers=1, keep=True)


def stage(staging):
    with connect(CPU) as dist:
        staged = stage_url(staging, dist)
        staged.close()
    return staged


def read_record(folder):
    lines = (folder / stage_dir.RECORD).read_text().split("\n")
    return sorted(line for line in lines if '"name"' in line and "manifest" not in line)


def asked(server):
    return [path for path, _ in server.asked]


@pytest.mark.parametrize("ranges", [True, False])
def test_files_and_record_are_those_of_a_copy_from_a_folder(server, staging, tmp_path, ranges):
    server.ranges = ranges
    staged = stage(staging)
    assert {name: (staged.root / name).read_bytes() for name in FILES} == FILES
    assert (staged.root / "manifest.json").read_bytes() == server.files[MANIFEST]
    write_files(tmp_path / "source", FILES)
    files = [SourceFile(name, len(body), sha256=describe(body)["sha256"]) for name, body in FILES.items()]
    local = StagingConfig(mode="replicate", stage_dir=tmp_path / "other", keep=True)
    with connect(CPU) as dist:
        stage_dataset(files, tmp_path / "source", local, dist, {}).close()
    assert read_record(staging.stage_dir) == read_record(tmp_path / "other")
    server.asked.clear()
    assert stage(staging).bytes_read == 0 and asked(server) == [MANIFEST]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_of_several_pieces_needs_a_server_of_parts(server, staging, monkeypatch, ranges):
    monkeypatch.setattr(plan, "CHUNK_BYTES", 500)
    server.ranges = ranges
    if ranges:
        staged = stage(staging)
        assert {name: (staged.root / name).read_bytes() for name in FILES} == FILES
        assert ("/data/stats.h5", "bytes=1000-1199") in server.asked
    else:
        with pytest.raises(StagingError, match=r"/data/.*: the server serves no parts of files"):
            stage(staging)


@pytest.mark.parametrize("fault", [("status", 503), ("cut", 100), ("status", 429)])
def test_what_may_pass_is_tried_again(server, staging, fault):
    server.faults = [("", None), fault, fault]
    staged = stage(staging)
    assert {name: (staged.root / name).read_bytes() for name in FILES} == FILES
    assert staged.bytes_read == len(server.files[MANIFEST]) + sum(map(len, FILES.values()))
    assert len(asked(server)) == 2 + 3 + 2  # nothing is asked for of an empty file


@pytest.mark.parametrize(
    ("fault", "says", "waited"),
    [
        (("status", 500), ", tried 5 times, the last time: the server answers 500; finished", [0.01, 0.02, 0.04, 0.08]),
        (("cut", 100), ", tried 5 times, the last time: .*; finished", [0.01, 0.02, 0.04, 0.08]),
        (("status", 403), ": the server answers 403", []),
    ],
)
def test_what_does_not_pass_is_named_and_the_rest_resumes(server, staging, monkeypatch, fault, says, waited):
    waits = []
    monkeypatch.setattr(storage.UrlStorage, "_wait_for_retry", lambda _, seconds: waits.append(seconds) or True)
    server.faults = [("", None), ("", None), *[fault] * storage.ATTEMPTS]
    with pytest.raises(StagingError, match=rf"{server.url}/data/.*: cannot be read{says}"):
        stage(staging)
    assert waits == waited
    assert not list(staging.stage_dir.rglob("*.part"))
    server.faults.clear()
    server.asked.clear()
    staged = stage(staging)
    assert {name: (staged.root / name).read_bytes() for name in FILES} == FILES
    assert set(asked(server)) == {MANIFEST, "/data/validation/c%23d.bin", "/data/stats.h5"}


@pytest.mark.parametrize("workers", [1, 4])
def test_after_a_file_is_given_up_no_other_is_tried(server, staging, capfd, workers):
    server.files[MANIFEST] = write_manifest({f"train/{number}": b"1234" for number in range(40)})
    server.faults = [("", None), *[("status", 503)] * 300]
    with pytest.raises(StagingError, match=rf"/data/.*: cannot be read, tried {storage.ATTEMPTS} times"):
        stage(replace(staging, workers=workers))
    assert len(server.asked) <= 1 + storage.ATTEMPTS * workers
    error = capfd.readouterr().err
    assert error.count("the server answers 503") == 1 and "such failures are tried 5 times" in error


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("file:///etc/passwd", r"redirects to file:///etc/passwd, which is not http or https"),
        ("//[", "redirects to an address that is malformed"),
        (MANIFEST, "redirects without end"),
    ],
)
def test_a_wrong_redirect_is_named_at_once(server, staging, target, message):
    server.faults = [("redirect", target)] * 20
    with pytest.raises(StagingError, match=rf"{MANIFEST} {message}"):
        stage(staging)
    assert len(server.asked) <= 1 + fetch.MOST_REDIRECTS


def test_a_redirect_to_another_host_is_printed(server, staging, capsys):
    server.faults = [("redirect", f"{server.url.replace('127.0.0.1', 'localhost')}{MANIFEST}?signature=secret")]
    server.files[f"{MANIFEST}?signature=secret"] = server.files[MANIFEST]
    stage(staging)
    assert re.search(
        rf"staging: {server.url}{MANIFEST} redirects to http://localhost:.*\?\*\*\*", capsys.readouterr().out
    )


def test_https_never_becomes_http():
    check_redirect("https://example.org/a", "/b")
    check_redirect("http://example.org/a", "https://example.net/a")
    with pytest.raises(ValueError, match=r"redirects to http://example\.org/a, which is not https"):
        check_redirect("https://example.org/a", "http://example.org/a")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "MOST_MANIFEST_BYTES",
            len(write_manifest(FILES)) - 1,
            rf"{MANIFEST}: more than .* bytes; expected a manifest",
        ),
        ("STOP", SimpleNamespace(number=15), rf"{MANIFEST}: stopped by a signal"),
        (
            "connect_http",
            Mock(side_effect=ModuleNotFoundError("no aiohttp", name="no_such_aiohttp")),
            r"no_such_aiohttp: pip install '.*\[storage\]'",
        ),
    ],
)
def test_what_ends_the_reading_of_a_manifest(staging, monkeypatch, name, value, message):
    monkeypatch.setattr(storage, name, value)
    with pytest.raises(StagingError, match=message):
        stage(staging)


@pytest.mark.parametrize("chunk", [2000, 500])
def test_a_file_of_another_length_is_final(server, staging, monkeypatch, chunk):
    monkeypatch.setattr(plan, "CHUNK_BYTES", chunk)
    server.files["/data/stats.h5"] = bytes(1190)
    with pytest.raises(StagingError, match=r"/data/stats.h5: the server has 1190 bytes, its manifest says 1200"):
        stage(staging)
    assert asked(server).count("/data/stats.h5") == 1


def test_a_file_that_is_not_that_of_the_manifest_is_named(server, staging):
    server.files["/data/stats.h5"] = bytes(1200)
    with pytest.raises(StagingError, match=rf"{server.url}/data/stats.h5: damaged: sha256"):
        stage(staging)
    assert not (staging.stage_dir / "stats.h5").exists()
    del server.files["/data/stats.h5"]
    with pytest.raises(StagingError, match=rf"{server.url}/data/stats.h5 does not exist, but manifest.json there"):
        stage(staging)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "manifest.json does not exist: staging.source needs the manifest"),
        (b"<html>", "this is a web page"),
        (write_manifest({}), "/data/manifest.json lists no files"),
        (write_manifest({"../x": b""}), "is not a valid manifest"),
        (write_manifest({"staging.jsonl": b""}), "lists 'staging.jsonl', a name that staging keeps"),
    ],
)
def test_without_a_good_manifest_nothing_is_made(server, staging, manifest, message):
    server.files.pop(MANIFEST)
    server.files |= {MANIFEST: manifest} if manifest is not None else {}
    with pytest.raises(StagingError, match=re.escape(message)):
        stage(staging)
    assert not staging.stage_dir.exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["staging.source=https://user:secret@example.org/data"], "user name or a password"),
        (["staging.source=s3://key:secret@bucket/data"], "user name or a password"),
        (["staging.source=https://example.org/data?signature=secret"], "source has a ? or #"),
        (["staging.source=ftp://example.org/data"], "begins with https:// or http:// or s3://"),
        (["staging.source=s3://bucket/data", "staging.mode=shard"], "set mode to replicate or memory"),
    ],
)
def test_wrong_sources_are_refused_and_no_secret_is_quoted(tmp_path, overrides, message):
    path = tmp_path / "small.yaml"
    path.write_text(CASE.config)
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        load(Config, path, ["staging.mode=replicate", *overrides, "staging.stage_dir=node"])
    assert "secret" not in str(error.value)
    assert str(error.value).startswith(f"override '{overrides[-1][:16]}")


# --- training


@pytest.fixture
def case():
    return CASE


@pytest.fixture
def train(run):
    """Train on the small dataset with more arguments; return the curve and the weights of the last checkpoint."""

    def trained(folder, *arguments):
        assert run(f"output_dir={folder}", "train.epochs=2", *arguments) == 4
        exported = Path(folder, "weights.safetensors")
        assert weights.main([folder, str(exported)]) == 0
        return curve(folder), load_file(exported)

    from safetensors.torch import load_file

    from common.training import weights

    return trained


@pytest.fixture
def data_server(data):
    """Serve the small dataset."""
    with FileServer(
        {f"/{path.relative_to(data)}": path.read_bytes() for path in data.rglob("*") if path.is_file()}
    ) as running:
        yield running


def check_equal(first, second):
    assert first[0] == second[0] and first[1].keys() == second[1].keys()
    assert all(tensor.equal(second[1][name]) for name, tensor in first[1].items())


def test_training_from_a_server_equals_training_from_files(train, data_server, capsys):
    source = ("data.data_dir=nowhere", f"staging.source={data_server.url}", "staging.mode=replicate")
    check_equal(train("local"), train("remote", *source, "staging.stage_dir=node"))
    assert not Path("node").exists()
    log = Path("remote/result_0.txt").read_text()
    assert log.index("staging_stop") < log.index("init_stop") and log.count("staging_start") == 1
    assert data_server.url in log
    capsys.readouterr()
    assert CASE.train.main(["small.yaml", *source, "submission.round='2.0'", "staging.stage_dir=node"]) == 2
    assert "staging.source names is copied before" in capsys.readouterr().err


def test_a_resumed_run_and_each_instance_read_a_copy(train, data_server):
    source = ("data.data_dir=nowhere", f"staging.source={data_server.url}", "staging.mode=memory")
    assert CASE.train.main(["small.yaml", *source, "output_dir=run", "train.epochs=1"]) == 4
    check_equal(train("local"), train("run", *source, "--resume"))
    many = ("output_dir=many", "train.epochs=1", "instances.count=2", "instances.ranks=1")
    assert CASE.train.main(["small.yaml", *source, *many]) == 4
    assert Path("run/result_0.txt").read_text().count("staging_stop") == 2
    logs = [Path(f"many/instance_{number}/result_0.txt").read_text() for number in (0, 1)]
    copied = [int(re.search(r'"staging_bytes_read": (\d+)', log)[1]) for log in logs]
    assert copied == [sum(map(len, data_server.files.values())), 0]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return a function that puts the files of a folder into a bucket of an object store."""
    import s3fs

    with swift.object_store(tmp_path / "store") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        files.mkdirs("universes", exist_ok=True)
        yield lambda folder, name: files.put(f"{folder}/", f"universes/{name}/", recursive=True)


@pytest.mark.exhaustive
@pytest.mark.needs("swift", swift.HERE, swift.HOW)
def test_files_come_in_pieces_from_an_object_store_or_the_error_names_the_address(store, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_BYTES", 500)
    write_files(tmp_path / "source", FILES | {"manifest.json": write_manifest(FILES)})
    store(tmp_path / "source", "pieces")
    staged = stage(StagingConfig(mode="replicate", stage_dir=tmp_path / "n", source="s3://universes/pieces", keep=True))
    assert {name: (staged.root / name).read_bytes() for name in FILES} == FILES

    def refused(name):
        with pytest.raises(StagingError) as error:
            stage(StagingConfig(mode="replicate", stage_dir=tmp_path / "m", source=f"s3://universes/{name}"))
        return str(error.value)

    assert "s3://universes/none/manifest.json does not exist" in refused("none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert re.search(r"s3://universes/pieces/manifest.json: cannot be read: .*signature", refused("pieces"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", f"{tmp_path}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert "cannot be read: Unable to locate credentials" in refused("pieces")
