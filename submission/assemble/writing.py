"""Write the files of a package as planned, and their record; nothing is written before all is known to be in order."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from tqdm import tqdm

from common.command import list_some
from common.files import remove_leftovers, whole_file
from common.tree import Tree
from compliance.logs.file_kind import InflateError, pieces
from compliance.logs.privacy import secrets
from compliance.model.layout import PROVENANCE_FILE, UNFINISHED
from submission.assemble import implementation
from submission.assemble.implementation import PackageFile
from submission.assemble.input_logs import AssemblyError, files_below
from submission.assemble.packing import Assembly, Packing


@dataclass(frozen=True, slots=True)
class Assembled:
    """A package as assembled.

    written: new files. unchanged: all others. incomplete: result sets with too few runs: "1 of 10 runs". mini: the
    runs are on mini problems.
    """

    root: Path
    written: list[Path]
    unchanged: list[Path]
    incomplete: dict[str, str]
    warnings: list[str] = field(default_factory=list)
    mini: bool = False


def assemble_package(assembly: Assembly, *, dry_run: bool = False) -> Assembled:
    """Write the missing files of a package and return it; a second call writes nothing.

    dry_run: write nothing, and return what would be written. Raises UsageError and AssemblyError, always before
    anything is written, and ManifestError for a damaged provenance.json.
    """
    packing = Packing(assembly)
    new = packing.files_to_write()
    _refuse_secrets(new)
    root = packing.root
    written = [root / item.name for item in new]
    record = root / PROVENANCE_FILE
    if dry_run:
        written += [record] if new or not record.exists() else []
    elif _write_package(packing, new):
        written.append(record)
    unchanged = sorted({*files_below(root, packing.tree)} - {*written})
    incomplete = implementation.find_incomplete({*packing.present, *packing.redactions})
    return Assembled(root, written, unchanged, incomplete, packing.warnings, packing.mini)


def _write_package(packing: Packing, new: Sequence[PackageFile]) -> bool:
    """Write new files of a package and its provenance.json; return whether that changed.

    All are written beside the package. A new one gets its name when it is whole; to another its new files are moved.
    """
    root = packing.root
    with _part_of_package(root) if new else nullcontext(root) as part:
        for item in tqdm(new, desc="copying", unit=" files", disable=None, delay=2):
            _write_file(part / item.name, item.read(), item.executable)
        is_new = not os.path.lexists(root)
        for target in [] if is_new else [root / item.name for item in new]:
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(target)
            (part / target.relative_to(root)).replace(target)
        package = part if is_new else root
        text = implementation.record_package(package, packing.earlier, packing.redactions, packing.read_runs)
        changes = Tree.at(package).begin(package / PROVENANCE_FILE, len(text) + 1) != text
        if changes:
            _write_file(package / PROVENANCE_FILE, text)
        if is_new:
            part.rename(root)
    return changes


@contextmanager
def _part_of_package(root: Path) -> Iterator[Path]:
    """Yield a folder of the same name, in a new one beside a package, which is removed at the end.

    So are those of killed processes.
    """
    beside = Path(os.path.realpath(root)).parent
    beside.mkdir(parents=True, exist_ok=True)
    for path in beside.iterdir():
        if re.fullmatch(UNFINISHED, path.name) and path.name.startswith(f".{root.name}."):
            rmtree(path, ignore_errors=True)
    folder = beside / f".{root.name}.{os.urandom(8).hex()}.tmp"
    try:
        try:
            (folder / root.name).mkdir(parents=True)
        except OSError as error:
            raise AssemblyError(f"cannot write into {beside}: {error.strerror}; choose another -o") from error
        yield folder / root.name
    finally:
        rmtree(folder, ignore_errors=True)


def _refuse_secrets(items: Sequence[PackageFile]) -> None:
    """Raise AssemblyError if a file to write contains a secret; the message names where each comes from."""
    leaks = [
        f"{item.source}:{mention.line} ({mention.kind}, {mention.text})"
        for item in tqdm(items, desc="searching", unit=" files", disable=None, delay=2)
        for mention in secrets(_inflate_text(item.read()))
    ]
    if leaks:
        raise AssemblyError(
            f"secrets would be published: {list_some(leaks)}. Revoke them, take them from variables or files outside "
            "the code, and assemble again; nothing was written"
        )


def _inflate_text(data: bytes) -> bytes:
    """Return the contents of a file, of a compressed one what can be inflated within the limits."""
    parts: list[bytes] = []
    with suppress(InflateError, EOFError, zlib.error):
        parts += pieces(io.BytesIO(data))[1]
    return b"".join(parts)


def _write_file(target: Path, data: bytes, executable: bool = False) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as part:
        part.write_bytes(data)
        part.chmod(part.stat().st_mode | (0o111 if executable else 0))
