"""Rules about a submission folder: layout, names, system descriptions."""

from __future__ import annotations

import difflib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Final

from common.reference import FIRST_RUNS_MS
from common.rounds import HPC, TRAINING, find_round, find_usage, label_round, sort_versions
from compliance.benchmarks import names_in_words
from compliance.model.judging import ERROR, NOTE, WARNING, Finding, few, first_text
from compliance.model.layout import POWER, PRUNED, STRONG, WEAK, list_results
from compliance.model.package import Package
from compliance.model.package_files import FOLDER
from compliance.model.result_set import ResultSet
from compliance.model.system import (
    MAX_DESCRIPTION_BYTES,
    NUMBERS,
    STATUSES,
    SystemDescription,
    is_blank,
    is_placeholder,
)
from compliance.rules.repository import LEFT_OVER
from compliance.rules.rule import PackageRule, show

STRUCTURE = "submission_rules.adoc#submission-structure"
DESCRIPTION = "submission_rules.adoc#system-description"
UNCHECKED = "the official tools check no description in round 0.7"

FIELDS = tuple(
    "submitter division status system_name number_of_nodes host_processors_per_node host_processor_model_name "
    "host_processor_core_count host_processor_vcpu_count host_processor_frequency host_processor_caches "
    "host_processor_interconnect host_memory_capacity host_storage_type host_storage_capacity host_networking "
    "host_networking_topology host_memory_configuration accelerators_per_node accelerator_model_name "
    "accelerator_host_interconnect accelerator_frequency accelerator_on-chip_memories "
    "accelerator_memory_configuration accelerator_memory_capacity accelerator_interconnect "
    "accelerator_interconnect_topology cooling hw_notes framework other_software_stack operating_system "
    "sw_notes".split()
)
"""The 33 fields that a system description must have."""
JOINED = tuple(
    "submitter system_name host_processor_model_name host_processor_core_count accelerator_model_name "
    "accelerators_per_node framework".split()
)
"""Fields that must be text, or the official system description checker crashes."""
SYSTEM_TYPE = "system_type"
TYPE_FIX = f'Write "{SYSTEM_TYPE}": "datacenter".'
TRAINING_LAYOUT: Final = "Arrange results/<system>/<benchmark>/result_<i>.txt and systems/<system>.json."
FIRST_WITH_STATUS: Final = "4.0"
TRAINING_STATUSES: Final = (
    "Available on-premise",
    "Available cloud",
    "Research, Development, or Internal (RDI)",
    "Preview",
)
"""What the committee's checker accepts since this round of MLPerf Training: system_desc_checker.py."""
SYSTEM_TYPES = ("datacenter", "edge", "datacenter,edge", "edge,datacenter")
NEVER_EMPTY = tuple("submitter division status system_name number_of_nodes accelerators_per_node framework".split())


