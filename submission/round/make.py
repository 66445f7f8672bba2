"""Make a round: its data and runs on this machine, or the script of its jobs; then package, check and report them.

A throughput result is many instances in one job, their package, score, and advice what to prune.
"""

from __future__ import annotations

import glob
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final, Literal

from common.command import clean, counted, list_some
from common.console import print_warning
from common.ending import TARGET_MET, read_ending
from common.errors import UsageError
from common.files import LOG_NAME, instance_folders, write_whole_file
from common.reference import FULL, OWN
from compliance.engine import Options, check_paths
from compliance.formats import FORMATS
from compliance.formats.findings import shortage
from compliance.formats.style import Style
from compliance.formats.table import output_width
from compliance.logs.run import Run, read_run
from compliance.model.judging import FAIL, INCOMPLETE, PASSING
from compliance.model.layout import SYSTEMS, WEAK
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.score import throughput
from submission.assemble.implementation import find_implementation
from submission.assemble.packing import IMPLEMENTATION, Assembly, name_organisation
from submission.assemble.writing import Assembled, assemble_package
from submission.results.page.page import write_report
from submission.results.read_rows import list_rows
from submission.results.tables import Summary
from submission.round.plan import CONFIG, Series, draw_seeds, make_runs, plan_runs
from submission.runs.plan import PlanError, PlannedRun, check_records, keep_seeds
from submission.runs.processes import JobRunner, Setup, hold_lock, provide_data, resolve_setup
from submission.runs.progress import announce_runs, execute_plan, find_usual_minutes
from submission.runs.scripts.cluster import SUBMIT, Cluster, quote_words
from submission.runs.scripts.script import Script, fill_template, read_sections
from submission.system.describe import describe_system, render_description

PACKAGE: Final = "package"
REPORT: Final = "report.html"


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """What a round needs besides its plan.

    data: parent folder of the datasets; None: as the configurations say. system: file of the system description; None:
    describe this machine. sources: a checkout of the suite for the package; None: the running suite. instances: of a
    throughput result of each benchmark, 0 for runs; instance_ranks: of each of them, where they run on this machine.
    """

    data: Path | None = None
    system: Path | None = None
    sources: Path | None = None
    instances: int = 0
    instance_ranks: int = 1


def make_round(plan: Sequence[Series], output: Path, runner: JobRunner, inputs: RoundInputs) -> str:
    """Train the missing runs of a round in the folder `output`; return the verdict on its package."""
    with open_round(plan, output, runner, inputs) as (setups, package, locked_runner):
        runs = plan_runs(output, {series.benchmark: series.runs for series in plan})
        check_records(runs)
        usual = find_usual_minutes(setups)
        announce_runs(runs, setups, runner.size, usual)
        prepare_benchmarks(setups, output, locked_runner)
        return package.write_package(make_runs(runs, locked_runner, usual))


@contextmanager
def open_round(
    plan: Sequence[Series], output: Path, runner: JobRunner, inputs: RoundInputs
) -> Iterator[tuple[list[Setup], RoundPackage, JobRunner]]:
    """Lock the folder of a round inside the `with`; yield its setups, its package and the runner with the lock.

    A round that cannot start leaves nothing behind: what it needs is checked before the folder is created.
    """
    setups = [resolve_setup(series.benchmark, series.config, series.overrides, inputs.data) for series in plan]
    package = RoundPackage(output, setups, inputs)
    with hold_lock(output) as lock:
        yield setups, package, replace(runner, lock=lock)


def prepare_benchmarks(setups: Sequence[Setup], output: Path, runner: JobRunner) -> None:
    """Write the configuration that all runs of a benchmark share, and provide its data.

    Raises PlanError, before anything is written, if the round has begun with another configuration.
    """
    files = [(output / setup.benchmark / CONFIG, setup.text) for setup in setups]
    for path, text in files:
        earlier = path.read_text(encoding="utf-8") if path.exists() else text
        for before, now in zip_longest(earlier.splitlines(), text.splitlines(), fillvalue=""):
            if before != now:
                raise PlanError(
                    f"{path} has `{before.strip()}`, but this call has `{now.strip()}`: all runs of a round use the "
                    "same configuration; restore the setting, or choose another folder with -o"
                )
    for path, text in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole_file(path, text)
    for setup in setups:
        provide_data(setup, runner)


