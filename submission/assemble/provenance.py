"""provenance.json: the hashes of all files of a package, and the origin of its results.

It does not depend on time or place: equal packages have equal files.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import msgspec
from tqdm import tqdm

from common.data.manifest import ManifestEntry, describe_file
from common.tree import Tree
from compliance.benchmarks import find_reference
from compliance.logs.run import Run, read_run, text_of
from compliance.model.layout import BENCHMARKS, IMPLEMENTATIONS, PROVENANCE_FILE, discover, name_below
from compliance.model.provenance import LogRecord, Provenance, Redaction
from submission.assemble.implementation import suite_hash
from submission.assemble.input_logs import files_below


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
