"""Files appear whole or not at all, and an error names the file."""

import errno
import os
import stat
from unittest.mock import Mock

import pytest

from common.files import (
    explain_lost_link,
    follow_no_link,
    link_whole_file,
    open_whole_file,
    remove_leftovers,
    whole_file,
    write_whole_file,
)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(OSError, match=rf"No space left on device: .*{path}"), whole_file(path) as part:
        part.write_text("ne")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with whole_file(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_a_pipe_or_device_is_not_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(OSError, match=f"this is a device or a pipe.*{path.name}"), whole_file(path):
            pytest.fail("it began")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and link.is_symlink()


def test_nobody_can_have_a_file_written_through_a_link(tmp_path):
    path, secret = tmp_path / "history.csv", tmp_path / "secret"
    secret.write_text("key")
    path.symlink_to(secret)
    write_whole_file(path, "a new line\n")
    assert (path.is_symlink(), path.read_text(), secret.read_text()) == (False, "a new line\n", "key")
    with pytest.raises(OSError, match="exchanged"), whole_file(path) as part:
        part.unlink()
        part.symlink_to(secret)
    assert path.read_text() == "a new line\n" and not path.is_symlink()
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(OSError, match="link, which is not followed"), open(path, "ab", opener=follow_no_link):
        pytest.fail("it was opened")
    assert secret.read_text() == "key"


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path):
    path = tmp_path / "a[1]"
    with open_whole_file(path) as file:
        file.write(b"half of it")
        file.flush()
        (left,) = tmp_path.iterdir()
        others = [tmp_path / "a[1].notes.tmp", tmp_path / "a1.0123456789abcdef.tmp"]
        for other in others:
            other.touch()
        os.link(left, tmp_path / "a[1].0123456789abcdef.tmp")
    assert left.suffix == ".tmp" and not left.exists()
    remove_leftovers(path)
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_a_file_becomes_another_name_of_one_or_a_copy_of_it(tmp_path, monkeypatch):
    source, path = tmp_path / "epoch-1.pt", tmp_path / "best.pt"
    for content in ("first", "second"):
        write_whole_file(source, content)
        link_whole_file(source, path)
        assert path.samefile(source)

    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(errno.EPERM, "no links here")))
    write_whole_file(source, "third")
    link_whole_file(source, path)
    assert path.read_text() == "third" and not path.samefile(source)


def test_links_to_nothing_and_in_a_loop_are_told(tmp_path):
    (tmp_path / "lost").symlink_to("gone/a.txt")
    (tmp_path / "loop").symlink_to("loop")
    assert f"is a link to {tmp_path}/gone/a.txt, which does not exist" in explain_lost_link(tmp_path / "lost")
    assert "in a loop of links" in explain_lost_link(tmp_path / "loop" / "below")
    assert explain_lost_link("a" * 5000) == explain_lost_link(tmp_path) == ""
