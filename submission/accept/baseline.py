"""The baseline of a machine: measurements of several jobs, with their settings, versions and machine, in one file.

Only what comes from other jobs tells how much jobs differ. So a baseline is complete with JOBS jobs, which begin APART
or more from each other.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from common.command import counted
from common.errors import UsageError
from common.measure.fom import SYNTHETIC, Measurement, read_measurement
from compliance import __version__
from submission.accept.statistics import compare_jobs
from submission.runs.execute import execute_plan
from submission.runs.plan import PlannedRun
from submission.runs.processes import JobRunner, hold_lock
from submission.system.machine import Machine, probe_machine

JOBS: Final = 3
"""The fewest of a baseline, by the simulation in bench/accept.py."""
APART: Final = timedelta(hours=1)
FORMAT: Final = 1
"""Version of the file; it grows when a key changes its meaning or goes."""
CLOCK: Final = "%Y-%m-%d %H:%M UTC"
SAME_FLOP: Final = 0.01
"""Relative difference in the operations of a step up to which two measurements are of one network."""
MACHINE: Final = ("host_processor_model_name", "accelerator_model_name", "accelerators_per_node")
"""The fields of a system description that a baseline keeps."""


class MeasurementError(RuntimeError):
    """A measurement that a verdict needs was not made."""


class Settings(msgspec.Struct, frozen=True):
    """How a benchmark is measured: the arguments of `python -m BENCHMARK.measure`, and its ranks on this node."""

    benchmark: str
    config: str
    overrides: tuple[str, ...] = ()
    ranks: int = 1
    options: tuple[str, ...] = ()

    def plan_run(self, folder: Path) -> PlannedRun:
        """Return a measurement in a folder."""
        return PlannedRun(kind="measurement", folder=folder, **msgspec.structs.asdict(self))


class Workload(msgspec.Struct, frozen=True):
    """What two measurements must have in common to be compared, on whatever machine. data: synthetic or files."""

    benchmark: str
    network: str
    dtype: str
    batch: int
    units: int
    data: str
    flop_per_step: float

    @classmethod
    def of(cls, measurement: Measurement) -> Workload:
        """Return the workload of a measurement."""
        names = "benchmark network dtype batch units flop_per_step".split()
        data = SYNTHETIC if measurement.data == SYNTHETIC else "files"
        return cls(data=data, **{name: getattr(measurement, name) for name in names})

    @property
    def name(self) -> str:
        """The workload in messages: cosmoflow mini, bf16, batch 16, units 1."""
        return f"{self.benchmark} {self.network}, {self.dtype}, batch {self.batch}, units {self.units}"

    def differences(self, other: Workload) -> list[str]:
        """Return what differs in another workload, as `dtype is fp32 instead of bf16`."""
        return [
            f"{name} is {theirs} instead of {ours}"
            for name, ours in msgspec.structs.asdict(self).items()
            for theirs in [getattr(other, name)]
            if ours != theirs and not (name == "flop_per_step" and abs(theirs / ours - 1) < SAME_FLOP)
        ]


class Job(msgspec.Struct, frozen=True):
    """The measurements of one job. begin: of its first measurement to end. fidelity: of those that state it."""

    begin: datetime
    machine: dict[str, str]
    versions: dict[str, str]
    samples_per_s: tuple[float, ...]
    fidelity: tuple[float, ...] = ()


class Series(msgspec.Struct):
    """The jobs of one workload. settings: None if it was measured by other means: it is only compared with files.

    spread: of runs within a job and of the effects of jobs, for readers; it follows from the jobs.
    """

    workload: Workload
    settings: Settings | None
    jobs: list[Job] = []
    spread: dict[str, float] = {}

    @property
    def rates(self) -> list[Sequence[float]]:
        """The rates of each job."""
        return [job.samples_per_s for job in self.jobs]

    def next_begin(self) -> datetime:
        """Return the first time at which a further job may begin."""
        return max((job.begin + APART for job in self.jobs), default=datetime.now(UTC))

    def describe_lack(self) -> str:
        """Return what the baseline of the workload lacks, "" if it is complete."""
        if len(self.jobs) >= JOBS:
            return ""
        return f"{self.workload.name}: {len(self.jobs)} of {JOBS} jobs, not complete; {self.describe_next()}"

    def describe_next(self) -> str:
        """Return when a further job may begin, in words."""
        return f"the next job may begin at {self.next_begin():{CLOCK}}"


class Baseline(msgspec.Struct):
    """The content of a baseline's file."""

    series: list[Series] = []
    format: int = FORMAT
    kind: str = "acceptance baseline"

    @property
    def lacks(self) -> list[str]:
        """What is not complete, a line for each workload."""
        return [lack for series in self.series if (lack := series.describe_lack())]

    def find_series(self, workload: Workload, source: Path) -> Series:
        """Return the series of a workload; raises UsageError, with what differs, if there is none."""
        differences = [(series.workload.differences(workload), series) for series in self.series]
        differences = [pair for pair in differences if pair[1].workload.benchmark == workload.benchmark]
        if not differences:
            names = ", ".join(sorted({series.workload.benchmark for series in self.series}))
            raise UsageError(f"{source}: the baseline has no {workload.benchmark}, only {names}")
        nearest, series = min(differences, key=lambda pair: len(pair[0]))
        if nearest:
            raise UsageError(
                f"{source} is not comparable with the baseline: {'; '.join(nearest)}. Measure with its settings"
            )
        return series

    def add_job(self, job: Job, workload: Workload, settings: Settings | None) -> Series:
        """Add the measurements of a job; return their series.

        Raises UsageError for a job that begins less than APART from another, or is there already.
        """
        series = next((series for series in self.series if not series.workload.differences(workload)), None)
        if series is None:
            series = Series(workload, settings)
            self.series.append(series)
        if None not in (settings, series.settings) and settings != series.settings:
            raise UsageError(f"{workload.name}: the baseline was measured as {series.settings}, this job as {settings}")
        if len(job.samples_per_s) < 2:
            raise UsageError(f"{workload.name}: one measurement shows no spread; a job of a baseline has at least 2")
        for other in series.jobs:
            if job.samples_per_s == other.samples_per_s:
                raise UsageError(f"{workload.name}: the baseline has these measurements, as of {other.begin}")
            if abs(job.begin - other.begin) < APART:
                raise UsageError(
                    f"{workload.name}: a job of the baseline began at {other.begin:{CLOCK}}, this one at "
                    f"{job.begin:{CLOCK}}: less than an hour apart, it tells little of how jobs differ; "
                    f"{series.describe_next()}"
                )
        series.jobs.append(job)
        comparison = compare_jobs(series.rates, series.rates)  # for its spreads only
        series.spread = {"within_jobs": comparison.within, "between_jobs": comparison.between}
        return series

    def describe(self) -> str:
        """Return the state of the baseline as text: a line for each workload."""
        return "\n".join(
            series.describe_lack()
            or f"{series.workload.name}: complete, {len(series.jobs)} jobs; spread in a job "
            f"{series.spread['within_jobs']:.1%}, of jobs {series.spread['between_jobs']:.1%}"
            for series in self.series
        )

    def check_times(self, settings: Sequence[Settings], begin: datetime) -> None:
        """Raise UsageError if a job that measures with these settings may not begin yet."""
        for series in self.series:
            if series.settings in settings and begin < series.next_begin():
                raise UsageError(f"jobs of a baseline begin an hour or more apart: {series.describe_next()}")

    def encode(self) -> bytes:
        """Return the content of the file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in a file; UsageError with file, key and what was expected if there is none."""
    try:
        baseline = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; `python -m submission.accept --record {path} BENCHMARK` begins a baseline"
        ) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"{path} is not a baseline that --record writes: {error}") from None
    if baseline.format != FORMAT:
        raise UsageError(f"{path}: format is {baseline.format}, this suite reads {FORMAT}; record it again")
    for series in baseline.series:
        for job in series.jobs:
            if not job.samples_per_s or not all(0 < rate < float("inf") for rate in job.samples_per_s):
                raise UsageError(f"{path}: samples_per_s of {series.workload.name}: expected numbers above 0")
    return baseline


