"""Arrays in one piece of a file: any offset, direct or not, and files that end early."""

import errno
import fcntl
import gc
import os
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from common.data import arrays
from common.data.arrays import ArrayError, StoredArray, npy_array, write_npy

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
        array.read_values(into, direct)
        found = [(rows, block.copy()) for rows, block in array.read_blocks(direct)]
    assert np.array_equal(into, VALUES)
    assert len(found) == 6 and all(np.array_equal(VALUES[rows], block) for rows, block in found)
    array.row_at(11).read_values(into[0])
    assert np.array_equal(into[0], VALUES[11])


@pytest.mark.parametrize("direct", [False, True])
def test_a_file_that_ends_early_is_named(tmp_path, direct):
    array = stored(tmp_path / "short", 64)
    os.truncate(array.path, 64 + VALUES.nbytes - 1)
    with pytest.raises(ArrayError, match=r"short: ends after 5,243 of 5,244 bytes; fetch it again"):
        array.read_values(np.empty_like(VALUES), direct)
    array.path.unlink()
    with pytest.raises(FileNotFoundError, match="short"):
        array.read_values(np.empty_like(VALUES), direct)


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
        stored(tmp_path / "a", 128).read_values(into, direct=True)
    assert np.array_equal(into, VALUES)


def test_python_objects_are_refused(tmp_path):
    path = tmp_path / "a.npy"
    write_npy(path, np.zeros((2, 3)))
    path.write_bytes(path.read_bytes().replace(b"<f8", b"|O8"))
    with pytest.raises(ArrayError, match=r"a\.npy: Python objects \(object\); expected numbers"):
        npy_array(path)


def test_threads_may_read_headers_while_garbage_is_collected(tmp_path):
    """Python before 3.11.8 lost count where the collector let another thread parse."""
    path = tmp_path / "a.npy"
    write_npy(path, np.zeros((2, 3)))

    def read(frames):
        return read(frames - 1) if frames else npy_array(path).shape

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()

    def let_others_run(phase, info):
        time.sleep(1e-5)

    gc.callbacks.append(let_others_run)
    try:
        sys.setswitchinterval(1e-6)
        gc.set_threshold(1, 10**6)
        with ThreadPoolExecutor(8) as threads:
            shapes = set(threads.map(read, [3 * (i % 8) for i in range(1500)]))
    finally:
        gc.callbacks.remove(let_others_run)
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
    assert shapes == {(2, 3)}