def identify_system(submission: Mapping[str, str], nodes: int) -> tuple[str, dict[str, str]]:
    """Return the file name of a system description, and its fields that the configurations know."""
    fields = {"system_name": submission["platform"], "number_of_nodes": str(nodes), "submitter": submission["org"]}
    fields |= {name: submission[name] for name in ("division", "status")}
    return f"{'_'.join(submission['platform'].split())}.json", fields


class RoundPackage:
    """The package of a round, with its check and report."""

    def __init__(self, folder: Path, setups: Sequence[Setup], inputs: RoundInputs) -> None:
        """Check that the runs can be packaged, before they start.

        Raises UsageError if the configurations name several submitters or systems (a package has one), and
        AssemblyError if the code for the package is incomplete.
        """
        self.folder, self.inputs = folder, inputs
        for setup in setups:
            if setup.variant == OWN:
                raise UsageError(f"{setup.benchmark}: variant is {OWN}; a round is of the full or a mini problem")
            find_implementation(setup.benchmark, IMPLEMENTATION, inputs.sources).find_files()
        self.submission = setups[0].submission
        name_organisation(self.submission["org"], setups[0].config)
        self.mini = any(setup.variant != FULL for setup in setups)
        for setup in setups:
            for name, value in setup.submission.items():
                if value != (first := self.submission[name]):
                    raise UsageError(
                        f"submission.{name} is {first!r} in {setups[0].config} and {value!r} in "
                        f"{setup.config}; expected one value: use --set submission.{name}=VALUE"
                    )

    def write_package(self, logs: Mapping[Path, Run]) -> str:
        """Write package and report of the finished runs; return the verdict on the package, FAIL if there is none."""
        if not logs:
            print("no finished runs: nothing to package; see the output above for why", file=sys.stderr)
            return FAIL
        return self.show_package(self.pack_logs(logs)).verdict

    def pack_logs(self, logs: Mapping[Path, Run], scaling: Literal["strong", "weak"] = "strong") -> Assembled:
        """Write the package, or extend it by these logs."""
        with tempfile.TemporaryDirectory(prefix="mlperf-hpc-round-") as scratch:
            package = assemble_package(
                Assembly(
                    runs=tuple(logs),
                    scaling=scaling,
                    read_runs=logs,
                    output=self.folder / PACKAGE,
                    system=self.inputs.system or self._write_system(Path(scratch)),
                    organisation=self.submission["org"],
                    sources=self.inputs.sources,
                    draft=True,  # the user completes the description in the package
                )
            )
        for warning in package.warnings:
            print_warning(clean(f"{warning}"))
        return package

    def show_package(self, package: Assembled) -> Report:
        """Check the package, write the report, and return what the check has found."""
        options = Options(
            round=self.submission["round"], allow_mini=self.mini, progress=sys.stderr.isatty(), details=True
        )
        report = check_paths([package.root], options)
        write_report(report, self.folder / REPORT, f"{self.submission['org']}, round {self.submission['round']}")
        width = output_width()
        check = FORMATS["text"](report, Style(width=width or 100, base=os.getcwd()))
        print(f"\n{check}\n{Summary(list_rows(report)).format_text(width)}")
        print(clean(f"package: {package.root}"))
        print(clean(f"report:  {self.folder / REPORT}"), flush=True)
        if report.verdict == INCOMPLETE:
            print(f"INCOMPLETE: {shortage(report)}", flush=True)
        return report

    def _write_system(self, scratch: Path) -> Path:
        """Return the system description: that of the package, which a user may have completed, or a new one."""
        name, fields = identify_system(self.submission, 1)
        for path in (self.folder / PACKAGE).glob(f"*/{SYSTEMS}/{glob.escape(name)}"):
            return path
        path = scratch / name
        path.write_text(render_description(describe_system(fields).fields))
        return path


FOLDER: Final = "throughput"
"""The folder of the instances, below that of their benchmark."""


Logs = dict[Path, Run]
"""The logs of instances that have ended for good, as read."""


def make_throughput(plan: Sequence[Series], output: Path, runner: JobRunner, inputs: RoundInputs) -> str:
    """Train the instances of each benchmark in one job, package those that met the target, and show the score.

    Returns the verdict on the package. Call it again to go on: instances that have their result stay as they are.
    """
    with open_round(plan, output, runner, inputs) as (setups, package, locked_runner):
        for setup in setups:
            folder = output / setup.benchmark / FOLDER
            present = max(instance_folders(folder), default=-1) + 1
            if present > inputs.instances:  # leaving some out would be cherry-picking
                raise PlanError(
                    f"{folder} has {present} instances, but {inputs.instances} are requested: their number can "
                    "only grow; which of them do not count is decided by pruning. For fewer choose another folder "
                    "with -o"
                )
        jobs = [_plan_job(setup, inputs, output, runner.size) for setup in setups]
        announce_runs(jobs, setups, 1, {})
        prepare_benchmarks(setups, output, locked_runner)
        execute_plan(jobs, replace(locked_runner, size=1), _describe_job)
        return _package_models(package, {job.benchmark: _read_results(job) for job in jobs})


