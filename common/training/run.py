"""One training on its ranks: from its seed, log and checkpoints to the record of how it ended.

`common.training.benchmark` defines what a benchmark gives; the order of events is here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from common import mllog
from common.command import as_called, counted
from common.config import ConfigError, Override, list_leaves, to_dict
from common.console import format_duration
from common.data.manifest import read_variant_and_digest
from common.ending import COMPLETED, STOPPED_EARLY, TARGET_MET, Ending
from common.errors import LaunchError
from common.files import CHECKPOINTS, LOG_NAME, POWER, instance_folder
from common.measure import fom
from common.measure.devices import read_limits, read_model_name
from common.mllog import ResultLog, RunRecord
from common.own_code import OWN_CODE, Code, describe_codes, naming_code
from common.precision import Precision
from common.provenance import collect_provenance, shown_path
from common.ranks.dist import Dist
from common.record import read_value
from common.reference import FULL, MINI, MINI_2, NO_TARGET, OWN
from common.settings.run import RunConfig
from common.slurm import count_tasks_without_srun
from common.staging.stage import Staged, StagingError, stage_url
from common.stop import STOP
from common.training import optim, weights
from common.training.benchmark import Benchmark, Problem
from common.training.callbacks import (
    Callback,
    Callbacks,
    CallbackSource,
    Progress,
    RunStart,
    acts_on_training,
    list_acting,
)
from common.training.checkpoint import CheckpointError, Checkpoints, Saved
from common.training.evaluators import Evaluator, RemoteEvaluator, serve_evaluations
from common.training.faults import Sanity, check_some_samples, explain_out_of_memory, warn_of_repeated_files
from common.training.folder import OwnedFolder, check_kind, check_seed, check_unchanged, has_result, seed_of
from common.training.loop import Loop
from common.training.merit import FLOP_PER_SAMPLE, compute_figure, count_parameters, recording_power
from common.training.profile import FOLDER, Profiler
from common.training.resolve import OPEN, check_length, check_sample_counts, find_other_counts, keys_of
from common.training.step import warm_up, warms_up
from common.training.tracking import make_callbacks
from common.training.weights import Weights, check_fit

TRAINING_ERRORS: Final = (ValueError, OSError, FloatingPointError, LaunchError, StagingError)
"""Errors that the user can fix; any other is a bug and shows a traceback."""
INIT_WEIGHTS: Final = "init_weights_sha256"
"""The key of a log with the digest of the weights that `train.init_from` names; see `Weights.digest`."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a training starts.

    resume: the run or checkpoint from which it continues, "" for the run in output_dir, None: it is a new run.
    auto_resume: begin the run in output_dir, or continue it, or leave it if it has ended. wait: until output_dir has
    no other owner. callbacks: of your own; an object of each class gets the record of each step and epoch.
    overrides: of the configuration, as given.
    """

    resume: str | None = None
    auto_resume: bool = False
    wait: bool = False
    callbacks: tuple[CallbackSource, ...] = ()
    overrides: tuple[Override, ...] = ()


@dataclass(frozen=True, slots=True)
class Shared:
    """What was staged before a training was set up, by the job of several instances or from `staging.source`.

    The job of instances has made the data and dropped the page caches, too.
    facts: about the staging, for the log of an instance. begin_ms, end_ms: when it was, by `mllog.elapsed_ms`; for an
    instance that began later, both are when it found the data staged.
    """

    staged: Staged
    facts: dict[str, Any]
    begin_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Instance:
    """Which of several trainings this is. shared: what its job did for all of them; None if it is trained alone."""

    number: int
    shared: Shared | None = None


def provide_data(benchmark: Benchmark, config: RunConfig, ranks: Dist) -> tuple[RunConfig, Shared | None]:
    """Make the data of a mini problem, or copy `staging.source` to the nodes, before anything reads data.

    Return the configuration that reads them, and the copy. A collective call.
    """
    copied = None
    if config.staging.source:
        begin_ms = mllog.elapsed_ms()
        staged = stage_url(config.staging, ranks)
        copied, config = Shared(staged, staged.log_facts(), begin_ms, mllog.elapsed_ms()), read_copy(config, staged)
    else:
        benchmark.provide_mini(config, ranks)
    ranks.barrier()
    return config, copied


def read_copy(config: RunConfig, staged: Staged) -> RunConfig:
    """Return the configuration that reads the copy of `staging.source` on this node; others stay as they are."""
    return replace(config, data=replace(config.data, data_dir=staged.root)) if config.staging.source else config


class Training(Loop):
    """A training on one rank: `run` sets it up, fits and records how that ended. instance: which of several it is."""

    def __init__(
        self, benchmark: Benchmark, config: RunConfig, all_ranks: Dist, start: Start, instance: Instance | None = None
    ) -> None:
        self.benchmark, self.config, self.all_ranks, self.start = benchmark, config, all_ranks, start
        self.instance, self.shared = instance, instance.shared if instance else None
        self.folder = instance_folder(config.output_dir, instance.number) if instance else config.output_dir
        self.label = f"instance {instance.number}: " if self.shared and instance else ""
        self.copied = self.shared
        self.resolved = to_dict(config, shown_path)
        if self.shared:
            self.config = read_copy(config, self.shared.staged)
        all_ranks.check_equal(self.resolved, "the configuration")
        self.own_code = list_code(benchmark, config, start.callbacks)
        plain = [asdict(code) for code in self.own_code]
        self.recorded_code: dict[str, Any] = {OWN_CODE: plain} if plain else {}
        all_ranks.check_equal(plain, "the code that computes")
        evaluating = config.train.eval_ranks
        try:
            self.dist, self.link = all_ranks.split(evaluating)
        except ValueError as error:
            raise ValueError(f"train.eval_ranks: {error}") from None
        self.evaluates = all_ranks.rank >= all_ranks.world_size - evaluating
        mixed = all_ranks.find_first(True if self.dist.local_size != all_ranks.local_size else None)
        if config.staging.mode != "none" and not config.staging.source and mixed:
            raise ValueError(
                f"train.eval_ranks is {evaluating}, so that a node has ranks of both kinds, and both would stage data "
                "there; choose a multiple of the ranks per node, or staging.mode=none"
            )
        self.owned = OwnedFolder(self.folder, all_ranks)
        folder, guard = self.folder / CHECKPOINTS, self.owned.lease.check
        self.checkpoints = Checkpoints(folder, benchmark.name, config.checkpoint, self.dist, guard)

    def run(self) -> Ending:
        """Train as the owner of the folder, and record how the run ended; or evaluate for the ranks that train."""
        if self.evaluates:
            return self._serve_evaluations()
        with self.owned.failure_recorded(), naming_code(self.own_code, ("common", self.benchmark.name)):
            if ended := self._take_folder_over():
                return ended
            with contextlib.ExitStack() as after_the_run:
                with STOP.interrupting():
                    saved = self._load_saved()
                    initial = self._initial_weights() if saved is None else None
                    if self.shared is None:
                        self._print_line(
                            f"{self.benchmark.name}: {ranks_text(self.all_ranks, self.config.train.eval_ranks)}"
                        )
                    self._provide_data(after_the_run)
                with self._opened_log(saved) as log, recording_power(self.config.power, self.folder, self.all_ranks):
                    with self.owned.result_kept(), contextlib.ExitStack() as after_the_steps:
                        self.set_up(log, saved, initial, after_the_steps)
                        with self._logged_run(after_the_steps) as record:
                            begin = time.perf_counter()
                            ending = self.fit()
                            record.end(ending)
                        self.owned.result = ending if ending.final else None
                    if ending.final:
                        with self.owned.result_kept():
                            self._print_result(ending, time.perf_counter() - begin)
                if self.dist.is_main and ending.final:
                    with self.owned.result_kept():
                        self._write_figure()
            self.owned.record_ending(ending)
            return ending

    def _serve_evaluations(self) -> Ending:
        assert self.link is not None
        ended = self.owned.take_over(self.start.wait)
        if ended and self._is_over(ended):
            return Ending(COMPLETED)
        with contextlib.ExitStack() as after_the_run, explain_out_of_memory(self.config, self.dist):
            self._provide_data(after_the_run)
            problem = self.benchmark.build_problem(self.config, self.dist, 0)  # any seed will do: the weights are sent
            precision = Precision(self.config.precision, self.dist.device)
            with contextlib.closing(problem):
                if warms_up(self.config.train, problem, self.dist.device):
                    warm_up(problem, precision, self.dist)
                recording = recording_power(self.config.power, self.folder, self.all_ranks)
                staged = contextlib.nullcontext() if self.copied else contextlib.closing(problem.stage())
                with recording, staged:
                    serve_evaluations(problem, precision, self.dist, self.link)
        return Ending(COMPLETED)

    def _take_folder_over(self) -> Ending | None:
        """Become the owner of the folder; return how the run in it ended if nothing is left to do."""
        ended = self.owned.take_over(self.start.wait)
        if self.dist.is_main:
            check_kind(self.config.output_dir, self.instance is not None)
        if ended and self._is_over(ended):
            self._print_line(f"{self.folder}: this run has ended: {ended.text}")
            self.owned.result = ended
            self.owned.record_ending(ended)  # it may have died before it could
            return ended
        if self.start.auto_resume and not (ended and ended.final):
            self.owned.forget_ending()
        return None

    def _is_over(self, ended: Ending) -> bool:
        """Tell whether nothing is left to do. A collective call; CheckpointError for a setting that is another one."""
        if not has_result(ended, self.config):
            return False
        if self.start.auto_resume or self.start.resume != "":  # with the name of a checkpoint, it goes on from there
            return self.start.auto_resume
        logged = read_value(self.folder / LOG_NAME, "provenance") if self.dist.is_main else None
        before = self.dist.broadcast_json(logged.get("config") if isinstance(logged, dict) else None)
        if not isinstance(before, dict):
            return False
        now = json.loads(json.dumps(self.resolved))  # with lists in place of tuples
        check_unchanged(self.benchmark.config, before, now, "its log")
        (target,) = (leaf for leaf in list_leaves(self.benchmark.config) if leaf.name == "train.target")
        return bool(target.find_value(before) == target.find_value(now))  # another one may be left to reach

    def _provide_data(self, after_the_run: contextlib.ExitStack) -> None:
        """Make or copy the data, unless the job of instances has; a copy is removed after the run. Collective."""
        if self.shared is None:
            self.config, self.copied = provide_data(self.benchmark, self.config, self.all_ranks)
            if self.copied:
                after_the_run.callback(self.owned.result_kept()(self.copied.staged.close))

    @contextlib.contextmanager
    def _opened_log(self, saved: Saved | None) -> Iterator[ResultLog]:
        """Open the log, a new one or that of the checkpoint; what a run before left beside it is set aside."""
        keep_bytes = saved.log_bytes if saved else None
        log = mllog.open_log(self.folder / LOG_NAME, self.dist.is_main, keep_bytes, self.owned.lease.check)
        try:
            if self.dist.is_main:
                mllog.set_aside(self.folder / fom.NAME)
                if saved is None:
                    mllog.set_aside(self.folder / POWER)
            yield log
        finally:
            with self.owned.result_kept():
                log.close()

    def _write_figure(self) -> None:
        """Write the figure of merit, and print its line unless there are other instances.

        A failure changes nothing about the result of the run, which is in its log.
        """
        path = self.folder / fom.NAME
        try:
            figure = compute_figure(
                self.benchmark.name, self, self.all_ranks, self.folder, describe_codes(self.own_code)
            )
            if figure is not None:
                figure.write_file(path)
                if self.shared is None:
                    print(figure.line, flush=True)
        except (OSError, ValueError) as error:  # such as a full disk
            print(f"{path}: {error}; going on without it", file=sys.stderr, flush=True)

    def _load_saved(self) -> Saved | None:
        """Return the checkpoint that the run continues; None if it begins."""
        resume = self.start.resume
        if self.start.auto_resume:
            saved = self.checkpoints.load_if_any(self._check_log_of)
        elif resume is not None:
            saved = self.checkpoints.load(Path(resume) if resume else None, self._check_log_of)
        else:
            return None
        if saved is None:
            # Log and checkpoints, damaged ones among them, stay apart from the new ones.
            paths = (self.folder / LOG_NAME, self.checkpoints.folder) if self.dist.is_main else ()
            if names := " and ".join(path.name for path in paths if mllog.set_aside(path)):
                self._print_line(
                    f"{self.folder}: no usable checkpoint; starting over, with {names} of the first start set aside"
                )
            return None
        check_unchanged(self.benchmark.config, saved.state["config"], self.resolved, "the checkpoint")
        if (earlier := saved.own_code) != self.own_code:
            before, now = (describe_codes(codes) or "no code of your own" for codes in (earlier, self.own_code))
            raise CheckpointError(
                f"the run was trained with {before}, and would go on with {now}; a resumed run keeps its code: restore "
                "it, or start a new run in another output_dir"
            )
        check_seed(self.config, saved.state["seed"])
        return saved

    def _check_log_of(self, saved: Saved) -> None:
        mllog.read_beginning(self.folder / LOG_NAME, saved.log_bytes, saved.state.get("log_crc32"))

    def _initial_weights(self) -> Weights | None:
        """Return the initial weights of a new run, only on rank 0; None: random ones."""
        path = self.config.train.init_from
        if path is None or not self.dist.is_main:
            return None
        initial = weights.read_weights(path, self.benchmark.name)
        with torch.device("meta"):
            check_fit(self.benchmark.build_network(self.config), initial.tensors, initial.path)
        return initial

    @contextlib.contextmanager
    def _logged_run(self, after_the_steps: contextlib.ExitStack) -> Iterator[RunRecord]:
        """Stage the data, and log the run from its start to its end."""
        self.owned.forget_ending()
        if self.copied:
            self.problem.read_from(self.copied.staged)
        stages, staging_timed = self.copied is None, self.config.submission.staging_timed
        if stages and not staging_timed:
            self._stage_data(after_the_steps)
        record = RunRecord(self.log)
        with (
            self._callbacks_notified(record),
            STOP.recording(partial(self._stop_log, record)),
            record,
            self.all_ranks.first_failure(),
            explain_out_of_memory(self.config, self.dist),
        ):
            if stages and staging_timed:
                self._stage_data(after_the_steps)
            check_some_samples(self.problem)
            yield record

    def _stop_log(self, record: RunRecord, ending: Ending) -> Ending:
        """Write the end of the log for a process that is ended at once."""
        if not record.ending.final:
            record.end(ending)
        record.stop()
        return record.ending

    @contextlib.contextmanager
    def _callbacks_notified(self, record: RunRecord) -> Iterator[None]:
        """Report to the callbacks that the run begins, and how it ended: both while no clock runs."""
        position = self.state.position
        run_start = RunStart(
            benchmark=self.benchmark.name,
            folder=self.folder,
            config=self.resolved,
            seed=self.constants["seed"],
            target=self.target,
            position=position,
            global_step=self.steps_before(position.epoch) + position.step,
            history=tuple(self.state.evaluated),
        )
        with STOP.interrupting():
            self.callbacks.notify_members(lambda callback: callback.begin(run_start))
        try:
            yield
        finally:
            self.callbacks.notify_members(lambda callback: callback.end(record.ending))

    def set_up(
        self, log: ResultLog, saved: Saved | None, initial: Weights | None, after_the_run: contextlib.ExitStack
    ) -> None:
        """Build the parts of the training, and write the start of its log. initial: see `_initial_weights`."""
        with STOP.interrupting(), explain_out_of_memory(self.config, self.dist):
            if saved is None:
                self._begin_log(log)
            elif self.shared is None:
                self._log_copying(log)
            seed = self._choose_seed(saved)
            torch.manual_seed(seed)
            problem = self.benchmark.build_problem(self.config, self.dist, seed)
            after_the_run.callback(problem.close)
            self._check_problem(problem)
            self._build_parts(log, problem, seed)
            after_the_run.callback(self.step.close)
            if saved:
                self.restore(saved)
            else:
                initial_facts = self._load_weights(initial)
            self.attach_callbacks(saved)
            problem.prepare_training()
            self.step.wrap_network()
            if not saved:
                warmed = self._warm_up()  # else the clock runs: the first steps of the run do it
                mllog.log_facts(log, self._state_facts(seed, initial_facts))
                log.end("init_stop", **warmed)

    def _choose_seed(self, saved: Saved | None) -> int:
        """Return the seed: the checkpoint's, the configuration's, or one drawn from the system's randomness."""
        seed = saved.state["seed"] if saved else seed_of(self.config)
        if seed is None:
            seed = mllog.draw_seed() + self.config.instances.number
        return int(self.dist.broadcast_json(seed))

    def _check_problem(self, problem: Problem) -> None:
        """Describe the problem; ConfigError where the configuration does not fit its data, a warning where it may."""
        check_sample_counts(self.config, problem.train_samples, problem.eval_samples)
        check_length(self.config, problem.steps(0), keys_of(self.start.overrides))
        size, samples = self.config.train.global_batch_size, problem.train_samples
        if size > samples:
            self._print_line(
                f"warning: train.global_batch_size is {size:,}, but there are {samples:,} training samples, so that an "
                f"epoch is one step; set it below {samples:,}, or train with more data (log, figure of merit and "
                f"scaling of the rate say {size:,})"
            )
        if self.shared is None:
            self._print_line(problem.describe())
        if self.dist.is_main and not (self.instance and self.instance.number):
            self._warn_of_other_data(problem)
            variant, _ = read_variant_and_digest(self.config.data.data_dir)
            if self.config.variant == FULL != variant:
                self._print_line(
                    f"warning: {self.config.data.data_dir} has {variant} data by its manifest, but the log will say "
                    f"{FULL}; expected variant={OWN} and a train.target"
                )
            warn_of_repeated_files(problem)

    def _warn_of_other_data(self, problem: Problem) -> None:
        """Print a warning if the data of a mini problem are not all of it; each instance may draw its own samples."""
        others = find_other_counts(self.config, problem.reference, problem.train_samples, problem.eval_samples)
        texts = [f"{samples:,} {name} instead of {whole}" for name, samples, whole in others]
        if texts and self.config.variant in (MINI, MINI_2) and not self.config.instances.bags:
            self._print_line(
                f"warning: {self.config.data.data_dir} is not the {self.config.variant} problem: {', '.join(texts)}; "
                "the checker will refuse the log (SET05). Make all of it in a new folder, "
                f"{as_called(f'`python -m {problem.reference.name}.synthesize DIR`')}, and set data.data_dir=DIR; or "
                f"state variant={OWN} and a train.target"
            )

    def _state_facts(self, seed: int, initial_facts: dict[str, Any]) -> dict[str, Any]:
        """Return what each log states of the run and of its settings."""
        problem = self.problem
        sizes = {"sample_means": dict(problem.sample_means)} if problem.sample_means else {}
        # Ranks that share samples explain units beyond the batch.
        shared = {} if self.dist.sharing.world_size == 1 else {"spatial_extents": list(self.config.dist.extents)}
        return {
            "seed": seed,
            "number_of_ranks": self.all_ranks.world_size,
            "number_of_nodes": self.all_ranks.nodes,
            # 0 on a system without accelerators.
            "accelerators_per_node": self.all_ranks.local_size if self.dist.device.type != "cpu" else 0,
            "train_samples": problem.train_samples,
            "eval_samples": problem.eval_samples,
            "number_of_parameters": count_parameters(problem.model),  # those that are trained
            "dataset_variant": problem.reference.variant,
            **problem.settings,
            **sizes,
            **self._count_flops(),
            **initial_facts,
            **shared,
            "precision": self.precision.name,
        }

    def _count_flops(self) -> dict[str, Any]:
        """Return what the log states of the operations for a sample; {} where they cannot be counted."""
        if not self.dist.is_main:
            return {}
        try:
            flops = self.problem.count_flops()
        except (RuntimeError, ValueError, OSError) as error:  # such as an operation without shapes, or a bad sample
            self._print_line(f"the log will not state {FLOP_PER_SAMPLE}: {str(error).partition(chr(10))[0]}")
            return {}
        return {FLOP_PER_SAMPLE: {"training": flops.training, "evaluation": flops.evaluation}} if flops else {}

    def _warm_up(self) -> dict[str, float]:
        """Warm the training up, if it is to be; return what the log states of that."""
        if not warms_up(self.settings, self.problem, self.dist.device):
            return {}
        seconds = warm_up(self.problem, self.precision, self.dist, self.step, evaluates=not self.settings.eval_ranks)
        if self.shared is None:
            self._print_line(
                f"warm-up: {format_duration(seconds)} for the usual shapes of batches, before the run (train.warm_up)"
            )
        return {"warm_up_s": round(seconds, 3)}

    def _load_weights(self, initial: Weights | None) -> dict[str, Any]:
        """Give all ranks the initial weights, if there are any; return what the log states of them."""
        if self.config.train.init_from is None:
            return {}
        model = self.problem.model
        tensors = model.state_dict()
        for name, tensor in tensors.items():
            if initial is not None:
                tensor.copy_(initial.tensors[name])
            self.dist.broadcast(tensor)
        model.load_state_dict(tensors)
        if initial is None:
            return {}
        epochs = "" if initial.epochs is None else f", after {counted(initial.epochs, 'epoch')}"
        self._print_line(f"starting from the weights in {initial.path}{epochs}, which is not an MLPerf result")
        return {INIT_WEIGHTS: initial.digest}

    def _begin_log(self, log: ResultLog) -> None:
        """Write the start of the log: what the job did before, and what is known before the data are read."""
        drop = self.config.drop_page_cache
        if self.shared is None:
            mllog.clear_cache(drop is True and self.dist.local_rank == 0)
        self._log_copying(log)
        number = {"instance": self.instance.number} if self.instance else {}
        mllog.log_beginning(
            log,
            self.benchmark.name,
            self.config.submission,
            drop is not False,
            self._collect_sources() if self.dist.is_main else {},
            **number,
        )

    def _log_copying(self, log: ResultLog) -> None:
        """Log what was staged before the training was set up."""
        if self.copied and not self.config.submission.staging_timed:
            log.interval("staging", self.copied.begin_ms, self.copied.end_ms, **self.copied.facts)

    def _collect_sources(self) -> dict[str, Any]:
        """Return where the result comes from: only on rank 0, which writes the log, as it reads the sources and git."""
        facts = collect_provenance(("common", self.benchmark.name)) | self.recorded_code
        if self.dist.device.type != "cpu":
            facts["host"]["accelerator"] = read_model_name(self.dist.device)
        facts["host"]["devices"] = [asdict(limits) for limits in read_limits(self.dist.device, self.dist.local_size)]
        return {
            **facts,
            "data_sha256": read_variant_and_digest(self.config.data.data_dir)[1],
            "config": self.resolved,
            "hyperparameters": [leaf.name for leaf in list_leaves(self.benchmark.config) if leaf.key.role.borrow],
        }

    def _stage_data(self, after_the_run: contextlib.ExitStack) -> None:
        """Stage the data; they are removed after the run."""
        self.log.start("staging_start")
        with STOP.interrupting():
            staged = self.problem.stage()
            after_the_run.callback(staged.close)
        self.log.end("staging_stop", **staged.log_facts())

    def _build_parts(self, log: ResultLog, problem: Problem, seed: int) -> None:
        config, dist = self.config, self.dist
        target = problem.reference.target.choose(config.train.target)
        precision = Precision(config.precision, dist.device)
        evaluator = Evaluator(problem, precision)
        if config.train.eval_ranks:
            evaluator = RemoteEvaluator(problem, precision, dist, self.link)
        constants = {"seed": seed, "config": self.resolved, **self.recorded_code}
        callbacks: list[Callback] = []
        own = [
            source() if isinstance(source, type) else source
            for source in self.start.callbacks
            if dist.is_main or acts_on_training(source)
        ]
        if dist.is_main:  # which alone writes checkpoints and gives records to callbacks
            constants["interface"] = self.benchmark.predictor.describe(config)
            callbacks += [*make_callbacks(config.track, self.owned.lease.check), *own]
        progress = Progress(target, quiet=not dist.is_main, label=self.label)
        super().__init__(
            problem=problem,
            settings=config.train,
            target=target,
            optimizer=optim.build(config.optim, problem.model.parameters(), config.schedule.base_lr),
            precision=precision,
            evaluator=evaluator,
            rate=partial(config.schedule.rate, config.train.global_batch_size),
            dist=dist,
            log=log,
            checkpoints=self.checkpoints,
            progress=progress,
            sanity=Sanity(replace(problem.reference, target=target), progress.print_line, problem.steps(0)),
            callbacks=Callbacks(
                callbacks,
                config.track.every_steps,
                acting=filter(acts_on_training, own),
                may_stop=bool(self.start.callbacks),
            ),
            profiler=Profiler(config.profile, self.folder / FOLDER, dist, progress.print_line),
            constants=constants,
            max_steps=self._find_max_steps(problem),
        )

    def _find_max_steps(self, problem: Problem) -> int | None:
        """Return how many steps `train.steps` and `train.flop` allow; None: any number. A collective call."""
        train = self.config.train
        if train.flop is None:
            return train.steps
        steps = 0
        if self.dist.is_main:
            flops = problem.count_flops()
            if flops is None:
                raise ConfigError("train.flop is set, but the benchmark counts no operations: set train.steps instead")
            steps = int(train.flop // (flops.training * min(train.global_batch_size, problem.train_samples)))
        steps = max(1, int(self.dist.broadcast_json(steps)))
        steps = min(steps, train.steps or steps)
        if self.shared is None:
            self._print_line(f"train.flop: at most {counted(steps, 'step')}")
        return steps

    def _print_result(self, ending: Ending, seconds: float) -> None:
        """Print how the run ended and what to do next."""
        log, reference = self.folder / LOG_NAME, self.problem.reference
        result = f"target {self.target.range_text} {'reached' if ending.how == TARGET_MET else 'NOT reached'}"
        if ending.how == STOPPED_EARLY:
            result = ending.text
        if ending.how == COMPLETED:
            result = "completed without a target (train.target: none), which is no MLPerf result,"
        self._print_line(f"{result} after {counted(ending.epochs, 'epoch')}, {format_duration(seconds)}; log: {log}")
        if reference.baseline is not None:
            self._print_line(f"a classical method reaches {reference.baseline:g}: see {self.benchmark.name}/README.md")
        if self.own_code:
            self._print_line(f"{describe_codes(self.own_code)}: this run is not the reference")
        for line in self._next_steps(reference.variant) if self.shared is None else ():
            self._print_line(as_called(line))

    def _next_steps(self, variant: str) -> Iterator[str]:
        """Yield the commands for the next steps with the run; one on OWN data or without target is no result."""
        result = variant != OWN and self.config.train.target != NO_TARGET
        name, run = self.benchmark.name, shlex.quote(str(self.folder))
        if result:
            option = "" if variant == FULL else " --allow-mini"
            yield f"check it:    python -m compliance.check{option} {run}/{LOG_NAME}"
        if self.checkpoints.list_files():
            yield f"evaluate it: {evaluate_command(name, self.config, [self.folder])}"
            if self.benchmark.report:
                output = f"-o {run}/predictions{self.benchmark.report.ending}"
                yield f"predict it:  {evaluate_command(name, self.config, [self.folder], 'predict')} {output}"
            yield f"export it:   python -m common.training.weights {run} {run}/{name}.safetensors"
        if not result:
            return
        stated = self.config.submission
        system = shlex.quote(f"{'_'.join(stated.platform.split())}.json")
        fields = {  # of the system description that the log states
            "submitter": stated.org,
            "division": stated.division,
            "status": stated.status,
            "system_name": stated.platform,
            "number_of_nodes": self.all_ranks.nodes,
        }
        options = shlex.join(f"{name}={value}" for name, value in fields.items())
        yield f"pack it:     python -m submission.system -o {system} --set {options}   (then fill in the other fields)"
        yield f"             python -m submission.assemble {run} -o out --system {system}"

    def _print_line(self, text: str) -> None:
        if self.dist.is_main:
            print(f"{self.label}{text}", flush=True)


def list_code(benchmark: Benchmark, config: RunConfig, callbacks: Sequence[CallbackSource]) -> tuple[Code, ...]:
    """Return what computes in place of the suite's code; ConfigError if anything does in the closed division."""
    codes = (*benchmark.list_own_code(config), *list_acting(callbacks))
    if codes and config.submission.division == "closed":
        raise ConfigError(
            f"submission.division is closed, but {describe_codes(codes)} computes in place of the reference: train "
            f"without it, {OPEN}"
        )
    return codes


def ranks_text(dist: Dist, evaluating: int) -> str:
    """Return a description of the ranks and their devices."""
    device = dist.device.type
    if device == "cpu":
        device += f" with {torch.get_num_threads()} thread(s)"
    if dist.world_size == 1:
        tasks = count_tasks_without_srun(os.environ)
        more = f"; `srun` starts the {tasks} tasks of this Slurm job" if tasks > 1 else ""
        return f"one process on {device}{more}"
    ranks = f"{dist.world_size} ranks" + (f" ({evaluating} of them evaluate)" if evaluating else "")
    return f"{ranks} on {dist.nodes} node(s), started by {dist.position.launcher}, each on {device}"


def evaluate_command(benchmark: str, config: RunConfig, runs: Sequence[Path], command: str = "evaluate") -> str:
    """Return the command that evaluates runs of a configuration, or another one that takes runs."""
    data = config.data.data_dir
    # A checkpoint has only the last part of an absolute path, and a copy of staging.source is gone.
    where = [f"data.data_dir={data}"] if shown_path(data) != str(data) else []
    where = ["data.data_dir=DATA_DIR"] if config.staging.source and not config.staging.keep else where
    if config.train.imports:  # which a checkpoint does not make run
        where.append(f"train.imports=[{', '.join(map(str, config.train.imports))}]")
    return f"python -m {benchmark} {command} {shlex.join([*map(str, runs), *where])}"
