"""Start a training; and a job of several instances: networks with their own seeds, side by side and one by one.

M instances of S ranks each on T ranks: T / S parts take one instance after another until none is left, so that M * S
may be larger than T. Start-up is that of the job: all ranks meet, make the data if they are missing, and stage them
once, before the first run_start. From then on no collective spans two instances. An error inside an instance ends that
one; a killed process ends the job, and --resume takes the instances that have their result as they are.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from textwrap import shorten
from typing import Final

import msgspec
import torch

from common import mllog
from common.command import as_called
from common.config import ConfigError, Override, to_dict
from common.ending import (
    COMPLETED,
    EXIT_STATUS,
    FAILED,
    FINAL,
    STOPPED,
    TARGET_MET,
    TARGET_NOT_MET,
    TRAINED,
    Ending,
    read_ending,
)
from common.files import CHECKPOINTS, LOG_NAME, instance_folder, instance_folders
from common.measure.fom import NAME
from common.processes import keep_freed_memory
from common.provenance import shown_path
from common.ranks.connect import connect
from common.ranks.dist import Dist
from common.ranks.parts import PartError, Parts
from common.record import read_run_times, read_value
from common.reference import FULL, NO_TARGET
from common.settings.optim import LOG_NAMES
from common.settings.run import RunConfig
from common.stop import STOP, signal_name
from common.training.benchmark import Benchmark
from common.training.checkpoint import NoCheckpointError, list_checkpoints
from common.training.faults import check_network
from common.training.folder import OwnedFolder, check_kind, check_unchanged, has_result
from common.training.merit import count_minutes, merge_figures
from common.training.optim import find_optimizer
from common.training.resolve import check_sample_counts, resolve_config
from common.training.run import (
    TRAINING_ERRORS,
    Instance,
    Shared,
    Start,
    Training,
    evaluate_command,
    list_code,
    provide_data,
    ranks_text,
)
from common.training.tracking import check_installed

FILE_DELAY_S: Final = 60.0
"""A shared file system may remember for so long that a file is not there."""
REASON_LETTERS: Final = 70
"""Characters of an ending in the summary; the whole is in the instance's ended.json."""


# -- the start of any training -------------------------------------------------------------------------------


def configure_training(benchmark: Benchmark, name: str, overrides: Sequence[Override]) -> RunConfig:
    """Return the configuration of a name or file with overrides; ConfigError if no run can have it."""
    return resolve_config(benchmark.config, name, overrides, partial(check_network, benchmark))


def train(benchmark: Benchmark, config: RunConfig, start: Start) -> int:
    """Train on all ranks; return the exit status of `common.ending`. The caller listens to signals (`STOP`)."""
    STOP.exit_status = None
    check_installed(config.track)
    list_code(benchmark, config, start.callbacks)  # before anything is made
    if config.optim.name not in LOG_NAMES:
        find_optimizer(config.optim.name)
    if getattr(config.data, "pipeline", None) == "dali":  # before anything is made
        importlib.import_module("common.data.dali")
    STOP.choose_signals(config.stop.signals)
    with contextlib.ExitStack() as connected:
        with STOP.interrupting():
            dist = connected.enter_context(connect(config.dist, TRAINING_ERRORS))
        if dist.device.type == "cpu":
            keep_freed_memory(config.dist.sharing)
        config = resolve_node_ranks(config, dist)
        check_ranks(config, dist.world_size, start.resume)
        if config.instances.count > 1:
            status = InstancesJob(benchmark, config, dist, start).run()
        else:
            number = config.instances.first
            instance = None if number is None else Instance(number)
            status = Training(benchmark, config, dist, start, instance).run().exit_status
        STOP.exit_status = status
        return status


# -- what is asked for ---------------------------------------------------------------------------------------


def resolve_node_ranks(config: RunConfig, dist: Dist) -> RunConfig:
    """Return the configuration with a number for `instances.ranks: node`. A collective call."""
    if config.instances.ranks != "node":
        return config
    size = dist.world_size // dist.nodes
    if dist.find_first(True if (dist.local_size, dist.local_rank) != (size, dist.rank % size) else None):
        raise ConfigError(
            f"instances.ranks is node, but the {dist.world_size} ranks are not numbered node by node with equally many "
            f"on each of the {dist.nodes}; start them so, or set instances.ranks to a number"
        )
    return replace(config, instances=replace(config.instances, ranks=size))


