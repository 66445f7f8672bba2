"""bench/spatial.py: more memory than a share is told, and the record has the halos that were published."""

import pytest

from tests.bench_script import bench_script

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def spatial():
    return bench_script("spatial")


@pytest.fixture
def found():
    return bench_script("records").read_record("spatial")


def test_too_much_memory_is_told(spatial, found):
    assert spatial.faults(found) == []
    found["strong"][2]["saved_bytes"] *= 2
    found["large"][1]["resident_bytes"] *= 2
    activations, resident = spatial.faults(found)
    assert activations.startswith("4 ranks, bf16: activations of a rank are 2.0")
    assert resident.startswith("a rank of four has 0.5")


def test_the_published_halos_are_in_the_record(found):
    """Of two ranks in bf16, for each block from the second on: 262,144 bytes forward and twice as many backward."""
    (row,) = (row for row in found["strong"] if row["ranks"] == 2 and row["dtype"] == "bf16")
    for block in range(2, 6):
        forward = 262_144 >> (block - 2)
        assert row["sent_bytes"][f"block {block} forward to 1"] == forward
        assert row["sent_bytes"][f"block {block} backward to 1"] == 2 * forward
