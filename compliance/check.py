"""The command `python -m compliance.check`; `compliance.check_logs` is the same from Python."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from common.benchmarks import choose_plugins
from common.command import CommandParser, UsageError, checked_output, count
from common.console import use_styles
from common.tree import is_device
from common.version import VERSION
from compliance.benchmarks import REFERENCES
from compliance.cli import (
    add_plugin_options,
    add_result_options,
    read_result_options,
    refuse_inside,
    refuse_missing,
    write_text,
)
from compliance.engine import Options, check_paths
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.formats.table import output_width
from compliance.model.judging import ERROR, FAIL_ON, STRICT
from compliance.model.layout import write_slashes
from compliance.model.settings_file import Settings, find_settings, read_settings
from compliance.rules.catalog import all_rules, load_rules

EXAMPLES = """\
examples:
  python -m compliance.check result_0.txt              one log, by the rules of the newest round
  python -m compliance.check logs/                     the logs below a folder: result_*, else *.txt, *.log, *.out
  python -m compliance.check my_organisation/          a submission: logs, runs, convergence, layout
  python -m compliance.check hpc_results_v3.0/         a repository of submissions
  python -m compliance.check mine/ --against hpc_results_v2.0/   also: is a run a copy of one submitted there?
  cat result_0.txt | python -m compliance.check -      standard input
  python -m compliance.check --follow live.txt         watch a run and report early what will fail
  python -m compliance.check --profile official x.txt  the verdict of mlperf-logging 4.1.68
  python -m compliance.check --explain QUA01           what a rule requires and why
  python -m compliance.check --rules own.py logs/      with rules of your own (docs/guide/new-rule.md)

gate: --no-config --fail-on warning,partial passes only what no rule objects to, whatever settings a submission brings

In a folder from a stranger, type `mlperf-hpc check .` or `python -P -m compliance.check .`: these load nothing from it.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    try:
        with checked_output():
            return _run_check(options)
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130


def _run_check(arguments: argparse.Namespace) -> int:
    settings = _read_settings(arguments)
    choose_plugins(arguments.benchmarks_from, arguments.no_plugins)
    load_rules(settings.rules)  # and those of installed packages, before ids are looked up
    if arguments.explain or arguments.list_rules:
        from compliance.explain import explain, list_rules

        shown = (arguments.profile, _selected_prefixes(arguments))
        write_text(explain(arguments.explain) if arguments.explain else list_rules(*shown), arguments.output)
        return 0
    if not arguments.paths:
        raise UsageError("nothing to check: give log files, folders or - for standard input")
    judged = () if arguments.follow else arguments.paths
    refuse_missing(path for path in judged if path != "-")
    for path in judged:
        if is_device(path):
            raise UsageError(f"{path} is a device or a socket, not a file; for standard input, write - in its place")
    options = _read_options(arguments, settings)
    if arguments.follow and (arguments.output or arguments.format != "text"):
        raise UsageError("--follow prints lines of text as they come: it takes neither -o nor another --format")
    if arguments.follow:
        from compliance.engine.follow import follow  # only this mode pays for it

        return follow(arguments.paths, replace(options, settings=Settings()), arguments.follow_timeout)
    if arguments.output:
        refuse_inside(arguments.output, arguments.paths)
    report = check_paths(arguments.paths, options)
    write_text(FORMATS[arguments.format](report, _choose_style(arguments)), arguments.output)
    return report.exit_code


