"""The folder benchmarks/ of a package: the code that produced the results, and how to run it. And provenance.json.

provenance.json has the hashes of all files of a package, and the origin of its results. It does not depend on time or
place: equal packages have equal files.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final

import msgspec
from tqdm import tqdm

from common.benchmarks import PACKAGES, ROOT, find_package, locate_package
from common.command import list_some
from common.data.manifest import ManifestEntry, describe_file
from common.installed import list_shared_files
from common.provenance import source_hash
from common.reference import FULL
from common.tree import ANYWHERE, Tree
from common.version import DISTRIBUTION
from compliance.benchmarks import find_reference
from compliance.logs.run import PER_RUN, Run, read_run, text_of
from compliance.model.layout import BENCHMARKS, IMPLEMENTATIONS, MAX_FILE_BYTES, PROVENANCE_FILE, discover, name_below
from compliance.model.package import LogRecord, Provenance, Redaction
from submission.assemble.input_logs import AssemblyError, files_below

SHARED: Final = "common"
SETUP_FILES: Final = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.cfg")
"""Files needed to install the suite, besides its packages; setup.cfg puts them into the wheel as well."""

HEAD: Final = """\
#!/usr/bin/env bash
# @title@
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"""
WORK: Final = """\
# WORK: folder for environment, data and runs (default: work, in the current folder).
WORK=${WORK:-$PWD/work}
"""
SETUP: Final = """\
# PYTHON: the interpreter, 3.11 or later. PIP_ARGS: options such as --extra-index-url URL.
mkdir -p "$WORK/code"
"${PYTHON:-python3}" -m venv "$WORK/venv"
cp -R "$here/../implementations/@implementation@/." "$WORK/code"  # because installing writes beside the code
"$WORK/venv/bin/python" -m pip install ${PIP_ARGS:-} --constraint "$WORK/code/constraints.txt" @requirements@
"""
DATA_HEAD: Final = """\
# DATA: folder of the data (default: data in WORK).
DATA=${DATA:-$WORK/data}
"""
MINI_DATA: Final = """\
"$WORK/venv/bin/python" -P -m @benchmark@.synthesize "$DATA" --preset @variant@ --verify
"""
FULL_DATA: Final = """\
if [ ! -d "$DATA" ]; then
  echo "$DATA does not exist: see ../implementations/@implementation@/@benchmark@/README.md" >&2
  exit 1
fi
"""
VERIFY: Final = """\
[ -e "$DATA/manifest.json" ] || "$WORK/venv/bin/python" -P -m @benchmark@.prepare manifest "$DATA"
"$WORK/venv/bin/python" -P -m @benchmark@.prepare verify "$DATA"
"""
RUN: Final = """\
# OUTPUT: folder of the run, for the log result_0.txt. CONFIG: the configuration. LAUNCH: the launcher of the ranks,
# such as LAUNCH="srun -n 64" or LAUNCH="mpirun -n 4". Arguments override the configuration: train.seed=7.
OUTPUT=${OUTPUT:-$WORK/run_$(date +%Y%m%d-%H%M%S)}
CONFIG=${CONFIG:-$here/config.yaml}
${LAUNCH:-} "$WORK/venv/bin/python" -P -m @benchmark@.train "$CONFIG" output_dir="$OUTPUT" data.data_dir="$DATA" "$@"
"""
DELEGATE: Final = """\
exec "$here/../implementations/@implementation@/@script@" "$@"
"""
TITLES: Final = {
    "setup.sh": "Set up the software of @benchmark@ on @system@, once.",
    "init_datasets.sh": "Prepare the data of @benchmark@, once.",
    "run_and_time.sh": "Run @benchmark@ on @system@ once, and write its result log.",
}
README: Final = """\
# @benchmark@ on @system@

The code of the logs in `results/@system@/` is in `benchmarks/@benchmark@/implementations/@implementation@/`.
`provenance.json` has the revision that produced each log, and names that folder if the hash of its sources is the one
in the log.
"""
SUITE_README: Final = """
```
./setup.sh            # install environment and code, once
./init_datasets.sh    # prepare the data, once
./run_and_time.sh     # train one run with a new seed; prints the path of its log at the end
```

