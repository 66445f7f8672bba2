"""From folders of files to graphs: which frames there are, in which order, and what is wrong with a folder."""

import re
import threading

import numpy as np
import pytest
import torch

from common.data.split import DatasetError
from common.settings.machine import StagingConfig
from oc20.data import records
from oc20.data.conversion import FORMATS
from oc20.data.dataset import (
    NAME,
    DataConfig,
    Dataset,
    Metadata,
    count_parts,
    load_batches,
    read_arrays,
    write_metadata,
)
from oc20.graphs import build_graph, link_frames
from oc20.settings import Config
from tests.oc20.conftest import find_differences

CPU = torch.device("cpu")
both = pytest.mark.parametrize("format", ("lmdb", "compact"))


def write(root, slabs, format="lmdb", split="train"):
    """Write the frames into three files of a split, one of them empty; return the folder."""
    folder = root / split
    folder.mkdir(parents=True, exist_ok=True)
    for number, some in enumerate((slabs[:3], [], slabs[3:])):
        FORMATS[format].write(folder / f"data.{number:04}{FORMATS[format].ending}", some)
    (folder / "data_log.0000.txt").touch()
    write_metadata(folder / NAME, Metadata.from_sizes(map(count_parts, slabs)))
    return folder


def dataset(folder, samples=None, **options):
    return Dataset(folder, DataConfig(folder.parent, workers=2, **options), samples)


@pytest.mark.parametrize("cache", [False, True])
@both
def test_both_formats_hold_the_same_frames_in_order(format, cache, slabs, tmp_path):
    samples = dataset(write(tmp_path, slabs, format), format=format, cache=cache)
    assert len(samples) == 8 and all(len(sizes) == 8 for sizes in samples.sizes)
    for _ in range(2):
        assert not any(find_differences(samples.read(index), frame) for index, frame in enumerate(slabs))
    assert (samples.read(5) is samples.read(5)) == cache


def test_sizes_are_those_of_the_frames(slabs, tmp_path):
    sizes = dataset(write(tmp_path, slabs)).sizes
    assert sizes.natoms.tolist() == [len(frame.numbers) for frame in slabs]
    assert sizes.neighbors.tolist() == [len(frame.edges) for frame in slabs]
    assert sizes.free.tolist() == [(~frame.fixed).sum() for frame in slabs]
    assert sizes.triplets[3] == 0 < sizes.triplets[1] < sizes.triplets[2]


@both
def test_the_first_frames_are_taken_and_files_are_read_where_staging_put_them(format, slabs, tmp_path):
    folder = write(tmp_path / "shared", slabs, format)
    ending = FORMATS[format].ending
    few = dataset(folder, 3, format=format)
    assert len(few) == len(few.sizes.free) == 3
    assert dict(few.files()) == {f"train/data.0000{ending}": None}
    samples = dataset(folder, 4, format=format)
    assert list(dict(samples.files())) == [f"train/data.{number:04}{ending}" for number in range(3)]
    (tmp_path / "shared").rename(tmp_path / "node")
    moved = samples.moved(lambda name: tmp_path / "node" / name)
    assert len(moved) == 4 and not any(find_differences(moved.read(index), slabs[index]) for index in range(4))


def test_lmdb_files_have_any_name_and_are_read_in_the_order_of_their_names(slabs, tmp_path):
    folder = write(tmp_path, slabs)
    for number, name in enumerate(("a.lmdb", "s2ef train.lmdb", "s2ef_train_200K.lmdb")):
        (folder / f"data.{number:04}.lmdb").rename(folder / name)
        (folder / f"{name}-lock").touch()
    for name in ("x.aselmdb", "._a.lmdb", "b.lmdb.part"):
        (folder / name).write_bytes(b"no frames")
    samples = dataset(folder)
    assert list(dict(samples.files())) == [f"train/{name}.lmdb" for name in ("a", "s2ef train", "s2ef_train_200K")]
    assert not any(find_differences(samples.read(index), frame) for index, frame in enumerate(slabs))


def test_files_with_many_samples_cannot_be_dealt_to_nodes(tmp_path):
    with pytest.raises(ValueError, match=r"staging.mode is shard.*replicate, memory or none"):
        Config(output_dir=tmp_path, data=DataConfig(tmp_path), staging=StagingConfig("shard", stage_dir=tmp_path))


