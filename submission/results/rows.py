"""The rows of the tables of a round: score, convergence and system of each result; and differences between rounds.

All numbers come from the report of `compliance.engine.check_paths`, so that there is one verdict and one score.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.errors import UsageError
from common.values import as_count, is_number
from compliance.engine import Options, check_paths
from compliance.formats.findings import alone, result_sets
from compliance.formats.words import convergence_text, staging_cell
from compliance.logs.run import Run
from compliance.model.case import Case
from compliance.model.finding import PASSING
from compliance.model.judged_run import JudgedRun
from compliance.model.layout import WEAK
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.score import IN, Throughput, TimeToTrain
from compliance.model.system import SystemDescription

ALL_ORGANISATIONS: Final = "(all)"
"""Placeholder for the organisation in the rows with the best score of a round."""

OF_SCORES: Final = (
    *("minutes", "staging_minutes", "staging_clock"),
    *("time_with_staging_minutes", "time_without_staging_minutes"),
)
"""The fields of a row that scores of both kinds have under the same name."""

Key = tuple[str, bool, str, str, str]
"""A kind of result: benchmark, whether mini, division, scaling, and the organisation in lower case."""


@dataclass(frozen=True, slots=True)
class Row:
    """One result. None or "" means that neither logs nor system description have the value.

    verdict: PASS, WARN, INCOMPLETE or FAIL of the result with its logs. availability: status of the system.
    nodes, processors, accelerators: of the system; without system description, of one run.
    run_minutes: of the accepted runs, ascending. minutes: time to train, or for throughput from the first start to
    the last stop. convergence: mean length of the runs, in convergence_unit (epochs or samples).
    rcp: the verdict on convergence; rcp_factor: its factor on the score, None unless it passed.
    normalised: the score with this factor: minutes, or for throughput models per minute; scaled: minutes with the
    committee's factor. staging_minutes: mean of the runs; staging_clock: whether it lies "in" the time of the score or
    "out" of it; time_with_staging_minutes, time_without_staging_minutes: see `compliance.model.score`.
    instance_scale: accelerators of a model; states_whole_system: the logs state those of the whole system instead.
    waiver: why a failed convergence test does not count, "" if it is not waived; bypass: the line in which the
    submitter asks to leave a failed test out. incomplete: such as "1 of 10 runs", "" if complete.
    """

    verdict: str
    round: str
    organisation: str
    division: str
    availability: str
    system: str
    scaling: str
    benchmark: str
    mini: bool
    nodes: int | None
    processor: str
    processors: int | None
    accelerator: str
    accelerators: int | None
    framework: str
    batch_size: int | None
    runs: int
    required_runs: int | None
    incomplete: str
    run_minutes: tuple[float, ...] = ()
    minutes: float | None = None
    models: int | None = None
    models_per_minute: float | None = None
    instance_scale: int | None = None
    convergence: float | None = None
    convergence_unit: str = "epochs"
    rcp: str = ""
    rcp_factor: float | None = None
    waiver: str = ""
    bypass: str = ""
    normalised: float | None = None
    scaled: float | None = None
    staging_minutes: float | None = None
    energy_joules: float | None = None
    staging_clock: str = ""
    time_with_staging_minutes: float | None = None
    time_without_staging_minutes: float | None = None
    states_whole_system: bool = False

    @property
    def table_order(self) -> tuple[str, str, str, str]:
        """The round, scaling, benchmark and division, by which tables are sorted."""
        return self.round, self.scaling, self.benchmark, self.division

    @property
    def device(self) -> str:
        """The model of the accelerators, or of the processors of a system without."""
        return self.processor if self.accelerators == 0 or not self.accelerator else self.accelerator

    @property
    def score(self) -> float | None:
        """The score: minutes (less is better) or models per minute (more is better), normalised if possible."""
        raw = self.models_per_minute if self.scaling == WEAK else self.minutes
        return raw if self.normalised is None else self.normalised

    @property
    def contains_staging(self) -> bool:
        """Whether the time of the score contains all staging there was."""
        return self.staging_clock in ("", IN)

    @property
    def staging_cells(self) -> tuple[str, float | None]:
        """The minutes of staging, in or out of the time, and the time with them if it lacks them."""
        apart = None if self.contains_staging else self.time_with_staging_minutes
        return staging_cell(self.staging_minutes, self.staging_clock), apart

    @property
    def score_with_staging(self) -> float | None:
        """The score if all staging belonged to its time: the clock that all rounds have in common."""
        score, time = self.score, self.time_with_staging_minutes
        if score is None or self.contains_staging or not self.minutes or not time:
            return score
        return score * self.minutes / time if self.scaling == WEAK else score * time / self.minutes


class NoResultsError(ValueError):
    """The paths contain no result; the message says what was expected."""


def read_report(paths: Sequence[str], options: Options) -> Report:
    """Return the report on the results below the paths.

    Raises NoResultsError if there are none, UsageError for a path that does not exist.
    """
    report = read_logs(paths, options)
    if not report.sets:
        raise NoResultsError(
            f"no results in {', '.join(paths)}: expected submissions (<organisation>/results/...) or folders with the "
            "logs of several runs; for a single log use python -m compliance.check"
        )
    return report


def read_logs(paths: Sequence[str], options: Options) -> Report:
    """Return the report on the logs below the paths, in results or not; UsageError for a path that does not exist."""
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError(f"no such file or folder: {path}")
    return check_paths(paths, options)


def rows(report: Report) -> list[Row]:
    """Return a row for each result set, by round, kind of scaling, benchmark, division, organisation and system."""
    every = (row_of(results, report) for results in report.sets)
    return sorted(every, key=lambda row: (*row.table_order, row.organisation.lower(), row.system.lower()))


def every_set(report: Report) -> list[ResultSet]:
    """Return the results, and the logs outside of them as loose sets, one for each round, benchmark and variant."""
    return [*result_sets(report), *_single_logs(report)]


def _single_logs(report: Report) -> Iterator[ResultSet]:
    kinds: dict[tuple[str, str | None, str], list[JudgedRun]] = {}
    for run in alone(report):
        kinds.setdefault((run.round, run.benchmark, run.variant), []).append(run)
    for (round_, benchmark, variant), runs in kinds.items():
        folder = os.path.commonpath([os.path.dirname(os.path.abspath(run.path)) for run in runs])
        divisions = {run.division for run in runs}
        division = divisions.pop() if len(divisions) == 1 else None
        case = Case(round_, report.profile, division, benchmark, variant)
        yield ResultSet(folder, case, variant=variant, runs=runs, loose=True)


def row_of(results: ResultSet, report: Report) -> Row:
    """Return the row of one result of a report."""
    required = results.reference.runs if results.reference else None
    count = len(results.runs)
    return Row(
        verdict=report.verdict_of(results),
        round=results.round,
        organisation=results.organisation or _common_value(results, "submission_org"),
        division=results.division or "",
        system=results.system or _common_value(results, "submission_platform"),
        scaling=results.scaling,
        benchmark=results.benchmark or results.folder_benchmark,
        mini=results.mini,
        batch_size=results.batch_size if is_number(results.batch_size) else None,
        runs=count,
        required_runs=required,
        incomplete=f"{count} of {required} runs" if required and count < required else "",
        **_machine(results),
        **_outcome(results),
    )


def _common_value(results: ResultSet, key: str) -> str:
    """Return the value of a submission key if all logs agree, else ""."""
    said = {text for run in results.runs if isinstance(text := run.submission.get(key), str)}
    return said.pop() if len(said) == 1 else ""


def _machine(results: ResultSet) -> dict[str, Any]:
    """Return the fields of a row about the system."""
    described = results.description or SystemDescription("", "")
    run = results.runs[0] if results.runs else Run("")
    nodes = described.count("number_of_nodes")
    each = described.count("accelerators_per_node")
    if nodes is None:
        nodes, each = as_count(run.nodes), as_count(run.accelerators_per_node)
    processors = described.count("host_processors_per_node")
    return {
        "availability": _text(described, "status") or _common_value(results, "submission_status"),
        "nodes": nodes,
        "processor": _text(described, "host_processor_model_name"),
        "processors": None if nodes is None or processors is None else nodes * processors,
        "accelerator": _text(described, "accelerator_model_name"),
        "accelerators": None if nodes is None or each is None else nodes * each,
        "framework": _text(described, "framework"),
    }


def _text(description: SystemDescription, name: str) -> str:
    value = description.fields.get(name)
    return value.strip() if isinstance(value, str) else ""


def _outcome(results: ResultSet) -> dict[str, Any]:
    """Return the fields of a row about score and convergence."""
    verdict, score = results.judged_convergence, results.score
    factor = verdict.normalization if verdict and verdict.passed else None
    fields: dict[str, Any] = {
        "rcp": convergence_text(results).removeprefix("RCP "),
        "rcp_factor": factor,
        "waiver": results.waiver if verdict and not verdict.passed else "",
        "bypass": str(results.bypasses[0]) if results.bypasses and verdict and not verdict.passed else "",
        "convergence": verdict.submission_mean if verdict else None,
        "convergence_unit": results.reference.epoch_unit if results.reference else "epochs",
        "energy_joules": results.energy_joules,
    }
    if isinstance(score, TimeToTrain):
        fields |= {name: getattr(score, name) for name in (*OF_SCORES, "run_minutes", "convergence", "scaled")}
        fields["normalised"] = score.normalized if factor else None
    if isinstance(score, Throughput):
        accepted = [run for run in results.runs if run.verdict != "FAIL"]
        names = (*OF_SCORES, "models", "models_per_minute", "instance_scale")
        fields |= {name: getattr(score, name) for name in names}
        fields |= {
            "run_minutes": tuple(sorted(run.minutes for run in accepted if run.minutes is not None)),
            "states_whole_system": results.states_whole_system,
            "normalised": score.normalized_models_per_minute if factor else None,
        }
    return fields


# -- from one round to the next ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """The best passing results of two rounds, on the clock they have in common: with staging.

    before, now: their scores in minutes (less is better) or models per minute, normalised if possible; None without
    a passing result. before_with_staging, now_with_staging: the same with all staging in the time. speedup: of
    the latter, above 1 if now is better. before_waived, now_waived: whether the result passes only because its
    convergence test is waived.
    """

    organisation: str
    benchmark: str
    scaling: str
    division: str
    mini: bool
    unit: str
    before: float | None
    now: float | None
    before_with_staging: float | None = None
    now_with_staging: float | None = None
    before_waived: bool = False
    now_waived: bool = False

    @property
    def key(self) -> Key:
        """The kind of result."""
        return (self.benchmark, self.mini, self.division, self.scaling, self.organisation.lower())

    @property
    def speedup(self) -> float | None:
        """The ratio of the scores with staging, above 1 if now is better; None without a score in both rounds."""
        before, now = self.before_with_staging, self.now_with_staging
        if not before or not now:
            return None
        return now / before if self.scaling == WEAK else before / now


def differences(previous: Sequence[Row], rows: Sequence[Row]) -> list[Difference]:
    """Return the changes from one round to another, by benchmark and organisation, ignoring letter case.

    Results that passed in neither round are left out.
    """
    before, now = best(previous), best(rows)
    names = {row.organisation.lower(): row.organisation for row in (*previous, *rows)}
    found = []
    for key in sorted({*before, *now}):
        benchmark, mini, division, scaling, organisation = key
        unit = "models/min" if scaling == WEAK else "min"
        name = names.get(organisation, organisation)
        both = before.get(key), now.get(key)
        values: list[Any] = [row.score if row else None for row in both]
        values += [row.score_with_staging if row else None for row in both]
        values += [row is not None and row.waiver != "" for row in both]
        found.append(Difference(name, benchmark, scaling, division, mini, unit, *values))
    return found


def best(rows: Iterable[Row]) -> dict[Key, Row]:
    """Return the best passing result of each kind and organisation, and of ALL_ORGANISATIONS, by score with staging."""
    found: dict[Key, Row] = {}
    for row in rows:
        score = row.score_with_staging
        if row.verdict not in PASSING or not score:
            continue
        for organisation in (row.organisation.lower(), ALL_ORGANISATIONS):
            key = (row.benchmark, row.mini, row.division, row.scaling, organisation)
            known = found[key].score_with_staging if key in found else None
            if known is None or (score > known if row.scaling == WEAK else score < known):
                found[key] = row
    return found
