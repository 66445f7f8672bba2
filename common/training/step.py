"""One optimizer step, as work on tensors that stay where they are, so that it can be recorded as a CUDA graph.

`warm_up` executes every usual shape of a run before it starts, so that what happens once per process is not on its
clock: cuDNN then has timed its algorithms, Triton and torch have compiled and loaded their kernels, communicators have
connected, and steps are recorded. On an H200 the first 22 steps of DeepCAM took 43 s, and 2.7 s later in the same
process (docs/performance/gpu.md). The rules leave 30 minutes of untimed initialisation in which no data are touched
(training_rules.adoc#timing): batches are made up.

`Polls` are what the ranks tell each other every few steps: their losses, and whether one of them is to stop.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from common.data.prefetch import sum_flaws
from common.precision import Precision
from common.ranks.dist import Dist
from common.settings.run import TrainConfig
from common.spatial.shards import gradient_norms, shard_of, share_weights
from common.stop import SIGNALS, signal_name
from common.training.benchmark import Problem
from common.training.checkpoint import Position
from common.training.graph import WARM_UP, Replay, say_why_not
from common.training.optim import allocate_views, set_rate

POLL_STEPS: Final = 10
"""How often several ranks, or one with an accelerator, learn of loss and stop requests."""


class FlatGradients:
    """Makes the gradients of parameters views of buffers: one for each type, and for each group of ranks.

    The parameters that have a gradient in the first step have one in each; the others are left alone.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], dist: Dist) -> None:
        self.parameters, self.dist = list(parameters), dist
        self._views: list[tuple[nn.Parameter, Tensor]] = []
        self._buffers: list[tuple[Dist, Tensor]] = []

    def clear_gradients(self) -> None:
        """Set all gradients to 0, where they are; before the first step there are none."""
        for _, buffer in self._buffers:
            buffer.zero_()
        for parameter, view in self._views:
            parameter.grad = view

    def average(self) -> None:
        """Set the gradients of all ranks to their mean, those of shards over their peers. A collective call."""
        if not self._buffers:
            self._move_gradients()
        for ranks, buffer in self._buffers:
            if ranks.world_size > 1:
                ranks.traffic = self.dist.traffic
                ranks.average(buffer)

    def _move_gradients(self) -> None:
        """Move the gradients of the first step into buffers, in the memory order of their parameters."""
        groups: dict[Any, tuple[Dist, list[nn.Parameter]]] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                shard = shard_of(parameter)
                ranks = shard.peers if shard else self.dist
                groups.setdefault((ranks, parameter.grad.dtype), (ranks, []))[1].append(parameter)
        for ranks, parameters in groups.values():
            buffer, views = allocate_views(parameters)
            self._buffers.append((ranks, buffer))
            for parameter, view in zip(parameters, views, strict=True):
                view.copy_(parameter.grad)
                parameter.grad = view
                self._views.append((parameter, view))