class Layout(PackageRule):
    """The results are where the layout of the round requires them."""

    id = "PKG01"
    cite = STRUCTURE
    why = "The official tool crashes on an unexpected folder, or checks nothing in it and reports success."
    fix = "Arrange results/<system>/{strong,weak}/<benchmark>/result_<i>.txt (round 0.7: no strong/weak) and systems/."
    differs = (
        "the official tool accepts a flat layout in any round without checking it; it crashes on folders with the name"
        " of a log, a system description or a parameter file (strict: a warning)"
    )
    bad = (
        lambda package: package().move("results/example_n64/strong/cosmoflow", "results/example_n64/medium/cosmoflow"),
    )

    def check(self, package: Package) -> Iterator[Finding]:
        for path, why in package.crashes:
            message = f"the official tool ends with a traceback: {os.path.basename(path)} {why}"
            severity = WARNING if package.strict else ERROR
            yield self.finding(path, 0, message, "a file in UTF-8, and no folder of that name", severity=severity)
        yield from self._find_missing(package)
        for folder, expected in package.unexpected if package.strict else ():
            name = os.path.basename(folder)
            fix = advise_rename(name, find_near(name, (STRONG, WEAK)))
            below = {os.path.basename(results.folder) for results in package.sets if results.folder_benchmark == name}
            if swapped := sorted(below & {STRONG, WEAK}):
                fix = f"Swap the two levels: move {name}/{swapped[0]} to {swapped[0]}/{name}."
            yield self.finding(folder, 0, f"layout: unexpected folder {name!r}", expected, fix=fix)
        if package.strict:
            yield from self._check_depth(package)

    def _find_missing(self, package: Package) -> Iterator[Finding]:
        """Yield the folders that every package has and this one lacks."""
        for folder in package.missing:
            name = os.path.basename(folder)
            results = name == "results"
            if not results and not package.strict:
                continue  # it misses single descriptions: PKG04
            folders = [entry.name for entry in package.contents if entry.kind == FOLDER and not entry.folder]
            near = next((other for other in folders if find_near(other, [name])), "") if package.strict else ""
            more = first_text(((near, f", but {near!r}"), (results, ": the number of runs is 0")))
            message, fix = f"layout: there is no folder {name!r}{more}", advise_rename(near, name)
            fix = fix or (TRAINING_LAYOUT if find_usage(package.round) == TRAINING else "")
            incomplete = results and package.strict and not near
            yield self.finding(folder, 0, message, "results/ and systems/", fix=fix, incomplete=incomplete)

    def _check_depth(self, package: Package) -> Iterator[Finding]:
        """Yield what is wrong with the folders around the package, and between results/ and the logs."""
        name = os.path.basename(package.root)
        if name == os.path.basename(os.path.dirname(os.path.abspath(package.root))):
            message = f"layout: the package lies in a folder of its own name: {name}/{name}"
            fix = f"Submit {name}/{name} alone, not the outer folder: there it is one level too deep."
            yield self.finding(package.root, 0, message, f"{name}/results", severity=NOTE, fix=fix)
        late = [r for results in package.sets for r in results.runs if (r.start_ms or 0) > FIRST_RUNS_MS["1.0"]]
        results_folder = posixpath.join(package.root, "results")
        flat_round, of_hpc = find_round(package.round).flat, find_usage(package.round) == HPC
        if package.flat and (not flat_round or (late and of_hpc)):
            why = f"round {package.round}" if not flat_round else "runs after round 0.7"
            message = f"layout: results/<system>/<benchmark> without strong or weak, but {why}"
            folder = os.path.dirname(package.sets[0].folder) if package.sets else results_folder
            fix = "Move the results to results/<system>/strong/<benchmark>/, those of throughput to weak/."
            yield self.finding(folder, 0, message, "strong/ or weak/ in between", fix=fix)
        if flat_round and not package.flat and package.sets:
            message = f"layout: round {label_round(package.round)} has no strong or weak folders"
            expected = "results/<system>/<benchmark>"
            yield self.finding(results_folder, 0, message, expected, fix="" if of_hpc else TRAINING_LAYOUT)
        if not package.sets and not package.missing:
            message = "layout: no result folder found: the number of runs is 0"
            files = any(entry.kind != FOLDER and entry.path.startswith("results/") for entry in package.contents)
            yield self.finding(results_folder, 0, message, "results/<system>/…/<benchmark>", incomplete=not files)


def find_near(name: str, names: Iterable[str]) -> str:
    """Return the one of the names that is probably meant, "" if none is alike."""
    folded = name.strip().casefold()
    alike = [other for other in names if other.startswith(folded) or folded.startswith(other)]
    return next(iter(alike or difflib.get_close_matches(folded, list(names), 1)), "") if folded else ""


def advise_rename(old: str, new: str) -> str:
    """Return the fix for a wrong name, "" if one of the names is unknown."""
    return f"Rename {old} to {new}." if old and new else ""