`config.yaml` is the configuration from the logs, with all defaults, without @per_run@. Configurations of other
runs are beside it: `CONFIG=config_2.yaml ./run_and_time.sh`. Each script lists at its top the variables that it reads.
"""
OTHER_README: Final = """
The scripts beside this file call those of the implementation. Write those that are missing: `setup.sh` sets up the
software, `init_datasets.sh` prepares the data, `run_and_time.sh` trains one run and writes its log.
"""


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file for the package. name: below the package's root. source: where it comes from, for messages.

    once: written by the first call only, because users may edit it.
    """

    name: str
    source: str
    read: Callable[[], bytes]
    executable: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Implementation:
    """The implementation of one benchmark. root: the folder of its sources. tree: what links may lead to."""

    root: Path
    benchmark: str
    name: str
    tree: Tree = ANYWHERE

    @property
    def folder(self) -> str:
        """The folder of the code, below the package's root."""
        return f"{BENCHMARKS}/{self.benchmark}/{IMPLEMENTATIONS}/{self.name}"

    @property
    def is_suite(self) -> bool:
        """Whether it is this suite, whose scripts are known."""
        return suite_at(self.root, self.benchmark)

    @property
    def folders(self) -> list[Path]:
        """The folders to copy; of the suite only the packages that the benchmark needs."""
        return [self.root / SHARED, self.package] if self.is_suite else [self.root]

    @property
    def package(self) -> Path:
        """The folder of the benchmark's package, which a plug-in has elsewhere than the running suite."""
        return _locate_package(self.root, self.benchmark)

    @property
    def requirements(self) -> list[str]:
        """What pip installs for the suite's scripts: the code, and what a plug-in's distribution needs beside it."""
        if self.benchmark in PACKAGES:
            return [f"$WORK/code[{self.benchmark}]"]
        package = find_package(self.benchmark)
        words = _read_requirements(package.distribution) if package else []
        return ["$WORK/code[train]", *(word for word in words if not word.startswith(DISTRIBUTION))]

    def package_files(self) -> Iterator[PackageFile]:
        """Yield the files to copy. Raises AssemblyError as `find_files` does."""
        for name, path in self.find_files().items():
            executable = path.stat().st_mode & 0o100 != 0
            read = partial(self._tree_of(path).read, path, MAX_FILE_BYTES)
            yield PackageFile(f"{self.folder}/{name}", str(path), read, executable)

    def find_files(self) -> dict[str, Path]:
        """Return the files by name below `folder`, without caches and hidden files.

        Raises AssemblyError if there are none, some are missing or unreadable, links lead out of `root`, or one is too
        large to be code.
        """
        paths = [path for folder in self.folders for path in files_below(folder, self.tree) if self._is_source(path)]
        files = {path.relative_to(self._top_of(path)).as_posix(): path for path in paths}
        if self.is_suite:
            files |= setup_files(self.root)
            missing = [name for name in SETUP_FILES if name not in files]
            if missing:
                raise AssemblyError(
                    f"{self.root} lacks {', '.join(missing)}: expected a checkout of the suite, --sources DIR"
                )
        if not files:
            state = "has no files" if self.root.is_dir() else "is a file"
            raise AssemblyError(f"{self.root} {state}; expected the folder with the code of {self.benchmark}")
        leaving = [path for path in files.values() if self._tree_of(path).leads_out(path)]
        if leaving:
            raise AssemblyError(
                f"links lead out of {self.root}, and what they lead to would be published: {list_some(leaving)}; copy "
                "what belongs to the code, remove the others"
            )
        broken = [path for path in files.values() if not path.is_file()]
        if broken:
            raise AssemblyError(f"cannot read {list_some(broken)}: not a file; fix the link or remove it")
        large = [path for path in files.values() if path.stat().st_size > MAX_FILE_BYTES]
        if large:
            raise AssemblyError(
                f"larger than {MAX_FILE_BYTES >> 20} MiB: {list_some(large)}; expected code, move data elsewhere"
            )
        return files

    def _tree_of(self, path: Path) -> Tree:
        """Return the tree that a file belongs to; those that an installed suite has elsewhere belong to none."""
        return self.tree if path.is_relative_to(self.root) else ANYWHERE

    def _top_of(self, path: Path) -> Path:
        """Return the folder that the name of a file begins below."""
        return self.root if path.is_relative_to(self.root) else self.package.parent

    def _is_source(self, path: Path) -> bool:
        parts = path.relative_to(self._top_of(path)).parts
        hidden = any(part.startswith(".") or part == "__pycache__" or part.endswith(".egg-info") for part in parts)
        return not hidden and path.suffix != ".pyc"


