"""Execute every usual shape of a run before it starts, so that what happens once per process is not on its clock.

cuDNN then has timed its algorithms, Triton and torch have compiled and loaded their kernels, communicators have
connected, and steps are recorded. On an H200 the first 22 steps of DeepCAM took 43 s, and 2.7 s later in the same
process (docs/performance/gpu.md). The rules leave 30 minutes of untimed initialisation in which no data are touched
(training_rules.adoc#timing): batches are made up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from common.precision import Precision
from common.ranks.dist import Dist
from common.settings.run import TrainConfig
from common.training.benchmark import Problem
from common.training.graph import WARM_UP
from common.training.step import Step


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
    with _unchanged(problem.model, precision, device, step.optimizer if step else None):
        if step is not None:
            problem.model.train()
            shapes = tqdm(problem.synthetic_steps(), desc="warm-up", unit="shape", leave=False, disable=quiet or None)
            with step.rehearsing():
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
def _unchanged(
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
