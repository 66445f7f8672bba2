"""The check: finds logs, examines them on all cores, judges result sets, packages and what is between them."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from common.reference import FULL, ROUNDS, is_number
from compliance.benchmarks import benchmarks_of, reference_of
from compliance.examine import LogTask, examine
from compliance.logs.run import Run
from compliance.model.finding import ERROR, Finding
from compliance.model.layout import (
    WEAK,
    PackagePlace,
    Places,
    PowerPlace,
    SetPlace,
    discover,
    result_name,
    round_of_path,
)
from compliance.model.package import Package, Submissions
from compliance.model.package_files import contents_of
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.score import throughput, time_to_train
from compliance.model.system import read_description
from compliance.own_rules import load_rules, own_rules, sources
from compliance.rule import STRICT, PackageRule, Rule, SetRule, SubmissionsRule, rules_of
from compliance.rules.convergence import judge_convergence

PARALLEL_BYTES = 24 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """How to check.

    round, benchmark, division: forced by the user; otherwise found out. select: only rules with these ids or
    prefixes. ignore: ids or prefixes to leave out, each with its reason. waivers: reason for a failed
    convergence test, by result set (`system/scaling/benchmark`). jobs: processes; 0 for all cores.
    progress: show a bar on standard error. rules: modules and Python files with rules of your own; they stay
    registered for later checks of this process. details: keep what reports and packages need of each log, too.
    """

    profile: str = STRICT
    round: str | None = None
    benchmark: str | None = None
    division: str | None = None
    select: tuple[str, ...] = ()
    ignore: dict[str, str] = field(default_factory=dict)
    allow_mini: bool = False
    waivers: dict[str, str] = field(default_factory=dict)
    jobs: int = 0
    progress: bool = False
    rules: tuple[str, ...] = ()
    details: bool = False

    def sift(self, findings: list[Finding]) -> tuple[list[Finding], list[tuple[Finding, str]]]:
        """Return the findings that count, and the ignored ones with the reason."""
        if not self.select and not self.ignore:
            return findings, []
        kept, ignored = [], []
        for finding in findings:
            reason = next((why for id_, why in self.ignore.items() if finding.rule.startswith(id_)), None)
            if reason is not None:
                ignored.append((finding, reason))
            elif not self.select or finding.rule.startswith(self.select):
                kept.append(finding)
        return kept, ignored


def check_paths(paths: Iterable[str | os.PathLike[str]], options: Options) -> Report:
    """Return the report on everything that the paths hold.

    Raises RulesError if rules of your own cannot be loaded.
    """
    load_rules(options.rules)
    places = discover([os.fspath(path) for path in paths])
    report = Report(options.profile, own_rules=own_rules())
    tasks: list[LogTask] = []
    packages = [_open_package(place, options, report) for place in places.packages]
    sets: list[tuple[ResultSet, SetPlace]] = [pair for _, pairs in packages for pair in pairs]
    sets += [(_open_folder(place, options, report), place) for place in places.folders]
    for results, place in sets:
        power = results.power or {}
        tasks += [_task(path, results, options, power.get(result_name(path))) for path in place.logs]
        tasks += [_task(path, results, options) for path in place.pruned]
    tasks += _single_tasks(places, options, report)
    runs = iter(_examine_all(tasks, options))
    for results, place in sets:
        results.runs = [next(runs) for _ in place.logs]
        results.pruned = [next(runs) for _ in place.pruned]
        report.runs += results.runs + results.pruned
    report.runs += runs
    for run in report.runs:
        report.ignored += run.ignored
    report.sets = [results for results, _ in sets if not results.loose or _is_one_result(results, report)]
    report.packages = [package for package, _ in packages]
    _judge(report, options)
    return report


# -- what to judge by --------------------------------------------------------------------------------------


def choose_round(path: str, flat: bool, options: Options, report: Report) -> str:
    """Return the round that an input is judged by; the report notes it, and why."""
    if options.round:
        round_, why = options.round, "as asked for"
    elif flat:
        round_, why = "0.7", "the layout is flat"
    else:
        named = round_of_path(path) if path != "-" else None
        round_, why = (named, "a folder is named so") if named else (ROUNDS[-1], "the newest")
    report.rounds.append((path, round_, why))
    return round_


def _open_package(
    place: PackagePlace, options: Options, report: Report
) -> tuple[Package, list[tuple[ResultSet, SetPlace]]]:
    round_ = choose_round(place.root, place.flat, options, report)
    package = Package(place.root, place.organisation, round_, options.profile, place.flat)
    package.strange, package.missing, package.contents = place.strange, place.missing, contents_of(place.root)
    for path in place.systems:
        description = read_description(path)
        package.descriptions[description.name] = description
    bypassed = {path: _parameters(path, package) for path in place.parameters}
    pairs = []
    for found in place.sets:
        results = _open_set(found, package, options)
        system_parameters = os.path.join(os.path.dirname(os.path.dirname(found.folder)), "package_checker_params")
        obeyed = (found.parameters and _parameters(found.parameters, package)) or bypassed.get(system_parameters)
        if obeyed and options.profile != STRICT:
            results.waiver = results.waiver or "package_checker_params says rcp-bypass"
        pairs.append((results, found))
    package.sets = [results for results, _ in pairs]
    return package, pairs


def _open_set(place: SetPlace, package: Package, options: Options) -> ResultSet:
    description = package.descriptions.get(place.system)
    results = ResultSet(place.folder, package.round, options.profile, place.scaling)
    results.organisation, results.system, results.folder_benchmark = package.organisation, place.system, place.benchmark
    results.description, results.other_files, results.power = description, place.others, place.power
    known = place.benchmark.lower() if options.profile == STRICT else place.benchmark
    results.benchmark = options.benchmark or (known if known in benchmarks_of(package.round) else None)
    if description is not None:
        official = "closed" if description.official_closed else "open"
        results.division = description.division if options.profile == STRICT else official
    results.division = options.division or results.division
    results.committee_factor = _scaling_factor(place.scaling_file)
    results.waiver = next((why for name, why in options.waivers.items() if results.name.endswith(name)), "")
    return results


def _open_folder(place: SetPlace, options: Options, report: Report) -> ResultSet:
    results = ResultSet(place.folder, choose_round(place.folder, False, options, report), options.profile, loose=True)
    results.folder_benchmark, results.power = place.benchmark, place.power
    results.division, results.benchmark = options.division, options.benchmark
    return results


def _single_tasks(places: Places, options: Options, report: Report) -> list[LogTask]:
    tasks = []
    for path in places.logs:
        round_ = choose_round(path, False, options, report)
        asked = (options.profile, options.division, options.benchmark)
        tasks.append(LogTask(path, round_, *asked, allow_mini=options.allow_mini, details=options.details))
    return tasks


def _task(path: str, results: ResultSet, options: Options, power: PowerPlace | None = None) -> LogTask:
    return LogTask(
        path,
        results.round,
        options.profile,
        options.division,
        options.benchmark,
        results.division,
        results.benchmark,
        options.allow_mini,
        power,
        options.details,
    )


def _scaling_factor(path: str) -> float | None:
    """Return the committee's factor, or None without a readable scaling.json."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            factor = json.loads(file.read(1 << 16)).get("scaling_factor")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return float(factor) if is_number(factor) else None


