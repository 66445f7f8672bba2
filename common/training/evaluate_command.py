"""The command behind every benchmark's `evaluate.py`, which measures the quality of a checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from common.command import CommandParser, place, run_command
from common.config import rebuild
from common.distributed.dist import connect
from common.training.benchmark import Benchmark
from common.training.checkpoint import load
from common.training.precision import Precision
from common.training.train_command import TRAINING_ERRORS, check_seed


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if the target is met, 1 if not or after an error, 2 for wrong use."""
    given = _arguments(benchmark.name, argv)
    return run_command(lambda: _evaluate(benchmark, given.checkpoint, given.override), TRAINING_ERRORS)


def _evaluate(benchmark: Benchmark, place: Path, overrides: Sequence[str]) -> int:
    loaded = load(place, benchmark.name)
    checkpoint, content = loaded.path, loaded.content
    config = rebuild(benchmark.config, content["state"]["config"], f"the configuration in {checkpoint}", overrides)
    check_seed(config, content["state"]["seed"])
    with connect(config.dist) as dist:
        if dist.is_main:
            loaded.warn()
        problem = benchmark.problem(config, dist, content["state"]["seed"])
        problem.model.load_state_dict(content["state"]["model"])
        problem.model.eval()
        with torch.inference_mode(), Precision(config.precision, dist.device).autocast():
            quality = problem.evaluate()
        target = problem.reference.target
        if dist.is_main:
            print(
                f"{checkpoint}: {target.key} {quality:.6g} on {problem.eval_samples:,} validation samples, after "
                f"{content['position'][0]} epochs; target {target.range_text}: "
                f"{'met' if target.met(quality) else 'not met'}"
            )
    return 0 if target.met(quality) else 1


def _arguments(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog=f"python -m {name}.evaluate",
        description=f"""\
Evaluate a checkpoint on the whole validation set, with the configuration that it contains. torchrun, mpirun and srun
share the work among ranks, as in training.

  python -m {name}.evaluate runs/{name}-mini                        the newest checkpoint of a run
  python -m {name}.evaluate runs/{name}-mini/checkpoints/epoch-0009-step-0000000.pt
  python -m {name}.evaluate RUN data.data_dir=/data/{name}          with the data of this machine""",
        epilog="Exit status: 0 target met, 1 target not met or an error, 2 wrong use.",
    )
    parser.add_argument("checkpoint", type=place, metavar="RUN", help="the folder of a run, or a checkpoint in it")
    # default: without it argparse would name the overrides as missing too.
    parser.add_argument("override", nargs="*", default=[], help="section.key=value, replacing the checkpoint's value")
    return parser.parse_args(argv)
