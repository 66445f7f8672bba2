"""`python -m common.export RUN WEIGHTS.safetensors`: the weights of a run, for other tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file

from common.command import CommandParser, place, run_command
from common.files import whole_file
from common.training.checkpoint import CheckpointError, best_of, load

DESCRIPTION = """\
Write the weights of a checkpoint as safetensors: tensors by name and no code, readable from many languages.
The file's metadata say which benchmark, epoch and configuration the weights come from."""


def export(checkpoint: Path, weights: Path) -> int:
    """Write the weights and return how many numbers they are; an existing file is an error, not overwritten."""
    if weights.exists():
        raise CheckpointError(f"{weights}: the file already exists; name another")
    if not weights.parent.is_dir():
        raise CheckpointError(f"{weights}: there is no folder {weights.parent}; make it first")
    loaded = load(checkpoint)
    loaded.warn()
    content, state = loaded.content, loaded.content["state"]
    metadata = {
        "benchmark": content["benchmark"],
        "epochs_done": str(content["position"][0]),
        "config": json.dumps(state["config"]),
    }
    tensors = {name: tensor.contiguous() for name, tensor in state["model"].items()}
    try:
        with whole_file(weights) as part:
            save_file(tensors, part, metadata)
    except SafetensorError as error:  # which a full disk raises, too
        raise CheckpointError(f"{weights}: cannot be written ({error})") from error
    return sum(tensor.numel() for tensor in tensors.values())


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
    given = parser.parse_args(argv)
    return run_command(lambda: _export(given.checkpoint, given.weights, given.best), (CheckpointError, OSError))


def _export(checkpoint: Path, weights: Path, best: bool) -> int:
    print(f"{weights}: {export(best_of(checkpoint) if best else checkpoint, weights):,} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
