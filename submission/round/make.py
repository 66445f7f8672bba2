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

from common.command import clean
from common.console import print_warning
from common.errors import UsageError
from common.files import write_whole_file
from common.reference import FULL, OWN
from compliance.engine import Options, check_paths
from compliance.formats import FORMATS, Style
from compliance.formats.findings import shortage
from compliance.formats.table import output_width
from compliance.logs.run import Run
from compliance.model.judging import FAIL, INCOMPLETE
from compliance.model.layout import SYSTEMS
from compliance.model.report import Report
from submission.assemble.implementation import find_implementation
from submission.assemble.packing import IMPLEMENTATION, Assembly, name_organisation
from submission.assemble.writing import Assembled, assemble_package
from submission.results.page.page import write_report
from submission.results.read_rows import rows
from submission.results.tables import Summary
from submission.round.plan import CONFIG, Series, make_runs, plan_runs
from submission.runs.plan import PlanError, check_records
from submission.runs.processes import JobRunner, Setup, hold_lock, provide_data, resolve_setup
from submission.runs.progress import announce_runs, find_usual_minutes
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
        return package.write(make_runs(runs, locked_runner, usual))


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
                    system=self.inputs.system or self._write_system(Path(scratch)),
                    organisation=self.submission["org"],
                    sources=self.inputs.sources,
                    draft=True,  # the user completes the description in the package
                )
            )
        for warning in package.warnings:
            print_warning(clean(f"{warning}"))
        return package

    def show(self, package: Assembled) -> Report:
        """Check the package, write the report, and return what the check has found."""
        options = Options(
            round=self.submission["round"], allow_mini=self.mini, progress=sys.stderr.isatty(), details=True
        )
        report = check_paths([package.root], options)
        write_report(report, self.folder / REPORT, f"{self.submission['org']}, round {self.submission['round']}")
        width = output_width()
        check = FORMATS["text"](report, Style(width=width or 100, base=os.getcwd()))
        print(f"\n{check}\n{Summary(rows(report)).format_text(width)}")
        print(clean(f"package: {package.root}"))
        print(clean(f"report:  {self.folder / REPORT}"), flush=True)
        if report.verdict == INCOMPLETE:
            print(f"INCOMPLETE: {shortage(report)}", flush=True)
        return report

    def _write_system(self, scratch: Path) -> Path:
        """Return the system description: that of the package, which a user may have completed, or a new one."""
        name, known = identify_system(self.submission, 1)
        for path in (self.folder / PACKAGE).glob(f"*/{SYSTEMS}/{glob.escape(name)}"):
            return path
        path = scratch / name
        path.write_text(render_description(describe_system(known).fields))
        return path
