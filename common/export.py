"""`python -m common.export RUN WEIGHTS.safetensors`: the weights of a run, for other tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import save_file

from common.command import CommandParser
from common.files import whole_file
from common.training.checkpoint import CheckpointError, load

DESCRIPTION = """\
Write the weights of a checkpoint as safetensors: tensors by name and no code, readable from many languages.
The file's metadata say which benchmark, epoch and configuration the weights come from."""


def export(checkpoint: Path, weights: Path) -> int:
    """Write the weights and return how many numbers they are; an existing file is an error, not overwritten."""
    if weights.exists():
        raise CheckpointError(f"{weights}: the file already exists; name another")
    loaded = load(checkpoint)
    loaded.warn()
    content, state = loaded.content, loaded.content["state"]
    metadata = {
        "benchmark": content["benchmark"],
        "epochs_done": str(content["position"][0]),
        "config": json.dumps(state["config"]),
    }
    tensors = {name: tensor.contiguous() for name, tensor in state["model"].items()}
    weights.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(weights) as part:
        save_file(tensors, part, metadata)
    return sum(tensor.numel() for tensor in tensors.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = CommandParser(prog="python -m common.export", description=DESCRIPTION)
    parser.add_argument(
        "checkpoint", type=Path, metavar="RUN", help="the folder of a run (its newest checkpoint), or a checkpoint"
    )
    parser.add_argument("weights", type=Path, help="the file to write, such as cosmoflow.safetensors")
    given = parser.parse_args(argv)
    try:
        count = export(given.checkpoint, given.weights)
    except (CheckpointError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{given.weights}: {count:,} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
