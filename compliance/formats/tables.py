"""The tables of scores, for times to train and for throughput; the formats only render them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from common.command import clean
from compliance.formats.findings import many_rounds, shown_verdict
from compliance.formats.words import energy, minutes, plain, staging_cell
from compliance.model.result_set import ResultSet
from compliance.model.score import Throughput, TimeToTrain

if TYPE_CHECKING:
    from compliance.model.report import Report

NAMES = ("verdict", "round", "organisation", "system", "benchmark", "division")
TIMES = ("TTT", "normalised", "scaled", "staging", "energy", "convergence")
RATES = ("T", "S", "M'", "TTTa", "models/min", "normalised", "staging", "energy")


class ScoreTable(Struct, frozen=True):
    """A table: title, columns, rows, and how many columns from the left contain text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int


def score_tables(report: Report) -> list[ScoreTable]:
    """Return the tables that have rows; leave out empty columns."""
    times, rates = [], []
    tolerated, rounds = report.tolerated, many_rounds(report)
    for results in report.sets:
        names = (shown_verdict(results, tolerated), *_name_cells(results, rounds))
        if isinstance(results.score, TimeToTrain):
            times.append((*names, *_time_cells(results, results.score)))
        elif isinstance(results.score, Throughput):
            rates.append((*names, *_rate_cells(results.score)))
    both = (
        _without_empty("Time to train (strong scaling), in minutes; staging in or out of TTT", (*NAMES, *TIMES), times),
        _without_empty(
            "Throughput (weak scaling): T accelerators in all, S per instance, M' models, TTTa minutes",
            (*NAMES, *RATES),
            rates,
        ),
    )
    return [table for table in both if table.rows]


def _name_cells(results: ResultSet, rounds: bool) -> tuple[str, ...]:
    benchmark = (results.benchmark or results.folder_benchmark) + (" (mini)" if results.mini else "")
    round_ = f"v{results.round}" if rounds else ""
    names = (round_, results.organisation, results.system, benchmark, results.division or "")
    return tuple(map(clean, names))


def _time_cells(results: ResultSet, score: TimeToTrain) -> tuple[str, ...]:
    verdict = results.judged_convergence
    unit = f" {results.reference.epoch_unit}" if results.reference else ""
    point = f" (RCP {plain(verdict.point.mean)})" if verdict and verdict.point else ""
    return (
        minutes(score.minutes),
        minutes(score.normalized) if score.normalization > 1 else "",
        minutes(score.scaled) if score.scaled is not None else "",
        staging_cell(score.staging_minutes, score.staging_clock),
        energy(score.energy_joules) if score.energy_joules is not None else "",
        f"{plain(score.convergence)}{unit}{point}" if score.convergence is not None else "",
    )


def _rate_cells(score: Throughput) -> tuple[str, ...]:
    normalized = score.normalized_models_per_minute if score.normalization > 1 else None
    return (
        plain(score.system_scale),
        plain(score.instance_scale),
        plain(score.models),
        minutes(score.minutes),
        f"{score.models_per_minute:.4g}" if score.models_per_minute is not None else "–",
        f"{normalized:.4g}" if normalized is not None else "",
        staging_cell(score.staging_minutes, score.staging_clock),
        energy(score.energy_joules) if score.energy_joules is not None else "",
    )


def _without_empty(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> ScoreTable:
    kept = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    return ScoreTable(
        title,
        tuple(columns[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in rows),
        sum(at < len(NAMES) for at in kept),
    )
