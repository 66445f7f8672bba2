"""The only training loop, its state, and the only place that logs epoch and evaluation events."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Final, NoReturn

import numpy as np
import torch

from common.data.sampling import step_seed
from common.ending import COMPLETED, STOPPED, STOPPED_EARLY, TARGET_MET, TARGET_NOT_MET, Ending
from common.mllog import ResultLog
from common.precision import Precision
from common.ranks.dist import Dist
from common.reference import NoTarget, Target
from common.settings.run import TrainConfig
from common.stop import STOP, signal_name
from common.training.batchnorm import average_statistics
from common.training.benchmark import Problem
from common.training.callbacks import Callbacks, Epoch, Progress, StepRecord
from common.training.checkpoint import START, Checkpoints, Position, Saved
from common.training.evaluators import Evaluator
from common.training.faults import Sanity, check_samples
from common.training.profile import Profiler
from common.training.step import Answer, MadeStep, Polls, Step

LOOKED_BACK: Final = 1000
"""Samples of each rank that are looked at again where a loss is not finite, or jumps."""


@dataclass(slots=True)
class State:
    """How far a training is.

    position: the epochs and steps that are done. history: the epochs; the quality of the last one is not known while it
    is being evaluated. loss, weight: sums over the steps of the current epoch.
    """

    position: Position = START
    history: list[Epoch] = field(default_factory=list)
    loss: float = 0.0
    weight: float = 0.0
    evaluating: bool = False

    @property
    def evaluated(self) -> list[Epoch]:
        """The epochs whose quality is known."""
        return self.history[:-1] if self.evaluating else self.history


@dataclass(kw_only=True, eq=False, repr=False)
class Loop:
    """A training: its parts, its loop, and how far it is.

    settings: of the section `train`. rate: gives the learning rate for (epoch, step, steps per epoch).
    constants: entries of a checkpoint that never change, such as seed and configuration.
    step: makes the optimizer steps. epochs: how many there are at most, the last of which max_steps may cut.
    """

    problem: Problem
    settings: TrainConfig
    target: Target
    optimizer: torch.optim.Optimizer
    precision: Precision
    rate: Callable[[int, int, int], float]
    dist: Dist
    log: ResultLog
    checkpoints: Checkpoints
    progress: Progress
    evaluator: Evaluator
    profiler: Profiler
    constants: Mapping[str, Any]
    sanity: Sanity
    callbacks: Callbacks = field(default_factory=Callbacks)
    max_steps: int | None = None
    state: State = field(default_factory=State)
    step: Step = field(init=False)
    epochs: int = field(init=False)
    _last_steps: int = field(init=False)
    _eval_began: float = field(init=False, default=0.0)
    _steps_before: int = field(init=False, default=0)
    _reported_at: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.step = Step(self.problem, self.optimizer, self.precision, self.dist, norms=self.callbacks.every_steps > 0)
        left = math.inf if self.max_steps is None else self.max_steps
        for epoch in range(self.settings.epochs):
            steps = self.problem.steps(epoch)
            self.epochs, self._last_steps = epoch + 1, int(min(left, steps))
            left -= steps
            if left <= 0:
                break

    def steps_before(self, epoch: int) -> int:
        """Return the number of steps before an epoch."""
        return sum(map(self.problem.steps, range(epoch)))

    def count_steps(self, epoch: int) -> int:
        """Return the number of steps that the run makes in an epoch."""
        return self._last_steps if epoch + 1 == self.epochs else self.problem.steps(epoch)

    def meets_target(self) -> bool:
        """Tell whether the latest evaluation met the target."""
        history = self.state.history
        return bool(history) and self.target.met(history[-1].quality)

    def collect_checkpoint(self) -> dict[str, Any]:
        """Return the content of a checkpoint apart from its position."""
        return {
            "model": self.problem.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
            "history": [asdict(epoch) for epoch in self.state.history],
            "loss": [self.state.loss, self.state.weight],
            "evaluating": self.state.evaluating,
            "log_bytes": self.log.sync_position(),
            "log_crc32": self.log.crc32,
            **({"callbacks": states} if (states := self.callbacks.collect_states()) else {}),
            **self.constants,
        }

    def attach_callbacks(self, saved: Saved | None) -> None:
        """Give the callbacks that act what they act on; CheckpointError if one of the checkpoint is missing.

        ValueError if one has a state that no checkpoint gives back.
        """
        self.callbacks.attach(self.problem.model, self.optimizer)
        if saved:
            with saved.explain_errors():
                self.callbacks.load_state(saved.state.get("callbacks", {}))
        with self.callbacks.evaluating():
            self.callbacks.collect_states()  # refuses now what no checkpoint could have

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint; CheckpointError for a state that does not fit."""
        content = saved.state
        with saved.explain_errors():
            self.problem.model.load_state_dict(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])
            self.precision.load_state_dict(content["precision"])
            history = [Epoch(**epoch) for epoch in content["history"]]
            loss, weight = content["loss"]
            self.state = State(saved.position, history, loss, weight, content["evaluating"])
            if len(history) != saved.position.epoch:
                raise ValueError(f"its history has {len(history)} epochs; expected {saved.position.epoch:,}")

    def fit(self) -> Ending:
        """Train until the target is met, a signal asks to stop, or all steps are done; return how the run ended.

        Raises DataFaultError for samples with numbers that are not finite, FloatingPointError when loss or quality is
        not finite although the samples are, LeaseLostError when another training took the folder over.
        """
        state = self.state
        with (
            STOP.listening(),
            STOP.deferring(),
            contextlib.closing(self.progress),
            contextlib.closing(self.evaluator),
            _freeze_collector(self.dist),
        ):
            self._keep_best()  # the process may have been killed before it could
            if state.evaluating:  # the checkpoint was written during an evaluation
                self._begin_evaluation()
                self._take_quality(wait=True)
            while state.position.epoch < self.epochs and not self.meets_target():
                stopped_by = self._train_epoch()
                if not stopped_by:  # all ranks look for a signal that any of them got
                    stopped_by = signal_name(int(self.dist.all_reduce(torch.tensor(STOP.number), "max")))
                last = state.position.epoch == self.epochs
                self._take_quality(wait=last or bool(stopped_by))
                if not stopped_by and (stopped_by := self.callbacks.find_stop(self.dist)):
                    self._take_quality(wait=True)
                ends = last or self.meets_target()
                stopped_by = "" if ends else stopped_by
                # Whether it is the best one may not be known yet.
                best = self.checkpoints.config.best and (state.evaluating or self._is_best())
                due = state.position.step == 0 and (best or self.checkpoints.is_due(state.position.epoch, ends))
                if stopped_by or due:
                    average_statistics(self.problem.model, self.dist)  # the checkpoint keeps those of rank 0
                    self.callbacks.notify_members(lambda callback: callback.saving())
                    with STOP.allow_finishing(), self.callbacks.evaluating():
                        path = self.checkpoints.save(state.position, self.collect_checkpoint())
                    self._keep_best()
                if stopped_by and stopped_by == self.callbacks.stop:
                    return Ending(STOPPED_EARLY, stopped_by, len(state.history))
                if stopped_by:
                    self.progress.print_line(f"stopped by {stopped_by}; saved in {path}; continue with --resume")
                    return Ending(STOPPED, stopped_by, len(state.history))
        missed = COMPLETED if isinstance(self.target, NoTarget) else TARGET_NOT_MET
        return Ending(TARGET_MET if self.meets_target() else missed, epochs=len(state.history))

    def _train_epoch(self) -> str:
        """Train the rest of the current epoch and start its evaluation; return what stopped it, or ""."""
        epoch, first_step = self.state.position.epoch, self.state.position.step
        number = epoch + 1
        if first_step == 0:
            self.state.loss = self.state.weight = 0.0
            self.log.start("epoch_start", epoch_num=number)
        begin = time.perf_counter()
        samples, wait_s, stopped_by = self._make_steps()
        train_s = time.perf_counter() - begin
        if stopped_by:
            return stopped_by
        if self.meets_target():
            return ""  # with the weights of the epoch before; the current ones were not evaluated
        self.log.end("epoch_stop", epoch_num=number)
        self._take_quality(wait=True)  # the epoch before
        if self.meets_target():
            return ""
        steps = self.count_steps(epoch)
        samples_per_s = samples / train_s
        loss = self.state.loss / self.state.weight
        rate = self.rate(epoch, steps - 1, self.problem.steps(epoch))
        self.log.event("learning_rate", rate, epoch_num=number, step=steps)
        self.log.event("tracked_stats", {"throughput": samples_per_s}, epoch_num=number, step=steps)
        self.state.history.append(Epoch(number, loss, math.nan, rate, samples_per_s, train_s, wait_s, 0.0))
        self.state.position = Position(number, 0)
        self.progress.show_evaluation()
        self.log.start("eval_start", epoch_num=number)
        self._begin_evaluation()
        return ""

    def _begin_evaluation(self) -> None:
        """Evaluate the network, or have it evaluated while training goes on."""
        self.state.evaluating = True
        self._eval_began = time.perf_counter()
        average_statistics(self.problem.model, self.dist)
        with self.callbacks.evaluating():
            self.evaluator.begin()

    def _take_quality(self, wait: bool) -> None:
        """End the evaluation of the latest epoch unless that was done; wait: wait for it if it is not known yet."""
        quality = self.evaluator.quality(wait) if self.state.evaluating else None
        if quality is not None:
            self._end_evaluation(quality)

    def _end_evaluation(self, quality: float) -> None:
        """Log the quality of the latest epoch."""
        self.state.evaluating = False
        latest = self.state.history[-1]
        if self.sanity.is_implausible(quality):
            check_samples(self.problem, "validation", self.problem.eval_share().tolist())
        if not math.isfinite(quality):
            raise FloatingPointError(
                f"{self.target.key} is {quality} after epoch {latest.epoch}, although the samples are right: the "
                f"predictions are not; lower schedule.base_lr or lengthen the warm-up{self.step.describe_growth()}"
            )
        self.log.end("eval_stop", epoch_num=latest.epoch)
        self.log.event(self.target.key, quality, epoch_num=latest.epoch)
        self.state.history[-1] = epoch = replace(latest, quality=quality, eval_s=time.perf_counter() - self._eval_began)
        self.progress.show_epoch(epoch, self.epochs)
        self.callbacks.notify_members(lambda callback: callback.epoch(epoch))
        self.sanity.look_at_qualities([epoch.quality for epoch in self.state.history])
        self._keep_best()

    def _is_best(self) -> bool:
        """Tell whether the latest evaluation is the best one; of equal ones the first is."""
        *others, latest = [epoch.quality for epoch in self.state.evaluated] or [math.nan]
        return not math.isnan(latest) and not any(
            other == latest or self.target.better(other, latest) for other in others
        )

    def _keep_best(self) -> None:
        """Keep the checkpoint of the latest evaluation if that is the best one, once both are there."""
        if self._is_best():
            self.checkpoints.keep_best(self.state.evaluated[-1].epoch)

    def _make_steps(self) -> tuple[int, float, str]:
        """Make the remaining steps of the epoch; return the samples of all ranks, seconds waited, what stopped it."""
        epoch, first_step = self.state.position.epoch, self.state.position.step
        steps, whole_steps = self.count_steps(epoch), self.problem.steps(epoch)
        self.problem.model.train()
        self.progress.begin_epoch(epoch + 1, steps, first_step)
        samples, wait_s = 0, 0.0
        polls = Polls(self.dist)
        self._steps_before, self._reported_at = self.steps_before(epoch), time.perf_counter()
        with contextlib.closing(self.problem.batches(epoch, first_step)) as read, self.profiler as profiler:
            batches = profiler.watched(read)
            for step in range(first_step, steps):
                self.dist.note_progress(f"epoch {epoch + 1}, step {step + 1}")
                weight, rate = self.problem.step_weight(epoch, step), self.rate(epoch, step, whole_steps)
                self._seed_generators()
                step_wait_s = self.step(batches, self.settings.accumulation, weight, rate)
                self.callbacks.after_step()
                self.state.position, step_samples = Position(epoch, step + 1), self.problem.step_samples(epoch, step)
                polls.add_step(
                    MadeStep(self.state.position, weight, step_samples, rate, step_wait_s), self.step.results
                )
                samples, wait_s = samples + step_samples, wait_s + step_wait_s
                loss = None
                if (step + 1) % polls.every == 0 or step + 1 == steps:
                    added = self.evaluator.poll()  # first, as it may bring a stop signal
                    polls.ask_ranks(self.step.summed, STOP.number, added)
                    stopped_by, loss = self._add_losses(polls.take_answers(wait=step + 1 == steps))
                    stopped_by = stopped_by or self.callbacks.find_stop(self.dist)
                    if stopped_by and step + 1 < steps:
                        self._add_losses(polls.take_answers(wait=True))
                        return samples, wait_s, stopped_by
                    if self.meets_target():
                        break
                self.progress.show_step(loss)
                profiler.step_done()
        return samples, wait_s, ""

    def _seed_generators(self) -> None:
        """Seed this rank's generators for its next step.

        So any rank can draw its numbers again, and a run resumes anywhere. Ranks that share samples draw the same
        numbers.
        """
        position, device = self.state.position, self.dist.device
        seed = step_seed(self.constants["seed"], self.dist.data_rank, position.epoch, position.step)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed also writes a stack trace for each other device
        if device.type != "cpu":
            torch.get_device_module(device).manual_seed(seed)

    def _add_losses(self, answers: list[Answer]) -> tuple[str, float | None]:
        """Add up the losses of the answers; return the signal that any rank got, and the mean loss of the latest."""
        stopped_by, loss = "", None
        if answers and self.callbacks.hear_steps:
            self._report_steps(answers)
        for answer in answers:
            if not math.isfinite(answer.loss):
                self._refuse_loss(answer)
            if self.step.norms:
                self.sanity.look_at_norms(answer.norms)
            self.state.loss += answer.loss
            self.state.weight += answer.weight
            stopped_by, loss = stopped_by or answer.stopped_by, answer.loss / answer.weight
            if self.state.evaluating and answer.added[0]:  # other ranks have evaluated
                self._end_evaluation(answer.added[1])
            if self.sanity.has_jumped(loss):
                check_samples(
                    self.problem, "train", islice(self._list_samples_back(answer.steps[-1].position), LOOKED_BACK)
                )
        return stopped_by, loss

    def _refuse_loss(self, answer: Answer) -> NoReturn:
        """Raise DataFaultError if a sample of this step or of those before is at fault, else FloatingPointError."""
        number, loss = next((i, loss) for i, loss in enumerate(answer.sums) if not math.isfinite(loss))
        position = answer.steps[number].position
        check_samples(self.problem, "train", islice(self._list_samples_back(position), LOOKED_BACK))
        if self.steps_before(position.epoch) + position.step == 1:
            advice = (
                "no weight had changed, so that it is not the learning rate: see the initial weights, and "
                "precision.dtype, since fp16 ends at 65504"
            )
        else:
            advice = (
                "lower schedule.base_lr or lengthen the warm-up; the checkpoints in "
                f"{self.checkpoints.folder} were written before that{self.step.describe_growth()}"
            )
        raise FloatingPointError(
            f"the loss is {loss} at epoch {position.epoch + 1}, step {position.step}, although the samples looked at "
            f"are right: {advice}"
        )

    def _list_samples_back(self, position: Position) -> Iterator[int]:
        """Yield this rank's samples of the step that ends at a position, then those of the steps before it.

        A number that is finite but wrong may have ruined the weights some steps before a loss shows it.
        """
        problem, ranks = self.problem, self.problem.dist
        for epoch in range(position.epoch, -1, -1):
            order = problem.order(epoch)
            last = position.step if epoch == position.epoch else problem.steps(epoch)
            for step in range(last - 1, -1, -1):
                batch = next(problem.batching.batches(order, ranks.data_rank, ranks.data_size, step))
                yield from np.concatenate(batch.parts).tolist()

    def _report_steps(self, answers: list[Answer]) -> None:
        """Give the callbacks the records of the steps that the answers are about."""
        samples = sum(step.samples for answer in answers for step in answer.steps)
        now = time.perf_counter()
        samples_per_s = samples / (now - self._reported_at)
        self._reported_at = now
        for answer in answers:
            before = 0.0
            for step, sum_, norm in zip(answer.steps, answer.sums, answer.norms, strict=True):
                epoch, number = step.position.epoch + 1, step.position.step
                total, loss = self._steps_before + number, (sum_ - before) / step.weight
                before = sum_
                self.callbacks.notify_step(
                    StepRecord(epoch, number, total, loss, step.rate, norm, samples_per_s, step.wait_s)
                )


@contextlib.contextmanager
def _freeze_collector(dist: Dist) -> Iterator[None]:
    """On an accelerator, keep Python's collector away from what lives as long as the run: it would delay launches."""
    if dist.device.type == "cpu":
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
