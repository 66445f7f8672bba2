"""Judge the predictions in a file: by the truth that it has itself, or by the data."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import numpy as np

from common.training.benchmark import SampleProblem
from common.training.predictions.columns import NAMES, Column, Rows
from common.training.predictions.reading import Predictions
from common.training.predictions.report import PredictionReport, arrays


def judge_alone(file: Predictions, report: PredictionReport) -> None:
    """Fill the report by the truth in the file. PredictionsError if it has none, or is not valid."""
    missing = [column.name for column in report.columns if column.name not in file.there]
    if missing:
        raise file.error(
            f"`{missing[0]}` is missing, which is the truth: add it, or name a run or a configuration, too, whose data "
            "have it"
        )
    for rows in file.batches():
        report.add(rows)


def judge_by_data(file: Predictions, report: PredictionReport, problem: SampleProblem[Any]) -> None:
    """Fill the report by the truth in the data, which what the file has of it must equal, sample by sample.

    PredictionsError if the file lacks samples, says something else of one, or is not valid.
    """
    split, data = file.about.split, problem.config.data.data_dir
    there = len(problem.sets[split])
    if file.samples != there:
        raise file.error(
            f"{file.samples:,} samples, but {there:,} for {split} in {data}; expected a prediction for each of them"
        )
    columns = [column for column in report.columns if column.truth]
    with contextlib.closing(_truth(problem, split, file.about.batch_size)) as truth:
        start = 0
        for rows, true in zip(file.batches(), truth, strict=True):
            if NAMES in rows:
                _check_names(file, rows[NAMES], true[NAMES], start)
            for column in columns:
                if column.name in rows:
                    _check_equal(file, column, rows, true, start)
            merged = {**rows, **true}
            shapes = {merged[one.name].shape for one in report.columns if None in one.shape}
            if len(shapes) > 1:
                raise file.error(f"samples of the shapes {' and '.join(str(shape[1:]) for shape in sorted(shapes))}")
            report.add(merged)
            start += len(true[NAMES])


def _truth(problem: SampleProblem[Any], split: str, size: int) -> Generator[Rows]:
    """Yield the truth and the names of `size` samples at a time."""
    samples = problem.sets[split]
    parts = (np.arange(start, min(start + size, len(samples))) for start in range(0, len(samples), size))
    with contextlib.closing(problem.read(samples, parts)) as batches:
        for batch in batches:
            yield {**arrays(problem.truth(batch)), NAMES: np.array(problem.sample_names(split, batch))}


def _check_names(file: Predictions, found: np.ndarray, expected: np.ndarray, start: int) -> None:
    for place in np.flatnonzero(found != expected)[:1].tolist():
        ours, theirs = str(expected[place]), str(found[place])
        raise file.error(
            f"sample {start + place} is named {theirs!r}, but {ours!r} in the data; expected the samples in the "
            "order there"
        )


def _check_equal(file: Predictions, column: Column, rows: Rows, true: Rows, start: int) -> None:
    """Raise PredictionsError if the file has another truth than the data."""
    found, expected = rows[column.name], true[column.name]
    if np.array_equal(found, expected):
        return
    raise file.error(
        f"`{column.name}` differs from the data, first in {_first(column, found, expected, rows, start)}; leave the "
        "column out, or write what the data have"
    )


def _first(column: Column, found: np.ndarray, expected: np.ndarray, rows: Rows, start: int) -> str:
    """Return where two columns differ first."""
    if found.shape != expected.shape:
        return f"the samples from {start} on, which have {found.shape} values instead of {expected.shape}"
    place = int(np.argwhere(found != expected)[0][0])
    if column.per:
        place = int(np.searchsorted(np.cumsum(rows[column.per]), place, side="right"))
    return f"sample {start + place}"
