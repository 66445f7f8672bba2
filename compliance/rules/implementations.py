"""Rules about benchmarks/: the code that made the results, and how it is set up and run on each system.

They apply to packages that have this folder. Most published ones have only code, without folders for systems: what is
missing is therefore a warning, and a contradiction an error.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from functools import cache, partial
from math import inf
from pathlib import Path

from common.command import list_some
from common.tree import Tree
from common.values import group_pairs
from compliance.logs.run import SOURCES
from compliance.model.judging import ERROR, NOTE, WARNING, Finding
from compliance.model.layout import (
    BENCHMARKS,
    IMPLEMENTATIONS,
    MAX_FILE_BYTES,
    PROVENANCE_FILE,
    README_FILE,
    SCRIPTS,
    is_script,
    name_below,
    write_slashes,
)
from compliance.model.package import (
    ADDED,
    ForeignRecordError,
    Package,
    find_differences,
    read_provenance,
)
from compliance.model.package_files import FILE, LINK, Code
from compliance.model.result_set import ResultSet
from compliance.model.system import read_description
from compliance.rules.rule import PackageRule, show

MARK_FILE = "common/provenance.py"
SAMPLE_CODE = "benchmarks/cosmoflow/implementations/torch"  # of the sample package, as the link
SAMPLE_LINK = "benchmarks/cosmoflow/example_n64/example_n64_torch.json"


class CodeRule(PackageRule, strict_only=True):
    """Base of the rules about benchmarks/."""

    cite = "submission_rules.adoc#submission-content, #directory-structure"
    differs = "the official tool never looks into benchmarks/"


class Implementations(CodeRule):
    """The code of each benchmark with results is in benchmarks/."""

    id = "PKG08"
    follows = ("PKG02", "RUN08")
    severity = WARNING
    why = "A result must be reproducible from the submitted code."
    fix = (
        "Add benchmarks/<benchmark>/implementations/<implementation>/ with code and README. If it is there, but empty,"
        " it may be a Git submodule: git submodule update --init --recursive."
    )
    bad = (lambda package: package().remove("benchmarks"),)

    def check(self, package: Package) -> Iterator[Finding]:
        code = package.code
        if not code.exists:
            yield self.finding(package.root, 0, "no folder benchmarks/: the package has no code", "benchmarks/")
            return
        yield from (
            self.finding(code.path(benchmark), 0, f"no implementation of {benchmark}", "implementations/<name>/")
            for benchmark in dict.fromkeys(benchmark for benchmark, _ in _list_results(package))
            if not code.list_implementations(benchmark)
        )


class SubmittedCode(CodeRule):
    """The code of a result is that which made its logs: by the hash in logs of this suite, else by its files."""

    id = "PKG37"
    follows = ("PKG02", "RUN08", "PKG08")
    cite = "submission_rules.adoc#submission-content; docs/reference/profiles.md (logs of this suite)"
    why = "A result must be reproducible from the submitted code; code other than that submitted may have made it."
    fix = "Submit the sources that made the logs, unchanged: `mlperf-hpc submit assemble --sources DIR` copies them."
    good = (lambda package: package().by_suite().remove("benchmarks"),)
    bad = (lambda package: package().by_suite().replace(f"{SAMPLE_CODE}/cosmoflow/train.py", b""),)

    def check(self, package: Package) -> Iterator[Finding]:
        code, hash_code = package.code, cache(partial(_hash_code, package))
        for results in package.sets if code.exists else ():
            benchmark = results.folder_benchmark
            stated = {run.software[SOURCES] for run in results.all_runs if SOURCES in run.software}
            if not stated:
                yield from self._find_writers(package, results)
                continue
            names = sorted(code.find_linked(benchmark, results.system))
            hashes = {name: hash_code(benchmark, name) for name in names}
            if hashes and stated.isdisjoint(hashes.values()):
                name, actual = next(iter(hashes.items()))
                problem = f"its hash is {show(actual)}" if actual else f"it has no common/ and {benchmark}/ with code"
                message = f"{name} is not the code that made the logs of {results.system}: {problem}"
                path = code.path(benchmark, IMPLEMENTATIONS, name)
                severity = WARNING if results.division == "open" else ERROR
                yield self.finding(path, 0, message, f"{SOURCES} {show(min(stated))}", SOURCES, severity)

    def _find_writers(self, package: Package, results: ResultSet) -> Iterator[Finding]:
        """Yield the lines that wrote records and are not in the code; in all published packages with code they are."""
        top = f"{BENCHMARKS}/{results.folder_benchmark}/"
        paths = group_pairs((posixpath.basename(path), path) for path in _list_files(package) if path.startswith(top))
        marks = group_pairs((posixpath.basename(file), line) for run in results.runs for _, file, line in run.marks)
        writers = {file: max(filter(None, lines), default=0) for file, lines in sorted(marks.items()) if file}
        lengths = {file: [_count_lines(package, path) for path in paths.get(file, ())] for file in writers}
        lacking = [file for file, line in writers.items() if max(lengths[file], default=-1) < line]
        for file in lacking if paths else ():
            what = f"ends before line {writers[file]}" if lengths[file] else "is not in the code"
            message = f"records of {results.system} were written by {file}, which {what}"
            severity = WARNING if len(lacking) < len(writers) else NOTE  # without any of the files it is a sketch
            fix = "Submit the code that made the logs, unchanged, with the files that call mllog."
            yield self.finding(package.code.path(results.folder_benchmark), 0, message, file, "", severity, fix)


def _count_lines(package: Package, path: str) -> float:
    """Return how many lines a file has; as many as one may wish if it cannot be read."""
    try:
        return package.tree.read(posixpath.join(package.root, path), MAX_FILE_BYTES).count(b"\n") + 1
    except OSError:
        return inf


def _hash_code(package: Package, benchmark: str, name: str) -> str:
    """Return the hash of the suite's packages in an implementation; "" if it does not have them."""
    top = f"{BENCHMARKS}/{benchmark}/{IMPLEMENTATIONS}/{name}/"
    files = [path for path in _list_files(package) if path.startswith(top)]
    roots = [path.removesuffix(MARK_FILE) for path in files if path.endswith(f"/{MARK_FILE}")]
    below = min(roots, key=len, default=top)
    root = posixpath.join(package.root, below)
    names = [path.removeprefix(below) for path in files if path.startswith(below)]
    from common.provenance import hash_files  # as in rules.closed

    try:
        return hash_files(("common", benchmark), names, lambda name: package.tree.read(root + name, MAX_FILE_BYTES))
    except OSError:
        return ""


