"""The compact format: what is written comes back, in little space, and damage is found."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from oc20.data import compact
from oc20.data.compact import CompactShard
from oc20.data.records import FrameError
from tests.oc20.conftest import find_differences


def test_files_hold_the_frames_in_order_for_many_readers(slabs, tmp_path):
    path = tmp_path / "data.0000.bin"
    assert compact.write_frames(path, slabs * 30) == 240
    shard = CompactShard(path)
    assert len(shard) == 240 and list(tmp_path.iterdir()) == [path]
    order = np.random.default_rng(0).permutation(240).tolist()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(shard.read_frame, order))
    assert not any(find_differences(frame, slabs[index % 8]) for frame, index in zip(found, order, strict=True))


def test_an_edge_takes_five_bytes_and_an_atom_29(slabs):
    for frame in slabs:
        assert len(compact.encode_frame(frame)) == 72 + 29 * len(frame.numbers) + 5 * len(frame.edges)


def test_no_frames_and_frames_without_edges_are_right(slabs, tmp_path):
    lonely = replace(slabs[1], edges=slabs[1].edges[:0], offsets=slabs[1].offsets[:0])
    assert not find_differences(compact.decode_frame(compact.encode_frame(lonely)), lonely)
    assert compact.write_frames(tmp_path / "data.0000.bin", []) == 0
    assert len(CompactShard(tmp_path / "data.0000.bin")) == 0


def test_an_impossible_frame_is_not_written(slabs, tmp_path):
    path = tmp_path / "data.0000.bin"
    path.write_bytes(b"what was there")
    for changes, expected in (
        ({"pos": slabs[1].pos * np.float32("inf")}, "pos has values that are NaN or infinite"),
        ({"edges": slabs[1].edges - np.int32(1)}, "an edge refers to an atom"),
        ({"offsets": slabs[1].offsets.astype(np.int64)}, "offsets is int64"),
    ):
        with pytest.raises(FrameError, match=f"{re.escape(str(path))}, frame 1: {expected}"):
            compact.write_frames(path, [slabs[0], replace(slabs[1], **changes)])
    assert path.read_bytes() == b"what was there" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_every_changed_byte_of_a_record_is_found(place, slabs, tmp_path):
    path = tmp_path / "data.0000.bin"
    compact.write_frames(path, slabs[:2])
    data = bytearray(path.read_bytes())
    data[32 + place] ^= 4
    path.write_bytes(data)
    with pytest.raises(FrameError, match=f"{re.escape(str(path))}, frame 0: the checksum is wrong: fetch"):
        CompactShard(path).read_frame(0)
    assert not find_differences(CompactShard(path).read_frame(1), slabs[1])


def test_a_damaged_file_is_an_error_with_its_name(slabs, tmp_path):
    path = tmp_path / "data.0000.bin"
    compact.write_frames(path, slabs)
    whole = path.read_bytes()
    for damaged, expected in (
        (whole[:-1], r"has [\d,]+ bytes; expected [\d,]+: fetch the file again"),
        (whole[:10], "has version 0|does not begin|has 10 bytes"),
        (b"", "is not a compact file of frames"),
        (b"x" + whole[1:], "is not a compact file of frames"),
        (b"\x89HDF\r\n\x1a\n", "is not a compact file of frames: this is an HDF5 file"),
        (whole[:8] + b"\2" + whole[9:], "has version 2; expected 1"),
        (whole[:-1] + b"\1", "the index is damaged"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(FrameError, match=f"{re.escape(str(path))}:? ?({expected})"):
            CompactShard(path)