def ranks_of_each(config: RunConfig, ranks: int) -> int:
    """Return S, the ranks of an instance; ConfigError unless the instances use all ranks of the job."""
    count, size = config.instances.count, config.instances.ranks
    if not isinstance(size, int):
        if ranks % count:
            raise ConfigError(
                f"instances.ranks is null, all ranks divided by instances.count, but {ranks} rank(s) do not divide "
                f"into {count}; set instances.ranks (1: {ranks} instance(s) at a time), or start a multiple of {count}"
            )
        return ranks // count
    if ranks % size:
        raise ConfigError(
            f"instances.ranks is {size}, which does not divide the {ranks} rank(s) of the job; expected "
            f"{', '.join(str(size) for size in range(1, ranks + 1) if ranks % size == 0)}, or null"
        )
    if count * size < ranks:
        raise ConfigError(
            f"instances.count is {count} and instances.ranks {size}, so that {ranks - count * size} of {ranks} ranks "
            f"are never used; start {count * size} ranks, or raise one of the two"
        )
    return size


def check_ranks(config: RunConfig, ranks: int, resume: str | None) -> None:
    """Raise ConfigError if instances are asked for that a job of this many ranks cannot train."""
    size, sharing = ranks_of_each(config, ranks), config.dist.sharing
    if size % sharing:
        raise ConfigError(
            f"dist.spatial is {config.dist.spatial_text}, so that {sharing} ranks share each sample, but an instance "
            f"has {size} rank(s); set instances.ranks to a multiple of {sharing}"
        )
    if resume and config.instances.count > 1:
        raise ConfigError(
            f"--resume {resume} names one run, but instances.count is {config.instances.count}; expected --resume "
            "without a path, for those in output_dir"
        )


def order_text(count: int, size: int, ranks: int) -> str:
    """Return how the instances follow each other on the ranks."""
    parts = ranks // size
    text = f"{count} instance{'' if count == 1 else 's'} of {size} rank(s) each, {min(parts, count)} at a time"
    left = count % parts
    return text + (f"; the last {left} of them leave {(parts - left) * size} rank(s) idle" if left else "")


def config_of(config: RunConfig, number: int, base: int) -> RunConfig:
    """Return the configuration that trains one of the instances alone. base: the seed of instance 0."""
    instances = replace(config.instances, count=1, ranks=None, first=number)
    return replace(config, instances=instances, train=replace(config.train, seed=base))


def job_ending(endings: Mapping[int, Ending | None]) -> Ending:
    """Return how a job ended by how its instances did; None: not started, because the job was stopped.

    Its epochs are those of all instances together.
    """
    hows = [ending.how if ending else STOPPED for ending in endings.values()]
    epochs = sum(ending.epochs for ending in endings.values() if ending)

    def count_text(*kinds: str) -> str:
        return f"{sum(how in kinds for how in hows)} of {len(hows)} instances"

    if STOPPED in hows:
        return Ending(STOPPED, f"{count_text(STOPPED)} to be continued", epochs)
    if FAILED in hows:
        return Ending(FAILED, f"{count_text(FAILED)} failed", epochs)
    if missed := [how for how in hows if how not in TRAINED]:
        return Ending(TARGET_NOT_MET, f"{count_text(*missed)} missed the target", epochs)
    return Ending(COMPLETED if COMPLETED in hows else TARGET_MET, epochs=epochs)


# -- what is there -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job has to do. base: the seed of instance 0. ended: how those ended that have their result."""

    base: int
    todo: tuple[int, ...]
    ended: dict[int, Ending]


def make_plan(benchmark: Benchmark, config: RunConfig, start: Start) -> Plan:
    """Return what is left to do in output_dir; only on rank 0.

    Raises LogError for a new job where there are logs, and for any job where there is a single run, NoCheckpointError
    for one to be resumed where there are no logs, ConfigError and CheckpointError for instances with other seeds or
    settings.
    """
    first, folder = config.instances.number, config.output_dir
    check_kind(folder, instances=True)
    numbers = range(first, first + config.instances.count)
    logs = {number: path / LOG_NAME for number, path in instance_folders(folder).items() if (path / LOG_NAME).exists()}
    mine = {number: log for number, log in logs.items() if number in numbers}
    if mine and not start.auto_resume and start.resume is None:
        raise mllog.LogError(
            f"{next(iter(mine.values()))}: a log already exists; continue the instances by --resume, or choose another "
            "output_dir"
        )
    if not mine and start.resume is not None:
        raise NoCheckpointError(f"{folder}: nothing to resume: no instance has a log; start without --resume")
    base = _find_base_seed(config, {number: (log, read_value(log, "seed")) for number, log in logs.items()})
    for number, log in mine.items():
        before = (read_value(log, "provenance") or {}).get("config")
        if isinstance(before, dict):
            now = json.loads(json.dumps(to_dict(config_of(config, number, base), shown_path)))
            check_unchanged(benchmark.config, before, now, str(log))
    endings = {number: read_ending(instance_folder(folder, number)) for number in numbers}
    ended = {number: ending for number, ending in endings.items() if ending and has_result(ending, config)}
    return Plan(base, tuple(number for number in numbers if number not in ended), ended)