class Step:
    """Makes optimizer steps of a problem. norms: also compute the norm of each step's gradient.

    results: what the device has computed, (2,): the sum of this rank's losses since `summed`, a view of it, was last
    set to 0, and the norm of the latest gradient, which is that of all ranks.

    Ranks reduce their gradients by the wrapper that `wrap_network` makes, which does so during the backward pass; where
    steps are recorded, samples shared, or no group connects all ranks, in place after it. That is part of no recording,
    since NCCL wants all ranks to record and replay the same messages, but batches may differ by rank in shape, and so
    in what was recorded; with `dist.record_reduction` it is part of one, where all batches have equal shapes.
    """

    def __init__(
        self, problem: Problem, optimizer: Optimizer, precision: Precision, dist: Dist, *, norms: bool = True
    ) -> None:
        self.problem, self.optimizer, self.precision, self.dist = problem, optimizer, precision, dist
        self.norms = norms
        self.results = torch.zeros(2, dtype=torch.float64, device=dist.device)
        self.summed = self.results[0]
        self._scale = torch.ones((), dtype=torch.float64, device=dist.device)
        recorder = problem.recorder
        if recorder is not None and not all(isinstance(group["lr"], Tensor) for group in optimizer.param_groups):
            say_why_not(dist, f"{type(optimizer).__name__} takes its rate as a number")
            recorder = None
        self._kept_norms: Tensor | None = None
        """(2, T): the norms of each gradient in the first step, and in the latest one in which all were finite."""
        self._module: nn.Module = problem.model
        self._trained: list[bool] = []
        apart = recorder is not None or dist.sharing.world_size > 1 or not dist.reduces_in_backward
        flat = dist.world_size > 1 and apart
        self._wraps = dist.world_size > 1 and not flat
        self._gradients = FlatGradients(problem.model.parameters(), dist) if flat else None
        if flat:
            share_weights(problem.model, dist)
        self._in_recording = dist.records_reduction and recorder is not None and self._gradients is not None
        if self._in_recording and not problem.equal_batches:
            say_why_not(dist, "not all batches have equal parts (dist.record_reduction)", "the reduction of gradients")
            self._in_recording = False
        together = dist if self._in_recording or problem.communicates else None
        self._part = Replay(self._add_gradients, recorder, dist, together)
        self._update = Replay(lambda _no_batch: self._update_weights(), recorder, dist)

    def __call__(self, batches: Iterator[Any], parts: int, weight: float, rate: float) -> float:
        """Make a step on the next batches, one per part; return the seconds that this rank waited for them.

        weight: the divisor that turns the sum of losses over all ranks into the mean.
        """
        self.wrap_network()
        if self.dist.world_size > 1:
            self._check_trained()
        waited = 0.0
        set_rate(self.optimizer, rate)
        # Gradients are averaged over the ranks, and each rank has only its share of the sum.
        self._scale.fill_(self.dist.world_size / weight)
        for part in range(parts):
            batch = next(batches)
            waited += batch.wait_s
            self._part(batch, part == 0, part + 1 == parts)
        if self._gradients is not None and not self._in_recording:
            self._gradients.average()
            self._update(())
        return waited

    def wrap_network(self) -> None:
        """Send rank 0's weights, and build the buckets of gradients, where a wrapper reduces them. A collective call.

        It comes before the first step, once, and after what changes which parameters are trained. The wrapper builds
        its buckets anew, in the order of the gradients, when the second forward pass begins: after two passes on a
        made-up batch, whatever follows adds in the same order, also in a run that goes on from a checkpoint.
        """
        if not self._wraps:
            return
        model, self._wraps = self.problem.model, False
        self._module = self.dist.wrap(model)
        with restore_afterwards(model, self.precision, self.dist.device, None):
            model.train()
            batch, *_ = next(iter(self.problem.synthetic_steps()))
            for _ in range(2):
                self._pass_back(batch, last=True)
                self._clear_gradients(apart=True)

    def _check_trained(self) -> None:
        """Raise ValueError if other parameters are trained than in the first step: ranks average no others."""
        trained = [parameter.requires_grad for parameter in self.problem.model.parameters()]
        self._trained = self._trained or trained
        if trained != self._trained:
            raise ValueError(
                "requires_grad of a parameter has changed after the first step, but several ranks average gradients "
                "only of those that were trained then: freeze layers in `attach` of a callback, or train in one process"
            )

    @contextlib.contextmanager
    def rehearse_steps(self) -> Iterator[None]:
        """Make steps inside that count for nothing, and record none after them; see `Replay.seal`."""
        try:
            yield
        finally:
            self._part.seal()
            self._update.seal()
            self.results.zero_()

    def close(self) -> None:
        """Drop the recordings; no step is made any more."""
        self._part.close()
        self._update.close()

    def describe_growth(self) -> str:
        """Return a sentence on which gradients grew most, to go after others; "" if none did, or no norms are known."""
        if self._kept_norms is None:
            return ""
        names = [name for name, parameter in self.problem.model.named_parameters() if parameter.grad is not None]
        norms = zip(names, *self._kept_norms.tolist(), strict=True)
        grown = sorted(norms, key=lambda norm: norm[2] - norm[1])[:-4:-1]
        growth = ", ".join(
            f"{name} from {first:.3g} to {latest:.3g}" for name, first, latest in grown if latest > first
        )
        return f". Since the first step of this process these gradients grew most: {growth}" if growth else ""

    def _add_gradients(self, batch: Any, first: bool, last: bool) -> None:
        """Add the gradients of a batch; after a step's last, make the optimizer's step unless ranks reduce first."""
        if first:
            self._clear_gradients(apart=last or self._part.recorder is None)
        flat = self._gradients is not None
        with contextlib.nullcontext() if last or flat else self.dist.no_sync(self._module):
            self.summed += self._pass_back(batch, last)
        self.summed += sum_flaws(batch)
        if last and self._in_recording and self._gradients is not None:
            self._gradients.average()
        if last and (self._in_recording or not flat):
            self._update_weights()

    def _pass_back(self, batch: Any, last: bool) -> Tensor:
        """Make the forward and backward pass of a batch; return the sum of its losses. last: of the step's batches."""
        with self.precision.autocast():
            summed = self.problem.loss(self._module, batch)
        loss = summed * self._scale.to(summed.dtype)
        penalty = self.problem.penalty() if last else None
        self.precision.backward(loss if penalty is None else loss + penalty)
        return summed.detach()

    def _clear_gradients(self, apart: bool) -> None:
        """Drop the gradients, or set them to 0 where they are: apart, each recording has gradients of its own.

        Not by the optimizer's zero_grad: those of NVIDIA's apex take no arguments.
        """
        if self._gradients is not None:
            self._gradients.clear_gradients()
            return
        groups = self.optimizer.param_groups
        parameters = [parameter for group in groups for parameter in group["params"] if parameter.grad is not None]
        if parameters and not apart:
            torch._foreach_zero_([parameter.grad for parameter in parameters])
            return
        for parameter in parameters:
            parameter.grad = None

    def _update_weights(self) -> None:
        """Make the optimizer's step with the gradients, which are those of all ranks now."""
        if self.norms:
            norms = self.precision.unscaled(gradient_norms(self.problem.model.parameters()))
            self.results[1].copy_(torch.linalg.vector_norm(norms))
            self._keep_norms(norms)
        self.precision.step(self.optimizer)

    def _keep_norms(self, norms: Tensor) -> None:
        """Keep the norms of the gradients unless one is not finite; start again if there are others."""
        if self._kept_norms is None or self._kept_norms.shape[1] != len(norms):
            self._kept_norms = norms.repeat(2, 1)
        self._kept_norms[1].copy_(torch.where(self.results[1].isfinite(), norms, self._kept_norms[1]))