def _list_files(package: Package) -> list[str]:
    return [entry.path for entry in package.contents if entry.kind in (FILE, LINK)]


class UnchangedFiles(PackageRule, strict_only=True):
    """The files of a package are those that its provenance.json lists."""

    id = "PKG38"
    cite = "docs/guide/submit.md"
    differs = "the official tool does not read provenance.json"
    why = "provenance.json says what was there when the package was made; what differs was changed afterwards."
    fix = (
        "Restore the files, or repeat `mlperf-hpc submit assemble`, with `--system` from the package: it records the"
        " package as it is."
    )
    good = (lambda package: package().by_suite().record_files(),)
    bad = (
        lambda package: package().record_files().change(f"{package().folder}/result_3.txt", lambda text: text + b"\n"),
    )

    def check(self, package: Package) -> Iterator[Finding]:
        names = _list_files(package)
        if PROVENANCE_FILE not in names or not package.whole:
            return
        logs = {name_below(package.root, run.path) for results in package.sets for run in results.all_runs}
        try:
            recorded = read_provenance(Path(package.root))
            differences = list(find_differences(package.root, names, recorded, package.tree)) if recorded else []
        except ForeignRecordError:
            return
        except ValueError as error:
            path = posixpath.join(package.root, PROVENANCE_FILE)
            message = write_slashes(str(error)).removeprefix(f"{package.root}/")
            yield self.finding(path, 0, message, "the file as it was assembled", severity=WARNING, fix="Restore it.")
            return
        severities = (NOTE, WARNING, ERROR)  # an added file, an added log or changed file, a changed log
        groups = group_pairs(
            (severities[(difference != ADDED) + (name in logs)], (name, f"{name} {difference}"))
            for name, difference in differences
        )
        for severity, lines in groups.items():
            path = posixpath.join(package.root, lines[0][0])
            message = list_some([line for _, line in lines], 4)
            fix = "Restore the logs." if severity == ERROR else ""
            yield self.finding(path, 0, message, "the file as it was assembled", "", severity, fix)


class Reproducible(CodeRule):
    """Files in benchmarks/ say how the code of each result is set up and run, and a shell can run its scripts."""

    id = "PKG25"
    follows = ("PKG02", "RUN08", "PKG08", "PKG04")
    severity = WARNING
    why = "Others can repeat a run only if they know the commands, from an empty machine to the log."
    fix = "Write README.md, setup.sh, init_datasets.sh, run_and_time.sh; a script may call one in the implementation."
    bad = (lambda package: package().remove("benchmarks/cosmoflow/example_n64"),)

    def check(self, package: Package) -> Iterator[Finding]:
        code = package.code
        for benchmark, system in _list_results(package) if code.exists else ():
            folder = code.path(benchmark, system)
            expected = ", ".join((README_FILE, *SCRIPTS))
            if not os.path.isdir(folder):
                yield self._misplaced_code(code, benchmark, system)
                continue
            paths = {name: posixpath.join(folder, name) for name in (README_FILE, *SCRIPTS)}
            begins = {name: package.tree.begin(path, 64 << 10) for name, path in paths.items()}
            lacking = [name for name, begin in begins.items() if not begin]
            if lacking:
                yield self.finding(folder, 0, f"missing or empty: {', '.join(lacking)}", expected)
            for script in SCRIPTS:
                yield from self._check_script(paths[script], begins[script])

    def _check_script(self, path: str, begin: bytes) -> Iterator[Finding]:
        fix = "Start each with a line such as `#!/usr/bin/env bash`, with Unix line endings (dos2unix)."
        if b"\0" in begin:
            yield self.finding(path, 0, "the script is binary", "text", "", ERROR, fix)
        elif begin and not begin.startswith(b"#!"):
            yield self.finding(path, 1, "the script does not name its interpreter", "#!/usr/bin/env bash", fix=fix)
        elif b"\r" in begin.partition(b"\n")[0]:
            message = "the first line ends with a carriage return, so the interpreter is not found"
            yield self.finding(path, 1, message, "Unix line endings", fix=fix)

    def _misplaced_code(self, code: Code, benchmark: str, system: str) -> Finding:
        folder, expected = code.path(benchmark, system), f"a folder with {', '.join((README_FILE, *SCRIPTS))}"
        # Some implementations say themselves how they are run.
        names = [
            name
            for name, files in code.list_implementations(benchmark).items()
            if any(file.lower().startswith("readme") for file in files) and any(map(is_script, files))
        ]
        if names:
            where = f"{IMPLEMENTATIONS}/: {list_some(sorted(names), 3)}"
            message = f"the instructions for running {benchmark} on {system} are only in {where}"
            return self.finding(folder, 0, message, expected, severity=NOTE)
        return self.finding(folder, 0, f"no instructions for running {benchmark} on {system}", expected)


