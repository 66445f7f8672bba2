"""Files appear whole or not at all, and an error names the file."""

import errno
import os
import stat

import pytest

from common.files import whole_file


def test_an_error_of_the_disk_names_the_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "a file"
    with pytest.raises(OSError, match=r"No space left on device: .*a file"), whole_file(path) as part:
        part.write_text("half of it")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), whole_file(path) as part:
        part.write_text("ne")
        raise OSError("disk full")
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