def test_what_a_folder_lacks_is_named_with_the_way_to_fix_it(slabs, tmp_path):
    folder = tmp_path / "train"
    with pytest.raises(DatasetError, match=r"train is not a folder.*oc20.synthesize"):
        dataset(folder)
    folder.mkdir()
    with pytest.raises(DatasetError, match=r"train: expected samples as lmdb \(\*.lmdb\), found none"):
        dataset(folder)
    write(tmp_path, slabs)
    with pytest.raises(DatasetError, match=r"\(data.\*.bin\), found 3 samples as lmdb: set data.format"):
        dataset(folder, format="compact")
    with pytest.raises(DatasetError, match=r"has 8 frames.*asks for 2,000,000.*train_samples"):
        dataset(folder, 2_000_000)
    with pytest.raises(ValueError, match="energy_std is 0"):
        DataConfig(folder, energy_std=0.0)


def test_wrong_sizes_are_found(slabs, tmp_path):
    folder = write(tmp_path, slabs)
    path, fix = folder / NAME, f"python -m oc20.prepare metadata {re.escape(str(tmp_path))}"
    right = read_arrays(path)

    def opened(**arrays):
        np.savez(path, **arrays)
        return dataset(folder)

    for arrays, message in (
        ({key: right[key] for key in ("natoms", "neighbors")}, "metadata.npz has no triplets or free: make it by `"),
        ({key: array[:7] for key, array in right.items()}, r"`natoms` is int32 \(7,\), but the folder has 8 frames.*"),
        (right | {"natoms": np.array([{}] * 8)}, "metadata.npz: it is damaged.*"),
    ):
        with pytest.raises(DatasetError, match=f"{message}{fix}"):
            opened(**arrays)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DatasetError, match=rf"metadata.npz: it is damaged.*{fix}"):
        dataset(folder)
    path.unlink()
    with pytest.raises(DatasetError, match=rf"metadata.npz with the sizes of the frames is missing.*{fix}"):
        dataset(folder)
    others = opened(**right | {"free": right["free"][::-1]})
    with pytest.raises(DatasetError, match=r"data.0002.lmdb, frame 1: .*\(8, \d+, \d+\), but metadata.npz has"):
        others.read(4)


@both
def test_batches_are_graphs_of_their_frames_in_order_also_without_any(format, slabs, tmp_path):
    samples = dataset(write(tmp_path, slabs, format), format=format)
    chosen = [np.array(some, np.int64) for some in ([7, 0], [], [3], [1, 2, 4, 5, 6])]
    found = list(load_batches(samples, iter(chosen), CPU))
    assert [batch.indices.tolist() for batch in found] == [some.tolist() for some in chosen]
    for batch, some in zip(found, chosen, strict=True):
        expected = build_graph([slabs[index] for index in some])
        assert batch.graph.images == len(some) and batch.wait_s >= 0
        for name in ("numbers", "sources", "targets", "vectors", "free", "forces", "energies"):
            assert torch.equal(getattr(batch.graph, name), getattr(expected, name)), name


def test_a_wrong_frame_is_told_when_its_batch_is_due_and_no_thread_is_left(slabs, tmp_path):
    folder = write(tmp_path, slabs, "compact")
    data = bytearray((folder / "data.0002.bin").read_bytes())
    data[100] ^= 1
    (folder / "data.0002.bin").write_bytes(data)
    found = load_batches(dataset(folder, format="compact"), (np.array([index]) for index in range(8)), CPU)
    assert [next(found).indices.tolist() for _ in range(3)] == [[0], [1], [2]]
    with pytest.raises(records.FrameError, match=r"data.0002.bin, frame 0: the checksum is wrong"):
        next(found)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="no accelerator")
def test_graphs_arrive_on_an_accelerator_unchanged(slabs, tmp_path):
    samples = dataset(write(tmp_path, slabs * 4), cache=True)
    chosen = [np.arange(32), *np.random.default_rng(0).integers(0, 32, (30, 20))]
    device = torch.accelerator.current_accelerator()
    for batch in load_batches(samples, chosen, device):
        expected, graph = build_graph([samples.read(index) for index in batch.indices]), link_frames(batch.graph)
        assert graph.vectors.device.type == device.type
        torch.testing.assert_close(graph.vectors.cpu(), expected.vectors)
        for name in ("incoming", "outgoing"):
            found, wanted = getattr(graph, name).to("cpu"), getattr(expected, name)
            assert torch.equal(found.members, wanted.members) and torch.equal(found.slots, wanted.slots)
        assert torch.equal(graph.reverse.cpu(), expected.reverse)
