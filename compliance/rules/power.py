"""Rules about power files: measuring is optional, but covers all runs of a result and all nodes of a run."""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from common.command import list_some
from common.file_kind import PTDAEMON
from common.record import POWER_START
from common.values import group_pairs, is_integer
from compliance.logs.power import ESTIMATE, equal_readings
from compliance.model.judging import ERROR, FAIL, WARNING, Finding, JudgedRun
from compliance.model.layout import POWER, WEAK, PowerPlace, result_name
from compliance.model.package import Submissions
from compliance.model.result_set import POWER as COPIED_POWER
from compliance.model.result_set import ResultSet
from compliance.rules.rule import SetRule, SubmissionsRule, show

PTDAEMON_NAME = "spl.txt"
"""Of its log, as MLPerf's power measurement calls it."""
RULES_OF_POWER = "power_measurement.adoc"
CHECKER = "power_checker of mlcommons/logging"
UNREAD = "the official package checker does not read the power files"


class EveryRunMeasured(SetRule):
    """If power was measured in one run of a result, it was measured in all of them."""

    id = "POW01"
    cite = f"{RULES_OF_POWER}#measure-all-runs; {CHECKER}"
    why = "The energy of a result is a mean over the same runs as its time: none may be left out."
    fix = "Add power/<result>/ with the files node_<i>.txt and sw_<i>.txt of each run, or remove the folder power/."
    differs = "the official tool accepts one run without power files; strict also warns about folders without a run"
    bad = (lambda package: package("deepcam").power().remove("results/example_n64/strong/deepcam/power/result_2"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        severities, faults = _find_faults(results)
        missing = [name for name, texts in faults.items() if NO_FOLDER in texts]
        if missing:
            message = f"power is missing for {len(missing)} of {len(results.runs)} runs: {list_some(missing)}"
            severity = ERROR if any(severities[name] == ERROR for name in missing) else WARNING
            folder = posixpath.join(results.folder, POWER)
            yield self.finding(folder, 0, message, "a folder of power files for each run", severity=severity)
        measured = {result_name(run.path) for run in results.runs}
        for name, files in (results.power or {}).items() if results.strict else ():
            if name not in measured:
                message = f"power files without a run: there is no {name}.txt"
                yield self.finding(files.folder, 0, message, "a run for each folder", severity=WARNING)
            elif files.others:
                names = [os.path.basename(path) for path in files.others]
                message, fix = f"file names: unexpected {list_some(names)}", ""
                if PTDAEMON_NAME in names:
                    message, fix = f"{message}: {PTDAEMON_NAME} is the name of a log of PTDaemon", PTDAEMON
                yield self.finding(files.folder, 0, message, "node_<i>.txt and sw_<i>.txt", "", WARNING, fix)


class PowerNumbers(SetRule):
    """Power files are numbered from 0 without gaps or repetitions, and all runs of a result have the same number."""

    id = "POW02"
    cite = CHECKER
    why = "A missing or repeated number is a node or switch that was not measured, or was counted twice."
    fix = "Name the files of each run node_0.txt … node_<n-1>.txt and sw_0.txt … sw_<m-1>.txt."
    differs = "the official tool accepts one run with such a fault, and node_0 beside node_00; it crashes on node_a"
    bad = (lambda package: move_power_file(package("deepcam").power(), "node_1.txt", "node_2.txt"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        severities, faults = _find_faults(results)
        for name, texts in faults.items():
            folder = posixpath.join(results.folder, POWER, name)
            expected = "0 to n-1, each once, and the same in all runs"
            yield from (
                self.finding(folder, 0, text, expected, severity=severities[name])
                for text in texts
                if text != NO_FOLDER
            )


class AllNodesMeasured(SetRule, strict_only=True):
    """Each node of a run has its own power file."""

    id = "POW03"
    cite = f"{RULES_OF_POWER}#measure-all-nodes"
    differs = "the official tool compares the numbers of files between runs, not with number_of_nodes"
    why = "Energy of nodes that are not measured is missing; a copied file is not a measurement."
    fix = "Measure every node of the run, as many as number_of_nodes says, each with its own meter or PSU reading."
    good = (lambda package: package("deepcam", scaling="weak").power(),)
    bad = (lambda package: package("deepcam").power().edit(1, lambda log: log.set("number_of_nodes", 16)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        for run, files in _measured_runs(results):
            severity, count = _fault_severity(run), len(files.nodes)
            if not is_integer(run.nodes):
                yield self.skipped(run.path, "the log does not say how many nodes must be measured")
            elif count != run.nodes:
                message = f"number of node files is {count}, but number_of_nodes is {show(run.nodes)}"
                # Throughput logs often state the nodes of the whole system.
                severity = WARNING if results.scaling == WEAK and count else severity
                yield self.finding(files.folder, 0, message, f"{show(run.nodes)} files node_<i>.txt", severity=severity)
            yield from self._find_same_host(run)
        yield from self._find_copied(results)

    def _find_same_host(self, run: JudgedRun) -> Iterator[Finding]:
        logs = run.power.nodes if run.power else ()
        for host, alike in group_pairs((log.host, log) for log in logs if log.host).items():
            if len(alike) > 1:
                names = " and ".join(os.path.basename(log.path) for log in alike[:2])
                message = f"{names} both name the host {host}"
                expected = "a host for each node; none where one host reads all meters"
                yield self.finding(alike[1].path, alike[1].starts.line, message, expected, POWER_START, WARNING)

    def _find_copied(self, results: ResultSet) -> Iterator[Finding]:
        for first, second in results.list_copies(COPIED_POWER):
            severity, how = WARNING, "slightly changed or in another order"
            if equal_readings(first, second):
                owner = next(run for run in results.runs if run.power and second in run.power.nodes)
                severity, how = _fault_severity(owner), "whatever their times"
            message = f"the readings are those of {_run_and_file(first.path)}, {how}"
            yield self.finding(second.path, 0, message, "its own measurement", severity=severity)


class ReadingsOfOneRun(SubmissionsRule, strict_only=True):
    """Power readings belong to one run."""

    id = "POW13"
    cite = f"{RULES_OF_POWER}#measure-all-nodes"
    differs = UNREAD
    why = "The energy of a result is that of its own runs; readings of other runs are not a measurement of these."
    fix = "Measure each run. Submit a result of an earlier round again with its own logs."
    bad = (
        lambda package: (
            package("deepcam").power().copy_to("other_system").edit_all(lambda log: log.replace(run=log.run + 50))
        ),
    )

    def check(self, submissions: Submissions) -> Iterator[Finding]:
        for copies in submissions.list_copies(COPIED_POWER):
            first, second = copies.pairs[0]
            changed = not any(equal_readings(*pair) for pair in copies.pairs)
            message = (
                f"{len(copies.pairs)} power files of {copies.second.name} (round {copies.second.round}) have"
                f" readings of {copies.first.name} (round {copies.first.round}): {_run_and_file(second.path)}"
                f" those of {_run_and_file(first.path)}{', slightly changed or in another order' if changed else ''}"
            )
            severity = WARNING if changed or copies.first.round != copies.second.round else ERROR
            yield self.finding(second.path, 0, message, "a measurement of each run", severity=severity)


def _run_and_file(path: str) -> str:
    return f"{os.path.basename(os.path.dirname(path))}/{os.path.basename(path)}"


class InterconnectCounted(SetRule, strict_only=True):
    """A run on several nodes includes the power of its interconnect."""

    id = "POW04"
    cite = f"{RULES_OF_POWER}#measure-or-estimate-interconnects"
    differs = UNREAD
    why = "Switches use power too; without a file, or with 0 W, they count as zero."
    fix = (
        "Add a file sw_<i>.txt for each switch, with one record interconnect_power_est: its highest specified power in "
        "watts times the share that the run uses, or what was measured."
    )
    good = (lambda package: package("deepcam").power(nodes=1),)
    bad = (lambda package: move_power_file(package("deepcam").power(), "sw_0.txt", "switch.txt"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        for run, files in _measured_runs(results):
            severity = _fault_severity(run)
            if len(files.nodes) > 1 and not files.switches:
                message = f"no power of the interconnect between {len(files.nodes)} nodes"
                yield self.finding(files.folder, 0, message, "a file sw_<i>.txt for each switch", severity=severity)
            switches = run.power.switches if run.power else ()
            estimates = [log.estimate for log in switches if log.estimate is not None]
            if len(files.nodes) > 1 and switches and len(estimates) == len(switches):
                # For each node that the interconnect connects.
                watts, (least, most) = sum(estimates), (bound * len(files.nodes) for bound in (0.1, 100_000))
                if not least <= watts <= most:
                    message = f"switch power adds up to {watts:.4g} W"
                    expected = f"{least:g} to {most:g} W in all"
                    yield self.finding(files.folder, 0, message, expected, ESTIMATE, WARNING if watts else severity)
            for log in switches:
                values = list(log.estimates)
                if not values:
                    yield self.finding(log.path, 0, f"{ESTIMATE} is not logged", "watts", ESTIMATE, severity)
                elif log.estimate is None:
                    line, message = log.estimates[values[0]], f"{ESTIMATE} is {values[0]}"
                    yield self.finding(log.path, line, message, "watts, 0 or more", ESTIMATE, severity)
                elif len(values) > 1:
                    message = f"{ESTIMATE} is logged with different values; the first counts"
                    yield self.finding(log.path, log.estimates[values[1]], message, "one value", ESTIMATE, WARNING)


# -- what the rules share ------------------------------------------------------------------------------------

NO_FOLDER = "has no power folder"


def _measured_runs(results: ResultSet) -> Iterator[tuple[JudgedRun, PowerPlace]]:
    """Yield the runs with power files, and where these are."""
    for run in results.runs:
        files = (results.power or {}).get(result_name(run.path))
        if files is not None:
            yield run, files


def _fault_severity(run: JudgedRun) -> str:
    """Return the severity of a fault: the energy of failing runs does not count."""
    return WARNING if run.verdict == FAIL else ERROR


def move_power_file(package: Any, old: str, new: str) -> Any:
    """Return the sample package with a power file of the first run renamed."""
    folder = "results/example_n64/strong/deepcam/power/result_1"
    return package.move(f"{folder}/{old}", f"{folder}/{new}")


def _find_faults(results: ResultSet) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the severity of the faults of each run, and what is wrong with the names of its power files.

    The official power checker counts a run with a fault as failing, and it accepts one failing run. It blames the wrong
    run for its number of files if an earlier one has no folder, and crashes on a name without number.
    """
    runs, strict = {result_name(run.path): run for run in results.runs}, results.strict
    faults: dict[str, list[str]] = defaultdict(list)
    if results.power is None or (not strict and (results.round == "0.7" or results.benchmark is None)):
        return {}, faults
    names = sorted(runs, key=lambda name: runs[name].path)
    counts: dict[str, list[int]] = {"node": [], "sw": []}
    for name in names:
        in_folder = results.power.get(name)
        if in_folder is None:
            faults[name].append(NO_FOLDER)
            continue
        paths = (*in_folder.nodes, *in_folder.switches, *(() if strict else in_folder.others))
        for kind, file_counts in counts.items():
            files = [file for file in map(os.path.basename, paths) if file.startswith(kind)]
            try:
                numbers = sorted(int(os.path.splitext(file)[0].split("_")[-1]) for file in files)
            except ValueError:
                faults[name].append(f"a {kind} file without a number crashes the official tool")
                return dict.fromkeys(names, ERROR), faults
            if numbers != [*range(len(files))] if strict else not {*numbers} <= {*range(len(files))}:
                faults[name].append(f"the {kind} files are numbered {list_some(numbers)}")
            file_counts.append(len(files))
    counted = [name for name in names if name in results.power] if strict else names
    for kind, file_counts in counts.items():
        usual = max(dict.fromkeys(file_counts), key=file_counts.count, default=0)
        for name, count in zip(counted, file_counts, strict=False):
            if count != usual:
                faults[name].append(f"number of {kind} files is {count}, in most runs it is {usual}")
    if strict:
        return {name: _fault_severity(run) for name, run in runs.items()}, faults
    blamed = {*faults, *(result_name(run.path) for run in results.failing)}
    return dict.fromkeys(names, ERROR if len(blamed) > 1 or not counts["node"] else WARNING), faults
