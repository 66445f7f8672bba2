"""Explain rules: `python -m compliance.check --explain QUA01`, `--explain QUA`, `--list-rules`."""

from __future__ import annotations

import os
import tempfile
import textwrap
from collections.abc import Callable
from typing import Any

from common.command import clean, suggest_name
from common.files import LOG_NAME
from common.reference import ROUNDS
from common.rounds import HPC, TITLES
from compliance.engine import Options, check_paths
from compliance.engine.log_checker import LogTask, judge_log
from compliance.formats.findings import Shown
from compliance.formats.style import Style
from compliance.formats.table import Column, make_table, plain_text
from compliance.formats.words import write_location
from compliance.logs.log import parse_log
from compliance.model.judging import OFFICIAL, SKIPPED, STRICT, Case, Finding, first_text
from compliance.model.layout import write_slashes
from compliance.rules.catalog import all_rules
from compliance.rules.rule import FAMILIES, OF_TRAINING, LogRule, Rule, prefix
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

WIDTH = 100


def explain(rule_id: str) -> str:
    """Return what a rule requires, why, and its messages for bad examples; for a prefix such as `QUA`, its rules.

    Raises ValueError for an unknown id; the message names similar ones.
    """
    wanted, rules = rule_id.strip().upper(), all_rules()
    if wanted in rules:
        return _explain_rule(rules[wanted])
    below = [rules[id_] for id_ in sorted(rules) if wanted and id_.startswith(wanted)]
    if below:
        return _rule_table(below)
    hint = suggest_name(wanted, rules) or f"; an id looks like {min(rules)}"
    raise ValueError(f"no rule {clean(rule_id)!r}{hint}; --list-rules shows all")


def list_rules(profile: str | None = None, select: tuple[str, ...] = ()) -> str:
    """Return a table of all rules, or of those of a profile, or with these ids or prefixes."""
    selected = [rule for id_, rule in sorted(all_rules().items()) if not select or id_.startswith(select)]
    return _rule_table([rule for rule in selected if profile is None or profile in rule.profiles])


def _rule_table(rules: list[type[Rule]]) -> str:
    """Return the rules line by line, each family below its heading."""
    columns: list[Column[type[Rule]]] = [
        Column("id", "", lambda rule: rule.id, numeric=False),
        Column("severity", "", lambda rule: rule.severity, numeric=False),
        Column("profiles", "", lambda rule: ", ".join(rule.profiles), numeric=False),
        Column("rule", "", lambda rule: rule.title(), numeric=False),
    ]
    families = (prefix(rule.id) for rule in rules)
    groups = [f"\n{family}: {FAMILIES.get(family, 'rules of your own')}" for family in families]
    return plain_text(make_table("", columns, rules, groups)) + "\n"


def _explain_rule(rule: type[Rule]) -> str:
    facts = (
        ("severity", rule.severity),
        ("profiles", ", ".join(rule.profiles)),
        ("differs", rule.differs),
        ("rounds", rounds_text(rule.rounds)),
        ("training", ", ".join(profile for profile, ids in OF_TRAINING.items() if rule.id in ids)),
        ("divisions", divisions_text(rule)),
        ("source", rule.cite),
        ("why", rule.why),
        ("fix", rule.fix),
    )
    lines = textwrap.wrap(
        f"{rule.id}  {rule.title()}", WIDTH, subsequent_indent=" " * (len(rule.id) + 2), break_on_hyphens=False
    )
    lines.append("")
    for label, text in facts:
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=f"{label:<11}", subsequent_indent=" " * 11, break_on_hyphens=False
        )
    findings = bad_findings(rule)
    if findings:
        lines += ["", "Messages for examples that break it:", *(f"  {sentence(finding)}" for finding in findings)]
    return "\n".join(lines) + "\n"


def sentence(finding: Finding) -> str:
    """Return an example's finding as the text format writes it."""
    where, text = write_location(finding.path, finding.line, Style()), Shown(finding, finding.severity).text
    return f"{where}: {text}" if where else text


def divisions_text(rule: type[Rule]) -> str:
    """Return the divisions in words."""
    return " and ".join(division for division in rule.divisions if division)


def rounds_text(rounds: tuple[str, ...]) -> str:
    """Return rounds of MLPerf HPC in words: `all`, `2.0`, `1.0 to 3.0`, `none of MLPerf HPC`."""
    if not rounds:
        return f"none of {TITLES[HPC]}"
    first = ROUNDS.index(rounds[0])
    follow_each_other = rounds == ROUNDS[first : first + len(rounds)]
    return first_text(
        (
            (rounds == ROUNDS, "all"),
            (len(rounds) > 1 and follow_each_other, f"{rounds[0]} to {rounds[-1]}"),
            (True, ", ".join(rounds)),
        )
    )


def bad_findings(rule: type[Rule]) -> tuple[Finding, ...]:
    """Return the first finding about each bad example, made by running the rule; without repetitions."""
    profile = STRICT if STRICT in rule.profiles else OFFICIAL
    look = judge_log_example if issubclass(rule, LogRule) else judge_package_example
    by_sentence: dict[str, Finding] = {}
    for example in rule.bad:
        own = (finding for finding in look(example, profile) if finding.rule == rule.id)
        if first := next((finding for finding in own if finding.severity != SKIPPED), None):
            by_sentence.setdefault(sentence(first), first)
    return tuple(by_sentence.values())


def judge_log_example(example: Callable[[Any], Any], profile: str) -> list[Finding]:
    """Return all findings about an example of a rule about logs."""
    samples: list[SampleLog] = []

    def sample(*wanted: Any, **keywords: Any) -> SampleLog:
        samples.append(SampleLog(*wanted, **keywords))
        return samples[-1]

    result = example(sample)
    log = parse_log(result if isinstance(result, bytes) else result.bytes(), LOG_NAME)
    round_ = samples[-1].round if samples else ROUNDS[-1]
    return judge_log(log, LogTask(LOG_NAME, Case(round_, profile))).findings


def judge_package_example(example: Callable[[Any], Any], profile: str) -> list[Finding]:
    """Return all findings about an example of a rule about results and packages."""
    package = example(SamplePackage)
    with tempfile.TemporaryDirectory() as parent:
        folder = package.write(os.path.join(parent, "Example"))
        options = Options(profile=profile, round=package.round, waivers=package.waivers, jobs=1)
        report = check_paths([folder], options)
    above = f"{write_slashes(parent)}/"
    return [
        finding._replace(path=finding.path.removeprefix(above), message=finding.message.replace(above, ""))
        for finding in report.findings
    ]
