"""provenance.json of a package: the hashes of all its files, and the origin of its results.

`python -m submission.assemble` writes it. The checker compares it with the package: what it lists was there when the
package was made, and nobody has changed it since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from common.datasets.manifest import Manifest, ManifestEntry, ManifestError, describe_file
from common.tree import Tree
from compliance.model.layout import MAX_FILE_BYTES, PROVENANCE_FILE

MISSING: Final = "missing"
ADDED: Final = f"not in {PROVENANCE_FILE}"


class Redaction(msgspec.Struct, frozen=True):
    """What was removed from a log. original_sha256: of the log before. counts: removals by kind."""

    original_sha256: str
    counts: dict[str, int]


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of one log; null for what the log does not contain.

    redaction: null for an exact copy. implementation: folder of the package whose sources have the hash in the log.
    configuration: a key of `Provenance.configurations`. data: from the log; `sha256` is the digest of the manifest of
    the data.
    """

    benchmark: str
    seed: Any
    redaction: Redaction | None
    source_sha256: str | None
    implementation: str | None
    git_revision: str | None
    versions: Any
    host: Any
    configuration: str | None
    data: dict[str, Any]


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of provenance.json. File names are relative to the package's root, with forward slashes.

    incomplete: result sets with too few runs, as `system/scaling/benchmark`: "3 of 10 runs".
    implementations: hash of the suite's sources in each folder of an implementation, null for other code.
    """

    format: int = 1
    organisation: str
    complete: bool
    incomplete: dict[str, str]
    logs: dict[str, LogRecord]
    configurations: dict[str, dict[str, Any]]
    implementations: dict[str, str | None]
    files: dict[str, ManifestEntry]


def read_provenance(root: Path) -> Provenance | None:
    """Return provenance.json of a package, None if there is none; raise ManifestError if it is damaged."""
    path = root / PROVENANCE_FILE
    try:
        return msgspec.convert(json.loads(Tree.at(root).read(path, MAX_FILE_BYTES)), Provenance)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:  # errors of json, UTF-8 and msgspec are ValueErrors
        raise ManifestError(f"{path} is not a valid {PROVENANCE_FILE}: {error}; restore it, or remove it") from error


def find_differences(root: str, names: Iterable[str], recorded: Provenance, tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that is not as recorded, and how it differs, sorted by name; added ones last.

    names: of the files of the package, relative to its root. ManifestError for a record with impossible names.
    """
    files = Manifest(benchmark="", files=recorded.files).files
    for name, entry in sorted(files.items()):
        try:
            actual = describe_file(Path(root, name), tree)
        except FileNotFoundError:
            yield name, MISSING
        except (OSError, ValueError) as error:
            yield name, f"cannot be read: {error}"
        else:
            if actual != entry:
                yield name, f"SHA-256 {actual.sha256}, expected {entry.sha256}"
    yield from ((name, ADDED) for name in sorted({*names} - {*files, PROVENANCE_FILE}))
