"""Only regular files inside a folder are read, and nothing makes the reader wait."""

import os
import pickle
import socket

import pytest

from common import tree
from common.tree import ANYWHERE, NAMED, RefusedFileError, Tree


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("text")
    (folder / "below").mkdir()
    return folder


def test_a_file_is_read_also_through_links_that_stay_inside(folder, tmp_path):
    (folder / "below" / "link").symlink_to("../file")
    (tmp_path / "other").symlink_to(folder)
    for path in (folder / "file", folder / "below" / "link", tmp_path / "other" / "file"):
        assert Tree.at(folder).read(path, 4) == b"text" and not Tree.at(folder).leads_out(path)
    assert Tree.at(tmp_path / "other").read(folder / "file", 4) == b"text"


def socket_at(path):
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(path))


REFUSED = {
    "pipe": (os.mkfifo, "is a pipe, not a file"),
    "folder": (os.mkdir, "is a folder, not a file"),
    "socket": (socket_at, "is a socket, not a file"),
    "device": (lambda path: os.symlink("/dev/zero", path), "is a device, not a file"),
    "link": (lambda path: os.symlink("../secret", path), "is a link that leads out of"),
    "absolute": (lambda path: os.symlink(path.parent.parent / "secret", path), "is a link that leads out of"),
    "beside": (lambda path: os.symlink("../folder-2/file", path), "is a link that leads out of"),
    "folder link": (lambda path: os.symlink("..", path) or path / "secret", "is a link that leads out of"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_everything_else_is_refused(folder, kind, tmp_path, monkeypatch):
    (tmp_path / "folder-2").mkdir()
    (tmp_path / "folder-2" / "file").write_text("secret")
    monkeypatch.chdir(folder)
    make, reason = REFUSED[kind]
    path = make(folder / "x") or folder / "x"
    with pytest.raises(RefusedFileError, match=reason) as refused:
        Tree.at(folder).open(path)
    assert str(refused.value).startswith(f"{path} is a ")
    assert Tree.at(folder).begin(path, 10) == b""


def test_a_refusal_reaches_another_process(folder):
    with pytest.raises(RefusedFileError) as refused:
        Tree.at(folder).open(folder)
    other = pickle.loads(pickle.dumps(refused.value))
    assert (type(other), str(other)) == (RefusedFileError, f"{folder} is a folder, not a file")
    assert (other.filename, other.reason) == (str(folder), "is a folder, not a file")


def test_a_loop_of_links_and_a_missing_file_are_errors_of_the_system(folder):
    (folder / "loop").symlink_to("loop")
    for name in ("loop", "missing"):
        with pytest.raises(OSError, match=name):
            Tree.at(folder).open(folder / name)


def test_a_file_that_becomes_a_pipe_before_it_is_opened_is_refused(folder, monkeypatch):
    status = os.stat(folder / "file")
    os.mkfifo(folder / "pipe")
    monkeypatch.setattr(os, "stat", lambda path: status)
    with pytest.raises(RefusedFileError, match="is a pipe"):
        Tree.at(folder).open(folder / "pipe")


def test_more_bytes_than_allowed_are_refused_and_the_beginning_can_be_read(folder):
    with pytest.raises(RefusedFileError, match="is larger than 3 bytes"):
        Tree.at(folder).read(folder / "file", 3)
    assert Tree.at(folder).begin(folder / "file", 3) == b"tex"


def test_links_lead_anywhere_without_a_folder_and_a_named_file_may_be_the_null_device(folder):
    (folder / "link").symlink_to("../secret")
    assert ANYWHERE.read(folder / "link", 10) == b"secret"
    assert NAMED.open("/dev/null").read() == b""
    with pytest.raises(RefusedFileError, match="is a device or a socket"):
        NAMED.open("/dev/zero")


def test_a_pipe_into_which_nothing_is_written_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(tree, "WRITER_S", 0.01)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RefusedFileError, match="pipe is a pipe, and nothing was written to it"):
        NAMED.open(tmp_path / "pipe")
    with os.fdopen(os.open(tmp_path / "pipe", os.O_RDWR), "wb") as writer:
        writer.write(b"text")
        writer.flush()
        assert os.read(NAMED.open(tmp_path / "pipe").fileno(), 10) == b"text"
