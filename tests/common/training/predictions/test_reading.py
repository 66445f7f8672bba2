"""Files of predictions that are damaged, hostile or plainly wrong: one clear error, no code run, no memory taken."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from common.training.predictions.columns import Column, PredictionsError
from common.training.predictions.reading import reading

COLUMNS = (
    Column("natoms", "i4", (), "", truth=True),
    Column("forces", "f4", (3,), "", per="natoms"),
    Column("maps", "u1", (None, None), "", classes=3),
    Column("truth", "u1", (None, None), "", truth=True, classes=3),
)
GOOD = {
    "index": np.arange(3),
    "names": np.array(["a", "b", "c"]),
    "natoms": np.array([2, 1, 3]),
    "forces": np.arange(18, dtype=np.float32).reshape(6, 3),
    "maps": np.zeros((3, 4, 5), np.uint8),
    "batch_size": np.array(2),
}


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return Path("ran").touch, ()


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Write arrays as npz or HDF5, and return the batches that are read."""
    monkeypatch.chdir(tmp_path)

    def written(changes, ending=".npz"):
        arrays = {name: values for name, values in (GOOD | changes).items() if values is not None}
        path = Path("file").with_suffix(ending)
        if ending == ".npz":
            np.savez_compressed(path, **arrays)
        else:
            h5py = pytest.importorskip("h5py")
            with h5py.File(path, "w") as file:
                for name, values in arrays.items():
                    if np.shape(values):
                        file[name] = values.astype("S8") if values.dtype.kind == "U" else values
                    else:
                        file.attrs[name] = values.item()
        return batches(path)

    return written


def batches(path):
    with reading(Path(path), "some", COLUMNS) as file:
        return list(file.batches())


@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_batches_have_the_rows_of_their_samples(read, ending):
    first, second = read({"forces": GOOD["forces"].astype(">f8"), "maps": GOOD["maps"].astype(np.int64)}, ending)
    assert first["natoms"].tolist() == [2, 1] and second["natoms"].tolist() == [3]
    assert first["forces"].tolist() == GOOD["forces"][:3].tolist() and len(second["forces"]) == 3
    assert first["maps"].shape == (2, 4, 5) and first["maps"].dtype == np.uint8
    assert first["names"].tolist() == ["a", "b"] and "truth" not in first


def changed(name, place, value):
    values = GOOD[name].copy()
    values[place] = value
    return {name: values}


WRONG = [
    ({"index": None}, "`index` is missing; the file has batch_size, "),
    ({"forces": None}, "`forces` is missing"),
    ({"natoms": None}, "`natoms` is missing"),
    ({"index": np.array([0, 2, 1])}, "sample 1 is missing: row 1 of `index` is 2"),
    ({"index": np.array([0, 1, 1])}, "sample 1 is there twice: row 2 of `index`"),
    ({"index": np.array([0, -1, 1])}, "row 1 of `index` is -1"),
    ({"index": np.arange(3.0)}, "`index` has the type float64; expected whole numbers"),
    ({"index": np.arange(4)}, "`natoms` has 3 rows, but `index` 4"),
    ({"index": np.empty(0, int)}, "`natoms` has 3 rows, but `index` 0"),
    (changed("forces", (3, 1), np.nan), "`forces` of sample 2 has the value nan; expected finite numbers"),
    (changed("forces", (1, 0), np.inf), "`forces` of sample 0 has the value inf"),
    ({"forces": np.full(GOOD["forces"].shape, 1e300)}, "1e+300; expected finite numbers that float32 can"),
    (changed("maps", (1, 2, 2), 3), "`maps` of sample 1 has the value 3; expected 0 to 2"),
    ({"maps": -GOOD["maps"].astype(int) - 1}, "`maps` of sample 0 has the value -1"),
    ({"maps": GOOD["maps"].astype(float)}, "`maps` has the type float64; expected whole numbers, such as uint8"),
    ({"maps": GOOD["maps"][0]}, "`maps` has the shape (4, 5); expected (N, any, any)"),
    ({"maps": GOOD["maps"][:, :0]}, "`maps` has the shape (3, 0, 5)"),
    ({"truth": GOOD["maps"][:, 1:]}, "`maps` and `truth` have other shapes"),
    ({"forces": GOOD["forces"][:, :2]}, "`forces` has the shape (6, 2); expected (N, 3)"),
    ({"forces": GOOD["forces"].astype(complex)}, "`forces` has the type complex128"),
    ({"forces": GOOD["forces"].astype(np.longdouble)}, "`forces` has the type"),
    ({"forces": GOOD["forces"][:5]}, "`natoms` of the samples from 2 on adds up to 3, more than the 2 rows"),
    ({"natoms": np.array([2, 1, 2])}, "`forces` has 1 rows after those of the last sample"),
    ({"natoms": np.array([2, 0, 4])}, "`natoms` of sample 1 has the value 0; expected at least 1"),
    ({"natoms": np.array([2, 2**62, 4])}, "more than the 6 rows that are there"),
    ({"names": np.array(["a", "b"])}, "`names` is <U1 (2,); expected 3 texts"),
    ({"batch_size": np.array(0)}, "`batch_size` is 0; expected 1 to 65,536"),
    ({"batch_size": np.array(2**40)}, "`batch_size` is 1099511627776"),
    ({"split": np.array("test")}, "`split` is 'test'; expected one of train, validation"),
    ({"benchmark": np.array("other")}, "`benchmark` is 'other'; expected predictions of 'some'"),
]  # fmt: skip


