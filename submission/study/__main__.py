"""The command `python -m submission.study`: runs over axes, their table, curves and the laws that these follow."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.command import CommandParser, UsageError, positive, run_command
from common.config import guess_key, to_dict
from common.settings.run import RunConfig
from compliance.formats.table import output_width
from submission.runs.plan import check_records
from submission.runs.processes import JobRunner
from submission.runs.scripts.cluster import add_cluster_options, quote_words, read_cluster
from submission.runs.scripts.script import Script
from submission.study.curves import trace_curves
from submission.study.page import (
    CSV,
    JSON,
    PAGE,
    check_files,
    describe_origin,
    format_notes,
    format_runs,
    write_results,
)
from submission.study.plan import (
    SEED,
    StudyPlan,
    StudyPoint,
    is_plan,
    list_curves,
    list_presets,
    parse_axis,
    plan_points,
    read_plan,
)
from submission.study.records import StudyResult, describe_quantities
from submission.study.runs import (
    choose_meter,
    collect_runs,
    find_changeable,
    format_command,
    make_runs,
    probe_study_machine,
    set_threads,
    split_points,
)

DESCRIPTION: Final = """\
Make runs over axes, and turn them into a table, curves and the laws that these follow.

  python -m submission.study --list                      presets that redraw the studies of papers
  python -m submission.study litmatter                   loss against samples and parameters
  python -m submission.study plan.yaml -o runs/width     a study of your own (docs/guide/study.md)
  python -m submission.study litmatter --axis data.train_samples=64,128,256
                                                         with other values of an axis
  python -m submission.study --benchmark cosmoflow --axis optim.weight_decay=0,0.01 --axis train.seed=1,2 -o runs/decay
                                                         without a plan: four trainings of the mini problem
  python -m submission.study ai500-fig5 --emit slurm --site perlmutter > submit.sh
                                                         a script that submits the jobs on a cluster

Call it again to continue: it never repeats a run with a result, and starts killed runs again. Each run has a folder,
such as conv_size-16_train_samples-512/seed_1."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    arguments = _make_parser().parse_args(argv)
    return run_command(lambda: _run_study(arguments), (ValueError, OSError))


def _explain_option(option: str, value: str) -> str:
    """Return what to write in place of an option that is a key of the configuration."""
    key = guess_key(RunConfig, option.strip("-").replace("-", "_"))
    return f": write --set {key}={value or 'V'}, or for several values --axis {key}=V,V" if key else ""


def _make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "python -m submission.study",
        explain_option=_explain_option,
        description=DESCRIPTION,
        epilog=f"""\
In the folder of the study: {JSON}, {CSV}, curve-TITLE.svg, {PAGE}, and the folders of the runs.

quantities, which curves can have as x, y and by, beside the axes:
{describe_quantities()}""",
        statuses={
            0: "all runs have a result",
            1: "some have none, or an error",
            130: "interrupted: call again",
        },
    )
    add = parser.add_argument_group("what to run").add_argument
    add("plan", nargs="?", metavar="PLAN.yaml|PRESET", help="a plan; --list shows the presets")
    add("--list", action="store_true", help="list the presets with their papers, and exit")
    add("--full", action="store_true", help="more points: the plan's key `full`")
    add(
        "--benchmark",
        metavar="NAME",
        help="benchmark without a plan, or instead of the plan's",
    )
    add(
        "--config",
        metavar="NAME|FILE",
        help="configuration of the benchmark (without a plan: mini)",
    )
    add(
        "--kind",
        choices=("training", "measurement"),
        help="kind of the runs without a plan (default: training)",
    )
    add(
        "--axis",
        action="append",
        default=[],
        metavar="KEY=V,V",
        help="values of an axis, in YAML; may be repeated",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="a.b=v",
        help="a setting for all runs; may be repeated",
    )
    add = parser.add_argument_group("where and how").add_argument
    add("-o", "--output", type=Path, metavar="DIR", help="default: runs/study-NAME")
    add(
        "--jobs",
        type=positive,
        default=1,
        help="concurrent runs (default: 1; more disturb measurements)",
    )
    add(
        "--threads",
        type=positive,
        default=0,
        help="CPU threads of each rank, in all runs (default: the largest run fits the cores)",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print the commands of the runs, and run nothing",
    )
    add("--no-run", action="store_true", help="run nothing: draw the runs that exist")
    add_cluster_options(parser)
    return parser


