"""Published snapshots and their statistics: what is read back, and what is refused."""

import h5py
import numpy as np
import pytest

from common.data.build import BadItemError
from deepcam.data import snapshot
from deepcam.data.snapshot import DATA, LABELS
from deepcam.data.values import VECTORS, Stats, StatsError, read_range, read_stats, write_stats
from deepcam.fetch import SNAPSHOT
from deepcam.reference import CHANNELS

H, W = 32, 48
RNG = np.random.default_rng(8)
X = RNG.normal(size=(H, W, 16)).astype(np.float32)
Y = RNG.integers(0, 3, (H, W))


def read(path, **options):
    x = np.empty((H, W, len(options.get("channels") or CHANNELS)), np.float32)
    y = np.empty((H, W), np.uint8)
    snapshot.read_into(path, snapshot.SnapshotBuffer(x, y, **options))
    return x, y


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data-1996-06-14-03-2.h5"
    snapshot.write_snapshot(path, X, Y)
    return path


def change(path, key, values, **options):
    with h5py.File(path, "a") as file:
        del file[key]
        file.create_dataset(key, data=values, **options)


def test_a_snapshot_is_as_published(path):
    assert SNAPSHOT.fullmatch(path.name) and snapshot.find_snapshots(path.parent) == [path.name]
    with h5py.File(path) as file:
        assert file[DATA].dtype == "<f4" and file[LABELS].dtype == "<i4"
        assert file[DATA].chunks is None and file[LABELS].chunks is None
        assert np.array_equal(file[DATA], X) and np.array_equal(file[LABELS], Y)
    assert len({channel.name for channel in CHANNELS}) == 16


@pytest.mark.parametrize("kind", "u1 i1 >i2 <i4 i8 f4 >f8 bool".split())
def test_labels_of_any_type_are_read(path, kind):
    labels = Y > 0 if kind == "bool" else Y
    change(path, LABELS, labels.astype(kind))
    x, y = read(path)
    assert np.array_equal(x, X) and np.array_equal(y, labels)


@pytest.mark.parametrize("options", [{"chunks": (5, 7, 16)}, {"compression": "gzip"}, {"shuffle": True}], ids=str)
@pytest.mark.parametrize("channels", [None, (14, 2, 3)])
def test_layouts_that_are_not_in_one_piece_are_read_too(path, options, channels):
    change(path, DATA, X, **options)
    x, y = read(path, channels=channels)
    assert np.array_equal(x, X[..., list(channels or range(16))]) and np.array_equal(y, Y)


def test_values_next_to_other_things_in_the_file_are_found(tmp_path):
    path = tmp_path / "data-more.h5"
    with h5py.File(path, "w", userblock_size=512, libver="latest") as file:
        file["climate/data_stats"] = np.zeros((4, 16), np.float32)
        file[LABELS] = Y.astype(np.float32)
        file["climate/labels_1"] = Y + 1
        file[DATA] = X
    x, y = read(path)
    assert np.array_equal(x, X) and np.array_equal(y, Y)


@pytest.mark.parametrize(
    "value, kind, shown",
    [(3, "i4", "3"), (-1, "i8", "-1"), (256, "i4", "256"), (1.5, "f4", "1.5"), (np.nan, "f8", "nan")],
)
def test_labels_that_are_no_class_are_refused(path, value, kind, shown):
    labels = Y.astype(kind)
    labels[3, 4] = value
    change(path, LABELS, labels)
    with pytest.raises(BadItemError, match=rf"14-03-2.h5: `climate/labels_0` has the label {shown}; expected 0, 1"):
        read(path)


@pytest.mark.parametrize(
    "key, values, message",
    [
        (
            DATA,
            X[:16],
            r"`climate/data` has the shape \(16, 48, 16\) where \(32, 48, 16\).*data.height=16 data.width=48",
        ),
        (DATA, X[..., :15], r"`climate/data` has the shape \(32, 48, 15\) where \(32, 48, 16\).*data.channels"),
        (DATA, X[0], r"`climate/data` has the shape \(48, 16\)"),
        (DATA, X.astype(np.float64), r"`climate/data` has the type float64 where float32"),
        (LABELS, Y.T, r"`climate/labels_0` has the shape \(48, 32\) where \(32, 48\)"),
        (LABELS, np.full((H, W), b"x"), r"`climate/labels_0` has the type \|S1 where numbers"),
    ],
)
def test_other_shapes_and_types_are_refused(path, key, values, message):
    change(path, key, values)
    with pytest.raises(BadItemError, match=message):
        read(path)


