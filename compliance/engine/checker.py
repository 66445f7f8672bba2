"""The check: examine all logs below the paths, judge and score result sets, and judge packages."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from common.reference import FULL, ROUNDS
from common.values import is_integer
from compliance.benchmarks import reference_of
from compliance.engine.inputs import Opened, open_paths
from compliance.engine.options import Options
from compliance.engine.parallel import examine_all
from compliance.engine.rule_runner import apply_each
from compliance.logs.run import Run
from compliance.model.finding import ERROR, NOTE, SKIPPED, WARNING, Finding
from compliance.model.layout import SCALING_FILE, WEAK
from compliance.model.package import Submissions
from compliance.model.parameters import RCP_BYPASS
from compliance.model.report import Report
from compliance.model.result_set import Copies, ResultSet
from compliance.model.score import Throughput, TimeToTrain, throughput, time_to_train
from compliance.rules.catalog import import_all_rules
from compliance.rules.own_rules import load_rules, own_rules
from compliance.rules.rule import RULES, STRICT, PackageRule, Rule, SetRule, SubmissionsRule, rules_of

if TYPE_CHECKING:
    from compliance.rcp.judge import Verdict  # only results pay for it, not single logs

__all__ = ["Options", "apply_rules", "check_paths"]


def check_paths(paths: Iterable[str | os.PathLike[str]], options: Options) -> Report:
    """Return the report on everything below the paths.

    Raises RulesError if rules of your own cannot be loaded, UsageError for a waiver that can mean no result.
    """
    load_rules(options.rules)
    opened = open_paths(paths, options)
    report = Report(options.profile, rounds=opened.rounds, own_rules=own_rules())
    runs = examine_all(opened.tasks, options)
    for results, place in opened.sets:
        results.runs = [next(runs) for _ in place.logs]
        results.pruned = [next(runs) for _ in place.pruned]
        _report_once(results)
        report.runs += results.runs + results.pruned
    report.runs += runs
    for run in report.runs:
        report.ignored += run.ignored
    report.sets = [results for results, _ in opened.sets if not results.loose or _is_one_result(results, report)]
    report.packages = opened.packages
    if report.sets or report.packages or len(report.runs) != 1 or options.waivers or options.against:
        import_all_rules()  # a single log does without those about results
    _judge(report, _copies(report, opened, options), opened, options)
    return report


def _report_once(results: ResultSet) -> None:
    """Of the warnings and notes that several logs of a result share, keep that of the first log, with their number."""
    groups: dict[tuple[str, str, str], dict[str, Run]] = defaultdict(dict)
    for run in (*results.runs, *results.pruned):
        for rule, severity, _, _, message, *_ in run.findings:
            if severity in (WARNING, NOTE) and RULES[rule].once:
                groups[(rule, severity, message)][run.path] = run
    for what, (first, *others) in ((what, runs.values()) for what, runs in groups.items()):
        for run in others:
            run.findings = [found for found in run.findings if (found.rule, found.severity, found.message) != what]
        if others:
            message = f"{what[-1]} (likewise in {len(others)} other logs of this result)"
            first.findings = [
                found._replace(message=message) if (found.rule, found.severity, found.message) == what else found
                for found in first.findings
            ]


def _copies(report: Report, opened: Opened, options: Options) -> list[Copies]:
    """Return what the runs have in common, inside a result, between results and with those of other trees."""
    if options.profile != STRICT or (len(report.runs) < 2 and not options.against):
        return []
    from compliance.engine.other_submissions import alone_in_its_result, read_others  # only several logs pay for it
    from compliance.model.copies import find_copies  # as against

    others = []
    for tree in options.against:
        found = read_others(tree, options, opened.tasks)
        others += found
        report.against.append((tree, sum(len(results.runs) + len(results.pruned) for results in found)))
    in_sets = {id(run) for results in report.sets for run in (*results.runs, *results.pruned)}
    alone = [alone_in_its_result(run, options.profile) for run in report.runs if id(run) not in in_sets]
    return find_copies([*report.sets, *alone], others)


def _judge(report: Report, copies: list[Copies], opened: Opened, options: Options) -> None:
    for results in report.sets:
        results.copies = [found for found in copies if found.first is found.second is results]
        _complete(results)
        if results.unchecked:
            reason = "the official tool does not look into this folder"
            results.findings.append(Finding("RUN01", SKIPPED, results.folder, 0, reason))
            continue
        _judge_convergence(results)
        rules = rules_of(SetRule, results.round, results.judged_as, options.profile)
        results.findings += apply_rules(rules, results, report, options)
        _score(results)
    for package in report.packages:
        rules = rules_of(PackageRule, package.round, None, options.profile)
        package.findings += apply_rules(rules, package, report, options)
    between = [found for found in copies if found.first is not found.second]
    submissions = Submissions(report.packages, report.sets, options.profile, opened.waivers, between)
    rules = rules_of(SubmissionsRule, ROUNDS[-1], None, options.profile)
    report.own += apply_rules(rules, submissions, report, options)


def apply_rules(rules: tuple[Rule, ...], subject: Any, report: Report, options: Options) -> list[Finding]:
    """Return what the rules find, without the ignored findings, which the report notes."""
    path = getattr(subject, "folder", getattr(subject, "root", ""))
    found = [finding for findings in apply_each(rules, path, subject) for finding in findings]
    kept, ignored = options.filter(found)
    report.ignored += ignored
    return kept


def _is_one_result(results: ResultSet, report: Report) -> bool:
    """Tell whether a loose folder contains the runs of one result; logs of several kinds are judged individually."""
    if not results.runs:
        message = "no logs below this folder"
        report.own.append(Finding("FRM03", ERROR, results.folder, 0, message, "*.txt, *.log or result_* files"))
    return len(results.runs) > 1 and len({(run.benchmark, run.variant, run.division) for run in results.runs}) == 1


def _complete(results: ResultSet) -> None:
    """Fill in what only the logs state: the variant; benchmark and division of a loose folder."""
    results.variant = _majority(run.variant for run in results.runs) or FULL
    if results.benchmark is None and results.loose:
        results.benchmark = _majority(run.benchmark for run in results.runs)
    if results.division is None:
        results.division = _majority(run.division for run in results.runs)
    results.reference = reference_of(results.benchmark, results.variant if results.strict else FULL)


def _majority(words: Iterable[str | None]) -> str | None:
    common = Counter(word for word in words if word).most_common(1)
    return common[0][0] if common else None


def _judge_convergence(results: ResultSet) -> None:
    """Fill in the verdicts of the convergence test, in both modes, where it applies."""
    if results.reference is None or results.judged_as != "closed" or not results.runs:
        return
    from compliance.rcp import judge  # only results pay for it, not single logs

    reference = results.reference
    points = judge.load_points(reference.name, results.round, reference.runs, reference.variant)
    if not points:
        return
    size = results.batch_size if is_integer(results.batch_size) else None
    infinite = judge.NOT_CONVERGED
    ours = [run.convergence if run.converged and run.convergence is not None else infinite for run in results.runs]
    theirs = [infinite if run.official_convergence is None else run.official_convergence for run in results.runs]
    results.convergence = judge.judge(points, size, ours, reference.runs, "envelope")
    if results.strict:
        results.official_convergence = judge.judge(points, size, theirs, reference.runs, "official")
    else:
        results.official_convergence = _official_convergence(results, theirs)
    if RCP_BYPASS in results.officially_bypassed and results.official_convergence.may_be_bypassed:
        results.waiver = results.waiver or f"package_checker_params says {RCP_BYPASS}"


def _official_convergence(results: ResultSet, epochs: list[float]) -> Verdict:
    """Return what the official RCP checker says: it goes by what the logs say, not by their folder."""
    from compliance.rcp import judge

    readings = [(run.path, run.official) for run in results.runs if run.official is not None]
    _, first = readings[0]
    if os.path.isdir(os.path.join(results.folder, SCALING_FILE)):
        return judge.no_verdict(f"{SCALING_FILE} is a folder")
    for path, reading in readings:
        if reading.rcp_crash:
            return judge.no_verdict(f"{os.path.basename(path)}, {reading.rcp_crash}")
        if reading.batch_size != first.batch_size or reading.benchmark != first.benchmark:
            return judge.no_verdict(f"batch size or benchmark of {os.path.basename(path)} differ from the first log")
    reference = reference_of(first.benchmark, FULL) if isinstance(first.benchmark, str) else None
    if reference is None or results.round not in reference.rounds:
        return judge.no_verdict(f"there are no reference points of the benchmark {first.benchmark!r}")
    points = judge.load_points(reference.name, results.round, reference.runs)
    return judge.judge(points, first.batch_size, epochs, reference.runs, "official")


def _score(results: ResultSet) -> None:
    if results.reference is None or not results.runs:
        return
    verdict = results.judged_convergence
    score: TimeToTrain | Throughput
    factor = verdict.normalization if verdict and verdict.passed else 1.0
    if results.scaling == WEAK:
        score = throughput(results.runs, results.system_scale, results.instance_scale, factor)
    else:
        score = time_to_train(results.runs, factor, results.committee_factor)
    results.score = score.without_result() if results.missing_runs else score
