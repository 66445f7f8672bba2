"""An organisation's submission folder as the rules see it: system descriptions, result sets, findings, provenance.json.

provenance.json has the hashes of all files of the package, and the origin of its results. `python -m
submission.assemble` writes it. The checker compares it with the package: what it lists was there when the package was
made, and nobody has changed it since.
"""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from common.data.manifest import Manifest, ManifestEntry, ManifestError
from common.files import explain_lost_link
from common.tree import ANYWHERE, Tree, size_text
from compliance.model.judging import Finding, worst
from compliance.model.layout import BENCHMARKS, MAX_FILE_BYTES, PROVENANCE_FILE, SYSTEMS
from compliance.model.package_files import Bypass, Code, PackageEntry
from compliance.model.result_set import Copies, ResultSet
from compliance.model.system import SystemDescription
from compliance.model.waivers import Waiver

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
    from common.bad_json import load_json  # of packages alone

    path = root / PROVENANCE_FILE
    expected = f"is not a valid {PROVENANCE_FILE}"
    try:
        data = load_json(Tree.at(root).read(path, MAX_FILE_BYTES))
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
            lost = explain_lost_link(Path(root, name))
            difference = f"is lost: {lost}" if lost else f"is missing, but {PROVENANCE_FILE} lists it"
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
        import hashlib  # only packages with a provenance pay for it

        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return "" if checksum == entry.sha256 else describe_difference(f"SHA-256 {checksum[:8]}…", f"{entry.sha256[:8]}…")


class Package(Struct, frozen=True):
    """One organisation's folder.

    flat: results/<system>/<benchmark> as in round 0.7. unexpected: folders that fit no layout, with what was
    expected there. contents: every file, folder and link below the root; code: those in benchmarks/. bypasses: lines of
    its parameter files that ask to leave checks out. crashes: paths on which the official tool ends with a traceback,
    and why; in the profile strict only those of files beside the logs. tree: reads its files.
    whole: all its results are judged, and it itself; else only what concerns those that are. benchmarks: of its round.
    """

    root: str
    organisation: str
    round: str
    profile: str
    flat: bool
    sets: list[ResultSet] = []
    descriptions: dict[str, SystemDescription] = {}
    unexpected: list[tuple[str, str]] = []
    missing: list[str] = []
    contents: list[PackageEntry] = []
    code: Code = Code()
    bypasses: list[Bypass] = []
    crashes: list[tuple[str, str]] = []
    tree: Tree = ANYWHERE
    whole: bool = True
    benchmarks: tuple[str, ...] = ()
    findings: list[Finding] = []

    def path(self, entry: PackageEntry) -> str:
        """Return where an entry of the contents is."""
        return posixpath.join(self.root, entry.path)

    def match_results(self, findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[ResultSet]]]:
        """Yield each finding with the results in whose folder or code, or above these, or in whose description it is.

        In linear time: a package may have thousands of results.
        """
        own: dict[str, list[ResultSet]] = defaultdict(list)
        above: dict[str, list[ResultSet]] = defaultdict(list)
        for results in self.sets:
            own[posixpath.join(self.root, SYSTEMS, f"{results.system}.json")].append(results)
            code = posixpath.join(self.root, BENCHMARKS, results.folder_benchmark, results.system)
            for folder in (results.folder, code):
                own[folder].append(results)
                for outer in _list_outer(folder):
                    above[outer].append(results)
        above.pop(self.root, None)
        for finding in findings:
            matches = [*above.get(finding.path, ()), *own.get(finding.path, ())]
            matches += [results for outer in _list_outer(finding.path) for results in own.get(outer, ())]
            yield finding, list({id(results): results for results in matches}.values())

    @property
    def strict(self) -> bool:
        """Whether the written rules apply."""
        return self.profile == "strict"

    @property
    def verdict(self) -> str:
        """PASS, WARN, INCOMPLETE or FAIL of the folder's own findings, its results and their logs."""
        return worst(self.decisive_findings())

    def decisive_findings(self) -> list[Finding]:
        """Return its findings, those of its results and of their logs as they count for the verdict."""
        return [*self.findings, *(finding for results in self.sets for finding in results.decisive_findings())]


def _list_outer(path: str) -> list[str]:
    """Return the folders that a path is in."""
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


class Submissions(Struct, frozen=True):
    """Everything checked in one call: packages, perhaps of several rounds; and the waivers that were given.

    copies: runs or power files of one result that have the contents of another's.
    """

    packages: list[Package]
    sets: list[ResultSet]
    profile: str
    waivers: Mapping[str, Waiver] = {}
    copies: list[Copies] = []

    def list_copies(self, kind: str) -> list[Copies]:
        """Return the copies of one kind: TIMES, VALUES or POWER."""
        return [copies for copies in self.copies if copies.kind == kind]
