"""Judge logs, one by one, in this process or, where that is faster, on all cores.

A log is read, what it is judged by is determined from it and the options, and the rules about logs are applied.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from common.command import counted, list_some
from common.console import ACTIVITY
from common.reference import FULL
from common.rounds import HPC, TRAINING
from common.tree import NAMED, Tree
from common.values import group_pairs
from compliance.benchmarks import JUDGED, benchmarks_of, has_round, read_name, refuse_plugins_in
from compliance.logs.file_kind import MAX_PACKAGE_BYTES, PlainFiles
from compliance.logs.log import BENCHMARK, Log, read_log
from compliance.logs.official import OfficialReading, read_officially
from compliance.logs.power import read_power
from compliance.logs.run import LONGEST_NAME, Run, benchmark_of, extract_run, variant_of
from compliance.logs.timeline import order_by_time
from compliance.model.judging import (
    BENCHMARK_RULE,
    COMMITTEE_RULE,
    ERROR,
    OFFICIAL,
    SKIPPED,
    STRICT,
    Case,
    Finding,
    JudgedRun,
    add_judgement,
    few,
)
from compliance.model.layout import PowerPlace
from compliance.model.report import Report
from compliance.model.settings_file import Settings
from compliance.model.waivers import Waiver
from compliance.rules.catalog import import_log_rules, load_rules, own_rules
from compliance.rules.damage import Damage, WholeLog, find_damage, find_loss, is_whole
from compliance.rules.rule import FAMILIES, LogRule, Rule, prefix, rules_of

AUTO: Final = "auto"
"""Logs are of the suite that has their benchmark."""


class Options(Struct, frozen=True):
    """How to check.

    round, benchmark, division: forced by the user; otherwise as folders and logs say. select: only rules with
    these ids or prefixes. ignore: ids or prefixes to leave out, each with its reason. waivers: why a convergence test
    may fail, by result (`round/organisation/system/scaling/benchmark`). jobs: processes; 0 for all cores.
    progress: a terminal shows what is being done, if it takes long. rules: modules and Python files with rules of your
    own; they stay registered for later checks of this process. details: also keep what reports and packages need of
    each log.
    against: trees of other submissions, whose runs are only compared with those that are checked.
    fail_on: what gives the exit status 1, a key of `FAIL_ON`. suite_only: rules of your own do not count.
    usage: the suite by whose rules to judge, or AUTO. committee_rules: the folder of the committee's rule files; None
    for those of an installed mlperf-logging.
    settings: the file that some of these come from; of a found one, what it ignores is not in `ignore`.
    """

    profile: str = STRICT
    round: str | None = None
    benchmark: str | None = None
    division: str | None = None
    select: tuple[str, ...] = ()
    ignore: Mapping[str, str] = {}
    allow_mini: bool = False
    waivers: Mapping[str, Waiver | str] = {}
    jobs: int = 0
    progress: bool = False
    rules: tuple[str, ...] = ()
    details: bool = False
    against: tuple[str, ...] = ()
    fail_on: str = ERROR
    suite_only: bool = False
    settings: Settings = Settings()
    usage: str = AUTO
    committee_rules: str | None = None

    def make_official(self) -> Options:
        """Return the options for the official tool's verdict on the same logs."""
        return replace(
            self,
            profile=OFFICIAL,
            against=(),
            details=False,
            suite_only=True,
            select=(),
            ignore={},
            settings=Settings(),
        )

    def start_report(self, **contents: Any) -> Report:
        """Return a report that says by which options it was made. contents: its other fields."""
        shared = {name: getattr(self, name) for name in ("profile", "select", "ignore", "fail_on", "settings")}
        return Report(**shared, **contents)

    def filter(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[tuple[Finding, str]]]:
        """Return the findings that count, and the ignored ones with the reason."""
        ignore = (*self.ignore.items(), *self.settings.set_aside.items())
        kept, ignored = [], []
        for finding in findings:
            foreign = self.suite_only and prefix(finding.rule) not in FAMILIES
            if foreign or (self.select and not finding.rule.startswith(self.select)):
                continue
            reason = next((why for id_, why in ignore if finding.rule.startswith(id_)), None)
            if reason is not None:
                ignored.append((finding, reason))
            else:
                kept.append(finding)
        return kept, ignored


FINDINGS_KEPT = 100
"""Findings of a rule that are kept per severity and key; further ones are counted."""


