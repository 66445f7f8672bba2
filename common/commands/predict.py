"""The command behind every benchmark's `predict.py`, which writes what a network predicts, sample by sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from common.command import CommandParser, UsageError, counted, file_place, run_stoppable
from common.commands.evaluate import VALIDATION, check_whole, load_member, samples_of, verdict, word
from common.distributed.dist import connect
from common.picture import new_figure, save_figure
from common.precision import Precision
from common.training.benchmark import Benchmark, SampleProblem
from common.training.ensemble import Member
from common.training.predictions import report as reports
from common.training.predictions.file import INDEX, NAMES, SPLITS, About, Output, check_output, write_predictions
from common.training.predictions.report import PredictionReport, arrays
from common.training.run import TRAINING_ERRORS
from common.training.weights import load_fitting


class _Asked(NamedTuple):
    """The arguments. run: a checkpoint or the folder of a run."""

    run: Path
    overrides: list[str]
    output: Path
    plot: Path | None
    split: str


class _Batch(NamedTuple):
    """What a rank has predicted. rows: for the file. shown: for the picture alone."""

    rows: dict[str, np.ndarray]
    shown: dict[str, np.ndarray]


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if the file is written, 1 after an error, 2 for wrong use."""
    asked = _arguments(benchmark.name, argv)
    return run_stoppable(lambda: _predict(benchmark, asked), TRAINING_ERRORS)


def _predict(benchmark: Benchmark, asked: _Asked) -> int:
    if benchmark.report is None:
        raise UsageError(f"{benchmark.name} has no report on predictions (Benchmark.report)")
    member, warn = load_member(benchmark, asked.run, asked.overrides)
    check_whole(member.config)
    with connect(member.config.dist, TRAINING_ERRORS) as dist:
        if dist.is_main:
            check_output(asked.output)
            if asked.plot:
                reports.check_picture(asked.plot)
            warn()
        problem = benchmark.problem(member.config, dist, member.seed)
        if not isinstance(problem, SampleProblem):
            raise UsageError(f"{benchmark.name} has no independent samples (SampleProblem) to predict")
        load_fitting(problem.model, member.weights, member.checkpoint)
        problem.model.eval()
        report = benchmark.report()
        report.variant = member.config.variant
        batches = _batches(problem, asked.split, asked.plot is not None)
        if not dist.is_main:
            for _ in batches:
                pass
            return 0
        about = About(benchmark.name, asked.split, problem.eval_size, member.config.variant)
        with write_predictions(asked.output, Output(about, report.columns, len(problem.sets[asked.split]))) as add:
            for batch in batches:
                add(batch.rows)
                report.add(batch.rows, batch.shown)
        _conclude(member, asked, report, problem)
    return 0


def _batches(problem: SampleProblem[Any], split: str, drawn: bool) -> Iterator[_Batch]:
    """Yield the predictions of all samples in their order, on rank 0; nothing on other ranks. A collective call.

    drawn: whether there will be a picture. Whole batches are dealt out to the ranks, so that batches of one size give
    the same numbers on any number of ranks.
    """
    dist, samples = problem.dist, problem.sets[split]
    parts = problem.eval_parts(np.arange(len(samples)))
    mine = parts[dist.rank :: dist.world_size]
    precision = Precision(problem.config.precision, dist.device)
    quiet = None if dist.is_main else True
    with (
        contextlib.closing(problem.read(samples, iter(mine))) as read,
        tqdm(total=len(samples), desc="predict", leave=False, unit="sample", disable=quiet) as bar,
    ):
        for first in range(0, len(parts), dist.world_size):
            batch = None
            if first + dist.rank < len(parts):
                with torch.inference_mode(), problem.evaluating(), precision.autocast():
                    batch = _predicted(problem, split, problem.prepared(next(read)), drawn)
            # One rank after the other, so that rank 0 never has the batches of all.
            for source in range(min(dist.world_size, len(parts) - first)):
                found = dist.broadcast_object(batch, source)
                if dist.is_main:
                    bar.update(len(found.rows[INDEX]))
                    yield found


def _predicted(problem: SampleProblem[Any], split: str, batch: Any, drawn: bool) -> _Batch:
    """Return the predictions of this rank for a batch, and the truth."""
    rows = arrays({**problem.predicted(batch), **problem.truth(batch)})
    names = np.array(problem.sample_names(split, batch))
    shown = problem.shown(batch) if drawn and batch.indices[0] < reports.SAMPLES else {}
    return _Batch({INDEX: batch.indices, NAMES: names, **rows}, arrays(shown))


def _conclude(member: Member, asked: _Asked, report: PredictionReport, problem: SampleProblem[Any]) -> None:
    """Print the quality, the summary, and what was written; draw the picture."""
    target = problem.reference.target
    on = f"{report.samples:,} {samples_of(asked.split)}, after {counted(member.epochs, 'epoch')}"
    print(
        f"{member.checkpoint}: {verdict(target if asked.split == VALIDATION else None, target.key, report.quality, on)}"
    )
    print("\n".join(report.lines()))
    print(f"{asked.output}: predictions and truth of {report.samples:,} samples")
    if asked.plot:
        figure = new_figure()
        report.draw(figure)
        save_figure(figure, asked.plot)
        print(f"{asked.plot}: a picture of them")


def _arguments(name: str, argv: Sequence[str] | None) -> _Asked:
    parser = CommandParser(
        prog=f"python -m {name}.predict",
        usage=f"python -m {name}.predict [-h] -o FILE [--plot PICTURE] [--split SPLIT] RUN [section.key=value ...]",
        description=f"""\
Write what a checkpoint predicts for each sample, beside the truth, and print a summary. The configuration is that of
the checkpoint. torchrun, mpirun and srun share the work among ranks, as in training.

  python -m {name}.predict runs/{name}-mini -o predictions.npz
  python -m {name}.predict runs/{name}-mini -o predictions.h5 --plot predictions.png
  python -m {name}.predict RUN -o train.npz --split train         the training samples, not augmented
  python -m {name}.predict RUN -o FILE data.data_dir=/data/{name}   with the data of this machine
  python -m {name}.evaluate --predictions predictions.npz         judge the file again

npz is for numpy and is kept in memory until it is written; HDF5 is written batch by batch, for any number of samples.
docs/guide/predict.md has the format. On any number of ranks the samples are in the same order; with
train.eval_batch_size=N the numbers are the same, too, otherwise they can differ by rounding.""",
        epilog="Exit status: 0 the file is written, 1 an error, 2 wrong use.",
    )
    parser.add_argument("words", nargs="+", type=word, metavar="RUN", help="the folder of a run, or a checkpoint")
    parser.add_argument(
        "-o", "--output", type=file_place, required=True, metavar="FILE", help="the file to write: .npz, or .h5 (HDF5)"
    )
    parser.add_argument(
        "--plot", type=file_place, metavar="PICTURE", help="also draw predictions and truth: .png, .svg or .pdf"
    )
    parser.add_argument(
        "--split", choices=SPLITS, default=VALIDATION, help="which samples to predict (default: %(default)s)"
    )
    given = parser.parse_intermixed_args(argv)
    overrides = [text for text in given.words if "=" in text and not Path(text).exists()]
    runs = [Path(text) for text in given.words if text not in overrides]
    if len(runs) != 1:
        parser.error(f"{len(runs)} runs are named; expected one")
    return _Asked(runs[0], overrides, given.output, given.plot, given.split)
