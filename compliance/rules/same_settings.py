"""Rules about the settings of one result: all runs state the same ones, with the same values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

from common.values import identity, is_stated, plain
from common.version import DISTRIBUTION
from compliance.logs.run import PROVENANCE, SOURCES
from compliance.model.finding import ERROR, FAIL, WARNING, Finding, listed
from compliance.model.judged_run import JudgedRun
from compliance.model.result_set import ResultSet, names_of
from compliance.rules.rule import SetRule, show
from compliance.rules.runs import RESULTS

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
            runs = [run for run in results.runs if is_stated(run.batch_size)]
            groups = _group_runs(runs, lambda run: identity(run.batch_size))
        elif results.round != "0.7" and results.division == "closed":
            groups = _group_by_official_batch_size(results.runs)
        else:
            return
        if len(groups) > 1:
            odd = min(groups, key=len)[0]
            line = odd.lines.get(BATCH_SIZE, 0)
            message = f"batch sizes differ: {_list_groups(groups, lambda run: run.batch_size)}"
            yield self.finding(odd.path, line, message, f"one {BATCH_SIZE}", BATCH_SIZE)


class SameSettings(SetRule, strict_only=True):
    """All runs of a result have the same hyperparameters."""

    id = "RUN07"
    cite = RESULTS
    divisions = ("closed",)
    differs = "the official tool does not compare the runs"
    why = "The runs of a result differ in nothing but the seed."
    fix = "Repeat the runs that differ."
    good = (
        lambda package: package().edit(3, lambda log: log.set("opt_learning_rate_warmup_epochs", 6.0)),
        lambda package: package().edit(3, lambda log: log.set("opt_base_learning_rate", 0.006000000052154064)),
    )
    bad = (lambda package: package().edit(3, lambda log: log.set("opt_base_learning_rate", 0.007)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        for key in dict.fromkeys(key for run in results.runs for key in run.settings):
            if key != BATCH_SIZE:  # RUN06
                yield from self._compare_runs([run for run in results.runs if is_stated(run.settings.get(key))], key)

    def _compare_runs(self, runs: list[JudgedRun], key: str) -> Iterator[Finding]:
        if len({repr(run.settings[key]) for run in runs}) < 2:
            return  # mostly; it saves most of the time
        groups = _group_runs(runs, lambda run: identity(run.settings[key]))
        if len(groups) > 1:
            odd = min(groups, key=len)[0]
            message = (
                f"hyperparameters differ between runs: {key} is {_list_groups(groups, lambda run: run.settings[key])}"
            )
            yield self.finding(odd.path, odd.lines.get(key, 0), message, f"one {key}", key)


class SettingsStated(SetRule, strict_only=True):
    """Every run of a result states the settings that its other runs state."""

    id = "RUN17"
    cite = RESULTS
    differs = "the official package checker crashes where only some runs of a closed result state global_batch_size"
    why = "A run that does not state what the others do cannot be compared with them."
    fix = "Repeat the run. One that died before it logged its settings may be the one run that is allowed to fail."
    bad = (
        lambda package: package().edit(3, lambda log: log.drop("dropout")),
        lambda package: package("oc20").edit(3, lambda log: log.cut("global_batch_size")),
        lambda package: package("oc20", division="open").edit(3, lambda log: log.drop("global_batch_size")),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        stated = {id(run): _stated_settings(run) for run in results.runs}
        keys = sorted({key for settings in stated.values() for key in settings})
        for runs in _group_runs(results.runs, lambda run: stated[id(run)]):
            missing = [key for key in keys if key not in stated[id(runs[0])]]
            if missing:
                contradicts = results.judged_as == "closed" and any(run.verdict != FAIL for run in runs)
                absence = "no settings" if len(missing) == len(keys) else f"no {', '.join(missing)}"
                verb = "states" if len(runs) == 1 else "state"
                message = f"{names_of(runs)} {verb} {absence}; other runs of the result do"
                severity = ERROR if contradicts else WARNING
                yield self.finding(runs[0].path, 0, message, "the same settings in all runs", missing[0], severity)


class SameSoftware(SetRule, strict_only=True):
    """All runs of a result were made by one version of the code, with the same software."""

    id = "RUN20"
    severity = WARNING
    cite = "training_rules.adoc#system-and-framework-must-be-consistent; training_rules.adoc#definitions"
    differs = "the official tool ignores the records of this suite"
    why = "A result is that of one implementation on one system, versions of its software included."
    fix = "Repeat the runs that differ."
    good = (lambda package: package().by_suite().edit(3, lambda log: log.provenance(git_revision="another")),)
    bad = (
        lambda package: package().by_suite().edit(3, lambda log: log.provenance(source_sha256="6" * 64)),
        lambda package: package().by_suite().edit(3, lambda log: log.versions(**{DISTRIBUTION: "0.1.0"})),
        lambda package: package().by_suite().edit(3, lambda log: log.versions(torch="2.0.1")),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        names = dict.fromkeys(name for run in results.runs for name in run.software)
        differing = {name: groups for name in names if len(groups := _by_version(results.runs, name)) > 1}
        code = {name: groups for name, groups in differing.items() if name in (SOURCES, DISTRIBUTION)}
        if code:
            severity = ERROR if results.division == "closed" and not results.loose else WARNING
            yield self._report_differences(code, "the code differs between runs", "one version of the suite", severity)
        others = {name: groups for name, groups in differing.items() if name not in code}
        if others:
            yield self._report_differences(
                others, "the software differs between runs", "the same software for all runs", WARNING
            )

    def _report_differences(
        self, differing: dict[str, list[list[JudgedRun]]], subject: str, expected: str, severity: str
    ) -> Finding:
        parts = [f"{name} is {_list_groups(groups, _start_of(name))}" for name, groups in differing.items()]
        odd = min(next(iter(differing.values())), key=len)[0]
        message = f"{subject}: {listed(parts, SHOWN)}"
        return self.finding(odd.path, odd.lines.get(PROVENANCE, 0), message, expected, PROVENANCE, severity)


def _start_of(name: str) -> Callable[[JudgedRun], str]:
    """Return the function that gives the first characters of a version, or of a hash."""
    return lambda run: run.software[name][:SHOWN_CHARACTERS]


def _by_version(runs: list[JudgedRun], name: str) -> list[list[JudgedRun]]:
    """Return the runs that state the version of something, grouped by it."""
    return _group_runs((run for run in runs if name in run.software), lambda run: run.software[name])


def _stated_settings(run: JudgedRun) -> tuple[str, ...]:
    """Return the keys of the settings that a run states, with the batch size."""
    stated = {BATCH_SIZE: run.batch_size, **run.settings}
    return tuple(key for key, value in stated.items() if is_stated(value))


def _group_runs(runs: Iterable[JudgedRun], identify: Callable[[JudgedRun], Hashable]) -> list[list[JudgedRun]]:
    """Return the runs grouped by what is the same in them."""
    groups: dict[Hashable, list[JudgedRun]] = defaultdict(list)
    for run in runs:
        groups[identify(run)].append(run)
    return list(groups.values())


def _group_by_official_batch_size(runs: list[JudgedRun]) -> list[list[JudgedRun]]:
    """Return the runs whose batch size the official tool takes as different from the first one's, and the others."""
    read = [(run, run.official.batch_size) for run in runs if run.official is not None]
    same = [run for run, size in read if size == read[0][1]]
    others = [run for run, size in read if size != read[0][1]]
    return [group for group in (same, others) if group]


def _list_groups(groups: Iterable[list[JudgedRun]], value: Callable[[JudgedRun], Any]) -> str:
    return "; ".join(f"{show(plain(value(runs[0])))} in {names_of(runs)}" for runs in groups)
