"""Counts in a system description: a number with a remark is one, the first digits of another number are not."""

import pytest

from compliance.model.system import SystemDescription


@pytest.mark.parametrize(
    ("value", "count"),
    [
        *[(value, 32) for value in ("32", " 32 ", "32 (per socket)", "32(2 x 16)", "32 nodes", "032", 32, 32.0)],
        *[(value, None) for value in ("32,000", "32 000", "32.9", "32e3", "32x100", "32k", "32 k", "32 x 100", "32*9")],
        *[(value, None) for value in ("32'000", "32_000", "32\u202f000", "32 thousand", "32-64", "-32", "1" * 400)],
    ],
)
def test_a_count(value, count):
    assert SystemDescription("", "", {"number_of_nodes": value}).count("number_of_nodes") == count
