"""Files of predictions: what `predict` writes is read back; anything else is an error, and no code in it runs."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from common.training.predictions import file
from common.training.predictions.file import (
    About,
    Column,
    Output,
    PredictionsError,
    read_predictions,
    write_predictions,
)

COLUMNS = (
    Column("natoms", "i4", (), "", truth=True),
    Column("forces", "f4", (3,), "", per="natoms"),
    Column("maps", "u1", (None, None), ""),
)
GOOD = {
    "index": np.arange(3),
    "names": np.array(["a", "b", "ü"]),
    "natoms": np.array([2, 1, 3], np.int32),
    "forces": np.arange(18, dtype=np.float32).reshape(6, 3),
    "maps": np.zeros((3, 4, 5), np.uint8),
}
FACTS = {"benchmark": "some", "split": "train", "batch_size": 2, "variant": "full"}
pytestmark = pytest.mark.usefixtures("in_new_folder")


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return Path("ran").touch, ()


@pytest.fixture
def in_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def batches(path):
    with read_predictions(Path(path), "some", COLUMNS) as file:
        assert file.samples == 3 and file.about == About(**FACTS)
        return list(file.read_batches())


def write_arrays(changes, ending=".npz"):
    """Write the arrays and facts with some changes as numpy or h5py do, and return the path; None leaves one out."""
    arrays = {name: values for name, values in (GOOD | FACTS | changes).items() if values is not None}
    path = Path("file").with_suffix(ending)
    if ending == ".npz":
        np.savez(path, **arrays)
        return path
    with pytest.importorskip("h5py").File(path, "w") as file:
        for name, values in arrays.items():
            if np.shape(values):
                file[name] = np.char.encode(values) if values.dtype.kind == "U" else values
            else:
                file.attrs[name] = values
    return path


@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_what_was_written_is_read_in_the_same_batches(ending):
    path = Path("file").with_suffix(ending)
    parts = [
        {name: values[:3] if name == "forces" else values[:2] for name, values in GOOD.items()},
        {name: values[3:] if name == "forces" else values[2:] for name, values in GOOD.items()},
    ]
    with write_predictions(path, Output(About(**FACTS), COLUMNS, 3)) as add:
        for part in parts:
            add(part)
    for part, read in zip(parts, batches(path), strict=True):
        assert set(read) == set(part) - {"index"}
        for name, values in read.items():
            assert values.tolist() == part[name].tolist() and values.dtype.kind == part[name].dtype.kind


WRONG = [
    ({"index": None}, "`index` is missing; expected a file that `python -m some.predict` wrote"),
    ({"forces": None}, "`forces` is missing"),
    ({"split": None}, "`split` is missing"),
    ({"index": np.array([0, 2, 1])}, "`index` does not count the samples from 0"),
    ({"names": np.array(["a", "b"])}, "expected a name for each sample"),
    ({"forces": GOOD["forces"].astype(float)}, "`forces` is float64 (6, 3); expected float32 (6, 3)"),
    ({"forces": GOOD["forces"][:5]}, "`forces` is float32 (5, 3); expected float32 (6, 3)"),
    ({"maps": GOOD["maps"][0]}, "`maps` is uint8 (4, 5); expected uint8 (3, any, any)"),
    ({"forces": np.where(GOOD["forces"] == 10, np.nan, GOOD["forces"])}, "`forces` of sample 2 is nan; expected"),
    ({"benchmark": "other"}, "these are predictions of other (train, full); expected some"),
]  # fmt: skip


@pytest.mark.parametrize("ending", [".npz", ".h5"])
@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_another_file_is_refused(changes, message, ending):
    with pytest.raises(PredictionsError) as raised:
        batches(write_arrays(changes, ending))
    assert str(raised.value).startswith(f"file{ending}: ") and message in str(raised.value)


def test_values_in_other_files_are_not_read():
    h5py = pytest.importorskip("h5py")
    path = write_arrays({"index": None}, ".h5")
    with h5py.File(path, "a") as file:
        file["index"] = h5py.ExternalLink("other.h5", "index")
    with pytest.raises(PredictionsError, match=r"file.h5 .*`index` is a link, which is not followed"):
        batches(path)


def test_arrays_are_not_inflated_beyond_what_is_written(monkeypatch):
    monkeypatch.setattr(file, "MOST_NPZ_BYTES", 100)
    with pytest.raises(PredictionsError, match=r"file.npz: [\d,]+ bytes of arrays"):
        batches(write_arrays({}))


def test_pickles_are_refused_and_never_run():
    for changes in ({"forces": np.array([Bomb()] * 6, object)}, {"batch_size": np.array(Bomb(), object)}):
        with pytest.raises(PredictionsError, match=r"file.npz is damaged, or no file of predictions .*allow_pickle"):
            batches(write_arrays(changes))
    Path("file.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(PredictionsError, match=r"file.npz is damaged"):
        batches("file.npz")
    assert not Path("ran").exists()


@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_damage_is_an_error(ending):
    content = write_arrays({}, ending).read_bytes()
    for damaged in (b"", content[:100], content[: len(content) // 2], bytes(1000)):
        Path("file").with_suffix(ending).write_bytes(damaged)
        with pytest.raises(PredictionsError, match="is damaged, or no file of predictions"):
            batches(f"file{ending}")


def test_what_is_not_a_file_is_an_error():
    Path("folder.npz").mkdir()
    for name, error in (("nowhere.npz", FileNotFoundError), ("folder.npz", OSError), ("x.csv", PredictionsError)):
        with pytest.raises(error):
            batches(name)
