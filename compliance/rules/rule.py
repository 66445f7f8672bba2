"""What a rule is, the families of rules, and the registry of all rules.

A rule is a small class: the docstring's first line is its title, `check` yields findings. Defining the class
registers it. Ids are never reused; docs/guide/new-rule.md is the recipe.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, ClassVar, Final

from common.errors import UsageError
from common.reference import ROUNDS
from common.values import is_number
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.model.judging import (
    ERROR,
    OFFICIAL,
    OFFICIAL_RULE,
    PROFILES,
    SEVERITIES,
    SKIPPED,
    STRICT,
    WARNING,
    Finding,
    JudgedRun,
    first_text,
)

FAMILIES: Final = {
    "COM": "What the committee's own rule files ask: the rounds of MLPerf Training",
    "FRM": "The form of a log file: bytes, lines, records, times",
    "PKG": "A submission folder: layout, names, system descriptions, implementations, and its place in a repository",
    "SET": "What a log states: who submits what, with which settings, on which data and variant of the problem",
    "ORD": "The course of a run: its events, epochs and evaluations, their order and their times",
    "AMT": "Amounts that a log states twice: samples, steps, epochs, ranks, times and rates",
    "QUA": "The quality that a run reached",
    "RUN": "The runs of one result: their number, what they share, where they differ, how they fit the system",
    "RCP": "Convergence: the comparison with the reference convergence points (RCP), and the resulting factors",
    "POW": "Power files: measuring is optional, but covers all runs of a result and all nodes of a run",
    "PRV": "Personal data and secrets: mail addresses, home directories, private keys, tokens",
    OFFICIAL_RULE: "What the committee's checker refuses although it breaks no written rule",
}
"""What the rules with a prefix are about, causes before what may follow from them: the order of reports.

A rule of your own takes a prefix that is not in this table.
"""

OF_TRAINING: Final = {
    OFFICIAL: (
        "COM01 COM03 FRM01 FRM02 FRM03 FRM04 FRM07 FRM09 RUN01 RUN02 RUN03 RUN04 RCP01 RCP03 PKG01 PKG03 PKG04 PKG05 "
        "PKG06"
    ).split(),
    STRICT: (
        "COM01 COM02 COM03 FRM01 FRM02 FRM03 FRM04 FRM05 FRM07 FRM08 FRM09 FRM10 FRM12 FRM14 "
        "ORD01 ORD02 ORD03 ORD04 ORD05 ORD09 ORD18 ORD22 AMT01 AMT04 AMT05 AMT07 AMT08 "
        "QUA01 QUA02 QUA03 QUA04 QUA06 QUA11 QUA13 QUA14 SET06 SET08 SET15 SET20 SET21 SET22 PRV01 PRV02 "
        "RUN01 RUN02 RUN03 RUN04 RUN05 RUN06 RUN08 RUN18 RUN20 RUN21 RUN23 RUN24 RCP01 RCP03 RCP07 "
        "PKG01 PKG02 PKG03 PKG04 PKG05 PKG06 PKG08 PKG10 PKG11 PKG20 PKG25 PKG26 PKG27 PKG32 PKG33 PKG36 PKG38"
    ).split(),
}
"""The rules that apply to rounds of MLPerf Training, by profile; docs/reference/training-rates.md has the rates."""

WORDS: Final = {
    **dict.fromkeys(("mllog", "constants", "random", "num", "number", "of", "the"), ""),
    **dict.fromkeys(("end", "finish", "finished", "done"), "stop"),
    **dict.fromkeys(("begin", "started"), "start"),
    **dict.fromkeys(("val", "valid", "validation", "evaluation", "test"), "eval"),
    **dict.fromkeys(("training", "trn"), "train"),
    **dict.fromkeys(("mae", "err"), "error"),
    **dict.fromkeys(("acc", "iou", "miou"), "accuracy"),
    **dict.fromkeys(("submitter", "organization", "organisation"), "submission_org"),
    **dict.fromkeys(("gpus", "devices", "accelerator"), "accelerators"),
    "optimizer": "opt",
    "lr": "learning_rate",
    "bs": "batch_size",
}
"""Words in the names of records that stand for a word of the committee's, or say nothing."""
RETIRED: Final = frozenset(
    (
        "AMT02 AMT06 FRM06 FRM11 FRM13 ORD08 ORD10 ORD13 ORD14 ORD15 ORD16 ORD17 ORD21 PKG12 PKG13 PKG14 PKG15 PKG16 "
        "PKG17 PKG18 PKG19 PKG21 PKG22 PKG23 PKG24 PKG28 PKG29 PKG30 PKG31 PKG34 PKG35 PKG39 POW07 POW09 POW10 POW12 "
        "POW14 PRV03 QUA05 QUA07 QUA09 QUA10 QUA12 RCP02 RCP05 RUN07 RUN13 RUN14 RUN15 RUN16 RUN17 RUN19 RUN22 SET09 "
        "SET10 SET13 SET16 SET18"
    ).split()
)
"""Ids that are retired or were never assigned: a report of another year may name them, so that none is used again."""


