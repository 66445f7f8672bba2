"""`python -m BENCHMARK.fetch`: what is published becomes a dataset with a manifest, and never more than it is."""

import gc
import hashlib
import io
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from common.benchmarks import PACKAGES
from common.commands.fetch import FetchCommand
from common.data import fetch as download
from common.data.fetch import Archive, Published
from common.data.manifest import NAME, read_manifest
from cosmoflow.fetch import FETCH as COSMOFLOW
from cosmoflow.fetch import SAMPLES
from deepcam.fetch import FETCH as DEEPCAM
from oc20.fetch import FETCH as OC20
from tests.common.data.server import FileServer, needs_storage
from tests.problems import ROOT

pytestmark = needs_storage
CONTENT = {
    f"{split}/{name}.tfrecord": bytes([number]) * 3000
    for number, (split, name) in enumerate((split, name) for split in ("train", "val", "test") for name in "ab")
}
EXPECTED = {name.replace("val/", "validation/"): body for name, body in CONTENT.items() if "test" not in name}


def tar_of(members, mode="w", sparse=None):
    """Return a tar file; a member is bytes, or the target of a link. sparse: where the members say they have data."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        for name, body in members:
            member = tarfile.TarInfo(name)
            member.pax_headers = {"GNU.sparse.map": sparse} if sparse else {}
            if isinstance(body, str):
                member.type, member.linkname = tarfile.SYMTYPE, body
                archive.addfile(member)
            else:
                member.size = len(body)
                archive.addfile(member, io.BytesIO(body))
    return made.getvalue()


def header(kind, size):
    """Return a header of a tar file, of a name that is too long for others, or of more about the next member."""
    member = tarfile.TarInfo("long")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


TAR = tar_of([(f"cosmo/{name}", body) for name, body in CONTENT.items()] + [("cosmo/README", b"read me")])


def command(url, body=TAR, md5=""):
    """Return the command of a dataset in one archive with this size."""
    archive = Archive("all.tar", len(body), sum(map(len, EXPECTED.values())), SAMPLES, md5)
    whole = Published("full", "four samples", url, {"train": 2, "validation": 2}, (archive,))
    part = replace(whole, name="small", counts={"train": None, "validation": None})
    return FetchCommand("cosmoflow.fetch", (whole, part), "none", "python -m cosmoflow.train config {}".format, {})


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "FIRST_WAIT_S", 0.01)
    with FileServer({"/all.tar": TAR}) as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != NAME
    }


def test_the_whole_dataset_arrives_with_its_manifest(server, folder, capsys):
    assert command(server.url).main([str(folder)]) == 0
    assert content(folder) == EXPECTED
    manifest = read_manifest(folder / NAME)
    assert (manifest.benchmark, manifest.variant) == ("cosmoflow", "full")
    assert {name: one.sha256 for name, one in manifest.files.items()} == {
        name: hashlib.sha256(body).hexdigest() for name, body in EXPECTED.items()
    }
    out = capsys.readouterr().out
    assert (
        "2 files in train, 2 files in validation" in out and f"next: python -m cosmoflow.train config {folder}" in out
    )
    asked = len(server.asked)
    assert command(server.url).main([str(folder)]) == 0 and len(server.asked) == asked  # nothing is asked for again


def test_a_part_says_so_and_does_not_mix_with_the_whole(server, folder, capsys):
    assert command(server.url).main([str(folder), "--subset", "small", "--keep"]) == 0
    assert read_manifest(folder / NAME).variant == "subset-small"
    assert content(folder).keys() - EXPECTED.keys() == {"download/all.tar"}
    assert command(server.url).main([str(folder)]) == 1
    assert "variant: subset-small in the folder, full now" in capsys.readouterr().err


def test_a_folder_with_other_files_is_left_as_it_is(server, folder, capsys):
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "a.tfrecord").write_bytes(b"mine")
    assert command(server.url).main([str(folder)]) == 1
    assert content(folder) == {"train/a.tfrecord": b"mine"}
    assert "no manifest.json describes them" in capsys.readouterr().err


def test_a_dry_run_makes_nothing(server, folder, capsys):
    assert command(server.url).main([str(folder), "--dry-run"]) == 0
    assert not folder.exists() and [wanted for _, wanted in server.asked] == ["bytes=0-0"]
    assert "to download 30.7 kB, disk space needed about 42.7 kB" in capsys.readouterr().out


def test_too_small_a_disk_is_told_before(server, folder, capsys, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 30_000))
    assert command(server.url).main([str(folder)]) == 1
    assert "42.7 kB needed, 30 kB free; nothing was downloaded" in capsys.readouterr().err and not folder.exists()


def test_a_mirror_has_the_same_files(server, folder):
    assert command("https://example.org").main([str(folder), "--url", f"{server.url}/"]) == 0
    assert content(folder) == EXPECTED


WRONG = [
    "ftp://example.org/x",
    "/data",
    "https://me:secret@example.org/x",
    "http://[::1",
    "http://..",
    "http://a:99999/",
]


@pytest.mark.parametrize("url", [*WRONG, "https://example.org/\N{EM DASH}", "https://example.org/a b"])
def test_an_address_that_is_none(folder, url, capsys):
    assert command("https://example.org").main([str(folder), "--url", url]) == 2
    assert "secret" not in capsys.readouterr().err


def test_a_page_in_place_of_an_archive_is_not_downloaded(server, folder, capsys):
    server.files["/all.tar"] = b"<html>moved</html>"
    assert command(server.url).main([str(folder)]) == 1
    assert "this is another file, or a page" in capsys.readouterr().err and not folder.exists()


SAMPLE = ("cosmo/train/a.tfrecord", bytes(3000))


@contextmanager
def without_collections():
    """Collect no garbage: what is collected at the end of the stack cannot even be reported, which pytest refuses."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (tar_of([("../../train/a.tfrecord", "/etc/hostname")]), "a.tfrecord is a link or a device"),
        (tar_of([SAMPLE, ("other/train/a.tfrecord", b"x")]), "there are two of train/a.tfrecord"),
        (tar_of([("cosmo/train/a.tfrecord", bytes(100_000))], "w:gz"), "unpacks to twice its published size"),
        (tar_of([("x/README", b"none")]), "has no file of the dataset"),
        (tar_of([SAMPLE]), "1 files in train, but 2 are published"),
        (TAR[:9000], "is damaged, or no tar file: unexpected end of data"),
        (tar_of([SAMPLE], "w:gz")[:-40], "is damaged, or no tar file"),
        (bytes(range(256)) * 40, "is damaged, or no tar file"),
        (b"<html>404</html>", "is damaged, or no tar file: this is a web page"),
        (header(b"L", 0) * 3000 + TAR, "is damaged, or no tar file: maximum recursion depth"),
        (header(b"x", 2**70) + TAR, "is damaged, or no tar file: cannot fit 'int'"),
        (tar_of([SAMPLE], sparse="7,many"), "is damaged, or no tar file: invalid literal for int()"),
    ],
    ids=lambda value: value if isinstance(value, str) else "archive",  # gzip writes the time: names would change
)
def test_what_is_not_the_published_archive(server, folder, body, says, capsys):
    server.files["/all.tar"] = body
    with without_collections():
        assert command(server.url, body).main([str(folder)]) == 1
    assert says in capsys.readouterr().err and not (folder / NAME).exists()
    assert {path.parent.name for path in folder.rglob("*.tfrecord")} <= {"train", "validation"}


