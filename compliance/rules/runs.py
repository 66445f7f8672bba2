"""Rules about the runs of one result: how many there are, which may fail, and that all state the same settings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from posixpath import basename
from typing import Any, Final

from common.command import counted
from common.values import are_same, group_pairs, identity, is_stated, to_plain
from common.version import DISTRIBUTION
from compliance.logs.run import PROVENANCE, SOURCES
from compliance.model.judging import ERROR, FAIL, LOOSE_RULE, NOT_A_RESULT, NOTE, WARNING, Finding, JudgedRun, listed
from compliance.model.layout import STRONG, WEAK, result_name
from compliance.model.result_set import TIMES, ResultSet, names_of
from compliance.model.score import TimeToTrain, range_with_rejected
from compliance.rules.rule import SetRule, show

SIZE = "number of accelerators"
RESULTS = "hpc_training_rules.adoc#results; training_rules.adoc#run-results"


class NumberOfRuns(SetRule):
    """A time-to-train result has exactly the required number of runs, a throughput result at least that many."""

    id = "RUN01"
    cite = RESULTS
    why = "The score is a mean over a fixed number of runs; any other number would allow choosing the best."
    fix = (
        "Put back a run that was left out, or make the missing runs as the others were made; do not choose among runs."
    )
    differs = "the official tool does not count in round 0.7, and has no verdict INCOMPLETE"
    good = (lambda package: package(scaling="weak", runs=12),)
    bad = (lambda package: package(runs=9),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.reference is None or not (results.strict or results.round != "0.7"):
            return
        count, wanted = len(results.runs), results.reference.runs
        if results.scaling == STRONG and count != wanted:
            expected, fix = f"exactly {wanted} files result_<i>.txt", ""
        elif results.scaling == WEAK and count < wanted:
            expected = f"at least {wanted} files result_<i>.txt, besides pruned ones"
            fix = f"Put back what was left out, or repeat all, {wanted} or more at once."
        else:
            return
        message = f"number of runs is {count}, {results.reference.name} needs {wanted}{_missing_files(results)}"
        if count > wanted:
            fix = f"Submit {wanted} runs of one series, none chosen. Throughput instances belong in weak/."
            if results.pruned or results.at_once > 1:
                fix = "These seem to be instances of a throughput result: move the folder to weak/."
        finding = self.finding(results.folder, 0, message, expected, fix=fix)
        # Unexpected files may be runs under a wrong name: then more is wrong than that runs are missing.
        incomplete = results.missing_runs > 0 and not results.other_files
        yield finding._replace(incomplete=incomplete, cause=self._find_cause(results, count - wanted))

    @staticmethod
    def _find_cause(results: ResultSet, surplus: int) -> str:
        """Return the rule whose finding explains it: logs of another benchmark, under other names, or copies."""
        copied = {id(copy) for copies in results.copies if copies.kind == TIMES for _, copy in copies.pairs}
        if results.runs and all(run.benchmark not in (None, results.benchmark) for run in results.runs):
            return "RUN08"
        if surplus < 0:
            return "PKG03" if results.strict and len(results.misnamed_logs) >= -surplus else ""
        return "RUN05" if len(copied) >= surplus else ""


def _missing_files(results: ResultSet) -> str:
    """Return which files are missing: `: result_8.txt and result_9.txt are missing`.

    The suite numbers from 0. Where result_0 is absent, others may number from 1: then only their count is certain.
    """
    if not results.missing_runs:
        return ""
    present = {result_name(run.path) for run in results.runs}
    if present and "result_0" not in present:
        return f": {results.missing_runs} {'is' if results.missing_runs == 1 else 'are'} missing"
    free = [at for at in range(results.missing_runs + len(present)) if f"result_{at}" not in present]
    free = free[: results.missing_runs]
    names = [f"result_{at}.txt" for at in free]
    if len(names) == 1:
        return f": {names[0]} is missing"
    if len(names) > 2 and free[-1] - free[0] == len(free) - 1:
        return f": {names[0]} to {names[-1]} are missing"
    return f": {', '.join(names[:-1])} and {names[-1]} are missing"


class TellableResult(SetRule, strict_only=True):
    """The logs of a folder outside a submission are of one result, or can be told apart into results."""

    id = LOOSE_RULE
    cite = RESULTS
    differs = "the official tool judges such logs one by one"
    why = "Runs, seeds, settings and convergence are judged of a result: of logs that may be of several, they are not."
    fix = (
        "Put the logs of each result into a folder of its own, throughput instances below a folder weak/, or make a "
        "submission of them: python -m submission.assemble."
    )
    bad = (
        lambda package: (sample := package(runs=11)).remove("systems").remove("benchmarks").move(sample.folder, "logs"),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.not_judged:
            logs = f"{counted(len(results.runs), 'log')} of {results.benchmark or 'an unknown benchmark'}"
            message = f"{logs} {NOT_A_RESULT}: {results.not_judged}"
            yield self.finding(results.folder, 0, message, "one result")._replace(incomplete=True)


class NoNumberMissing(SetRule, strict_only=True):
    """The runs of a result, counted and pruned ones, are numbered without gaps."""

    id = "RUN21"
    severity = WARNING
    cite = RESULTS
    differs = "the official tool does not read the numbers"
    why = "A missing number may be a run that was left out because it was slow; all must be submitted."
    fix = "Add the missing runs, instances also in pruned_results; say in the README why a number was never used."
    good = (lambda package: package(scaling="weak").prune(2),)
    bad = (lambda package: (sample := package(scaling="weak", runs=14)).remove(f"{sample.folder}/result_3.txt"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.loose or results.missing_runs:
            return
        names = [result_name(run.path) for run in (*results.runs, *results.pruned)]
        numbers = {int(digits) for name in names if (digits := name.rpartition("_")[2]).isdecimal()}
        gaps = [
            range(before + 1, after)
            for before, after in pairwise((0, *sorted(numbers)))
            if after - before <= len(numbers)  # files that are further apart are not numbered one by one
        ]
        missing = [f"result_{number}" for gap in gaps for number in gap]
        if 0 < len(missing) <= len(numbers):
            message = f"missing among the runs, by their numbers: {listed(missing, SHOWN)}"
            severity = "" if results.scaling == WEAK else NOTE  # in no published result of either kind
            yield self.finding(results.folder, 0, message, "numbers without gaps, from 0 or 1", severity=severity)
        instances = [show(run.instance) for run in results.runs if is_stated(run.instance)]
        for instance, count in Counter(instances).most_common(1) if results.scaling == WEAK else ():
            if count > 1:
                run = next(run for run in results.runs if show(run.instance) == instance)
                logs = f"all {count}" if count == len(results.runs) else str(count)
                message = f"{logs} logs say that they are of instance {instance}"
                yield self.finding(run.path, 0, message, "an instance of each log", severity=NOTE)


class FailingRuns(SetRule):
    """At most one run of a time-to-train result fails; every instance of a throughput result passes."""

    id = "RUN02"
    cite = RESULTS
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
            finding = self.finding(results.folder, 0, message, "at most one", fix=fix if damaged else "")
            yield finding._replace(cause=next(f.rule for f in failing[0].findings if f.severity == ERROR))
        elif failing and results.scaling == WEAK and results.strict:
            message = f"a failing instance among the models: {names}"
            move = f"Move {names} to pruned_results/, under a free number."
            fix = f"Repair the damaged file {damaged}. Or: {move}" if damaged else move
            yield self.finding(results.folder, 0, message, "failing instances in pruned_results", fix=fix)
        elif failing:
            yield self._report_tolerated(failing[0], results)

    def _report_tolerated(self, run: JudgedRun, results: ResultSet) -> Finding:
        """Return the warning about the one run that fails, with the score, and the one that it would give."""
        message = f"one log fails and counts as the slowest run: {names_of([run])}"
        fix = "One run may fail: nothing to do, unless OFFICIAL says that the committee's checker refuses it."
        passed = "if it passed"
        run_minutes = run.minutes if run.converged else None
        if run.damage:
            message = f"{names_of([run])} is damaged, not a run that missed the target"
            fix = "Repair the file; if that is impossible, it counts as the one run that may fail."
            run_minutes, passed = run.repaired_minutes, "if the repaired file passes"
        elif run.converged:
            fix = "The run reached the target: if only its log is wrong, repair that. One run may fail."
        if results.strict and isinstance(results.score, TimeToTrain) and results.score.minutes is not None:
            as_slowest = " with it as the slowest run" if run.damage else ""
            message += f"; the score is {results.score.minutes:.2f} min{as_slowest}"
            range_ = range_with_rejected(results.score, run_minutes)
            if range_ and (run.damage or run.converged):
                texts = list(dict.fromkeys(f"{minutes:.2f}" for minutes in range_))
                message += f", {'between ' if len(texts) > 1 else ''}{' and '.join(texts)} min {passed}"
        return self.finding(run.path, 0, message, severity=WARNING, fix=fix)


class SameInstanceSize(SetRule, strict_only=True):
    """All instances of a throughput result use the same number of accelerators."""

    id = "RUN19"
    cite = "hpc_training_rules.adoc#results (throughput: the score is the tuple T, S, M', TTTa)"
    differs = "the official tool takes S from one of the logs"
    why = "S, the accelerators of an instance, is one number of the score; a mixture of sizes has none."
    fix = "Run all instances on the same number of accelerators; submit those of another size as another result."
    good = (lambda package: package(scaling="weak", division="open"),)
    bad = (
        lambda package: package(scaling="weak", division="open").edit(3, lambda log: log.set("number_of_nodes", 64)),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.scaling != WEAK:
            return
        groups = _group_runs((run for run in results.runs if run.scale is not None), lambda run: run.scale)
        if len(groups) > 1:
            sizes = "; ".join(f"{runs[0].scale} accelerators in {names_of(runs)}" for runs in groups)
            odd, expected = min(groups, key=len)[0], "one number_of_nodes and accelerators_per_node"
            yield self.finding_in(odd, "number_of_nodes", f"instances of different size: {sizes}", expected)


class PrunedComply(SetRule, strict_only=True):
    """Pruned logs also comply with the rules, and are of instances like those that count."""

    id = "RUN11"
    cite = "hpc_training_rules.adoc#results; training_policies#493, #499"
    differs = "the official tools never read pruned_results"
    why = "Pruning is for slow instances and repeated seeds, not for runs that break the rules or have other settings."
    fix = "Submit complete pruned logs; a run that was killed, or had other settings, is not a pruned instance."
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
            finding = self.finding(failing[0].path, 0, message, "compliant logs")
            yield finding._replace(cause=next(f.rule for f in failing[0].findings if f.severity == ERROR))
        if results.pruned:
            yield from self._other_instances(results)

    def _other_instances(self, results: ResultSet) -> Iterator[Finding]:
        """Yield a warning for each setting that pruned logs state as no counted log does."""
        counted = [_settings_of(run, results) for run in results.runs]
        differing: dict[str, list[tuple[JudgedRun, Any]]] = defaultdict(list)
        for run in results.pruned:
            for key, value in _settings_of(run, results).items():
                usual = [stated[key] for stated in counted if key in stated]
                if usual and value not in usual and not any(are_same(value, usual_value) for usual_value in usual):
                    differing[key].append((run, value))
        for key, differing_runs in differing.items():
            run, value = differing_runs[0]
            names = names_of([run for run, _ in differing_runs])
            message = f"other instances than those that count: {key} is {show(to_plain(value))} in {names}"
            line = run.lines.get("number_of_nodes" if key == SIZE else key, 0)
            texts = dict.fromkeys(show(to_plain(stated[key])) for stated in counted if key in stated)
            yield self.finding(run.path, line, message, f"{key} {listed(list(texts), 2)}", key, WARNING)


def _settings_of(run: JudgedRun, results: ResultSet) -> dict[str, Any]:
    """Return what an instance must have in common with the others of its result, as far as its log states it."""
    stated = {"global_batch_size": run.batch_size}
    stated |= run.settings if results.judged_as == "closed" else {SIZE: run.scale}
    return {key: value for key, value in stated.items() if is_stated(value)}


BATCH_SIZE: Final = "global_batch_size"
SHOWN: Final = 4
SHOWN_CHARACTERS: Final = 32


class SameBatchSize(SetRule):
    """All runs of a result have the same global batch size."""

    id = "RUN06"
    cite = RESULTS
    why = "Batch size decides how many epochs a run needs; runs of different sizes are not one series."
    fix = "Repeat the runs that differ."
    differs = "the official package checker crashes on it in the closed division, also where a run states none"
    good = (lambda package: package().edit(3, lambda log: log.set(BATCH_SIZE, 512.0)),)
    bad = (lambda package: package().edit(3, lambda log: log.set(BATCH_SIZE, 1024)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.strict:
            runs = [run for run in results.comparable_runs if is_stated(run.batch_size)]
            groups = _group_runs(runs, lambda run: identity(run.batch_size))
        elif results.round != "0.7" and results.division == "closed":
            # The official tool compares each size with that of the first run.
            read = [(run, run.official.batch_size) for run in results.runs if run.official is not None]
            groups = list(group_pairs((size == read[0][1], run) for run, size in read).values())
        else:
            return
        if len(groups) > 1:
            message = f"batch sizes differ: {_list_groups(groups, lambda run: run.batch_size)}"
            yield self.finding_in(min(groups, key=len)[0], BATCH_SIZE, message, f"one {BATCH_SIZE}")


class SameSettings(SetRule, strict_only=True):
    """All runs of a result have the same hyperparameters."""

    id = "RUN07"
    cite = RESULTS
    divisions = ("closed",)
    differs = "the official tool does not compare the runs"
    why = "The runs of a result differ in nothing but the seed."
    fix = "Repeat the runs that differ."
    good = (lambda package: package().edit(3, lambda log: log.set("opt_learning_rate_warmup_epochs", 6.0)),)
    bad = (lambda package: package().edit(3, lambda log: log.set("opt_base_learning_rate", 0.007)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        runs = results.comparable_runs
        for key in dict.fromkeys(key for run in runs for key in run.settings):
            if key != BATCH_SIZE:  # RUN06
                yield from self._compare_runs([run for run in runs if is_stated(run.settings.get(key))], key)

    def _compare_runs(self, runs: list[JudgedRun], key: str) -> Iterator[Finding]:
        if len({repr(run.settings[key]) for run in runs}) < 2:
            return  # mostly; it saves most of the time
        groups = _group_runs(runs, lambda run: identity(run.settings[key]))
        if len(groups) > 1:
            values = _list_groups(groups, lambda run: run.settings[key])
            message = f"hyperparameters differ between runs: {key} is {values}"
            yield self.finding_in(min(groups, key=len)[0], key, message, f"one {key}")


class SettingsStated(SetRule, strict_only=True):
    """Every run of a result states the settings that its other runs state."""

    id = "RUN17"
    cite = RESULTS
    differs = "the official package checker crashes where only some runs of a closed result state global_batch_size"
    why = "A run that does not state what the others do cannot be compared with them."
    fix = "Repeat the run. One that died before it logged its settings may be the one run that is allowed to fail."
    bad = (lambda package: package().edit(3, lambda log: log.drop("dropout")),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        compared = [run for run in results.comparable_runs if not run.damage]
        settings = {id(run): {BATCH_SIZE: run.batch_size, **run.settings} for run in compared}
        stated = {run: tuple(key for key in own if is_stated(own[key])) for run, own in settings.items()}
        keys = sorted({key for settings in stated.values() for key in settings})
        yield from self._compare_staging(compared, results.round)
        for runs in _group_runs(compared, lambda run: stated[id(run)]):
            missing = [key for key in keys if key not in stated[id(runs[0])]]
            if missing:
                contradicts = results.judged_as == "closed" and any(run.verdict != FAIL for run in runs)
                absence = "no settings" if len(missing) == len(keys) else f"no {', '.join(missing)}"
                verb = "states" if len(runs) == 1 else "state"
                message = f"{names_of(runs)} {verb} {absence}; other runs of the result do"
                severity = ERROR if contradicts else WARNING
                yield self.finding(runs[0].path, 0, message, "the same settings in all runs", missing[0], severity)

    def _compare_staging(self, runs: list[JudgedRun], round_: str) -> Iterator[Finding]:
        """Yield a warning about runs without staging among others with it, where the time contains the staging."""
        without = [run for run in runs if not run.staging_ms]
        if round_ in ("1.0", "2.0") and 0 < len(without) < len(runs):
            message = f"no staging in {names_of(without)}, although the other runs log theirs: it counts as 0 minutes"
            fix = "Restore staging_start and staging_stop from the original log, or let each run log them."
            yield self.finding(without[0].path, 0, message, "staging in all runs", "staging_start", WARNING, fix)


class SameSoftware(SetRule, strict_only=True):
    """All runs of a result were made by one version of the code, with the same software, machine and data."""

    id = "RUN20"
    severity = WARNING
    cite = "training_rules.adoc#system-and-framework-must-be-consistent; training_rules.adoc#definitions"
    differs = "the official tool ignores the records of this suite"
    why = "A result belongs to one implementation on one system, with one set of software versions."
    fix = "Repeat the runs that differ."
    good = (lambda package: package().by_suite().edit(3, lambda log: log.provenance(git_revision="another")),)
    bad = (lambda package: package().by_suite().edit(3, lambda log: log.provenance(source_sha256="6" * 64)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        names = dict.fromkeys(name for run in results.runs for name in run.software)
        differing = {name: groups for name in names if len(groups := _by_version(results.runs, name)) > 1}
        code = {name: groups for name, groups in differing.items() if name in (SOURCES, DISTRIBUTION)}
        if code:
            severity = ERROR if results.division == "closed" else WARNING
            yield self._report_differences(code, "the code differs between runs", "one version of the suite", severity)
        others = {name: groups for name, groups in differing.items() if name not in code}
        if others:
            expected = "the same software, machine and data for all runs"
            yield self._report_differences(others, "software, machine or data differ between runs", expected, WARNING)

    def _report_differences(
        self, differing: dict[str, list[list[JudgedRun]]], subject: str, expected: str, severity: str
    ) -> Finding:
        parts = [f"{name} is {_list_groups(groups, _start_of(name))}" for name, groups in differing.items()]
        odd = min(next(iter(differing.values())), key=len)[0]
        return self.finding_in(odd, PROVENANCE, f"{subject}: {listed(parts, SHOWN)}", expected, severity)


class SameCode(SetRule, strict_only=True):
    """The records of all runs of a result were written by the same lines of the same files."""

    id = "RUN22"
    severity = WARNING
    cite = "training_rules.adoc#system-and-framework-must-be-consistent"
    differs = "the official tool compares the file and line of seeds only"
    why = (
        "A result belongs to one version of the code; two published results have runs of several. All runs of each log "
        "the same keys."
    )
    fix = "Repeat the runs that differ. If the code was only moved, say so in its README."
    good = (lambda package: package().edit(3, lambda log: log.meta("run_stop", "file", "/other/place/train.py")),)
    bad = (lambda package: package().edit(3, lambda log: log.meta("run_stop", "file", "train_fast.py")),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        runs = [run for run in results.runs if run.keys and not run.damage]
        yield from self._compare_marks(runs)
        groups = _group_runs((run for run in runs if run.verdict != FAIL), lambda run: run.keys)
        usual = max(groups, key=len, default=[])
        for odd in groups:
            lacking = sorted(usual[0].keys - odd[0].keys)
            if lacking and 2 * len(usual) > sum(map(len, groups)):
                message = f"no {listed(lacking, SHOWN)} in {names_of(odd)}; in the other runs there is"
                yield self.finding_in(odd[0], "", message, "the same keys in all runs", NOTE)

    def _compare_marks(self, runs: list[JudgedRun]) -> Iterator[Finding]:
        if not runs or all(run.marks == runs[0].marks for run in runs):
            return
        differing: dict[str, list[list[JudgedRun]]] = {}
        marks = group_pairs((key, (run, (basename(file), line))) for run in runs for key, file, line in run.marks)
        for key, of_key in sorted(marks.items()):
            groups = list(group_pairs((mark, run) for run, mark in of_key).values())
            if len(groups) > 1:
                differing[key] = groups
        for key, groups in list(differing.items())[:1]:
            texts = _list_groups(groups, partial(_describe_mark, key))
            others = f"; likewise {len(differing) - 1} more keys" if len(differing) > 1 else ""
            message = f"runs of different code: {key} was written by {texts}{others}"
            yield self.finding_in(min(groups, key=len)[0], key, message, "the same file and line in all runs")


def _describe_mark(key: str, run: JudgedRun) -> str:
    file, line = next((file, line) for marked, file, line in run.marks if marked == key)
    return f"{basename(file)}, line {line}"


def _start_of(name: str) -> Callable[[JudgedRun], str]:
    """Return the function that gives the first characters of a version, or of a hash."""
    return lambda run: run.software[name][:SHOWN_CHARACTERS]


def _by_version(runs: list[JudgedRun], name: str) -> list[list[JudgedRun]]:
    """Return the runs that state the version of something, grouped by it."""
    return _group_runs((run for run in runs if name in run.software), lambda run: run.software[name])


def _group_runs(runs: Iterable[JudgedRun], identify: Callable[[JudgedRun], Hashable]) -> list[list[JudgedRun]]:
    """Return the runs grouped by what is the same in them."""
    return list(group_pairs((identify(run), run) for run in runs).values())


def _list_groups(groups: Iterable[list[JudgedRun]], value: Callable[[JudgedRun], Any]) -> str:
    return "; ".join(f"{show(to_plain(value(runs[0])))} in {names_of(runs)}" for runs in groups)
