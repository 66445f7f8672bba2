"""The weights of a network apart from its training: read from what the suite writes, fitted to a network, exported.

An export is a safetensors file: tensors by name, no code, and as metadata all that it takes to use them: benchmark,
configuration, and the network's interface (`common.training.benchmark.Predictor.describe`). It is written by
`python -m common.training.weights RUN WEIGHTS.safetensors`, and `load_network` loads it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from common.command import CommandParser, any_path, check_new, run_command
from common.config import rebuild
from common.file_kind import SAFETENSORS, explain_file
from common.files import check_regular, whole_file
from common.own_code import OWN_CODE, Code, read_codes
from common.training.benchmark import Benchmark, Predictor, check_network_code
from common.training.checkpoint import CheckpointError, best_of, is_dense, load

ENDING: Final = ".safetensors"
REAL: Final = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
"""Types of weights, and of what is beside them, such as counters."""
DIGEST: Final = "weights_sha256"
LISTED: Final = 10
"""Names of each kind that a message lists."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of a network by name, on the CPU, and where they come from.

    path: the file. benchmark: whose network it is. config: of the run, as `common.config.to_dict` made it.
    own_code: what computed in place of the suite's code. epochs: how long it was trained; None: not known.
    interface: what is around the network, see `common.training.benchmark.Predictor.describe`; None in checkpoints of
    earlier versions.
    """

    path: Path
    benchmark: str
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any]
    epochs: int | None
    interface: Mapping[str, Any] | None
    own_code: tuple[Code, ...] = ()

    @property
    def count(self) -> int:
        """How many numbers they are."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    @property
    def digest(self) -> str:
        """The SHA-256 of names, types, shapes and numbers, the same whatever file they are in."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()


def load_fitting(network: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Give the network the weights of a file; CheckpointError unless they fit."""
    check_fit(network, tensors, path)
    network.load_state_dict(dict(tensors))