class LogTask(Struct, frozen=True):
    """A log to judge, and what is known about it before it is read.

    case: what the user asks for and what folder and system description say; see `Case`. options: a division or
    benchmark in them holds, whatever the log says. power: the power files of the run, if any. tree: the folder that the
    log belongs to; a log that the user names belongs to none. judged: apply the rules; without, the run is only
    compared.
    """

    path: str
    case: Case
    options: Options = Options()
    power: PowerPlace | None = None
    tree: Tree = NAMED
    judged: bool = True


def check_log(task: LogTask) -> JudgedRun:
    """Read a log and its power files; return the run, judged, also by the official tool where that is asked for."""
    case = task.case
    with_text = case.strict or case.usage != TRAINING  # the committee's rule files are about records
    log = read_log(task.path, task.tree, task.options.benchmark, case.committee_keys, with_text)
    if not task.judged:
        return _judge_run(extract_run(log, None, None), task, task.case)
    return judge_by_both(log, task)


def judge_by_both(log: Log, task: LogTask) -> JudgedRun:
    """Return the run whose log was read, judged; in the profile strict also by the official tool."""
    run = judge_log(log, task)
    return replace(run, by_official=_judge_officially(log, task, run)) if task.options.profile == STRICT else run


def _judge_officially(log: Log, task: LogTask, run: JudgedRun) -> JudgedRun:
    """Return the run by the profile official; what it says needs to be read again only where that differs."""
    task = replace(task, case=replace(task.case, profile=OFFICIAL), options=task.options.make_official(), power=None)
    return replace(judge_log(log, task, None if run.only_rule else run), power=run.power)


def judge_log(log: Log, task: LogTask, earlier: JudgedRun | None = None) -> JudgedRun:
    """Return the run whose log was read, with the findings of all rules about logs that apply.

    earlier: the run as judged by the profile strict, unless only one rule applied.
    """
    case = complete_case(log, task)
    log = order_by_time(log) if case.strict else log
    findings: list[Finding] = []
    only_rule = _find_only_rule(log, case, task.options) if case.strict else ""
    whole = case.strict and _counts(WholeLog.id, log, task.options)
    damage = log.derive(find_damage) if whole else None
    judges_all = bool(only_rule) or not case.strict
    prefixes, reason = ((only_rule,), "") if judges_all else _readable_part(log, case, damage)
    import_log_rules(case.usage)
    applied = rules_of(LogRule, case.round, case.division, case.profile)
    rules = applied if prefixes == ("",) else tuple(rule for rule in applied if rule.id.startswith(prefixes))
    # A log without any of these is that of a run that ended while it was initialised.
    started = judges_all or any(
        log[key] for key in ("run_start", "run_stop", "epoch_start", "block_start", "eval_start")
    )
    for of_rule in filter(None, apply_each(rules, task.path, log, case)):
        of_rule = of_rule if started else _missing_as_one(of_rule, log)
        findings += of_rule if len(of_rule) <= FINDINGS_KEPT else _limit_findings(of_rule)
    if log.problems and any(finding.rule == "FRM04" and not finding.cause for finding in findings):
        findings = [
            finding._replace(cause="FRM04") if finding.rule == "QUA01" or _tells_of_loss(finding) else finding
            for finding in findings
        ]
    if whole and not reason and any(finding.severity == ERROR for finding in filter(_tells_of_loss, findings)):
        damage = find_loss(log)
        findings = [WholeLog().finding(log.path, *damage[:3], fix=damage.fix)] if damage else findings
        reason = _readable_part(log, case, damage)[1]
    if reason:
        findings.append(Finding(WholeLog.id if damage else "FRM03", SKIPPED, task.path, 0, reason))
    if only_rule:
        empty = extract_run(Log(log.path), None, None, (), task.options.details)
        return replace(_judge_run(empty, task, case, findings), only_rule=only_rule)
    same = (
        earlier
        and case.reference is earlier.case.reference
        and case.settings is earlier.case.settings
        and case.benchmark == earlier.benchmark
        and order_by_time(log) is log
    )
    run = (
        earlier
        if earlier and same
        else extract_run(log, case.benchmark, case.reference, case.settings, task.options.details)
    )
    judged = _judge_run(run, task, case, findings, None if case.strict else read_officially(log, case.round))
    return replace(judged, repaired_minutes=damage.minutes) if damage else judged


def _find_only_rule(log: Log, case: Case, options: Options) -> str:
    """Return the only rule that applies to a file that is no log of MLPerf HPC, "" if it is one or the rule is out."""
    if log.no_log:
        return "FRM03" if _counts("FRM03", log, options) else ""
    is_other = log.other_suite and case.usage == HPC
    return BENCHMARK_RULE if is_other and _counts(BENCHMARK_RULE, log, options) else ""


