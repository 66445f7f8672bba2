"""The plan of a staging: each file to its nodes, each byte read once, told in one line."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.sampling import shard_assignment, take_share
from common.staging import plan as staging_plan
from common.staging.plan import make_plan, pack_chunks
from common.staging.stage import SourceFile

FILES = st.lists(st.integers(0, 300), max_size=40).map(
    lambda sizes: [SourceFile(f"train/{i}", size, sample=i) for i, size in enumerate(sizes)]
)


@given(files=FILES, nodes=st.integers(1, 6))
def test_shards_are_those_of_the_sampler(files, nodes):
    plan = make_plan([*files, SourceFile("labels", 5)], "shard", nodes)
    for node, numbers in enumerate(plan.on_node):
        held = [plan.files[number] for number in numbers]
        expected = set(take_share(shard_assignment(len(files)), node, nodes)) if files else set()
        assert {file.sample for file in held} == {*expected, None}


def test_all_files_of_a_sample_go_to_one_node():
    files = [SourceFile(f"train/{i}_{part}.npy", 8, sample=i) for i in range(9) for part in ("data", "label")]
    for held in make_plan(files, "shard", 3).on_node:
        assert set(Counter(files[number].sample for number in held).values()) == {2}


@given(files=FILES)
def test_chunks_hold_every_byte_once_and_in_order(files):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging_plan, "CHUNK_BYTES", 100)
        packed = pack_chunks(files)
    read = {file.name: 0 for file in files}
    for chunk in packed:
        assert chunk and sum(piece.length for piece in chunk) <= 100
        for piece in chunk:
            assert piece.start == read[piece.file.name]
            read[piece.file.name] += piece.length
            assert piece.is_last == (read[piece.file.name] == piece.file.size)
    assert read == {file.name: file.size for file in files}


def test_the_plan_is_told_in_one_line():
    files = [SourceFile(f"train/{i}", 50_000_000, sample=i) for i in range(4)]

    def text(mode, nodes, lacking):
        return make_plan(files, mode, nodes).describe(lacking, 100_000_000)

    assert text("none", 2, []) == "none: 4 files, 200 MB, read from shared storage"
    assert text("shard", 2, files) == "shard: 4 files, 200 MB over 2 nodes; 100 MB read per node"
    assert text("replicate", 2, files[1:]) == "replicate: 3 files, 150 MB to each of 2 nodes; 75 MB read per node"
    assert text("replicate", 2, []) == "replicate: nothing to copy"
    raw = [replace(file, raw_size=150_000_000) for file in files]
    assert text("memory", 1, raw).endswith("to each of 1 node; 200 MB read per node; 600 MB after inflating")
