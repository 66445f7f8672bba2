"""Arrays in one piece of a file: any offset, direct or not, and files that end early."""

import errno
import fcntl
import os
import warnings

import numpy as np
import pytest

from common.data import arrays
from common.data.arrays import ArrayError, StoredArray

VALUES = np.random.default_rng(3).integers(0, 2**31, (37, 5, 7), np.int32)


def stored(path, offset, tail=b""):
    path.write_bytes(bytes(offset) + VALUES.tobytes() + tail)
    return StoredArray(path, offset, VALUES.shape, VALUES.dtype)


@pytest.mark.parametrize("offset", [0, 1, 128, 4095, 4096, 9001])
@pytest.mark.parametrize("direct", [False, True])
def test_an_array_is_read_from_any_place(tmp_path, monkeypatch, offset, direct):
    monkeypatch.setattr(arrays, "BLOCK_BYTES", 1000)  # 7 rows
    array = stored(tmp_path / "a", offset, b"tail")
    into = np.empty_like(VALUES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # not every file system reads directly
        array.read(into, direct)
        found = [(rows, block.copy()) for rows, block in array.blocks(direct)]
    assert np.array_equal(into, VALUES)
    assert len(found) == 6 and all(np.array_equal(VALUES[rows], block) for rows, block in found)
    array.row(11).read(into[0])
    assert np.array_equal(into[0], VALUES[11])


@pytest.mark.parametrize("direct", [False, True])
def test_a_file_that_ends_early_is_named(tmp_path, direct):
    array = stored(tmp_path / "short", 64)
    os.truncate(array.path, 64 + VALUES.nbytes - 1)
    with pytest.raises(ArrayError, match=r"short: ends after 5,243 of 5,244 bytes; fetch it again"):
        array.read(np.empty_like(VALUES), direct)
    array.path.unlink()
    with pytest.raises(FileNotFoundError, match="short"):
        array.read(np.empty_like(VALUES), direct)


@pytest.mark.parametrize("at", ["open", "read"])
def test_where_direct_reading_is_refused_a_warning_says_so(tmp_path, monkeypatch, at):
    refuse, real_fcntl, real_preadv = OSError(errno.EINVAL, "Invalid argument"), fcntl.fcntl, os.preadv
    refused = []

    def no_fcntl(file, command, value=0):
        if at == "open" and command == fcntl.F_SETFL and value & os.O_DIRECT:
            raise refuse
        return real_fcntl(file, command, value)

    def no_preadv(file, views, offset):
        if at == "read" and not refused:
            refused.append(file)
            raise refuse
        return real_preadv(file, views, offset)

    monkeypatch.setattr(fcntl, "fcntl", no_fcntl)
    monkeypatch.setattr(os, "preadv", no_preadv)
    into = np.empty_like(VALUES)
    with pytest.warns(RuntimeWarning, match=r"refuses O_DIRECT \(Invalid argument\).*data.direct=false"):
        stored(tmp_path / "a", 128).read(into, direct=True)
    assert np.array_equal(into, VALUES)