def _plan_job(setup: Setup, inputs: RoundInputs, output: Path, size: int) -> PlannedRun:
    """Return the job that trains the instances of a benchmark on this machine. size: of them at the same time."""
    # The seed is drawn by the first call, and kept.
    settings = ("train.seed=null", f"instances.ranks={inputs.instance_ranks}")
    series = Series(setup.benchmark, str(output / setup.benchmark / CONFIG), 1, settings)
    return plan_instances(series, output, inputs.instances, min(size, inputs.instances) * inputs.instance_ranks)


def _describe_job(job: PlannedRun) -> str:
    """Return how many instances of a finished job have met the target, for its line of progress."""
    endings = [read_ending(folder) for folder in job.result_folders]
    met = sum(ending is not None and ending.how == TARGET_MET for ending in endings)
    return f"done: {met} of {counted(len(endings), 'instance')} met the target"


def _read_results(job: PlannedRun) -> tuple[Logs, Logs]:
    """Return the logs of the instances with a result, those that met the target first; say which have none."""
    met: Logs = {}
    missed: Logs = {}
    for folder in job.result_folders:
        ending = read_ending(folder)
        if ending is None or not ending.final:
            cause = ending.text if ending else "it was not started, or was killed"
            print(clean(f"{folder}: no result ({cause})"), file=sys.stderr)
        else:
            logs = met if ending.how == TARGET_MET else missed
            logs[folder / LOG_NAME] = read_run(str(folder / LOG_NAME))
    return met, missed


def plan_instances(series: Series, output: Path, count: int, ranks: int) -> PlannedRun:
    """Return the job that trains all instances of a series on this many ranks, or goes on with them."""
    return PlannedRun(
        benchmark=series.benchmark,
        kind="training",
        config=series.config,
        overrides=series.overrides,
        folder=output / series.benchmark / FOLDER,
        ranks=ranks,
        instances=count,
    )


def _package_models(package: RoundPackage, trained: Mapping[str, tuple[Logs, Logs]]) -> str:
    """Write and check the package, and print the scores; return its verdict, FAIL without a model."""
    assembled = None
    for benchmark, (met, missed) in trained.items():
        if met:
            for log in missed:
                print(clean(f"{log.parent}: missed the target: not a model, and not packaged (RUN11)"), file=sys.stderr)
            assembled = package.pack_logs(met, "weak")
        else:
            print(f"{benchmark}: no instance met the target: nothing to package", file=sys.stderr)
    if assembled is None:
        return FAIL
    report = package.show_package(assembled)
    for benchmark in trained:
        for results in report.sets:
            if results.scaling == WEAK and results.benchmark == benchmark and results.reference:
                print("\n".join(describe_score(results, results.reference.runs)), flush=True)
    return report.verdict if all(met for met, _ in trained.values()) else FAIL


# -- the score and what could be better ----------------------------------------------------------------------


def describe_score(results: ResultSet, least: int) -> list[str]:
    """Return the score of a throughput result, and which instances to prune for a better one."""
    score = throughput(results.runs, results.system_scale, results.instance_scale)
    if score.minutes is None or score.models_per_minute is None:
        return [f"{results.name}: no score: none of the logs passes the check"]
    scale = "less than 1" if score.instance_scale is None else score.instance_scale
    valid = results.verdict in PASSING
    return [
        f"{results.name}: T = {score.system_scale}, S = {scale}, M' = {score.models}, TTTa = {score.minutes:.4g} min: "
        f"{score.models_per_minute:.4g} models/min{'' if valid else f'; not a result: {results.verdict}'}",
        f"advice: {advise_pruning(results, least)}",
    ]


