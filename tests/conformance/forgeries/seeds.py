"""Forgeries of seeds: runs with one seed that look as if each had its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.conformance.forgeries.logtext import Line, LogText

Spelling = Callable[[int], Any]


def own_seed_behind(logs: list[LogText], rng: random.Random) -> None:
    """Write the same seed in all logs, and one of its own behind it."""
    _same_in_all(logs, rng)
    for log in logs:
        seed = log.first("seed")
        log.add(seed, seed, 0, value=_fresh(rng))


def own_seed_before(logs: list[LogText], rng: random.Random) -> None:
    """Write the same seed in all logs, and one of its own before it."""
    _same_in_all(logs, rng)
    for log in logs:
        seed = log.first("seed")
        log.put_before(seed.copy(), seed).record["value"] = _fresh(rng)


def own_seed_of_another_file(logs: list[LogText], rng: random.Random) -> None:
    """Write the same seed in all logs, and one of its own from another source file and line."""
    own_seed_behind(logs, rng)
    for log in logs:
        log.all("seed")[-1].record["metadata"] |= {"file": "loader.py", "lineno": rng.randint(1, 500)}


def own_seed_in_one_log(logs: list[LogText], rng: random.Random) -> None:
    """Give one log the seed of another and a second one."""
    one, other = _pair(logs, rng)
    seed = _seed(other)
    seed.record["value"] = _seed(one).record["value"]
    other.add(seed, seed, 0, value=_fresh(rng))


def own_seed_at_the_end(logs: list[LogText], rng: random.Random) -> None:
    """Give one log the seed of another, and a second one right before run_stop."""
    one, other = _pair(logs, rng)
    seed = _seed(other)
    seed.record["value"] = _seed(one).record["value"]
    other.put_before(seed.copy(), other.last("run_stop")).record["value"] = _fresh(rng)


def exchanged_pairs(logs: list[LogText], rng: random.Random) -> None:
    """Write the same two seeds in two logs, in different order."""
    one, other = _pair(logs, rng)
    first, second = _fresh(rng), _fresh(rng)
    for log, values in ((one, (first, second)), (other, (second, first))):
        seed = _seed(log)
        seed.record["value"] = values[0]
        log.add(seed, seed, 0, value=values[1])


def spelled_as_text(logs: list[LogText], rng: random.Random) -> None:
    """Give one log the seed of another, as text."""
    _spell(logs, rng, rng.choice((str, "{} ".format, " {}".format, "+{}".format, "00{}".format)))


def spelled_as_float(logs: list[LogText], rng: random.Random) -> None:
    """Give one log the seed of another, as a number with a point."""
    _spell(logs, rng, float)


def from_another_line(logs: list[LogText], rng: random.Random) -> None:
    """Give one log the seed of another, from another source file and line."""
    _spell(logs, rng, lambda seed: seed)
    for log in logs:
        _seed(log).record["metadata"] |= {"file": rng.choice(("a.py", "b.py")), "lineno": rng.randint(1, 500)}


def same_in_all_from_other_lines(logs: list[LogText], rng: random.Random) -> None:
    """Write the same seed in all logs, from other source lines."""
    _same_in_all(logs, rng)
    for number, log in enumerate(logs):
        log.first("seed").record["metadata"] |= {"lineno": 10 + number}


def repeated_in_one_log(logs: list[LogText], rng: random.Random) -> None:
    """Give one log the seed of another twice, and one of its own between."""
    one, other = _pair(logs, rng)
    seed = _seed(other)
    seed.record["value"] = _seed(one).record["value"]
    own = other.add(seed, seed, 0, value=_fresh(rng))
    other.add(seed, own)


def _seed(log: LogText) -> Line:
    """Return the first seed record; a log without one gets it, as a forger would write it."""
    if not log.all("seed"):
        like = log.first("submission_benchmark")
        log.add(like, like, 0, key="seed", value=log.at(like) + int(like.time) % 1_000_000)
    return log.first("seed")


def _same_in_all(logs: list[LogText], rng: random.Random) -> None:
    value = _fresh(rng)
    for log in logs:
        _seed(log).record["value"] = value


def _spell(logs: list[LogText], rng: random.Random, spelling: Spelling) -> None:
    one, other = _pair(logs, rng)
    value = _fresh(rng)
    _seed(one).record["value"], _seed(other).record["value"] = value, spelling(value)


def _pair(logs: list[LogText], rng: random.Random) -> list[LogText]:
    """Return two logs; all get seed records, as a forger would write them."""
    for log in logs:
        _seed(log)
    return rng.sample(logs, 2)


def _fresh(rng: random.Random) -> int:
    return rng.randint(1_000, 2**31)


SEED_FORGERIES = (
    own_seed_behind,
    own_seed_before,
    own_seed_of_another_file,
    own_seed_in_one_log,
    own_seed_at_the_end,
    exchanged_pairs,
    spelled_as_text,
    spelled_as_float,
    from_another_line,
    same_in_all_from_other_lines,
    repeated_in_one_log,
)
