"""Print a round as job scripts: its runs, or the instances of a throughput result; then package, check and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.errors import UsageError
from common.reference import FULL
from compliance.model.layout import WEAK
from submission.round.make import RoundInputs
from submission.round.plan import Series
from submission.round.runs import draw_seeds, plan_runs
from submission.round.throughput import FOLDER, ThroughputRun
from submission.runs.plan import PlannedRun, keep_seeds
from submission.runs.scripts.cluster import SUBMIT, Cluster
from submission.runs.scripts.script import ONE_LAUNCHER, fill, read_sections, render_plan
from submission.runs.scripts.site import quote_words
from submission.runs.setup import Setup, resolve_setup

SECTIONS: Final = read_sections(Path(__file__).with_name("package.sh"))


def divide_nodes(cluster: Cluster, nodes: int, count: int, ranks: int | None) -> ThroughputRun:
    """Return a run of `count` instances of `ranks` ranks each (None: equal shares), each on nodes of its own.

    Raises UsageError if they do not fill the nodes.
    """
    if not cluster.starts_by_srun:
        raise UsageError(f"--throughput with --emit needs slurm and srun; {ONE_LAUNCHER}")
    share = (ranks or nodes * cluster.ranks_per_node // count) // cluster.ranks_per_node
    if share * count != nodes or (ranks or 0) % cluster.ranks_per_node:
        raise UsageError(
            f"--throughput {count}: {nodes} nodes of {cluster.ranks_per_node} ranks do not divide into {count} "
            f"instances{f' of {ranks} ranks' if ranks else ''} on nodes of their own; expected whole nodes for each "
            f"({ONE_LAUNCHER})"
        )
    return ThroughputRun(count, share * cluster.ranks_per_node)


def render_round(  # noqa: PLR0913  (a round, and where it is made)
    plan: Sequence[Series], cluster: Cluster, nodes: int, out: Path, inputs: RoundInputs, wanted: ThroughputRun | None
) -> str:
    """Return the script that makes a round in a folder; nodes: of a run. wanted: its throughput runs; None: its runs.

    Runs keep the seeds that the folder has; the others are drawn. Raises UsageError if the round cannot be made.
    """
    setups = [resolve_setup(series.benchmark, series.config, series.overrides) for series in plan]
    if wanted:
        runs = [_plan_instances(series, out, wanted) for series in plan]
        runs = keep_seeds(runs, draw_seeds())
    else:
        settings = {series.benchmark: (series.config, series.overrides) for series in plan}
        runs = [
            replace(
                run,
                config=settings[run.benchmark][0],
                overrides=settings[run.benchmark][1],
                ranks=nodes * cluster.ranks_per_node,
            )
            for run in plan_runs(out, {series.benchmark: series.runs for series in plan})
        ]
    describe = "" if inputs.system else _describe_system(setups[0], nodes, out)
    scheduled = cluster.scheduler in SUBMIT
    return render_plan(
        runs,
        cluster,
        out,
        describe + _package(setups, out, inputs, bool(wanted)),
        title=f"An MLPerf HPC round, printed by `python -m submission.round --emit {cluster.scheduler}`.",
        # The package may be made on another kind of node than the runs.
        before=describe + SECTIONS["describe_first"] if describe and scheduled else "",
        name="package",
    )


def _plan_instances(series: Series, out: Path, wanted: ThroughputRun) -> PlannedRun:
    return PlannedRun(
        benchmark=series.benchmark,
        kind="training",
        config=series.config,
        overrides=series.overrides,
        folder=out / series.benchmark / FOLDER,
        ranks=wanted.count * wanted.ranks,
        continues=True,
        instances=wanted.count,
    )


def _describe_system(setup: Setup, nodes: int, out: Path) -> str:
    """Return the function that describes the system."""
    submission = setup.submission
    fields = {"system_name": submission["platform"], "number_of_nodes": nodes, "submitter": submission["org"]}
    fields |= {name: submission[name] for name in ("division", "status")}
    words = quote_words(setup.benchmark, [f"{name}={value}" for name, value in fields.items()])
    system = quote_words(setup.benchmark, [f"{'_'.join(submission['platform'].split())}.json"])
    return fill(SECTIONS["describe"], {"out": out, "system": system, "fields": words})


def _package(setups: Sequence[Setup], out: Path, inputs: RoundInputs, throughput: bool) -> str:
    """Return the lines that package, report and check the runs with a result."""
    folders = f"{FOLDER}/instance_*" if throughput else "run_*"
    options = f" --sources {quote_words('--sources', [str(inputs.sources)])}" if inputs.sources else ""
    options += f" --scaling {WEAK}" if throughput else ""
    values = {
        "system": quote_words("--system", [str(inputs.system)]) if inputs.system else "$(describe)",
        "runs": " ".join(f"{out}/{setup.benchmark}/{folders}" for setup in setups),
        "out": out,
        "options": options,
        "mini": " --allow-mini" if any(setup.variant != FULL for setup in setups) else "",
    }
    return fill(SECTIONS["package"], values)