class BenchmarkFolders(PackageRule, strict_only=True):
    """Each result folder has the name of a benchmark of the round."""

    id = "PKG02"
    cite = STRUCTURE
    differs = "the official tool skips an unknown folder with a warning"
    why = "The contents of an unknown folder would not be checked at all."
    fix = f"Name the folder {names_in_words()}, in lower case."
    bad = (lambda package: package().rename_folder("resnet"),)

    def check(self, package: Package) -> Iterator[Finding]:
        benchmarks = package.benchmarks
        if not benchmarks and find_usage(package.round) == TRAINING:
            return  # without rule files, as COM01 says of each log
        for results in package.sets:
            name = results.folder_benchmark
            if name not in benchmarks and not (results.plugin and name == results.benchmark):
                message = f"unknown benchmark folder {name!r} in round {label_round(package.round)}"
                fix = advise_rename(name, find_near(name, benchmarks))
                if not fix and find_usage(package.round) == TRAINING:
                    fix = "Name the folder as the committee names the benchmark, in lower case."
                yield self.finding(results.folder, 0, message, " or ".join(benchmarks), fix=fix)


class FileNames(PackageRule):
    """Result folders contain files result_<i>.txt and nothing else."""

    id = "PKG03"
    severity = WARNING
    cite = STRUCTURE
    why = "Only files of this name are read: a run with another name is not counted."
    fix = "Rename logs to result_<i>.txt; move everything else out of the results folder."
    bad = (lambda package: package().rename_runs("result_{}.txt.gz"),)

    def check(self, package: Package) -> Iterator[Finding]:
        for results in package.sets:
            for run in results.all_runs:
                name = os.path.basename(run.path)
                if name.endswith(".gz"):
                    message = f"the committee's checker does not read {name}: it is compressed"
                    fix = "Unpack the logs: gunzip result_*.txt.gz"
                    yield self.finding(run.path, 0, message, name.removesuffix(".gz"), "", ERROR, fix)
                elif name.endswith(".txt.txt"):
                    right = name.removesuffix(".txt")
                    message = f"file names: {name} has the extension twice; Windows hides one"
                    yield self.finding(run.path, 0, message, right, fix=f"Rename {name} to {right}.")
            yield from few(self._check_names(results))

    def _check_names(self, results: ResultSet) -> Iterator[Finding]:
        severity = ERROR if results.missing_runs else WARNING  # then these are the missing runs
        misnamed, copies = results.misnamed_logs, results.copies_of_missing
        for path in results.other_files:
            name, is_folder = os.path.basename(path), os.path.isdir(path)
            message, expected = f"file names: unexpected{' folder' if is_folder else ''} {name!r}", "result_<i>.txt"
            if path in misnamed:
                first = os.path.basename(misnamed[0])
                number = re.search("[0-9]+", first)
                right = f"result_{number[0] if number else '<i>'}.txt"
                fix = f"Rename them, such as {first} to {right}."
                if os.path.isdir(misnamed[0]):
                    inside = [os.path.basename(log) for log in list_results(misnamed[0])]
                    right = inside[0] if len(inside) > 1 else right
                    up = f"Move the logs up, such as {first}/{''.join(inside[:1])} to {right}."
                    fix = up if inside else f"Copy {right} again: there is an empty folder in its place."
                yield self.finding(path, 0, message, expected, "", severity, fix)
            elif run := copies.get(path):
                yield self.finding(
                    path,
                    0,
                    f"{name!r} may be a copy of {run}, unfinished or under another name",
                    run,
                    severity=severity,
                    fix=f"Copy {run} again from the machine that wrote it, compare the sizes, and move {name!r} away.",
                )
            elif near := find_near(name, (PRUNED, POWER) if is_folder else ()):
                yield self.finding(path, 0, f"{message}: did you mean {near!r}?", near, fix=advise_rename(name, near))
            elif not LEFT_OVER.fullmatch(name):  # PKG32
                yield self.finding(path, 0, message, expected)


