"""The command behind every benchmark's `train.py`: configuration in, trained model and result log out.

What needs no network is answered without torch, see `answer_at_once`, so that other modules are imported where they
are used.

`common.training.benchmark` defines what a benchmark gives, `common.training.run` the order of events of a training, and
`common.training.job` how a job makes several of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from common.command import CommandParser, UsageError, as_called, positive, run_command
from common.commands.arguments import explain_setting
from common.config import to_yaml
from common.console import CONSOLE
from common.ending import EXIT_STATUS, STOPPED, TARGET_NOT_MET
from common.files import write_whole_file
from common.installed import described_configs
from common.own_code import SourceError
from common.settings.run import RunConfig
from common.stop import STOP
from common.training.resolve import resolve_config

if TYPE_CHECKING:
    from common.training.benchmark import Benchmark

RESUME: Final = "--resume"
STATUS_TEXTS: Final = {
    EXIT_STATUS[STOPPED]: "stopped, to be continued with --resume, or output_dir is in use: see the output above",
    EXIT_STATUS[TARGET_NOT_MET]: "no error: the run is over without meeting its target, as ended.json says",
}
OUTPUT_DIR: Final = ""
"""The value of a bare `--resume`: the run in output_dir."""


CONFIG_OPTIONS: Final = ("config", "config_file", "config_path", "config_name", "cfg", "conf", "c", "f")
RANK_OPTIONS: Final = ("gpus", "num_gpus", "ngpus", "nproc", "nproc_per_node", "np", "n", "ranks", "devices")
"""Options of other programs: for their configuration, and for a number of ranks on a node."""


@contextmanager
def _explaining_exit() -> Iterator[None]:
    """Explain the status of an exit in the middle: wrong use, or an error of one of several ranks."""
    try:
        yield
    except SystemExit as stop:
        _explain_status(stop.code)
        raise


@_explaining_exit()
def answer_at_once(benchmark: str, argv: Sequence[str] | None = None) -> None:
    """End the process if its arguments ask for no training: for help or a configuration, or for what no run can be.

    A training no longer needs its console then. Called before torch is imported; an error of own code is left to
    `main`, which tells all ranks. benchmark: the name of its package.
    """
    arguments = _parse_arguments(benchmark, argv)
    if not (arguments.list_configs or arguments.print_config):
        CONSOLE.install_streams()
    settings = f"{benchmark}.settings"
    cls = import_module(settings).Config

    def answer() -> int:
        try:
            return _print_answer(cls, arguments)
        except UsageError as error:
            if arguments.print_config or not isinstance(error.__cause__, SourceError):
                raise
            return 0

    status = run_command(answer, (ValueError, OSError))
    if status or arguments.list_configs or arguments.print_config:
        sys.exit(status)


@_explaining_exit()
def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status of `common.ending`, or 2 for wrong use."""
    from common.ranks.connect import connect
    from common.training.callbacks import Callback, load_callback
    from common.training.job import configure_training, train
    from common.training.overfit import overfit_one_batch
    from common.training.run import TRAINING_ERRORS, Start

    arguments = _parse_arguments(benchmark.name, argv)

    def load_callbacks() -> tuple[type[Callback], ...]:
        try:
            return tuple(map(load_callback, arguments.callback or ()))
        except ValueError as error:
            raise UsageError(f"argument --callback: {error}") from None

    def command() -> int:
        if arguments.list_configs or arguments.print_config:
            return _print_answer(benchmark.config, arguments)
        try:
            callbacks = load_callbacks()
            config = configure_training(benchmark, arguments.config, arguments.override)
        except UsageError as error:
            with connect(expected=TRAINING_ERRORS, failure=error):
                raise
        if arguments.overfit_one_batch:
            return overfit_one_batch(benchmark, config, arguments.overfit_one_batch)
        start = Start(arguments.resume, arguments.auto_resume, arguments.wait, callbacks, tuple(arguments.override))
        return train(benchmark, config, start)

    with STOP.listening():
        status = run_command(command, TRAINING_ERRORS)
    _explain_status(status)
    return status


def _explain_status(status: Any) -> None:
    """Tell torchrun what an exit status means, for the report of failures that it prints for each but 0.

    The file is that of torch.distributed.elastic.multiprocessing.errors; without it the report names a traceback.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if status and file:
        text = f"{STATUS_TEXTS.get(status, 'the error is in the output above')} (exit status {status})"
        details = {"py_callstack": text, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            write_whole_file(Path(file), json.dumps({"message": {"message": text, "extraInfo": details}}))


def _print_answer(cls: type[RunConfig], arguments: argparse.Namespace) -> int:
    """Print what is asked for of configurations, if anything; return 0. ConfigError for one that no run can have."""
    if arguments.list_configs:
        print(described_configs(cls.reference.name))
        return 0
    config = resolve_config(cls, arguments.config, arguments.override)
    if arguments.print_config:
        print(to_yaml(config, all_keys=arguments.all), end="")
    return 0


def _parse_arguments(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    module = f"python -m {name}.train"

    def explain_option(option: str, value: str) -> str:
        """Return what to write in place of an option of other programs: settings and configuration are arguments."""
        word, value = option.strip("-").replace("-", "_"), quote(value) if value[:1] not in "-" else ""
        if word in CONFIG_OPTIONS:
            return f": the configuration is an argument: {as_called(module)} {value or 'mini'}"
        if word in RANK_OPTIONS:
            return f": a launcher starts the ranks: torchrun --nproc-per-node {value or 4} -m {name}.train mini"
        return explain_setting(name, option, value)

    parser = CommandParser(
        prog=module,
        explain_option=explain_option,
        description=f"""\