def setup_files(root: Path) -> dict[str, Path]:
    """Return the existing SETUP_FILES by name: those of a checkout, else those installed with the wheel."""
    beside = {name: root / name for name in SETUP_FILES if (root / name).is_file()}
    if beside or root != ROOT:
        return beside
    return {name: path for name, path in list_shared_files().items() if name in SETUP_FILES}


def suite_at(root: Path, benchmark: str) -> bool:
    """Return whether a folder contains the suite's packages for a benchmark."""
    package = _locate_package(root, benchmark)
    return (
        all((folder / "__init__.py").is_file() for folder in (root / SHARED, package))
        and (package / "train.py").is_file()
    )


def suite_hash(root: Path, benchmark: str) -> str | None:
    """Return the hash of the sources in a folder as the suite's logs state it; None for other code."""
    return source_hash((SHARED, benchmark), None if root == ROOT else root) if suite_at(root, benchmark) else None


def _locate_package(root: Path, benchmark: str) -> Path:
    return locate_package(benchmark) if root == ROOT else root / benchmark


def _read_requirements(name: str) -> list[str]:
    """Return what a distribution needs without extras; [] if it is not installed."""
    try:
        return [text for text in distribution(name).requires or () if "extra ==" not in text]
    except (PackageNotFoundError, ValueError):
        return []


def find_implementation(benchmark: str, name: str, sources: Path | None) -> Implementation:
    """Return the implementation of a benchmark in the folder `sources`; None: the running suite."""
    if sources is None:  # installers may link the files of an environment to those of a cache
        return Implementation(ROOT, benchmark, name)
    return Implementation(sources, benchmark, name, Tree.at(sources))


def system_folder(benchmark: str, system: str) -> str:
    """Return the folder with the scripts of a benchmark for a system, below the package's root."""
    return f"{BENCHMARKS}/{benchmark}/{system}"


def system_items(code: Implementation, system: str, variant: str) -> Iterator[PackageFile]:
    """Yield the scripts and README files that set up and run the code on the system; variant: of the problem."""
    names = {"benchmark": code.benchmark, "system": system, "implementation": code.name, "variant": variant}
    folder = system_folder(code.benchmark, system)
    requirements = " ".join(f'"{word}"' for word in code.requirements)

    def fill_template(name: str, text: str, executable: bool = False) -> PackageFile:
        for key, value in (*names.items(), ("per_run", PER_RUN), ("requirements", requirements)):
            text = text.replace(f"@{key}@", value)
        return PackageFile(
            f"{folder}/{name}", "the file that assemble generates", partial(bytes, text.encode()), executable, once=True
        )

    link = names | {"code": f"../{IMPLEMENTATIONS}/{code.name}"}
    yield fill_template(f"{system}_{code.name}.json", json.dumps(link, indent=1) + "\n")
    yield fill_template("README.md", README + (SUITE_README if code.is_suite else OTHER_README))
    verify = VERIFY if (code.package / "prepare.py").is_file() else ""  # which a benchmark need not have
    data = DATA_HEAD + (FULL_DATA + verify if variant == FULL else MINI_DATA)
    bodies = {"setup.sh": SETUP, "init_datasets.sh": data, "run_and_time.sh": DATA_HEAD + RUN}
    for script, body in bodies.items():
        head = HEAD.replace("@title@", TITLES[script])
        if code.is_suite:
            yield fill_template(script, head + WORK + body, executable=True)
        elif (code.root / script).is_file():
            yield fill_template(script, head + DELEGATE.replace("@script@", script), executable=True)


