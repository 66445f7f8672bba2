"""The manifest of a dataset: which files it has, how large they are and what they hold.

    {"format": 1, "benchmark": "cosmoflow", "variant": "mini", "facts": {...},
     "files": {"train/a.tfrecord": {"bytes": 16777287, "sha256": "..."}, ...}}

It is `manifest.json` beside the folders of the dataset. `facts` say how the dataset was made.

"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from common.bad_json import decode_json
from common.command import describe_reason
from common.console import open_bar
from common.file_kind import MANIFEST, explain_kind
from common.files import explain_lost_link, list_data, suggest_folder, write_whole_file
from common.reference import FULL
from common.tree import ANYWHERE, Tree

NAME: Final = "manifest.json"
WRONG_PARTS: Final = frozenset({"", ".", ".."})
"""Wrong parts of a file's name; an empty part comes before the first slash of an absolute name, or between two."""
CHECKSUM: Final = re.compile("[0-9a-f]{64}")
PORTION: Final = 64
"""Files that a thread takes at once: a dataset may have half a million."""
KEPT_BYTES: Final = 256 * 2**20
"""The largest file that a thread keeps in memory to read it again."""
SurveyFile = Callable[[str, Path, str], None]
"""Surveys a file with the content that the manifest says, given its name, where to read it, and its SHA-256."""


class ManifestError(ValueError):
    """A manifest cannot be used; the message names the file and what was expected."""


class ManifestEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Size and checksum (hexadecimal, lower case) of one file."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The files of a dataset. files: entries by name, relative to the manifest's folder, with forward slashes.

    ManifestError for a name that leads out of the folder, or a malformed entry.
    """

    format: int = 1
    benchmark: str
    variant: str | None = None
    facts: dict[str, Any] = {}
    files: dict[str, ManifestEntry]

    def __post_init__(self) -> None:
        if self.format != 1:
            raise ManifestError(f"format {self.format}; this version reads format 1")
        for name, entry in self.files.items():
            if not WRONG_PARTS.isdisjoint(name.split("/")):
                raise ManifestError(f"{name!r}: expected the name of a file below the manifest's folder")
            if entry.bytes < 0 or not CHECKSUM.fullmatch(entry.sha256):
                raise ManifestError(f"{name}: expected bytes >= 0 and a SHA-256 of 64 hexadecimal digits, not {entry}")

    @property
    def total_bytes(self) -> int:
        """The size of all files together."""
        return sum(entry.bytes for entry in self.files.values())

    def compute_digest(self) -> str:
        """Return the identity of the dataset: a SHA-256 over the sorted names, sizes and checksums of its files."""
        lines = (f"{name}\0{entry.bytes}\0{entry.sha256}\n" for name, entry in sorted(self.files.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def check_names(names: Iterable[str]) -> None:
    """Raise ManifestError for a name that is not UTF-8, which a manifest cannot have."""
    if wrong := next((name for name in names if re.search("[\ud800-\udfff]", name)), ""):
        raise ManifestError(f"{wrong!a}: the name of this file is not UTF-8: rename it; nothing was written")


def describe_file(path: Path, tree: Tree = ANYWHERE) -> ManifestEntry:
    """Return size and checksum of a file of the tree, which is read once from start to end."""
    with tree.open(path) as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
        return ManifestEntry(file.tell(), checksum)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest, files sorted by name; an old one is replaced in one step."""
    ordered = msgspec.structs.replace(manifest, files=dict(sorted(manifest.files.items())))
    write_whole_file(path, msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; ManifestError if it does not exist, or if anything in it is missing, unknown or malformed."""
    try:
        with ANYWHERE.open(path) as file:
            return decode_manifest(file.read(), path)
    except NotADirectoryError as error:
        raise ManifestError(
            f"{path.parent} is a file; expected the folder of the dataset, as {path.parents[1]}"
        ) from error
    except FileNotFoundError as error:
        raise ManifestError(
            f"{path} does not exist: it comes with the dataset, or the command that prepares the data writes it"
            + suggest_folder(path.parent, [NAME])
        ) from error


def decode_manifest(text: bytes, path: Path | str) -> Manifest:
    """Return the manifest in a text; ManifestError, which names `path`, as in `read_manifest`."""
    try:
        return decode_json(text, Manifest)
    except ValueError as error:
        raise ManifestError(f"{path} is not a valid manifest: {explain_kind(text, MANIFEST) or error}") from error


def read_variant_and_digest(folder: Path) -> tuple[str, str | None]:
    """Return a dataset's variant and the digest of its manifest, None without one."""
    manifest = read_manifest(folder / NAME) if (folder / NAME).exists() else None
    return (manifest and manifest.variant) or FULL, manifest.compute_digest() if manifest else None


def verify_files(
    root: Path, manifest: Manifest, checksum: bool = True, workers: int = 4, survey_file: SurveyFile | None = None
) -> list[str]:
    """Return the differences between the manifest and the files below `root`: a line per file, sorted by name.

    Reports links to nothing (all in the first line), missing files, wrong sizes, wrong checksums (without `checksum`
    nothing is read), and extra files in the folders of the dataset, where a loader would find them. survey_file: called
    for each file that has its checksum.
    """
    from common.processes import in_threads  # the checker reads manifests, and verifies no data

    names = sorted(manifest.files)
    portions = [names[start : start + PORTION] for start in range(0, len(names), PORTION)]
    lost: list[str] = []
    unit = "B" if checksum else "file"
    total = manifest.total_bytes if checksum else len(names)
    with open_bar(total=total, unit=unit, unit_scale=True, desc=f"verify {root}", disable=None) as bar:

        def compare_portion(portion: list[str]) -> list[str]:
            differences: list[str] = []
            for name in portion:
                try:
                    differences += _compare_file(root, name, manifest.files[name], checksum, survey_file)
                except FileNotFoundError:
                    if (root / name).is_symlink():
                        lost.append(name)
                    else:
                        differences.append(f"{name}: missing")
                bar.update(manifest.files[name].bytes if checksum else 1)
            return differences

        problems = [line for lines in in_threads(compare_portion, portions, workers) for line in lines]
    problems += _find_extra_files(root, manifest, lost)
    return [f"{name}: {explain_lost_link(root / name, len(lost))}" for name in sorted(lost)[:1]] + problems


def _compare_file(
    root: Path, name: str, entry: ManifestEntry, checksum: bool, survey_file: SurveyFile | None
) -> Iterator[str]:
    """Yield how a file differs; FileNotFoundError if there is none."""
    path = root / name
    try:
        size = path.stat().st_size
        if size != entry.bytes:
            yield f"{name}: {size} bytes, expected {entry.bytes}"
        elif checksum:
            with _read_once(path) if survey_file else nullcontext((path, describe_file(path).sha256)) as (copy, digest):
                if digest != entry.sha256:
                    yield f"{name}: SHA-256 {digest}, expected {entry.sha256}"
                elif survey_file:
                    survey_file(name, copy, digest)
    except FileNotFoundError:
        raise
    except OSError as error:
        yield f"{name}: cannot be read: {describe_reason(error)}"


@contextmanager
def _read_once(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield where a file can be read again and its SHA-256: a copy in memory, so that the file is read only once.

    A file above KEPT_BYTES, or on a system without files in memory, is itself read again.
    """
    if path.stat().st_size > KEPT_BYTES or not hasattr(os, "memfd_create"):
        yield path, describe_file(path).sha256
        return
    digest = hashlib.sha256()
    with ANYWHERE.open(path) as file, open(os.memfd_create("sample"), "wb") as copy:
        while portion := file.read(2**20):
            digest.update(portion)
            copy.write(portion)
        copy.flush()
        yield Path(f"/proc/self/fd/{copy.fileno()}"), digest.hexdigest()


def _find_extra_files(root: Path, manifest: Manifest, lost: list[str]) -> Iterator[str]:
    # Files beside the dataset's folders are ignored: no loader looks there.
    folders = {PurePosixPath(name).parent for name in manifest.files} - {PurePosixPath()}
    for folder in sorted(folders):
        path = root / folder
        for name in list_data(path) if path.is_dir() else ():
            relative = str(folder / name)
            if relative in manifest.files:
                continue
            if not (path / name).exists():
                lost.append(relative)
            elif not (path / name).is_dir():
                yield f"{relative}: not in the manifest"