def _make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m compliance.check",
        description="Check result logs and submissions of MLPerf HPC and Training for time to train and convergence.",
        epilog=EXAMPLES,
        statuses={
            0: "passes (perhaps with warnings, notes or skipped rules)",
            1: "missing runs, an error, or what --fail-on names",
        },
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="log, folder of logs, submission, repository, or -")
    judging = parser.add_argument_group("rules to judge by (default: detected from folders and logs)")
    add_result_options(judging)
    names = ", ".join(sorted(REFERENCES))
    judging.add_argument("--benchmark", metavar="NAME", help=f"judge as this benchmark: {names} or a plug-in")
    add_plugin_options(judging)
    judging.add_argument("--division", choices=("closed", "open"), help="judge by this division")
    judging.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="TREE",
        help="also look for copies of runs in these submissions, without judging them; may be repeated",
    )
    config = judging.add_mutually_exclusive_group()
    config.add_argument(
        "--config", metavar="FILE", help="settings file (default: the nearest mlperf-hpc.toml, only stricter keys)"
    )
    config.add_argument("--no-config", action="store_true", help="read no settings file")
    rules = parser.add_argument_group("rules")
    rules.add_argument("--select", action="append", default=[], metavar="ID,...", help="only these ids or prefixes")
    rules.add_argument("--ignore", action="append", default=[], metavar="ID=REASON", help="leave a rule out")
    rules.add_argument("--explain", metavar="ID", help="explain a rule and stop")
    rules.add_argument("--list-rules", action="store_true", help="list all rules, or those of --select, and stop")
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=tuple(FORMATS), default="text", help="default: text")
    output.add_argument("-o", "--output", metavar="FILE", help="write the report there instead of standard output")
    output.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        metavar="WHAT",
        help="least severity with exit status 1: error (default), warning or note; partial: that, or an error; "
        "warning,partial: each of these",
    )
    output.add_argument("-q", "--quiet", action="store_true", help="show only failures and the verdict")
    output.add_argument("-v", "--verbose", action="store_true", help="show every finding, note and skipped rule")
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    output.add_argument("--follow", action="store_true", help="watch a log that is being written")
    output.add_argument(
        "--follow-timeout", type=float, default=0, metavar="SECONDS", help="stop if the log does not grow for this long"
    )
    output.add_argument(
        "--jobs", type=count, default=0, metavar="N", help="processes (default: all cores, on big trees)"
    )
    parser.add_argument("--version", action="version", version=f"mlperf-hpc-suite {VERSION}")
    parser.set_defaults(profile=None, fail_on=None)  # see _read_settings
    return parser


def _read_settings(arguments: argparse.Namespace) -> Settings:
    """Return the settings, and set by them, or by default, what the command line leaves open."""
    find = Settings if arguments.no_config else find_settings
    settings = find() if arguments.config is None else read_settings(arguments.config)
    for name, default in (
        ("round", None),
        ("profile", STRICT),
        ("fail_on", ERROR),
        ("allow_mini", False),
        ("waivers", {}),
    ):
        setattr(arguments, name, getattr(arguments, name) or getattr(settings, name) or default)
    return settings


def _read_options(arguments: argparse.Namespace, settings: Settings) -> Options:
    _check_prefixes(settings.ignore, f"{settings.path}: ignore: ")
    ignore = dict(settings.ignore) if settings.named else {}
    for text in arguments.ignore:
        id_, _, reason = text.partition("=")
        if not reason.strip():
            raise ValueError(f"--ignore {text}: a reason is required; write --ignore {id_}='why'")
        ignore[id_.strip()] = reason.strip()
    _check_prefixes(ignore)
    return replace(
        read_result_options(arguments),
        benchmark=arguments.benchmark,
        division=arguments.division,
        select=_selected_prefixes(arguments),
        ignore=ignore,
        jobs=arguments.jobs,
        against=tuple(arguments.against),
        fail_on=arguments.fail_on,
        settings=settings,
    )


def _check_prefixes(prefixes: Iterable[str], where: str = "") -> tuple[str, ...]:
    """Return the ids and prefixes; raise ValueError, which begins with where they are, if no rule has one."""
    wanted = tuple(prefixes)
    for prefix in wanted:
        if not prefix or not any(id_.startswith(prefix) for id_ in all_rules()):
            raise ValueError(f"{where}no rule {prefix!r}; --list-rules shows all")
    return wanted


def _selected_prefixes(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the ids and prefixes of --select."""
    return _check_prefixes(word for text in arguments.select for word in text.replace(",", " ").split())


def _choose_style(arguments: argparse.Namespace) -> Style:
    auto = arguments.color == "auto" and not arguments.output
    color = arguments.color == "always" or (auto and use_styles(sys.stdout))
    try:
        base = write_slashes(os.getcwd())
    except FileNotFoundError:  # the folder was removed
        base = ""
    width = None if arguments.output else output_width()
    return Style(color=color, width=width, verbose=arguments.verbose, quiet=arguments.quiet, base=base)


if __name__ == "__main__":
    gc.disable()  # the checker makes hardly any cycles, and searching its many records for them takes long
    status = main()
    gc.freeze()  # or Python would search all objects for cycles as it ends, which takes longer than to judge a log
    sys.exit(status)