class LinkedImplementation(CodeRule):
    """A file <system>_<implementation>.json links each result to exactly one implementation."""

    id = "PKG26"
    why = "With several implementations it is unknown which one made the logs, and which files their metadata name."
    fix = (
        'Write benchmarks/<benchmark>/<system>/<system>_<implementation>.json: {"implementation": "<implementation>"}.'
    )
    bad = (lambda package: package().remove(SAMPLE_LINK),)

    def check(self, package: Package) -> Iterator[Finding]:
        code = package.code
        for benchmark, system in _list_described(package):
            links, folder = code.links(benchmark, system), code.path(benchmark, system)
            expected = f"one file {system}_<implementation>.json"
            if not links:
                yield self.finding(
                    folder, 0, f"no file links {benchmark} on {system} to an implementation", expected, severity=WARNING
                )
            elif len(links) > 1:
                yield self.finding(folder, 0, f"links to {len(links)} implementations: {', '.join(links)}", expected)
            for name, path in links.items():
                if name not in code.list_implementations(benchmark):
                    where = f"benchmarks/{benchmark}/{IMPLEMENTATIONS}/{name}/ with files"
                    yield self.finding(
                        path,
                        0,
                        f"implementation {name!r} does not exist, or is empty",
                        where,
                        fix="Put the code there; where it is a Git submodule: git submodule update --init --recursive.",
                    )
                yield from self._check_stated(path, name, package.tree)

    def _check_stated(self, path: str, name: str, tree: Tree) -> Iterator[Finding]:
        description = read_description(path, tree)
        stated = description.fields.get("implementation")
        if description.problem:
            yield self.finding(path, description.line, f"the file {description.problem}", "a JSON object")
        elif stated != name:
            message = (
                "does not name its implementation" if stated is None else f"names the implementation {show(stated)}"
            )
            severity = WARNING if stated is None else ERROR
            yield self.finding(path, 0, message, f'"implementation": {show(name)}', "implementation", severity)


class NoUnusedCode(CodeRule):
    """Everything in benchmarks/ belongs to a result."""

    id = "PKG27"
    follows = ("PKG02", "RUN08", "PKG04", "PKG01")
    severity = WARNING
    why = "Reviewers read all code. Code without a result wastes their time, or the result was forgotten."
    fix = "Remove code that made no result, or add the result."
    bad = (lambda package: package().replace("benchmarks/cosmoflow/implementations/jax/train.py", b"x"),)

    def check(self, package: Package) -> Iterator[Finding]:
        code = package.code
        systems = group_pairs(_list_results(package))
        used = group_pairs(
            (name, link) for name, system in _list_described(package) for link in code.links(name, system)
        )
        for benchmark, folders in code.folders.items() if systems else ():
            if benchmark not in systems:
                yield self.finding(code.path(benchmark), 0, f"there is no result of {benchmark}", "code of results")
                continue
            for system in folders:
                if system not in systems[benchmark]:
                    message = f"there is no result of {benchmark} on {system}"
                    yield self.finding(code.path(benchmark, system), 0, message, "systems with results")
            # Without any link, PKG26 reports it.
            unused = {*code.list_implementations(benchmark)}.difference(used[benchmark]) if benchmark in used else ()
            for name in sorted(unused):
                path = code.path(benchmark, IMPLEMENTATIONS, name)
                yield self.finding(path, 0, f"no result was made by the implementation {name!r}", "linked code")


def _list_results(package: Package) -> dict[tuple[str, str], None]:
    """Return benchmark and system of each result, once."""
    return dict.fromkeys((results.folder_benchmark, results.system) for results in package.sets)


def _list_described(package: Package) -> list[tuple[str, str]]:
    """Return benchmark and system of each result that has a folder of its system in benchmarks/."""
    return [(name, system) for name, system in _list_results(package) if system in package.code.folders.get(name, ())]
