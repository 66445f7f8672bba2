"""The command `python -m submission.manifest`: compare the files of a package with its provenance.json."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from common.command import CommandParser, UsageError, run_command
from common.datasets.manifest import Manifest, ManifestError, verify_files
from compliance.formats.words import clean
from submission.assemble.input_logs import files_below
from submission.assemble.provenance import NAME, read_provenance

EXAMPLES: Final = f"""\
examples:
  python -m submission.manifest out/Example_Organization    is every file as it was when the package was assembled?

It reads {NAME} in the package, and hashes every file again. Changed, missing and added files are listed.
Exit status: 0 all is as recorded, 1 something differs or there is no {NAME}, 2 wrong use.
"""


def verify(root: Path) -> list[str]:
    """Return what differs between a package and its provenance.json: a line per file that is changed, missing, added.

    Raises ManifestError without a readable provenance.json.
    """
    recorded = read_provenance(root)
    if recorded is None:
        raise ManifestError(f"{root / NAME} is not there: `python -m submission.assemble` writes it")
    manifest = Manifest(benchmark="", files=recorded.files)
    seen = {PurePosixPath(name).parent for name in recorded.files} - {PurePosixPath()}
    others = [path.relative_to(root) for path in files_below(root)]
    added = [path.as_posix() for path in others if PurePosixPath(path).parent not in seen]
    problems = verify_files(root, manifest)
    return problems + [f"{name}: not in the manifest" for name in added if name not in {*recorded.files, NAME}]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser(
        "python -m submission.manifest",
        description=f"Compare the files of a package with its {NAME}.",
        epilog=EXAMPLES,
    )
    parser.add_argument("packages", nargs="+", type=Path, metavar="PACKAGE", help=f"folder with {NAME}")
    given = parser.parse_args(arguments)
    return run_command(lambda: sum(map(_show, given.packages)) and 1, (ManifestError, OSError))


def _show(root: Path) -> int:
    """Print how a package compares; return the number of files that differ."""
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}")
    problems = verify(root)
    for line in problems:
        print(clean(f"{root}/{line}"))
    if not problems:
        recorded = read_provenance(root)
        number = len(recorded.files) if recorded else 0
        state = "" if recorded and recorded.complete else "; INCOMPLETE, see there"
        print(clean(f"{root}: {number} files are as {NAME} says{state}"))
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
