"""Rules about benchmarks/: the code that made the results, and how it is set up and run on each system.

They apply to packages that have this folder. Most published ones have only code, without folders for systems: what is
missing is therefore a warning, and a contradiction an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from common.tree import Tree
from compliance.model.finding import ERROR, NOTE, WARNING, Finding, listed
from compliance.model.layout import BENCHMARKS, IMPLEMENTATIONS, README_FILE, SCRIPTS
from compliance.model.package import Package
from compliance.model.package_files import FILE, FOLDER, PackageEntry
from compliance.model.system import read_description
from compliance.rules.rule import PackageRule, show

CONTENT = "submission_rules.adoc#submission-content, #directory-structure"
NEVER_LOOKS = "the official tool never looks into benchmarks/"
SCRIPT_BYTES = 64 << 10
SCRIPT_ENDS = (".sh", ".sub", ".slurm", ".sbatch", ".pbs", ".lsf", ".bash", "Makefile")


class Code:
    """The folder benchmarks/ of a package.

    folders: by benchmark, the names of the folders beside implementations/. implementations: by benchmark,
    those that contain a file. readmes, scripts: (benchmark, implementation) of those that contain a README, a script.
    results: (benchmark, system) of each result, once.
    """

    def __init__(self, package: Package) -> None:
        self.root = package.root
        self.folders: dict[str, list[str]] = {}
        self.implementations: dict[str, set[str]] = {}
        self.readmes: set[tuple[str, str]] = set()
        self.scripts: set[tuple[str, str]] = set()
        self.results = dict.fromkeys((results.folder_benchmark, results.system) for results in package.sets)
        self.exists = False
        for entry in package.contents:
            top, *parts = entry.path.split("/")
            if top != BENCHMARKS:
                continue
            self.exists = True
            if len(parts) == 1 and entry.kind == FOLDER:
                self.folders[parts[0]] = []
            elif len(parts) == 2 and entry.kind == FOLDER and parts[1] != IMPLEMENTATIONS:
                self.folders[parts[0]].append(parts[1])
            elif len(parts) > 3 and parts[1] == IMPLEMENTATIONS and (entry.kind != FILE or entry.size):
                self._add_implementation(parts[0], parts[2], entry)

    def _add_implementation(self, benchmark: str, name: str, entry: PackageEntry) -> None:
        held = self.implementations.setdefault(benchmark, set())
        if entry.kind == FOLDER:
            return
        held.add(name)
        if entry.name.lower().startswith("readme"):
            self.readmes.add((benchmark, name))
        if entry.name.endswith(SCRIPT_ENDS):
            self.scripts.add((benchmark, name))

    def instructed(self, benchmark: str) -> list[str]:
        """Return the implementations of a benchmark that say themselves how they are run."""
        return sorted(name for owner, name in self.readmes & self.scripts if owner == benchmark)

    def path(self, benchmark: str, *parts: str) -> str:
        """Return the path of something below benchmarks/<benchmark>/."""
        return os.path.join(self.root, BENCHMARKS, benchmark, *parts)

    def described(self) -> Iterator[tuple[str, str]]:
        """Yield (benchmark, system) of each result that has a folder of its system."""
        return ((name, system) for name, system in self.results if system in self.folders.get(name, ()))

    def links(self, benchmark: str, system: str) -> list[SystemLink]:
        """Return the files <system>_<implementation>.json of a system."""
        names = _list_names(self.path(benchmark, system))
        return [
            SystemLink(self.path(benchmark, system, name), name.removeprefix(f"{system}_").removesuffix(".json"))
            for name in names
            if name.startswith(f"{system}_") and name.endswith(".json")
        ]


class SystemLink(NamedTuple):
    """A file that links a result to an implementation; `implementation` is taken from the file's name."""

    path: str
    implementation: str


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


class Implementations(PackageRule, strict_only=True):
    """The code of each benchmark with results is in benchmarks/."""

    id = "PKG08"
    cite = CONTENT
    severity = NOTE
    differs = NEVER_LOOKS
    why = "A result must be reproducible from the submitted code."
    fix = "Add benchmarks/<benchmark>/implementations/<implementation>/ with code and README."
    bad = (
        lambda package: package(),
        lambda package: package().replace("benchmarks/oc20/implementations/torch/README.md", b"x"),
        lambda package: package().replace("benchmarks/cosmoflow/implementations/torch/README.md", b""),
    )

    def check(self, package: Package) -> Iterator[Finding]:
        code = Code(package)
        if not code.exists:
            yield self.finding(package.root, 0, "no folder benchmarks/: the package has no code", "benchmarks/")
            return
        for benchmark in dict.fromkeys(benchmark for benchmark, _ in code.results):
            if not code.implementations.get(benchmark):
                message = f"no implementation of {benchmark}"
                yield self.finding(code.path(benchmark), 0, message, "implementations/<name>/", severity=WARNING)