def _find_base_seed(config: RunConfig, logged: Mapping[int, tuple[object, object]]) -> int:
    """Return the seed of instance 0: as configured, else as in the logs, else drawn; ConfigError if they differ."""
    seeds = [(log, seed, seed - number) for number, (log, seed) in logged.items() if isinstance(seed, int)]
    base = config.train.seed
    if base is None:
        base = seeds[0][2] if seeds else mllog.draw_seed()
    for log, seed, log_base in seeds:
        if log_base != base:
            source = "train.seed is" if config.train.seed is not None else f"by {seeds[0][0]} it is"
            raise ConfigError(
                f"{log} has seed {seed}, so that instance 0 has {log_base}, but {source} {base}: two instances could "
                "have one seed; restore train.seed, or choose another output_dir"
            )
    return base


# -- the job -------------------------------------------------------------------------------------------------


class InstancesJob:
    """A job of several instances on one rank."""

    def __init__(self, benchmark: Benchmark, config: RunConfig, dist: Dist, start: Start) -> None:
        self.benchmark, self.config, self.dist, self.start_options = benchmark, config, dist, start
        self.size = ranks_of_each(config, dist.world_size)
        self.owned = OwnedFolder(config.output_dir, dist)
        dist.check_equal(to_dict(config, shown_path), "the configuration")

    def run(self) -> int:
        """Train the instances that have no result yet; record how the job ended, and return the exit status."""
        main = self.dist.is_main
        with self.owned.failure_recorded(), contextlib.ExitStack() as after_the_job:
            ended = self.owned.take_over(self.start_options.wait)
            with STOP.interrupting():
                own = asdict(make_plan(self.benchmark, self.config, self.start_options)) if main else None
                plan = msgspec.convert(self.dist.broadcast_json(own), Plan, strict=False)
                order = f"all {self.config.instances.count} instances have their result"
                if plan.todo:
                    order = order_text(len(plan.todo), self.size, self.dist.world_size)
                    order += f"; already finished: {len(plan.ended)}" if plan.ended else ""
                self._print_line(f"{self.benchmark.name}: {ranks_text(self.dist, 0)}; {order}")
                if plan.todo and main:
                    mllog.set_aside(self.config.output_dir / NAME)
                if plan.todo and self.start_options.auto_resume and not (ended and ended.final):
                    self.owned.forget_ending()
                shared = self._stage_data(plan, after_the_job) if plan.todo else None
            if shared is None:
                return self._finish_job(plan, plan.ended)
            parts = Parts(self.dist, self.size, TRAINING_ERRORS)
            self._train_instances(parts, plan, shared)
            parts.meet_ranks("trained")
            if main:
                endings = plan.ended | {number: self._read_ending(parts, number) for number in plan.todo}
                status = self._finish_job(plan, endings)
                parts.leave_text("status", str(status))
            parts.meet_ranks("judged")
            if not main:
                statuses = {str(status): status for status in EXIT_STATUS.values()}
                status = statuses.get(parts.read_text("status") or "", 1)
            return status

    def _read_ending(self, parts: Parts, number: int) -> Ending | None:
        """Return how an instance of this job ended; None: not started.

        Its folder says so: what is in the store of the ranks only tells for how long it is worth looking there, on a
        file system that shows late what another node wrote, and that an instance failed before it changed anything.
        """
        word, ending = parts.read_text(f"ended/{number}"), None
        for _ in STOP.poll(FILE_DELAY_S if word in FINAL else 0):
            ending = read_ending(instance_folder(self.config.output_dir, number))
            if ending and has_result(ending, self.config):
                return ending
        if word == FAILED:
            return ending if ending and ending.how == FAILED else Ending(FAILED, "see the output of its ranks")
        return None if ending and ending.final else ending

    def _stage_data(self, plan: Plan, after_the_job: contextlib.ExitStack) -> Shared:
        """Make and stage the data, for all instances; they are removed after the job. A collective call."""
        # Staged are all samples, also if each instance draws its own.
        config = replace(self.config, instances=replace(self.config.instances, count=1, bagging="none"))
        config, copied = provide_data(self.benchmark, config, self.dist)
        if copied:
            after_the_job.callback(copied.staged.close)
        mllog.clear_cache(config.drop_page_cache is True and self.dist.local_rank == 0)
        problem = self.benchmark.build_problem(config, self.dist, plan.base)
        check_sample_counts(config, problem.train_samples, problem.eval_samples)
        self._print_line(problem.describe())
        self.owned.forget_ending()
        if copied:
            return copied
        begin_ms = mllog.elapsed_ms()
        staged = problem.stage()
        after_the_job.callback(staged.close)
        return Shared(staged, staged.log_facts(), begin_ms, mllog.elapsed_ms())

    def _train_instances(self, parts: Parts, plan: Plan, shared: Shared) -> None:
        """Train one instance after another on this part's ranks, until none is left or the job is asked to stop."""
        start = replace(self.start_options, resume=None, auto_resume=True)
        while (index := parts.take_piece(len(plan.todo))) is not None:
            # One log states the bytes that the job has staged, so that their sum over the logs is right.
            facts = shared.facts | ({"staging_bytes_read": 0, "staging_bytes_written": 0} if index > 0 else {})
            staged = replace(shared, facts=facts)
            number = plan.todo[index]
            ending = self._train_instance(parts, config_of(self.config, number, plan.base), start, number, staged)
            if parts.is_main:
                parts.leave_text(f"ended/{number}", ending.how)
            free_memory(self.dist.device)
            now_ms = mllog.elapsed_ms()  # the next instance finds the data staged
            shared = replace(shared, facts=shared.facts | {"staging_seconds": 0.0}, begin_ms=now_ms, end_ms=now_ms)

    def _train_instance(self, parts: Parts, config: RunConfig, start: Start, number: int, staged: Shared) -> Ending:
        """Train an instance; nothing of it is left in memory when the ranks of the next one meet."""
        try:
            with parts.work_together(f"instance {number}") as dist:
                return Training(self.benchmark, config, dist, start, Instance(number, staged)).run()
        except PartError as error:
            return error.ending

    def _finish_job(self, plan: Plan, endings: Mapping[int, Ending | None]) -> int:
        """Record how the job ended, and print the summary; return the exit status."""
        ending = job_ending(endings)
        self.owned.result = ending if ending.final else None
        self.owned.record_ending(ending)
        if self.dist.is_main:
            for line in self._format_summary(plan, endings):
                self._print_line(line)
        return ending.exit_status

    def _format_summary(self, plan: Plan, endings: Mapping[int, Ending | None]) -> Iterator[str]:
        """Yield the table of the instances, what they amount to, and the next step."""
        folder = self.config.output_dir
        yield "instance        seed  epochs  minutes  ended"
        clocks = {number: read_run_times(instance_folder(folder, number) / LOG_NAME) for number in endings}
        for number, ending in sorted(endings.items()):
            clock = clocks[number]
            minutes = f"{(clock[1] - clock[0]) / 60_000:.2f}" if clock else "-"
            epochs = ending.epochs if ending and ending.epochs else "-"
            how = ending.text if ending else f"not started ({signal_name(STOP.number) or 'the job was stopped'})"
            how = shorten(how, REASON_LETTERS, placeholder=" …")
            yield f"{number:8}  {plan.base + number:10}  {epochs:>6}  {minutes:>7}  {how}"
        ended = {number: ending for number, ending in endings.items() if ending and ending.how in TRAINED}
        models = {instance_folder(folder, number): clock for number in ended if (clock := clocks[number])}
        end = "have trained to their end" if self.config.train.target == NO_TARGET else "met the target"
        yield throughput_text(list(models.values()), len(endings), end)
        yield from map(as_called, self._next_steps(endings))
        figure = merge_figures(models, self.dist.world_size // self.size, self.dist.nodes)
        if figure is not None:
            try:
                figure.write_file(folder / NAME)
            except OSError as error:  # such as a full disk, which changes nothing of the results
                yield f"{folder / NAME}: {error}; going on without it"
            yield figure.line

    def _next_steps(self, endings: Mapping[int, Ending | None]) -> Iterator[str]:
        """Yield what to do next with the instances."""
        folder = self.config.output_dir
        if not all(ending and ending.final for ending in endings.values()):
            yield "continue those without a result: the same command with --resume, or with --auto-resume"
        if self.config.train.target != NO_TARGET:
            mini = " --allow-mini" if self.config.variant != FULL else ""
            yield f"check them:    python -m compliance.check{mini} {shlex.quote(str(folder))}/instance_*/{LOG_NAME}"
        folders = list(instance_folders(folder).values())
        runs = [path for path in folders if list_checkpoints(path / CHECKPOINTS)]
        if runs:
            paths = [folder] if runs == folders else runs
            yield f"evaluate them: {evaluate_command(self.benchmark.name, self.config, paths)}"

    def _print_line(self, text: str) -> None:
        if self.dist.is_main:
            print(text, flush=True)


def throughput_text(clocks: Sequence[tuple[int, int]], count: int, end: str) -> str:
    """Return how many models per minute were trained.

    clocks: start and stop, in ms, of the instances that did what `end` says.
    """
    text = f"{len(clocks)} of {count} instances {end}"
    if not clocks:
        return text
    minutes = count_minutes(clocks)
    return f"{text}, in {minutes:.2f} min from the first start to the last stop: {len(clocks) / minutes:.3g} models/min"


def free_memory(device: torch.device) -> None:
    """Free what a training that has ended used on this rank, also if it ended by an error."""
    gc.collect()
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()
