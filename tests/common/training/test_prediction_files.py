"""Files of predictions: numpy and h5py read what `predict` writes."""

import numpy as np
import pytest

from common.training.predictions import About, Column, Output, PredictionsError, write_predictions

COLUMNS = (Column("natoms", "i4", ""), Column("forces", "f4", ""), Column("maps", "u1", ""))
GOOD = {
    "index": np.arange(3),
    "names": np.array(["a", "b", "ü"]),
    "natoms": np.array([2, 1, 3], np.int32),
    "forces": np.arange(18, dtype=np.float32).reshape(6, 3),
    "maps": np.zeros((3, 4, 5), np.uint8),
}
ABOUT = About("some", "train", 2, "mini")


def write_file(path, changes=None):
    """Write the arrays, with some changes, in two batches."""
    arrays = GOOD | (changes or {})
    parts = [
        {name: values[: 3 if name == "forces" else 2] for name, values in arrays.items()},
        {name: values[3 if name == "forces" else 2 :] for name, values in arrays.items()},
    ]
    with write_predictions(path, Output(ABOUT, COLUMNS, 3)) as add:
        for part in parts:
            add(part)


def test_numpy_reads_an_npz_file(tmp_path):
    write_file(tmp_path / "file.npz")
    with np.load(tmp_path / "file.npz", allow_pickle=False) as file:
        assert About(*(file[name].item() for name in About._fields)) == ABOUT
        for name, values in GOOD.items():
            assert file[name].dtype == values.dtype and np.array_equal(file[name], values)


def test_h5py_reads_an_hdf5_file(tmp_path):
    h5py = pytest.importorskip("h5py")
    write_file(tmp_path / "file.h5")
    with h5py.File(tmp_path / "file.h5") as file:
        assert About(*(file.attrs[name] for name in About._fields)) == ABOUT
        assert [name.decode() for name in file["names"]] == GOOD["names"].tolist()
        for name, values in GOOD.items():
            assert name == "names" or (file[name].dtype == values.dtype and np.array_equal(file[name], values))


def test_a_name_that_hdf5_cannot_hold_is_an_error_and_no_file(tmp_path):
    pytest.importorskip("h5py")
    with pytest.raises(PredictionsError, match=r"write \.npz, or rename the sample"):
        write_file(tmp_path / "file.h5", {"names": np.array(["a", "b", "ü" * 65])})
    assert not list(tmp_path.iterdir())
