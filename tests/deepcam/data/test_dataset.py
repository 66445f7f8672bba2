"""From files to what the network sees, and the order in which it sees it."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch

from common.data.build import BadItemError
from common.data.prefetch import read_batches
from common.data.sampling import Batching, draw_permutation, sample_seed, shard_assignment, shard_order, take_share
from common.settings.machine import StagingConfig
from common.settings.run import TrainConfig
from deepcam.data import snapshot
from deepcam.data.dataset import DataConfig, Dataset, DatasetError, Normalization, augment_batch
from deepcam.data.snapshot import NPY_DATA, NPY_LABEL
from deepcam.data.values import Stats
from deepcam.reference import CHANNELS
from deepcam.settings import Config
from deepcam.train import check_shares

H, W = 16, 32
CPU = torch.device("cpu")
RNG = np.random.default_rng(5)
SAMPLES = [(RNG.normal(size=(H, W, 16)).astype(np.float32), RNG.integers(0, 3, (H, W))) for _ in range(7)]
STEMS = [f"data-2000-01-{i + 1:02}-00-1" for i in range(7)]
FORMATS = ("hdf5", "npy", "hdf5-single")


def write(root, format="hdf5"):
    """Write training samples with plain h5py and numpy, with labels of the given type; return their folder."""
    folder = root / "train"
    folder.mkdir(parents=True, exist_ok=True)
    if format == "hdf5-single":
        with h5py.File(root / "train.h5", "w") as file:
            file["data"] = np.stack([x for x, _ in SAMPLES])
            file["labels"] = np.stack([y for _, y in SAMPLES]).astype(np.uint8)
            file["names"] = np.array(STEMS, "S")
        return folder
    for stem, (x, y) in zip(STEMS, SAMPLES, strict=True):
        if format == "npy":
            np.save(folder / f"{stem}.npy", x)
            np.save(folder / f"{NPY_LABEL}{stem.removeprefix(NPY_DATA)}.npy", y.astype(np.float32))
        else:
            snapshot.write_snapshot(folder / f"{stem}.h5", x, y)
    return folder


def dataset(folder, samples=None, **options):
    return Dataset(folder, DataConfig(folder.parent, height=H, width=W, workers=2, **options), samples)


# -- the dataset ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*O_DIRECT:RuntimeWarning")
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("channels", [tuple(range(16)), (7, 2, 4)], ids=len)
@pytest.mark.parametrize("format", FORMATS)
def test_all_formats_hold_the_same_samples(tmp_path, format, channels, direct):
    samples = dataset(write(tmp_path, format), format=format, channels=channels, direct=direct)
    assert samples.names == STEMS and len(samples) == 7
    for i, (x, y) in enumerate(SAMPLES):
        found = samples.read(i)
        assert np.array_equal(found.x, x[..., list(channels)]) and np.array_equal(found.y, y)


@pytest.mark.parametrize("format", FORMATS)
def test_files_are_read_from_where_staging_put_them(tmp_path, format):
    samples = dataset(write(tmp_path / "shared", format), format=format)
    numbers = dict(samples.files())
    files = {str(path.relative_to(tmp_path / "shared")) for path in (tmp_path / "shared").rglob("*.*")}
    assert set(numbers) == files
    assert set(numbers.values()) == ({None} if format == "hdf5-single" else set(range(7)))
    on_node = {name for name, number in numbers.items() if number in (3, None)}
    for name in on_node:
        (tmp_path / "node" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "shared" / name).rename(tmp_path / "node" / name)
    moved = samples.moved(lambda name: tmp_path / ("node" if name in on_node else "shared") / name)
    assert all(np.array_equal(moved.read(i).x, SAMPLES[i][0]) for i in range(7))
    with pytest.raises(FileNotFoundError, match=r"shared.train"):
        samples.read(3)


def test_one_file_for_all_samples_cannot_be_dealt_to_nodes(tmp_path):
    data = DataConfig(tmp_path, format="hdf5-single")
    with pytest.raises(ValueError, match=r"staging.mode is shard.*hdf5-single.*replicate, memory or none"):
        Config(output_dir=tmp_path, data=data, staging=StagingConfig("shard", stage_dir=tmp_path))


def test_what_a_folder_lacks_is_named_with_the_way_to_fix_it(tmp_path):
    folder = tmp_path / "train"
    with pytest.raises(DatasetError, match=r"train is not a folder.*deepcam.split.*deepcam.synthesize"):
        dataset(folder)
    with pytest.raises(DatasetError, match=r"train.h5 is missing.*deepcam.prepare convert --format hdf5-single"):
        dataset(folder, format="hdf5-single")
    folder.mkdir()
    (folder / "x.txt").touch()
    with pytest.raises(DatasetError, match=r"hdf5 \(data\*.h5\), found none among its 1 files"):
        dataset(folder)
    write(tmp_path, "npy")
    (folder / "label-2000-01-03-00-1.npy").unlink()
    with pytest.raises(DatasetError, match=r"1 files are missing, such as label-2000-01-03"):
        dataset(folder, format="npy")


def test_damaged_npy_files_are_named(tmp_path):
    samples = dataset(write(tmp_path, "npy"), format="npy")
    data, label = samples.paths(0)
    good = data.read_bytes()
    for damaged, message in (
        (b"", "not an npy file"),
        (good[:20], "not an npy file"),
        (good[:30] + b"((((" + good[34:], "not an npy file"),
        (good[:-1], "32895 bytes; expected 32896"),
        (good + b"\0", "32897 bytes; expected 32896"),
        (good.replace(b"False", b"True "), "Fortran"),
        (good.replace(b"(16, 32", b"(32, 16"), r"has the shape \(32, 16, 16\) where \(16, 32, 16\)"),
    ):
        data.write_bytes(damaged)
        with pytest.raises(BadItemError, match=f"{re.escape(str(data))}.* {message}"):
            samples.read(0)
    data.write_bytes(good)
    np.save(label, SAMPLES[0][1] - 1)
    with pytest.raises(BadItemError, match=rf"{label.name} has the label -1; expected 0, 1 or 2"):
        samples.read(0)


def test_a_big_file_that_is_damaged_is_named(tmp_path):
    samples = dataset(write(tmp_path, "hdf5-single"), format="hdf5-single")
    (path,) = samples.paths(6)
    with h5py.File(path, "a") as file:
        file["labels"][6, 0, 0] = 9
    with pytest.raises(BadItemError, match=r"train.h5, row 6 of `labels` has the label 9"):
        samples.read(6)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(BadItemError, match=r"train.h5.*ends after"):
        samples.read(5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"workers": 0}, "workers is 0"),
        ({"eval_samples": 0}, "eval_samples is 0"),
        ({"height": 100}, "height is 100; expected a multiple of 16"),
        ({"channels": ()}, "at least one"),
        ({"channels": (3, 3)}, "each once"),
        ({"channels": (0, 16)}, "from 0 to 15"),
        ({"pipeline": "dali"}, "format=npy"),
        ({"pipeline": "dali", "format": "npy", "cache": True}, "cache=false"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(Path("data"), **options)


# -- the order -----------------------------------------------------------------------------------------------


def ranks(world_size, nodes):
    return SimpleNamespace(world_size=world_size, nodes=nodes)


@pytest.mark.parametrize("shuffle, shards", [("global", 1), ("node", 2), ("rank", 4)])
def test_samples_are_shuffled_among_all_or_in_a_shard_of_each_node_or_rank(shuffle, shards):
    assert DataConfig(Path("data"), shuffle=shuffle).shards(ranks(4, 2)) == shards


def test_one_shard_of_all_samples_has_the_order_of_a_global_shuffle():
    assert np.array_equal(shard_order(shard_assignment(50), 1, 8, 3, 2), draw_permutation(50, 3, 2))


def test_the_shards_of_ranks_are_parts_of_those_of_nodes_and_depend_on_no_seed_of_a_run():
    def shard(shards, part, seed):
        return set(take_share(shard_order(shard_assignment(64), shards, 64, seed, 0), part, shards).tolist())

    assert shard(2, 1, 0) == shard(2, 1, 9) == shard(4, 2, 3) | shard(4, 3, 4)


def test_batches_that_the_shards_cannot_share_are_refused():
    train = TrainConfig(epochs=10, global_batch_size=10)
    config = Config(output_dir=Path("run"), data=DataConfig(Path("data"), shuffle="rank"), train=train)
    with pytest.raises(ValueError, match=r"batch size is 10; expected a multiple of the 4 shards.*data.shuffle=global"):
        check_shares(config, 64, ranks(4, 2))


def test_the_cache_of_a_rank_holds_its_shard_and_no_more(tmp_path, monkeypatch):
    folder = write(tmp_path)
    opened = []
    read_into = snapshot.read_into
    monkeypatch.setattr(snapshot, "read_into", lambda path, target: (opened.append(path), read_into(path, target)))
    for rank in range(3):
        samples = dataset(folder, 6, cache=True, shuffle="rank")
        for epoch in range(4):
            order = shard_order(shard_assignment(6), samples.config.shards(ranks(3, 1)), 3, 1, epoch)
            parts = [part for batch in Batching(3).batches(order, rank, 3) for part in batch.parts]
            assert sum(len(batch.x) for batch in read_batches(samples, parts, CPU)) == 2
    assert len(opened) == len(set(opened)) == 6  # each file once, by one rank


# -- what the network sees -----------------------------------------------------------------------------------


def test_channels_are_scaled_by_their_extremes():
    low, high = RNG.normal(size=16) * 1e4, RNG.normal(size=16) ** 2 * 100
    extremes = (np.float32(low).astype(float), np.float32(low + high + 1).astype(float))
    channels = (7, 2, 10)
    normalize = Normalization(Stats(1, low, low, *extremes), channels, CPU)
    minval, maxval = (values[list(channels)] for values in extremes)
    x = torch.from_numpy(RNG.uniform(minval - 1, maxval + 1, (2, H, W, 3)).astype(np.float32))
    given = x.clone()
    expected = (x.double().numpy() - minval) / (maxval - minval)
    found = normalize(x)
    assert found.dtype == torch.float32 and torch.equal(x, given)
    assert np.abs(found.numpy() - expected).max() < 1.5 * np.spacing(np.float32(2))
    assert expected.min() < 0 and expected.max() > 1  # nothing is clipped
    assert torch.equal(normalize(x, torch.bfloat16), found.bfloat16())
    rounding = 3 * 2**-24 * float(np.abs(x.numpy() / (maxval - minval)).max())  # a few times that of x itself
    torch.testing.assert_close(normalize.in_one_pass(x, torch.float32), found, rtol=0, atol=rounding)
    rounded = normalize.in_one_pass(x, torch.bfloat16)
    assert rounded.dtype == torch.bfloat16 and torch.allclose(rounded.float(), found, rtol=2**-8, atol=rounding)
    assert normalize(torch.from_numpy(np.float32([minval, maxval]))).tolist() == [[0, 0, 0], [1, 1, 1]]


# -- augmentation --------------------------------------------------------------------------------------------


def test_augmented_snapshots_are_rolled_and_mirrored_with_their_labels():
    x = torch.from_numpy(np.stack([x for x, _ in SAMPLES] * 20))
    y = torch.from_numpy(np.stack([y for _, y in SAMPLES] * 20).astype(np.uint8))
    seeds = sample_seed(0, 1, np.arange(len(x)))
    found_x, found_y = augment_batch(x, y, seeds, range(16))
    assert found_x.dtype == torch.float32 and found_y.dtype == torch.uint8
    assert torch.equal(x[0], torch.from_numpy(SAMPLES[0][0]))
    sign = torch.ones(16)
    sign[[i for i, channel in enumerate(CHANNELS) if channel.name in ("V850", "VBOT")]] = -1
    chosen = set()
    for i, (before, after) in enumerate(zip(x, found_x, strict=True)):
        images = {
            (turn, mirrored): (rolled.flip(0) * sign if mirrored else rolled)
            for turn in range(W)
            for rolled in [before.roll(turn, 1)]
            for mirrored in (False, True)
        }
        ((turn, mirrored),) = [key for key, image in images.items() if torch.equal(image, after)]
        labels = y[i].roll(turn, 1)
        assert torch.equal(found_y[i], labels.flip(0) if mirrored else labels)
        chosen.add((turn, mirrored))
    assert {turn for turn, _ in chosen} == set(range(W)) and {mirrored for _, mirrored in chosen} == {False, True}


def test_a_sample_is_augmented_alone_and_by_its_seed():
    x, y = torch.from_numpy(np.stack([x for x, _ in SAMPLES])), torch.zeros((7, H, W), dtype=torch.uint8)
    seeds = sample_seed(3, 0, np.arange(7))
    whole, _ = augment_batch(x, y, seeds, range(16))
    for i in range(7):
        alone, _ = augment_batch(x[i : i + 1], y[i : i + 1], seeds[i : i + 1], range(16))
        assert torch.equal(alone[0], whole[i])
    picked, _ = augment_batch(x[..., [4, 0]], y, seeds, (4, 0))
    assert torch.equal(picked, whole[..., [4, 0]])
    empty, _ = augment_batch(x[:0], y[:0], seeds[:0], range(16))
    assert empty.shape == (0, H, W, 16)
