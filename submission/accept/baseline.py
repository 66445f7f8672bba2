"""The baseline of a machine: measurements of several jobs, with their settings, versions and machine, in one file.

Only what comes from other jobs tells how much jobs differ. So a baseline is complete with JOBS jobs, which begin APART
or more from each other.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from common.bad_json import decode_json
from common.benchmarks import require_package
from common.command import counted, describe_error
from common.config import load
from common.errors import UsageError
from common.file_kind import BASELINE, explain_kind
from common.installed import find_config, is_name
from common.measure.fom import ERRORS, LOWEST, MOST, SYNTHETIC, Measurement, read_measurement
from common.settings.keys import find_config_class
from common.tree import ANYWHERE
from compliance import __version__
from compliance.benchmarks import require_reference
from submission.accept.statistics import compare_jobs
from submission.runs.plan import PlannedRun, is_finished, read_record
from submission.runs.processes import JobRunner, hold_lock
from submission.runs.progress import announce_runs, execute_plan
from submission.system.machine import Machine, probe_machine

JOBS: Final = 3
"""The fewest of a baseline, by the simulation in bench/accept.py."""
APART: Final = timedelta(hours=1)
FORMAT: Final = 1
"""Version of the file; it grows when a key changes its meaning or goes."""
MAX_BYTES: Final = 1 << 26
"""Of a baseline, and of a file in an archive."""
OPTIONS: Final = re.compile(r"(--steps[ =][1-9][0-9]*)? ?(--fidelity)?")
"""Of the command, in Settings."""
CLOCK: Final = "%Y-%m-%d %H:%M UTC"


class MeasurementError(RuntimeError):
    """A measurement that a verdict needs was not made."""


class Settings(msgspec.Struct, frozen=True):
    """How a benchmark is measured: the arguments of `python -m BENCHMARK measure`, and its ranks on this node.

    A baseline may come from others: no other option of the command is taken from it.
    """

    benchmark: str
    config: str
    overrides: tuple[str, ...] = ()
    ranks: Annotated[int, msgspec.Meta(ge=1)] = 1
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.config.startswith("-") or not (is_name(self.config) or self.config.endswith(".yaml")):
            raise UsageError(f"config {self.config!r}: expected the name of a configuration, or a .yaml file")
        if wrong := [word for word in self.overrides if word.startswith("-") or "=" not in word]:
            raise UsageError(f"{wrong[0]!r}: expected section.key=value")
        if not OPTIONS.fullmatch(" ".join(self.options)):
            raise UsageError(f"options {' '.join(self.options)!r}: expected --steps N and --fidelity, or none")


class Workload(msgspec.Struct, frozen=True):
    """What two measurements must have in common to be compared, on whatever machine.

    data: synthetic or files. flop_per_step: to three digits; it tells own networks apart.
    """

    benchmark: str
    network: str
    dtype: str
    batch: int
    units: int
    data: str
    flop_per_step: float

    @property
    def name(self) -> str:
        """The workload in messages: cosmoflow mini, bf16, batch 16, units 1."""
        return f"{self.benchmark} {self.network}, {self.dtype}, batch {self.batch}, units {self.units}"

    def list_differences(self, other: Workload) -> list[str]:
        """Return what differs in another workload, as `dtype is fp32 instead of bf16`."""
        expected = msgspec.structs.asdict(self)
        values = msgspec.structs.asdict(other).items()
        return [f"{name} is {value} instead of {expected[name]}" for name, value in values if value != expected[name]]


class Job(msgspec.Struct, frozen=True):
    """The measurements of one job. begin: when the first was written. errors: `ERRORS` of all seeds, where measured.

    environment: the machine and the versions on it.
    """

    begin: Annotated[datetime, msgspec.Meta(tz=True)]
    environment: dict[str, str]
    samples_per_s: tuple[float, ...]
    errors: dict[str, tuple[float, ...]] = {}


class MeasuredWorkload(NamedTuple):
    """A job that was measured. settings: as the plan of its runs states them, None for runs without a plan."""

    source: Path
    workload: Workload
    settings: Settings | None
    job: Job


class Series(msgspec.Struct):
    """The jobs of one workload. settings: None if it was measured by other means: it is only compared with files.

    spread: in a job, and of the effects of jobs, for readers; it follows from the jobs.
    """

    workload: Workload
    settings: Settings | None
    jobs: list[Job] = []
    spread: dict[str, float] = {}

    @property
    def rates(self) -> list[Sequence[float]]:
        """The rates of each job."""
        return [job.samples_per_s for job in self.jobs]

    @property
    def next_begin(self) -> datetime:
        """The first time at which a further job may begin."""
        return max(job.begin for job in self.jobs) + APART

    def describe(self) -> str:
        """Return how complete the series is, and its spread."""
        lack = f"not complete; the next job from {self.next_begin:{CLOCK}} on"
        state = "complete" if len(self.jobs) >= JOBS else lack
        spread = "".join(f", {name} {value:.1%}" for name, value in self.spread.items())
        return f"{self.workload.name}: {len(self.jobs)} of {JOBS} jobs, {state}{spread}"

    def add_job(self, job: Job) -> None:
        """Add the measurements of a job; UsageError if it begins less than APART from another."""
        name = self.workload.name
        if len(job.samples_per_s) < 2:
            raise UsageError(f"{name}: one measurement shows no spread; a job of a baseline has 2 or more")
        check_apart(name, [*self.jobs, job])
        self.jobs.append(job)
        comparison = compare_jobs(self.rates, self.rates)  # for its spreads only
        self.spread = {"spread in a job": comparison.within}
        if len(self.jobs) > 1:
            self.spread["spread of jobs"] = comparison.between


class Baseline(msgspec.Struct):
    """The content of a baseline's file."""

    series: list[Series] = []
    format: int = FORMAT
    kind: Literal["acceptance baseline"] = "acceptance baseline"

    @property
    def incomplete_series(self) -> list[str]:
        """The workloads that are not complete, a line each."""
        return [series.describe() for series in self.series if len(series.jobs) < JOBS]

    def check_comparable(self, workload: Workload, source: Path) -> None:
        """Raise UsageError, with what differs, if there is no series of a workload."""
        same = [series for series in self.series if series.workload.benchmark == workload.benchmark]
        if not same:
            names = ", ".join(sorted({series.workload.benchmark for series in self.series}))
            raise UsageError(f"{source}: the baseline has no {workload.benchmark}, only {names}")
        nearest = min(same, key=lambda series: len(series.workload.list_differences(workload)))
        if differences := "; ".join(nearest.workload.list_differences(workload)):
            raise UsageError(f"{source} is not comparable with the baseline: {differences}; measure with its settings")

    def add_job(self, measured: MeasuredWorkload) -> None:
        """Add the measurements of a job to those of its workload; UsageError as `Series.add_job`."""
        _, workload, settings, job = measured
        series = next((series for series in self.series if series.workload == workload), None)
        if series is None:
            series = Series(workload, settings)
            self.series.append(series)
        if settings is not None and settings != series.settings:
            raise UsageError(f"{workload.name}: the baseline was measured as {series.settings}, this job as {settings}")
        series.add_job(job)

    def encode(self) -> bytes:
        """Return the content of the file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def check_apart(name: str, jobs: Sequence[Job]) -> None:
    """Raise UsageError if two jobs begin less than APART from each other, or one in the future."""
    ordered = sorted(jobs, key=lambda job: job.begin)
    if ordered[-1].begin > datetime.now(UTC) + APART:
        raise UsageError(f"{name}: a job begins at {ordered[-1].begin:{CLOCK}}, in the future: set the clock right")
    for earlier, later in pairwise(ordered):
        if (later.begin, later.samples_per_s) == (earlier.begin, earlier.samples_per_s):
            raise UsageError(
                f"{name}: the job of {earlier.begin:{CLOCK}} is in the baseline already: are these the same files "
                "again? Give those of another job"
            )
        if later.begin - earlier.begin < APART:
            raise UsageError(
                f"{name}: jobs began at {earlier.begin:{CLOCK}} and at {later.begin:{CLOCK}}: less than an hour apart "
                f"they tell little of how jobs differ; measure after {later.begin + APART:{CLOCK}}"
            )


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in a file; UsageError with file, key and what was expected if there is none."""
    try:
        data = ANYWHERE.read(path, MAX_BYTES)
        baseline = decode_json(data, Baseline)
    except OSError as error:
        fix = f"`python -m submission.accept --record {path} BENCHMARK` begins a baseline"
        raise UsageError(f"{describe_error(error)}; {fix}") from None
    except ValueError as error:
        raise UsageError(
            f"{path} is not a baseline that --record writes: {explain_kind(data, BASELINE) or error}"
        ) from None
    if baseline.format != FORMAT or not baseline.series:
        fix = "`python -m submission.accept --record ANOTHER.json BENCHMARK` begins one"
        problem = explain_kind(data, BASELINE) or "this is no baseline of this version"
        raise UsageError(f"{path}: {problem}: expected format {FORMAT} with series; {fix}")
    if len({series.workload for series in baseline.series}) < len(baseline.series):
        raise UsageError(f"{path}: expected each workload once in series, found one twice; record it again")
    for series in baseline.series:
        if series.settings:
            require_package(series.settings.benchmark)
        least = LOWEST["samples_per_s"]
        if not series.jobs or not all(len(job) > 1 and least <= min(job) <= max(job) <= MOST for job in series.rates):
            expected = f"expected 2 numbers from {least:g} to {MOST:g}, or more"
            raise UsageError(f"{path}: {series.workload.name}: samples_per_s: {expected}")
        check_apart(f"{path}: {series.workload.name}", series.jobs)
    return baseline


