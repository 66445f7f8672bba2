"""The command `python -m submission.assemble`: make or extend a submission package from the logs of runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from common.command import CommandParser, as_called, clean, counted, folder_path, run_command
from common.console import print_warning
from common.data.manifest import ManifestError
from compliance.model.layout import STRONG, WEAK
from submission.assemble.input_logs import AssemblyError
from submission.assemble.packing import Assembly
from submission.assemble.writing import assemble_package

DESCRIPTION: Final = """\
Make a submission, in the layout of rounds 1.0 and later, from result logs, a system description and the code:

  OUT/<organisation>/systems/<system>.json
  OUT/<organisation>/results/<system>/strong/<benchmark>/result_0.txt ...
  OUT/<organisation>/results/<system>/strong/<benchmark>/power/result_0/node_0.txt ...   where power was measured
  OUT/<organisation>/benchmarks/<benchmark>/implementations/<implementation>/   the code
  OUT/<organisation>/benchmarks/<benchmark>/<system>/                           how to run it there
  OUT/<organisation>/provenance.json                                            hashes, sources, settings, data

Organisation and benchmark are read from the logs. A later call extends the package, and the logs in it keep their
numbers. No file is ever replaced by a different one, and the runs are never changed.

Logs that cannot be told to be of one result are refused: other settings, more runs than a time to train has, several
folders. Folders side by side with one log each are runs of one result. Logs that you name may lie anywhere.
"""
EXAMPLES: Final = """\
examples:
  python -m submission.assemble runs/ -o out --system systems/laptop.json       all result_*.txt below runs/
  python -m submission.assemble runs/ -o out --system x.json --dry-run          list what would be written
  python -m submission.assemble models/ -o out --system x.json --scaling weak --pruned failed/
  python -m submission.assemble logs/ -o out --system x.json --sources code/    logs of other software, with its code
  python -m submission.assemble runs/ -o out --system x.json --redact           copies without personal data

then:
  python -m compliance.check out/Example_Organization       check the submission
  python -m submission.manifest out/Example_Organization    verify that no file has changed
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser(
        "python -m submission.assemble",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        statuses={0: "the package is complete or was extended", 1: "it cannot be made from these files"},
    )
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUNS",
        help="logs, or folders of logs: result_*, else *.txt, *.log, *.out",
    )
    add(
        "-o",
        "--output",
        type=folder_path,
        required=True,
        metavar="OUT",
        help="parent of the organisation's folder",
    )
    add("--system", type=Path, metavar="FILE", help="system description, named <system>.json; required")
    add("--name", metavar="SYSTEM", help="name of the system in the package (default: that of the description's file)")
    add("--organisation", metavar="NAME", help="name of its folder (default: submission_org of the logs)")
    add("--scaling", choices=(STRONG, WEAK), default="", help="time to train (default) or throughput")
    add(
        "--pruned",
        nargs="+",
        type=Path,
        default=[],
        metavar="PATH",
        help="instances of a throughput result that do not count",
    )
    add("--implementation", metavar="ID", help="folder of the code (default: that of --sources, or mlperf-hpc-suite)")
    add(
        "--sources",
        type=Path,
        metavar="DIR",
        help="the code that made the logs (default: this suite); several benchmarks with "
        "code of their own need a call each",
    )
    add(
        "--redact",
        action="store_true",
        help="remove mail addresses and home directories from the copied logs; code stays as it is",
    )
    add("--unfinished", action="store_true", help="accept logs without run_stop, as failed runs")
    add("--draft", action="store_true", help="accept placeholders in the description, to be completed in the package")
    add("--dry-run", action="store_true", help="list what would be written, and write nothing")
    options = vars(parser.parse_args(arguments))
    if options["system"] is None:
        parser.error(
            "--system FILE is missing, the system description; make it by `python -m submission.system -o FILE`"
        )
    dry_run = options.pop("dry_run")
    assembly = Assembly(**options)  # the other options have the names of its fields
    return run_command(lambda: _print_package(assembly, dry_run), (AssemblyError, ManifestError, OSError))


def _print_package(assembly: Assembly, dry_run: bool) -> int:
    package = assemble_package(assembly, dry_run=dry_run)
    for warning in package.warnings:
        print_warning(clean(f"{warning}"))
    if dry_run:
        for path in package.written:
            print(clean(path))
    did = "would write" if dry_run else "wrote"
    print(clean(f"{package.root}: {did} {counted(len(package.written), 'file')}, {len(package.unchanged)} unchanged"))
    for name, runs in package.incomplete.items():
        print(clean(f"INCOMPLETE: {name}: {runs}"))
    if not dry_run:
        option = " --allow-mini" if package.mini else ""
        print(clean(as_called(f"next: python -m compliance.check {quote(str(package.root))}{option}")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
