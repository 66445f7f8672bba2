"""The command `python -m submission.accept`: is this machine as fast as its baseline? A verdict, or a new baseline."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain, pairwise
from pathlib import Path
from shlex import quote
from typing import Final

from common.benchmarks import find_package, require_package
from common.command import (
    CONTINUED,
    CommandParser,
    UsageError,
    any_path,
    check_new,
    clean,
    describe_error,
    file_path,
    folder_path,
    positive,
    run_command,
)
from common.console import print_error, print_warning
from common.file_kind import BASELINE, FIGURE, HEAD_BYTES, find_kind
from common.files import follow_no_link, new_file, write_whole_file
from common.installed import CLOSED
from common.tree import ANYWHERE
from compliance.cli import write_text
from compliance.formats.json import json_text
from compliance.formats.table import output_width
from submission.accept.baseline import (
    APART,
    JOBS,
    Baseline,
    MeasurementError,
    Settings,
    check_distinct,
    measure_job,
    read_baseline,
    read_jobs,
)
from submission.accept.outputs import (
    EXIT_STATUS,
    append_history,
    check_history,
    describe_acceptance,
    judge_machine,
    render_junit,
    render_table,
    write_archive,
)
from submission.accept.statistics import ALPHA, POWER, THRESHOLD, find_loss
from submission.runs.processes import WRONG_USE, interrupt_by_signals

RUNS: Final = 5
OUTPUTS: Final = ("json", "junit", "history", "archive")
"""The options that name a file to write."""
DESCRIPTION: Final = f"""\
Accept a machine: measure training steps several times, compare them with a baseline, and say PASS, FAIL or UNDECIDED.

  python -m submission.accept --record base.json cosmoflow mini    first job of a baseline; names what is measured
  python -m submission.accept --record base.json                   a further job, an hour or more later
  python -m submission.accept base.json                            measure {RUNS} times: the verdict
  python -m submission.accept base.json --fom runs/*/fom.json      the verdict on measurements made by other means
  python -m submission.accept base.json --junit accept.xml --archive accept.tar.gz"""
EPILOG: Final = f"""\
A baseline has {JOBS} jobs or more that begin an hour or more apart: on shared machines jobs differ (neighbours, nodes,
temperature), and only other jobs show by how much. Call --record once in each job; it says when the next may begin.

FAIL: the machine is significantly slower (one-sided t test of log(samples/s) at {ALPHA:.0%}, Holm over the benchmarks),
and below the threshold. The units of the test are jobs, not runs, because the runs of a job share its node and
temperature; see docs/guide/accept.md. UNDECIDED: not FAIL, but at this spread the test would miss a loss of
{find_loss(THRESHOLD):.0%} (twice the tolerated one) with a probability above {1 - POWER:.0%}; the output says what
would decide. PASS: otherwise.

The command measures the baseline's benchmarks on the ranks of one node. For several nodes call
`srun python -m cosmoflow measure` several times, each with another -o, and pass the files: each --fom is one job, which
began when its first file was written. Files whose dtype, batch, units or network differ from the baseline's are
refused. With --fidelity, a warning says if outputs, gradients or losses are further from float32's, in the median over
the seeds, than in the baseline with any seed. No file is overwritten."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = _parse_arguments(arguments)
    return run_command(lambda: _run_task(options), (OSError, ValueError, MeasurementError), CONTINUED)


def _run_task(options: argparse.Namespace) -> int:
    _check_places(options)
    if options.baseline is None:
        raise UsageError(
            "there is no BASELINE.json: `mlperf-hpc accept --record base.json cosmoflow mini` begins one, "
            f"`mlperf-hpc accept --record base.json` in {JOBS - 1} later jobs adds to it, "
            "and `mlperf-hpc accept base.json` compares with it"
        )
    if options.words and not options.record:
        raise UsageError(
            "the baseline says what is measured: a BENCHMARK is named with --record, as in `mlperf-hpc accept --record "
            "base.json cosmoflow mini`, and `mlperf-hpc accept base.json` compares with it"
        )
    if (options.steps or options.fidelity or options.ranks > 1) and not options.words:
        raise UsageError("--ranks, --steps and --fidelity are for a new BENCHMARK of --record: a baseline has its own")
    return _record_job(options) if options.record else _accept_machine(options)


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        "python -m submission.accept",
        description=DESCRIPTION,
        epilog=EPILOG,
        statuses={
            0: "PASS, or recorded",
            1: "FAIL, or a measurement failed",
            2: "wrong use, such as an incomplete baseline without --provisional, or an output that could not be "
            "written",
            3: "UNDECIDED",
        },
    )
    parser.add_argument("baseline", nargs="?", type=any_path, metavar="BASELINE.json")
    parser.add_argument("-n", type=positive, default=RUNS, help=f"measurements of each benchmark (default {RUNS})")
    parser.add_argument(
        "--fom",
        nargs="+",
        type=any_path,
        action="append",
        default=[],
        metavar="FILE",
        help="measurements of one job instead of measuring; once for each job",
    )
    parser.add_argument("-o", "--output", type=folder_path, metavar="DIR", help="default: runs/accept/<time>")
    add = parser.add_argument_group("verdict").add_argument
    add(
        "--threshold",
        type=_parse_threshold,
        default=THRESHOLD,
        metavar="PERCENT",
        help=f"default: {100 * THRESHOLD:g}",
    )
    add(
        "--provisional",
        action="store_true",
        help="judge by an incomplete baseline; the verdict says so",
    )
    add("--json", type=file_path, metavar="FILE", help="write the verdict there as JSON")
    add("--junit", type=file_path, metavar="FILE", help="as JUnit XML; UNDECIDED is an error there")
    add("--history", type=file_path, metavar="FILE", help="append it to a file of JSON lines")
    add(
        "--archive",
        type=file_path,
        metavar="FILE.tar.gz",
        help="figures, outputs, system description, verdict",
    )
    add = parser.add_argument_group("baseline").add_argument
    add("--record", action="store_true", help="add the measurements of this job to the baseline")
    add(
        "words",
        nargs="*",
        metavar="BENCHMARK",
        help="BENCHMARK [CONFIG] [section.key=value ...], as for measure: a benchmark to add to the baseline",
    )
    add("--ranks", type=positive, default=1, help="processes on this node (default 1)")
    add("--steps", type=positive, help="steps of a measurement")
    add(
        "--fidelity",
        action="store_true",
        help="also measure how far outputs, gradients and losses are from float32's",
    )
    return parser.parse_intermixed_args(arguments)


def _check_places(options: argparse.Namespace) -> None:
    """Raise UsageError, with the right call, for a baseline after --fom, and for measurements without it."""
    fom = list(chain.from_iterable(options.fom))
    others = [*filter(None, [options.baseline]), *map(Path, options.words)]
    kinds = {path: find_kind(ANYWHERE.begin(path, HEAD_BYTES)) for path in (*others, *fom)}
    figures = [path for path, kind in kinds.items() if kind and kind.name == FIGURE]
    swallowed = [path for path in fom if path not in figures and options.baseline is None]
    if swallowed:
        problem = f"--fom takes all words that follow it, {swallowed[-1]}, too: the baseline stands before it"
    elif misplaced := [path for path in others if path in figures]:
        problem = f"{misplaced[0]} is {FIGURE}: measurements follow --fom, after the baseline"
    elif options.words and find_package(str(options.baseline)):
        base = next((path for path in others if path.suffix == ".json"), Path("base.json"))
        words = " ".join(quote(str(path)) for path in others if path != base)
        record = f"`mlperf-hpc accept --record {quote(str(base))} {words}`"
        raise UsageError(f"the file of the baseline comes first, before {words}: {record}")
    else:
        return
    bases = [path for path, kind in kinds.items() if kind and kind.name == BASELINE]
    base = next((path for path in (*bases, *swallowed, *others) if path not in figures), "BASELINE.json")
    files = " ".join(quote(str(path)) for path in figures or ["FILE"])
    record = f"mlperf-hpc accept --record {quote(str(base))} --fom"
    if options.record:
        raise UsageError(f"{problem}: `{record} {files}`")
    begin = "" if bases else f"; `{record} FILES`, called for each of {JOBS} earlier jobs, makes a baseline"
    raise UsageError(f"{problem}: `mlperf-hpc accept {quote(str(base))} --fom {files}`{begin}")


def _parse_threshold(text: str) -> float:
    """Return the share that an argument such as 95 or 95% says; an `argparse` type."""
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0.5 < share < 1:
        raise argparse.ArgumentTypeError(f"expected more than 50 and less than 100 percent, such as 95; got {text!r}")
    return share


def _accept_machine(options: argparse.Namespace) -> int:
    """Judge the machine; return the exit status of the verdict."""
    baseline = read_baseline(options.baseline)
    if baseline.incomplete_series and not options.provisional:
        incomplete = "\n".join(baseline.incomplete_series)
        files = " --fom FILES_OF_THE_JOB" if any(series.settings is None for series in baseline.series) else ""
        raise UsageError(
            f"{options.baseline} is not complete:\n{incomplete}\nAdd each missing job by a call of its own: "
            f"`mlperf-hpc accept --record {quote(str(options.baseline))}{files}`. All files of one --record are one "
            "job: if files of several jobs were recorded together, begin a new baseline with one call for each job. Or "
            "judge by this one with --provisional"
        )
    _check_outputs(options)
    check_distinct([file for job in options.fom for file in job])
    jobs = options.fom or [_measure_here(_list_settings(baseline), options)]
    acceptance = judge_machine(baseline, jobs, options.threshold, is_own=not options.fom)
    writers: dict[str, Callable[[Path], None]] = {
        "json": lambda path: write_whole_file(path, json_text(describe_acceptance(acceptance))),
        "junit": lambda path: write_whole_file(path, render_junit(acceptance)),
        "history": lambda path: append_history(acceptance, path),
        "archive": lambda path: write_archive(acceptance, baseline, jobs, path),
    }
    status = EXIT_STATUS[acceptance.verdict]
    for name in OUTPUTS:
        if path := getattr(options, name):
            try:
                writers[name](path)
            except OSError as error:  # the others are still written
                print_error(f"--{name}: {clean(describe_error(error))}")
                status = WRONG_USE
    write_text(render_table(acceptance, output_width()), None)
    return status


def _check_outputs(options: argparse.Namespace) -> None:
    """Raise UsageError, before anything is measured, if an output cannot be written, or if two are the same file."""
    names = {os.path.realpath(options.output): "output"} if options.output else {}
    for name in OUTPUTS:
        if (path := getattr(options, name)) is None:
            continue
        if (other := names.setdefault(os.path.realpath(path), name)) != name:
            raise UsageError(f"--{other} and --{name} are both {path}; name two")
        if path.is_symlink():
            raise UsageError(f"--{name} {path}: this is a link, which is not followed; remove it, or name another file")
        if name != "history":
            check_new(f"--{name}", path)
        else:
            check_history(path)
        _check_writable(f"--{name}", path)


def _check_writable(name: str, path: Path) -> None:
    """Raise UsageError if no file can be written at a path; one that is there stays as it is."""
    try:
        with new_file(path) if not path.exists() else open(path, "ab", opener=follow_no_link):
            pass
    except OSError as error:
        raise UsageError(f"{name}: {describe_error(error)}") from None


def _record_job(options: argparse.Namespace) -> int:
    """Add a job to the baseline, which is begun if there is none; return 0."""
    if options.baseline.is_symlink():
        raise UsageError(f"{options.baseline} is a link; name the file of the baseline itself")
    baseline = read_baseline(options.baseline) if options.baseline.exists() else Baseline()
    if options.fom and (options.words or len(options.fom) > 1):
        raise UsageError(
            "--record with --fom adds the measurements of one job: give all its files behind one --fom, as in --fom "
            "1.json 2.json, and no BENCHMARK; other jobs, an hour or more apart, are added by calls of their own"
        )
    if not (options.words or options.fom or baseline.series):
        raise UsageError(f"{options.baseline} does not exist: name what to measure, such as cosmoflow mini")
    if options.n < 2:
        raise UsageError("-n 1: one measurement shows no spread; a job of a baseline has 2 or more")
    named_settings = [_read_settings(options)] if options.words else []
    settings = named_settings or ([] if options.fom else _list_settings(baseline))
    now = datetime.now(UTC)
    for series in baseline.series:
        if series.settings in settings and now < series.next_begin:
            raise UsageError(f"jobs of a baseline begin an hour or more apart: {series.describe()}")
    check_distinct([file for job in options.fom for file in job])
    options.baseline.parent.mkdir(parents=True, exist_ok=True)
    _check_writable("BASELINE", options.baseline)
    files = options.fom[0] if options.fom else _measure_here(settings, options)
    if options.baseline.exists():
        baseline = read_baseline(options.baseline)  # again: measuring takes time, in which another job may have ended
    times = sorted(file.stat().st_mtime for file in files)
    if options.fom and any(later - earlier >= APART.total_seconds() for earlier, later in pairwise(times)):
        print_warning(
            f"the files of --fom were written in {(times[-1] - times[0]) / 3600:.0f} hours: are they of several jobs? "
            "They count as one: then begin a new baseline, and record each job by a call of its own"
        )
    for measured in read_jobs(files, is_own=not options.fom):
        baseline.add_job(measured)
    write_whole_file(options.baseline, baseline.encode())
    print("\n".join(series.describe() for series in baseline.series))
    return 0


def _read_settings(options: argparse.Namespace) -> Settings:
    """Return how the benchmark that the words name is measured."""
    benchmark, *words = options.words
    require_package(benchmark)
    config = words.pop(0) if words and "=" not in words[0] else CLOSED
    steps = ("--steps", str(options.steps)) if options.steps else ()
    return Settings(benchmark, config, tuple(words), options.ranks, steps + ("--fidelity",) * options.fidelity)


def _list_settings(baseline: Baseline) -> list[Settings]:
    """Return how the baseline is measured; UsageError if it does not say."""
    for series in baseline.series:
        if series.settings is None:
            raise UsageError(f"{series.workload.name} was recorded with --fom: give --fom again")
    return [series.settings for series in baseline.series if series.settings]


def _measure_here(settings: Sequence[Settings], options: argparse.Namespace) -> list[Path]:
    """Measure in a folder; return the files of the figures of merit."""
    interrupt_by_signals()
    folder = options.output or Path("runs/accept") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    print(f"measuring in {folder}; -o with this folder continues", flush=True)
    return measure_job(settings, options.n, folder)


if __name__ == "__main__":
    sys.exit(main())