def measure_job(settings: Sequence[Settings], count: int, folder: Path) -> list[Path]:
    """Measure `count` times with each of the settings, in turn, in a folder; return the files of figures of merit.

    Raises MeasurementError if one of them fails; the folder given again continues. UsageError if the settings are
    wrong, or if the folder has all of them.
    """
    for entry in settings:
        file = find_config(entry.benchmark, entry.config)
        load(find_config_class(require_reference(entry.benchmark)), file, entry.overrides)
    runs = [
        PlannedRun(
            kind="measurement",
            folder=folder / f"{entry.benchmark}-{position}" / f"run_{number}",
            **msgspec.structs.asdict(entry),
        )
        for number in range(count)
        for position, entry in enumerate(settings)
    ]
    if reused := [run.result_file.stat().st_mtime for run in runs if is_finished(run)]:
        since = f"from {datetime.fromtimestamp(min(reused), UTC):{CLOCK}} on"
        if len(reused) == len(runs):
            raise UsageError(f"{folder} has all measurements, {since}: give them by --fom, or choose another folder")
        print(f"{len(reused)} of {len(runs)} measurements are reused, {since}", flush=True)
    with hold_lock(folder) as lock:
        announce_runs(runs, [], 1, {})
        failed = execute_plan(
            runs,
            JobRunner(lock=lock),
            lambda run: f"{read_measurement(run.result_file).samples_per_s:.5g} samples/s",
        )
    if failed:
        text = f"{counted(len(failed), 'measurement')} failed: no verdict, and nothing is recorded"
        raise (UsageError(text) if any(attempt.refused for attempt in failed) else MeasurementError(text))
    return [run.result_file for run in runs]


