"""The command behind every benchmark's `train.py`: configuration in, trained model and result log out.

`common.training.benchmark` defines what a benchmark gives; the order of events is here.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from common import mllog
from common.command import CommandParser, as_called, run_command
from common.config import ConfigError, leaves, load, to_dict, to_yaml
from common.datasets.prepare_command import variant_and_digest
from common.distributed.device import keep_freed_memory
from common.distributed.dist import Dist, connect
from common.distributed.launch import LaunchError
from common.files import LOG_NAME
from common.mllog import ResultLog
from common.named_configs import described_configs, find_config
from common.provenance import provenance, shown_path
from common.reference import MINI, Target
from common.staging.stage import Staged, StagingError
from common.training import optim
from common.training.benchmark import Benchmark, Problem, RunConfig
from common.training.checkpoint import FOLDER, CheckpointError, Checkpoints, Saved
from common.training.division import check_division, check_samples
from common.training.evaluators import Evaluator, RemoteEvaluator, serve
from common.training.loop import Fit, Outcome, fit
from common.training.precision import Precision
from common.training.progress import Progress, duration

TRAINING_ERRORS: Final = (ValueError, OSError, FloatingPointError, LaunchError, StagingError)
"""Errors that the user can fix; any other is a bug and shows a traceback."""
RESUME: Final = "--resume"
OUTPUT_DIR: Final = ""
"""The value of a bare `--resume`: the run in output_dir."""
STOPPED: Final = 3
"""Exit code of a run that a signal stopped."""
STAGING_TIMED: Final = ("0.7", "1.0", "2.0")
"""Rounds in which a run's clock starts before staging (hpc_training_rules.adoc, "data staging")."""


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if the target was met, 1 if not or after an error, 2 for wrong use, 3 if stopped."""
    given = _arguments(benchmark.name, argv)

    def train() -> int:
        if given.list_configs:
            print(described_configs(benchmark.name))
            return 0
        config = load(benchmark.config, find_config(benchmark.name, given.config), given.override)
        check_division(benchmark, config)
        if given.print_config:
            print(to_yaml(config), end="")
            return 0
        with connect(config.dist) as dist:
            if dist.device.type == "cpu":
                keep_freed_memory()
            return _Training(benchmark, config, dist).run(given.resume)

    return run_command(train, TRAINING_ERRORS)


def _arguments(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    module = f"python -m {name}.train"
    parser = CommandParser(
        prog=module,
        description=f"""\
Train {name} until its quality target is met, and write an MLPerf result log that `python -m compliance.check` judges.

  {module} mini                         the mini problem, on a laptop
  {module} mini train.seed=7            with one value changed
  {module} mini --resume                continue the interrupted run
  {module} mini --resume runs/seed7     continue this run, or from this checkpoint
  torchrun --nproc-per-node 2 -m {name}.train mini
  mpirun -n 2 {module} mini
  srun -n 512 {module} config           the full problem, on a cluster""",
        epilog="""\
