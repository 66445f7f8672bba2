"""The command `python -m submission.system`: write or check the system description of a submission."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import Final

from common.command import CommandParser, UsageError, clean, counted, file_path, run_command
from common.console import print_warning, use_styles
from common.errors import LaunchError
from common.files import write_whole_file
from common.ranks.launch import find_rank_position
from common.tree import NAMED
from compliance.cli import refuse_missing, write_text
from compliance.engine import Options
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.formats.table import output_width
from compliance.model.system import OPEN, is_placeholder, read_description
from submission.system.describe import (
    ALL_FIELDS,
    Node,
    check_description,
    check_names,
    check_values,
    collect_notes,
    count_parts,
    describe_node,
    describe_system,
    explain_unread,
    format_lines,
    merge_fields,
    read_nodes,
    render_description,
)
from submission.system.hardware import Fields
from submission.system.machine import check_source, power_note

DESCRIPTION: Final = f"""\
Describe this machine for a submission: systems/<system>.json. Call it on a node of the type used for the runs, in the
same environment or container. Fields that cannot be detected are marked "{OPEN}".

  python -m submission.system                                       show the description
  python -m submission.system -o our_cluster.json --set submitter="Example University" status=onprem
  python -m submission.system -o our_cluster.json --from last_round.json       take unknown fields from there
  srun --ntasks-per-node=1 python -m submission.system --this-node > nodes.jsonl    lines about each node of the job
  python -m submission.system --merge nodes.jsonl -o our_cluster.json          the description of these nodes
  python -m submission.system --check our_cluster.json              list missing or wrong fields
  python -m submission.system --check our_cluster.json --logs runs/cosmoflow   also compare with logs"""
EPILOG: Final = """\
In one process, number_of_nodes is that of the Slurm job, else 1; override it with --set number_of_nodes=64.

On several nodes, start --this-node by the launcher: srun, mpirun or torchrun. One process of each node prints lines,
or every process if the launcher does not say which share a node. --merge skips other lines, counts each host once as
number_of_nodes, and writes nothing if the launcher started more nodes. Where nodes differ, a warning names them, the
description gets the value of most nodes, and hw_notes or sw_notes list the others, after the notes of OTHER.json;
--set FIELD=VALUE overrides. Give each process all accelerators of its node. The lines and standard error have the names
of hosts, the description never.

--power SOURCE reads a meter of the whole node; `python -m common.measure power --help` lists them. {host} is the node's
host name, without its domain, as in 'file:node:watts:/run/meters/{host}'. Standard error has the reading of each node,
hw_notes that of all. If a node gives no reading, a warning names it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = CommandParser(
        "python -m submission.system",
        description=DESCRIPTION,
        epilog=EPILOG,
        explain_option=_explain_option,
        statuses={
            0: "written, or checked without errors (warnings are possible)",
            1: "errors in the description, or a node is missing",
        },
    )
    add = parser.add_argument_group("describe the machine").add_argument
    add(
        "-o",
        "--output",
        type=file_path,
        metavar="FILE",
        help="write there instead of standard output",
    )
    add("--set", nargs="+", action="extend", default=[], metavar="FIELD=VALUE", help="set fields")
    add(
        "--from",
        dest="other",
        type=Path,
        metavar="OTHER.json",
        help="description to take unknown fields from",
    )
    add("--this-node", action="store_true", help="print JSON lines about this node, for --merge")
    add(
        "--merge",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="describe the nodes with lines in these files",
    )
    add("--power", metavar="SOURCE", help="also read the power of this node once; see below")
    add("--force", action="store_true", help="replace an existing, different FILE")
    add = parser.add_argument_group("check a description").add_argument
    add("--check", type=Path, metavar="FILE", help="list missing or wrong fields")
    add(
        "--logs",
        nargs="+",
        default=[],
        metavar="PATH",
        help="logs, or folders of logs, to compare with",
    )
    args = parser.parse_args(argv)
    return run_command(lambda: _check_file(args) if args.check else _describe(args), (OSError, LaunchError))


def _explain_option(name: str, value: str) -> str:
    """Return what to write in place of an option that is the name of a field."""
    field = name.strip("-").replace("-", "_")
    return f": write --set {quote(f'{field}={value}')}" if field in ALL_FIELDS else ""


def _describe(args: argparse.Namespace) -> int:
    """Print lines about this node, or write the description of this machine or of merged nodes; return the status."""
    launch = find_rank_position({} if args.merge else os.environ)
    parts, total = count_parts(launch)
    if not parts:  # another process of the node describes it
        return 0
    try:
        set_fields, other = _check_use(args, total if parts < total else 1)
    except UsageError:
        if launch.rank:  # rank 0 tells
            return 2
        raise
    if args.this_node:
        print(*format_lines(describe_node(launch, args.power)), sep="\n", flush=True)
        return 0
    nodes = read_nodes(args.merge) if args.merge else [describe_node(launch, args.power)]
    fields, notes = _merge_nodes(nodes, set_fields) if args.merge else (nodes[0].fields, {})
    if any(node.source for node in nodes):
        notes.setdefault("hw_notes", []).extend(_report_powers(nodes))
    description = describe_system(set_fields, other, fields, notes)
    text = render_description(description.fields)
    if args.output is None:
        print(text, end="")
    else:
        print(f"{clean(args.output)}: {_write_file(text, args.output, args.force)}", file=sys.stderr)
    if description.open_points:
        print(f"{counted(len(description.open_points), 'field')} to fill in:", file=sys.stderr)
        print("".join(f"  {point}\n" for point in description.open_points), end="", file=sys.stderr)
    return 0


