"""Downloads come whole or say why not, and go on where they stopped."""

import asyncio
import hashlib
import socket
import threading
from unittest.mock import AsyncMock

import pytest

from common.data import fetch as download
from common.data.fetch import Downloader, DownloadError, check_md5
from tests.common.data.server import FileServer, needs_storage

pytestmark = needs_storage
BODY = bytes(range(256)) * 41 + b"end"
NAME = "a.tar"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "FIRST_WAIT_S", 0.001)
    with FileServer({f"/{NAME}": BODY}) as running:
        yield running


def fetch(server, folder, names=(NAME,), connections=3):
    """Download files; return the sum of the bytes that a bar shows, and the names in the order of their arrival."""
    shown, finished = [], []
    Downloader(server.url, folder).download_files(
        dict.fromkeys(names, float(len(BODY))), connections, shown.append, finished.append
    )
    return sum(shown), finished


def spans_asked(server):
    return [span for _, span in server.asked if span != "bytes=0-0"]


def leave_part(server, folder, count):
    """Let a download fail after `count` bytes of the file arrived."""
    server.faults = [("cut", count), ("status", 403)]
    with pytest.raises(DownloadError, match="403"):
        fetch(server, folder)
    (part,) = folder.iterdir()
    assert part.read_bytes() == BODY[:count]
    server.asked.clear()
    return part


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("etag", ['"1"', ""])
def test_a_file_arrives_as_it_is(server, tmp_path, ranges, etag):
    server.ranges, server.etag = ranges, etag
    assert Downloader(server.url, tmp_path).count_missing(NAME, len(BODY)) == len(BODY)
    assert fetch(server, tmp_path / "new") == (len(BODY), [NAME])
    assert [path.name for path in (tmp_path / "new").iterdir()] == [NAME]
    assert (tmp_path / "new" / NAME).read_bytes() == BODY


def test_several_files_come_at_once_and_one_that_is_there_does_not(server, tmp_path):
    meeting = threading.Barrier(3)
    server.on_request = lambda _: meeting.wait(30)  # three requests wait for one another
    names = [f"train/{number}" for number in range(4)]
    server.files = {f"/{name}": BODY for name in names}
    (tmp_path / "train").mkdir()
    (tmp_path / names[0]).write_bytes(b"there")
    total, finished = fetch(server, tmp_path, names)
    assert total == 3 * len(BODY) and sorted(finished) == names
    assert [(tmp_path / name).read_bytes() for name in names] == [b"there", BODY, BODY, BODY]


def test_an_interrupted_download_asks_only_for_what_is_missing(server, tmp_path):
    leave_part(server, tmp_path, 4000)
    assert Downloader(server.url, tmp_path).count_missing(NAME, len(BODY)) == len(BODY) - 4000
    assert fetch(server, tmp_path)[0] == len(BODY) - 4000
    assert (tmp_path / NAME).read_bytes() == BODY and spans_asked(server) == ["bytes=4000-"]


def test_a_part_that_is_complete_is_asked_for_no_more(server, tmp_path):
    part = leave_part(server, tmp_path, 4000)
    part.write_bytes(BODY)
    fetch(server, tmp_path)
    assert (tmp_path / NAME).read_bytes() == BODY and spans_asked(server) == []


def test_a_server_that_ignores_ranges_begins_anew(server, tmp_path):
    leave_part(server, tmp_path, 4000)
    server.ranges, server.faults = False, [("cut", 6000)]
    assert fetch(server, tmp_path)[0] == len(BODY) - 4000
    assert (tmp_path / NAME).read_bytes() == BODY and spans_asked(server) == ["bytes=4000-", "bytes=6000-"]


@pytest.mark.parametrize("faults", [[("cut", 100), ("cut", 0), ("cut", 999)], [("status", 503), ("status", 429)]])
@pytest.mark.parametrize("ranges", [True, False])
def test_what_passes_is_tried_again(server, tmp_path, faults, ranges):
    server.faults, server.ranges = list(faults), ranges
    assert fetch(server, tmp_path)[0] == len(BODY)
    assert (tmp_path / NAME).read_bytes() == BODY and not server.faults


def test_attempts_are_counted_from_the_last_byte(server, tmp_path):
    server.faults = [("cut", 100)] * 3 * download.ATTEMPTS
    fetch(server, tmp_path)
    assert (tmp_path / NAME).read_bytes() == BODY


@pytest.mark.parametrize(
    ("ranges", "fault", "says"),
    [
        (True, ("cut", 0), ".*; what arrived is kept"),
        (False, ("cut", 500), ".*; what arrived is kept"),
        (True, ("raw", b"welcome to the proxy\n\n"), ".*Bad status line"),
    ],
)
def test_a_server_that_brings_nothing_more_ends_the_download(server, tmp_path, ranges, fault, says):
    server.faults, server.ranges = [fault] * 100, ranges
    with pytest.raises(DownloadError, match=rf"tried 5 times, the last time: {says}"):
        fetch(server, tmp_path)
    assert not (tmp_path / NAME).exists() and len(server.asked) <= 1 + 1 + download.ATTEMPTS


