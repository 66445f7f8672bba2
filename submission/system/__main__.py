"""`python -m submission.system`: the system description of a submission, as far as the machine can tell it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from common.command import CommandParser, UsageError, run_command
from common.files import whole_file
from compliance.check_system import check_description
from compliance.engine import Options
from compliance.formats import FORMATS, Style
from compliance.formats.words import clean
from compliance.model.system import OPEN, is_placeholder, read_description
from submission.system.describe import describe, render

DESCRIPTION: Final = f"""\
Describe this machine for a submission: systems/<system>.json. Call it on a node of the kind that ran, as in the runs
(same environment, same container). What the machine cannot tell is marked "{OPEN}".

  python -m submission.system                                       show the description
  python -m submission.system -o our_cluster.json --set submitter="Example University" status=onprem
  python -m submission.system -o our_cluster.json --from last_round.json       take the rest from another description
  python -m submission.system --check our_cluster.json              what is missing or wrong
  python -m submission.system --check our_cluster.json --logs runs/cosmoflow   and whether the logs agree with it"""
EPILOG: Final = """\
The number of nodes is that of the Slurm job, else 1; --set number_of_nodes=64 says it otherwise.

exit status: 0 written, or nothing fails (warnings may be there); 1 an error in the description; 2 wrong use"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    given = _parser().parse_args(argv)
    return run_command(lambda: _check(given) if given.check else _describe(given), (OSError,))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m submission.system",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    make = parser.add_argument_group("to describe the machine")
    make.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there instead of standard output")
    make.add_argument("--set", nargs="+", action="extend", default=[], metavar="MEMBER=VALUE", help="what is known")
    make.add_argument(
        "--from", dest="other", type=Path, metavar="OTHER.json", help="take from there what the machine cannot tell"
    )
    make.add_argument("--force", action="store_true", help="replace a FILE that says something else")
    check = parser.add_argument_group("to check a description")
    check.add_argument("--check", type=Path, metavar="FILE", help="show what is missing or wrong in it")
    check.add_argument(
        "--logs", nargs="+", default=[], metavar="PATH", help="logs, or folders of logs, to compare with"
    )
    return parser


def _describe(given: argparse.Namespace) -> int:
    """The description is written; returns the exit status."""
    if given.logs:
        raise UsageError("--logs are compared with a description: give --check FILE too")
    try:
        description = describe(_settings(given.set), _other(given.other))
    except ValueError as error:
        raise UsageError(str(error)) from None
    text = render(description.fields)
    if given.output is None:
        print(text, end="")
    else:
        print(f"{clean(given.output)}: {_write(text, given.output, given.force)}", file=sys.stderr)
    if description.open_points:
        print(f"{len(description.open_points)} points for a person to fill in:", file=sys.stderr)
        print("".join(f"  {point}\n" for point in description.open_points), end="", file=sys.stderr)
    return 0


def _settings(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f"--set {name}: expected MEMBER=VALUE, such as cooling=liquid")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _other(path: Path | None) -> Mapping[str, object]:
    if path is None:
        return {}
    other = read_description(str(path))
    if other.problem:
        raise UsageError(f"--from {path}: {other.problem}")
    return {name: value for name, value in other.fields.items() if not is_placeholder(str(value))}


def _write(text: str, output: Path, force: bool) -> str:
    """The file holds the text; returns what was done.

    Raises UsageError if it holds another one and force is not given.
    """
    if output.exists():
        if output.is_file() and output.read_bytes() == text.encode():
            return "unchanged"
        if not (force and output.is_file()):
            raise UsageError(f"-o {output} is there and says something else; --force replaces it")
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(output) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
    return "written"


def _check(given: argparse.Namespace) -> int:
    """The findings are shown; returns the exit status of the checker."""
    if given.output or given.set or given.other or given.force:
        raise UsageError("--check only reads: -o, --set, --from and --force do not go with it")
    for path in (given.check, *given.logs):
        if not os.path.lexists(path):
            raise UsageError(f"no such file or folder: {path}")
    report = check_description(str(given.check), given.logs, Options(allow_mini=True, progress=sys.stderr.isatty()))
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else 100
    style = Style(color=terminal and "NO_COLOR" not in os.environ, width=width, base=os.getcwd())
    text = FORMATS["text"](report, style)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
