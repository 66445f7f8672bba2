"""From files to the input of the network."""

import math
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from common.data.prefetch import read_batches
from common.spatial.grid import Block
from cosmoflow.data.dataset import SYMMETRIES, DataConfig, Dataset, DatasetError, augment_batch, to_input, turn_labels
from cosmoflow.data.sample_files import SampleFormat
from cosmoflow.data.tfrecord import RecordError

SHAPE = (4, 4, 4, 4)
CPU = torch.device("cpu")
RNG = np.random.default_rng(5)
SAMPLES = [(RNG.poisson(2, SHAPE).astype(np.int16), RNG.uniform(-1, 1, 4).astype(np.float32)) for _ in range(7)]
FORMAT = {"gzip": "tfrecord", "raw": "tfrecord", "npy": "npy", "packed": "packed"}
"""By kind of file."""


def write(folder, kind="gzip"):
    folder.mkdir(parents=True, exist_ok=True)
    for i, (x, y) in enumerate(SAMPLES):
        SampleFormat(FORMAT[kind], gzip=kind == "gzip").write_sample(folder / f"s{i}", x, y)
    return folder


def dataset(folder, samples=None, shape=SHAPE, block=None, **options):
    return Dataset(folder, DataConfig(folder.parent, sample_shape=shape, workers=2, **options), samples, block)


# -- the dataset ---------------------------------------------------------------------------------------------


def test_the_first_samples_in_order_of_names_are_taken(tmp_path):
    (write(tmp_path / "train") / "README").touch()
    assert dataset(tmp_path / "train", 2).names == ["s0", "s1"]


@pytest.mark.parametrize("kind", ["gzip", "npy", "packed"])
def test_files_are_read_from_where_staging_put_them(tmp_path, kind):
    samples = dataset(write(tmp_path / "train", kind), format=FORMAT[kind])
    numbers = dict(samples.files())
    assert set(numbers) == {f"train/{path.name}" for path in (tmp_path / "train").iterdir()}
    on_node = {name for name, number in numbers.items() if number == 3}
    (tmp_path / "node" / "train").mkdir(parents=True)
    for name in on_node:
        (tmp_path / name).rename(tmp_path / "node" / name)
    moved = samples.moved(lambda name: (tmp_path / "node" if name in on_node else tmp_path) / name)
    assert all(np.array_equal(moved.read(i).x, SAMPLES[i][0]) for i in range(7))
    with pytest.raises(FileNotFoundError, match=r"train/s3"):
        samples.read(3)


def test_what_a_folder_lacks_is_named_with_the_way_to_fix_it(tmp_path):
    with pytest.raises(DatasetError, match=r"train is not a folder.*cosmoflow.synthesize"):
        dataset(tmp_path / "train")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "x.txt").touch()
    with pytest.raises(DatasetError, match=r"tfrecord .*found none among its 1 files, such as x.txt"):
        dataset(tmp_path / "train")
    with pytest.raises(
        DatasetError, match=f"data.data_dir must contain .*; set data.data_dir={tmp_path}, which has train$"
    ):
        dataset(tmp_path / "train" / "train")
    write(tmp_path / "train")
    with pytest.raises(DatasetError, match=r"has 7 samples.*asks for 524,288.*train_samples"):
        dataset(tmp_path / "train", 524_288)
    with pytest.raises(DatasetError, match=r"found 7 samples as tfrecord: set data.format"):
        dataset(tmp_path / "train", format="npy")
    write(tmp_path / "train", "npy")
    with pytest.raises(DatasetError, match=r"7 samples as tfrecord and 7 samples as npy"):
        dataset(tmp_path / "train")
    write(tmp_path / "pairs", "npy")
    (tmp_path / "pairs" / "s2_label.npy").unlink()
    with pytest.raises(DatasetError, match=r"1 files are missing, such as s2_label.npy"):
        dataset(tmp_path / "pairs", format="npy")


