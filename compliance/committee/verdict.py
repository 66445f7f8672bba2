"""The committee's verdict on a log, from its rule files, in the order in which the committee's checker applies them.

Source: ComplianceChecker of mlp_compliance.py, mlperf-logging 4.1.68. A file is applied to the whole log, record by
record; it may enqueue others, and what a later file says of a key replaces what earlier ones said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from common.record import Record
from compliance.committee.rule_files import (
    EXACTLY_ONE,
    ROOT_FILE,
    Condition,
    KeyRule,
    RuleFile,
    UnreadableError,
    read_rule_file,
)

Arguments = tuple[dict[str, Any], dict[str, Any], float, Callable[[str], None]]
"""What a translated expression takes."""
MOST_FILES: Final = 100
"""Files that are applied to one log, a file more than once if it is enqueued again."""
MOST_WORK: Final = 50_000_000
"""Characters of expressions that are applied to the records of one log by a file; for published logs a millionth."""


class Refusal(NamedTuple):
    """A reason to refuse a log. key: "" for none in particular. line: of its record, 0 for the log as a whole."""

    key: str
    line: int
    message: str
    expected: str = ""


class CrashError(Exception):
    """The committee's checker ends with a traceback, so that the log has no verdict there."""


class _Outcome(NamedTuple):
    """What a file finds: by key, and about no key; keys: all that it has rules for. enqueued: further files."""

    by_key: dict[str, Refusal]
    others: list[Refusal]
    keys: Iterable[str]
    enqueued: list[str]


def judge_records(records: Sequence[Record], folder: str, round_folder: str) -> list[Refusal]:
    """Return why the committee's checker refuses a log; nothing if it accepts it.

    records: all whose keys the files name, in the order of the file. folder: of the rule files of all rounds.
    round_folder: training_6.1.0 or the like. Raises UnreadableError if a file that the log needs is not understood.
    """
    queue, outcomes = [f"{round_folder}/{ROOT_FILE}"], {}
    by_key: dict[str, Refusal] = {}
    others: list[Refusal] = []
    for number, name in enumerate(queue):
        if number >= MOST_FILES:
            raise UnreadableError(f"{name}: not readable: more than {MOST_FILES} files are enqueued, or in a circle")
        if name not in outcomes:
            try:
                outcomes[name] = _apply_file(read_rule_file(folder, name), records)
            except FileNotFoundError:
                return [*by_key.values(), *others, Refusal("", 0, f"there is no rule file {name[:200]}")]
            except CrashError as error:
                return [*by_key.values(), *others, Refusal("", 0, str(error))]
        outcome = outcomes[name]
        for key in outcome.keys:
            by_key.pop(key, None)
        by_key |= outcome.by_key
        others += outcome.others
        queue += outcome.enqueued  # the loop goes on with these
    return [*by_key.values(), *others]


