"""The command `python -m submission.manifest`: compare the files of a package with its provenance.json."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from common.command import CommandParser, UsageError, as_called, clean, run_command
from common.data.manifest import ManifestError
from common.files import suggest_folder
from common.tree import Tree
from compliance.cli import refuse_missing
from compliance.model.layout import PROVENANCE_FILE, SYSTEMS
from compliance.model.package import find_differences, read_provenance
from submission.assemble.input_logs import files_below

EXAMPLES: Final = f"""\
examples:
  python -m submission.manifest out/Example_Organization    verify that no file has changed since assembly

Hashes every file of the package and compares it with {PROVENANCE_FILE}; lists changed, missing and added files.
"""


def verify_package(root: Path) -> list[str]:
    """Return one line for each file that differs from provenance.json: changed, missing or added.

    Raises ManifestError if provenance.json is missing or unreadable.
    """
    recorded = read_provenance(root)
    if recorded is None:
        fix = suggest_folder(root, [PROVENANCE_FILE]) or "; `python -m submission.assemble` writes it"
        raise ManifestError(f"{root / PROVENANCE_FILE} is missing{fix}")
    names = [path.relative_to(root).as_posix() for path in files_below(root, Tree.at(root))]
    return [f"{name} {difference}" for name, difference in find_differences(str(root), names, recorded, Tree.at(root))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser(
        "python -m submission.manifest",
        description=f"Compare the files of a package with its {PROVENANCE_FILE}.",
        epilog=EXAMPLES,
        statuses={0: "all files match", 1: f"some differ, or {PROVENANCE_FILE} is missing"},
    )
    parser.add_argument("packages", nargs="+", type=Path, metavar="PACKAGE", help=f"folder with {PROVENANCE_FILE}")
    args = parser.parse_args(arguments)
    return run_command(lambda: sum(map(_print_differences, args.packages)) and 1, (ManifestError, OSError))


def _print_differences(root: Path) -> int:
    """Print the differences of a package; return their number."""
    if not root.is_dir():
        refuse_missing([root])
        raise UsageError(f"{root} is a file; give the folder of the package, which has {PROVENANCE_FILE}")
    problems = verify_package(root)
    for line in problems:
        print(clean(f"{root}/{line}"))
    if problems:
        system = next(iter(sorted((root / SYSTEMS).glob("*.json"))), root / SYSTEMS / "SYSTEM.json")
        again = f"python -m submission.assemble LOGS -o {quote(str(root.parent))} --system {quote(str(system))}"
        hint = (
            "copy files that are missing, and logs that have changed, from the original package or runs (is a missing "
            f"file in a .gitignore?); only after an intended change of other files repeat `{again}`"
        )
        print(clean(as_called(hint)), file=sys.stderr)
    else:
        recorded = read_provenance(root)
        number = len(recorded.files) if recorded else 0
        state = "" if recorded and recorded.complete else f"; INCOMPLETE: runs are missing, see {PROVENANCE_FILE}"
        print(clean(f"{root}: {number} files match {PROVENANCE_FILE}{state}"))
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