@pytest.mark.parametrize("ending", [".npz", ".h5"])
@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_what_is_wrong_is_named(read, changes, message, ending):
    if ending == ".h5":
        message = message.replace("the file has batch_size, ", "the file has forces, ").replace("<U1", "|S8")
    with pytest.raises(PredictionsError) as raised:
        read(changes, ending)
    assert str(raised.value).startswith(f"file{ending}: ") and message in str(raised.value)


def test_pickles_are_refused_and_never_run(read):
    with pytest.raises(PredictionsError, match="`forces` has Python objects"):
        read({"forces": np.array([Bomb()] * 6, object)})
    with pytest.raises(PredictionsError, match="`batch_size` has Python objects"):
        read({"batch_size": np.array(Bomb(), object)})
    Path("file.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(PredictionsError, match=r"not a readable .npz file"):
        batches("file.npz")
    assert not Path("ran").exists()


def npz(members, **options):
    """Write a zip archive with these members, and return its path."""
    with zipfile.ZipFile("file.npz", "w", **options) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return "file.npz"


def npy(values, shape=None, version=(1, 0)):
    """Return an npy file of an array, whose header may claim another shape."""
    file = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(values)
    write = {(1, 0): np.lib.format.write_array_header_1_0, (2, 0): np.lib.format.write_array_header_2_0}[version]
    write(file, header | ({"shape": shape} if shape else {}))
    return file.getvalue() + values.tobytes()


def good_members(**changes):
    return [(f"{name}.npy", changes.get(name, npy(values))) for name, values in GOOD.items()]


def test_sizes_that_are_not_there_take_no_memory(read):
    for maps, message in (
        (npy(GOOD["maps"], (3, 2**20, 2**20)), "rows of 1,099,511,627,776 bytes; expected at most"),
        (npy(GOOD["maps"], (3, 4, 6)), "`maps` is damaged .* bytes are missing"),
        (npy(GOOD["maps"], (2**60, 4, 5)), "`maps` has 1,152,921,504,606,846,976 rows, but `index` 3"),
        (npy(GOOD["maps"]) + b"more", "`maps` is damaged .longer than its shape"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(10), "`maps` is damaged"),
        (b"", "`maps` is damaged"),
        (npy(GOOD["maps"]).replace(b"'|u1'", b"'(a,'", 1), "`maps` is damaged"),
    ):
        with pytest.raises(PredictionsError, match=message):
            batches(npz(good_members(maps=maps)))


def test_archives_that_numpy_would_not_write_are_refused(read):
    with (
        pytest.warns(UserWarning, match="Duplicate"),
        pytest.raises(PredictionsError, match="two arrays have the same"),
    ):
        batches(npz([*good_members(), ("maps.npy", npy(GOOD["maps"]))]))
    with pytest.raises(PredictionsError, match="compressed as numpy never does"):
        batches(npz(good_members(), compression=zipfile.ZIP_BZIP2))
    content = bytearray(Path(npz(good_members())).read_bytes())
    content[content.index(GOOD["forces"].tobytes()) + 20] ^= 1  # a bit of a number: still a number
    Path("file.npz").write_bytes(content)
    with pytest.raises(PredictionsError, match=r"`forces` is damaged .Bad CRC"):
        batches("file.npz")
    with pytest.raises(PredictionsError, match="Fortran order"):
        read({"maps": np.asfortranarray(GOOD["maps"])})


def test_links_and_storage_elsewhere_are_not_followed(read):
    h5py = pytest.importorskip("h5py")
    read({}, ".h5")
    Path("file.h5").rename("other.h5")
    Path("raw").write_bytes(GOOD["maps"].tobytes())
    maps = {"name": "maps", "shape": (3, 4, 5), "dtype": "u1"}
    for message, make in (
        ("is a link", lambda file: file.__setitem__("maps", h5py.ExternalLink("other.h5", "maps"))),
        ("is a link", lambda file: file.__setitem__("maps", h5py.SoftLink("/forces"))),
        ("is stored in another file", lambda file: file.create_dataset(**maps, external=[("raw", 0, 60)])),
        ("is not a dataset", lambda file: file.create_dataset("maps", data=["a"] * 3, dtype=h5py.string_dtype())),
        ("is not a dataset", lambda file: file.create_group("maps")),
        ("too large chunks", lambda file: file.create_dataset(**maps, maxshape=(None,) * 3, chunks=(2**30, 1, 1))),
    ):
        read({}, ".h5")
        with h5py.File("file.h5", "r+") as file:
            del file["maps"]
            make(file)
        with pytest.raises(PredictionsError, match=message):
            batches("file.h5")
    for content in (b"", b"\x89HDF\r\n\x1a\n" + bytes(100), Path("other.h5").read_bytes()[:3000]):
        Path("file.h5").write_bytes(content)
        with pytest.raises(PredictionsError, match=r"file\.h5: "):
            batches("file.h5")


def test_what_is_not_a_file_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder.npz").mkdir()
    for name, error in (("nowhere.npz", FileNotFoundError), ("folder.npz", OSError), ("x.csv", PredictionsError)):
        with pytest.raises(error):
            batches(name)