def _parameters(path: str, package: Package) -> bool:
    """Note lines that switch checks off; tell whether the official tool would obey one about convergence."""
    try:
        with open(path, encoding="latin-1") as file:
            lines = file.read(1 << 16).splitlines(keepends=True)
    except OSError:
        return False
    for number, line in enumerate(lines, 1):
        if "bypass" in line:
            package.parameters.append((path, number, line.strip()))
    return any(line == "rcp-bypass" for line in lines)


# -- running -----------------------------------------------------------------------------------------------


class _Examine:
    """Examines one task and sifts its findings; can be sent to another process."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rules = sources()

    def __call__(self, task: LogTask) -> Run:
        load_rules(self.rules)  # a process that was not forked lacks them
        run = examine(task)
        run.findings, run.ignored = self.options.sift(run.findings)
        return run


def _examine_all(tasks: list[LogTask], options: Options) -> Iterator[Run]:
    measured = (path for task in tasks if task.power for path in (*task.power.nodes, *task.power.switches))
    total = sum(map(_size, (*(task.path for task in tasks), *measured)))
    jobs = options.jobs or (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
    if len(tasks) < 2 or jobs < 2 or total < PARALLEL_BYTES:
        return _shown(map(_Examine(options), tasks), len(tasks), total, options)
    return _parallel(tasks, min(jobs, len(tasks)), total, options)


def _parallel(tasks: list[LogTask], jobs: int, total: int, options: Options) -> Iterator[Run]:
    import multiprocessing  # only big trees pay for it
    import signal

    method = "fork" if sys.platform == "linux" else None
    chunk = max(1, min(32, len(tasks) // (4 * jobs)))
    # Ctrl-C is for the main process alone: it ends the others, without a traceback from each. They inherit the
    # mask, so that not even one that is just starting hears the signal.
    unmasked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pool = multiprocessing.get_context(method).Pool(jobs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)
    with pool:
        yield from _shown(pool.imap(_Examine(options), tasks, chunk), len(tasks), total, options)


def _shown(runs: Iterator[Run], count: int, total: int, options: Options) -> Iterator[Run]:
    if not options.progress or (count < 200 and total < PARALLEL_BYTES):
        return runs
    from tqdm import tqdm  # only terminals with long work pay for it

    return iter(tqdm(runs, total=count, unit=" logs", desc="checking", leave=False, delay=1, file=sys.stderr))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


# -- judging -----------------------------------------------------------------------------------------------


def _judge(report: Report, options: Options) -> None:
    for results in report.sets:
        _complete(results)
        judge_convergence(results)
        rules = rules_of(SetRule, results.round, results.judged_as, options.profile)
        results.findings += apply_rules(rules, results, report, options)
        _score(results)
    for package in report.packages:
        rules = rules_of(PackageRule, package.round, None, options.profile)
        package.findings += apply_rules(rules, package, report, options)
    submissions = Submissions(report.packages, report.sets, options.profile)
    rules = rules_of(SubmissionsRule, ROUNDS[-1], None, options.profile)
    report.own += apply_rules(rules, submissions, report, options)


def apply_rules(rules: tuple[Rule, ...], subject: Any, report: Report, options: Options) -> list[Finding]:
    """Return what the rules find, without the ignored findings, which the report notes."""
    found: list[Finding] = []
    for rule in rules:
        try:
            found += rule.check(subject)  # type: ignore[attr-defined]  # rules of sets, packages, submissions have it
        except Exception as error:  # a broken rule must not end the check, nor pass for a kept one
            path = getattr(subject, "folder", getattr(subject, "root", ""))
            found.append(rule.found(path, 0, f"the rule itself failed: {error!r}; please report it"))
    kept, ignored = options.sift(found)
    report.ignored += ignored
    return kept


def _is_one_result(results: ResultSet, report: Report) -> bool:
    """Tell whether a loose folder holds the runs of one result; logs of several kinds are judged one by one."""
    if not results.runs:
        message = "no logs below this folder"
        report.own.append(Finding("FRM03", ERROR, results.folder, 0, message, "*.txt, *.log or result_* files"))
    return len(results.runs) > 1 and len({(run.benchmark, run.variant, run.division) for run in results.runs}) == 1


def _complete(results: ResultSet) -> None:
    """Fill in what only the logs can say: their variant; benchmark and division of a loose folder."""
    results.variant = _majority(run.variant for run in results.runs) or FULL
    if results.benchmark is None and results.loose:
        results.benchmark = _majority(run.benchmark for run in results.runs)
    if results.division is None:
        results.division = _majority(run.division for run in results.runs)
    results.reference = reference_of(results.benchmark, results.variant if results.strict else FULL)


def _majority(words: Iterable[str | None]) -> str | None:
    common = Counter(word for word in words if word).most_common(1)
    return common[0][0] if common else None


def _score(results: ResultSet) -> None:
    if results.reference is None or not results.runs:
        return
    verdict = results.convergence if results.strict else results.official_convergence
    factor = verdict.normalization if verdict and verdict.passed else 1.0
    if results.scaling == WEAK:
        results.score = throughput(results.runs, results.system_scale, results.instance_scale, factor)
    else:
        results.score = time_to_train(results.runs, factor, results.committee_factor)
