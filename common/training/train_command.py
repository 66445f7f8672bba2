"""The command behind every benchmark's `train.py`: configuration in, trained model and result log out.

`common.training.benchmark` defines what a benchmark gives, `common.training.run` the order of events of a training, and
`common.training.job` how a job makes several of them.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from common.command import CommandParser, run_stoppable
from common.config import load, sources, to_yaml
from common.distributed.device import keep_freed_memory
from common.distributed.dist import connect
from common.named_configs import described_configs, find_config
from common.stop import STOP
from common.training.benchmark import Benchmark
from common.training.combinations import check_combinations
from common.training.division import check_division
from common.training.job import InstancesJob, check_ranks
from common.training.run import TRAINING_ERRORS, Instance, Training

RESUME: Final = "--resume"
OUTPUT_DIR: Final = ""
"""The value of a bare `--resume`: the run in output_dir."""


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status of `common.ending`, or 2 for wrong use."""
    given = _arguments(benchmark.name, argv)

    def train() -> int:
        if given.list_configs:
            print(described_configs(benchmark.name))
            return 0
        file = find_config(benchmark.name, given.config)
        config = load(benchmark.config, file, given.override, partial(check_combinations, overrides=given.override))
        check_division(benchmark, config, sources(file, given.override))
        if given.print_config:
            print(to_yaml(config), end="")
            return 0
        with contextlib.ExitStack() as connected:
            with STOP.interrupting():
                dist = connected.enter_context(connect(config.dist, TRAINING_ERRORS))
            if dist.device.type == "cpu":
                keep_freed_memory()
            check_ranks(config, dist.world_size, given.resume)
            if config.instances.count > 1:
                return InstancesJob(benchmark, config, dist, given).run()
            number = config.instances.first
            return Training(benchmark, config, dist, given, None if number is None else Instance(number)).run()

    with STOP.listening():
        return run_stoppable(train, TRAINING_ERRORS)


def _arguments(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    module = f"python -m {name}.train"
    parser = CommandParser(
        prog=module,
        description=f"""\
Train {name} until its quality target is met, and write an MLPerf result log that `python -m compliance.check` judges.

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
In output_dir: result_0.txt (the log), history.csv, checkpoints/, ended.json (how the run ended), fom.json (its figure
of merit), profile/ with profile.steps=N, and tensorboard/ if TensorBoard is installed; of several instances, each in
its instance_N/. While a run is active, output_dir has one owner: a second training in it ends at once.
Ctrl-C, SIGTERM and SIGUSR1 save a checkpoint and stop the run at the next step; continue with --resume.
Exit status: 0 target met, 1 an error, 2 wrong use, 3 to be continued (a signal stopped the run, or output_dir is in
use), 4 all epochs done without meeting the target. Of several instances: 3 if one is to be continued, else 1 if one
failed, else 4 if one missed the target.""",
    )
    # nargs="?": without it argparse would name the overrides as missing too.
    parser.add_argument(
        "config", nargs="?", help="name of a configuration, or a YAML file; --print-config shows all keys"
    )
    parser.add_argument("override", nargs="*", help="section.key=value, replacing the file's value")
    parser.add_argument("--list-configs", action="store_true", help="print the names of the configurations and exit")
    parser.add_argument("--print-config", action="store_true", help="print the resolved configuration and exit")
    parser.add_argument(
        RESUME,
        nargs="?",
        const=OUTPUT_DIR,
        metavar="RUN",
        help="continue the run in output_dir, or in this folder, or from this checkpoint",
    )
    parser.add_argument(
        "--auto-resume",
        action="store_true",
        help="begin the run in output_dir, or continue it, or say how it ended",
    )
    parser.add_argument("--wait", action="store_true", help="wait until output_dir has no other owner")
    given = parser.parse_intermixed_args(_apart(sys.argv[1:] if argv is None else argv))
    if given.config is None and not given.list_configs:
        parser.error("no configuration is named; --list-configs shows those that come with the suite")
    if given.auto_resume and given.resume is not None:
        parser.error("--resume and --auto-resume are given; expected one of them")
    return given


def _apart(argv: Sequence[str]) -> list[str]:
    """Return the arguments with `--resume` kept from taking an override, section.key=value, as its path."""
    apart: list[str] = []
    for word in argv:
        if apart and apart[-1] == RESUME and "=" in word and not Path(word).exists():
            apart[-1] = f"{RESUME}={OUTPUT_DIR}"
        apart.append(word)
    return apart
