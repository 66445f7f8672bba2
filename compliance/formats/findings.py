"""The findings of a report in reading order, grouped and counted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec import Struct

from common.command import clean, counted, list_some
from common.rounds import TRAINING, label_round
from common.values import group_pairs
from compliance.formats.style import Style
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import (
    convergence_text,
    energy,
    minutes,
    plain,
    rate,
    runs_text,
    score_text,
    set_name,
    staging_cell,
    write_location,
)
from compliance.model.judging import (
    COMMITTEE_RULE,
    ERROR,
    INCOMPLETE,
    NOT_A_RESULT,
    NOTE,
    SEVERITIES,
    SKIPPED,
    STRICT,
    WARNING,
    Finding,
    JudgedRun,
    choose_texts,
    first_text,
)
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.score import Throughput, TimeToTrain
from compliance.rules.rule import FAMILIES, RULES, prefix


class Shown(NamedTuple):
    """A finding and the severity that it has for the verdict: errors in a tolerated run are warnings."""

    finding: Finding
    severity: str
    tolerated: bool = False

    @property
    def text(self) -> str:
        """The message, what was expected, and whether it is tolerated; safe to print."""
        expected = f" (expected: {clean(self.finding.expected)})" if self.finding.expected else ""
        return (
            clean(self.finding.message)
            + expected
            + (" [tolerated: one run of a result may fail]" if self.tolerated else "")
        )

    @property
    def fix(self) -> str:
        """How to fix it: as the finding says, else as the rule does; a line that begins with `$ ` is a command."""
        rule = RULES.get(self.finding.rule)
        fix = self.finding.fix or (rule.fix if rule else "")
        return "\n".join(clean(line) for line in fix.split("\n"))


def lowered(findings: Iterable[Finding], tolerated: bool) -> list[Shown]:
    """Return the findings of one log, set or package as shown; errors of a tolerated log become warnings."""
    return [
        Shown(finding, WARNING, True) if tolerated and finding.severity == ERROR else Shown(finding, finding.severity)
        for finding in findings
    ]


def all_shown(report: Report) -> list[Shown]:
    """Return all findings of a report as shown, in its order."""
    tolerated = report.tolerated
    return [entry for path, findings in report.groups() for entry in lowered(findings, path in tolerated)]


class Group(Struct):
    """All findings of one rule with one severity and one fix."""

    rule: str
    severity: str
    fix: str
    entries: list[Shown] = []

    @property
    def title(self) -> str:
        """The rule's title, "" for an unknown rule."""
        return RULES[self.rule].title() if self.rule in RULES else ""

    def texts(self) -> dict[str, list[Finding]]:
        """Return for each distinct text the findings that say it."""
        return group_pairs((entry.text, entry.finding) for entry in self.entries)

    def extent(self) -> str:
        """Return `12 in 3 files`."""
        return extent([entry.finding for entry in self.entries])


def extent(findings: list[Finding]) -> str:
    """Return `12 in 3 files`, `in 3 files` for one in each; without files, only the number."""
    paths = {finding.path for finding in findings if finding.path}
    if not paths:
        return str(len(findings))
    number = f"{len(findings)} " if len(findings) > len(paths) else ""
    return f"{number}in {counted(len(paths), 'file')}"


def places(findings: list[Finding], style: Style) -> list[str]:
    """Return the first place (`path:line`) in each file."""
    first = {finding.path: finding.line for finding in reversed(findings)}
    order = dict.fromkeys(finding.path for finding in findings)
    return [write_location(path, first[path], style) for path in order]


def grouped(findings: Iterable[Shown], *severities: str) -> list[Group]:
    """Return the findings of these severities (of all, if none is named) by severity, family and rule."""
    families = {name: at for at, name in enumerate(FAMILIES)}

    def rank(entry: Shown) -> tuple[int, bool, int, str, str]:
        rule, family = entry.finding.rule, families.get(prefix(entry.finding.rule), len(families))
        # With FILE for the name of the file that its command reads: one fix for the files of a folder.
        fix_of_any = entry.fix.replace(f"< {entry.finding.path} ", "< FILE ")
        return SEVERITIES.index(entry.severity), not entry.tolerated, family, rule, fix_of_any

    wanted = (entry for entry in findings if not severities or entry.severity in severities)
    groups = group_pairs((rank(entry), entry) for entry in wanted)
    return [
        Group(rule, SEVERITIES[at], fix if len({entry.fix for entry in entries}) > 1 else entries[0].fix, entries)
        for (at, _, _, rule, fix), entries in sorted(groups.items())
    ]


def result_sets(report: Report) -> list[ResultSet]:
    """Return the sets whose runs belong together; leave out loose folders of unlike logs."""
    return [results for results in report.sets if results.reference or not results.loose]