def warms_up(config: TrainConfig, problem: Problem, device: torch.device) -> bool:
    """Tell whether a run on this device is warmed up."""
    return config.warm_up == "auto" and (device.type != "cpu" or problem.recorder is not None)


def warm_up(
    problem: Problem, precision: Precision, dist: Dist, step: Step | None = None, *, evaluates: bool = True
) -> float:
    """Make training steps and evaluations of all usual shapes; return the seconds. A collective call.

    Network, optimizer, loss scale and random numbers are afterwards what they were, to the bit. It comes after what
    replaces tensors, such as loading a checkpoint: recordings go on reading and writing those of now.
    step: None: only evaluations are made.
    """
    begin, device, quiet = time.perf_counter(), dist.device, not dist.is_main
    with restore_afterwards(problem.model, precision, device, step.optimizer if step else None):
        if step is not None:
            problem.model.train()
            shapes = tqdm(problem.synthetic_steps(), desc="warm-up", unit="shape", leave=False, disable=quiet or None)
            with step.rehearse_steps():
                for batches in shapes:
                    for _ in range(WARM_UP + 1):
                        step(iter(batches), len(batches), 1.0, 0.0)
        if evaluates:
            problem.model.eval()
            with torch.inference_mode(), precision.autocast():
                problem.evaluate_synthetic()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter() - begin