def test_a_silent_server_is_given_up(server, tmp_path, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(download, "TIMEOUT_S", 0.05)
    server.on_request = lambda _: ended.wait(60)
    with pytest.raises(DownloadError, match=r"/a\.tar: cannot be read, tried 5 times, the last time: .*[Tt]imeout"):
        fetch(server, tmp_path)
    ended.set()


def test_a_redirect_is_followed(server, tmp_path):
    server.files["/moved"] = BODY
    server.faults = [("redirect", f"{server.url}/moved")]
    fetch(server, tmp_path)
    assert (tmp_path / NAME).read_bytes() == BODY and "/moved" in dict(server.asked)


@pytest.mark.parametrize("etag", ['"2"', '"1"'])
def test_a_file_that_changes_in_between_is_not_mixed(server, tmp_path, etag):
    part = leave_part(server, tmp_path, 4000)
    server.files[f"/{NAME}"], server.etag = bytes(len(BODY) + (etag == '"1"')), etag
    with pytest.raises(DownloadError, match=rf"of another version of .*: rm {part}"):
        fetch(server, tmp_path)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_changes_meanwhile_is_not_mixed(server, tmp_path, ranges):
    def change(_):
        if len(spans_asked(server)) == 2:
            server.files[f"/{NAME}"], server.etag = bytes(len(BODY)), '"2"'

    server.ranges, server.faults, server.on_request = ranges, [("cut", 4000)], change
    with pytest.raises(DownloadError, match="has changed at the server since this download began"):
        fetch(server, tmp_path)
    assert not (tmp_path / NAME).exists()


def test_without_a_version_a_file_begins_anew(server, tmp_path):
    """Else a file of the same size could follow the bytes of another."""
    server.etag = ""
    leave_part(server, tmp_path, 4000)
    server.files[f"/{NAME}"] = bytes(len(BODY))
    fetch(server, tmp_path)
    assert (tmp_path / NAME).read_bytes() == bytes(len(BODY))


@pytest.mark.parametrize(("name", "stored"), [(NAME, False), ("x.tgz", True)])
def test_a_server_that_compresses_is_refused(server, tmp_path, name, stored):
    """A server may say gzip of an archive that is stored so."""
    server.encoding, server.files[f"/{name}"] = "gzip", BODY
    if stored:
        fetch(server, tmp_path, [name])
        assert (tmp_path / name).read_bytes() == BODY
    else:
        with pytest.raises(DownloadError, match=r"the server compresses what it sends \(gzip\)"):
            fetch(server, tmp_path, [name])


def test_a_checksum_that_is_not_the_published_one(tmp_path):
    path, md5 = tmp_path / NAME, hashlib.md5(BODY).hexdigest()
    path.write_bytes(BODY)
    check_md5(path, md5)
    with pytest.raises(DownloadError, match=rf"MD5 {md5}, but {'0' * 32} is published: .* rm {path}"):
        check_md5(path, "0" * 32)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (("status", 404), "answers 404: there is no such file.*--url"),
        (("status", 403), "answers 403; look"),
        (("status", 401), "answers 401; look"),
        (("redirect", "file:///etc/hostname"), "redirects to file:///etc/hostname, which is not http or https"),
    ],
)
def test_what_does_not_pass_is_named_at_once(server, tmp_path, fault, message):
    server.faults = [fault] * 20
    with pytest.raises(DownloadError, match=rf"{server.url}/{NAME}: .*{message}"):
        fetch(server, tmp_path)
    assert len(server.asked) == 2


def test_a_server_that_is_not_there(server, tmp_path, monkeypatch):
    server.url = "http://127.0.0.1:9"
    with pytest.raises(DownloadError, match=r"tried 5 times, the last time: .*127\.0\.0\.1.*Connect call failed"):
        fetch(server, tmp_path)

    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", AsyncMock(side_effect=unknown))
    server.url = "http://nowhere.example"
    with pytest.raises(DownloadError, match=r"nowhere\.example.*Name or service not known"):
        fetch(server, tmp_path)


def test_an_answer_without_size_shows_nothing(server, tmp_path):
    server.ranges = server.length = False
    with pytest.raises(DownloadError, match="does not say how large"):
        fetch(server, tmp_path)


def test_a_small_file_is_read_up_to_a_limit(server, tmp_path):
    files = Downloader(server.url, tmp_path)
    server.faults = [("cut", 5), ("status", 503)]
    assert files.read_small(NAME, len(BODY)) == BODY and files.read_small("b", 5) is None
    with pytest.raises(DownloadError, match="more than 5 bytes"):
        files.read_small(NAME, 5)