def measure_job(settings: Sequence[Settings], count: int, folder: Path) -> list[Path]:
    """Measure `count` times with each of the settings, in turn, in a folder; return the files of figures of merit.

    Raises MeasurementError if one of them fails; the folder given again continues.
    """
    runs = [
        entry.plan_run(folder / f"{entry.benchmark}-{position}" / f"run_{number}")
        for number in range(count)
        for position, entry in enumerate(settings)
    ]
    with hold_lock(folder) as lock:
        missing = execute_plan(runs, JobRunner(lock=lock), _describe_measurement)
    if missing:
        raise MeasurementError(f"{counted(len(missing), 'measurement')} failed: no verdict, and nothing is recorded")
    return [run.result_file for run in runs]


def _describe_measurement(run: PlannedRun) -> str:
    return f"{read_measurement(run.result_file).samples_per_s:.5g} samples/s"


def read_job(files: Sequence[Path]) -> dict[Workload, tuple[Job, list[Path]]]:
    """Return the measurements of a job and their files, by workload; UsageError for a file without a measurement.

    The job begins when the first of its files was written.
    """
    groups: list[tuple[Workload, list[Path], list[Measurement]]] = []
    for file in files:
        measurement = read_measurement(file)
        workload = Workload.of(measurement)
        group = next((group for group in groups if not group[0].differences(workload)), None)
        if group is None:
            group = (workload, [], [])
            groups.append(group)
        group[1].append(file)
        group[2].append(measurement)
    fields = probe_machine(Machine())
    return {
        workload: (
            Job(
                begin=datetime.fromtimestamp(min(path.stat().st_mtime for path in paths), UTC).replace(microsecond=0),
                machine={name: fields[name] for name in MACHINE if fields.get(name)},
                versions={"torch": measurements[0].torch, "suite": __version__, "python": platform.python_version()},
                samples_per_s=tuple(measurement.samples_per_s for measurement in measurements),
                fidelity=tuple(value for m in measurements if (value := getattr(m, "fidelity", None)) is not None),
            ),
            paths,
        )
        for workload, paths, measurements in groups
    }
