"""A log as lines whose records can be changed, moved, removed and added: the words in which edits are written."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from compliance.benchmarks import REFERENCES

TOKEN = b":::MLLOG "
EPOCH_KEYS = ("epoch_start", "epoch_stop")
EVALUATION_KEYS = ("eval_start", "eval_stop")
COURSE = (*EPOCH_KEYS, *EVALUATION_KEYS, "eval_error", "eval_accuracy")
POINT = "POINT_IN_TIME"


class Unsuitable(Exception):
    """The change makes no sense for this log: it lacks what would be changed."""


def require(fits: object, reason: str) -> None:
    """Refuse what is to be changed unless something holds of it."""
    if not fits:
        raise Unsuitable(reason)


@dataclass(eq=False, slots=True)
class Line:
    """One line: what a launcher wrote before the token, and the record; text without a record is all prefix."""

    prefix: bytes
    record: dict[str, Any]

    @property
    def key(self) -> str:
        """The key of the record, "" for a line without one."""
        return str(self.record.get("key", ""))

    @property
    def time(self) -> float:
        """The time of the record in milliseconds."""
        return self.record["time_ms"]

    @time.setter
    def time(self, time_ms: float) -> None:
        self.record["time_ms"] = time_ms

    @property
    def number(self) -> Any:
        """The epoch_num (openfold: samples) of the record, None without one."""
        return self.record["metadata"].get("epoch_num")

    @number.setter
    def number(self, number: Any) -> None:
        self.record["metadata"]["epoch_num"] = number

    def to_block(self, first: Any, count: int) -> None:
        """Become the start or stop of a block of epochs."""
        self.record["key"] = self.key.replace("epoch", "block")
        self.record["metadata"].pop("epoch_num", None)
        self.record["metadata"] |= {"first_epoch_num": first, "epoch_count": count}

    def copy(self) -> Line:
        """Return a line with the same contents."""
        return Line(self.prefix, json.loads(json.dumps(self.record)))

    def bytes(self) -> bytes:
        """Return the line without its end."""
        return self.prefix + TOKEN + json.dumps(self.record).encode() if self.record else self.prefix


class LogText:
    """The lines of one log of a successful run."""

    def __init__(self, data: bytes, benchmark: str, round_: str) -> None:
        """Take the log apart; benchmark: whose target and metric it is about."""
        self.lines = [_line(line) for line in data.rstrip(b"\n").split(b"\n")]
        self.target = REFERENCES[benchmark].target
        self.benchmark, self.round = benchmark, round_

    def bytes(self) -> bytes:
        """Return the file's contents."""
        return b"".join(line.bytes() + b"\n" for line in self.lines)

    # -- finding ----------------------------------------------------------------------------------------------

    def all(self, *keys: str) -> list[Line]:
        """Return the lines with one of the keys, in file order."""
        return [line for line in self.lines if line.key in keys]

    def first(self, key: str, number: Any = ...) -> Line:
        """Return the first line with the key (and epoch_num)."""
        return self._one(key, number, 0)

    def last(self, key: str, number: Any = ...) -> Line:
        """Return the last line with the key (and epoch_num)."""
        return self._one(key, number, -1)

    def _one(self, key: str, number: Any, which: int) -> Line:
        found = [line for line in self.all(key) if number in (..., line.number)]
        require(found, key)
        return found[which]

    def at(self, line: Line) -> int:
        """Return the place of a line."""
        return next(at for at, other in enumerate(self.lines) if other is line)

    @property
    def results(self) -> list[Line]:
        """The evaluation results."""
        return self.all(self.target.key)

    @property
    def course(self) -> list[Line]:
        """The lines of epochs, evaluations and results."""
        return self.all(*COURSE)

    @property
    def timed(self) -> list[Line]:
        """All lines with a record."""
        return [line for line in self.lines if line.record]

    @property
    def numbers(self) -> list[Any]:
        """The distinct numbers of the epochs, in order of training."""
        return list(dict.fromkeys(line.number for line in self.all("epoch_start")))

    def of_epoch(self, number: Any, *keys: str) -> list[Line]:
        """Return the lines of an epoch with one of the keys (default: of its course)."""
        return [line for line in self.all(*(keys or COURSE)) if line.number == number]

    def end_of(self, number: Any) -> Line:
        """Return the last line of an epoch's course."""
        found = self.of_epoch(number)
        require(found, f"epoch {number}")
        return found[-1]

    def before(self, line: Line) -> Line:
        """Return the line before another."""
        return self.lines[self.at(line) - 1]

    def behind(self, line: Line) -> list[Line]:
        """Return the lines with a record behind another."""
        return [later for later in self.lines[self.at(line) + 1 :] if later.record]

    def value(self, key: str) -> Any:
        """Return the last value of a key."""
        return self.last(key).record["value"]

    def require_epochs(self, least: int) -> list[Any]:
        """Return the numbers of the epochs, of which there are at least so many."""
        require(len(self.numbers) >= least, "too short")
        return self.numbers

    def inner(self, rng: random.Random, first: int = 1, last: int = 1) -> int:
        """Return the index of an epoch that has this many before and behind it."""
        return rng.randrange(first, len(self.require_epochs(first + last + 1)) - last)

    # -- values -----------------------------------------------------------------------------------------------

    def hit(self, rng: random.Random) -> float:
        """Return a result that meets the target."""
        margin = rng.uniform(0.0005, 0.01) * self.target.value
        return self.target.value + (-margin if self.target.lower_is_better else margin)

    def miss(self, rng: random.Random) -> float:
        """Return a result that does not meet the target."""
        margin = rng.uniform(0.002, 0.05) * self.target.value
        return self.target.value + (margin if self.target.lower_is_better else -margin)

    def met(self, line: Line) -> bool:
        """Tell whether a result meets the target."""
        return self.target.met(line.record["value"])

    def change_result(self, line: Line, value: float) -> bool:
        """Change a result if it meets the target, or does not, as before; tell whether it was changed."""
        if self.target.met(value) != self.met(line):
            return False
        line.record["value"] = value
        return True

    # -- changing ---------------------------------------------------------------------------------------------

    def remove(self, lines: Iterable[Line]) -> None:
        """Remove lines."""
        gone = {id(line) for line in lines}
        self.lines = [line for line in self.lines if id(line) not in gone]

    def put(self, line: Line, after: Line, time_ms: float | None = None) -> Line:
        """Insert a line behind another, or move it there; its time becomes that of the other, or time_ms."""
        self.remove([line])
        self.lines.insert(self.at(after) + 1, line)
        line.time = after.time if time_ms is None else time_ms
        return line

    def put_before(self, line: Line, before: Line) -> Line:
        """Insert a line before another, or move it there, and give it the time of the other."""
        if line is before:
            return line
        self.remove([line])
        self.lines.insert(self.at(before), line)
        line.time = before.time
        return line

    def add(
        self, like: Line, after: Line, later_ms: float = 0, more: dict[str, Any] | None = None, **members: Any
    ) -> Line:
        """Insert a copy of a line behind another, so much later.

        more: what its metadata states beside what they do. members: of the record, or its epoch_num.
        """
        line = like.copy()
        if "number" in members:
            line.number = members.pop("number")
        line.record["metadata"] |= more or {}
        line.record |= members
        return self.put(line, after, after.time + later_ms)

    def state(self, key: str, value: Any) -> Line:
        """Set the value of a key's first record, or add one to the header."""
        if not self.all(key):
            like = self.first("train_samples")
            self.add(like, like, 0, key=key)
        line = self.first(key)
        line.record["value"] = value
        return line

    def delay(self, after: Line, by_ms: float) -> None:
        """Move all that comes behind a line by some time."""
        map_times(self.behind(after), lambda time_ms: time_ms + by_ms)

    def shift(self, by_ms: float) -> None:
        """Move all times."""
        map_times(self.timed, lambda time_ms: time_ms + by_ms)

    def change_times(self, change: Callable[[float], float]) -> None:
        """Change each time by itself; none goes back."""
        late = float("-inf")
        for line in self.timed:
            late = line.time = max(late, change(line.time))

    def change_intervals(self, change: Callable[[float], float]) -> None:
        """Change each interval by itself."""
        lines = self.timed
        before = now = lines[0].time
        for line in lines[1:]:
            now, before = now + round(change(line.time - before)), line.time
            line.time = now

    def keep_own_times(self) -> None:
        """Refuse a log that says of itself how long or how fast it trained: other times would contradict it."""
        names = {name for line in self.timed for name in (line.key, *line.record["metadata"])}
        words = ("throughput", "latency", "duration", "stats")
        require(
            "time" not in names and not any(word in name for name in names for word in words), "records its own times"
        )

    def keep_rates(self) -> None:
        """Refuse a log that states its own rates; those of oc20 count something else."""
        require(self.benchmark == "oc20" or not self.all("tracked_stats"), "states its own rates")

    def stop_after(self, line: Line, later_ms: float = 2) -> None:
        """Let the run stop right behind a line: what came between it and run_stop goes."""
        stop = self.last("run_stop")
        at, end = self.at(line), self.at(stop)
        require(at <= end, "behind run_stop")
        earlier = stop.time - line.time - later_ms
        self.remove(self.lines[at + 1 : end])
        map_times(self.behind(line), lambda time_ms: max(line.time, time_ms - earlier))
        if stop.number is not None:
            stop.number = line.number


def take_arguments(edit: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Return what makes an edit of further arguments: `edit(log, rng, *arguments)` is that of `make(*arguments)`."""

    @wraps(edit)
    def make(*arguments: Any, **named: Any) -> Callable[..., Any]:
        return lambda *subject: edit(*subject, *arguments, **named)

    return make


def map_times(lines: Iterable[Line], change: Callable[[float], float]) -> None:
    """Change the time of each line by itself."""
    for line in lines:
        line.time = change(line.time)


def _line(data: bytes) -> Line:
    head, token, body = data.rpartition(TOKEN)
    return Line(head, json.loads(body)) if token else Line(data, {})
