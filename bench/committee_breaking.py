"""Logs that break one rule of a valid log, and if possible no other."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from committee_making import FRAME, Made, Maker, assign, dig, holders, kind_of_value
from committee_rules import AGGREGATED, Answer, Event, Log, Rule, states_read
from committee_values import MISSING, USUAL, choices_for, holds, paths_in, replaced, unique, variants

BREAKS: Final = 25
"""Logs that are tried for a rule."""
TEN_HOURS: Final = 36_000_000


class Breaker:
    """Breaks rules of a valid log one by one."""

    def __init__(self, maker: Maker, made: Made) -> None:
        self.maker, self.made = maker, made
        _, self.writes = maker.dependencies()

    def break_rule(self, rule: Rule) -> tuple[Log, Answer] | None:
        """Return a log that fails this rule, and as few others as possible; None if none is found."""
        best: tuple[Log, Answer] | None = None
        for log in itertools.islice(self._changes(rule), BREAKS):
            answer = self.maker.ask(log)
            if not answer.breaks(rule) and not (rule.part == "REQ" and answer.crash):  # before it was counted
                continue
            if best is None or measure(answer) < measure(best[1]):
                best = log, answer
            if measure(answer) == (False, False, 1):
                break
        return best

    def _changes(self, rule: Rule) -> Iterator[Log]:
        if rule.part == "REQ":
            yield from self._recount(rule)
        elif rule.part == "END":
            yield from self._without(line for line, event in enumerate(self.made.log) if "tensor" in event.metadata)
        elif rule.part == "ATLEAST_ONE_CHECK":
            yield from self._miss_target(rule)
        elif rule.key == AGGREGATED:
            yield from self._without(line for line, event in enumerate(self.made.log) if "metric" in event.metadata)
        else:
            yield from self._change_line(rule)
            yield from self._move_line(rule)
            yield from self._change_earlier(rule)

    def _without(self, lines: Iterable[int]) -> Iterator[Log]:
        for line in lines:
            yield [event for number, event in enumerate(self.made.log) if number != line]

    def _recount(self, rule: Rule) -> Iterator[Log]:
        """Yield logs that have the key never, or twice with two values."""
        log, record = self.made.log, self._record(rule)
        if rule.text == "missing":
            required = record["REQ"].strip()
            keys = {rule.key, *required.partition("_OR(")[2].rstrip(")").split(",")}
            lines = [line for group in holders(log, rule.key) for line, _ in group]
            kept = int(required[9:-1]) - 1 if required.startswith("AT_LEAST(") else 0
            kept_lines = {line for group in holders(log, rule.key)[:kept] for line, _ in group}
            gone = {*lines, *(line for line, event in enumerate(log) if event.key in keys)} - kept_lines
            yield [event for line, event in enumerate(log) if line not in gone]
            return
        line = next(line for line, event in enumerate(log) if event.key == rule.key)
        for value in self._values(line, True):
            yield [*log[: line + 1], rewrite_event(log[line], value), *log[line + 1 :]]
        for other in (1, "example", 0.5):
            if other != log[line].value:
                yield [*log[: line + 1], rewrite_event(log[line], {"value": other}), *log[line + 1 :]]

    def _record(self, rule: Rule) -> dict[str, Any]:
        return next(r for r in self.maker.committee.records(rule.file) if r["NAME"] == rule.key)

    def _values(self, line: int, wanted: bool, rule: Rule | None = None) -> Iterator[dict[str, Any]]:
        """Yield what a line may have, other than it has, whose tests hold or do not; rule: of which the places are."""
        tests = [test for test in self.made.answer.tested if test.line == line]
        texts = [rule.text] if rule else [test.text for test in tests] or ["v['value']"]
        paths = list(dict.fromkeys(path for text in texts for path in paths_in(text)))
        if not tests or not rule:
            paths = [path for path in paths if path[0] == "value"] or [("value",)]
        choices = choices_for(tests, paths)
        event = self.made.log[line]
        now = {"value": event.value, "metadata": event.metadata}
        for path, found in choices.items():
            kind = kind_of_value(dig(now, path))
            choices[path] = sorted(unique([*found, *USUAL, MISSING]), key=lambda each: kind_of_value(each) is not kind)
        for value in variants(now, paths, choices):
            if "value" not in value or (not rule and value["value"] == now["value"]):
                continue
            if all(holds(t.text, value, t.state or {}, t.time) for t in tests) is wanted:
                yield value

    def _change_line(self, rule: Rule) -> Iterator[Log]:
        """Yield logs with a line that has something else, those first of which only this rule fails."""
        lines = [line for line, event in enumerate(self.made.log) if event.key == rule.key]
        for line in lines[:1]:
            tests = [test for test in self.made.answer.tested if test.line == line]
            state = next((t.state for t in tests if t.file == rule.file and t.text == rule.text), None)
            if state is None:
                continue
            found: list[tuple[int, dict[str, Any]]] = []
            for value in self._values(line, False, rule):
                if not holds(rule.text, value, state, tests[0].time):
                    failing = sum(not holds(t.text, value, t.state or {}, t.time) for t in tests)
                    found.append((failing, value))
                if len(found) > 200 or failing_alone(found):
                    break
            for _, value in sorted(found, key=lambda each: each[0])[:8]:
                yield [*self.made.log[:line], rewrite_event(self.made.log[line], value), *self.made.log[line + 1 :]]
            if all_missing := [path for path in paths_in(rule.text) if path[0] == "metadata"]:
                value = {"value": self.made.log[line].value, "metadata": self.made.log[line].metadata}
                for path in all_missing:
                    value = replaced(value, path, MISSING)
                yield [*self.made.log[:line], rewrite_event(self.made.log[line], value), *self.made.log[line + 1 :]]

    def _move_line(self, rule: Rule) -> Iterator[Log]:
        """Yield logs with the line earlier, later or much later, or once more after a line of the frame."""
        log = self.made.log
        line = next((line for line, event in enumerate(log) if event.key == rule.key), None)
        if line is None:
            return
        if "timestamp" in rule.text:
            late = copy.copy(log[line])
            late.delay = TEN_HOURS
            yield [*log[:line], late, *log[line + 1 :]]
        if not states_read(rule.text):
            return
        rest = [*log[:line], *log[line + 1 :]]
        ends = [i + 1 for i, event in enumerate(log) if event.key in FRAME]
        for at in ends:
            yield [*log[:at], log[line], *log[at:]]
        for at in (0, *(i + 1 for i, event in enumerate(rest) if event.key in FRAME)):
            yield [*rest[:at], log[line], *rest[at:]]

    def _change_earlier(self, rule: Rule) -> Iterator[Log]:
        """Yield logs with other values of what the rule reads in `s`."""
        log = self.made.log
        wanted = states_read(rule.text)
        for line, event in enumerate(log):
            if wanted & self.writes.get(event.key, set()) and event.key != rule.key:
                for value in itertools.islice(self._values(line, True), 8):
                    yield [*log[:line], rewrite_event(event, value), *log[line + 1 :]]

    def _miss_target(self, rule: Rule) -> Iterator[Log]:
        """Yield a log in which no evaluation reaches what one must."""
        bad = self.maker.find_outcome(self.made.answer, rule.file, self._record(rule), False)
        if bad is not MISSING:
            log = copy.deepcopy(self.made.log)
            for group in holders(log, rule.key):
                assign(log, group, bad)
            yield log


def measure(answer: Answer) -> tuple[bool, bool, int]:
    """Return how well a log breaks one rule only: refused, without a crash, for one key."""
    return answer.valid, bool(answer.crash), len({(file, key) for file, key, _ in answer.failed})


def failing_alone(found: list[tuple[int, dict[str, Any]]]) -> bool:
    return len(found) > 3 and found[-1][0] == 1


def rewrite_event(event: Event, value: dict[str, Any]) -> Event:
    """Return the event with other contents."""
    return Event(event.key, value["value"], value.get("metadata", event.metadata), event.kind, event.delay)
