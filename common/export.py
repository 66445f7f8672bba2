"""`python -m common.export RUN WEIGHTS.safetensors`: the weights of a run, for other tools; and how to load them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from common.command import CommandParser, place, run_command
from common.config import rebuild
from common.training import weights as weights_file
from common.training.benchmark import Benchmark, Predictor, check_network_code
from common.training.checkpoint import CheckpointError, best_of

__all__ = ["load_network"]

DESCRIPTION = """\
Write the weights of a checkpoint as safetensors: tensors by name and no code, readable from many languages.

  python -m common.export runs/cosmoflow-mini cosmoflow.safetensors

The metadata have everything to use the weights: benchmark, epoch, configuration, and in `interface` the shapes and
units of input and output, and the preprocessing of arrays from the data files (scaling, statistics).

From Python, the network with its preprocessing:

  from common.api import load_network
  from cosmoflow.train import BENCHMARK
  network = load_network(BENCHMARK, "cosmoflow.safetensors")

docs/guide/weights.md has more: fine-tuning from the file."""


def load_network(benchmark: Benchmark, path: str | Path) -> Predictor:
    """Return a trained network with its preprocessing: arrays as in the data files in, predictions in their units out.

    benchmark: such as `cosmoflow.train.BENCHMARK`. path: an export, a checkpoint, or the folder of a run.
    It is on the CPU, in evaluation mode, and computes in float32; `.to(device)` and `torch.autocast` change that.
    Raises CheckpointError for a file that cannot be used, ConfigError for a configuration of another version.
    """
    found = weights_file.read(Path(path), benchmark.name)
    config = rebuild(benchmark.config, dict(found.config), f"the configuration in {found.path}")
    check_network_code(found.own_code, benchmark, config, found.path)
    interface = benchmark.predictor.describe(config) if found.interface is None else found.interface
    with torch.device("meta"):  # before memory is taken for a network of a size that a damaged file may name
        weights_file.check_fit(benchmark.build_network(config), found.tensors, found.path)
    own = benchmark.build_network(config) if found.own_code else None
    network = benchmark.predictor(config, interface, own)
    weights_file.load_fitting(network.model, found.tensors, found.path)
    network.eval()
    return network


def export(checkpoint: Path, weights: Path) -> int:
    """Write the weights and return how many numbers they are; an existing file is an error, not overwritten."""
    if weights.suffix != weights_file.ENDING:
        raise CheckpointError(f"{weights}: expected a name that ends in {weights_file.ENDING}, by which it is known")
    weights_file.check_new(weights)
    found = weights_file.read(checkpoint)
    if found.interface is None:
        print(
            f"warning: {found.path} was written by an earlier version: the file has no description of the network's "
            "input and output",
            file=sys.stderr,
        )
    weights_file.write(weights, found)
    return found.count


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = CommandParser(prog="python -m common.export", description=DESCRIPTION)
    parser.add_argument(
        "checkpoint", type=place, metavar="RUN", help="the folder of a run (its newest checkpoint), or a checkpoint"
    )
    parser.add_argument("weights", type=place, help="the file to write, such as cosmoflow.safetensors")
    parser.add_argument(
        "--best", action="store_true", help="the checkpoint of the best evaluation of the run: see checkpoint.best"
    )
    arguments = parser.parse_args(argv)
    checkpoint, weights = arguments.checkpoint, arguments.weights

    def run() -> int:
        print(f"{weights}: {export(best_of(checkpoint) if arguments.best else checkpoint, weights):,} numbers")
        return 0

    return run_command(run, (CheckpointError, OSError))


if __name__ == "__main__":
    sys.exit(main())