def test_damaged_npy_files_are_named(tmp_path):
    samples = dataset(write(tmp_path / "train", "npy"), format="npy")
    path = tmp_path / "train" / "s0_data.npy"
    good = path.read_bytes()
    for damaged, message in (
        (b"", "not an npy file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "this is a pointer of Git LFS, not a numpy array"),
        (good[:3], "not an npy file"),
        (good[:20], "not an npy file"),
        (good[:30] + b"((((" + good[34:], "not an npy file"),
        (good[:-1], "639 bytes; expected 640"),
        (good + b"\0", "641 bytes; expected 640"),
        (good.replace(b"False", b"True "), "int16 .4, 4, 4, 4. in Fortran order"),
        (good.replace(b"<i2", b"<f2"), r"float16 \(4, 4, 4, 4\); expected int16"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(RecordError, match=f"s0_data.npy: {message}"):
            samples.read(0)
    np.save(path, np.zeros((3, 3, 3, 4), "<i2"))
    with pytest.raises(RecordError, match=r"set 'data.sample_shape=\[3, 3, 3, 4\]'"):
        samples.read(0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"workers": 0}, "workers is 0"),
        ({"train_samples": 0}, "train_samples is 0"),
        ({"shift": math.nan}, "shift is nan; expected a finite number"),
        ({"scale": math.inf}, "scale is inf"),
        ({"sample_shape": (4, 4, 0, 4)}, "sample_shape"),
        ({"sample_shape": (4, 4, 8, 4), "augment": "symmetries"}, "sample_shape is .4, 4, 8, 4., not a cube"),
        ({"format": "npy", "verify_crc": True}, "no checksum"),
        ({"pipeline": "dali", "cache": True}, "set verify_crc=false, cache=false"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(tmp_path, **options)


# -- batches -------------------------------------------------------------------------------------------------

STEPS = [np.array(step, np.int64) for step in ([3, 0, 6], [], [1], [5, 5])]


@pytest.mark.parametrize(
    ("kind", "options"),
    [("gzip", {}), ("gzip", {"cache": True}), ("gzip", {"verify_crc": True}), ("raw", {}), ("npy", {}), ("packed", {})],
    ids=str,
)
def test_samples_of_all_formats_come_in_the_order_asked_for(tmp_path, kind, options):
    samples = dataset(write(tmp_path / "train", kind), format=FORMAT[kind], **options)
    for _ in range(2):
        for step, batch in zip(STEPS, list(read_batches(samples, iter(STEPS), CPU)), strict=True):
            assert batch.x.shape == (len(step), *SHAPE) and batch.x.dtype == torch.int16
            assert batch.y.shape == (len(step), 4) and batch.y.dtype == torch.float32
            assert np.array_equal(batch.indices, step) and batch.wait_s >= 0
            for row, index in enumerate(step):
                assert np.array_equal(batch.x[row].numpy(), SAMPLES[index][0])
                assert np.array_equal(batch.y[row].numpy(), SAMPLES[index][1])


def test_cached_samples_need_no_files(tmp_path):
    samples = dataset(write(tmp_path / "train"), cache=True)
    for batch in read_batches(samples, STEPS, CPU):
        batch.x.zero_()  # the batch is the consumer's own
    for path in (tmp_path / "train").iterdir():
        path.unlink()
    first = next(read_batches(samples, STEPS, CPU))
    assert np.array_equal(first.x[0].numpy(), SAMPLES[3][0])


# -- what the network sees -----------------------------------------------------------------------------------


def test_the_input_is_the_logarithm_of_the_counts():
    counts = np.arange(32_768, dtype=np.int16).reshape(2, 8, 8, 64, 4)
    expected = np.log1p(counts.astype(np.float64))
    found = to_input(torch.from_numpy(counts), apply_log=True)
    assert found.dtype == torch.float32 and found.shape == counts.shape
    ulp = np.spacing(expected.astype(np.float32))
    assert (abs(found.double().numpy() - expected) <= ulp).all()
    half = to_input(torch.from_numpy(counts), apply_log=True, dtype=torch.bfloat16)
    assert torch.equal(half, found.bfloat16())


def test_without_logarithm_each_sample_has_mean_one():
    x = torch.from_numpy(np.stack([SAMPLES[0][0], 3 * SAMPLES[1][0]]))
    found = to_input(x, apply_log=False)
    assert torch.allclose(found.mean(dim=(1, 2, 3, 4)), torch.ones(2))
    assert torch.allclose(found[1], x[1] / x[1].float().mean())


def test_the_symmetries_of_the_cube_are_48_and_each_comes_up():
    x = torch.arange(27, dtype=torch.int16).reshape(1, 3, 3, 3, 1)
    seeds = np.arange(48, dtype=np.uint64) * np.uint64(65536) // np.uint64(48) + np.uint64(1)
    images = {tuple(image.flatten().tolist()) for image in augment_batch(x.expand(48, -1, -1, -1, -1), seeds)}
    assert len(SYMMETRIES) == len(images) == 48
    assert all(image[13] == 13 for image in images)  # the centre stays


@pytest.mark.parametrize("roll_step", [0, 1])
def test_augmented_samples_keep_their_voxels_and_neighbours(roll_step):
    side, seeds = 5, np.random.default_rng(2).integers(0, 2**64, 20, np.uint64)
    place = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), axis=-1).astype(np.int16)
    x = torch.from_numpy(place).expand(20, -1, -1, -1, -1)  # the channels are the coordinates of a voxel
    found = augment_batch(x, seeds, roll_step)
    assert torch.equal(found, augment_batch(x, seeds, roll_step)) and torch.equal(x[3], torch.from_numpy(place))
    assert not torch.equal(found[0], found[1])
    for sample in found.numpy():
        assert np.array_equal(np.sort(sample.reshape(-1, 3), axis=0), np.sort(place.reshape(-1, 3), axis=0))
        for axis in range(3):
            distances = np.abs(np.diff(sample, axis=axis)).sum(axis=-1)
            assert set(distances.flat) <= ({1, side - 1} if roll_step else {1})


def test_a_vector_of_labels_turns_with_its_sample():
    side, seeds = 4, np.random.default_rng(3).integers(0, 2**64, 64, np.uint64)
    vectors = torch.from_numpy(np.random.default_rng(4).integers(-9, 10, (64, 4)).astype(np.float32))
    place = torch.stack(torch.meshgrid(*[torch.arange(side)] * 3, indexing="ij"), dim=-1)
    x = (place * vectors[:, None, None, None, 1:]).sum(-1, keepdim=True).short()  # a field with this gradient
    found, labels = augment_batch(x, seeds), turn_labels(vectors, seeds)
    gradients = torch.stack([found.diff(dim=axis)[:, 0, 0, 0, 0] for axis in (1, 2, 3)], dim=1)
    assert torch.equal(labels[:, 1:], gradients.float()) and torch.equal(labels[:, 0], vectors[:, 0])
    assert not torch.equal(labels, vectors)


# -- parts of samples ----------------------------------------------------------------------------------------

IN_PARTS = ["gzip", "raw", "npy"]
LARGE = (32, 32, 32, 4)
BLOCKS = {"planes": Block(LARGE, (7, 17), (0, 32)), "planes and rows": Block(LARGE, (7, 17), (15, 32))}
BUFFERS = 2 * 8192
"""What Python reads ahead of a record's fields, twice."""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Write a sample with a few large counts in each format; return its folders and the sample."""
    rng = np.random.default_rng(1)
    x = rng.poisson(2, LARGE).astype(np.int16)
    x[rng.random(LARGE) < 1e-3] = 700
    y = rng.uniform(-1, 1, 4).astype(np.float32)
    folder = tmp_path_factory.mktemp("large")
    for kind, format in FORMAT.items():
        (folder / kind / "train").mkdir(parents=True)
        SampleFormat(format, gzip=kind == "gzip").write_sample(folder / kind / "train" / "s", x, y)
    return folder, x, y


def bytes_read():
    """Return the bytes that this process has read so far, from whatever file."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize(
    ("kind", "verify"), [("raw", False), ("raw", True), ("gzip", False), ("gzip", True), ("npy", False)]
)
def test_only_the_voxels_of_a_block_are_read(large, kind, block, verify):
    """From files that are not compressed, unless all bytes are compared with their CRC."""
    folder, x, y = large
    samples = dataset(folder / kind / "train", None, LARGE, block, format=FORMAT[kind], verify_crc=verify)
    samples.read(0)
    before = bytes_read()
    found = samples.read(0)
    read = bytes_read() - before
    assert np.array_equal(found.x, x[block.slices]) and np.array_equal(found.y, y)
    wanted, whole = (2 * math.prod(sides) for sides in (block.sides, LARGE))
    if kind != "gzip":
        least, most = (whole, math.inf) if verify else (wanted, wanted + BUFFERS)
        assert least <= read < most and wanted + BUFFERS < whole


@pytest.mark.parametrize("block", [None, *BLOCKS.values()], ids=["all", *BLOCKS])
@pytest.mark.parametrize("kind", IN_PARTS)
def test_memory_with_gaps_is_refused(large, kind, block):
    """What is read would go to a copy of it."""
    samples = dataset(large[0] / kind / "train", None, LARGE, block, format=FORMAT[kind])
    gaps = np.empty((*samples.shape[:-1], 8), np.int16)[..., :4]
    with pytest.raises((TypeError, ValueError), match="contiguous"):
        samples.read_into(0, (gaps, np.empty(4, np.float32)))


@pytest.mark.parametrize("kind", IN_PARTS)
def test_a_cut_file_is_told_when_a_block_is_read(large, tmp_path, kind):
    shutil.copytree(large[0] / kind, tmp_path / kind)
    file = max((tmp_path / kind / "train").iterdir(), key=lambda path: path.stat().st_size)
    os.truncate(file, file.stat().st_size // 2)
    samples = dataset(file.parent, None, LARGE, BLOCKS["planes"], format=FORMAT[kind])
    with pytest.raises(RecordError, match=re.escape(str(file))):
        samples.read(0)