class Described(PackageRule):
    """Every system with results has a readable system description, and there are no unused descriptions."""

    id = "PKG04"
    cite = DESCRIPTION
    why = "Without it division and size of the system are unknown; the official tool crashes."
    fix = "Write systems/<system>.json, named after the folder of its results; `mlperf-hpc submit system` makes one."
    differs = (
        "strict also warns about descriptions without results; the official tool crashes on a byte order mark and on"
        " bytes that are not UTF-8 (strict: a warning)"
    )
    bad = (lambda package: package().remove("systems/example_n64.json"),)

    def check(self, package: Package) -> Iterator[Finding]:
        used = dict.fromkeys(r.system for r in package.sets if package.strict or not r.unchecked or not package.flat)
        missing = [system for system in used if system not in package.descriptions]
        unused = [name for name in package.descriptions if name not in used]
        renamed = package.strict and len(missing) == len(unused) == 1
        for system in missing:
            path = posixpath.join(package.root, "systems", f"{system}.json")
            message, fix = f"system json missing: no description of {system}", ""
            if renamed and system != system.strip():
                path = posixpath.join(package.root, "results", system)
                message = f"the folder {system!r} ends with a blank"
                fix = advise_rename(repr(system), repr(system.strip()))
            elif renamed:
                path = package.descriptions[unused[0]].path
                message = f"this system json belongs to no result, and {system} has none"
                fix = advise_rename(f"systems/{unused[0]}.json", f"systems/{system}.json")
            elif elsewhere := [entry.path for entry in package.contents if entry.name == f"{system}.json"]:
                fix = f"Move {elsewhere[0]} to systems/{system}.json."
            cause = "PKG01" if package.missing else ""
            yield self.finding(path, 0, message, f"systems/{system.strip()}.json", fix=fix, cause=cause)
        for name, description in package.descriptions.items():
            if description.problem:
                message = f"system json {description.problem}"
                fix = f"{description.fix.rstrip('.') or 'Correct it'}; `python -m json.tool FILE` checks it."
                yield self.finding(description.path, description.line, message, "a JSON object", fix=fix)
            elif description.encoding:
                message = f"system json {description.encoding}: the official tool cannot read it"
                severity = WARNING if package.strict else ERROR
                yield self.finding(description.path, 1, message, "UTF-8 without a byte order mark", severity=severity)
            elif package.strict and name in unused and package.sets and not renamed:
                message, fix = "system description without results", "Delete it, or add the results of this system."
                yield self.finding(description.path, 0, message, "results of this system", "", WARNING, fix)


class DescriptionFields(PackageRule):
    """A system description has all 33 fields."""

    id = "PKG05"
    cite = DESCRIPTION
    why = "The published tables and comparisons are made from them."
    fix = "Add the missing fields; use empty text where nothing applies (no accelerator, for example)."
    differs = UNCHECKED
    bad = (lambda package: package().system(cooling=None),)

    def check(self, package: Package) -> Iterator[Finding]:
        for description in _find_incomplete(package):
            missing = [name for name in FIELDS if name not in description.fields]
            unknown = {name.lower(): name for name in description.fields if name not in (*FIELDS, SYSTEM_TYPE)}
            for name in tuple(missing) if 0 < len(unknown) < 100 else ():  # with more, another kind of file
                for near in difflib.get_close_matches(name, unknown, 1, 0.85):
                    missing.remove(name)
                    wrong = unknown.pop(near)
                    text = package.tree.begin(description.path, MAX_DESCRIPTION_BYTES).decode(errors="replace")
                    line = text.count("\n", 0, text.find(f'"{wrong}"')) + 1
                    message = f"unknown field {show(wrong)} in the system json: is {name} meant, which is missing?"
                    yield self.finding(description.path, line, message, name, wrong, fix=advise_rename(wrong, name))
            if missing:
                message = f"missing in the system description: {', '.join(missing)}"
                yield self.finding(description.path, 0, message, f"all {len(FIELDS)} fields")


