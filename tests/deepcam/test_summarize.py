"""deepcam.summarize: statistics of the training snapshots, the same for any number of ranks."""

import numpy as np
import pytest

pytest.importorskip("torch")
h5py = pytest.importorskip("h5py")

from deepcam import summarize  # noqa: E402
from deepcam.data import snapshot, values  # noqa: E402
from deepcam.reference import CHANNELS  # noqa: E402
from tests.common.files import read_errors  # noqa: E402
from tests.problems import mpirun, run_process, torchrun  # noqa: E402

SHAPE = (16, 32, len(CHANNELS))


@pytest.fixture
def data(tmp_path):
    """Return a folder with two training snapshots and one for validation, and the arrays of the two."""
    rng = np.random.default_rng(0)
    arrays = []
    for i, name in enumerate(("train/data-1999-01-01-0", "train/data-1998-01-01-0", "validation/data-1")):
        path = tmp_path / f"{name}{i}-1.h5"
        path.parent.mkdir(exist_ok=True)
        arrays.append((300 + rng.standard_normal(SHAPE) * np.arange(1, 17)).astype(np.float32))
        snapshot.write_snapshot(path, arrays[-1], rng.integers(0, 3, SHAPE[:2]))
    return tmp_path, np.stack(arrays[:2])


def call(folder):
    return summarize.main([str(folder)])


def test_the_statistics_are_those_of_all_training_pixels(data, capsys):
    folder, arrays = data
    assert call(folder) == 0 and "statistics of 2 snapshots" in capsys.readouterr().out
    with h5py.File(folder / "stats.h5") as file:
        found = {name: file[f"climate/{name}"][()] for name in ("count", "mean", "sqmean", "minval", "maxval")}
    exact = arrays.astype(np.float64).reshape(-1, len(CHANNELS))
    assert found["count"] == 2
    np.testing.assert_allclose(found["mean"], exact.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found["sqmean"], (exact**2).mean(axis=0), rtol=1e-13)
    np.testing.assert_array_equal(found["minval"], exact.min(axis=0))
    np.testing.assert_array_equal(found["maxval"], exact.max(axis=0))


@pytest.mark.exhaustive
def test_any_number_of_ranks_gives_the_same_file(data):
    folder, _ = data
    assert call(folder) == 0
    alone = (folder / "stats.h5").read_bytes()
    (folder / "stats.h5").unlink()
    # Three ranks: one has no file.
    done = run_process(*torchrun(3), "-m", "deepcam.summarize", folder, timeout=100)
    assert done.returncode == 0, done.stderr
    assert (folder / "stats.h5").read_bytes() == alone


@pytest.mark.exhaustive
def test_ranks_tell_a_bad_snapshot_once(data):
    folder, _ = data
    damaged = folder / "train" / "data-1999-01-01-00-1.h5"
    damaged.write_text("<html>404</html>")
    done = run_process(*mpirun(2), "-m", "deepcam.summarize", folder, timeout=100)
    assert done.returncode == 1 and done.stderr.count(f"{damaged}: ") == 1


def spoil_labels(path):
    with h5py.File(path, "r+") as file:
        file["climate/labels_0"][3, 4] = 3


def spoil_values(path):
    with h5py.File(path, "r+") as file:
        file["climate/data"][0, 0, 5] = np.nan


def spoil_shape(path):
    path.unlink()
    with h5py.File(path, "w") as file:
        file["climate/data"] = np.zeros(7, "f4")
        file["climate/labels_0"] = np.zeros((2, 2), "i4")


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "not a readable HDF5 file"),
        (spoil_labels, "has the label 3"),
        (spoil_values, "not finite"),
        (spoil_shape, "`climate/data` has the shape (7,)"),
    ],
    ids=["truncated", "labels", "values", "shape"],
)
def test_bad_snapshots_are_named_and_nothing_is_written(data, capsys, spoil, message):
    folder, _ = data
    bad = folder / "train" / "data-1998-01-01-01-1.h5"
    spoil(bad)
    error = read_errors(capsys, call(folder))
    assert "1 snapshots cannot be used" in error and f"{bad}: " in error and message in error
    assert not (folder / "stats.h5").exists()


def test_links_to_nothing_are_told_in_one_line(data, capsys):
    folder, _ = data
    moved = folder.rename(folder.with_name("moved"))
    (folder / "train").mkdir(parents=True)
    for path in (moved / "train").iterdir():
        (folder / "train" / path.name).symlink_to(path)
    moved.rename(moved.with_name("again"))
    error = read_errors(capsys, call(folder))
    assert f"is a link to {moved}/train/data-" in error and "split again" in error and len(error.splitlines()) == 1


def test_statistics_that_are_there_are_checked_and_kept(data, capsys):
    folder, _ = data
    file = folder / "stats.h5"
    assert call(folder) == 0
    right = values.read_stats(file)
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert call(folder) == 0
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    file.write_bytes(before[0][:100])  # damaged: made again
    assert call(folder) == 0 and file.read_bytes() == before[0]

    wrong = {name: getattr(right, name).copy() for name in values.VECTORS}
    wrong["maxval"][4] += 1
    for other, message in [
        (values.Stats(right.count, **wrong), "maxval of VBOT is"),
        (
            values.Stats(3, **{name: getattr(right, name) for name in values.VECTORS}),
            "is from 3 snapshots, but 2 were found",
        ),
    ]:
        values.write_stats(file, other)
        before = file.read_bytes()
        error = read_errors(capsys, call(folder))
        assert message in error and "delete it" in error and file.read_bytes() == before


def test_no_snapshots_and_constant_channels_are_told(data, tmp_path, capsys):
    folder, arrays = data
    assert "no data-*.h5 in" in read_errors(capsys, call(folder / "nowhere"))
    for path in (folder / "train").iterdir():
        snapshot.write_snapshot(path, arrays[0] * (np.arange(16) != 10), np.zeros(SHAPE[:2]))
    assert "cannot be scaled to [0, 1]: PRECT" in read_errors(capsys, call(folder))
