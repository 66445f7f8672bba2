"""The committee's verdict on a log, from its rule files, in the order in which the committee's checker applies them.

Source: ComplianceChecker of mlp_compliance.py, mlperf-logging 4.1.68. A file is applied to the whole log, record by
record; it may enqueue others, and what a later file says of a key replaces what earlier ones said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from common.record import Record
from compliance.committee.rule_files import (
    EXACTLY_ONE,
    ROOT_FILE,
    Condition,
    RuleFile,
    UnreadableError,
    read_rule_file,
)

Arguments = tuple[dict[str, Any], dict[str, Any], float, Callable[[str], None]]
"""What a translated expression takes."""
MOST_FILES: Final = 100
"""Files that are applied to one log, a file more than once if it is enqueued again."""
MOST_WORK: Final = 100_000_000
"""Characters of expressions that a file applies to the records of one log; for logs of round 4.1 up to 3 million."""


class Refusal(NamedTuple):
    """A reason to refuse a log. key: "" for none in particular. line: of its record, 0 for the log as a whole."""

    key: str
    line: int
    message: str
    expected: str = ""


class CrashError(Exception):
    """The committee's checker ends with a traceback, so that the log has no verdict there."""


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
        by_key = {key: refusal for key, refusal in by_key.items() if key not in outcome.rules.keys} | outcome.refusals
        others += outcome.others
        queue += outcome.enqueued  # the loop goes on with these
    return [*by_key.values(), *others]


class _Application:
    """One file applied to one log: the state that its code changes, the files it enqueues, what it refuses."""

    def __init__(self, rules: RuleFile) -> None:
        self.rules = rules
        self.state: dict[str, Any] = {}
        self.enqueued: list[str] = []
        self.refusals: dict[str, Refusal] = {}
        self.others: list[Refusal] = []

    def enqueue(self, name: str) -> None:
        """Note a further file; TypeError for what is no name."""
        if not isinstance(name, str):
            raise TypeError("no name of a file")
        self.enqueued.append(name)

    def make_arguments(self, record: Record | None = None) -> Arguments:
        """Return what expressions take, of a record or of none."""
        fields = {"value": record.value, "metadata": record.metadata} if record else {}
        return self.state, fields, float(record.time_ms) if record else 0.0, self.enqueue

    def run(self, condition: Condition, key: str, arguments: Arguments, line: int = 0) -> Refusal | None:
        """Return why a condition does not hold, None if it does; code always holds, unless it fails."""
        text, test = condition
        try:
            if test(*arguments):
                return None
            problem = "breaks a rule"
        except Exception as error:  # the committee's checker catches all, too
            reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            problem = f"has a value to which a rule does not apply ({reason[:200]})"
        return Refusal(key, line, f"{key or 'the log, at its end,'} {problem}", text)

    def require(self, condition: Condition, arguments: Arguments, line: int = 0) -> Any:
        """Return what an expression gives; CrashError if it fails, which the committee's checker does not catch."""
        try:
            return condition.test(*arguments)
        except Exception as error:
            where = f"line {line}" if line else f"the beginning of {self.rules.name}"
            raise CrashError(f"the committee's checker ends at {where}: {condition.text}: {error}") from None


def _apply_file(rules: RuleFile, records: Sequence[Record]) -> _Application:
    """Return a file applied to the records of a log, as ComplianceChecker.configured_checks does."""
    application = _Application(rules)
    if rules.begin:
        application.require(rules.begin, application.make_arguments())
    values: dict[str, list[Any]] = {key: [] for key in rules.keys}
    met: dict[str, bool] = {}
    work = 0
    for record in records:
        rule = rules.keys.get(record.key)
        if rule is None:
            continue
        of_key, arguments = values[record.key], application.make_arguments(record)
        first = not of_key
        of_key.append(record.value)
        work += rule.length
        if work > MOST_WORK:
            raise UnreadableError(
                f"{rules.name}: not readable: its expressions take too long for {len(records):,} records"
            )
        steps = rule.steps if first or "submission_" not in record.key else ()
        for condition in (*steps, *rule.first_checks) if first else steps:
            if refusal := application.run(condition, rule.key, arguments, record.line):
                application.refusals[rule.key] = refusal
        if rule.once:
            meets = application.require(rule.once, arguments, record.line)
            met[record.key] = met.get(record.key, False) or bool(meets)
    for key in (key for key, is_met in met.items() if not is_met):
        target = rules.keys[key].once
        application.others.append(
            Refusal(key, 0, f"no record of {key} meets its target", target.text if target else "")
        )
    for refusal in _count_records(rules, values):
        if refusal.key:
            application.refusals[refusal.key] = refusal
        else:
            application.others.append(refusal)
    ends = [application.run(condition, "", application.make_arguments()) for condition in rules.end_checks]
    application.others += filter(None, ends)
    return application


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