def _run_study(arguments: argparse.Namespace) -> int:
    if arguments.list:
        for name, path in list_presets().items():
            preset = read_plan(name)
            print(f"{name:<12} {preset.title}\n{'':<12} {preset.paper}\n{'':<12} {path}")
        return 0
    plan, source, output = _read_arguments(arguments)
    if sum(map(bool, (arguments.emit, arguments.dry_run, arguments.no_run))) > 1:
        raise UsageError("--emit, --dry-run and --no-run: expected one of them")
    specs = list_curves(plan, source)
    check_files(output, specs)
    if arguments.emit:
        points = plan_points(plan, output, source)
        if arguments.threads:
            points = [set_threads(point, arguments.threads) for point in points]
        check_records([point.run for point in points])  # a job refuses to replace even a run without a result
        print(_render_script(points, arguments, output), end="")
        return 0
    if arguments.site:
        raise UsageError("--site is for --emit: it describes jobs on a cluster")
    machine = probe_study_machine()
    plan, notes = choose_meter(plan, machine)
    points, exclusions = split_points(plan_points(plan, output, source), machine)
    notes += exclusions
    if not points:
        raise UsageError(f"{source}: this machine can make no point:\n" + "\n".join(notes))
    threads = arguments.threads or max(1, machine.cores // arguments.jobs // max(point.run.ranks for point in points))
    points = [set_threads(point, threads) for point in points]
    if arguments.dry_run:
        find_changeable(points)
        commands = (format_command(point.run) for point in points)
        print("\n".join([*commands, *describe_origin(plan.paper, plan.differences), *notes]))
        return 0
    if not arguments.no_run:
        make_runs(points, output, JobRunner(arguments.jobs, repeats_errors=False))
    elif not output.is_dir():
        raise UsageError(f"-o {output}: there is no such study; leave out --no-run to make its runs")
    runs = tuple(collect_runs(points, specs))
    origin = plan.title, plan.paper, plan.differences, machine.describe()
    result = StudyResult(*origin, runs, specs, tuple(notes), os.getcwd())
    curves = trace_curves(result)
    write_results(output, result, curves, to_dict(plan))
    print("\n".join(["", format_runs(result, output_width()), *format_notes(result, curves)]))
    print(f"page: {output / PAGE}")
    return int(any(run.problem for run in result.runs))


def _render_script(points: Sequence[StudyPoint], arguments: argparse.Namespace, output: Path) -> str:
    """Return the script for a cluster that makes the runs, then collects them."""
    words = [
        *([arguments.plan] if arguments.plan else []),
        *(["--full"] if arguments.full else []),
    ]
    for option in ("benchmark", "config", "kind", "axis", "set", "threads"):
        values = getattr(arguments, option)
        words += [f"--{option}={value}" for value in (values if isinstance(values, list) else [values]) if value]
    collect = quote_words("study", [*words, "--no-run", "-o", str(output)])
    return Script(
        runs=[
            *(point.run for point in points),
            *(point.evaluation for point in points if point.evaluation),
        ],
        cluster=read_cluster(arguments),
        out=output,
        after=f"suite submission.study {collect}\n",
        title=f"An MLPerf HPC study, printed by `python -m submission.study --emit {arguments.emit}`.",
        name="study",
    ).render()


def _read_arguments(arguments: argparse.Namespace) -> tuple[StudyPlan, str, Path]:
    """Return the plan, its source in messages, and the folder of the study."""
    axes = {}
    for key, values in map(parse_axis, arguments.axis):
        if key in axes:
            raise UsageError(f"--axis {key} is given twice; give all its values at once: {key}=A,B")
        axes[key] = values
    if arguments.plan is None:
        if not arguments.benchmark or not axes:
            missing = "an --axis such as ranks=1,2" if arguments.benchmark else "a --benchmark such as cosmoflow"
            raise UsageError(f"expected a plan, a preset (--list), or {missing}, with it, without a plan")
        if arguments.full:
            raise UsageError("--full is for plans that have `full`; without a plan vary more with --axis")
        plan, source = StudyPlan(title=f"{arguments.benchmark} over {', '.join(axes)}"), "--axis"
    elif (words := [*arguments.axis, *arguments.set]) and not is_plan(arguments.plan):
        raise UsageError(
            f"{arguments.plan!r} is neither a preset (--list) nor FILE.yaml; if it belongs to the word before it, such "
            f"as {words[-1]}, write both as one: values with commas and without blanks, or all in quotes"
        )
    else:
        plan, source = read_plan(arguments.plan, arguments.full), arguments.plan
    if arguments.kind and arguments.plan:
        raise UsageError(f"--kind is for studies without a plan; {arguments.plan} has its own kind")
    overrides = [override for override in plan.overrides if override.partition("=")[0].strip() not in axes]
    try:
        plan = replace(  # an axis takes the place of what the plan has of its key
            plan,
            benchmarks=(arguments.benchmark,) if arguments.benchmark else plan.benchmarks,
            config=arguments.config or plan.config,
            kind=arguments.kind or plan.kind,
            axes=plan.axes | axes,
            scales={key: formula for key, formula in plan.scales.items() if key not in axes},
            seeds=(1,) if SEED in axes else plan.seeds,
            overrides=(*overrides, *arguments.set),
        )
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from error
    return plan, source, arguments.output or Path("runs", f"study-{Path(arguments.plan or 'axes').stem}")


if __name__ == "__main__":
    sys.exit(main())