def result_rows(report: Report, style: Style) -> list[tuple[str, str, str, str, str, str]]:
    """Return verdict, name, state, runs, score and convergence of each result."""
    rounds = many_rounds(report)
    return [
        (
            report.verdict_of(results),
            set_name(results, style, rounds),
            ", ".join(results.states),
            runs_text(results),
            score_text(results),
            convergence_text(results),
        )
        for results in result_sets(report)
    ]


def many_rounds(report: Report) -> bool:
    """Tell whether there are results of several rounds, whose names may then coincide."""
    return len({results.round for results in report.sets}) > 1


def alone(report: Report) -> list[JudgedRun]:
    """Return the logs that belong to no result."""
    inside = {run.path for results in result_sets(report) for run in results.all_runs}
    return [run for run in report.runs if run.path not in inside]


def inputs_by_round(report: Report) -> dict[tuple[str, str, str], list[str]]:
    """Return the inputs by what they were judged by: {(round, why, kind): paths}."""
    return group_pairs(((round_, why, kind), path) for path, round_, why, kind in report.rounds)


def describe_unjudged(report: Report) -> list[str]:
    """Return sentences on the logs of MLPerf HPC that were judged as logs, not as a result."""
    groups = [(f" in {clean(results.name)}", len(results.runs)) for results in report.sets if results.not_judged]
    single = sum(not run.only_rule for run in alone(report))
    groups += [("", single)] if single else []
    return [
        f"{counted(number, 'log')}{where} {NOT_A_RESULT}: nothing about runs, seeds, settings, copies and convergence"
        " (RUN, RCP) or a package (PKG)"
        for where, number in groups
    ]


def describe_unread(report: Report) -> str:
    """Return which files were not looked at; "" if there are none."""
    names = list_some([clean(os.path.basename(path)) for path in report.unread])
    return f"not looked at: {counted(len(report.unread), 'file')} ({names})" if report.unread else ""


def describe_limits(report: Report) -> list[str]:
    """Return sentences on the settings, and on the rules that did not count, which make the verdict PARTIAL."""
    settings = report.settings
    kinds = (
        (True, "named" if settings.named else "found"),
        (settings.not_applied, f"not applied: {', '.join(settings.not_applied)}"),
        (settings.set_aside, "what it ignores counts in the exit status"),
    )
    sentences = (
        (settings.path, f"Settings: {clean(settings.path)} ({'; '.join(choose_texts(kinds))})"),
        (report.select, f"Only the rules {', '.join(report.select)} count (--select)"),
    )
    return choose_texts(sentences) + [
        f"Rules left out: {clean(id_)} ({clean(why)})"
        for id_, why in (*report.ignore.items(), *settings.set_aside.items())
    ]


def describe_official(report: Report) -> str:
    """Return what the official tool says; "" in its own profile, where it is not asked and while runs are missing.

    Of benchmarks that are not MLPerf's, only that they are not.
    """
    if plugins := list(dict.fromkeys(clean(run.plugin) for run in report.runs if run.plugin)):
        return f"{list_some(plugins)} (the committee's checker was not asked)"
    if report.official is not None:
        return "" if report.verdict == INCOMPLETE else f"the committee's checker: {report.official.verdict}"
    kinds = (
        (report.of_other_suites, "the committee's checker of MLPerf HPC was not asked"),
        (report.profile == STRICT and any(run.mini for run in report.runs), "not an MLPerf result"),
    )
    return first_text(kinds)


def summary(report: Report, findings: list[Shown]) -> str:
    """Return verdict and counts: `FAIL: 3 errors, 2 warnings, 1 note in 12 logs`.

    If runs are missing, their number comes first: `INCOMPLETE: 1 of 10 runs of cosmoflow; 0 warnings, …`.
    """
    described = sum(len(package.descriptions) for package in report.packages)
    only_description = {kind for *_, kind in report.rounds} == {"system description"}
    extent_ = (described, "system description") if only_description else (len(report.runs), "log")
    lacks = f"{shortage(report)}; " if report.verdict == INCOMPLETE else ""
    # Then all errors say that runs are missing.
    severities = (WARNING, NOTE) if lacks else (ERROR, WARNING, NOTE)
    words = f"{report.verdict}: {lacks}{', '.join(_severity_counts(findings, severities))} in {counted(*extent_)}"
    number = Counter(finding.severity for finding in report.set_aside)
    aside = ", ".join(counted(number[severity], severity) for severity in SEVERITIES[:3] if number[severity])
    aside = f"{aside} set aside by {clean(report.settings.path)}, which nobody named" if aside else ""
    unjudged = NOT_A_RESULT if describe_unjudged(report) and NOT_A_RESULT not in lacks else ""
    return "; ".join(filter(None, (words, aside, describe_unread(report), unjudged, describe_official(report))))