class _Application:
    """One file applied to one log: the state that its code changes, and what it refuses so far."""

    def __init__(self, rules: RuleFile) -> None:
        self.rules = rules
        self.state: dict[str, Any] = {}
        self.enqueued: list[str] = []
        self.refusals: dict[str, Refusal] = {}

    def enqueue(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError("no name of a file")
        self.enqueued.append(name)

    def take(self, rule: KeyRule, record: Record, first: bool, again: bool) -> bool:
        """Apply the rule of a key to its next record; return whether it meets what one of them must meet.

        first: it is the first of its key. again: only the first of this key is judged, and it is not that.
        """
        fields = {"value": record.value, "metadata": record.metadata}
        arguments: Arguments = (self.state, fields, float(record.time_ms), self.enqueue)
        if not again:
            self._run(rule.before, rule, record, arguments)
            self._check(rule.checks, rule, record, arguments)
            self._run(rule.after, rule, record, arguments)
        if first and rule.first_checks:
            self._check(rule.first_checks, rule, record, arguments)
        if rule.once is None:
            return True
        try:
            return bool(rule.once.test(*arguments))
        except Exception as error:
            raise CrashError(f"line {record.line}: the committee's checker ends at {rule.once.text}: {error}") from None

    def _run(self, code: Any, rule: KeyRule, record: Record, arguments: Arguments) -> None:
        if code is not None:
            try:
                code(*arguments)
            except Exception as error:
                message = f"{rule.key} has a value that the rules cannot use ({_describe(error)})"
                self.refusals[rule.key] = Refusal(rule.key, record.line, message)

    def _check(self, conditions: Iterable[Condition], rule: KeyRule, record: Record, arguments: Arguments) -> None:
        for text, test in conditions:
            try:
                if test(*arguments):
                    continue
                problem = "breaks a rule"
            except Exception as error:
                problem = f"has a value to which a rule does not apply ({_describe(error)})"
            self.refusals[rule.key] = Refusal(rule.key, record.line, f"{rule.key} {problem}", text)


def _describe(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def _apply_file(rules: RuleFile, records: Sequence[Record]) -> _Outcome:
    application = _Application(rules)
    if rules.begin:
        try:
            rules.begin(application.state, {}, 0.0, application.enqueue)
        except Exception as error:
            raise CrashError(f"the committee's checker ends at BEGIN of {rules.name}: {error}") from None
    values: dict[str, list[Any]] = {key: [] for key in rules.keys}
    met: dict[str, bool] = {}
    work = 0
    for record in records:
        rule = rules.keys.get(record.key) if isinstance(record.key, str) else None
        if rule is None:
            continue
        of_key = values[record.key]
        of_key.append(record.value)
        work += rule.length
        if work > MOST_WORK:
            raise UnreadableError(
                f"{rules.name}: not readable: its expressions take too long for {len(records):,} records"
            )
        first = len(of_key) == 1
        meets = application.take(rule, record, first, again=not first and "submission_" in record.key)
        if rule.once:
            met[record.key] = met.get(record.key, False) or meets
    others = [
        Refusal(key, 0, f"no record of {key} meets its target", rules.keys[key].once.text)  # type: ignore[union-attr]
        for key, once in met.items()
        if not once
    ]
    for refusal in _count_records(rules, values):
        if refusal.key:
            application.refusals[refusal.key] = refusal
        else:
            others.append(refusal)
    others += _judge_end(rules, application)
    return _Outcome(application.refusals, others, rules.keys.keys(), application.enqueued)


def _count_records(rules: RuleFile, values: dict[str, list[Any]]) -> Iterator[Refusal]:
    """Yield where there are too few or too many records of a key."""
    for key, rule in rules.keys.items():
        of_key = values[key]
        number = len(of_key)
        if rule.required == EXACTLY_ONE and number > 1 and of_key.count(of_key[0]) < number:
            yield Refusal(key, 0, f"{key} is logged {number} times, with different values", "exactly one record")
        elif number < rule.least:
            expected = f"at least {rule.least} records" if rule.least > 1 else "a record"
            yield Refusal(key, 0, f"{key} is logged {number} times" if number else f"{key} is not logged", expected)
    groups = {frozenset((key, *rule.others)) for key, rule in rules.keys.items() if rule.others}
    for group in sorted(map(sorted, groups)):
        if not any(values.get(key) for key in group):
            yield Refusal("", 0, f"none of {' and '.join(group)} is logged", "at least one record")


def _judge_end(rules: RuleFile, application: _Application) -> Iterator[Refusal]:
    """Yield what must hold after the last record and does not."""
    arguments: Arguments = (application.state, {}, 0.0, application.enqueue)
    try:
        if rules.end:
            rules.end(*arguments)
    except Exception as error:
        raise CrashError(f"the committee's checker ends at END of {rules.name}: {error}") from None
    for text, test in rules.end_checks:
        try:
            if test(*arguments):
                continue
        except Exception:
            pass
        yield Refusal("", 0, f"at its end the log breaks a rule of {rules.name}", text)
