"""Rules about the runs of one result: how many there are, which may fail, and that all state the same settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from posixpath import basename
from typing import Any, Final

from common.command import counted, list_some
from common.values import group_pairs, identity, is_stated, to_plain
from common.version import DISTRIBUTION
from compliance.logs.run import PROVENANCE, SOURCES
from compliance.model.judging import (
    COMMITTEE_RULE,
    ERROR,
    FAIL,
    LOOSE_RULE,
    NOT_A_RESULT,
    NOTE,
    WARNING,
    Finding,
    JudgedRun,
    first_text,
)
from compliance.model.layout import STRONG, WEAK, list_results, result_name
from compliance.model.result_set import TIMES, ResultSet, names_of
from compliance.model.score import TimeToTrain, range_with_rejected
from compliance.rules.rule import SetRule, show

SIZE = "number of accelerators"
VARIANT = "dataset_variant"
RESULTS = "hpc_training_rules.adoc#results; training_rules.adoc#run-results"


class RunsRule(SetRule):
    """Base of the rules about which runs a result has."""

    cite = RESULTS


class NumberOfRuns(RunsRule):
    """A time-to-train result has exactly the required number of runs, a throughput result at least that many."""

    id = "RUN01"
    why = "The score is a mean over a fixed number of runs; any other number would allow choosing the best."
    fix = (
        "Put back a run that was left out, or make the missing runs as the others were made; do not choose among runs."
    )
    differs = "the official tool does not count in round 0.7, and has no verdict INCOMPLETE"
    good = (lambda package: package(scaling="weak", runs=12),)
    bad = (lambda package: package(runs=9),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.lacks_facts:
            message = f"{NOT_A_RESULT}: the runs and the target of this benchmark are not known"
            expected = "its number of runs in benchmark_meta.py, a target of one number, and one run that may fail"
            fix = "Ask the committee's own package checker; --committee-rules wants all of mlperf-logging or its clone."
            yield self.finding(results.folder, 0, message, expected, "", "", fix, COMMITTEE_RULE, incomplete=True)
            return
        if results.reference is None or not (results.strict or results.round != "0.7"):
            return
        count, wanted = len(results.runs), results.reference.runs
        of_instances = results.scaling == WEAK
        if count == wanted or (of_instances and count > wanted):
            return
        expected = (
            f"at least {wanted} files result_<i>.txt, besides pruned ones"
            if of_instances
            else f"exactly {wanted} files result_<i>.txt"
        )
        message = f"number of runs is {count}, {results.reference.name} needs {wanted}{_missing_files(results)}"
        fixes = (
            (of_instances, f"Put back what was left out, or repeat all, {wanted} or more at once."),
            (
                count < wanted and results.label,
                "Logs of one folder are runs of one result if they agree in submitter, system, division and batch "
                "size: correct the log that differs, repeat its run, or give each result a folder of its own.",
            ),
            (count < wanted, ""),
            (
                results.pruned or results.at_once > 1,
                "These seem to be instances of a throughput result: move the folder to weak/.",
            ),
            (True, f"Submit {wanted} runs of one series, none chosen. Throughput instances belong in weak/."),
        )
        fix = first_text(fixes)
        cause = self._find_cause(results, count - wanted)
        # Unexpected files may be runs under a wrong name: then more is wrong than that runs are missing.
        incomplete = results.missing_runs > 0 and not results.other_files
        yield self.finding(results.folder, 0, message, expected, fix=fix, cause=cause, incomplete=incomplete)

    @staticmethod
    def _find_cause(results: ResultSet, surplus: int) -> str:
        """Return the rule whose finding explains it: logs of another benchmark, under other names, or copies."""
        copied = {id(copy) for _, copy in results.list_copies(TIMES)}
        of_another = results.runs and all(run.benchmark not in (None, results.benchmark) for run in results.runs)
        elsewhere = sum(len(list_results(path)) or 1 for path in (*results.misnamed_logs, *results.copies_of_missing))
        causes = (
            (of_another, "RUN08"),
            (surplus < 0 and results.strict and elsewhere >= -surplus, "PKG03"),
            (0 < surplus <= len(copied), "RUN05"),
        )
        return first_text(causes)


def _missing_files(results: ResultSet) -> str:
    """Return which files are missing: `: result_8.txt, result_9.txt missing`.

    The suite numbers from 0. Where result_0 is absent, others may number from 1: then, and of loose logs, only their
    count is certain.
    """
    count, present = results.missing_runs, {result_name(run.path) for run in results.runs}
    if results.label and len(present) < count:
        return f": only {names_of(results.runs)} has {results.label}"
    free = [f"result_{at}.txt" for at in range(count + len(present)) if f"result_{at}" not in present]
    # Some may lie elsewhere, or be of another result.
    is_certain = not results.loose and (not present or "result_0" in present)
    missing = list_some(free[:count], SHOWN) if is_certain else str(count)
    return f": {missing} missing" if count else ""


class TellableResult(RunsRule, strict_only=True):
    """The logs of a folder outside a submission are of one result, or can be told apart into results."""

    id = LOOSE_RULE
    differs = "the official tool judges such logs one by one"
    why = "Runs, seeds, settings and convergence are judged of a result: of logs that may be of several, they are not."
    fix = (
        "Put the logs of each result into a folder of its own, named strong or weak (throughput instances), or make a "
        "submission of them: python -m submission.assemble."
    )
    bad = (
        lambda package: (sample := package(runs=11)).remove("systems").remove("benchmarks").move(sample.folder, "logs"),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.not_judged:
            logs = f"{counted(len(results.runs), 'log')} of {results.benchmark or 'an unknown benchmark'}"
            yield self.finding(
                results.folder, 0, f"{logs} {NOT_A_RESULT}: {results.not_judged}", "one result", incomplete=True
            )


class NoNumberMissing(RunsRule, strict_only=True):
    """The runs of a result, counted and pruned ones, are numbered without gaps."""

    id = "RUN21"
    severity = WARNING
    differs = "the official tool does not read the numbers"
    why = "A missing number may be a run that was left out because it was slow; all must be submitted."
    fix = "Add the missing runs, instances also in pruned_results; say in the README why a number was never used."
    good = (lambda package: package(scaling="weak").prune(2),)
    bad = (lambda package: (sample := package(scaling="weak", runs=14)).remove(f"{sample.folder}/result_3.txt"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.loose or results.missing_runs:
            return
        names = [result_name(run.path) for run in results.all_runs]
        numbers = {int(digits) for name in names if (digits := name.rpartition("_")[2]).isdecimal()}
        gaps = [
            range(before + 1, after)
            for before, after in pairwise((0, *sorted(numbers)))
            if after - before <= len(numbers)  # files that are further apart are not numbered one by one
        ]
        missing = [f"result_{number}" for gap in gaps for number in gap]
        if 0 < len(missing) <= len(numbers):
            message = f"missing among the runs, by their numbers: {list_some(missing, SHOWN)}"
            severity = "" if results.scaling == WEAK else NOTE  # in no published result of either kind
            yield self.finding(results.folder, 0, message, "numbers without gaps, from 0 or 1", severity=severity)
        instances = [show(run.instance) for run in results.runs if is_stated(run.instance)]
        for instance, count in Counter(instances).most_common(1) if results.scaling == WEAK else ():
            if count > 1:
                run = next(run for run in results.runs if show(run.instance) == instance)
                logs = f"all {count}" if count == len(results.runs) else str(count)
                message = f"{logs} logs say that they are of instance {instance}"
                yield self.finding(run.path, 0, message, "an instance of each log", severity=NOTE)


class FailingRuns(RunsRule):
    """At most one run of a time-to-train result fails; every instance of a throughput result passes."""

    id = "RUN02"
    why = "Olympic scoring drops the slowest run, so one run may fail in its place; throughput drops none."
    fix = "Repeat the series; move failing instances of a throughput result to pruned_results."
    differs = (
        "the official tool also allows one failing run for throughput; where it ends with a traceback on a log, the"
        " whole package fails"
    )
    good = (lambda package: package().edit(1, lambda log: log.last_evaluation(0.2)),)
    bad = (
        lambda package: (
            package().edit(1, lambda log: log.last_evaluation(0.2)).edit(2, lambda log: log.last_evaluation(0.2))
        ),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        for run in results.runs:
            if run.official is not None and run.official.log_crash and results.round != "0.7":
                message = f"the official tool ends with a traceback: {run.official.log_crash}"
                yield self.finding(run.path, 0, message, "a log that it can read")
        failing = results.failing
        names = names_of(failing)
        damaged = names_of([run for run in failing if run.damage])
        if len(failing) > 1:
            message = f"too many failed runs: {len(failing)} of {len(results.runs)} logs fail ({names})"
            fix = f"Repair the damaged files first: {damaged}. Repeat the series if several runs still fail."
            cause = next(finding.rule for finding in failing[0].findings if finding.severity == ERROR)
            yield self.finding(results.folder, 0, message, "at most one", fix=fix if damaged else "", cause=cause)
        elif failing and results.scaling == WEAK and results.strict:
            message = f"a failing instance among the models: {names}"
            move = f"Move {names} to pruned_results/, under a free number."
            fix = f"Repair the damaged file {damaged}. Or: {move}" if damaged else move
            yield self.finding(results.folder, 0, message, "failing instances in pruned_results", fix=fix)
        elif failing and not results.of_no_benchmark:
            yield self._report_tolerated(failing[0], results)

    def _report_tolerated(self, run: JudgedRun, results: ResultSet) -> Finding:
        """Return the warning about the one run that fails, with the score, and the one that it would give."""
        killed = f" ({run.killed})" if run.killed else ""
        message = f"one log fails and counts as the slowest run: {names_of([run])}{killed}"
        run_minutes, passed = run.minutes if run.converged else None, "if it passed"
        if run.damage:
            message = f"{names_of([run])} is damaged, not a run that missed the target"
            run_minutes, passed = run.repaired_minutes, "if the repaired file passes"
        official = run.by_official.official if run.by_official else None
        fixes = (
            (
                official and official.log_crash and results.round != "0.7",
                "Repair the log or repeat the run: the committee's checker crashes on it, and the whole package fails.",
            ),
            (run.damage, "Repair the file; if that is impossible, it counts as the one run that may fail."),
            (
                run.converged,
                "The run reached the target: if only its log is wrong, repair that. One run may fail.",
            ),
            (True, "One run may fail: nothing to do."),
        )
        fix = first_text(fixes)
        if results.strict and isinstance(results.score, TimeToTrain) and results.score.minutes is not None:
            as_slowest = " with it as the slowest run" if run.damage else ""
            message += f"; the score is {results.score.minutes:.2f} min{as_slowest}"
            range_ = range_with_rejected(results.score, run_minutes)
            if range_ and (run.damage or run.converged):
                texts = list(dict.fromkeys(f"{minutes:.2f}" for minutes in range_))
                message += f", {'between ' if len(texts) > 1 else ''}{' and '.join(texts)} min {passed}"
        return self.finding(run.path, 0, message, severity=WARNING, fix=fix)


class PrunedComply(SetRule, strict_only=True):
    """Pruned logs also comply with the rules."""

    id = "RUN11"
    cite = "hpc_training_rules.adoc#results; training_policies#493, #499"
    differs = "the official tools never read pruned_results"
    why = "Pruning is for slow instances and repeated seeds, not for runs that break the rules."
    fix = "Submit complete pruned logs; a run that was killed is not a pruned instance."
    good = (lambda package: package(scaling="weak").with_time_to_train().prune(2),)
    bad = (lambda package: package(scaling="weak").prune(1, lambda log: log.drop("run_stop")),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.pruned and results.scaling == STRONG:
            message = f"a time-to-train result with {counted(len(results.pruned), 'pruned run')}: all its runs count"
            fix = "Submit the runs of one series as they were made; throughput instances belong in weak/."
            yield self.finding(results.pruned[0].path, 0, message, "no pruned_results", severity=WARNING, fix=fix)
        failing = [run for run in results.pruned if run.verdict == "FAIL"]
        if failing:
            message = f"{len(failing)} of {len(results.pruned)} pruned logs do not comply: {names_of(failing)}"
            cause = next(finding.rule for finding in failing[0].findings if finding.severity == ERROR)
            yield self.finding(failing[0].path, 0, message, "compliant logs", cause=cause)


BATCH_SIZE: Final = "global_batch_size"
ORGANISATION: Final = "submission_org"
SHOWN: Final = 4
Groups = list[tuple[Any, list[JudgedRun]]]
"""Values that runs state under a key, and the runs of each."""


class SameSettings(SetRule):
    """All runs of a result, pruned ones too, state the same problem, batch size, settings and size of an instance."""

    id = "RUN06"
    cite = f"{RESULTS}; hpc_training_rules.adoc#results (throughput: the score is the tuple T, S, M', TTTa)"
    why = (
        "The runs of a closed result differ in nothing but the seed, those of an open one not in the problem or batch "
        "size, which decides how many epochs a run needs; S, the accelerators of an instance, is one number of the "
        "score."
    )
    fix = (
        "Repeat the runs that differ, or submit them as another result; leave out what is no run of this one, such as a"
        " test. Such a run is no pruned instance either."
    )
    differs = (
        "the official tool compares the batch size alone, of closed results: it crashes where runs differ, also where "
        "one states none"
    )
    good = (lambda package: package().edit(3, lambda log: log.set(BATCH_SIZE, 512.0)),)
    bad = (lambda package: package().edit(3, lambda log: log.set(BATCH_SIZE, 1024)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if not results.strict:
            yield from self._compare_officially(results)
            return
        pruned = {id(run) for run in results.pruned}
        if strangers := find_strangers(results):
            stated = _find_differences(results.runs, lambda run: {**run.submission, **_read_settings(results, run)})
            facts = ", ".join(f"{key} is {_list_groups(groups)}" for key, groups in stated.items())
            yield self.finding_in(
                strangers[0],
                ORGANISATION,
                f"{names_of(strangers)}: of another result, not of this one: {facts}",
                "runs of one organisation and system",
                fix=f"Put the right logs in the place of {names_of(strangers)}.",
            )
        # Of another benchmark, which RUN08 reports, nothing can be compared.
        runs = [run for run in results.all_runs if run.benchmark in (None, results.benchmark) and run not in strangers]
        for key, groups in _find_differences(runs, partial(_read_settings, results)).items():
            odd = _find_odd(groups)
            line = odd.lines.get("number_of_nodes" if key == SIZE else key, 0)
            message = f"settings differ between runs: {key} is {_list_groups(groups)}"
            of_counted = [of_value for _, of_value in groups if not pruned.issuperset(map(id, of_value))]
            severity = ERROR if len(of_counted) > 1 else WARNING
            yield self.finding(odd.path, line, message, f"one {key}", key, severity)

    def _compare_officially(self, results: ResultSet) -> Iterator[Finding]:
        """Yield a difference to the batch size of the first run."""
        if results.round == "0.7" or results.division != "closed":
            return
        read = [(run, run.official.batch_size) for run in results.runs if run.official is not None]
        parts = group_pairs((size == read[0][1], run) for run, size in read).values()
        groups = [(part[0].batch_size, part) for part in parts]
        if len(groups) > 1:
            yield self.finding_in(
                _find_odd(groups), BATCH_SIZE, f"batch sizes differ: {_list_groups(groups)}", f"one {BATCH_SIZE}"
            )


def find_strangers(results: ResultSet) -> list[JudgedRun]:
    """Return the counted runs of another organisation than most, and with other settings than these."""
    named = group_pairs(
        (show(run.submission[ORGANISATION]), run)
        for run in results.runs
        if run.benchmark == results.benchmark and ORGANISATION in run.submission
    )
    usual = max(named.values(), key=len, default=[])
    others = [
        run for runs in named.values() for run in runs if runs is not usual and 2 * len(usual) > len(results.runs)
    ]
    return [run for run in others if _find_differences([usual[0], run], partial(_read_settings, results))]


def _read_settings(results: ResultSet, run: JudgedRun) -> dict[str, Any]:
    """Return what a run must have in common with the others of its result."""
    stated: dict[str, Any] = {VARIANT: run.variant, BATCH_SIZE: run.batch_size}
    if results.scaling == WEAK:
        stated[SIZE] = run.scale
    return {**stated, **run.settings} if results.judged_as == "closed" else stated


class SameCode(SetRule, strict_only=True):
    """All runs of a result were made by the same code, with the same software, machine and data, and log the same."""

    id = "RUN20"
    severity = WARNING
    cite = "training_rules.adoc#system-and-framework-must-be-consistent; training_rules.adoc#definitions"
    differs = "the official tool compares the file and line of seeds only"
    why = (
        "A result belongs to one version of the code on one system, with one set of software versions; two published "
        "results have runs of several. All runs of each log the same keys."
    )
    fix = "Repeat the runs that differ. If the code was only moved, say so in its README."
    good = (lambda package: package().edit(3, lambda log: log.meta("run_stop", "file", "/other/place/train.py")),)
    bad = (lambda package: package().edit(3, lambda log: log.meta("run_stop", "file", "train_fast.py")),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        software = _find_differences(results.runs, lambda run: run.software)
        code: dict[str, Groups] = {name: software.pop(name) for name in (SOURCES, DISTRIBUTION) if name in software}
        severity = ERROR if results.division == "closed" else WARNING
        yield from self._report_differences(code, "the code differs between runs", PROVENANCE, severity)
        yield from self._report_differences(software, "software, machine or data differ between runs", PROVENANCE)
        runs = [run for run in results.runs if run.keys and not run.damage]
        marked = runs if len({run.marks for run in runs}) > 1 else ()
        # What file and line wrote the records of a run, by their keys.
        differing = _find_differences(
            marked, lambda run: {key: f"{basename(file)}, line {line}" for key, file, line in run.marks}
        )
        marks = dict(sorted(differing.items()))
        subject = "runs of different code, by file and line of their records"
        yield from self._report_differences(marks, subject, next(iter(marks), ""), most=1)
        groups = list(group_pairs((run.keys, run) for run in runs if run.verdict != FAIL).values())
        usual = max(groups, key=len, default=[])
        for odd in groups:
            lacking = usual[0].keys - odd[0].keys
            if lacking:
                key = min(lacking.intersection(usual[0].settings), default="")
                contradiction = ERROR if results.judged_as == "closed" else WARNING
                message = f"no {list_some(sorted(lacking), SHOWN)} in {names_of(odd)}; in other runs there is"
                severity = contradiction if key else NOTE
                yield self.finding(odd[0].path, 0, message, "the same keys in all runs", key, severity)

    def _report_differences(
        self, differing: dict[str, Groups], subject: str, key: str, severity: str = "", most: int = SHOWN
    ) -> Iterator[Finding]:
        parts = [f"{name} is {_list_groups(groups)}" for name, groups in differing.items()]
        if parts:
            keys = " keys" if len(parts) > most else ""
            odd = _find_odd(next(iter(differing.values())))
            yield self.finding_in(
                odd, key, f"{subject}: {list_some(parts, most)}{keys}", "the same in all runs", severity
            )


def _find_differences(runs: Iterable[JudgedRun], read: Callable[[JudgedRun], Mapping[str, Any]]) -> dict[str, Groups]:
    """Return, by key, what runs state, where that is several values; read: returns what a run states."""
    stated = group_pairs((key, (value, run)) for run in runs for key, value in read(run).items() if is_stated(value))
    differing: dict[str, Groups] = {}
    for key, pairs in stated.items():
        if len({repr(value) for value, _ in pairs}) > 1:  # mostly not; it saves most of the time
            parts = group_pairs((identity(value), (value, run)) for value, run in pairs).values()
            groups = [(part[0][0], [run for _, run in part]) for part in parts]
            if len(groups) > 1:
                differing[key] = groups
    return differing


def _find_odd(groups: Groups) -> JudgedRun:
    """Return the first of the runs that fewest are like."""
    _, runs = min(groups, key=lambda group: len(group[1]))
    return runs[0]


def _list_groups(groups: Groups) -> str:
    return "; ".join(f"{show(to_plain(value))} in {names_of(runs)}" for value, runs in groups)