class DescriptionTypes(PackageRule):
    """The fields of a system description are text; counts are whole numbers as text, and quantities have a unit."""

    id = "PKG06"
    cite = DESCRIPTION
    why = "The official tools crash on other types, and the score needs the counts."
    fix = 'Put the value in quotes, such as "number_of_nodes": "16".'
    differs = (
        "strict warns about numbers without quotes; the official tool crashes on some, and never reads counts; "
        + UNCHECKED
    )
    good = (lambda package: package().system(number_of_nodes="16 ", accelerators_per_node="4 (two boards of 2)"),)
    bad = (lambda package: package().system(accelerators_per_node=4),)

    def check(self, package: Package) -> Iterator[Finding]:
        for description in _find_incomplete(package):
            wrong = {name: value for name, value in description.fields.items() if not isinstance(value, str)}
            for name, value in wrong.items():
                may_be_list = name == "other_software_stack" and isinstance(value, (dict, list))
                if name in JOINED or (package.strict and name in FIELDS and not may_be_list):
                    number = isinstance(value, (int, float)) and not isinstance(value, bool)
                    severity = WARNING if package.strict and number else ERROR
                    message = f"type of {name} in the system json is not text: {show(value)}"
                    yield self.finding(description.path, 0, message, "text in quotes", name, severity)
            for name, example in NUMBERS.items() if package.strict else ():
                if not description.has_number(name):
                    message, expected = f"{name} is {show(description.fields[name])}", f"a number, such as {example}"
                    fix = f'Write the number in digits, and its unit if it has one, such as "{name}": "{example}".'
                    yield self.finding(
                        description.path, 0, message, expected, name, ERROR if example.isdecimal() else WARNING, fix
                    )


class DescriptionValues(PackageRule, strict_only=True):
    """A system description names an existing division, status and type, no member twice, and leaves no field empty."""

    id = "PKG07"
    cite = f"{DESCRIPTION}; RFC 8259 section 4 (names within an object should be unique)"
    differs = (
        "the official tool takes any division except exactly `closed` as open, and then skips seed and RCP checks; it"
        " silently takes the last of repeated members, and does not check `system_type`"
    )
    why = (
        "A mistyped division would switch off the checks of the closed division. Of repeated members readers take"
        " different ones, so the system could be in both divisions, or have two sizes."
    )
    fix = 'Write "division": "closed" or "open", in lower case, and a status such as onprem.'
    good = (lambda package: package().system(system_type="datacenter"),)
    bad = (lambda package: package().system(division="Closed"),)

    def check(self, package: Package) -> Iterator[Finding]:
        for description in readable(package):
            for member in description.repeated:
                values = "the same value" if member.same else "two values"
                message = f"the system json names {show(member.name)} twice, with {values}"
                severity, fix = WARNING if member.same else ERROR, "Keep the right one."
                yield self.finding(
                    description.path, member.line, message, "each member once", member.name, severity, fix
                )
            fields = description.fields
            division = fields.get("division", "open")
            status = str(fields.get("status", "onprem")).strip().lower()
            is_status = not status or status in STATUSES or is_placeholder(status)
            system_type = fields.get(SYSTEM_TYPE, "")
            is_type = isinstance(system_type, str) and system_type.replace(" ", "") in ("", *SYSTEM_TYPES)
            is_type = is_type or package.round == "0.7" or is_placeholder(str(system_type))
            empty = [name for name in FIELDS if isinstance(fields.get(name), str) and is_blank(fields[name])]
            needed = [name for name in empty if name in NEVER_EMPTY]
            yield from (
                self.finding(
                    description.path, 0, message, expected, key, severity, TYPE_FIX if key == SYSTEM_TYPE else ""
                )
                for applies, message, expected, key, severity in (
                    (
                        division not in ("closed", "open"),
                        f"division in the system json is {show(division)}",
                        "'closed' or 'open'",
                        "division",
                        ERROR,
                    ),
                    (
                        not is_status,
                        f"status in the system json is {show(fields.get('status'))}",
                        "cloud, onprem, preview or research",
                        "status",
                        WARNING,
                    ),
                    (
                        not is_type,
                        f"{SYSTEM_TYPE} in the system json is {show(system_type)}",
                        "datacenter or edge",
                        SYSTEM_TYPE,
                        NOTE,
                    ),
                    (needed, f"empty in the system json: {', '.join(needed)}", "a value", "", WARNING),
                    (
                        empty and not needed,
                        f"{len(empty)} fields of the system json are empty: {', '.join(empty)}",
                        "a value where one applies",
                        "",
                        NOTE,
                    ),
                )
                if applies
            )


