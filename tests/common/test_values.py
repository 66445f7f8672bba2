"""What a number is, and when two values are the same."""

import math

import pytest

from common.values import are_same, as_count, identity, is_integer, is_number, is_stated, to_plain


def test_numbers():
    assert is_number(1) and is_number(1.5) and not is_number(True) and not is_number("1") and not is_number(math.nan)
    assert [as_count(value) for value in (16, 4.0, 10**9, 1e308, -1e308, "16")] == [16, 4, 10**9, None, None, None]
    assert is_integer(64) and is_integer(64.0) and not is_integer(64.5) and not is_integer(False)
    assert (
        not is_number(10**400) and to_plain(512.0) == 512 and type(to_plain(512.0)) is int and to_plain("512") == "512"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (512, 512.0),
        ([4096, 8192], [4096.0, 8192.0]),
        ({"a": [1]}, {"a": [1.0]}),
        (0.0055, 0.005499999970197678),
        ([0.9, 0.999], [0.8999999761581421, 0.9990000128746033]),
        (math.nan, math.nan),
        (10**400, 10**400),
        (0, -0.0),
        (None, None),
        (1e300, 1e300),
    ],
)
def test_the_same_value_in_two_spellings(one, other):
    assert are_same(one, other) and are_same(other, one)
    assert len({identity(one), identity(other)}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (512, "512"),
        (0.2, "0.2"),
        (None, 0),
        (0.0055, 0.0056),
        (16_777_216, 16_777_217),
        ([1, 2], [2, 1]),
        ([1], 1),
        (1e-50, 2e-50),
        (1e300, 1e301),
        (math.inf, math.nan),
    ],
)
def test_different_values(one, other):
    assert not are_same(one, other) and not are_same(other, one)


def test_null_states_nothing():
    assert is_stated(0) and is_stated("") and is_stated(False) and not is_stated(None)