def prefix(id_: str) -> str:
    """Return the capital letters that a rule's id begins with: `RUN` of `RUN03`."""
    return id_.rstrip("0123456789")


class Rule:
    """The base of all rules.

    cite: where the rules say so. why: why it matters. fix: how to fix it.
    follows: ids of rules; where one of them has found something in the same log, result or package, what this one finds
    there follows from it, and people read it on request only.
    once: of a log rule; warnings and notes that several logs of a result share are reported once, for the first log.
    profiles: in which profiles the rule runs, both unless the class is defined with `strict_only=True`; differs: how
    its findings differ between them.
    bad, good: examples, made by `compliance.samples`, that the rule reports, and that it does not, besides the valid
    logs and packages on which a test runs every rule.
    """

    id: ClassVar[str] = ""
    severity: ClassVar[str] = ERROR
    cite: ClassVar[str] = ""
    why: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    follows: ClassVar[tuple[str, ...]] = ()
    once: ClassVar[bool] = False
    profiles: ClassVar[tuple[str, ...]] = PROFILES
    differs: ClassVar[str] = ""
    rounds: ClassVar[tuple[str, ...]] = ROUNDS
    divisions: ClassVar[tuple[str | None, ...]] = ("closed", "open", None)
    good: ClassVar[tuple[Callable[[Any], Any], ...]] = ()
    bad: ClassVar[tuple[Callable[[Any], Any], ...]] = ()

    def __init_subclass__(cls, strict_only: bool = False) -> None:
        if strict_only:
            cls.profiles = (STRICT,)
        if "id" in cls.__dict__:
            if problem := _find_problem(cls):
                raise UsageError(f"{cls.__name__}: {problem}")
            RULES[cls.id] = cls
            rules_of.cache_clear()

    @classmethod
    def title(cls) -> str:
        """Return the rule in one sentence: the first line of the docstring; `python -OO` leaves only its name."""
        return (cls.__doc__ or cls.__name__).strip().splitlines()[0]

    @classmethod
    def applies(cls, round_: str, division: str | None, profile: str) -> bool:
        """Tell whether the rule exists in this round, division and profile."""
        if round_ in ROUNDS:  # of HPC
            return profile in cls.profiles and round_ in cls.rounds and division in cls.divisions
        is_free = division == "open" and cls.id.startswith("QUA")
        return profile in cls.profiles and cls.id in OF_TRAINING[profile] and division in cls.divisions and not is_free

    @classmethod
    def is_suite_rule(cls) -> bool:
        """Tell whether the rule comes with the suite."""
        return cls.__module__.startswith(f"{__package__}.")

    def finding(  # noqa: PLR0913  (a finding has these parts)
        self,
        path: str,
        line: int,
        message: str,
        expected: str = "",
        key: str = "",
        severity: str = "",
        fix: str = "",
        cause: str = "",
        incomplete: bool = False,
    ) -> Finding:
        """Return a finding of this rule; severity and fix are the rule's own unless others are given."""
        return Finding(self.id, severity or self.severity, path, line, message, expected, key, incomplete, fix, cause)

    def check(self, *subject: Any, **unused: Any) -> Iterator[Finding]:
        """Yield what is wrong with the subject, which depends on the kind of rule."""
        raise NotImplementedError

    def skipped(self, path: str, reason: str) -> Finding:
        """Return a finding that the rule could not be applied, and why."""
        return Finding(self.id, SKIPPED, path, 0, reason)


RULES: Final[dict[str, type[Rule]]] = {}


