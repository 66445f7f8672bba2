"""Downloads come whole or say why not, and go on where they stopped."""

import hashlib
import threading
from urllib.request import Request

import pytest
from tqdm import tqdm

from common.fetch import download
from common.fetch.download import Download, DownloadError, Redirects, Stopped, Transfer, probe_url
from tests.common.fetch.server import FileServer

BODY = bytes(range(256)) * 41 + b"end"  # not a multiple of a piece
PIECE = 1000
MD5 = hashlib.md5(BODY).hexdigest()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "PIECE", PIECE)
    monkeypatch.setattr(download, "LONGEST_WAIT_S", 0.01)
    with FileServer({"/a.tar": BODY}) as running:
        yield running


@pytest.fixture
def path(tmp_path):
    return tmp_path / "download" / "a.tar"


def fetch(server, path, md5=MD5, stop=None, connections=3):
    remote = probe_url(f"{server.url}/a.tar")
    Download(remote, path).run(Transfer(connections, tqdm(disable=True), stop or threading.Event()), md5)


def pieces_asked(server):
    return [wanted for _, wanted in server.asked if wanted not in ("", "bytes=0-0")]


def stop_after(server, pieces):
    """Return an event that a server sets with the request for one more piece."""
    stop = threading.Event()
    server.on_request = lambda _: stop.set() if len(pieces_asked(server)) > pieces else None
    return stop


def left_of(path):
    return sorted(one.name for one in path.parent.iterdir())


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("etag", ['"1"', "W/1", ""])
def test_a_file_arrives_as_it_is(server, path, ranges, etag):
    server.ranges, server.etag = ranges, etag
    fetch(server, path)
    assert path.read_bytes() == BODY and left_of(path) == ["a.tar"]


def test_an_interrupted_download_asks_only_for_what_is_missing(server, path):
    with pytest.raises(Stopped):
        fetch(server, path, stop=stop_after(server, 4), connections=1)
    assert not path.exists() and left_of(path) == ["a.tar.part", "a.tar.part.json"]
    before, server.asked = pieces_asked(server), []
    server.on_request = lambda _: None
    fetch(server, path)
    assert path.read_bytes() == BODY
    assert not set(before[:4]) & set(pieces_asked(server)) and len(pieces_asked(server)) == len(BODY) // PIECE + 1 - 4


def test_a_record_that_ends_in_half_a_line_counts_as_less(server, path):
    with pytest.raises(Stopped):
        fetch(server, path, stop=stop_after(server, 0), connections=1)
    record = path.with_name("a.tar.part.json")
    record.write_text(record.read_text() + "1")  # of 10; piece 1 is not there
    server.on_request = lambda _: None
    fetch(server, path)
    assert path.read_bytes() == BODY


@pytest.mark.parametrize(
    "faults",
    [
        [("cut", 100), ("cut", 0), ("cut", 999)],
        [("status", 503), ("status", 429), ("status", 500)],
    ],
)
@pytest.mark.parametrize("ranges", [True, False])
def test_what_passes_is_tried_again(server, path, faults, ranges):
    server.faults, server.ranges = list(faults), ranges
    fetch(server, path)
    assert path.read_bytes() == BODY and not server.faults


@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_that_always_cuts_ends_the_download(server, path, ranges):
    server.faults, server.ranges = [("cut", 0 if ranges else 500)] * 100, ranges
    with pytest.raises(DownloadError, match="too early, 6 times in a row; finished pieces are kept"):
        fetch(server, path)
    assert not path.exists()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_redirect_is_followed(server, path, ranges):
    server.files["/moved"], server.ranges = BODY, ranges
    server.faults = [("redirect", f"{server.url}/moved")] * 3
    fetch(server, path)
    assert path.read_bytes() == BODY