Train {name} until its quality target is met, and write a result log that `python -m compliance.check` judges.

  {module} mini                         the mini problem, on a laptop
  {module} mini train.seed=7            with one value changed
  {module} mini --resume                continue the interrupted run
  {module} mini --auto-resume           begin the run, or continue it: what job scripts use
  {module} mini --resume runs/seed7     continue this run, or from this checkpoint
  torchrun --nproc-per-node 4 -m {name}.train mini instances.count=8 instances.ranks=1
                                        eight trainings, each with its own seed, four at a time
  torchrun --nproc-per-node 2 -m {name}.train mini
  mpirun -n 2 {module} mini
  srun -n 512 {module} config           the full problem, on a cluster""",
        epilog="""\
In output_dir: result_0.txt (the log), history.csv (a row per epoch), metrics.jsonl (a line per step and epoch),
checkpoints/, ended.json (how the run ended), fom.json (its figure of merit), profile/ with profile.steps=N,
console.txt if standard output or error was lost, and tensorboard/ if TensorBoard is installed. Several instances have
a folder instance_N/ each. track.to=[wandb] or [mlflow] also sends the metrics there.
While a run is active, output_dir has one owner: a second training in it ends at once.
Ctrl-C, SIGTERM and SIGUSR1 save a checkpoint and stop the run at the next step; continue with --resume.
To compare values of a key: `python -m submission.study`.
With several instances, the exit status is 3 if one can be continued, else 1 if one failed, else 4 if one missed the
target, else 0.""",
        statuses={
            0: "target met, or train.target=none and all epochs done",
            3: "can be continued: a signal stopped the run, or output_dir is in use",
            4: "missed the target: all epochs are done, or a callback stopped the run",
            130: "interrupted before the run began",
        },
    )
    # nargs="?": without it argparse would name the overrides as missing too.
    parser.add_argument(
        "config", nargs="?", help="name of a configuration, or a YAML file; --print-config --all shows all keys"
    )
    parser.add_argument("override", nargs="*", help="section.key=value, replacing the file's value")
    parser.add_argument("--list-configs", action="store_true", help="print the names of the configurations and exit")
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the keys of the resolved configuration that differ from the defaults, and exit",
    )
    parser.add_argument("--all", action="store_true", help="with --print-config: all keys")
    parser.add_argument(
        RESUME,
        nargs="?",
        const=OUTPUT_DIR,
        metavar="RUN",
        help="continue the run in output_dir, in this folder, or from this checkpoint",
    )
    parser.add_argument(
        "--auto-resume", action="store_true", help="start the run in output_dir, continue it, or say how it ended"
    )
    parser.add_argument(
        "--callback",
        action="append",
        metavar="FILE.py:CLASS|MODULE:CLASS",
        help="call an object of this class, derived from common.api.Callback, at each step and epoch; imports its "
        "module or file. docs/guide/library.md has examples",
    )
    parser.add_argument(
        "--overfit-one-batch",
        nargs="?",
        type=positive,
        const=300,
        metavar="STEPS",
        help="train on the first batch again and again, %(const)s times by default, and say whether the "
        "loss falls to a tenth, as it does if network, loss, gradients and optimizer work together; makes no run",
    )
    parser.add_argument("--wait", action="store_true", help="wait until output_dir has no other owner")
    words = sys.argv[1:] if argv is None else argv
    if any(word.partition("=")[0] == "--sweep" for word in words):
        parser.error(
            f"--sweep is now `python -m submission.study --benchmark {name} --config NAME --axis KEY=VALUE,VALUE "
            "-o DIR`"
        )
    arguments = parser.parse_intermixed_args(_keep_overrides(words))
    if arguments.config is None and not arguments.list_configs:
        parser.error("no configuration is named, such as mini; --list-configs shows those that come with the suite")
    if arguments.all and not arguments.print_config:
        parser.error("--all is given without --print-config")
    if arguments.auto_resume and arguments.resume is not None:
        parser.error("--resume and --auto-resume are given; expected one of them")
    if arguments.overfit_one_batch and (arguments.auto_resume or arguments.resume is not None):
        parser.error("--overfit-one-batch makes no run: give it without --resume and --auto-resume")
    return arguments


def _keep_overrides(argv: Sequence[str]) -> list[str]:
    """Return the arguments with `--resume` kept from taking an override, section.key=value, as its path."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] == RESUME and "=" in word and not Path(word).exists():
            words[-1] = f"{RESUME}={OUTPUT_DIR}"
        words.append(word)
    return words
