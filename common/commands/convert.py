"""The command behind every benchmark's `convert_checkpoint.py`: weights of its reference code in and out."""

from __future__ import annotations

import pickle
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from common.command import CommandParser, UsageError, run_command
from common.commands.arguments import separate_overrides
from common.config import load, rebuild, to_dict
from common.files import check_regular, open_whole_file
from common.named_configs import CLOSED, find_config
from common.provenance import shown_path
from common.training import weights
from common.training.benchmark import Benchmark
from common.training.checkpoint import FORMAT, CheckpointError, find_wrong_entry
from common.training.weights import ENDING, Weights

WRAPPER: Final = "module."
"""What torch's parallel wrappers put before each name."""


@dataclass(frozen=True, slots=True)
class Found:
    """The weights in a file of a reference code. tensors: by the names of our network; unknown ones keep theirs.

    epochs: how long they were trained; None: the file does not say. overrides: what it says of the configuration.
    """

    tensors: Mapping[str, Tensor]
    epochs: int | None = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFiles:
    """How a reference code stores weights. endings: of its files. code: what it is. note: about what is written.

    read: returns what is in a file, given the tensors of our network by name, of which only shapes are known.
    write: makes a new file of weights, given their configuration.
    Both raise CheckpointError for a file that cannot be used.
    """

    endings: tuple[str, ...]
    code: str
    note: str
    read: Callable[[Path, Mapping[str, Tensor]], Found]
    write: Callable[[Path, Weights, Any], None]


# -- files of torch ------------------------------------------------------------------------------------------


def read_torch(path: Path, key: str) -> dict[str, Any]:
    """Return what a reference code saved by torch, with tensors on the CPU; a dictionary with at least `key`.

    The weights under `key` lose the prefix of parallel wrappers; a file with nothing but weights is taken for them.
    Runs no code in the file: raises CheckpointError for one that needs it.
    """
    try:
        check_regular(path)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if problem := find_wrong_entry(archive, path.stat().st_size):
                    raise ValueError(problem)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except pickle.UnpicklingError as error:
        raise CheckpointError(_explain_code(path, key, str(error))) from error
    except OSError:
        raise
    except Exception as error:  # torch fails in many ways on damaged bytes
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CheckpointError(f"{path}: damaged, or not a file that torch wrote ({reason})") from error
    if isinstance(content, dict) and content.get("format") == FORMAT:
        raise CheckpointError(f"{path}: a checkpoint of this suite; `python -m common.export` writes its weights")
    if isinstance(content, dict) and key not in content and _are_weights(content):
        content = {key: content}
    if not isinstance(content, dict) or not _are_weights(content.get(key)):
        raise CheckpointError(f"{path}: expected a dictionary with the weights by name under {key!r}")
    tensors = content[key]
    while all(name.startswith(WRAPPER) for name in tensors):
        tensors = {name.removeprefix(WRAPPER): tensor for name, tensor in tensors.items()}
    return {**content, key: tensors}


def _are_weights(content: Any) -> bool:
    entries = content.items() if isinstance(content, Mapping) else ()
    return bool(entries) and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in entries)


def _explain_code(path: Path, key: str, problem: str) -> str:
    """Return what to do about a file that is not only tensors and plain values."""
    kind = re.search(r"GLOBAL ([\w.]+)", problem)
    if kind is None:
        return f"{path}: damaged, or not a file that torch wrote"
    return (
        f"{path}: it has an object of {kind[1]}, and loading that could run any code, so it is not loaded. If you "
        "trust the file, save its weights alone, in the environment that made it:\n"
        f"  python -c \"import torch; c = torch.load('{path.name}', 'cpu', weights_only=False); "
        f"torch.save({{'{key}': c['{key}']}}, 'weights-only.pt')\""
    )


def write_torch(path: Path, content: Mapping[str, Any]) -> None:
    """Write a new file by torch, whole or not at all."""
    try:
        with open_whole_file(path) as file:
            torch.save(dict(content), file)
    except RuntimeError as error:  # which torch raises for a full disk
        weights.cannot_be_written(path, error)


def epochs_of(content: Mapping[str, Any]) -> int | None:
    """Return how many epochs a file says that it was trained; None if it does not."""
    epoch = content.get("epoch")
    return int(epoch) if isinstance(epoch, int | float) and 0 <= epoch < 2**31 else None