In output_dir: result_0.txt (the log), history.csv, checkpoints/, and tensorboard/ if TensorBoard is installed.
Ctrl-C, SIGTERM and SIGUSR1 save a checkpoint and stop the run at the next step; continue with --resume.
Exit status: 0 target met, 1 target not met or an error, 2 wrong use, 3 stopped by a signal.""",
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
    given = parser.parse_intermixed_args(_apart(sys.argv[1:] if argv is None else argv))
    if given.config is None and not given.list_configs:
        parser.error("no configuration is named; --list-configs shows those that come with the suite")
    return given


def _apart(argv: Sequence[str]) -> list[str]:
    """Return the arguments with `--resume` kept from taking an override, section.key=value, as its path."""
    apart: list[str] = []
    for word in argv:
        if apart and apart[-1] == RESUME and "=" in word and not Path(word).exists():
            apart[-1] = f"{RESUME}={OUTPUT_DIR}"
        apart.append(word)
    return apart


class _Training:
    """A run of the command on one rank."""

    def __init__(self, benchmark: Benchmark, config: RunConfig, all_ranks: Dist) -> None:
        self.benchmark, self.config, self.all_ranks = benchmark, config, all_ranks
        self.resolved = to_dict(config, shown_path)
        all_ranks.same(self.resolved, "the configuration")
        evaluating = config.train.eval_ranks
        try:
            self.dist, self.link = all_ranks.split(evaluating)
        except ValueError as error:
            raise ValueError(f"train.eval_ranks: {error}") from None
        self.evaluates = all_ranks.rank >= all_ranks.world_size - evaluating
        kinds = set(all_ranks.gather_objects((all_ranks.node_rank, self.evaluates)))
        if config.staging.mode != "none" and len(kinds) > all_ranks.nodes:
            raise ValueError(
                f"train.eval_ranks is {evaluating}, so that a node has ranks of both kinds, and both would stage data "
                "there; choose a multiple of the ranks per node, or staging.mode=none"
            )
        self.checkpoints = Checkpoints(config.output_dir / FOLDER, benchmark.name, config.checkpoint, self.dist)

    def run(self, resume: str | None) -> int:
        """Train, or evaluate for the ranks that train; return the exit code."""
        return self._serve() if self.evaluates else self._run(resume)

    def _serve(self) -> int:
        assert self.link is not None
        self.all_ranks.barrier()  # rank 0 has made the data
        problem = self.benchmark.problem(self.config, self.dist, 0)  # any seed will do: the weights are sent
        with contextlib.closing(problem.stage()):
            serve(problem, Precision(self.config.precision, self.dist.device), self.link)
        return 0

    def _run(self, resume: str | None) -> int:
        saved = None
        if resume is not None:
            saved = self.checkpoints.load(Path(resume) if resume else None)
            _check_unchanged(self.benchmark.config, saved.state["config"], self.resolved)
            check_seed(self.config, saved.state["seed"])
        self._say(f"{self.benchmark.name}: {_ranks(self.all_ranks, self.config.train.eval_ranks)}")
        if self.dist.is_main and self.config.variant == MINI:
            self.benchmark.make_mini(self.config.data.data_dir)
        self.all_ranks.barrier()
        keep_bytes = saved.state["log_bytes"] if saved else None
        log = mllog.open_log(self.config.output_dir / LOG_NAME, self.dist.is_main, keep_bytes)
        try:
            return self._train(log, saved)
        finally:
            log.close()

    def _train(self, log: ResultLog, saved: Saved | None) -> int:
        if saved is None:
            cleared = mllog.clear_cache(self.config.drop_page_cache and self.dist.local_rank == 0)
            mllog.begin(log, self.benchmark.name, self.config.submission, cleared, self._provenance())
        seed = self._seed(saved)
        torch.manual_seed(seed)
        problem = self.benchmark.problem(self.config, self.dist, seed)
        check_samples(self.benchmark, self.config, problem)
        self._say(problem.describe())
        run = self._fit(log, problem, seed)
        if saved:
            run.load(saved)
        else:
            mllog.describe(log, self._facts(problem, seed), {**problem.settings, "precision": run.precision.name})
            log.end("init_stop")
            torch.manual_seed(seed + 1 + self.dist.rank)  # other dropout masks on each rank
        staging_timed = self.config.submission.round in STAGING_TIMED
        with contextlib.ExitStack() as after_the_run:
            if not staging_timed:
                after_the_run.callback(self._stage(log, problem).close)
            begin = time.perf_counter()
            with log.run() as record:
                if staging_timed:
                    after_the_run.callback(self._stage(log, problem).close)
                outcome = fit(run)
                if outcome.target_met:
                    record.succeed(outcome.history[-1].epoch)
        mini = problem.reference.variant == MINI
        return self._conclude(outcome, run.target, mini, time.perf_counter() - begin)

    def _provenance(self) -> dict[str, Any]:
        """Return the provenance of sources, data and configuration, and which keys are hyperparameters, for the log."""
        return {
            **provenance(("common", self.benchmark.name)),
            "data_sha256": variant_and_digest(self.config.data.data_dir)[1] if self.dist.is_main else None,
            "config": self.resolved,
            "hyperparameters": [leaf.name for leaf in leaves(self.benchmark.config) if leaf.key.role.borrow],
        }

    def _seed(self, saved: Saved | None) -> int:
        """Return the seed of the run, the same on all ranks; drawn from the system's randomness if none is given."""
        seed = saved.state["seed"] if saved else self.config.train.seed
        return int(self.dist.broadcast_object(mllog.draw_seed() if seed is None else seed))

    def _facts(self, problem: Problem, seed: int) -> mllog.RunFacts:
        accelerators = self.all_ranks.local_size if self.dist.device.type != "cpu" else 0
        return mllog.RunFacts(
            seed=seed,
            number_of_ranks=self.all_ranks.world_size,
            number_of_nodes=self.all_ranks.nodes,
            accelerators_per_node=accelerators,
            train_samples=problem.train_samples,
            eval_samples=problem.eval_samples,
            number_of_parameters=sum(one.numel() for one in problem.model.parameters() if one.requires_grad),
            dataset_variant=problem.reference.variant,
        )

    def _stage(self, log: ResultLog, problem: Problem) -> Staged:
        log.start("staging_start")
        staged = problem.stage()
        log.end("staging_stop", **staged.facts())
        return staged

    def _fit(self, log: ResultLog, problem: Problem, seed: int) -> Fit:
        config, dist = self.config, self.dist
        target = problem.reference.target
        if config.train.target is not None:
            target = replace(target, value=config.train.target)
        batch_size = config.train.global_batch_size
        precision = Precision(config.precision, dist.device)
        evaluator = Evaluator(problem, precision)
        if config.train.eval_ranks:
            evaluator = RemoteEvaluator(problem, precision, dist, self.link)
        return Fit(
            problem=problem,
            config=config.train,
            target=target,
            optimizer=optim.build(config.optim, problem.model.parameters(), config.schedule.base_lr),
            precision=precision,
            evaluator=evaluator,
            rate=partial(config.schedule.rate, batch_size),
            dist=dist,
            log=log,
            checkpoints=self.checkpoints,
            progress=Progress(config.output_dir, target, config.train.epochs, quiet=not dist.is_main),
            constants={"seed": seed, "config": self.resolved},
        )

    def _conclude(self, outcome: Outcome, target: Target, mini: bool, seconds: float) -> int:
        """Print how the run ended and what to do next; return the exit code."""
        if outcome.stopped_by:
            return STOPPED
        log = self.config.output_dir / LOG_NAME
        how = "reached" if outcome.target_met else "NOT reached"
        epochs = len(outcome.history)
        self._say(f"target {target.range_text} {how} after {epochs} epochs, {duration(seconds)}; log: {log}")
        for line in self._next_steps(mini):
            self._say(as_called(line))
        return 0 if outcome.target_met else 1

    def _next_steps(self, mini: bool) -> Iterator[str]:
        """Yield the commands for the next steps with the run."""
        folder, name, data = self.config.output_dir, self.benchmark.name, self.config.data.data_dir
        run = shlex.quote(str(folder))
        # A checkpoint has only the last part of an absolute path.
        where = f" {shlex.quote(f'data.data_dir={data}')}" if shown_path(data) != str(data) else ""
        yield f"check it:    python -m compliance.check{' --allow-mini' if mini else ''} {run}/{LOG_NAME}"
        if self.checkpoints.files():
            yield f"evaluate it: python -m {name}.evaluate {run}{where}"
            yield f"export it:   python -m common.export {run} {run}/{name}.safetensors"
        system = shlex.quote(f"{'_'.join(self.config.submission.platform.split())}.json")
        fields = shlex.join(self._system_fields())
        yield f"pack it:     python -m submission.system -o {system} --set {fields}   (then fill in the other fields)"
        yield f"             python -m submission.assemble {run} -o submission --system {system}"

    def _system_fields(self) -> list[str]:
        """Return the fields of the system description that the log states, as FIELD=VALUE."""
        stated = self.config.submission
        fields = {
            "submitter": stated.org,
            "division": stated.division,
            "status": stated.status,
            "system_name": stated.platform,
            "number_of_nodes": self.all_ranks.nodes,
        }
        return [f"{name}={value}" for name, value in fields.items()]

    def _say(self, text: str) -> None:
        if self.dist.is_main:
            print(text, flush=True)