def check_distinct(files: Sequence[Path]) -> None:
    """Raise UsageError if two files have the same measurement, also by a link or a copy."""
    first: dict[bytes, Path] = {}
    for file in files:
        read_measurement(file)  # the errors of a file that has none
        if (other := first.setdefault(hashlib.sha256(ANYWHERE.read(file, MAX_BYTES)).digest(), file)) is not file:
            raise UsageError(f"{file} is the same measurement as {other}: give each once")


def read_jobs(files: Sequence[Path], is_own: bool) -> list[MeasuredWorkload]:
    """Return the measurements of a job; UsageError for a file without a measurement.

    is_own: it was measured here and now, so that this machine and its versions are those of the job.
    """
    groups: dict[Workload, dict[Path, Measurement]] = {}
    for file in files:
        m = read_measurement(file)
        data = SYNTHETIC if m.data == SYNTHETIC else "files"
        flop = float(f"{m.flop_per_step:.3g}")
        workload = Workload(m.benchmark, m.network, m.dtype, m.batch, m.units, data, flop)
        groups.setdefault(workload, {})[file] = m
    environment = {}
    if is_own:
        fields = probe_machine(Machine())
        environment = {"suite": __version__, "python": platform.python_version()}
        environment |= {
            name: fields[name]
            for name in ("host_processor_model_name", "accelerator_model_name", "accelerators_per_node")
            if name in fields
        }
    measured = []
    for workload, measurements in groups.items():
        source = next(iter(measurements))
        settings = None
        with suppress(msgspec.ValidationError):  # a plan of other means, such as a study with further options
            settings = msgspec.convert(read_record(source.parent), Settings | None)
        stated = {
            name: " and ".join(dict.fromkeys(str(getattr(m, name)) for m in measurements.values()))
            for name in ("nodes", "torch", "device")
        }
        begin = min(path.stat().st_mtime for path in measurements)
        job = Job(
            begin=datetime.fromtimestamp(begin, UTC).replace(microsecond=0),
            environment=environment | stated,
            samples_per_s=tuple(measurement.samples_per_s for measurement in measurements.values()),
            errors={
                name: tuple(chain.from_iterable(getattr(m, name) or () for m in measurements.values()))
                for name in ERRORS
            },
        )
        measured.append(MeasuredWorkload(source, workload, settings, job))
    return measured
