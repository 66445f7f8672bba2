"""The check: examine all logs below the paths, judge and score result sets, and judge packages."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from common.console import ACTIVITY
from common.errors import UsageError
from common.reference import FULL, ROUNDS, Reference
from common.rounds import TRAINING
from common.values import group_pairs, is_integer
from compliance.benchmarks import (
    BROKEN,
    REFERENCES,
    find_plugin,
    list_references,
    read_name,
    refuse_plugins_in,
    require_references,
)
from compliance.engine.inputs import Inputs, LooseGroups, OpenedSet, open_paths
from compliance.engine.judging import Judging, start_judging
from compliance.engine.log_checker import LogTask, Options, examine_all
from compliance.logs.log import BENCHMARK
from compliance.model.grouping import find_scaling
from compliance.model.judging import (
    BENCHMARK_RULE,
    ERROR,
    LOOSE_RULE,
    NOTE,
    PASSING,
    SKIPPED,
    STRICT,
    WARNING,
    Finding,
    JudgedRun,
    first_text,
    worst,
)
from compliance.model.layout import RESULTS, SCALING_FILE, WEAK, find_submission
from compliance.model.report import Report
from compliance.model.result_set import Copies, ResultSet, names_of
from compliance.model.score import Throughput, TimeToTrain, throughput, time_to_train, without_result
from compliance.rules.catalog import import_all_rules, own_rules
from compliance.rules.rule import RULES, PackageRule, SetRule, SubmissionsRule, rules_of

if TYPE_CHECKING:
    from compliance.model.package import Package
    from compliance.rcp.judge import Verdict  # only results pay for it, not single logs
    from compliance.rcp.points import ReferencePoint


def check_paths(paths: Iterable[str | os.PathLike[str]], options: Options) -> Report:
    """Return the report on everything below the paths.

    Raises UsageError if rules of your own cannot be loaded, and for a waiver that can mean no result; PluginError for
    an option that names no benchmark that can be used.
    """
    with ACTIVITY.showing(options.progress):
        return _check_paths(list(paths), options)


def _check_paths(paths: list[str | os.PathLike[str]], options: Options) -> Report:
    """Return the report, as `check_paths` does."""
    judging = start_judging(options)
    inputs = open_paths(paths, judging)
    refuse_plugins_in((*paths, *options.against, *(package.root for package, _ in inputs.packages)))
    if options.benchmark:
        require_references(options.benchmark)
    runs = list(examine_all(inputs.tasks, options))
    groups = inputs.sort_loose({id(task): run for task, run in zip(inputs.tasks, runs, strict=True)})
    report = _make_report(inputs, runs, groups, judging)
    beyond = any(run.plugin or (options.allow_mini and run.mini) for run in runs)
    # The official tool knows no mini problem, no plug-in and no other suite.
    if options.profile == STRICT and not beyond and not report.of_other_suites:
        official_options = options.make_official()
        officially = Judging(official_options, judging.waivers, official_options.start_report())
        official_inputs = open_paths(paths, officially)
        official_runs = [run.by_official for run in runs if run.by_official]
        if [entry[1] for entry in officially.report.rounds] != [entry[1] for entry in report.rounds]:  # flat layouts
            official_runs = list(examine_all(official_inputs.tasks, officially.options))
        official = _make_report(official_inputs, official_runs, groups, officially)
        _mark_consequences(official)
        report = replace(report, official=official)
        if not options.select:
            _add_refusals(judging, official)
    report.own.extend(judging.keep(find_broken_plugins(runs)))
    _mark_consequences(report)
    _inherit_findings(report)
    return report


def find_broken_plugins(runs: Iterable[JudgedRun]) -> list[Finding]:
    """Return a warning on each plug-in that these logs name and that cannot be used, whichever process read them."""
    names = sorted({read_name(run.submission.get(BENCHMARK)) for run in runs if run.case.strict})
    for name in names:
        list_references(name)
    expected = "a plug-in whose facts can be imported"
    fix = "Repair or uninstall the plug-in, or pass --no-plugins; until then its logs are of an unknown benchmark."
    return [
        Finding(BENCHMARK_RULE, WARNING, "", 0, BROKEN[name], expected, BENCHMARK, fix=fix)
        for name in names
        if name in BROKEN
    ]


def _advise_folder(folder: str) -> str:
    """Return what to check in place of a folder without logs."""
    if root := find_submission(folder):
        return f"The logs of a submission are in its {RESULTS}/: check the submission, {root}."
    return "Name a folder in which there are logs, or a log itself, whatever its name."


def _make_report(inputs: Inputs, runs: list[JudgedRun], groups: list[LooseGroups], judging: Judging) -> Report:
    """Return the report on the inputs. runs: their logs, judged. groups: of the loose ones."""
    report, options = judging.report, judging.options
    report.own_rules.update(own_rules())
    judged = {id(task): run for task, run in zip(inputs.tasks, runs, strict=True)}
    inputs = inputs.regroup(groups)
    packages = [(package, [_add_runs(opened, judged) for opened in sets]) for package, sets in inputs.packages]
    folders = [_add_runs(opened, judged) for opened in inputs.folders]
    every = [*(results for _, sets in packages for results in sets), *folders]
    report.runs.extend(run for results in every for run in results.all_runs)
    report.runs.extend(judged[id(task)] for task in inputs.logs)
    report.ignored.extend(finding for run in report.runs for finding in run.ignored)
    report.own.extend(
        Finding(
            "FRM03",
            ERROR,
            results.folder,
            0,
            "no logs below this folder",
            expected="*.txt, *.log, *.out or result_* files",
            fix=_advise_folder(results.folder),
        )
        for results in folders
        if not results.runs
    )
    if every or packages or len(report.runs) != 1 or options.waivers or options.against:
        import_all_rules()  # a single log does without those about results
    copies = _find_copies(every, inputs.tasks, judging)
    for package, members in packages:
        finished = [_judge_results(results, copies, judging) for results in members]
        report.sets.extend(finished)
        report.packages.append(_judge_package(replace(package, sets=finished), judging))
    report.sets.extend(_judge_results(results, copies, judging) for results in folders if results.runs)
    if rules := rules_of(SubmissionsRule, ROUNDS[-1], None, options.profile):
        from compliance.model.package import Submissions  # a single log does without

        between = [pairs for pairs in copies if pairs.first is not pairs.second]
        submissions = Submissions(report.packages, report.sets, options.profile, judging.waivers, between)
        report.own.extend(judging.apply_rules(rules, submissions))
    return report


def _judge_package(package: Package, judging: Judging) -> Package:
    """Return a package, whose results are judged, with what the rules find."""
    if {run.only_rule for results in package.sets for run in results.runs} == {BENCHMARK_RULE}:
        rounds = judging.report.rounds
        rounds[:] = [entry for entry in rounds if entry[0] != package.root]
        foreign = Finding("PKG01", SKIPPED, package.root, 0, "the package: its logs are of another suite")
        return replace(package, findings=[foreign])
    findings = judging.apply_rules(rules_of(PackageRule, package.round, None, judging.options.profile), package)
    if not package.whole:
        findings = [finding for finding, concerned in package.match_results(findings) if concerned]
    return replace(package, findings=findings)


def _add_refusals(judging: Judging, official: Report) -> None:
    """Add warnings on what the official tool refuses where the written rules pass: to packages, results and logs."""
    report = judging.report
    subjects: list[tuple[list[Finding], Iterable[Finding], Iterable[Finding], str]] = [
        (results.findings, results.decisive_findings(), other.decisive_findings(), names_of(results.failing))
        for results, other in zip(report.sets, official.sets, strict=True)
        if results.round == other.round  # else the layout is wrong, and that tool goes by the round of the layout
    ]
    packages = zip(report.packages, official.packages, strict=True)
    subjects += [(package.findings, package.findings, other.findings, "") for package, other in packages]
    inside = {run.path for results in report.sets for run in results.all_runs}
    logs = zip(report.runs, official.runs, strict=True)
    subjects += [(run.findings, run.findings, other.findings, "") for run, other in logs if run.path not in inside]
    for own, ours, officially, failing in subjects:
        errors = [finding for finding in officially if finding.severity == ERROR]
        refused = [finding for finding in errors if not finding.cause] or errors
        if refused and worst(ours) in PASSING:
            from compliance.rules.convergence import OfficialVerdict  # only a difference pays for it

            fix = f"Repair {failing}, or repeat the run: with it, the committee's checker refuses the whole result."
            own[:] = [finding._replace(fix=fix) if finding.rule == "RUN02" else finding for finding in own]
            own.extend(judging.keep(list(OfficialVerdict().check(refused, failing))))


def _inherit_findings(report: Report) -> None:
    """Give each result the findings on its package, and between results, that concern it."""
    for results in report.sets:
        paths = {run.path for run in results.runs} if results.loose else ()
        results.inherited.extend(finding for finding in report.own if finding.path in paths)
    for package in report.packages:
        inside = posixpath.join(package.root, "")
        between = (finding for finding in report.own if finding.path.startswith(inside))
        for finding, concerned in package.match_results((*package.findings, *between)):
            if not concerned and finding.severity == ERROR:
                concerned = package.sets  # an error that concerns no result in particular concerns all
            for results in concerned:
                results.inherited.append(finding)


def _mark_consequences(report: Report) -> None:
    """Give each finding whose rule `follows` another one that found something in the same log, result or package it.

    People then read each cause once, and before what follows from it. An error never follows from a warning: it stays
    when the warning is heeded.
    """
    around = group_pairs(
        (id(results), finding)
        for package in report.packages
        for finding, concerned in package.match_results(package.findings)
        for results in concerned
    )
    for run in () if report.sets else report.runs:
        _mark_findings(run.findings, run.findings)
    for results in report.sets:
        outside = around.get(id(results), [])
        for run in results.all_runs:
            _mark_findings(run.findings, (*results.findings, *outside, *run.findings))
        _mark_findings(results.findings, (*outside, *results.decisive_findings()))
    for package in report.packages:
        _mark_findings(package.findings, package.decisive_findings())


def _mark_findings(findings: list[Finding], present: Iterable[Finding]) -> None:
    """Set the cause of each finding; one that the rule names itself must be there, too: it may have been left out."""
    of_severity = group_pairs((finding.severity, finding.rule) for finding in present)
    errors = of_severity.get(ERROR, [])
    others = [*errors, *of_severity.get(WARNING, [])]
    for at, finding in enumerate(findings):
        rule = RULES.get(finding.rule)
        if rule and finding.severity in (ERROR, WARNING, NOTE):
            possible = (finding.cause,) if finding.cause else rule.follows
            cause = next((id_ for id_ in possible if id_ in (errors if finding.severity == ERROR else others)), "")
            findings[at] = finding._replace(cause=cause)


def _add_runs(opened: OpenedSet, judged: Mapping[int, JudgedRun]) -> ResultSet:
    """Return the result with its runs and what only they state. judged: by the identities of the tasks."""
    results, counted, pruned = opened
    runs = _report_once([judged[id(task)] for task in (*counted, *pruned)])
    return _complete_results(replace(results, runs=runs[: len(counted)], pruned=runs[len(counted) :]))


def _report_once(runs: list[JudgedRun]) -> list[JudgedRun]:
    """Return the runs of a result; of the warnings and notes that several share, only the first keeps its own.

    It says in how many other logs they are as well.
    """
    kinds = group_pairs(
        ((finding.rule, finding.severity, finding.message), number)
        for number, run in enumerate(runs)
        for finding in run.findings
        if finding.severity in (WARNING, NOTE) and RULES[finding.rule].once
    )
    shared = {kind: set(numbers) for kind, numbers in kinds.items() if len(set(numbers)) > 1}

    def reduce(number: int, finding: Finding) -> Iterator[Finding]:
        kind = (finding.rule, finding.severity, finding.message)
        if kind not in shared:
            yield finding
        elif number == min(shared[kind]):
            yield finding._replace(
                message=f"{finding.message} (likewise in {len(shared[kind]) - 1} other logs of this result)"
            )

    return [
        replace(run, findings=[kept for finding in run.findings for kept in reduce(number, finding)])
        for number, run in enumerate(runs)
    ]


def _find_copies(sets: list[ResultSet], tasks: list[LogTask], judging: Judging) -> list[Copies]:
    """Return what the runs have in common, inside a result, between results and with those of other trees.

    tasks: the logs that are checked.
    """
    report, options = judging.report, judging.options
    if options.profile != STRICT or (len(report.runs) < 2 and not options.against):
        return []
    from compliance.model.copies import find_copies  # only several logs pay for it

    others = []
    for tree in options.against:
        in_tree = _read_others(tree, tasks, judging)
        others += in_tree
        report.against.append((tree, sum(len(results.runs) + len(results.pruned) for results in in_tree)))
    in_sets = {id(run) for results in sets for run in results.all_runs}
    alone = [alone_in_its_result(run) for run in report.runs if id(run) not in in_sets]
    return find_copies([*sets, *alone], others)


def _judge_results(results: ResultSet, copies: list[Copies], judging: Judging) -> ResultSet:
    """Return a result with its convergence, its score and what the rules find."""
    reason = first_text(
        (
            (results.unchecked, "the official tool does not look into this folder"),
            (results.foreign, "the runs: none of the logs is one of MLPerf HPC"),
        )
    )
    if reason:
        return replace(results, findings=[Finding("RUN01", SKIPPED, results.folder, 0, reason)])
    if results.strict and not (results.runs or results.reference):
        nothing = Finding(
            "RUN01",
            ERROR,
            results.folder,
            0,
            "there are no logs",
            incomplete=True,
            fix="Put the logs of the result there, or remove the folder.",
            cause="PKG02",
        )
        return replace(results, findings=[nothing])
    results = replace(results, copies=[pairs for pairs in copies if pairs.first is pairs.second is results])
    if results.not_judged:
        # Copies are copies, whatever results they are of.
        certain = (RULES[LOOSE_RULE](), RULES["RUN05"]()) if results.strict else ()
        return replace(results, findings=judging.apply_rules(certain, results))
    results = _judge_convergence(results)
    results = replace(results, score=_score_results(results))
    rules = rules_of(SetRule, results.round, results.judged_as, judging.options.profile)
    return replace(results, findings=judging.apply_rules(rules, results))


def _complete_results(results: ResultSet) -> ResultSet:
    """Return a result with what only its logs state: the variant; benchmark, division and scaling of loose logs."""
    case = results.case
    variant = _find_majority(run.variant for run in results.runs) or FULL
    benchmark = case.benchmark
    if benchmark is None:
        named = _find_majority(run.benchmark for run in results.runs)
        benchmark = named if results.loose or named == results.folder_benchmark else None
    case = replace(
        case,
        benchmark=benchmark,
        division=case.division or _find_majority(run.division for run in results.runs),
        variant=variant if case.strict else FULL,
    )
    results = replace(results, case=case, variant=variant)
    if results.loose and results.runs and results.reference:
        names = os.path.abspath(results.folder).split(os.sep)[-2:]
        scaling, not_judged = find_scaling(results.runs, results.reference.runs, names)
        results = replace(results, scaling=scaling, not_judged=not_judged)
    return results


def _find_majority(words: Iterable[str | None]) -> str | None:
    common = Counter(word for word in words if word).most_common(1)
    return common[0][0] if common else None


def _judge_convergence(results: ResultSet) -> ResultSet:
    """Return a result with the verdicts of the convergence test, in both modes, where it applies."""
    reference = results.reference
    if reference is None or results.judged_as != "closed" or not results.runs:
        return results
    from compliance.model.package_files import RCP_BYPASS  # only results pay for these, not single logs
    from compliance.rcp.judge import BYPASSED, NOT_CONVERGED, judge, no_verdict

    try:
        points = _load_points(results, reference)
    except (ValueError, OSError) as error:
        if find_plugin(reference.name) is None:
            raise
        BROKEN[reference.name] = f"benchmark {reference.name!r} has no reference points: {error}"
        return results
    if not points:
        return results
    size = results.batch_size if is_integer(results.batch_size) else None
    ours = [run.convergence if run.converged and run.convergence is not None else NOT_CONVERGED for run in results.runs]
    theirs = [NOT_CONVERGED if run.official_convergence is None else run.official_convergence for run in results.runs]
    of_training = results.case.usage == TRAINING
    official = (
        judge(points, size, theirs, reference.runs, "official")
        if results.strict or of_training
        else _official_convergence(results, theirs)
    )
    if of_training and (crash := _find_crash(results)):
        official = no_verdict(crash)
    waiver = results.waiver
    if RCP_BYPASS in results.officially_bypassed and official.official_message.startswith(BYPASSED):
        waiver = waiver or f"package_checker_params says {RCP_BYPASS}"
    convergence = official if of_training else judge(points, size, ours, reference.runs, "envelope")
    return replace(results, convergence=convergence, official_convergence=official, waiver=waiver)


def _load_points(results: ResultSet, reference: Reference) -> tuple[ReferencePoint, ...]:
    from compliance.rcp.points import load_committee_points, load_points  # only results pay for it, not single logs

    case = results.case
    if case.usage == TRAINING:
        unit = results.convergence_unit
        return load_committee_points(case.rules_folder, case.round, reference.name, reference.runs, unit)
    return load_points(reference.name, case.round, reference.variant)


def _find_crash(results: ResultSet) -> str:
    """Return why the official RCP checker ends with a traceback on one of the logs, "" if it does not."""
    readings = [(os.path.basename(run.path), run.official) for run in results.runs if run.official is not None]
    for name, reading in readings:
        if reading.rcp_crash:
            return f"{name}, {reading.rcp_crash}"
        first = readings[0][1]
        if reading.batch_size != first.batch_size or reading.benchmark != first.benchmark:
            return f"batch size or benchmark of {name} differ from the first log"
    return ""


def _official_convergence(results: ResultSet, epochs: list[float]) -> Verdict:
    """Return what the official RCP checker says: it goes by what the logs say, not by their folder."""
    from compliance.rcp.judge import judge, no_verdict
    from compliance.rcp.points import load_points

    first = next(run.official for run in results.runs if run.official is not None)
    if os.path.isdir(posixpath.join(results.folder, SCALING_FILE)):
        return no_verdict(f"{SCALING_FILE} is a folder")
    if crash := _find_crash(results):
        return no_verdict(crash)
    reference = REFERENCES.get(first.benchmark) if isinstance(first.benchmark, str) else None
    if reference is None or results.round not in reference.rounds:
        return no_verdict(f"there are no reference points of the benchmark {first.benchmark!r}")
    return judge(load_points(reference.name, results.round), first.batch_size, epochs, reference.runs, "official")


def _score_results(results: ResultSet) -> TimeToTrain | Throughput | None:
    if results.reference is None or not results.runs:
        return None
    verdict = results.judged_convergence
    factor = verdict.normalization if verdict else 1.0
    score: TimeToTrain | Throughput = (
        throughput(results.runs, results.system_scale, results.instance_scale, factor)
        if results.scaling == WEAK
        else time_to_train(results.runs, factor, results.committee_factor)
    )
    incomplete = results.missing_runs or any(run.without_target for run in results.runs)
    return without_result(score) if incomplete else score


def _read_others(tree: str, checked: list[LogTask], judging: Judging) -> list[ResultSet]:
    """Return the results below a tree, without the logs that are checked.

    Raises UsageError if there is no log below it.
    """
    if not os.path.lexists(tree):
        raise UsageError(f"--against {tree}: no such file or folder")
    options = replace(judging.options, round=None, division=None, benchmark=None, waivers={})
    inputs = open_paths([tree], Judging(options, {}, options.start_report()))
    if not inputs.tasks:
        raise UsageError(f"--against {tree}: no logs below it; expected a submission, a repository or a folder of logs")
    mine = {os.path.realpath(task.path) for task in checked}
    tasks = [replace(task, judged=False) for task in inputs.tasks if os.path.realpath(task.path) not in mine]
    runs = {run.path: run for run in examine_all(tasks, options, "comparing with")}
    opened = [*(result for _, sets in inputs.packages for result in sets), *inputs.folders]
    results = [
        replace(
            result,
            runs=[runs.pop(task.path) for task in counted if task.path in runs],
            pruned=[runs.pop(task.path) for task in pruned if task.path in runs],
        )
        for result, counted, pruned in opened
    ]
    return [*results, *map(alone_in_its_result, runs.values())]


def alone_in_its_result(run: JudgedRun) -> ResultSet:
    """Return a result for a log that is judged individually."""
    return ResultSet(run.path, run.case, runs=[run], loose=True)
