"""The arguments of the commands that are about networks, apart from these: help needs no torch.

name: of the benchmark's package, everywhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from common.command import CommandParser, any_path, file_path, positive
from common.config import guess_key
from common.installed import CLOSED
from common.measure.fom import NAME
from common.reference import SPLITS, VALIDATION

FEWEST: Final = 3
"""Steps that `measure` measures, however long they take."""
FIRST, FIRST_ACCELERATOR = 2, 15
"""Steps that it leaves out; on an accelerator without `train.warm_up` until recorded ones are replayed."""
FIDELITY_SEEDS, FIDELITY_STEPS = 5, 10


def explain_setting(name: str, option: str, value: str) -> str:
    """Return the setting to write in place of an option that there is not; "" if no key is like it."""
    settings = f"{name}.settings"
    key = guess_key(import_module(settings).Config, option.strip("-").replace("-", "_"))
    return f": a setting is an argument: write {key}={value or 'VALUE'}" if key else ""


def parse_evaluation(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of `evaluate`; ends the process for help, and for wrong use."""
    parser = CommandParser(
        prog=f"python -m {name} evaluate",
        explain_option=partial(explain_setting, name),
        usage=f"""\
python -m {name} evaluate [-h] [--best] [--out-of-bag] [-o FILE.json] RUN [RUN ...] [section.key=value ...]""",
        description=f"""\
Evaluate a checkpoint on the whole validation set, with its own configuration. Under torchrun, mpirun or srun the ranks
share the work, as in training.

  python -m {name} evaluate runs/{name}-mini                        the newest checkpoint of a run
  python -m {name} evaluate runs/{name}-mini --best                 that of its best evaluation (checkpoint.best=true)
  python -m {name} evaluate runs/{name}-mini/checkpoints/epoch-0009-step-0000000.pt
  python -m {name} evaluate RUN data.data_dir=/data/{name}          with the data of this machine
  python -m {name} evaluate RUN RUN RUN                      several networks, and the mean of their predictions
  python -m {name} evaluate JOB                              the same for JOB/instance_0, JOB/instance_1, ...

Several runs are an ensemble, which is not an MLPerf result. The table has the quality of each member, and of their mean
prediction (of the class probabilities). The device holds the weights of all members. Memory does not grow with the
data; time grows with the members.""",
        statuses={0: "target met (by the ensemble), or the run had none", 1: "target not met, or an error"},
    )
    parser.add_argument(
        "words",
        nargs="*",
        type=run_or_override,
        metavar="RUN",
        help="the folder of a run or of its instances, or a checkpoint",
    )
    parser.add_argument("--predictions", nargs="?", const="", help=argparse.SUPPRESS)  # an option until 0.3
    parser.add_argument(
        "--best", action="store_true", help="use the checkpoint of each run's best evaluation: see checkpoint.best"
    )
    parser.add_argument(
        "--out-of-bag",
        action="store_true",
        help="for runs with bagging: judge each training sample by the members that did not draw it",
    )
    parser.add_argument("-o", "--output", type=any_path, metavar="FILE.json", help="also write the numbers to a file")
    arguments = parser.parse_intermixed_args(argv)
    arguments.runs, arguments.overrides = separate_overrides(arguments.words)
    if arguments.predictions is not None:
        parser.error(
            "--predictions is no option any more: name the run or checkpoint that predicted, or read the quality that "
            "predict prints"
        )
    if not arguments.runs:
        parser.error("no run is named")
    return arguments