def shortage(report: Report) -> str:
    """Return how many runs there are of how many in the results that lack some: `1 of 10 runs of cosmoflow`."""
    short = [results for results in report.sets if results.missing_runs]
    parts = [
        f"{len(results.runs)} of {len(results.runs) + results.missing_runs} runs of {_name_benchmark(results)}"
        for results in short
    ]
    if len(short) > 5:  # so many are counted, not listed
        parts = [f"{len(short)} of {len(report.sets)} results lack runs"]
    unjudged = {finding.path for finding in report.findings if finding.rule == COMMITTEE_RULE and finding.incomplete}
    apart = [run for results in report.sets if results.not_judged or results.lacks_facts for run in results.runs]
    if logs := sum(run.path not in unjudged for run in apart):
        parts.append(f"{counted(logs, 'log')} {NOT_A_RESULT}")
    if unjudged:
        parts.append(f"{counted(len(unjudged), 'log')} not judged")
    return ", ".join(parts) or "runs are missing"


def _name_benchmark(results: ResultSet) -> str:
    label = f" ({results.label})" if results.label and results.label != results.benchmark else ""
    return clean((results.benchmark or results.folder_benchmark) + label)


def _severity_counts(findings: list[Shown], severities: Iterable[str]) -> Iterator[str]:
    numbers = Counter("tolerated error" if entry.tolerated else entry.severity for entry in findings)
    yield from (counted(numbers[severity], severity) for severity in severities)
    if tolerated := numbers["tolerated error"]:
        yield counted(tolerated, "tolerated error")
    if skipped := numbers[SKIPPED]:
        yield f"{skipped} not checked"


def _benchmark_cell(results: ResultSet) -> str:
    remarks = choose_texts(((results.mini, " (mini)"), (results.plugin, " (not MLPerf)")))
    return clean((results.benchmark or results.folder_benchmark) + "".join(remarks))


def _convergence_cell(results: Any) -> str:
    verdict = results.judged_convergence
    unit = f" {results.convergence_unit}" if results.reference else ""
    point = f" (RCP {plain(verdict.point.mean)})" if verdict and verdict.point else ""
    return "" if results.score.convergence is None else f"{plain(results.score.convergence)}{unit}{point}"


def _normalized_cell(results: Any) -> str:
    score = results.score
    if score.normalization <= 1:
        return ""
    return minutes(score.normalized) if isinstance(score, TimeToTrain) else rate(score.normalized_models_per_minute)


TIMES: Final[tuple[Column[Any], ...]] = (
    Column("TTT", "", lambda results: minutes(results.score.minutes)),
    Column("normalised", "", _normalized_cell),
    Column("scaled", "", lambda results: minutes(results.score.scaled) if results.score.scaled is not None else ""),
    Column("staging", "", lambda results: staging_cell(results.score.staging_minutes, results.score.staging_clock)),
    Column("energy", "", lambda results: energy(results.energy_joules)),
    Column("convergence", "", _convergence_cell),
)
TIMES_TITLE: Final = "Time to train (strong scaling), in minutes; staging in or out of TTT"
RATES: Final[tuple[Column[Any], ...]] = (
    Column("T", "", lambda results: plain(results.score.system_scale)),
    Column("S", "", lambda results: plain(results.score.instance_scale)),
    Column("M'", "", lambda results: plain(results.score.models)),
    Column("TTTa", "", lambda results: minutes(results.score.minutes)),
    Column("models/min", "", lambda results: rate(results.score.models_per_minute)),
    Column("normalised", "", _normalized_cell),
    Column("staging", "", lambda results: staging_cell(results.score.staging_minutes, results.score.staging_clock)),
    Column("energy", "", lambda results: energy(results.energy_joules)),
)


def score_tables(report: Report) -> list[TextTable]:
    """Return the tables that have rows; leave out empty columns."""
    rounds = many_rounds(report)
    names: tuple[Column[ResultSet], ...] = (
        Column("verdict", "", report.verdict_of, numeric=False),
        Column("round", "", lambda results: f"v{label_round(results.round)}" if rounds else "", numeric=False),
        Column("organisation", "", lambda results: clean(results.organisation), numeric=False),
        Column("system", "", lambda results: clean(results.system or results.label), numeric=False),
        Column("benchmark", "", _benchmark_cell, numeric=False),
        Column("division", "", lambda results: clean(results.division or ""), numeric=False),
    )
    is_of_training = all(results.case.usage == TRAINING for results in report.sets)
    title = "Time to train, in minutes" if is_of_training else TIMES_TITLE
    tables = (
        make_table(text, (*names, *columns), [results for results in report.sets if isinstance(results.score, kind)])
        for kind, text, columns in (
            (TimeToTrain, title, TIMES),
            (
                Throughput,
                "Throughput (weak scaling): T accelerators in all, S per instance, M' models, TTTa minutes",
                RATES,
            ),
        )
    )
    return [table.without_empty() for table in tables if table.rows]