def test_members_that_lead_out_of_the_dataset_do_not(server, folder):
    names = [f"../../../{name}" for name in CONTENT]
    server.files["/all.tar"] = tar_of(zip(names, CONTENT.values(), strict=True))
    assert command(server.url).main([str(folder)]) == 0
    assert content(folder.parent) == {f"data/{name}": body for name, body in EXPECTED.items()}


def test_unpacking_goes_on_where_it_stopped(server, folder):
    server.files["/all.tar"] = TAR[:17_000]
    assert command(server.url).main([str(folder)]) == 1
    stamp = (folder / "train" / "a.tfrecord").stat().st_mtime_ns
    (folder / "download" / "all.tar").unlink()
    server.files["/all.tar"] = TAR
    assert command(server.url).main([str(folder)]) == 0
    assert content(folder) == EXPECTED and (folder / "train" / "a.tfrecord").stat().st_mtime_ns == stamp


SCRIPT = """
import sys
from tests.common.commands.test_fetch import command
sys.exit(command(sys.argv[1]).main([sys.argv[2]]))
"""


def test_ctrl_c_does_not_wait_for_a_silent_server(server, folder):
    silent, asked = threading.Event(), threading.Event()

    def stop_answering(_):
        if len(server.asked) > 3:  # two for the size, and one that is cut
            asked.set()
            silent.wait()

    server.faults, server.on_request = [("cut", 20_000)], stop_answering
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, server.url, str(folder)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)  # less than the time that a server may be silent
    silent.set()
    assert process.returncode == 130 and err == "interrupted: finished work is kept; the same command continues\n"
    server.on_request = lambda _: None
    assert command(server.url).main([str(folder)]) == 0
    assert content(folder) == EXPECTED and server.asked[-1] == ("/all.tar", "bytes=20000-")


def test_a_wrong_checksum_unpacks_nothing_now_nor_later(server, folder, capsys):
    for _ in range(2):
        assert command(server.url, md5="0" * 32).main([str(folder)]) == 1
        assert f"{'0' * 32} is published" in capsys.readouterr().err and not (folder / "train").exists()
    assert len(server.asked) == 3  # the file is there


# -- single files

SNAPSHOT = {f"data-2000-01-01-0{number}-1.h5": bytes([number]) * 5000 for number in range(4)}


@pytest.fixture
def snapshots(server):
    for split, names in (("train", list(SNAPSHOT)[:3]), ("validation", list(SNAPSHOT)[3:])):
        server.files |= {f"/{split}/{name}": SNAPSHOT[name] for name in names}
        server.files[f"/{split}/files.txt"] = "\n".join([*names, "README", "../data-2000-01-01-00-9.h5"]).encode()
    server.files["/stats.h5"] = b"stats"
    return server


