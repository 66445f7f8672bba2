"""Write a package: copy new files, and record them in provenance.json."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from common.files import remove_leftovers, whole_file
from compliance.logs.inflate import InflateError, pieces
from compliance.logs.secrets import secrets
from compliance.model.finding import listed
from submission.assemble import provenance
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
    record = root / provenance.NAME
    if dry_run:
        written += [record] if new or not record.exists() else []
    else:
        for item in tqdm(new, desc="copying", unit=" files", disable=None, delay=2):
            _write_file(root / item.name, item.read(), item.executable)
        text = provenance.record_package(root, packing.earlier, packing.redactions, packing.read_runs)
        if packing.tree.begin(record, len(text) + 1) != text:
            _write_file(record, text)
            written.append(record)
    unchanged = sorted({*files_below(root, packing.tree)} - {*written})
    incomplete = provenance.find_incomplete({*packing.present, *packing.redactions})
    return Assembled(root, written, unchanged, incomplete, packing.warnings, packing.mini)


def _refuse_secrets(items: Sequence[PackageFile]) -> None:
    """Raise AssemblyError if a file to write contains a secret; the message names where each comes from."""
    leaks = [
        f"{item.source}:{mention.line} ({mention.kind}, {mention.text})"
        for item in tqdm(items, desc="searching", unit=" files", disable=None, delay=2)
        for mention in secrets(_inflate_text(item.read()))
    ]
    if leaks:
        raise AssemblyError(
            f"secrets would be published: {listed(leaks)}. Revoke them, take them from variables or files outside the "
            "code, and assemble again; nothing was written"
        )


def _inflate_text(data: bytes) -> bytes:
    """Return the contents of a file, of a compressed one what can be inflated within the limits."""
    parts: list[bytes] = []
    with suppress(InflateError, EOFError, zlib.error):
        parts += pieces(io.BytesIO(data))[1]
    return b"".join(parts)


def _write_file(target: Path, data: bytes, executable: bool = False) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    with whole_file(target) as part:
        part.write_bytes(data)
        part.chmod(part.stat().st_mode | (0o111 if executable else 0))