def _ranks(dist: Dist, evaluating: int) -> str:
    """Return a description of the ranks and their devices."""
    device = dist.device.type
    if device == "cpu":
        device += f" with {torch.get_num_threads()} thread(s)"
    if dist.world_size == 1:
        return f"one process on {device}"
    ranks = f"{dist.world_size} ranks" + (f" ({evaluating} of them evaluate)" if evaluating else "")
    return f"{ranks} on {dist.nodes} node(s), started by {dist.place.launcher}, each on {device}"


def check_seed(config: RunConfig, seed: int) -> None:
    """Raise ConfigError if a configuration names another seed than that of the run it continues or evaluates."""
    if config.train.seed not in (None, seed):
        raise ConfigError(
            f"train.seed is {config.train.seed}, but the run has {seed} and keeps it: leave train.seed out"
        )


def _check_unchanged(kind: type[RunConfig], before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise CheckpointError if a setting that a run must keep has changed since the checkpoint was written."""
    for leaf in leaves(kind):
        if not leaf.key.role.may_differ and leaf.of(before) != leaf.of(now):
            raise CheckpointError(
                f"{leaf.name} is {leaf.of(now)!r}, but {leaf.of(before)!r} in the checkpoint; a resumed run keeps its "
                "settings: restore it, or start a new run in another output_dir"
            )