def test_channels_that_the_file_lacks_are_refused(path):
    change(path, DATA, X[..., :9])
    assert np.array_equal(read(path, channels=(8,))[0], X[..., 8:9])
    with pytest.raises(BadItemError, match=r"shape \(32, 48, 9\) where \(32, 48, 10\)"):
        read(path, channels=(9,))


def test_damaged_files_are_named(path):
    good = path.read_bytes()
    for data in (b"", b"no HDF5", good[: len(good) // 2], good[:-1]):
        path.write_bytes(data)
        with pytest.raises(BadItemError, match=r"14-03-2.h5.*fetch or make it again"):
            read(path)
    path.write_bytes(good)
    with h5py.File(path, "a") as file:
        del file[LABELS]
    with pytest.raises(BadItemError, match=r"`climate/labels_0` is missing; the file has: climate, climate/data"):
        read(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"14-03-2.h5"):
        read(path)


def test_damaged_chunks_are_named(path):
    change(path, DATA, X, chunks=X.shape, compression="gzip")
    with h5py.File(path) as file:
        where = file[DATA].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[where.byte_offset : where.byte_offset + where.size] = bytes(where.size)
    path.write_bytes(data)
    with pytest.raises(BadItemError, match=r"`climate/data` is damaged .*fetch the file again"):
        read(path)


@pytest.mark.parametrize("key", [DATA, LABELS])
def test_what_is_in_other_files_is_not_read(path, tmp_path, key):
    (tmp_path / "secret.txt").write_bytes(X.tobytes())
    values = X if key == DATA else Y.astype("<i4")
    with h5py.File(path, "a") as file:
        del file[key]
        outside = [(str(tmp_path / "secret.txt"), 0, values.nbytes)]
        file.create_dataset(key, values.shape, values.dtype, external=outside)
    with pytest.raises(BadItemError, match=rf"14-03-2.h5: `{key}` is not read: .*not all in this file"):
        read(path)


# -- statistics ----------------------------------------------------------------------------------------------

STATS = Stats(7, RNG.normal(size=16), RNG.normal(size=16) ** 2, np.float64(X.min((0, 1))), np.float64(X.max((0, 1))))


@pytest.fixture
def stats_path(tmp_path):
    write_stats(tmp_path / "stats.h5", STATS)
    return tmp_path / "stats.h5"


def test_statistics_are_read_back(stats_path):
    found = read_stats(stats_path)
    assert found.count == 7
    assert all(np.array_equal(getattr(found, name), getattr(STATS, name)) for name in VECTORS)


@pytest.mark.parametrize("kind", ["<f4", ">f8"])
def test_statistics_of_other_types_are_read(stats_path, kind):
    for name in VECTORS:
        change(stats_path, f"climate/{name}", getattr(STATS, name).astype(kind))
    change(stats_path, "climate/count", [7.0])
    found = read_stats(stats_path)
    assert found.count == 7 and np.array_equal(found.minval, STATS.minval)


def test_training_needs_nothing_but_the_range(stats_path):
    with h5py.File(stats_path, "a") as file:
        for name in ("count", "mean", "sqmean"):
            del file[f"climate/{name}"]
    found = read_range(stats_path)
    assert np.array_equal(found.minval, STATS.minval) and np.array_equal(found.maxval, STATS.maxval)
    with pytest.raises(StatsError, match="`climate/count` is missing"):
        read_stats(stats_path)


def test_unusable_statistics_are_refused_with_the_way_to_fix_them(stats_path):
    command = r"python -m deepcam.summarize "
    for maxval, message in (
        (np.where(np.arange(16) == 3, STATS.minval, STATS.maxval), "UBOT has minval .*; expected minval < maxval"),
        (np.full(16, np.nan), "TMQ has minval .* and maxval nan"),
        (np.ones(15), r"`climate/maxval` has the shape \(15,\) where \(16,\)"),
    ):
        change(stats_path, "climate/maxval", maxval)
        with pytest.raises(StatsError, match=rf"stats.h5.*{message}.*{command}"):
            read_stats(stats_path)
    with h5py.File(stats_path, "a") as file:
        del file["climate/maxval"]
    with pytest.raises(StatsError, match=rf"`climate/maxval` is missing; .*{command}"):
        read_stats(stats_path)
    stats_path.write_bytes(b"damage")
    with pytest.raises(StatsError, match=rf"stats.h5: not a readable HDF5 file.*{command}"):
        read_stats(stats_path)
    stats_path.unlink()
    with pytest.raises(
        StatsError, match=rf"stats.h5 is missing: make it from the training snapshots by `{command}{stats_path.parent}`"
    ):
        read_stats(stats_path)