def parse_prediction(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of `predict`; ends the process for help, and for wrong use."""
    parser = CommandParser(
        prog=f"python -m {name} predict",
        explain_option=partial(explain_setting, name),
        usage=f"python -m {name} predict [-h] -o FILE [--plot PICTURE] [--split SPLIT] RUN [section.key=value ...]",
        description=f"""\
Write a checkpoint's prediction for each sample beside the truth, and print a summary. The configuration comes from the
checkpoint. Under torchrun, mpirun or srun the ranks share the work, as in training.

  python -m {name} predict runs/{name}-mini -o predictions.npz
  python -m {name} predict runs/{name}-mini -o predictions.h5 --plot predictions.png
  python -m {name} predict RUN -o train.npz --split train         the training samples, not augmented
  python -m {name} predict RUN -o FILE data.data_dir=/data/{name}   with the data of this machine

An npz file stays in memory until it is written; HDF5 is written batch by batch, for any number of samples.
docs/guide/predict.md has the format. Samples keep their order on any number of ranks; with the same
train.eval_batch_size=N the numbers are equal too, otherwise they can differ by rounding.""",
        statuses={0: "the file is written"},
    )
    parser.add_argument(
        "words", nargs="+", type=run_or_override, metavar="RUN", help="the folder of a run, or a checkpoint"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=file_path,
        required=True,
        metavar="FILE",
        help="the file to write: .npz, or .h5 (HDF5)",
    )
    parser.add_argument(
        "--plot", type=file_path, metavar="PICTURE", help="also draw predictions and truth: .png, .svg or .pdf"
    )
    parser.add_argument(
        "--split", choices=SPLITS, default=VALIDATION, help="which samples to predict (default: %(default)s)"
    )
    arguments = parser.parse_intermixed_args(argv)
    runs, arguments.overrides = separate_overrides(arguments.words)
    if len(runs) != 1:
        parser.error(f"{len(runs)} runs are named; expected one")
    arguments.run = runs[0]
    return arguments


def parse_measurement(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of `measure`; ends the process for help, and for wrong use."""
    module = f"python -m {name} measure"
    parser = CommandParser(
        module,
        explain_option=partial(explain_setting, name),
        description=f"""\
Measure training steps of {name}: the network at full size, one sample for each rank, in a few minutes and without a
dataset. It is not an MLPerf result.

  {module}                                  the network at full size
  {module} mini                             the mini problem's network
  {module} train.global_batch_size=8        another batch, over all ranks
  {module} --data /data/{name}              reading included, from these files
  torchrun --nproc-per-node 4 -m {name} measure
  mpirun -n 2 {module}
  srun -n 512 {module}""",
        epilog=f"""\
Without --data the command generates a few samples of the published shape and distribution once, in
data/{name}-measure-full (or -mini, -mini2), and keeps them in memory. It writes {NAME}
(docs/reference/fom.schema.json), replacing an earlier one, and one line on standard output:
  FOM {name} samples/s 123.4 units 4 batch 64 dtype bf16 spread 0.021
units: ranks. spread: standard deviation of the steps' times divided by their median.""",
        statuses={0: "measured"},
    )
    parser.add_argument(
        "config", nargs="?", default=CLOSED, help=f"name of a configuration, or a YAML file (default: {CLOSED})"
    )
    parser.add_argument("override", nargs="*", help="section.key=value, replacing the file's value")
    parser.add_argument("--steps", type=positive, default=30, help="steps to measure at most (default 30)")
    parser.add_argument(
        "--seconds",
        type=positive,
        default=60,
        help=f"measure fewer steps, but at least {FEWEST}, if they take longer (default 60)",
    )
    parser.add_argument(
        "--warmup",
        type=positive,
        help=f"steps before (default {FIRST}, or {FIRST_ACCELERATOR} with an accelerator and train.warm_up=off)",
    )
    parser.add_argument(
        "--fidelity",
        action="store_true",
        help=f"also compare outputs, gradients and losses with float32's, over {FIDELITY_SEEDS} seeds",
    )
    parser.add_argument("--data", type=any_path, metavar="DIR", help="folder with train and validation to read")
    parser.add_argument(
        "-o", "--output", type=file_path, metavar="FILE.json", help=f"default: runs/{name}-measure/{NAME}"
    )
    arguments = parser.parse_intermixed_args(argv)
    if "=" in arguments.config and not Path(arguments.config).exists():  # an override without a configuration before it
        arguments.override, arguments.config = [arguments.config, *arguments.override], CLOSED
    return arguments


def run_or_override(text: str) -> str:
    """Return an argument that is a path or an override; an `argparse` type."""
    return text if any_path(text) else ""


def separate_overrides(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the paths among arguments, and the overrides: what has a = and is no file."""
    overrides = [text for text in words if "=" in text and not Path(text).exists()]
    return [Path(text) for text in words if text not in overrides], overrides


PARSERS: Final[dict[str, Callable[[str, Sequence[str] | None], argparse.Namespace]]] = {
    "evaluate": parse_evaluation,
    "predict": parse_prediction,
    "measure": parse_measurement,
}
"""The function that reads the arguments of each command."""