def renamed(names: Iterable[str], rules: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return our names with those of the reference code, which the substitutions make of them, one after another."""
    others = {}
    for name in names:
        other = name
        for pattern, replacement in rules:
            other = re.sub(pattern, replacement, other)
        others[name] = other
    return others


def by_our_names(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return tensors by our names. names: ours with those of the reference; a name that is not among them is kept."""
    ours = {other: name for name, other in names.items()}
    return {ours.get(name, name): tensor for name, tensor in tensors.items()}


# -- the command ---------------------------------------------------------------------------------------------


def main(benchmark: Benchmark, files: ReferenceFiles, argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    name, ending = benchmark.name, files.endings[0]
    module = f"python -m {name}.convert_checkpoint"
    parser = CommandParser(
        prog=module,
        usage=f"{module} [-h] [--config CONFIG] IN OUT [section.key=value ...]",
        description=f"""\
Convert weights from {files.code}, or to it. The ending of OUT decides:
{ENDING} is the suite's export, which `train.init_from` and `common.export.load_network` read;
{" or ".join(files.endings)} is the reference code's.

  {module} reference{ending} {name}{ENDING}
  {module} runs/{name}-mini reference{ending}
  {module} {name}{ENDING} reference{ending}

A file of the reference code does not describe its network: the configuration is the closed division's unless --config
and overrides name another. If tensors do not fit, the command lists them and writes nothing. It runs no code in a file.
{files.note}""",
    )
    parser.add_argument("words", nargs="+", metavar="IN OUT", help="the file or run to read, and the file to write")
    parser.add_argument("--config", default=CLOSED, help="configuration of the network in IN, by name or as YAML file")
    arguments = parser.parse_intermixed_args(sys.argv[1:] if argv is None else argv)
    paths, overrides = separate_overrides(list(filter(None, arguments.words)))
    if len(paths) != 2:
        parser.error(f"expected a file to read and one to write, not {len(paths)} path(s)")
    source, target = paths

    def convert() -> int:
        if target.suffix == ENDING:
            count = _write_export(benchmark, files, (source, target), (arguments.config, overrides))
        elif target.suffix not in files.endings:
            raise UsageError(f"{target}: expected a name that ends in {ENDING} or {' or '.join(files.endings)}")
        else:
            count = _write_reference(benchmark, files, (source, target), overrides)
        print(f"{target}: {count:,} numbers")
        return 0

    return run_command(convert, (ValueError, OSError))


def _write_export(
    benchmark: Benchmark, files: ReferenceFiles, paths: tuple[Path, Path], config_words: tuple[str, list[str]]
) -> int:
    """Write an export of weights of the reference code; return how many numbers they are."""
    (source, target), (name, overrides) = paths, config_words
    weights.check_new(target)
    if source.suffix == ENDING or source.is_dir():
        raise UsageError(f"{source}: expected a file of {files.code}; `python -m common.export` exports a run")
    path = find_config(benchmark.name, name)
    with torch.device("meta"):
        network = benchmark.build_network(load(benchmark.config, path, overrides))
    wanted = network.state_dict()
    content = files.read(source, wanted)
    weights.check_plain(content.tensors, source)
    config = load(benchmark.config, path, [*content.overrides, *overrides])
    tensors = {
        name: tensor.to(wanted[name].dtype) if name in wanted else tensor for name, tensor in content.tensors.items()
    }
    weights.check_fit(network, tensors, source)
    interface = benchmark.predictor.describe(config)
    export = Weights(source, benchmark.name, tensors, to_dict(config, shown_path), content.epochs, interface)
    weights.write(target, export)
    return export.count


def _write_reference(
    benchmark: Benchmark, files: ReferenceFiles, paths: tuple[Path, Path], overrides: Sequence[str]
) -> int:
    """Write a run or an export as a file of the reference code; return how many numbers they are."""
    source, target = paths
    if overrides:
        raise UsageError(f"{overrides[0]}: the weights in {source} have their configuration; leave overrides out")
    weights.check_new(target)
    export = weights.read(source, benchmark.name)
    config = rebuild(benchmark.config, dict(export.config), f"the configuration in {export.path}")
    with torch.device("meta"):
        weights.check_fit(benchmark.build_network(config), export.tensors, export.path)
    files.write(target, export, config)
    return export.count
