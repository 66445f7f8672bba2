"""Rules about the epochs and evaluations of a run: present, in order, complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from common.values import is_number
from compliance.benchmarks import REFERENCES
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.model.finding import Finding
from compliance.rule import STRICT, Case, LogRule, show
from compliance.rules.order import LOGGING, before, has_field


class Blocks(LogRule):
    """A block starts after run_start and states its first epoch and its number of epochs."""

    id = "ORD06"
    cite = LOGGING
    why = "A block stands for several epochs; without these numbers it is unknown which."
    fix = "Log block_start with epoch_count and first_epoch_num, block_stop with first_epoch_num."
    good = (lambda log: log().blocks(),)
    bad = (
        lambda log: log().blocks().meta("block_start", "epoch_count", None),
        lambda log: log().blocks().meta("block_start", "epoch_count", 0),
        lambda log: log().blocks().meta("block_start", "first_epoch_num", None),
        lambda log: log().blocks().meta("block_stop", "first_epoch_num", None),
        lambda log: log().blocks().move("block_start", before="run_start"),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for start in log["block_start"]:
            if not before(log, "run_start", start):
                yield self.found(log.path, start.line, "block_start before run_start", "after run_start", "block_start")
            if not has_field(start, "epoch_count") or not self._positive(start):
                message = "block_start without a positive epoch_count"
                yield self.found(log.path, start.line, message, '"epoch_count": n', "block_start")
        for key in ("block_start", "block_stop"):
            for record in log[key]:
                if not has_field(record, "first_epoch_num"):
                    message = f"{key} without first_epoch_num"
                    yield self.found(log.path, record.line, message, '"first_epoch_num": n', key)

    @staticmethod
    def _positive(start: Record) -> bool:
        try:
            return bool(start.metadata["epoch_count"] > 0)
        except (TypeError, KeyError, IndexError):
            return False


class Epochs(LogRule):
    """The log has epochs and evaluations (or blocks), each with its epoch_num."""

    id = "ORD07"
    cite = LOGGING
    why = "Convergence is counted in epochs; an event without epoch_num cannot be placed."
    fix = 'Give epoch_start, epoch_stop, eval_start and eval_stop the metadata "epoch_num".'
    differs = "strict requires epoch_num to be a number"
    good = (lambda log: log(), lambda log: log().blocks())
    bad = (
        lambda log: log().drop("epoch_start"),
        lambda log: log().drop("epoch_stop"),
        lambda log: log().drop("eval_start"),
        lambda log: log().drop("eval_stop"),
        lambda log: log().meta("epoch_start", "epoch_num", None),
        lambda log: log().meta("eval_stop", "epoch_num", "3"),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for key in ("epoch_start", "epoch_stop", "eval_start", "eval_stop"):
            block = "block_start" if key.endswith("start") else "block_stop"
            if not log[key] and not log[block]:
                message = f"neither {key} nor {block} is logged"
                yield self.found(log.path, 0, message, f"at least one {key}", key)
                if not case.strict:
                    yield self.found(log.path, 0, message, f"at least one {block}", block)
            yield from self._numbers(log, key, case)

    def _numbers(self, log: Log, key: str, case: Case) -> Iterator[Finding]:
        if len(log.numbered(key)) == len(log[key]):
            return
        missing = [record for record in log[key] if not has_field(record, "epoch_num")]
        if missing:
            message = f"epoch_num missing in the metadata of {key}{_count(missing)}"
            yield self.found(log.path, missing[0].line, message, '"epoch_num": n', key)
        told = [record for record in log[key] if case.strict and has_field(record, "epoch_num")]
        wrong = [record for record in told if not is_number(record.meta("epoch_num"))]
        if wrong:
            message = f"epoch_num of {key} is {show(wrong[0].meta('epoch_num'))}, not a number{_count(wrong)}"
            yield self.found(log.path, wrong[0].line, message, "a number", key)


class EpochOrder(LogRule):
    """Epochs are logged in order, without gaps or repetitions."""

    id = "ORD11"
    cite = LOGGING
    profiles = (STRICT,)
    differs = "the official tool does not compare epoch numbers"
    why = "A missing, repeated or swapped epoch means that records were lost, edited or mixed."
    fix = "Log every epoch once, in the order of training."
    good = (lambda log: log(), lambda log: log().renumber(first=0))
    bad = (
        lambda log: log().drop_epoch(3),
        lambda log: log().swap_epochs(3, 4),
        lambda log: log().double("epoch_start", 2),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        facts = REFERENCES.get(case.benchmark or "")
        if facts is not None and facts.epoch_unit != "epochs":
            return
        stop = log.first("run_stop")
        end = stop.order if stop else log.record_count
        for key in ("epoch_start", "epoch_stop", "eval_start"):
            step: Any = None
            last: Any = None
            for number, record in log.numbered(key):
                if record.order > end:
                    break
                if key == "eval_start":
                    # There may be none or several evaluations in an epoch, but they do not go back.
                    wrong = last is not None and number < last
                    expected = f"epoch {last} or later"
                else:
                    wrong = last is not None and number != last + 1
                    expected = f"epoch {last} + 1"
                if wrong:
                    step = record if step is None else step
                    what = "repeats" if number == last else "goes back to" if number < last else "skips to"
                    message = f"epoch order: {key} {what} epoch {number} after epoch {last}"
                    yield self.found(log.path, record.line, message, expected, key)
                    break
                last = number


class EpochPairs(LogRule):
    """Every epoch and evaluation that starts also stops, except those cut short by run_stop."""

    id = "ORD12"
    cite = LOGGING
    profiles = (STRICT,)
    differs = "the official tool requires one epoch_stop and one eval_stop per file"
    why = "An interval without an end means lost records; the log then gives no times per epoch."
    fix = "Log epoch_stop and eval_stop for every epoch; only what run_stop cuts short may stay open."
    good = (
        lambda log: log(),
        lambda log: log().drop("epoch_stop", -1),
        lambda log: log().move("epoch_stop", after="eval_error"),  # evaluation may overlap the next epoch
    )
    bad = (
        lambda log: log().drop("epoch_stop", 2),
        lambda log: log().drop("eval_stop", 2),
        lambda log: log().drop("epoch_start", 2),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        stop = log.first("run_stop")
        end = stop.order if stop else log.record_count
        for name, field in (("epoch", "epoch_num"), ("eval", "epoch_num"), ("block", "first_epoch_num")):
            starts = _by_number(log.numbered(f"{name}_start", field), end)
            stops = _by_number(log.numbered(f"{name}_stop", field), end)
            ended = max(stops, default=float("-inf"))
            for number, records in starts.items():
                if len(records) > len(stops.get(number, ())) and number < ended:
                    message = f"{name}_start of epoch {number} has no {name}_stop"
                    yield self.found(log.path, records[-1].line, message, f"a {name}_stop", f"{name}_stop")
            for number, records in stops.items():
                if len(records) > len(starts.get(number, ())):
                    message = f"{name}_stop of epoch {number} without {name}_start"
                    yield self.found(log.path, records[-1].line, message, f"a {name}_start", f"{name}_start")


def _count(records: list[Record]) -> str:
    return f" ({len(records)} such records)" if len(records) > 1 else ""


def _by_number(numbered: list[tuple[float, Record]], end: int) -> dict[float, list[Record]]:
    """Return the records before `end` by their epoch number."""
    found: dict[float, list[Record]] = {}
    for number, record in numbered:
        if record.order < end:
            found.setdefault(number, []).append(record)
    return found
