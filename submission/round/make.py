"""Run a round on this machine: its data and runs; then package, check and report the finished ones."""

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

from common.command import UsageError, clean
from common.datasets import manifest
from common.files import write_whole_file
from common.reference import FULL
from compliance.engine import Options, check_paths
from compliance.formats import FORMATS, Style
from compliance.formats.findings import shortage
from compliance.formats.table import output_width
from compliance.logs.run import Run
from compliance.model.finding import FAIL, INCOMPLETE
from compliance.model.layout import SYSTEMS
from compliance.model.report import Report
from submission.assemble.implementation import find_implementation
from submission.assemble.packing import IMPLEMENTATION, Assembled, Assembly, assemble_package
from submission.results.page.page import write_report
from submission.results.read_rows import rows
from submission.results.tables import Summary
from submission.round.plan import Series, Setup, quoted, resolve
from submission.round.runs import CONFIG, make_runs, plan_runs
from submission.runs.plan import PlanError
from submission.runs.processes import JobRunner, hold_lock
from submission.system.describe import describe_system, render_description

PACKAGE: Final = "package"
REPORT: Final = "report.html"


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """What a round needs besides its plan.

    data: parent folder of the datasets; None: as the configurations say. system: file of the system description; None:
    describe this machine. sources: a checkout of the suite for the package; None: the running suite.
    """

    data: Path | None = None
    system: Path | None = None
    sources: Path | None = None


def make_round(plan: Sequence[Series], output: Path, runner: JobRunner, inputs: RoundInputs) -> str:
    """Train the missing runs of a round in the folder `output`; return the verdict on its package."""
    with open_round(plan, output, runner, inputs) as (setups, package, locked_runner):
        runs = plan_runs(output, {setup.series.benchmark: setup.series.runs for setup in setups})
        for setup in setups:
            if (path := output / setup.series.benchmark / CONFIG).exists():
                check_same(path, setup.text)
        for setup in setups:
            write_config(output / setup.series.benchmark / CONFIG, setup.text)
        for setup in setups:
            provide_data(setup, locked_runner)
        return package.write(make_runs(runs, locked_runner))


@contextmanager
def open_round(
    plan: Sequence[Series], output: Path, runner: JobRunner, inputs: RoundInputs
) -> Iterator[tuple[list[Setup], RoundPackage, JobRunner]]:
    """Lock the folder of a round inside the `with`; yield its setups, its package and the runner with the lock.

    A round that cannot start leaves nothing behind: what it needs is checked before the folder is created.
    """
    setups = []
    for setup in map(resolve, plan):
        if inputs.data is not None:
            folder = quoted(str(inputs.data / setup.data_dir.name))
            setup = resolve(setup.series.set(f"data.data_dir={folder}"))
        setups.append(setup)
    package = RoundPackage(output, setups, inputs)
    with hold_lock(output) as lock:
        yield setups, package, replace(runner, lock=lock)


def check_same(path: Path, text: str) -> None:
    """Raise PlanError if the file holds another configuration: all runs of a result share one."""
    for before, now in zip_longest(path.read_text().splitlines(), text.splitlines(), fillvalue=""):
        if before != now:
            raise PlanError(
                f"{path} has `{before.strip()}`, but this call has `{now.strip()}`: all runs of a round use the same "
                "configuration; restore the setting, or choose another folder with -o"
            )


def write_config(path: Path, text: str) -> None:
    """Write the configuration that all runs of a benchmark share."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole_file(path, text)


def provide_data(setup: Setup, runner: JobRunner) -> None:
    """Generate the dataset of a mini problem, unless it is complete."""
    folder = setup.data_dir
    if setup.variant != FULL and not (folder / manifest.NAME).exists():
        benchmark, work = setup.series.benchmark, f"generating the {setup.variant} dataset"
        print(f"{benchmark}: no data in {folder}; {work}", flush=True)
        command = [f"{benchmark}.synthesize", str(folder), "--preset", setup.variant]
        if runner.run([sys.executable, "-m", *command], instead=f"{benchmark}: {work}"):
            raise PlanError(f"cannot generate the data of {setup.series.benchmark} in {folder}: see the error above")


class RoundPackage:
    """The package of a round, with its check and report."""

    def __init__(self, folder: Path, setups: Sequence[Setup], inputs: RoundInputs) -> None:
        """Check that the runs can be packaged, before they start.

        Raises UsageError if the configurations name several submitters or systems (a package has one), and
        AssemblyError if the code for the package is incomplete.
        """
        self.folder, self.inputs = folder, inputs
        for setup in setups:
            find_implementation(setup.series.benchmark, IMPLEMENTATION, inputs.sources).find_files()
        self.submission = setups[0].submission
        self.round = setups[0].round
        self.mini = any(setup.variant != FULL for setup in setups)
        for setup in setups:
            for name, value in {**setup.submission, "round": setup.round}.items():
                first = {**self.submission, "round": self.round}[name]
                if value != first:
                    raise UsageError(
                        f"submission.{name} is {first!r} in {setups[0].series.config} and {value!r} in "
                        f"{setup.series.config}; expected one value: use --set submission.{name}=VALUE"
                    )

    def write(self, logs: Mapping[Path, Run]) -> str:
        """Write package and report of the finished runs; return the verdict on the package, FAIL if there is none."""
        if not logs:
            print("no finished runs: nothing to package; see the output above for why", file=sys.stderr)
            return FAIL
        return self.show(self.pack(logs)).verdict

    def pack(self, logs: Mapping[Path, Run], scaling: Literal["strong", "weak"] = "strong") -> Assembled:
        """Write the package, or extend it by these logs."""
        with tempfile.TemporaryDirectory(prefix="mlperf-hpc-round-") as scratch:
            package = assemble_package(
                Assembly(
                    runs=tuple(logs),
                    scaling=scaling,
                    read_runs=logs,
                    output=self.folder / PACKAGE,
                    system=self.inputs.system or self._system_file(Path(scratch)),
                    organisation=self.submission["org"],
                    sources=self.inputs.sources,
                )
            )
        for warning in package.warnings:
            print(clean(f"warning: {warning}"), file=sys.stderr)
        return package

    def show(self, package: Assembled) -> Report:
        """Check the package, write the report, and return what the check has found."""
        options = Options(round=self.round, allow_mini=self.mini, progress=sys.stderr.isatty(), details=True)
        report = check_paths([package.root], options)
        write_report(report, self.folder / REPORT, f"{self.submission['org']}, round {self.round}")
        width = output_width()
        check = FORMATS["text"](report, Style(width=width or 100, base=os.getcwd()))
        print(f"\n{check}\n{Summary(rows(report)).format_text(width)}")
        print(clean(f"package: {package.root}"))
        print(clean(f"report:  {self.folder / REPORT}"), flush=True)
        if report.verdict == INCOMPLETE:
            print(f"INCOMPLETE: {shortage(report)}", flush=True)
        return report

    def _system_file(self, scratch: Path) -> Path:
        """Return the system description: that of the package, which a user may have completed, or a new one."""
        name = f"{'_'.join(self.submission['platform'].split())}.json"
        for path in (self.folder / PACKAGE).glob(f"*/{SYSTEMS}/{glob.escape(name)}"):
            return path
        known = {
            "submitter": self.submission["org"],
            "division": self.submission["division"],
            "status": self.submission["status"],
            "system_name": self.submission["platform"],
            "number_of_nodes": "1",
        }
        description = describe_system(known)
        path = scratch / name
        path.write_text(render_description(description.fields))
        print(f"{SYSTEMS}/{name} in the package has {len(description.open_points)} fields to fill in", flush=True)
        return path