class StatusOfTraining(PackageRule):
    """A system description states a status that the committee's checker knows, since round 4.0 of MLPerf Training."""

    id = "COM03"
    cite = "mlperf-logging: system_desc_checker.py"
    why = "The committee's checker refuses the whole package otherwise; it compares letter by letter."
    fix = 'Write "status" in the system description exactly as one of these, such as "Available on-premise".'
    differs = "not at all"
    rounds = ()  # of HPC: PKG07

    def check(self, package: Package) -> Iterator[Finding]:
        version = find_round(package.round).version
        if sort_versions([version, FIRST_WITH_STATUS])[0] != FIRST_WITH_STATUS:
            return
        for description in readable(package):
            status = description.fields.get("status", TRAINING_STATUSES[0])
            if status not in TRAINING_STATUSES:
                message, expected = f"status in the system json is {show(status)}", " or ".join(TRAINING_STATUSES)
                yield self.finding(description.path, 0, message, expected, "status")


class ThroughputNeedsTimeToTrain(PackageRule, strict_only=True):
    """A throughput result comes with a time-to-train result of the same benchmark."""

    id = "PKG09"
    cite = "hpc_training_rules.adoc#results (throughput needs a time-to-train result)"
    differs = "the official tool does not require one"
    why = "Throughput alone does not tell how fast one model trains."
    fix = "Add results/<system>/strong/<benchmark>/."
    good = (lambda package: package(scaling="weak").with_time_to_train(),)
    bad = (lambda package: package(scaling="weak"),)

    def check(self, package: Package) -> Iterator[Finding]:
        timed = {results.benchmark for results in package.sets if results.scaling == STRONG}
        for results in package.sets:
            if results.scaling == WEAK and results.benchmark not in timed:
                message = f"throughput without a time-to-train result of {results.folder_benchmark}"
                yield self.finding(results.folder, 0, message, "a strong result of the same benchmark")


class NoBypass(PackageRule, strict_only=True):
    """No parameter file switches checks off."""

    id = "PKG11"
    severity = WARNING
    cite = "package_checker of mlcommons/logging (package_checker_params); verify_for_v3.0_hpc.sh"
    differs = "the official tool obeys such a line if it is the last one and has no line ending"
    why = "Reviewers must see that a check was switched off."
    fix = "Remove the file and pass --waivers with a reason that the committee has agreed to."

    bad = (lambda package: package().file("package_checker_params", "rcp-bypass\n"),)

    def check(self, package: Package) -> Iterator[Finding]:
        for bypass in package.bypasses:
            yield self.finding(
                bypass.path, bypass.line, f"asks to switch off a check: {show(bypass.text)}; not obeyed", "no such line"
            )


def _find_incomplete(package: Package) -> Iterator[SystemDescription]:
    """Yield the readable system descriptions whose fields the profile requires."""
    if package.strict or package.round != "0.7":
        yield from readable(package)


def readable(package: Package) -> Iterator[SystemDescription]:
    """Yield the system descriptions that could be read."""
    return (description for description in package.descriptions.values() if not description.problem)