def _find_problem(rule: type[Rule]) -> str:
    """Return what is wrong with the definition of a rule, "" if nothing is."""
    id_ = rule.id
    has_form = re.fullmatch("[A-Z]{3}[0-9]{2}", id_) or id_ == OFFICIAL_RULE
    owner, namesake = (f"{each.__qualname__} ({each.__module__})" for each in (rule, RULES.get(id_, rule)))
    return first_text(
        (
            (not has_form, f"id {id_!r}: expected three capital letters and two digits, such as OWN01"),
            (owner != namesake, f"id {id_} is taken by {namesake}; choose another"),
            (id_ in RETIRED, f"id {id_} is retired; choose another"),
            (
                prefix(id_) in FAMILIES and not rule.is_suite_rule(),
                f"the ids {prefix(id_)}… are the suite's; choose another prefix, such as OWN",
            ),
            (
                rule.severity not in SEVERITIES,
                f"severity {rule.severity!r} is not one of {', '.join(SEVERITIES)}",
            ),
            (
                not (rule.__doc__ or "").strip() and sys.flags.optimize < 2,
                "lacks a docstring; its first line states the rule",
            ),
        )
    )


class LogRule(Rule):
    """A rule about one log: `check(log, case)`."""

    def finding_at(  # noqa: PLR0913  (as `finding`)
        self, log: Log, record: Record, message: str, expected: str = "", severity: str = "", fix: str = ""
    ) -> Finding:
        """Return a finding about a record of the log."""
        return self.finding(log.path, record.line, message, expected, record.key, severity, fix)

    def not_logged(self, log: Log, key: str, expected: str, fix: str = "", number: int = 0) -> Finding:
        """Return a finding that a key is not logged: at the record that may be meant as one of it, if there is any.

        number: see `find_alike`.
        """
        near = find_alike(log, key, number)
        if near is None:
            return self.finding(log.path, 0, f"{key} is not logged", expected, key, fix=fix)
        message = f"{key} is not logged (is {near.key!r} meant as it?)"
        fix = f"If so, log it as {key}; ask the committee about finished logs." + (f" Otherwise: {fix}" if fix else "")
        return self.finding(log.path, near.line, message, expected, key, fix=fix)

    def exactly_once(self, log: Log, key: str, repeats: str = WARNING) -> Iterator[Finding]:
        """Yield a finding unless the key is logged once; `repeats` is the severity of equal repetitions."""
        records = log.records.get(key)
        if records is None:
            yield self.not_logged(log, key, "exactly one record")
        elif len(records) > 1:
            values = [record.value for record in records]
            same = values.count(values[0]) == len(values)  # as the official tool: strict must not be weaker
            shown_values = ", ".join(dict.fromkeys(map(show, values[:20])))
            difference = "with the same value" if same else f"with different values: {shown_values}"
            message = f"{key} is logged {len(records)} times {difference}; first in line {records[0].line}"
            severity = repeats if same else ERROR
            yield self.finding_at(log, records[1], message, "exactly one record", severity)


def find_alike(log: Log, key: str, number: int = 0) -> Record | None:
    """Return the first record of another key that may be meant as this one, None without any.

    number: if not 0, whatever its name is, the key has about so many records with numbers, as that of a result has.
    """
    import difflib  # only a log that lacks a key pays for it

    others = {**log.others, **{metric: log[metric] for metric in log.metrics}} if number else log.others
    names = {
        _unify_words(name): records[0]
        for name, records in others.items()
        if records
        and (not number or (abs(len(records) - number) < 2 and is_number(records[0].value) and "train" not in name))
    }
    near = difflib.get_close_matches(_unify_words(key), sorted(names), 1, 0 if number else 0.6)
    return names[near[0]] if near else None


def _unify_words(name: str) -> str:
    return "_".join(filter(None, (WORDS.get(word, word) for word in re.split(r"[\W_]+", name.casefold()))))


def show(value: Any) -> str:
    """Return a logged value as a short text for a message."""
    text = json.dumps(value) if isinstance(value, (str, bool, list, dict, type(None))) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


class SetRule(Rule):
    """A rule about the runs of one result, the logs of one system and benchmark: `check(results)`."""

    def finding_in(  # noqa: PLR0913  (as `finding`)
        self, run: JudgedRun, key: str, message: str, expected: str, severity: str = "", fix: str = ""
    ) -> Finding:
        """Return a finding about what a run states under a key: at its record, as far as the run knows the line."""
        return self.finding(run.path, run.lines.get(key, 0), message, expected, key, severity, fix)


class PackageRule(Rule):
    """A rule about one organisation's submission folder: `check(package)`."""


class SubmissionsRule(Rule):
    """A rule about everything that is checked together, several packages and rounds: `check(submissions)`."""


@cache
def rules_of(kind: type[Rule], round_: str, division: str | None, profile: str) -> tuple[Rule, ...]:
    """Return an instance of each rule of a kind that applies, ordered by id."""
    of_kind = (rule for _, rule in sorted(RULES.items()) if issubclass(rule, kind))
    return tuple(rule() for rule in of_kind if rule.applies(round_, division, profile))
