"""The only training loop, and the only place that logs epoch and evaluation events."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from common.data.sampling import step_seed
from common.ending import COMPLETED, STOPPED, STOPPED_EARLY, TARGET_MET, TARGET_NOT_MET, Ending
from common.mllog import ResultLog
from common.precision import Precision
from common.ranks.dist import Dist
from common.reference import NoTarget, Target
from common.settings.run import TrainConfig
from common.stop import SIGNALS, STOP, signal_name
from common.training.batchnorm import average_statistics
from common.training.benchmark import Problem
from common.training.callbacks import Callbacks, Epoch, Progress, StepRecord
from common.training.checkpoint import START, Checkpoints, Position, Saved
from common.training.evaluators import Evaluator
from common.training.faults import Sanity, check_samples
from common.training.profile import Profiler
from common.training.step import Step

LOOKED_BACK: Final = 1000
"""Samples of each rank that are looked at again where a loss is not finite, or jumps."""
POLL_STEPS: Final = 10
"""How often several ranks, or one with an accelerator, learn of loss and stop requests."""


@dataclass(slots=True)
class Fit:
    """A run: its parts and its progress.

    step: makes its optimizer steps.
    epochs: how many it has at most, the last of which max_steps may cut; None: no epoch is cut.
    rate: gives the learning rate for (epoch, step, steps per epoch).
    constants: entries of a checkpoint that never change, such as seed and configuration.
    """

    problem: Problem
    config: TrainConfig
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
    position: Position = START
    history: list[Epoch] = field(default_factory=list)
    _loss: tuple[float, float] = (0.0, 0.0)
    step: Step = field(init=False)
    epochs: int = field(init=False)
    _last_steps: int = field(init=False)
    _evaluating: bool = False
    _eval_began: float = 0.0
    _steps_before: int = 0
    _reported_at: float = 0.0

    def __post_init__(self) -> None:
        norms = self.callbacks.every_steps > 0
        self.step = Step(self.problem, self.optimizer, self.precision, self.dist, norms=norms)
        left = math.inf if self.max_steps is None else self.max_steps
        for epoch in range(self.config.epochs):
            steps = self.problem.steps(epoch)
            self.epochs, self._last_steps = epoch + 1, int(min(left, steps))
            left -= steps
            if left <= 0:
                break

    @property
    def evaluated(self) -> list[Epoch]:
        """The epochs whose quality is known."""
        return self.history[:-1] if self._evaluating else self.history

    def steps_before(self, epoch: int) -> int:
        """Return the number of steps before an epoch."""
        return sum(map(self.problem.steps, range(epoch)))

    def count_steps(self, epoch: int) -> int:
        """Return the number of steps that the run makes in an epoch."""
        return self._last_steps if epoch + 1 == self.epochs else self.problem.steps(epoch)

    def meets_target(self) -> bool:
        """Tell whether the latest evaluation met the target."""
        return bool(self.history) and self.target.met(self.history[-1].quality)

    def state(self) -> dict[str, Any]:
        """Return the content of a checkpoint apart from its position."""
        return {
            "model": self.problem.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
            "history": [asdict(epoch) for epoch in self.history],
            "loss": list(self._loss),
            "evaluating": self._evaluating,
            "log_bytes": self.log.position(),
            "log_crc32": self.log.crc32,
            **({"callbacks": states} if (states := self.callbacks.state()) else {}),
            **self.constants,
        }

    def attach_callbacks(self, saved: Saved | None) -> None:
        """Give the callbacks that act what they act on; CheckpointError if one of the checkpoint is missing.

        ValueError if one has a state that no checkpoint gives back.
        """
        self.callbacks.attach(self.problem.model, self.optimizer)
        if saved:
            with saved.restoring():
                self.callbacks.load_state(saved.state.get("callbacks", {}))
        with self.callbacks.evaluating():
            self.callbacks.state()  # refuses now what no checkpoint could have

    def load(self, saved: Saved) -> None:
        """Restore the run; CheckpointError for a state that does not fit."""
        state = saved.state
        with saved.restoring():
            self.problem.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.precision.load_state_dict(state["precision"])
            self.history = [Epoch(**epoch) for epoch in state["history"]]
            self._loss = (state["loss"][0], state["loss"][1])
            self._evaluating = state["evaluating"]
            self.position = saved.position
            if len(self.history) != self.position.epoch:
                raise ValueError(f"its history has {len(self.history)} epochs; expected {self.position.epoch:,}")


def fit(run: Fit) -> Ending:
    """Train until the target is met, a signal asks to stop, or all steps are done; return how the run ended.

    Raises DataFaultError for samples with numbers that are not finite, FloatingPointError when loss or quality is not
    finite although the samples are, LeaseLostError when another training took the folder over.
    """
    with (
        STOP.listening(),
        STOP.deferring(),
        contextlib.closing(run.progress),
        contextlib.closing(run.evaluator),
        _freeze_collector(run.dist),
    ):
        _keep_best(run)  # the process may have been killed before it could
        if run._evaluating:  # the checkpoint was written during an evaluation
            _begin_evaluation(run)
            _take_quality(run, wait=True)
        while run.position.epoch < run.epochs and not run.meets_target():
            stopped_by = _train_epoch(run) or signal_name(int(run.dist.all_reduce(torch.tensor(STOP.number), "max")))
            last = run.position.epoch == run.epochs
            _take_quality(run, wait=last or bool(stopped_by))
            if not stopped_by and (stopped_by := run.callbacks.find_stop(run.dist)):
                _take_quality(run, wait=True)
            ends = last or run.meets_target()
            stopped_by = "" if ends else stopped_by
            # Whether it is the best one may not be known yet.
            best = run.checkpoints.config.best and (run._evaluating or _is_best(run))
            if stopped_by or (run.position.step == 0 and (best or run.checkpoints.due(run.position.epoch, ends))):
                average_statistics(run.problem.model, run.dist)  # the checkpoint keeps those of rank 0
                run.callbacks.notify(lambda callback: callback.saving())
                with STOP.finishing(), run.callbacks.evaluating():
                    path = run.checkpoints.save(run.position, run.state())
                _keep_best(run)
            if stopped_by and stopped_by == run.callbacks.stop:
                return Ending(STOPPED_EARLY, stopped_by, len(run.history))
            if stopped_by:
                run.progress.print_line(f"stopped by {stopped_by}; saved in {path}; continue with --resume")
                return Ending(STOPPED, stopped_by, len(run.history))
    missed = COMPLETED if isinstance(run.target, NoTarget) else TARGET_NOT_MET
    return Ending(TARGET_MET if run.meets_target() else missed, epochs=len(run.history))


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


def _train_epoch(run: Fit) -> str:
    """Train the rest of the current epoch and start its evaluation; return what stopped it, or ""."""
    epoch, first_step = run.position.epoch, run.position.step
    number = epoch + 1
    if first_step == 0:
        run._loss = (0.0, 0.0)
        run.log.start("epoch_start", epoch_num=number)
    begin = time.perf_counter()
    samples, wait_s, stopped_by = _make_steps(run)
    train_s = time.perf_counter() - begin
    if stopped_by:
        return stopped_by
    if run.meets_target():
        return ""  # with the weights of the epoch before; the current ones were not evaluated
    run.log.end("epoch_stop", epoch_num=number)
    _take_quality(run, wait=True)  # the epoch before
    if run.meets_target():
        return ""
    steps = run.count_steps(epoch)
    samples_per_s = samples / train_s
    loss = run._loss[0] / run._loss[1]
    rate = run.rate(epoch, steps - 1, run.problem.steps(epoch))
    run.log.event("learning_rate", rate, epoch_num=number, step=steps)
    run.log.event("tracked_stats", {"throughput": samples_per_s}, epoch_num=number, step=steps)
    run.history.append(Epoch(number, loss, math.nan, rate, samples_per_s, train_s, wait_s, 0.0))
    run.position = Position(number, 0)
    run.progress.show_evaluation()
    run.log.start("eval_start", epoch_num=number)
    _begin_evaluation(run)
    return ""


def _begin_evaluation(run: Fit) -> None:
    """Evaluate the network, or have it evaluated while training goes on."""
    run._evaluating, run._eval_began = True, time.perf_counter()
    average_statistics(run.problem.model, run.dist)
    with run.callbacks.evaluating():
        run.evaluator.begin()


def _take_quality(run: Fit, wait: bool) -> None:
    """Log the quality of the latest epoch unless that was done; wait: wait for it if it is not known yet."""
    quality = run.evaluator.quality(wait) if run._evaluating else None
    if quality is None:
        return
    run._evaluating = False
    latest = run.history[-1]
    if run.sanity.is_implausible(quality):
        check_samples(run.problem, "validation", run.problem.eval_share().tolist())
    if not math.isfinite(quality):
        raise FloatingPointError(
            f"{run.target.key} is {quality} after epoch {latest.epoch}, although the samples are right: the "
            f"predictions are not; lower schedule.base_lr or lengthen the warm-up{run.step.describe_growth()}"
        )
    run.log.end("eval_stop", epoch_num=latest.epoch)
    run.log.event(run.target.key, quality, epoch_num=latest.epoch)
    run.history[-1] = epoch = replace(latest, quality=quality, eval_s=time.perf_counter() - run._eval_began)
    run.progress.show_epoch(epoch, run.epochs)
    run.callbacks.notify(lambda callback: callback.epoch(epoch))
    run.sanity.look_at_qualities([epoch.quality for epoch in run.history])
    _keep_best(run)


def _is_best(run: Fit) -> bool:
    """Tell whether the latest evaluation is the best one; of equal ones the first is."""
    *others, latest = [epoch.quality for epoch in run.evaluated] or [math.nan]
    return not math.isnan(latest) and not any(other == latest or run.target.better(other, latest) for other in others)


def _keep_best(run: Fit) -> None:
    """Keep the checkpoint of the latest evaluation if that is the best one, once both are there."""
    if _is_best(run):
        run.checkpoints.keep_best(run.evaluated[-1].epoch)


def _make_steps(run: Fit) -> tuple[int, float, str]:
    """Make the remaining steps of the epoch; return the samples of all ranks, seconds waited, what stopped it."""
    epoch, first_step = run.position.epoch, run.position.step
    steps, whole_steps = run.count_steps(epoch), run.problem.steps(epoch)
    run.problem.model.train()
    run.progress.begin_epoch(epoch + 1, steps, first_step)
    samples, wait_s = 0, 0.0
    polls = Polls(run.dist)
    run._steps_before, run._reported_at = run.steps_before(epoch), time.perf_counter()
    with contextlib.closing(run.problem.batches(epoch, first_step)) as read, run.profiler as profiler:
        batches = profiler.watched(read)
        for step in range(first_step, steps):
            run.dist.note_progress(f"epoch {epoch + 1}, step {step + 1}")
            weight, rate = run.problem.step_weight(epoch, step), run.rate(epoch, step, whole_steps)
            _seed_generators(run)
            step_wait_s = run.step(batches, run.config.accumulation, weight, rate)
            run.callbacks.after_step()
            run.position, step_samples = Position(epoch, step + 1), run.problem.step_samples(epoch, step)
            polls.add_step(MadeStep(run.position, weight, step_samples, rate, step_wait_s), run.step.found)
            samples, wait_s = samples + step_samples, wait_s + step_wait_s
            loss = None
            if (step + 1) % polls.every == 0 or step + 1 == steps:
                polls.ask_ranks(run.step.summed, STOP.number)
                stopped_by, loss = _add_losses(run, polls.take_answers(wait=step + 1 == steps))
                stopped_by = stopped_by or run.callbacks.find_stop(run.dist)
                if stopped_by and step + 1 < steps:
                    _add_losses(run, polls.take_answers(wait=True))
                    return samples, wait_s, stopped_by
                _take_quality(run, wait=False)
                if run.meets_target():
                    break
            run.progress.show_step(loss)
            profiler.step_done()
    return samples, wait_s, ""


def _seed_generators(run: Fit) -> None:
    """Seed this rank's generators for its next step: any rank can draw its numbers again, and a run resumes anywhere.

    Ranks that share samples draw the same numbers.
    """
    position, device = run.position, run.dist.device
    seed = step_seed(run.constants["seed"], run.dist.data_rank, position.epoch, position.step)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed also writes a stack trace for each other device
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def _add_losses(run: Fit, answers: list[Answer]) -> tuple[str, float | None]:
    """Add up the losses of the answers; return the signal that any rank got and the mean loss of the latest answer."""
    stopped_by, loss = "", None
    if answers and run.callbacks.hear_steps:
        _report_steps(run, answers)
    for answer in answers:
        if not math.isfinite(answer.loss):
            _refuse_loss(run, answer)
        if run.step.norms:
            run.sanity.look_at_norms(answer.norms)
        run._loss = (run._loss[0] + answer.loss, run._loss[1] + answer.weight)
        stopped_by, loss = stopped_by or answer.stopped_by, answer.loss / answer.weight
        if run.sanity.has_jumped(loss):
            check_samples(run.problem, "train", islice(_list_samples_back(run, answer.steps[-1].position), LOOKED_BACK))
    return stopped_by, loss


def _refuse_loss(run: Fit, answer: Answer) -> NoReturn:
    """Raise DataFaultError if a sample of this step or of those before is at fault, otherwise FloatingPointError."""
    number, loss = next((i, loss) for i, loss in enumerate(answer.sums) if not math.isfinite(loss))
    position = answer.steps[number].position
    check_samples(run.problem, "train", islice(_list_samples_back(run, position), LOOKED_BACK))
    advice = (
        f"lower schedule.base_lr or lengthen the warm-up; the checkpoints in {run.checkpoints.folder} were written "
        "before that"
    )
    if run.steps_before(position.epoch) + position.step == 1:
        advice = (
            "no weight had changed, so that it is not the learning rate: see the initial weights, and precision.dtype, "
            "since fp16 ends at 65504"
        )
    else:
        advice += run.step.describe_growth()
    raise FloatingPointError(
        f"the loss is {loss} at epoch {position.epoch + 1}, step {position.step}, although the samples looked at are "
        f"right: {advice}"
    )


def _list_samples_back(run: Fit, position: Position) -> Iterator[int]:
    """Yield this rank's samples of the step that ends at a position, then those of the steps before it.

    A number that is finite but wrong may have ruined the weights some steps before a loss shows it.
    """
    problem, ranks = run.problem, run.problem.dist
    for epoch in range(position.epoch, -1, -1):
        order = problem.order(epoch)
        last = position.step if epoch == position.epoch else problem.steps(epoch)
        for step in range(last - 1, -1, -1):
            batch = next(problem.batching.batches(order, ranks.data_rank, ranks.data_size, step))
            yield from np.concatenate(batch.parts).tolist()


def _report_steps(run: Fit, answers: list[Answer]) -> None:
    """Give the callbacks the records of the steps that the answers are about."""
    samples = sum(step.samples for answer in answers for step in answer.steps)
    now = time.perf_counter()
    samples_per_s = samples / (now - run._reported_at)
    run._reported_at = now
    for answer in answers:
        before = 0.0
        for step, sum_, norm in zip(answer.steps, answer.sums, answer.norms, strict=True):
            epoch, number = step.position.epoch + 1, step.position.step
            total, loss = run._steps_before + number, (sum_ - before) / step.weight
            before = sum_
            run.callbacks.notify_step(
                StepRecord(epoch, number, total, loss, step.rate, norm, samples_per_s, step.wait_s)
            )


# -- what the ranks exchange every few steps -----------------------------------------------------------------


class MadeStep(NamedTuple):
    """What the host knows of a step: where it is, and what went into it. weight: see `SampleProblem.step_weight`."""

    position: Position
    weight: float
    samples: int
    rate: float
    wait_s: float


class Answer(NamedTuple):
    """About the steps since the question before. stopped_by: the signal that one of the ranks got, or "".

    sums: of the losses up to and including each step, over all ranks. norms: of this rank's gradient in each step.
    """

    steps: list[MadeStep]
    sums: list[float]
    norms: list[float]
    stopped_by: str

    @property
    def loss(self) -> float:
        """The sum of the losses of all steps; the same on all ranks."""
        return self.sums[-1]

    @property
    def weight(self) -> float:
        """The sum of the weights of all steps."""
        return sum(step.weight for step in self.steps)


class Polls:
    """Asks all ranks for their loss, and whether one of them got a stop signal; the calls are collective.

    An accelerator computes steps that the host has long asked for. So that neither waits for the other, an answer is
    read there when the next one is asked for. late: how many answers are left to arrive while work goes on.
    """

    def __init__(self, dist: Dist) -> None:
        self.dist = dist
        self.late = 0 if dist.device.type == "cpu" else 1
        self.every = 1 if dist.world_size == 1 and dist.device.type == "cpu" else POLL_STEPS
        self._questions: deque[tuple[list[MadeStep], Tensor, torch.Event | None]] = deque()
        self._steps: list[MadeStep] = []
        self._results = torch.zeros(self.every, 2, dtype=torch.float64, device=dist.device)

    def add_step(self, step: MadeStep, results: Tensor) -> None:
        """Note a step, one of at most `every` until the next question.

        results: of this rank's device then: the sum of the losses since the last question, and the gradient's norm.
        """
        self._results[len(self._steps)].copy_(results)
        self._steps.append(step)

    def ask_ranks(self, summed: Tensor, signal: int) -> None:
        """Ask for the sums of the losses, by one small message; `summed` () is then set to 0.

        signal: the number of the stop signal that this rank got, 0 if none.
        """
        steps, self._steps = self._steps, []
        count = len(steps)
        shared = count + len(SIGNALS)
        values = self._results.new_zeros(shared + count)
        values[:count].copy_(self._results[:count, 0])
        values[shared:].copy_(self._results[:count, 1])
        summed.zero_()
        if signal:
            values[count + SIGNALS.index(signal)].fill_(1)
        self.dist.all_reduce(values[:shared])
        arrived = None
        if values.device.type != "cpu":
            values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            arrived = torch.Event(self.dist.device)
            arrived.record()
        self._questions.append((steps, values, arrived))

    def take_answers(self, wait: bool) -> list[Answer]:
        """Return the answers not returned yet; on an accelerator all but the latest. wait: wait for that, too."""
        answers = []
        while len(self._questions) > (0 if wait else self.late):
            steps, arriving, arrived = self._questions.popleft()
            if arrived is not None:
                arrived.synchronize()
            values, count = arriving.tolist(), len(steps)
            shared = count + len(SIGNALS)
            signals = [number for number, of_ranks in zip(SIGNALS, values[count:shared], strict=True) if of_ranks]
            answers.append(Answer(steps, values[:count], values[shared:], signal_name(max(signals, default=0))))
        return answers