def deepcam(url):
    folders = tuple(replace(one, bytes=5000.0) for one in DEEPCAM.sets[0].folders)
    counts = {"train": 3, "validation": 1}
    return replace(DEEPCAM, sets=(replace(DEEPCAM.sets[0], address=url, folders=folders, counts=counts),))


def test_files_by_name(snapshots, folder, capsys):
    assert deepcam(snapshots.url).main([str(folder)]) == 0
    assert content(folder) == {
        name.removeprefix("/"): body for name, body in snapshots.files.items() if name.endswith(".h5")
    }
    assert read_manifest(folder / NAME).variant == "full"
    assert f"next: python -m deepcam.train config data.data_dir={folder}" in capsys.readouterr().out


def test_a_number_of_files_is_a_part(snapshots, folder, capsys):
    del snapshots.files["/stats.h5"], snapshots.files["/train/files.txt"]
    links = "".join(f'<a href="{name}">{name}</a>' for name in ["?C=N;O=D", "/up/", *SNAPSHOT])
    snapshots.files["/train/"] = links.encode()
    assert deepcam(snapshots.url).main([str(folder), "--subset", "2"]) == 0
    assert sorted(path.name for path in (folder / "train").iterdir()) == list(SNAPSHOT)[:2]
    assert len(list((folder / "validation").iterdir())) == 1
    assert read_manifest(folder / NAME).variant == "subset-2"
    assert "deepcam.summarize" in capsys.readouterr().out


def test_a_list_without_all_files_is_not_the_dataset(snapshots, folder, capsys):
    snapshots.files["/train/files.txt"] = next(iter(SNAPSHOT)).encode()
    assert deepcam(snapshots.url).main([str(folder)]) == 1
    assert "/train lists 1 files of the dataset, expected 3" in capsys.readouterr().err


def test_single_files_go_on_where_they_stopped(snapshots, folder, capsys):
    missing = snapshots.files.pop(f"/train/{list(SNAPSHOT)[2]}")
    assert deepcam(snapshots.url).main([str(folder), "--connections", "1"]) == 1
    assert "the server answers 404: there is no such file" in capsys.readouterr().err and not (folder / NAME).exists()
    snapshots.files[f"/train/{list(SNAPSHOT)[2]}"], snapshots.asked = missing, []
    assert deepcam(snapshots.url).main([str(folder)]) == 0
    assert not [path for path, _ in snapshots.asked if path == f"/train/{next(iter(SNAPSHOT))}"]


def test_two_calls_at_once_do_not_mix(snapshots, folder, capsys):
    others = []

    def call_again(path):
        if path.endswith(".h5") and not others:
            others.append(None)
            others[0] = deepcam(snapshots.url).main([str(folder)])

    snapshots.on_request = call_again
    assert deepcam(snapshots.url).main([str(folder)]) == 0 and others == [1]
    assert f"{folder} is being filled by another process; wait for it" in capsys.readouterr().err
    assert len(content(folder)) == 5


def test_a_list_that_ends_early_is_asked_for_again(snapshots, folder):
    snapshots.faults = [("cut", 30)]
    assert deepcam(snapshots.url).main([str(folder)]) == 0
    assert len(list((folder / "train").iterdir())) == 3
    assert [path for path, _ in snapshots.asked[:2]] == ["/train/files.txt"] * 2


# -- what is listed

(LARGE, VALIDATION), (SMALL, _) = (one.archives for one in OC20.sets)


@pytest.mark.parametrize("fetch", [COSMOFLOW, DEEPCAM, OC20], ids=PACKAGES)
def test_what_is_published(fetch, capsys):
    assert fetch.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert out.count("https://") >= 1 and "licence: " in out and f"python -m {fetch.benchmark}.fetch DIR" in out
    assert fetch.sets[0].variant == "full" and len({one.name for one in fetch.sets}) == len(fetch.sets)
    assert fetch.main(["data", "--subset", "nonsense"]) == 2
    assert fetch.main([]) == 2


@pytest.mark.parametrize(
    ("place_of", "member", "place"),
    [
        (SAMPLES, "a_v2/val/u_000.tfrecord", "validation/u_000.tfrecord"),
        (SAMPLES, "a_v2/test/u_000.tfrecord", None),
        (SAMPLES, "a_v2/train/u.txt", None),
        (LARGE.dataset_path, "s2ef_train_2M/s2ef_train_2M/12.extxyz.xz", "train/12.extxyz.xz"),
        (SMALL.dataset_path, "s2ef_train_200K/s2ef_train_200K/12.txt.xz", "train/12.txt.xz"),
        (VALIDATION.dataset_path, "s2ef_val_id/s2ef_val_id/7.txt.xz", "validation/7.txt.xz"),
        (LARGE.dataset_path, "s2ef_train_2M/README", None),
    ],
)
def test_members_of_the_published_archives_have_their_places(place_of, member, place):
    assert place_of(member) == place
