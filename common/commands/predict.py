"""The command `predict`, which writes what a network predicts, sample by sample."""

from __future__ import annotations

import argparse
import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from common.command import UsageError, counted, run_command
from common.commands.arguments import parse_prediction
from common.commands.evaluate import (
    check_whole,
    format_verdict,
    load_member,
    load_problem,
    samples_of,
)
from common.console import open_bar
from common.data.prefetch import sum_flaws
from common.installed import new_figure, save_figure
from common.precision import Precision
from common.ranks.connect import connect
from common.training import predictions as reports
from common.training.benchmark import Benchmark, Problem
from common.training.evaluators import Member
from common.training.faults import DataFaultError, find_faults
from common.training.predictions import (
    INDEX,
    NAMES,
    About,
    Output,
    PredictionReport,
    arrays,
    check_output,
    write_predictions,
)
from common.training.run import TRAINING_ERRORS


class _Batch(NamedTuple):
    """What a rank has predicted. rows: for the file. picture_data: for the picture alone."""

    rows: dict[str, np.ndarray]
    picture_data: dict[str, np.ndarray]

    def pack(self) -> bytes:
        """Return the arrays as a file of numpy."""
        file = io.BytesIO()
        arrays: dict[str, Any] = {
            f"{part}/{name}": array for part, values in self._asdict().items() for name, array in values.items()
        }
        np.savez(file, **arrays)
        return file.getvalue()

    @classmethod
    def unpack(cls, content: bytes) -> _Batch:
        """Return the arrays in what `pack` returned."""
        batch = cls({}, {})
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            for key in arrays.files:
                part, _, name = key.partition("/")
                getattr(batch, part)[name] = arrays[key]
        return batch


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if the file is written, 1 after an error, 2 for wrong use."""
    arguments = parse_prediction(benchmark.name, argv)
    return run_command(lambda: _predict_samples(benchmark, arguments), TRAINING_ERRORS)


def _predict_samples(benchmark: Benchmark, arguments: argparse.Namespace) -> int:
    if benchmark.report is None:
        raise UsageError(f"{benchmark.name} has no report on predictions (Benchmark.report)")
    member = load_member(benchmark, arguments.run, arguments.overrides)
    check_whole(member.config)
    with connect(member.config.dist, TRAINING_ERRORS) as dist:
        if dist.is_main:
            check_output(arguments.output)
            if arguments.plot:
                reports.check_picture(arguments.plot)
            member.warn()
        problem = load_problem(benchmark, member, dist)
        report = benchmark.report()
        report.variant = member.config.variant
        batches = _gather_batches(problem, arguments.split, arguments.plot is not None)
        if not dist.is_main:
            for _ in batches:
                pass
            return 0
        about = About(benchmark.name, arguments.split, problem.eval_size, member.config.variant)
        with write_predictions(
            arguments.output, Output(about, report.columns, len(problem.sets[arguments.split]))
        ) as add:
            for batch in batches:
                add(batch.rows)
                report.add(batch.rows, batch.picture_data)
        _show_results(member, arguments, report, problem)
    return 0


def _gather_batches(problem: Problem, split: str, drawn: bool) -> Iterator[_Batch]:
    """Yield the predictions of all samples in their order, on rank 0; nothing on other ranks. A collective call.

    drawn: whether there will be a picture. Whole batches are dealt out to the ranks, so that batches of one size give
    the same numbers on any number of ranks.
    """
    dist, samples = problem.dist, problem.sets[split]
    parts = problem.eval_parts(np.arange(len(samples)))
    mine = parts[dist.rank :: dist.world_size]
    precision = Precision(problem.config.precision, dist.device)
    with (
        contextlib.closing(problem.read(samples, iter(mine))) as read,
        open_bar(
            total=len(samples), desc="predict", leave=False, unit="sample", disable=None if dist.is_main else True
        ) as bar,
    ):
        for first in range(0, len(parts), dist.world_size):
            batch = None
            if first + dist.rank < len(parts):
                with torch.inference_mode(), problem.evaluating(), precision.autocast():
                    prepared = problem.prepared(next(read))
                    if not math.isfinite(sum_flaws(prepared)):
                        for fault in find_faults(problem, split, prepared.indices.tolist()):
                            raise DataFaultError(fault)
                    rows = arrays({**problem.predicted(prepared), **problem.truth(prepared)})
                    names = np.array(problem.sample_names(split, prepared))
                    fields = problem.picture_data(prepared) if drawn and prepared.indices[0] < reports.SAMPLES else {}
                    batch = _Batch({INDEX: prepared.indices, NAMES: names, **rows}, arrays(fields))
            # One rank after the other, so that rank 0 never has the batches of all.
            for source in range(min(dist.world_size, len(parts) - first)):
                content = dist.broadcast_bytes(batch.pack() if batch and dist.rank == source else b"", source)
                if dist.is_main:
                    predicted = _Batch.unpack(content)
                    bar.update(len(predicted.rows[INDEX]))
                    yield predicted


def _show_results(member: Member, arguments: argparse.Namespace, report: PredictionReport, problem: Problem) -> None:
    """Print the quality, the summary, and what was written; draw the picture."""
    split = arguments.split
    samples = f"{report.samples:,} {samples_of(split)}, after {counted(member.epochs, 'epoch')}"
    verdict = format_verdict(problem.reference.target, report.quality, samples, split)
    print(f"{member.checkpoint}: {verdict}")
    print("\n".join(report.lines()))
    print(f"{arguments.output}: predictions and truth of {report.samples:,} samples")
    if arguments.plot:
        figure = new_figure()
        report.draw(figure)
        figure.suptitle(f"{problem.reference.name}, {arguments.run}\n{verdict}")
        save_figure(figure, arguments.plot)
        print(f"{arguments.plot}: a picture of them")