class Reproducible(PackageRule, strict_only=True):
    """Files in benchmarks/ say how the code of each result is set up and run on its system."""

    id = "PKG25"
    severity = WARNING
    cite = CONTENT
    differs = NEVER_LOOKS
    why = "Others can repeat a run only if they know the commands, from an empty machine to the log."
    fix = "Write README.md, setup.sh, init_datasets.sh, run_and_time.sh; a script may call one in the implementation."
    bad = (
        lambda package: package().code().remove("benchmarks/cosmoflow/example_n64"),
        lambda package: package().code().remove("benchmarks/cosmoflow/example_n64/setup.sh"),
        lambda package: package().code().replace("benchmarks/cosmoflow/example_n64/README.md", b""),
    )

    def check(self, package: Package) -> Iterator[Finding]:
        code = Code(package)
        for benchmark, system in code.results if code.exists else ():
            folder = code.path(benchmark, system)
            expected = ", ".join((README_FILE, *SCRIPTS))
            if not os.path.isdir(folder):
                yield self._misplaced_code(code, benchmark, system)
                continue
            sizes = {name: _file_size(os.path.join(folder, name)) for name in (README_FILE, *SCRIPTS)}
            for part, names in (
                ("missing", [name for name, size in sizes.items() if size is None]),
                ("empty", [name for name, size in sizes.items() if size == 0]),
            ):
                if names:
                    yield self.finding(folder, 0, f"{part}: {', '.join(names)}", expected)

    def _misplaced_code(self, code: Code, benchmark: str, system: str) -> Finding:
        folder, expected = code.path(benchmark, system), f"a folder with {', '.join((README_FILE, *SCRIPTS))}"
        if names := code.instructed(benchmark):
            where = f"{IMPLEMENTATIONS}/: {listed(names, 3)}"
            message = f"the instructions for running {benchmark} on {system} are only in {where}"
            return self.finding(folder, 0, message, expected, severity=NOTE)
        return self.finding(folder, 0, f"no instructions for running {benchmark} on {system}", expected)


class LinkedImplementation(PackageRule, strict_only=True):
    """A file <system>_<implementation>.json links each result to exactly one implementation."""

    id = "PKG26"
    cite = CONTENT
    differs = NEVER_LOOKS
    why = "With several implementations it is unknown which one made the logs, and which files their metadata name."
    fix = (
        'Write benchmarks/<benchmark>/<system>/<system>_<implementation>.json: {"implementation": "<implementation>"}.'
    )
    bad = (
        lambda package: package().code().remove("benchmarks/cosmoflow/example_n64/example_n64_torch.json"),
        lambda package: package().code().remove("benchmarks/cosmoflow/implementations/torch"),
        lambda package: package().code().code("jax"),
        lambda package: package().code().replace("benchmarks/cosmoflow/example_n64/example_n64_torch.json", b"{,}"),
        lambda package: package().code().replace("benchmarks/cosmoflow/example_n64/example_n64_torch.json", b"{}"),
        lambda package: (
            package()
            .code()
            .replace("benchmarks/cosmoflow/example_n64/example_n64_torch.json", b'{"implementation": "jax"}')
        ),
    )

    def check(self, package: Package) -> Iterator[Finding]:
        code = Code(package)
        for benchmark, system in code.described():
            links, folder = code.links(benchmark, system), code.path(benchmark, system)
            expected = f"one file {system}_<implementation>.json"
            if not links:
                message = f"no file links {benchmark} on {system} to an implementation"
                yield self.finding(folder, 0, message, expected, severity=WARNING)
            elif len(links) > 1:
                names = ", ".join(link.implementation for link in links)
                yield self.finding(folder, 0, f"links to {len(links)} implementations: {names}", expected)
            for link in links:
                if link.implementation not in code.implementations.get(benchmark, ()):
                    message = f"implementation {link.implementation!r} does not exist, or is empty"
                    where = f"benchmarks/{benchmark}/{IMPLEMENTATIONS}/{link.implementation}/ with files"
                    yield self.finding(link.path, 0, message, where)
                yield from self._check_stated(link, package.tree)

    def _check_stated(self, link: SystemLink, tree: Tree) -> Iterator[Finding]:
        description = read_description(link.path, tree)
        if description.problem:
            yield self.finding(link.path, description.line, f"the file {description.problem}", "a JSON object")
            return
        for member in description.repeated:
            yield self.finding(
                link.path, member.line, f"names {show(member.name)} twice", "each member once", member.name
            )
        stated = description.fields.get("implementation")
        if stated != link.implementation:
            message = (
                "does not name its implementation" if stated is None else f"names the implementation {show(stated)}"
            )
            severity = WARNING if stated is None else ERROR
            expected = f'"implementation": {show(link.implementation)}'
            yield self.finding(link.path, 0, message, expected, "implementation", severity)


