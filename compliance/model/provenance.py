"""provenance.json of a package: the hashes of all its files, and the origin of its results.

`python -m submission.assemble` writes it. The checker compares it with the package: what it lists was there when the
package was made, and nobody has changed it since.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from common.data.manifest import Manifest, ManifestEntry, ManifestError
from common.tree import Tree, size_text
from compliance.model.layout import MAX_FILE_BYTES, PROVENANCE_FILE

MOST_BYTES: Final = 4 << 30
"""Of all files together that are hashed: sparse files, or many links to one, would take for ever."""
ADDED: Final = "was added after the package was assembled"


class ForeignRecordError(ManifestError):
    """The file is JSON, but not the record of this suite."""


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
    """Return provenance.json of a package, None if there is none.

    Raises ManifestError if it is damaged, and ForeignRecordError if somebody else's program wrote it.
    """
    path = root / PROVENANCE_FILE
    expected = f"is not a valid {PROVENANCE_FILE}"
    try:
        data = json.loads(Tree.at(root).read(path, MAX_FILE_BYTES))
        ours = isinstance(data, dict) and {"files", "logs"} <= data.keys()
        recorded = msgspec.convert(data, Provenance) if ours else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # errors of json, UTF-8 and msgspec are ValueErrors
        reason = getattr(error, "strerror", error)
        raise ManifestError(f"{path} {expected}: {reason}; restore it, or remove it") from error
    if recorded is None:
        raise ForeignRecordError(f"{path} {expected}: it lacks files and logs; restore it, or remove it")
    return recorded


def find_differences(root: str, names: Iterable[str], recorded: Provenance, tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that is not as recorded, and how it differs, sorted by name; added ones last.

    names: of the files of the package, relative to its root. ManifestError for a record with impossible names.
    """
    files = Manifest(benchmark="", files=recorded.files).files
    total = 0
    for name, entry in sorted(files.items()):
        total += entry.bytes if entry.bytes <= MAX_FILE_BYTES else 0
        try:
            difference = _compare_file(Path(root, name), entry, tree, may_hash=total <= MOST_BYTES)
        except FileNotFoundError:
            difference = f"is missing, but {PROVENANCE_FILE} lists it"
        except (OSError, ValueError) as error:
            difference = f"cannot be read: {getattr(error, 'strerror', error)}"
        if difference:
            yield name, difference
    yield from ((name, ADDED) for name in sorted({*names} - {*files, PROVENANCE_FILE}))


def describe_difference(actual: str, recorded: str) -> str:
    """Return how a file differs from its record, after its name."""
    return f"differs from {PROVENANCE_FILE} ({actual}, recorded {recorded})"


def _compare_file(path: Path, entry: ManifestEntry, tree: Tree, may_hash: bool) -> str:
    """Return how a file differs from its entry, "" if it does not; of a large one, only the size is compared."""
    with tree.open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry.bytes:
            return describe_difference(f"{size:,} bytes", f"{entry.bytes:,}")
        if size > MAX_FILE_BYTES or not may_hash:
            limits = f"{size_text(MAX_FILE_BYTES)}, or {size_text(MOST_BYTES)} with those before it"
            return f"cannot be compared: it is larger than {limits}"
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return "" if checksum == entry.sha256 else describe_difference(f"SHA-256 {checksum[:8]}…", f"{entry.sha256[:8]}…")
