"""Examine one log: read it, determine what it is judged by, apply the log rules and return a `Run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from common.reference import COMMON_SETTINGS, FULL, OPEN_SETTINGS, Setting
from common.tree import NAMED, Tree
from compliance.benchmarks import benchmarks_of, reference_of
from compliance.engine.rule_runner import apply_each
from compliance.logs.log import Log, read_log
from compliance.logs.official import read_officially
from compliance.logs.power import read_power
from compliance.logs.run import Run, benchmark_of, run_of, variant_of
from compliance.model.finding import ERROR, SKIPPED, Finding, listed
from compliance.model.layout import PowerPlace
from compliance.rules.catalog import import_log_rules
from compliance.rules.rule import STRICT, Case, LogRule, rules_of

HEADER = ("init_start", "submission_benchmark")
"""Records at the start of a log: after a run_start they start another run."""
STARTED = ("run_start", "run_stop", "epoch_start", "block_start", "eval_start")
"""A log without any of these is that of a run that ended while it was initialised."""
FINDINGS_KEPT = 100
"""Findings of a rule that are kept per severity and key; further ones are counted."""


@dataclass(frozen=True, slots=True)
class LogTask:
    """A log to examine, and what its surroundings say about it.

    division, benchmark: forced by the user. division_hint, benchmark_hint: of the folder or system
    description, used where the log does not say it. power: the power files of the run, if any.
    suite_code: the code that the package names as its implementation is this suite.
    details: also keep what reports and packages need. tree: the folder that the log belongs to; a log that the user
    names belongs to none. judged: apply the rules; without, the run is only compared. round_why: how its round was
    chosen.
    """

    path: str
    round: str
    profile: str = STRICT
    division: str | None = None
    benchmark: str | None = None
    division_hint: str | None = None
    benchmark_hint: str | None = None
    allow_mini: bool = False
    power: PowerPlace | None = None
    suite_code: bool = False
    details: bool = False
    tree: Tree = NAMED
    judged: bool = True
    round_why: str = ""


def examine(task: LogTask) -> Run:
    """Return the record of the run, with all findings about its log."""
    log = read_log(task.path, task.tree)
    run = digest(log, task) if task.judged else run_of(log, None)
    run.round = task.round
    if task.power is not None:
        run.power = read_power(task.power.nodes, task.power.switches, run.start_ms, run.stop_ms, task.tree)
        run.inflated_bytes += run.power.inflated_bytes
    return run


def digest(log: Log, task: LogTask) -> Run:
    """Return the record of the run whose log was read, with all findings about it."""
    case = case_of(log, task)
    findings: list[Finding] = []
    prefixes, reason = _readable_part(log) if case.strict else (("",), "")
    import_log_rules()
    rules = rules_of(LogRule, case.round, case.division, case.profile)
    if reason:
        rules = tuple(rule for rule in rules if rule.id.startswith(prefixes))
    started = not case.strict or any(log[key] for key in STARTED)
    for found in apply_each(rules, task.path, log, case):
        found = found if started else _missing_as_one(found, log)
        findings += found if len(found) <= FINDINGS_KEPT else _limited(found)
    if reason:
        findings.append(Finding("FRM03", SKIPPED, task.path, 0, reason))
    return _run(log, case, findings, task.details)


def _missing_as_one(found: list[Finding], log: Log) -> list[Finding]:
    """Return the findings of a rule on a run that ended before it started, with the errors on missing records as one.

    A key that may be misspelled keeps its own.
    """
    missing = [one for one in found if _is_missing(one)]
    if not missing:
        return found
    keys = listed([one.key for one in missing])
    message = f"the log ends in line {log.line_count}, before run_start, without {keys}"
    together = missing[0]._replace(message=message, expected="a record of each key")
    return [together, *(one for one in found if not _is_missing(one))]


def _is_missing(finding: Finding) -> bool:
    return not finding.line and bool(finding.key) and finding.severity == ERROR and not finding.message.endswith("?)")


def _limited(found: list[Finding]) -> Iterator[Finding]:
    """Yield the findings of a rule: per severity and key the first hundred, and a count of the others."""
    counts: Counter[tuple[str, str]] = Counter()
    others: dict[tuple[str, str], Finding] = {}
    for finding in found:
        kind = (finding.severity, finding.key)
        counts[kind] += 1
        if counts[kind] <= FINDINGS_KEPT:
            yield finding
        elif counts[kind] == FINDINGS_KEPT + 1:
            others[kind] = finding
    for kind, finding in others.items():
        yield finding._replace(message=f"and {counts[kind] - FINDINGS_KEPT} more such findings, starting at this line")


def _readable_part(log: Log) -> tuple[tuple[str, ...], str]:
    """Return the prefixes of the rules that apply to this log, and why the others do not.

    A bad file is one finding, not one for every missing or repeated record.
    """
    if not log.record_count:
        return ("FRM",), "all other rules: the log has no records"
    starts = log["run_start"]
    if len(starts) > 1 and any(r.order > starts[0].order for key in HEADER for r in log[key]):
        return ("FRM", "ORD04", "ORD05", "ORD08"), "all other rules: the file contains several runs"
    return ("",), ""


def case_of(log: Log, task: LogTask) -> Case:
    """Return what the log is judged against: what it says itself, then what the user and the folder say."""
    division, benchmark = _division(log, task), _benchmark(log, task)
    variant = variant_of(log) if task.profile == STRICT else FULL
    return Case(
        task.round,
        division,
        benchmark,
        reference_of(benchmark, variant),
        _settings(benchmark, variant, task.round, division),
        task.profile,
        task.allow_mini,
        task.suite_code,
        task.round_why,
    )


def _division(log: Log, task: LogTask) -> str | None:
    if task.division:
        return task.division
    said = log.value("submission_division")
    if task.profile != STRICT:
        return said if said in ("closed", "open") else None
    word = said.strip().lower() if isinstance(said, str) else ""
    return word if word in ("closed", "open") else task.division_hint or "closed"


def _benchmark(log: Log, task: LogTask) -> str | None:
    known = benchmarks_of(task.round)
    if task.benchmark:
        return task.benchmark if task.benchmark in known else None
    said = log.value("submission_benchmark")
    if task.profile != STRICT:
        return said if isinstance(said, str) and said in known else None
    named = benchmark_of(log)
    return named if named in known else task.benchmark_hint if task.benchmark_hint in known else None


@lru_cache(maxsize=64)
def _settings(benchmark: str | None, variant: str, round_: str, division: str | None) -> tuple[Setting, ...]:
    reference = reference_of(benchmark, variant)
    if reference is None or division is None:
        common = COMMON_SETTINGS if division == "closed" else ()
        return (*(setting for setting in common if round_ in setting.rounds), *OPEN_SETTINGS)
    return reference.settings_of(round_, division)


def _run(log: Log, case: Case, findings: list[Finding], details: bool) -> Run:
    run = run_of(log, case.reference, case.settings, details)
    run.round, run.benchmark, run.division, run.findings = case.round, case.benchmark, case.division, findings
    if not case.strict:
        run.official = read_officially(log, case.round)
    run.parsed_clean = not any(finding.rule == "FRM04" for finding in findings)
    return run