def _counts(rule: str, log: Log, options: Options) -> bool:
    """Tell whether the options leave in what a rule finds."""
    return bool(options.filter([Finding(rule, ERROR, log.path, 0, "")])[0])


def _judge_run(
    run: Run, task: LogTask, case: Case, findings: Sequence[Finding] = (), official: OfficialReading | None = None
) -> JudgedRun:
    files = task.power
    kept, ignored = task.options.filter(findings)
    return add_judgement(
        run,
        case,
        power=read_power(files.nodes, files.switches, run.start_ms, run.stop_ms, task.tree) if files else None,
        findings=kept,
        ignored=ignored,
        parsed_clean=not any(finding.rule == "FRM04" for finding in findings),
        official=official,
    )


def _missing_as_one(findings: list[Finding], log: Log) -> list[Finding]:
    """Return the findings of a rule on a run that ended before it started, with the errors on missing records as one.

    A key that may be misspelled keeps its own.
    """
    missing = [finding for finding in findings if _is_missing(finding)]
    if not missing:
        return findings
    keys = list_some([finding.key for finding in missing])
    message = f"the log ends in line {log.line_count}, before run_start, without {keys}"
    together = missing[0]._replace(message=message, expected="a record of each key", cause="ORD05" if log.end else "")
    return [together, *(finding for finding in findings if not _is_missing(finding))]


def _is_missing(finding: Finding) -> bool:
    return not finding.line and bool(finding.key) and finding.severity == ERROR


def _tells_of_loss(finding: Finding) -> bool:
    """Tell whether a record that was lost may be why there is this finding."""
    rules = ("ORD01", "ORD03", "ORD04", "ORD06", "ORD07", "ORD11", "ORD12", "QUA06")
    return finding.rule.startswith(rules) or _is_missing(finding)


def _limit_findings(findings: list[Finding]) -> Iterator[Finding]:
    """Yield the findings of a rule: per severity and key the first hundred, and a count of the others."""
    for of_kind in group_pairs(((finding.severity, finding.key), finding) for finding in findings).values():
        yield from few(of_kind, FINDINGS_KEPT)


def _readable_part(log: Log, case: Case, damage: Damage | None) -> tuple[tuple[str, ...], str]:
    """Return the prefixes of the rules that apply to this log, and why the others do not.

    A bad file is one finding, not one for every missing or repeated record.
    """
    if not log.record_count:
        return ("FRM",), "all other rules: the log has no records"
    if case.usage == TRAINING and case.reference is None:
        return (COMMITTEE_RULE, "FRM"), f"all other rules: {COMMITTEE_RULE} has no facts of the benchmark"
    if not is_whole(log):
        return ("FRM01", "FRM09"), "all other rules: the file was not read to its end"
    return ((WholeLog.id,), "all other rules: the file is damaged") if damage else (("",), "")


def complete_case(log: Log, task: LogTask) -> Case:
    """Return what the log is judged by: what it says itself, then what the user and the folder say."""
    variant = variant_of(log) if task.case.strict else FULL
    return replace(task.case, division=_find_division(log, task), benchmark=_find_benchmark(log, task), variant=variant)


def _find_division(log: Log, task: LogTask) -> str | None:
    if task.options.division:
        return task.options.division
    stated = log.value("submission_division")
    if not task.case.strict:
        return stated if stated in ("closed", "open") else None
    word = stated.strip().lower() if isinstance(stated, str) else ""
    return word if word in ("closed", "open") else task.case.division or "closed"


def _find_benchmark(log: Log, task: LogTask) -> str | None:
    round_, forced = task.case.round, task.options.benchmark
    if task.case.usage == TRAINING:
        return forced or read_name(log.value(BENCHMARK))[:LONGEST_NAME] or task.case.benchmark
    if not task.case.strict:
        stated = forced or log.value("submission_benchmark")
        return stated if isinstance(stated, str) and stated in benchmarks_of(round_) else None
    names = (forced,) if forced else (benchmark_of(log), task.case.benchmark)
    return next((name for name in names if has_round(name, round_)), None)


def apply_each(rules: Iterable[Rule], path: str, *subject: Any) -> list[list[Finding]]:
    """Return what each rule finds; path: where to report that a rule itself failed.

    What a rule prints goes to standard error: a report may be on standard output.
    """
    with redirect_stdout(sys.stderr):
        return [_apply_rule(rule, path, subject) for rule in rules]