def advise_pruning(results: ResultSet, least: int) -> str:
    """Return which instances to prune. least: models that the rules ask for."""
    accepted = [run for run in results.runs if run.verdict != FAIL]
    runs = sorted((run for run in accepted if run.start_ms and run.stop_ms), key=lambda run: run.stop_ms or 0.0)
    if len(runs) <= least:
        return f"prune none: {len(runs)} models, of which the rules ask for at least {least}"
    clocks = [(run.start_ms or 0.0, run.stop_ms or 0.0) for run in runs]
    kept = find_best_count(clocks, least)
    if kept == len(runs):
        return "prune none: fewer models are not more models/min"
    names = list_some([run.path.rsplit("/", 1)[-1] for run in runs[kept:]], 8)
    return (
        f"move {names} to pruned_results: {kept} models are {compute_rate(clocks[:kept]):.4g} models/min instead of "
        f"{compute_rate(clocks):.4g}"
    )


def find_best_count(clocks: Sequence[tuple[float, float]], least: int) -> int:
    """Return how many of the instances, those that stop first, give most models per minute; of equals the most.

    clocks: start and stop in ms, by their stop. least: that must be kept.
    """
    return max(range(min(least, len(clocks)), len(clocks) + 1), key=lambda count: (compute_rate(clocks[:count]), count))


def compute_rate(clocks: Sequence[tuple[float, float]]) -> float:
    """Return models per minute: from the first start to the last stop."""
    return len(clocks) / ((max(stop for _, stop in clocks) - min(start for start, _ in clocks)) / 60_000)


# -- on a cluster ---------------------------------------------------------------------------------------------

SECTIONS: Final = read_sections(Path(__file__).with_name("package.sh"))


def render_round(plan: Sequence[Series], cluster: Cluster, nodes: int, out: Path, inputs: RoundInputs) -> str:
    """Return the script that makes a round in a folder. nodes: of a run, or of all instances.

    Runs keep the seeds that the folder has; the others are drawn. Raises UsageError if the round cannot be made.
    """
    setups = [resolve_setup(series.benchmark, series.config, series.overrides) for series in plan]
    ranks, instances = nodes * cluster.ranks_per_node, inputs.instances
    if instances:
        runs = keep_seeds([plan_instances(series, out, instances, ranks) for series in plan], draw_seeds())
        if not cluster.count_instance_nodes(runs[0]):
            size = f"{nodes} nodes of {cluster.ranks_per_node} ranks do not divide into {instances} instances"
            raise UsageError(
                f"--throughput {instances} with --emit: {size if cluster.starts_by_srun else 'needs slurm and srun'}; "
                "each has whole nodes. Otherwise train all in a job of your own: see docs/guide/cluster.md"
            )
    else:
        by_benchmark = {series.benchmark: series for series in plan}
        runs = [
            replace(
                run,
                config=by_benchmark[run.benchmark].config,
                overrides=by_benchmark[run.benchmark].overrides,
                ranks=ranks,
            )
            for run in plan_runs(out, {series.benchmark: series.runs for series in plan})
        ]
    describe = "" if inputs.system else _describe_system(setups[0], nodes, out)
    return Script(
        runs=runs,
        cluster=cluster,
        out=out,
        after=describe + _render_package(setups, out, inputs),
        title=f"An MLPerf HPC round, printed by `python -m submission.round --emit {cluster.scheduler}`.",
        # The package may be made on another kind of node than the runs.
        before=describe + SECTIONS["describe_first"] if describe and cluster.scheduler in SUBMIT else "",
        name="package",
    ).render()


def _describe_system(setup: Setup, nodes: int, out: Path) -> str:
    """Return the function that describes the system."""
    name, fields = identify_system(setup.submission, nodes)
    words = quote_words(setup.benchmark, [f"{field}={value}" for field, value in fields.items()])
    system = quote_words(setup.benchmark, [name])
    return fill_template(SECTIONS["describe"], {"out": out, "system": system, "fields": words})


def _render_package(setups: Sequence[Setup], out: Path, inputs: RoundInputs) -> str:
    """Return the lines that package, report and check the runs with a result."""
    folders = f"{FOLDER}/instance_*" if inputs.instances else "run_*"
    options = f" --sources {quote_words('--sources', [str(inputs.sources)])}" if inputs.sources else ""
    options += f" --scaling {WEAK}" if inputs.instances else ""
    values = {
        "system": quote_words("--system", [str(inputs.system)]) if inputs.system else "$(describe)",
        "runs": " ".join(f"{out}/{setup.benchmark}/{folders}" for setup in setups),
        "out": out,
        "options": options,
        "mini": " --allow-mini" if any(setup.variant != FULL for setup in setups) else "",
    }
    return fill_template(SECTIONS["package"], values)
