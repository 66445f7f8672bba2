"""HDF5 files of others: what is not in the file, or would take much more memory than its values, is not read."""

import re

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")

from common.data.hdf5 import RefusedDataError, find_dataset  # noqa: E402

VALUES = np.arange(16, dtype="<f4")


def write_elsewhere(folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["data"] = VALUES
        other["group/data"] = VALUES
    return folder / "other.h5"


def link_softly(file, _):
    file["group/data"] = h5py.SoftLink("/right")


def link_to_another(file, folder):
    file["group/data"] = h5py.ExternalLink(write_elsewhere(folder), "data")


def link_the_group(file, folder):
    file["group"] = h5py.ExternalLink(write_elsewhere(folder), "group")


def store_outside(file, folder):
    (folder / "secret.txt").write_bytes(bytes(64))
    file.create_dataset("group/data", (16,), "<f4", external=[(str(folder / "secret.txt"), 0, 64)])


def make_virtual(file, folder):
    layout = h5py.VirtualLayout((16,), "<f4")
    layout[:] = h5py.VirtualSource(write_elsewhere(folder), "data", (16,))
    file.create_virtual_dataset("group/data", layout)


def inflate(file, _):
    file.create_dataset("group/data", data=VALUES, maxshape=(None,), chunks=(1 << 25,), compression="gzip")


def compress_with_bitshuffle(file, folder):
    """Name a filter that netCDF4 does not bring: what it brings is there once a test has imported it."""
    file.create_dataset("group/data", data=VALUES, chunks=(16,), compression="gzip")
    file.close()
    numbered = rb"\x01\x00(.{6}deflate\x00)"  # wherever HDF5 has left a copy
    changed = re.sub(numbered, b"\x08\x7d" + rb"\1", (folder / "a.h5").read_bytes(), flags=re.DOTALL)
    (folder / "a.h5").write_bytes(changed)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (link_softly, "`group/data` is a link"),
        (link_to_another, "`group/data` is a link"),
        (link_the_group, "`group/data` is a link"),
        (store_outside, "the values of `group/data` are not all in this file"),
        (make_virtual, "the values of `group/data` are not all in this file"),
        (
            compress_with_bitshuffle,
            r"`group/data` is compressed with filter 32008 \(Bitshuffle\).*pip install hdf5plugin",
        ),
        (inflate, "`group/data` has 64 bytes of values, in chunks of 134,217,728"),
    ],
)
def test_only_what_is_in_the_file_is_read(tmp_path, write, says):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["right"] = VALUES
        write(file, tmp_path)
    with h5py.File(tmp_path / "a.h5") as file:
        with pytest.raises(RefusedDataError, match=says):
            find_dataset(file, "group/data")
        assert np.array_equal(find_dataset(file, "right"), VALUES)
        assert find_dataset(file, "none") is None


def test_small_data_in_large_chunks_are_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=VALUES, maxshape=(None,), chunks=(1 << 18,), compression="gzip")
        assert np.array_equal(find_dataset(file, "data"), VALUES)
