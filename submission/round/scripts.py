"""Print a round as job scripts: its runs, or the instances of a throughput result; then package, check and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.errors import UsageError
from common.reference import FULL
from compliance.model.layout import WEAK
from submission.round.make import RoundInputs, identify_system
from submission.round.plan import Series
from submission.round.runs import draw_seeds, plan_runs
from submission.round.throughput import FOLDER, plan_instances
from submission.runs.plan import keep_seeds
from submission.runs.scripts.cluster import SUBMIT, Cluster
from submission.runs.scripts.script import Script, fill_template, read_sections
from submission.runs.scripts.site import quote_words
from submission.runs.setup import Setup, resolve_setup

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
        runs = plan_runs(out, {series.benchmark: series.runs for series in plan})
        for number, run in enumerate(runs):
            series = by_benchmark[run.benchmark]
            runs[number] = replace(run, config=series.config, overrides=series.overrides, ranks=ranks)
    describe = "" if inputs.system else _describe_system(setups[0], nodes, out)
    return Script(
        runs=runs,
        cluster=cluster,
        out=out,
        after=describe + _package(setups, out, inputs),
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


def _package(setups: Sequence[Setup], out: Path, inputs: RoundInputs) -> str:
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
