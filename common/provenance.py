"""The provenance of a result, for logs and checkpoints: versions, git revision, hash of the sources, host.

It names no person and no machine: no host name, no absolute path.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from common.benchmarks import ROOT, SHARED, find_package, locate_package
from common.programs import ask_program
from common.version import DISTRIBUTION, VERSION

DISTRIBUTIONS: Final = (DISTRIBUTION, "torch", "numpy", "mlperf-logging")


def collect_provenance(packages: Sequence[str]) -> dict[str, Any]:
    """Return all facts of this module as plain values; packages: those whose sources produced the result.

    The revision is that of the suite; of a benchmark from outside, the version of its distribution is stated.
    """
    benchmarks = (find_package(name) for name in packages if name not in SHARED)
    plugins = [benchmark.distribution for benchmark in benchmarks if benchmark and benchmark.distribution]
    return {
        "versions": list_versions((*DISTRIBUTIONS, *plugins)),
        "git_revision": git_revision(),
        "source_sha256": source_hash(packages),
        "host": host(),
    }


def list_versions(names: Sequence[str] = DISTRIBUTIONS) -> dict[str, str | None]:
    """Return the versions of Python and of distributions, None for one that is not installed; imports none of them.

    That of the suite is the one of these sources, installed or not.
    """
    numbers: dict[str, str | None] = {"python": platform.python_version(), **dict.fromkeys(names)}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            numbers[name] = VERSION if name == DISTRIBUTION else importlib.metadata.version(name)
    return numbers


def git_revision(root: Path = ROOT) -> str | None:
    """Return the commit checked out at `root`, with "-dirty" when tracked files differ from it.

    None outside a repository, before the first commit and without git; never fails.
    """
    # A virtual environment may lie in the repository of something else, which tracks no file of the suite.
    if not _ask_git(root, "ls-files"):
        return None
    revision = _ask_git(root, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40") or ""
    return revision if re.fullmatch("[0-9a-f]{40}(-dirty)?", revision) else None


def source_hash(packages: Sequence[str], root: Path | None = None) -> str:
    """Return the SHA-256 over names and contents of the packages' Python files, sorted by name.

    root: the folder that has them; default: where each of them is. Raises FileNotFoundError for a package without
    files: its hash would be meaningless.
    """
    tops = {name: (root or locate_package(name).parent) for name in packages}
    files = {
        path.relative_to(top).as_posix(): path for name, top in tops.items() for path in (top / name).rglob("*.py")
    }
    return hash_files(packages, files, lambda name: files[name].read_bytes())


@cache
def _describe_own_tree() -> str | None:
    """Return the commit of these sources, as `git_revision`; "" if there are files that no commit has."""
    others = _ask_git(ROOT, "ls-files", "--others", "--exclude-standard", "--", "*.py")
    return git_revision() if others == "" else others and ""


@lru_cache(maxsize=16)
def hash_revision(packages: Sequence[str], revision: str) -> str | None:
    """Return the hash of the packages at a git revision if that is checked out here, unchanged; else None."""
    if revision != _describe_own_tree() or not re.fullmatch("[0-9a-f]{40}", revision):
        return None
    return source_hash(packages)


def hash_files(packages: Sequence[str], names: Iterable[str], read_file: Callable[[str], bytes]) -> str:
    """Return the hash of those of the files that are Python files of the packages, as `source_hash`.

    names: with forward slashes, a package's files below its name. Raises FileNotFoundError as that, and what
    `read_file` raises.
    """
    digest, files = hashlib.sha256(), sorted(name for name in names if name.endswith(".py"))
    for package in sorted(set(packages)):
        of_package = [name for name in files if name.startswith(f"{package}/")]
        if not of_package:
            raise FileNotFoundError(f"no Python files of package {package!r}")
        for name in of_package:
            content = read_file(name)
            # The length separates a file's content from the next name.
            digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
            digest.update(content)
    return digest.hexdigest()


def host() -> dict[str, Any]:
    """Return the kind of machine: CPU model, logical cores, and those that this process may use."""
    from common.processes import usable_cores  # which needs a package, as other functions here do not

    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "machine": platform.machine(),
        "system": platform.system(),
    }


def shown_path(path: Path) -> str:
    """Return a relative path unchanged, and only the last part of an absolute one, which may name a user or machine."""
    return path.name if path.is_absolute() else path.as_posix()


def _ask_git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, None where it is not installed or fails."""
    # A hook's GIT_DIR would lead to another repository; reading must not lock the index.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    answer = ask_program("git", "-C", str(root), *arguments, environment=environment)
    return None if answer.problem else answer.output.strip()


def _cpu_model() -> str:
    """Return the processor's name, or the architecture where Linux does not give it (ARM)."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    match = re.search(r"^model name\s*:(.*)", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()