class NoUnusedCode(PackageRule, strict_only=True):
    """Everything in benchmarks/ belongs to a result."""

    id = "PKG27"
    severity = WARNING
    cite = CONTENT
    differs = NEVER_LOOKS
    why = "Reviewers read all code. Code without a result wastes their time, or the result was forgotten."
    fix = "Remove code that made no result, or add the result."
    bad = (
        lambda package: package().code().replace("benchmarks/cosmoflow/implementations/jax/train.py", b"x"),
        lambda package: package().code().replace("benchmarks/cosmoflow/other_n1/setup.sh", b"#!/bin/sh\n"),
        lambda package: package().code().replace("benchmarks/oc20/implementations/torch/train.py", b"x"),
    )

    def check(self, package: Package) -> Iterator[Finding]:
        code = Code(package)
        used: dict[str, set[str]] = {}
        for benchmark, system in code.described():
            used.setdefault(benchmark, set()).update(link.implementation for link in code.links(benchmark, system))
        systems: dict[str, set[str]] = {}
        for benchmark, system in code.results:
            systems.setdefault(benchmark, set()).add(system)
        for benchmark, folders in code.folders.items():
            if benchmark not in systems:
                yield self.finding(code.path(benchmark), 0, f"there is no result of {benchmark}", "code of results")
                continue
            for system in folders:
                if system not in systems[benchmark]:
                    message = f"there is no result of {benchmark} on {system}"
                    yield self.finding(code.path(benchmark, system), 0, message, "systems with results")
            # Without any link, PKG26 reports it.
            for name in sorted(
                code.implementations.get(benchmark, set()) - used[benchmark] if used.get(benchmark) else ()
            ):
                path = code.path(benchmark, IMPLEMENTATIONS, name)
                yield self.finding(path, 0, f"no result was made by the implementation {name!r}", "linked code")


class RunnableScripts(PackageRule, strict_only=True):
    """The scripts in benchmarks/ are text that a shell can run."""

    id = "PKG28"
    severity = WARNING
    cite = CONTENT
    differs = NEVER_LOOKS
    why = "Reviewers read and run the scripts."
    fix = "Start each with a line such as `#!/usr/bin/env bash`, with Unix line endings (dos2unix)."
    bad = (
        lambda package: package().code().replace("benchmarks/cosmoflow/example_n64/setup.sh", b"\x7fELF\0\0\0"),
        lambda package: package().code().replace("benchmarks/cosmoflow/example_n64/setup.sh", b"echo done\n"),
        lambda package: package().code().replace("benchmarks/cosmoflow/example_n64/setup.sh", b"#!/bin/sh\r\nls\r\n"),
    )

    def check(self, package: Package) -> Iterator[Finding]:
        code = Code(package)
        for benchmark, system in code.described():
            yield from self._check_results(package.tree, (code.path(benchmark, system, script) for script in SCRIPTS))

    def _check_results(self, tree: Tree, scripts: Iterable[str]) -> Iterator[Finding]:
        for path in scripts:
            begin = tree.begin(path, SCRIPT_BYTES)
            if b"\0" in begin:
                yield self.finding(path, 0, "the script is binary", "text", severity=ERROR)
            elif begin and not begin.startswith(b"#!"):
                yield self.finding(path, 1, "the script does not name its interpreter", "#!/usr/bin/env bash")
            elif b"\r" in begin.partition(b"\n")[0]:
                message = "the first line ends with a carriage return, so the interpreter is not found"
                yield self.finding(path, 1, message, "Unix line endings")


def _file_size(path: str) -> int | None:
    """Return the size of a file, following links; None if it does not exist."""
    try:
        return os.path.getsize(path) if os.path.isfile(path) else None
    except OSError:
        return None