def record_package(
    root: Path,
    earlier: Provenance | None = None,
    redactions: Mapping[str, Redaction | None] = MappingProxyType({}),
    read_runs: Mapping[str, Run] = MappingProxyType({}),
) -> bytes:
    """Return the contents of provenance.json for the package in the folder `root`.

    earlier: the previous provenance.json, for the redactions of logs already in the package. redactions: of new logs,
    by name; None for an exact copy. read_runs: logs that were read before, by name.
    """
    entries = _hash_files(root)
    folders = sorted(root.glob(f"{BENCHMARKS}/*/{IMPLEMENTATIONS}/*/"))
    sources = {path.relative_to(root).as_posix(): suite_hash(path, path.parent.parent.name) for path in folders}
    runs = {name: read_runs.get(name) or read_run(str(root / name)) for name in find_logs(root)}
    logs: dict[str, LogRecord] = {}
    for name, run in runs.items():
        recorded = earlier.logs.get(name) if earlier and earlier.files.get(name) == entries[name] else None
        logs[name] = _record_log(run, sources, redactions.get(name, recorded.redaction if recorded else None))
    stated = [tree for run in runs.values() if (tree := run.details.configuration) is not None]
    missing = find_incomplete(logs)
    provenance = Provenance(
        organisation=root.name,
        complete=not missing,
        incomplete=missing,
        logs=logs,
        configurations=dict(sorted({hash_tree(tree): tree for tree in stated}.items())),
        implementations=sources,
        files=entries,
    )
    # Logs may contain integers of any size and lone surrogates, which only the standard library can write.
    return json.dumps(msgspec.to_builtins(provenance), indent=1).encode() + b"\n"


def _hash_files(root: Path) -> dict[str, ManifestEntry]:
    """Return size and hash of each file of a package."""
    tree = Tree.at(root)
    files = {path.relative_to(root).as_posix(): path for path in files_below(root, tree)}
    files.pop(PROVENANCE_FILE, None)
    bar = tqdm(sorted(files.items()), desc="hashing", unit=" files", disable=None, delay=2)
    return {name: describe_file(path, tree) for name, path in bar}


def find_logs(root: Path) -> list[str]:
    """Return the names of the logs in a package, pruned ones as well, relative to its root."""
    packages = discover([str(root)]).packages if root.is_dir() else []
    log_paths = [path for package in packages for result in package.sets for path in (*result.logs, *result.pruned)]
    return [name_below(root, path) for path in log_paths]


def find_incomplete(logs: Iterable[str]) -> dict[str, str]:
    """Return the result sets with fewer runs than their benchmark requires; logs: names in a package."""
    runs = Counter("/".join(PurePosixPath(name).parts[1:4]) for name in logs if len(PurePosixPath(name).parts) == 5)
    incomplete = {}
    for name, number in sorted(runs.items()):
        reference = find_reference(name.rpartition("/")[2])
        if reference and number < reference.runs:
            incomplete[name] = f"{number} of {reference.runs} runs"
    return incomplete


def hash_tree(tree: Any) -> str:
    """Return the SHA-256 of plain values, independent of the order of keys."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def _record_log(run: Run, sources: Mapping[str, str | None], redaction: Redaction | None) -> LogRecord:
    details = run.details
    stated, configuration = details.source_sha256, details.configuration
    resolved = details.provenance.get("config")
    section = resolved.get("data") if isinstance(resolved, dict) else None
    same = [folder for folder, hash_ in sources.items() if stated is not None and hash_ == stated]
    return LogRecord(
        benchmark=run.benchmark or "",
        seed=run.seed,
        redaction=redaction,
        source_sha256=stated,
        implementation=next((folder for folder in same if f"/{run.benchmark}/" in folder), None),
        git_revision=text_of(details.provenance.get("git_revision")),
        versions=details.provenance.get("versions"),
        host=details.provenance.get("host"),
        configuration=None if configuration is None else hash_tree(configuration),
        data={
            "variant": run.variant,
            "sha256": text_of(details.provenance.get("data_sha256")),
            "data_dir": text_of(section.get("data_dir")) if isinstance(section, dict) else None,
            "train_samples": details.hyperparameters.get("train_samples"),
            "eval_samples": details.hyperparameters.get("eval_samples"),
        },
    )
