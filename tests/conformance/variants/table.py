"""The table of cases: what is done to which base, and what must be found that is not found in the base.

A case is a row. Its `edit` changes a submission, or the single log that stands for one; with a number it is always the
same edit of the same base. The rules that are expected complain of a forgery; where none is, the edit makes the base no
worse, or contradicts nothing. `python -m tests.conformance.variants` makes a case again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from compliance.model.judging import ERROR, NOTE, WARNING, Finding
from tests.conformance.variants.bases import Stock, Submission, count
from tests.conformance.variants.logtext import LogText, Unsuitable, take_arguments

ATTEMPTS = 300
LACKING = ("PKG07", "PKG08", "PKG25", "PRV", "SET06")
"""Rules about what archives lack, that hold neither code nor descriptions."""
UNCOUNTED = (*LACKING, "RCP", "OFFICIAL")
"""Rules about what the bases lack, or about convergence: their messages name no lie."""
NAMED = ("WARN", "FAIL")

Random = random.Random
LogEdit = Callable[[LogText, Random], Any]
Edit = Callable[[Submission, Random], Any]


class Case(NamedTuple):
    """A row of the table.

    expected: rules, or words of messages, one of which at least must be new. base: a kind of bases, one of which is
    drawn, or the name of one. counts: the severities of findings that name it. allowed: rules, or their first letters,
    that may complain although nothing is expected. verdict: of all that is said, only this verdict is wrong. open: why
    the checker is wrong about it today. accepted: where a verdict is expected, those that are right, due to what the
    base has not. subject: words of a new note that is right as well.
    """

    name: str
    edit: Edit
    expected: tuple[str, ...] = ()
    base: str = "log"
    reason: str = ""
    counts: tuple[str, ...] = (ERROR, WARNING)
    allowed: tuple[str, ...] = ()
    verdict: str = ""
    open: str = ""
    accepted: tuple[str, ...] = ()
    subject: tuple[str, ...] = ()

    def is_named_by(self, finding: Finding) -> bool:
        """Tell whether a finding is one of those that are expected."""
        if finding.severity not in self.counts:
            return False
        if finding.rule in self.expected:
            return True
        return not finding.rule.startswith(UNCOUNTED) and mentions(finding, self.expected)


def mentions(finding: Finding, words: Iterable[str]) -> bool:
    """Tell whether a message has one of the words."""
    return any(word.lower() in finding.message.lower() for word in words)


class Judgement(NamedTuple):
    """What the checker says of a case. new: what is not found in the base."""

    case: Case
    number: int
    submission: Submission
    verdict: str
    new: list[Finding]

    @property
    def due(self) -> str:
        """The verdict that is due to what is new."""
        severities = {finding.severity for finding in self.new if not finding.rule.startswith(LACKING)}
        return "FAIL" if ERROR in severities else "WARN" if WARNING in severities else "PASS"

    @property
    def is_right(self) -> bool:
        """Whether the checker says what it must say."""
        if self.case.accepted:
            told = any(mentions(finding, self.case.subject) for finding in self.new)
            return told or self.due in self.case.accepted
        if self.case.expected:
            return any(map(self.case.is_named_by, self.new))
        if self.case.verdict:
            return self.verdict != self.case.verdict
        loud = (finding for finding in self.new if finding.severity in self.case.counts)
        return all(finding.rule.startswith(self.case.allowed or ("none",)) for finding in loud)

    def __str__(self) -> str:
        case = self.case
        verdict = f"{self.due} {'accepted' if self.is_right else 'not accepted'}" if case.accepted else self.verdict
        lines = [f"{case.name} {self.number} of {self.submission.name}: {verdict} ({case.reason})"]
        firsts = {(finding.rule, finding.severity): finding for finding in reversed(self.new)}
        lines += [f"    {new.severity} {new.rule} line {new.line}: {new.message[:200]}" for new in firsts.values()]
        return "\n".join(lines)


def judge(case: Case, number: int, stock: Stock) -> Judgement:
    """Return what the checker says of a case: of the first base that is suitable."""
    rng = Random(f"{case.name} {number}")
    for _ in range(ATTEMPTS):
        try:
            submission, before = stock.draw(case.base, rng)
            submission.turn, files = number, dict(submission.files)
            case.edit(submission, rng)
        except Unsuitable:
            continue
        verdict, findings = submission.judge()
        assert submission.files != files or not (case.expected or case.subject), f"{case.name} {number} changes nothing"
        now = count(findings)
        grown = {(rule, severity) for rule, severity in now if now[rule, severity] > before[rule, severity]}
        counted = (ERROR, WARNING, NOTE) if NOTE in case.counts or case.subject else (ERROR, WARNING)
        new = [new for new in findings if new.severity in counted and (new.rule, new.severity) in grown]
        return Judgement(case, number, submission, verdict, new)
    raise ValueError(f"{case.name} {number}: no suitable base in {ATTEMPTS} attempts")


def list_wrong(cases: Iterable[Case], numbers: int, stock: Stock) -> dict[str, str]:
    """Return, by case, what the checker says of the first numbers that it must not say, or does not say."""
    wrong = {}
    for case in cases:
        judgements = [judge(case, number, stock) for number in range(numbers)]
        if missed := [judgement for judgement in judgements if not judgement.is_right]:
            wrong[case.name] = "\n".join(map(str, missed))
    return wrong


# -- edits of logs as edits of submissions ----------------------------------------------------------------------


@take_arguments
def each(submission: Submission, rng: Random, edit: LogEdit) -> None:
    """Edit all logs, each by draws of its own."""
    for text in submission.texts():
        edit(text, rng)


@take_arguments
def some(submission: Submission, rng: Random, edit: LogEdit) -> None:
    """Edit one to three logs."""
    texts = submission.texts()
    for text in rng.sample(texts, rng.randint(1, min(3, len(texts)))):
        edit(text, rng)


@take_arguments
def alike(submission: Submission, rng: Random, edit: LogEdit) -> None:
    """Edit all logs by the same draws."""
    seed = rng.random()
    for text in submission.texts():
        edit(text, Random(seed))


@take_arguments
def bytes_of(submission: Submission, rng: Random, edit: Callable[[bytes, Random], bytes]) -> None:
    """Edit the bytes of all logs."""
    for path in submission.log_paths:
        submission.files[path] = edit(submission.files[path], rng)


@take_arguments
def together(submission: Submission, rng: Random, edit: Callable[[list[LogText], Random], Any]) -> None:
    """Edit all logs at once."""
    edit(submission.texts(), rng)


@take_arguments
def in_turn(log: LogText, rng: Random, *edits: LogEdit) -> None:
    """Edit a log in several ways, one after another."""
    for edit in edits:
        edit(log, rng)


def of_each_log(edit: Callable[..., Any]) -> Callable[..., Edit]:
    """Return the edit of all logs by the same draws, made of a function of log, draws and further arguments."""

    @wraps(edit)
    def make(*arguments: Any, **named: Any) -> Edit:
        return alike(lambda log, rng: edit(log, rng, *arguments, **named))

    return make


# -- rows of a family, rows of several bases ----------------------------------------------------------------------


def in_family(
    family: str,
    bases: dict[str, str],
    rows: dict[str, tuple[Any, ...]],
    accepted: tuple[str, ...] = NAMED,
    subject: tuple[str, ...] = (),
) -> list[Case]:
    """Return rows of a family, by name: what is done, the edit, and words of the row's own subject.

    bases: those by the first part of the names, or by "". accepted, subject: as in `Case`.
    """
    drawn = {name: bases.get(name.partition("_")[0]) or bases[""] for name in rows}
    return [
        Case(f"{family} {name}", edit, (), drawn[name], reason, accepted=accepted, subject=(*subject, *own))
        for name, (reason, edit, *own) in rows.items()
    ]


def on_each(
    family: str,
    bases: str,
    description: str,
    subject: tuple[str, ...],
    edit: Edit,
    counts: tuple[str, ...] = (ERROR, WARNING),
) -> list[Case]:
    """Return rows of a forgery of several bases, comma-separated; subject: words of a message that names it."""
    return [Case(family, edit, subject, base.strip(), description, counts) for base in bases.split(",")]


def number_cases(cases: Iterable[Case]) -> list[Case]:
    """Return the cases of each family with their numbers in it."""
    by_name = attrgetter("name")
    families = groupby(sorted(cases, key=by_name), by_name)
    return [case._replace(name=f"{name}-{at}") for name, family in families for at, case in enumerate(family)]