def check_fit(network: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise CheckpointError, with all tensors at fault, unless the weights of a file are those of the network."""
    check_plain(tensors, path)
    own = network.state_dict()
    reshaped = [
        f"{name} {_format_shape(tensor)}, expected {_format_shape(own[name])}"
        for name, tensor in tensors.items()
        if name in own and tensor.shape != own[name].shape
    ]
    problems = [
        *_list_names("missing", [name for name in own if name not in tensors]),
        *_list_names("not in the network", [name for name in tensors if name not in own]),
        *_list_names("of another shape", reshaped),
    ]
    if problems:
        lines = [
            f"{path}: these weights do not fit the network of the configuration:",
            *problems,
            "set the keys of `model` (and of the samples' size) to those with which the weights were trained",
        ]
        raise CheckpointError("\n".join(lines))


def check_plain(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise CheckpointError for tensors of a file that are not dense arrays of real numbers in memory."""
    for name, tensor in tensors.items():
        if not is_dense(tensor) or tensor.dtype not in REAL:
            raise CheckpointError(f"{path}: {name} is not a dense tensor of real numbers, which all weights are")


def _format_shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"


def _list_names(problem: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the first names, and how many more there are; nothing if there are none."""
    if names:
        more = f"; and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
        yield f"  {len(names):,} {problem}: {'; '.join(names[:LISTED])}{more}"


def read_weights(path: Path, benchmark: str | None = None) -> Weights:
    """Return the weights of an export, of a checkpoint, or of the newest readable checkpoint in a run's folder.

    benchmark: the benchmark that they must belong to; None: any. Runs no code in the file.
    Raises CheckpointError for any other file, a damaged one, and one of another benchmark.
    """
    if path.suffix == ENDING and not path.is_dir():
        return _read_export(path, benchmark)
    loaded = load(path, benchmark)
    loaded.warn()
    content, state = loaded.content, loaded.state
    epochs, interface = content["position"][0], state.get("interface")
    return Weights(
        loaded.path, content["benchmark"], state["model"], state["config"], epochs, interface, loaded.own_code
    )


def _read_export(path: Path, benchmark: str | None) -> Weights:
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is not a dict)
        config = json.loads(metadata["config"], object_hook=_convert_keys)
        if not isinstance(config, dict):
            raise ValueError(f"config is {metadata['config'][:20]}")
        interface = json.loads(metadata.get("interface", "null"))
        epochs = int(metadata["epochs_done"]) if metadata.get("epochs_done") else None
        own_code = read_codes(json.loads(metadata.get(OWN_CODE, "[]")))
        weights = Weights(path, metadata["benchmark"], tensors, config, epochs, interface, own_code)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; `python -m common.training.weights` writes one") from None
    except (KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: its metadata lack benchmark, epochs_done or config ({error}); expected a file that "
            "`python -m common.training.weights` wrote"
        ) from error
    except (SafetensorError, RuntimeError, TypeError) as error:  # torch's, of impossible shapes
        reason = str(error).partition("\n")[0]
        problem = explain_file(path, SAFETENSORS) or f"not a safetensors file, or damaged ({reason}); copy it again"
        raise CheckpointError(f"{path}: {problem}") from error
    if benchmark not in (None, weights.benchmark):
        raise CheckpointError(f"{path}: the weights of {weights.benchmark!r}, expected those of {benchmark!r}")
    if metadata.get(DIGEST, weights.digest) != weights.digest:
        raise CheckpointError(
            f"{path}: damaged: its weights are not those of `{DIGEST}` in its metadata; copy it again"
        )
    return weights


def _convert_keys(section: dict[str, Any]) -> dict[Any, Any]:
    """Return a mapping with the numbers among its keys, such as epochs, which are text in JSON."""
    return {int(name) if name.isdecimal() else name: value for name, value in section.items()}


def write_weights(path: Path, weights: Weights) -> None:
    """Write an export, whole or not at all; UsageError for a file that exists, CheckpointError for a full disk."""
    check_new("weights", path)
    metadata = {
        "benchmark": weights.benchmark,
        "epochs_done": "" if weights.epochs is None else str(weights.epochs),
        "config": json.dumps(weights.config),
        "interface": json.dumps(weights.interface, ensure_ascii=False),
        DIGEST: weights.digest,
        **({OWN_CODE: json.dumps([asdict(code) for code in weights.own_code])} if weights.own_code else {}),
    }
    tensors = {name: tensor.contiguous() for name, tensor in weights.tensors.items()}
    try:
        with whole_file(path) as part:
            save_file(tensors, part, metadata)
    except SafetensorError as error:  # which a full disk raises, too
        raise CheckpointError(f"{path}: cannot be written ({error})") from error


__all__ = ["load_network"]

DESCRIPTION = """\
Write the weights of a checkpoint as safetensors: tensors by name and no code, readable from many languages.

  python -m common.training.weights runs/cosmoflow-mini cosmoflow.safetensors

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
    weights = read_weights(Path(path), benchmark.name)
    config = rebuild(benchmark.config, dict(weights.config), f"the configuration in {weights.path}")
    check_network_code(weights.own_code, benchmark, config, weights.path)
    interface = benchmark.predictor.describe(config) if weights.interface is None else weights.interface
    with torch.device("meta"):  # before memory is taken for a network of a size that a damaged file may name
        check_fit(benchmark.build_network(config), weights.tensors, weights.path)
    own = benchmark.build_network(config) if weights.own_code else None
    network = benchmark.predictor(config, interface, own)
    load_fitting(network.model, weights.tensors, weights.path)
    network.eval()
    return network


def export_weights(checkpoint: Path, weights: Path) -> int:
    """Write the weights and return how many numbers they are; an existing file is an error, not overwritten."""
    if weights.suffix != ENDING:
        raise CheckpointError(f"{weights}: expected a name that ends in {ENDING}, by which it is known")
    check_new("weights", weights)
    loaded = read_weights(checkpoint)
    if loaded.interface is None:
        print(
            f"warning: {loaded.path} was written by an earlier version: the file has no description of the network's "
            "input and output",
            file=sys.stderr,
        )
    write_weights(weights, loaded)
    return loaded.count


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = CommandParser(prog="python -m common.training.weights", description=DESCRIPTION)
    parser.add_argument(
        "checkpoint",
        type=any_path,
        metavar="RUN",
        help="the folder of a run (its newest checkpoint), or a checkpoint",
    )
    parser.add_argument("weights", type=any_path, help="the file to write, such as cosmoflow.safetensors")
    parser.add_argument(
        "--best", action="store_true", help="the checkpoint of the best evaluation of the run: see checkpoint.best"
    )
    arguments = parser.parse_args(argv)
    checkpoint, weights = arguments.checkpoint, arguments.weights

    def run() -> int:
        print(f"{weights}: {export_weights(best_of(checkpoint) if arguments.best else checkpoint, weights):,} numbers")
        return 0

    return run_command(run, (CheckpointError, OSError))


if __name__ == "__main__":
    sys.exit(main())