@contextlib.contextmanager
def restore_afterwards(
    model: nn.Module, precision: Precision, device: torch.device, optimizer: Optimizer | None
) -> Iterator[None]:
    """Restore, in place, all that training changes; what an optimizer has made meanwhile becomes 0."""
    tensors = [*model.parameters(), *model.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    training, scale = model.training, precision.state_dict()
    numbers = {
        (id(entries), name): entries[name].clone() if isinstance(entries[name], Tensor) else entries[name]
        for entries, name in _list_entries(optimizer)
    }
    with torch.random.fork_rng([device] if device.type != "cpu" else [], device_type=device.type):
        yield
    model.train(training)
    precision.load_state_dict(scale)
    with torch.no_grad():
        for tensor, former in zip(tensors, before, strict=True):
            tensor.copy_(former)
        for entries, name in _list_entries(optimizer):
            value, former = entries[name], numbers.get((id(entries), name))
            if not isinstance(value, Tensor):
                entries[name] = type(value)() if former is None and isinstance(value, int) else former
            elif former is None:
                value.zero_()
            else:
                value.copy_(former)


def _list_entries(optimizer: Optimizer | None) -> Iterator[tuple[dict[Any, Any], Any]]:
    """Yield what an optimizer has of its groups and of each parameter: the dictionary, and the key in it."""
    if optimizer is not None:
        for entries in (*optimizer.param_groups, *optimizer.state.values()):
            yield from ((entries, name) for name in entries if name != "params")


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
    added: sums over all ranks of the numbers that they added to the question.
    """

    steps: list[MadeStep]
    sums: list[float]
    norms: list[float]
    stopped_by: str
    added: list[float]

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
        self._questions: deque[tuple[list[MadeStep], Tensor, int, torch.Event | None]] = deque()
        self._steps: list[MadeStep] = []
        self._results = torch.zeros(self.every, 2, dtype=torch.float64, device=dist.device)

    def add_step(self, step: MadeStep, results: Tensor) -> None:
        """Note a step, one of at most `every` until the next question.

        results: of this rank's device then: the sum of the losses since the last question, and the gradient's norm.
        """
        self._results[len(self._steps)].copy_(results)
        self._steps.append(step)

    def ask_ranks(self, summed: Tensor, signal: int, added: Sequence[float] = ()) -> None:
        """Ask for the sums of the losses, by one small message; `summed` () is then set to 0.

        signal: the number of the stop signal that this rank got, 0 if none. added: further numbers to be summed, as
        many on all ranks.
        """
        steps, self._steps = self._steps, []
        count = len(steps)
        shared = count + len(SIGNALS) + len(added)
        values = self._results.new_zeros(shared + count)
        values[:count].copy_(self._results[:count, 0])
        values[shared:].copy_(self._results[:count, 1])
        summed.zero_()
        if signal:
            values[count + SIGNALS.index(signal)].fill_(1)
        for index, number in enumerate(added, count + len(SIGNALS)):
            values[index].fill_(number)
        self.dist.all_reduce(values[:shared])
        arrived = None
        if values.device.type != "cpu":
            values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            arrived = torch.Event(self.dist.device)
            arrived.record()
        self._questions.append((steps, values, shared, arrived))

    def take_answers(self, wait: bool) -> list[Answer]:
        """Return the answers not returned yet; on an accelerator all but the latest. wait: wait for that, too."""
        answers = []
        while len(self._questions) > (0 if wait else self.late):
            steps, arriving, shared, arrived = self._questions.popleft()
            if arrived is not None:
                arrived.synchronize()
            values, count = arriving.tolist(), len(steps)
            signals = [number for number, of_ranks in zip(SIGNALS, values[count:], strict=False) if of_ranks]
            stopped_by, added = signal_name(max(signals, default=0)), values[count + len(SIGNALS) : shared]
            answers.append(Answer(steps, values[:count], values[shared:], stopped_by, added))
        return answers
