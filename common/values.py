"""When two logged values are the same: one notion for settings, batch sizes, seeds and comparisons.

Numbers are compared by value (512 is 512.0), also inside lists and objects. true is not a number, nor is text.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Hashable, Iterable
from typing import Any, Final, TypeGuard, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
LARGEST: Final = int(sys.float_info.max)
LEAST: Final = -LARGEST
MOST: Final = 10**9
"""More nodes, or accelerators or processors of a node, no system has."""


def is_number(value: Any) -> TypeGuard[Any]:
    """Tell whether `value` is a finite int or float; not a bool, nor an int beyond the range of floats."""
    if type(value) is int:
        return LEAST <= value <= LARGEST
    return type(value) is float and math.isfinite(value)


def as_count(value: Any) -> int | None:
    """Return a number of nodes or units as a whole one; None for what is not a number, or more than MOST."""
    return int(value) if is_number(value) and abs(value) <= MOST else None


def is_integer(value: Any) -> bool:
    """Tell whether `value` is a whole number; 64.0 is one, True is not."""
    return is_number(value) and value == int(value)


def is_stated(value: Any) -> bool:
    """Tell whether a log states a value: a missing record (None) states none, and neither does null."""
    return value is not None


def to_plain(value: Any) -> Any:
    """Return a whole number as int, 512 for 512.0; anything else as it is."""
    return int(value) if is_integer(value) else value


def are_same(first: Any, second: Any) -> bool:
    """Tell whether two values are the same; NaN is the same as NaN."""
    return identity(first) == identity(second)


def shared_value(values: Iterable[Any], otherwise: Any = None) -> Any:
    """Return the value if all are equal, else the other one; values are hashable."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else otherwise


def group_pairs(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def identity(value: Any) -> Hashable:
    """Return what all values that are the same have in common, to group by.

    A fraction stands for what a 32-bit float keeps of it: frameworks log 0.0055 as 0.005499999970197678.
    """
    if isinstance(value, list | tuple):
        return ("list", *map(identity, value))
    if isinstance(value, dict):
        return ("object", frozenset((key, identity(item)) for key, item in value.items()))
    if is_integer(value):
        return ("number", int(value))
    if isinstance(value, float):
        return ("number", repr(in_32_bits(value)))
    return (type(value).__name__, value if isinstance(value, Hashable) else repr(value))


def in_32_bits(value: float) -> float:
    """Return what a 32-bit float keeps of a value; beyond its range, the value."""
    try:
        (kept,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return value
    return float(kept) if kept else value