def test_a_redirect_to_a_file_of_this_machine_is_not_followed(server, path):
    server.faults = [("redirect", "file:///etc/hostname")] * 3
    with pytest.raises(DownloadError, match="Redirection to url 'file:///etc/hostname' is not allowed"):
        fetch(server, path)


def test_a_redirect_to_an_address_that_does_not_parse_is_told(server, path):
    server.faults = [("redirect", "http://[bad/")] * 3
    with pytest.raises(DownloadError, match=r"redirects to an address that is malformed .*IPv6"):
        fetch(server, path)


def test_a_redirect_to_an_open_connection_is_not_followed():
    with pytest.raises(DownloadError, match="which is not https"):
        Redirects().redirect_request(Request("https://a.org/x"), None, 302, "Found", {}, "http://b.org/x")


def test_a_file_that_changes_in_between_is_not_mixed(server, path):
    with pytest.raises(Stopped):
        fetch(server, path, stop=stop_after(server, 4), connections=1)
    server.on_request = lambda _: None
    server.files["/a.tar"], server.etag = bytes(len(BODY)), '"2"'
    with pytest.raises(DownloadError, match=r"of another version or address; .* rm .*a\.tar\.part "):
        fetch(server, path)


def test_a_file_that_changes_meanwhile_is_not_mixed(server, path):
    def change(_):
        if len(pieces_asked(server)) == 3:
            server.files["/a.tar"], server.etag = bytes(len(BODY)), '"2"'

    server.on_request = change
    with pytest.raises(DownloadError, match="has changed at the server since this download began"):
        fetch(server, path, connections=1)
    assert not path.exists()


def test_a_wrong_checksum_gives_no_file_now_nor_later(server, path):
    for _ in range(2):
        with pytest.raises(DownloadError, match=f"MD5 {MD5}, but {'0' * 32} is published: .* rm "):
            fetch(server, path, "0" * 32)
        assert not path.exists()


@pytest.mark.parametrize(
    ("status", "says"),
    [(404, "no such file.*--url"), (403, "access is denied"), (401, "a login"), (418, "answers 418")],
)
def test_what_does_not_pass_is_told_at_once(server, path, status, says):
    if status == 404:
        server.files.clear()
    server.faults = [("status", status)] * 20
    with pytest.raises(DownloadError, match=says):
        fetch(server, path)
    assert len(server.asked) <= 1 + 3  # once on each connection


def test_a_server_that_is_not_there(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(download, "LONGEST_WAIT_S", 0.01)
        with pytest.raises(DownloadError, match="Connection refused, 6 times in a row"):
            probe_url("http://127.0.0.1:9/a.tar")


def test_an_answer_without_size_shows_nothing(server):
    server.ranges = server.length = False
    with pytest.raises(DownloadError, match="does not say how large"):
        probe_url(f"{server.url}/a.tar")


def test_two_processes_do_not_write_one_file(server, path):
    def second(_):
        with pytest.raises(DownloadError, match="downloaded by another process"):
            Download(remote, path).run(Transfer(1, tqdm(disable=True), threading.Event()))
        seen.append(True)

    remote, seen = probe_url(f"{server.url}/a.tar"), []
    server.on_request = second
    Download(remote, path).run(Transfer(1, tqdm(disable=True), threading.Event()), MD5)
    assert seen and path.read_bytes() == BODY


def test_a_part_of_unknown_origin_stays(server, path):
    path.parent.mkdir()
    path.with_name("a.tar.part").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="move it away"):
        fetch(server, path)
    assert path.with_name("a.tar.part").read_bytes() == b"mine"


def test_a_record_without_its_part_is_not_believed(server, path):
    with pytest.raises(Stopped):
        fetch(server, path, stop=stop_after(server, 4), connections=1)
    server.on_request = lambda _: None
    path.with_name("a.tar.part").unlink()
    with pytest.raises(DownloadError, match=r"a\.tar\.part lacks what a\.tar\.part\.json says is there; remove both"):
        fetch(server, path)
