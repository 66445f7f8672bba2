"""What the commands that read results share: the options --round, --rules and --waivers, and writing the output."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from common.command import OUTPUT_ERRORS, describe_reason, suggest_name
from common.console import print_error
from common.errors import UsageError
from common.files import explain_lost_link
from common.reference import ROUNDS
from common.rounds import HPC, TRAINING, USAGES, Round
from compliance.engine.log_checker import AUTO, Options
from compliance.model.judging import PROFILES
from compliance.model.waivers import read_waivers
from compliance.rules.catalog import load_rules

Path = str | os.PathLike[str]
Parser = argparse.ArgumentParser | argparse._ArgumentGroup
T = TypeVar("T")


def round_name(text: str) -> str:
    """Return the round that an argument names (3.0, v3.0, 3.0.0); an `argparse` type."""
    short = text.removeprefix("v").removesuffix(".0") if text.count(".") == 2 else text.removeprefix("v")
    if short not in ROUNDS:
        raise argparse.ArgumentTypeError(f"there is no round {text!r}; known are {', '.join(ROUNDS)}")
    return short


def any_round(text: str) -> str:
    """Return the round that an argument names, of either suite, as 3.0 or training-3.0; an `argparse` type."""
    match = re.fullmatch(rf"({TRAINING}-)?v?([0-9]{{1,2}}\.[0-9])(?:\.0)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"there is no round {text!r}; write it as 3.0 or, of MLPerf Training, 6.1")
    return (match[1] or "") + match[2]


def choose_round(version: str | None, usage: str, rules: str | None) -> str | None:
    """Return the name of the round that a user asks for; None for none. rules: folder of the committee's rule files.

    A round that only MLPerf Training has implies that suite. Raises UsageError for one that neither has.
    """
    if version is None or (version in ROUNDS and usage != TRAINING):
        return version
    if TRAINING in version and usage != HPC:
        usage, version = TRAINING, version.removeprefix(f"{TRAINING}-")
    from compliance.committee.rounds import list_versions  # HPC's logs do not pay for it

    known = [] if usage == HPC else list_versions(rules)
    if version in known:
        return Round(TRAINING, version).name
    others = f"; of MLPerf Training: {', '.join(known)}" if known else ""
    raise UsageError(f"there is no round {version!r}; known are of MLPerf HPC: {', '.join(ROUNDS)}{others}")


def add_result_options(parser: Parser) -> None:
    """Add what results are judged by: the suite and its rule files, the round, the profile, waivers and own rules."""
    rounds = "{" + ",".join(ROUNDS) + ",...}"
    parser.add_argument(
        "--round",
        type=any_round,
        metavar=rounds,
        help="round of the rules (default: detected); 6.1 is one of MLPerf Training",
    )
    parser.add_argument(
        "--usage",
        choices=(AUTO, *USAGES),
        default=AUTO,
        help="judge as logs of MLPerf HPC or Training (default: by benchmark and round)",
    )
    parser.add_argument(
        "--committee-rules",
        metavar="DIR",
        help="folder with the committee's rule files for MLPerf Training: mlperf-logging or a clone of it (default: "
        "the installed one); they are read, not run",
    )
    parser.add_argument(
        "--allow-mini", action="store_true", help="accept runs that are no MLPerf results: mini problems, plug-ins"
    )
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        default=PROFILES[0],
        help="strict (default): the written rules, with the official tool's verdict beside them; official: that alone",
    )
    parser.add_argument(
        "--waivers",
        default={},
        type=_argument_type(read_waivers),
        metavar="FILE",
        help="results for which the committee waives the convergence test (YAML: lines "
        "round/organisation/system/scaling/benchmark: reason)",
    )
    add_rules_option(parser)


def _argument_type(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return the `argparse` type that reads an argument; its UsageError becomes a message about the option."""

    def read_argument(text: str) -> T:
        try:
            return read(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_argument


def read_result_options(arguments: argparse.Namespace, details: bool = False) -> Options:
    """Return the options of a check that `add_result_options` has added; details: see Options."""
    names = ("profile", "allow_mini", "waivers", "usage", "committee_rules")
    shared = {name: getattr(arguments, name) for name in names}
    round_ = choose_round(arguments.round, arguments.usage, arguments.committee_rules)
    return Options(**shared, round=round_, progress=sys.stderr.isatty(), details=details)


def add_plugin_options(parser: Parser) -> None:
    """Add `--benchmarks-from` and `--no-plugins`, which `choose_plugins` takes."""
    parser.add_argument(
        "--benchmarks-from",
        action="append",
        default=[],
        metavar="DIR",
        help="also use the benchmark packages in DIR (runs their code if a log names one); may be repeated",
    )
    parser.add_argument("--no-plugins", action="store_true", help="use only the suite's own benchmarks")


def add_rules_option(parser: Parser) -> None:
    """Add `--rules`, which loads rules of your own as soon as it is read."""
    parser.add_argument(
        "--rules",
        action="append",
        type=_argument_type(lambda source: load_rules([source])),
        metavar="MODULE|FILE",
        help="add your own rules (runs the code of this module or .py file)",
    )


def refuse_missing(paths: Iterable[Path | str]) -> None:
    """Raise UsageError for a path that does not exist, with what it may mean."""
    for path in paths:
        if not os.path.exists(path):
            if problem := explain_lost_link(path):
                raise UsageError(f"{path}: {problem}")
            folder, name = os.path.split(os.fspath(path))
            hint = suggest_name(name, os.listdir(folder or ".") if os.path.isdir(folder or ".") else (), 0.8)
            if set(name + folder) & set("*?["):
                hint = "; no file matches this pattern, or quotes keep the shell from replacing it"
            raise UsageError(f"no such file or folder: {path}{hint}")


def refuse_inside(output: Path, inputs: Iterable[Path | str], option: str = "-o") -> None:
    """Raise UsageError if an output, whether it exists or not, is or lies in what is read."""
    target = os.path.realpath(output)
    for path in map(os.path.realpath, inputs):
        if target == path or target.startswith(os.path.join(path, "")):
            name = os.path.basename(target)
            outside = os.path.join(os.path.dirname(path), f"new-{name}" if target == path else name)
            raise UsageError(
                f"{option} {output} is or lies in {path}, which is read; name one outside of it, such as {outside}"
            )


def write_text(text: str, output: Path | None) -> None:
    """Write the text to the file or standard output; UsageError if the file cannot be written.

    Ends the command with exit status 1 if a disk is full.
    """
    text = text if text.endswith("\n") else text + "\n"
    if output is None:
        print(text, end="", flush=True)
        return
    try:
        os.makedirs(os.path.dirname(output) or os.curdir, exist_ok=True)
        with open(output, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except OSError as error:
        problem = f"cannot write {output}: {describe_reason(error)}"
        if error.errno not in OUTPUT_ERRORS:
            raise UsageError(problem) from None
        print_error(problem)
        raise SystemExit(1) from None