def _check_use(args: argparse.Namespace, processes: int) -> tuple[Mapping[str, str], Mapping[str, object]]:
    """Return the fields that are set, and those of the other description; UsageError for options that do not fit.

    processes: that were started to describe their nodes.
    """
    if args.this_node and (args.output or args.set or args.other or args.merge):
        raise UsageError("--this-node prints what this node detects: give -o, --set and --from to --merge")
    if args.merge and args.power is not None:
        raise UsageError("--power reads the node it runs on: give it to --this-node")
    if args.logs:
        raise UsageError("--logs needs a description to compare with: add --check FILE")
    if processes > 1 and not args.this_node:
        raise UsageError(
            f"{processes} processes would each describe their node: add --this-node and write the output to a file; "
            "then run python -m submission.system --merge FILE once, with the other options"
        )
    if args.output and not args.output.parent.is_dir():
        raise UsageError(f"-o {args.output}: there is no folder {args.output.parent}; make it first")
    if args.power is not None:
        check_source(args.power)
    return _parse_settings(args.set), _read_other(args.other)


def _node_names(nodes: Sequence[Node]) -> list[str]:
    return [f"{number} ({node.host})" for number, node in enumerate(nodes)]


def _report_powers(nodes: Sequence[Node]) -> list[str]:
    """Print the power of each node, or why there is none; return the texts for the notes."""
    for name, node in zip(_node_names(nodes), nodes, strict=True):
        watts, problem = node.power.watts, node.power.problem or "--this-node ran there without --power"
        line = f"warning: no power of node {name}: {problem}" if watts is None else f"node {name}: {watts:g} W"
        print(clean(line), file=sys.stderr)
    sources = dict.fromkeys(node.source for node in nodes if node.source)
    note = power_note([node.power for node in nodes], " and ".join(sources))
    return [note] if note else []


def _merge_nodes(nodes: Sequence[Node], set_fields: Mapping[str, str]) -> tuple[Fields, dict[str, list[str]]]:
    """Return the merged fields, and the texts for each field of notes; warn of differences except in set fields."""
    unset = [{name: node.fields[name] for name in node.fields if name not in set_fields} for node in nodes]
    merged, differences = merge_fields(unset)
    verdict = "; they differ, and the value of most is written" if differences else ""
    print(f"{counted(len(nodes), 'node')} read{verdict}", file=sys.stderr)
    for difference in differences:
        print_warning(clean(difference.format_warning(_node_names(nodes))))
    return merged, collect_notes(differences, len(nodes))


def _parse_settings(texts: Sequence[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for number, text in enumerate(texts):
        name, equals, value = text.partition("=")
        if not (name.strip() and value.strip()):
            words = takewhile(lambda word: "=" not in word, texts[number:])
            fix = ", such as cooling=liquid"
            if equals or "".join(texts[number + 1 : number + 2]).startswith("="):
                fix = " without blanks around ="
            elif number:
                fix = f"; quote a value with blanks: --set {quote(' '.join([texts[number - 1], *words]))}"
            raise UsageError(f"--set {text}: expected FIELD=VALUE{fix}")
        fields[name.strip()] = value.strip()
    check_names(fields)
    return check_values(fields)


def _read_other(path: Path | None) -> Mapping[str, object]:
    if path is None:
        return {}
    other = read_description(str(path), NAMED)
    if other.problem:
        raise UsageError(f"--from {explain_unread(other)}")
    return {name: value for name, value in other.fields.items() if not is_placeholder(str(value))}


def _write_file(text: str, output: Path, force: bool) -> str:
    """Write the text to the file; return "written" or "unchanged".

    Raises UsageError if another file exists there and `force` is not set.
    """
    if output.exists():
        if output.read_bytes() == text.encode():
            return "unchanged"
        if not force:
            raise UsageError(
                f"-o {output} exists and differs; --force replaces it; to keep what was filled in, add --from {output}"
            )
    write_whole_file(output, text)
    return "written"


def _check_file(args: argparse.Namespace) -> int:
    """Print the findings; return the exit status of the checker."""
    if args.output or args.set or args.other or args.force or args.this_node or args.merge or args.power is not None:
        raise UsageError(
            "--check only reads: do not combine it with -o, --set, --from, --force, --this-node, --merge or --power"
        )
    refuse_missing((args.check, *args.logs))
    report = check_description(str(args.check), args.logs, Options(allow_mini=True, progress=sys.stderr.isatty()))
    style = Style(color=use_styles(sys.stdout), verbose=True, width=output_width() or 100, base=os.getcwd())
    write_text(FORMATS["text"](report, style), None)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