def _apply_rule(rule: Rule, path: str, subject: tuple[Any, ...]) -> list[Finding]:
    try:
        findings = list(rule.check(*subject))
        unexpected = [finding for finding in findings if not isinstance(finding, Finding)] if findings else []
        if not unexpected:
            return findings
        reason = f"check yields {unexpected[0]!r}; expected self.finding(…) or self.skipped(…)"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the rule raises, SystemExit too
        reason = f"{_failing_line(rule, error)}{error!r}"
    advice = "; please report it" if rule.is_suite_rule() else ""
    return [rule.finding(path, 0, f"the rule itself failed: {reason}{advice}")]


def _failing_line(rule: Rule, error: BaseException) -> str:
    """Return `line 7: `, the last line of the rule's file that the error passed through; "" if it is unknown."""
    from traceback import walk_tb  # only a rule that fails pays for it

    file = getattr(getattr(type(rule).check, "__code__", None), "co_filename", "")
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f"line {lines[-1]}: " if lines else ""


PARALLEL_BYTES = 24 << 20
"""Below this, starting processes costs more than it saves."""


def examine_all(tasks: list[LogTask], options: Options, doing: str = "checking") -> Iterator[JudgedRun]:
    """Yield the runs, in the order of the tasks; use all cores if there is much to read. doing: for a terminal."""
    ACTIVITY.text = f"{doing} {counted(len(tasks), 'log')}"
    measured = (path for task in tasks if task.power for path in (*task.power.nodes, *task.power.switches))
    total = sum(os.path.getsize(path) for path in (*(task.path for task in tasks), *measured) if os.path.isfile(path))
    runs: Iterator[JudgedRun] = map(Examine(), tasks)
    if len(tasks) > 1 and options.jobs != 1 and total >= PARALLEL_BYTES and _is_single_threaded():
        runs = _within_budget(_check_parallel(tasks, options.jobs), tasks)
    for number, run in enumerate(runs, 1):
        ACTIVITY.text = f"{doing} {counted(len(tasks), 'log')}: {number} done"
        yield run


def _check_parallel(tasks: list[LogTask], jobs: int) -> Iterator[JudgedRun]:
    from common.processes import ProcessKilledError, in_processes, usable_cores  # only big trees pay for it

    examine = Examine()
    jobs = min(jobs or usable_cores(), len(tasks))
    size = max(1, min(32, len(tasks) // (4 * jobs)))
    parts = [(start, tasks[start : start + size]) for start in range(0, len(tasks), size)]
    waiting: dict[int, list[JudgedRun]] = {}
    done = 0
    try:
        for (start, _), part in in_processes(examine.each, parts, jobs, fork=sys.platform == "linux"):
            waiting[start] = part
            while runs := waiting.pop(done, None):
                yield from runs
                done += len(runs)
    except ProcessKilledError:  # for lack of memory: one process needs the least
        yield from map(examine, tasks[done:])


def _is_single_threaded() -> bool:
    """Tell whether this process has no other thread but tqdm's, which sleeps: beside one, it may not fork."""
    if sys.platform != "linux":
        return True
    monitor = getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "monitor", None)
    return len(os.listdir("/proc/self/task")) == 1 + (monitor is not None)


def _within_budget(runs: Iterator[JudgedRun], tasks: list[LogTask]) -> Iterator[JudgedRun]:
    """Yield the runs as one process would have found them: each one of the others knows only what itself inflated."""
    examine = Examine()
    for task, run in zip(tasks, runs, strict=True):
        yield examine(task) if run.total_inflated_bytes and examine.exhausted(task) else run
        examine.inflated[task.tree] += run.total_inflated_bytes


class Examine:
    """Judge one log; can be sent to another process.

    inflated: bytes of the compressed logs of each package so far.
    """

    def __init__(self) -> None:
        self.rules = [source for source in own_rules() if source != "__main__"]
        self.judged = [*JUDGED]
        self.inflated: Counter[Tree] = Counter()

    def each(self, part: tuple[int, list[LogTask]]) -> list[JudgedRun]:
        """Examine several logs, to be sent to another process at once; their place is of no matter."""
        return list(map(self, part[1]))

    def __call__(self, task: LogTask) -> JudgedRun:
        if self.judged != JUDGED:  # a process that was not forked lacks it, and the rules
            refuse_plugins_in(self.judged)
        load_rules(self.rules)
        run = check_log(replace(task, tree=PlainFiles(task.tree.root)) if self.exhausted(task) else task)
        self.inflated[task.tree] += run.total_inflated_bytes
        return run

    def exhausted(self, task: LogTask) -> bool:
        """Tell whether the package of a log may not inflate more."""
        return bool(task.tree.root) and self.inflated[task.tree] > MAX_PACKAGE_BYTES
