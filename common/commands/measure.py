"""The command `measure`: the speed of training steps, in minutes and without a dataset."""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from tqdm import tqdm

from common import mllog
from common.command import UsageError, as_called, run_command
from common.commands.arguments import (
    FEWEST,
    FIDELITY_SEEDS,
    FIDELITY_STEPS,
    FIRST,
    FIRST_ACCELERATOR,
    parse_measurement,
)
from common.config import load
from common.data.sampling import step_seed
from common.files import LOG_NAME, POWER
from common.installed import find_config, is_name
from common.measure.fom import ERRORS, NAME, SYNTHETIC, Measurement
from common.measure.meter import Meter, count_bytes
from common.measure.power_sources import parse_source
from common.own_code import describe_codes, import_all
from common.precision import Precision, resolved
from common.processes import keep_freed_memory
from common.ranks.connect import connect
from common.ranks.dist import Dist
from common.reference import FULL
from common.training import optim
from common.training.benchmark import Benchmark, Problem
from common.training.faults import explain_out_of_memory
from common.training.job import free_memory
from common.training.merit import describe_energy, describe_units, recording_power
from common.training.profile import FOLDER, Profiler, SampleFlops
from common.training.run import TRAINING_ERRORS, ranks_text
from common.training.step import FlatGradients, Step, warm_up, warms_up

NO_RESULT: Final = "a measurement of training steps, not an MLPerf result"
_ATEN: Final = torch.ops.aten


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 after an error, 2 for wrong use."""
    arguments = parse_measurement(benchmark.name, argv)
    return run_command(lambda: _measure(benchmark, arguments), TRAINING_ERRORS)


def _measure(benchmark: Benchmark, arguments: argparse.Namespace) -> int:
    file = find_config(benchmark.name, arguments.config)
    first = load(benchmark.config, file, arguments.override)
    output = arguments.output or Path("runs") / f"{benchmark.name}-measure" / NAME
    _check_config(first, arguments.override, output)
    import_all(first.train.imports)
    folder = arguments.data or Path("data") / f"{benchmark.name}-measure-{first.variant}"
    with connect(first.dist, TRAINING_ERRORS) as dist:
        if dist.device.type == "cpu":
            keep_freed_memory(first.dist.sharing)
        data = [f"data.data_dir={folder}", "data.train_samples=null", "data.eval_samples=null", "train.tail=drop"]
        kept = [] if arguments.data else ["data.cache=true"]  # reading is measured where data are named
        batch = [f"train.global_batch_size={dist.data_size}"] if first.variant == FULL else []
        config = load(benchmark.config, file, [*batch, *kept, *data, *arguments.override])
        if dist.is_main and not arguments.data:
            if not is_name(arguments.config):
                print(f"data.data_dir of {file} is not read; --data {first.data.data_dir} measures with these files")
            _provide_few(benchmark.name, folder, config)
        dist.barrier()
        with explain_out_of_memory(config, dist):
            measurement = _measure_config(benchmark, config, dist, arguments, output)
            fidelity = _measure_fidelity(benchmark, config, dist) if arguments.fidelity else {}
        if measurement is not None:
            _show_measurement(replace(measurement, **fidelity), output)
    return 0


def _provide_few(name: str, folder: Path, config: Any) -> None:
    """Generate a few samples of a variant in a folder, by the benchmark's own command; UsageError if it has none."""
    module = f"{name}.synthesize"
    if find_spec(module) is None:
        raise UsageError(f"{name} has no synthesize.py, which would generate samples: measure with --data DIR")
    import_module(module).SYNTHESIS.provide_few(folder, config.variant, config.data)


def _measure_config(
    benchmark: Benchmark, config: Any, dist: Dist, arguments: argparse.Namespace, output: Path
) -> Measurement | None:
    """Measure the steps of a configuration; return their figure of merit on rank 0. A collective call."""
    torch.manual_seed(0)
    problem = benchmark.build_problem(config, dist, 0)
    if dist.is_main:
        print(f"{benchmark.name}: {ranks_text(dist, 0)}\n{problem.describe()}", flush=True)
    flops = problem.count_flops() if dist.is_main else None
    precision = Precision(config.precision, dist.device)
    optimizer = optim.build(config.optim, problem.model.parameters(), config.schedule.base_lr)
    meter = Meter(dist)
    if dist.is_main:
        output.parent.mkdir(parents=True, exist_ok=True)
        if config.power.source:
            mllog.set_aside(output.parent / POWER)
    profiler = Profiler(config.profile, output.parent / FOLDER, dist, print)
    step = Step(problem, optimizer, precision, dist)
    with closing(problem), closing(step):
        warmed = warms_up(config.train, problem, dist.device)
        if warmed:
            warm_up(problem, precision, dist, step, evaluates=False)
        arguments.warmup = arguments.warmup or (FIRST if warmed or dist.device.type == "cpu" else FIRST_ACCELERATOR)
        with recording_power(config.power, output.parent, dist):
            times, clock, numbers = _time_steps(problem, step, meter, profiler, arguments)
    if flops is None:
        return None
    numbers["own_code"] = describe_codes(benchmark.list_own_code(config)) or None
    if config.power.source:
        numbers |= describe_energy(output.parent / POWER, dist, clock, len(times) * problem.batching.global_batch_size)
    return _describe_steps(problem, times, numbers, flops, str(arguments.data or SYNTHETIC))


def _check_config(config: Any, overrides: Sequence[str], output: Path) -> None:
    """Raise UsageError for what cannot be measured, or would take the place of a training's files."""
    if config.instances.count > 1 or config.train.eval_ranks:
        raise UsageError("a measurement has one instance, whose ranks all train: leave instances and eval_ranks out")
    if config.power.source:
        parse_source(config.power.source, "power.source")
    if any(override.startswith("data.data_dir=") for override in overrides):
        raise UsageError("a measurement reads its samples from --data DIR: give it instead of data.data_dir")
    if (output.parent / LOG_NAME).exists():
        raise UsageError(f"{output.parent} is the folder of a training, with its own {NAME}: name another with -o")


# -- the steps -----------------------------------------------------------------------------------------------


def _time_steps(
    problem: Problem, step: Step, meter: Meter, profiler: Profiler, arguments: argparse.Namespace
) -> tuple[list[float], tuple[float, float], dict[str, Any]]:
    """Make steps, and measure those after the first ones; all ranks make as many. A collective call.

    Returns the seconds of each, when they began and ended in ms since 1970, and other fields of the `Measurement`.
    """
    dist = meter.dist
    parts, size = problem.batching.accumulation, problem.batching.global_batch_size
    rate = problem.config.schedule.rate(size, 0, 0, 1000)
    problem.model.train()
    with closing(_repeat_batches(problem, dist)) as batches:

        def make_steps(steps: int, noun: str) -> None:
            # None: shown on a terminal only
            for _ in tqdm(range(steps), desc=noun, unit="step", leave=False, disable=None if dist.is_main else True):
                meter.run_step(lambda: step(batches, parts, size, rate))

        make_steps(arguments.warmup, "warm-up")
        fit = arguments.seconds / max(meter.last_s(), 1e-9)
        steps = dist.broadcast_json(max(FEWEST, int(min(arguments.steps, fit))))
        meter.clear_steps()
        begin_ms = time.time() * 1000
        make_steps(steps, "steps")
        times, use = meter.gather_use()
        clock = (begin_ms, time.time() * 1000)
        numbers = {
            **use,
            "warmup_steps": arguments.warmup,
            "memory_bytes": int(dist.all_reduce(torch.tensor(_find_peak_memory(dist)), "max")),
        }
        with profiler:  # steps of its own: tracing takes time
            watched = profiler.watched(batches)
            for _ in range(profiler.config.needed):
                step(watched, parts, size, rate)
                profiler.step_done()
        touched = count_bytes(lambda: _pass_batches(problem, step.precision, batches, parts))
    numbers["bytes_touched_per_step"] = int(dist.all_reduce(torch.tensor(touched)))
    return times, clock, numbers


def _pass_batches(problem: Problem, precision: Precision, batches: Iterator[Any], parts: int) -> None:
    """Make the forward and backward pass of a step on this rank alone."""
    for _ in range(parts):
        with precision.autocast():
            loss = problem.loss(problem.model, next(batches))
        precision.backward(loss)


def _repeat_batches(problem: Problem, dist: Dist, numbers: Iterable[int] | None = None) -> Generator[Any]:
    """Yield this rank's parts of global batches; the samples come again and again, as many as there are.

    numbers: of the batches, each of other samples while there are any; None: all, without end.
    """
    size = problem.batching.global_batch_size

    def yield_indices() -> Iterator[np.ndarray]:
        for number in count() if numbers is None else numbers:
            order: np.ndarray = np.arange(number * size, (number + 1) * size) % problem.train_samples
            for batch in problem.batching.batches(problem.drawn[order], dist.data_rank, dist.data_size):
                yield from batch.parts

    with closing(problem.read(problem.sets["train"], yield_indices())) as batches:
        for batch in batches:
            yield problem.prepared(problem.augmented(batch, 0))


# -- the fidelity --------------------------------------------------------------------------------------------


class _ReversedSums(TorchDispatchMode):
    """Adds up the terms of products and convolutions in reverse, which changes nothing but the rounding."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket in (_ATEN.mm, _ATEN.addmm, _ATEN.bmm, _ATEN.baddbmm):
            *added, left, right = args
            return func(*added, left.flip(-1), right.flip(-2), **kwargs)
        if func.overloadpacket in (_ATEN.convolution, _ATEN.convolution_backward):
            return _reverse(func(*_reverse(args), **_reverse(kwargs)))
        return func(*args, **kwargs)


def _reverse(tree: Any) -> Any:
    """Reverse samples and channels of inputs and outputs, and the channels of weights: the first two dimensions."""
    return tree_map_only(Tensor, lambda each: each.flip(tuple(range(min(2, each.dim())))), tree)


class _Trial(NamedTuple):
    """What a precision makes of a network. losses: of each step. outputs, gradients: of samples not trained on."""

    losses: list[float]
    weights: dict[str, Tensor]
    outputs: list[Tensor]
    gradients: list[Tensor]


def _measure_fidelity(benchmark: Benchmark, config: Any, dist: Dist) -> dict[str, Any]:
    """Return how far the configured precision, of messages too, is from float32, for `Measurement`.

    The ruler is float32 with sums in another order. Seeds, samples and rates are the same for all three. A collective
    call; FloatingPointError for a loss that is not finite, or does not fall.
    """
    dtype, reference = resolved(config.precision, dist.device), replace(config.precision, dtype="fp32")
    if dtype == "fp32" and (dist.world_size == 1 or config.dist.gradients == "fp32"):
        return dict.fromkeys(ERRORS, (0.0,))
    errors: dict[str, list[float]] = defaultdict(list)
    build = partial(benchmark.build_problem, config, dist)
    build_fp32 = partial(benchmark.build_problem, replace(config, precision=reference), dist.in_float32())
    hidden = None if dist.is_main else True  # None: shown on a terminal only
    for seed in tqdm(range(FIDELITY_SEEDS), f"{dtype} and fp32", unit="seed", leave=False, disable=hidden):
        exact = _try_precision(build_fp32, seed, FIDELITY_STEPS)
        tried = _try_precision(build, seed, FIDELITY_STEPS, exact.weights)
        with _ReversedSums():
            again = _try_precision(build_fp32, seed, 0, exact.weights)
        fall = exact.losses[0] - exact.losses[-1]
        if not (fall > 0 and all(map(math.isfinite, tried.losses))):
            raise FloatingPointError(
                f"--fidelity: in {FIDELITY_STEPS} steps on one batch the loss goes from {exact.losses[0]:.6g} to "
                f"{exact.losses[-1]:.6g} in float32, and to {tried.losses[-1]:.6g} as configured; expected it to fall: "
                "change schedule.base_lr"
            )
        errors["loss_errors"].append(
            statistics.fmean(abs(loss - right) for loss, right in zip(tried.losses, exact.losses, strict=True)) / fall
        )
        for prefix, trial in (("", tried), ("fp32_", again)):
            errors[f"{prefix}output_errors"].append(_find_error(trial.outputs, exact.outputs, dist))
            errors[f"{prefix}gradient_errors"].append(_find_error(trial.gradients, exact.gradients, dist))
    return {name: tuple(values) for name, values in errors.items()}


def _try_precision(
    build: Callable[[int], Problem], seed: int, steps: int, weights: dict[str, Tensor] | None = None
) -> _Trial:
    """Train on one batch at the rates of a first epoch of that many steps; then compute with another batch.

    build: makes the problem of a seed. weights: of the network that computes; None: those trained. It is in evaluation
    mode, without dropout and without statistics of the batch. A collective call.
    """
    problem = build(seed)
    config, dist = problem.config, problem.dist
    free_memory(dist.device)  # of the trial before
    precision = Precision(config.precision, dist.device)
    network, parts, size = problem.model, problem.batching.accumulation, problem.batching.global_batch_size
    step = Step(problem, optim.build(config.optim, network.parameters(), config.schedule.base_lr), precision, dist)
    losses = []
    network.train()
    with closing(problem), closing(step), closing(_repeat_batches(problem, dist, [0] * steps + [1, 1])) as batches:
        for number in range(steps):
            torch.manual_seed(step_seed(seed, dist.data_rank, 0, number))
            step.summed.zero_()
            step(batches, parts, size, config.schedule.rate(size, 0, number, steps))
            losses.append(float(dist.all_reduce(step.summed.clone())) / size)
        weights = weights or {name: value.clone() for name, value in network.state_dict().items()}
        network.load_state_dict(weights)
        network.eval().zero_grad()
        with torch.no_grad(), problem.evaluating(), precision.autocast():
            outputs = [problem.predictions(network, batch).float() for batch in islice(batches, parts)]
        _pass_batches(problem, precision, batches, parts)
        FlatGradients(network.parameters(), dist).average()
        gradients = [precision.unscaled(each.grad) for each in network.parameters() if each.grad is not None]
    return _Trial(losses, weights, outputs, gradients)


def _find_error(tensors: Sequence[Tensor], exact: Sequence[Tensor], dist: Dist) -> float:
    """Return the norm of the differences of all ranks' tensors by the norm of the exact ones. A collective call."""
    pairs = [(tensor.double(), other.double()) for tensor, other in zip(tensors, exact, strict=True)]
    squares = [torch.stack([(tensor - other).square().sum(), other.square().sum()]) for tensor, other in pairs]
    apart, norm = dist.all_reduce(torch.stack(squares).sum(0)).tolist()
    return math.sqrt(apart / norm) if norm else math.inf


# -- the figure of merit -------------------------------------------------------------------------------------


def _describe_steps(
    problem: Problem, times: Sequence[float], numbers: Mapping[str, Any], flops: SampleFlops, data: str
) -> Measurement:
    """Return the figure of merit of the steps."""
    dist, median, batch = problem.dist, statistics.median(times), problem.batching.global_batch_size
    flop_per_s = flops.training * batch / median
    return Measurement(
        **numbers,
        benchmark=problem.config.reference.name,
        samples_per_s=batch / median,
        batch=batch,
        spread=statistics.stdev(times) / median,
        network=problem.config.variant,
        step_ms=tuple(round(1000 * seconds, 3) for seconds in times),
        median_step_ms=1000 * median,
        samples_per_s_per_unit=batch / median / dist.world_size,
        flop_per_step=flops.training * batch,
        flop_per_s=flop_per_s,
        table3_flop_per_step=problem.count_table3() * batch,
        data=data,
        **describe_units(dist, resolved(problem.config.precision, dist.device), flop_per_s),
    )


def _find_peak_memory(dist: Dist) -> int:
    if dist.device.type != "cpu":
        return int(torch.get_device_module(dist.device).max_memory_allocated(dist.device))
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _describe_fidelity(m: Measurement) -> str:
    """Return a line on how far a measurement is from float32, by medians over the seeds; "" if it was not asked for."""
    if not m.loss_errors:
        return ""
    if not m.fp32_output_errors:
        return "fidelity: the precision is float32 itself, that of messages too\n"
    texts = []
    for name in ("output_errors", "gradient_errors"):
        error, ruler = (statistics.median(getattr(m, prefix + name)) for prefix in ("", "fp32_"))
        times = error / max(ruler, 2**-24)  # at least what rounds a single number
        texts.append(f"{ERRORS[name]} {error:.2%} from float32's, {times:,.0f} times its rounding")
    precision = "fp32 with messages in bf16" if m.dtype == "fp32" else m.dtype
    loss = f"losses {statistics.median(m.loss_errors):.2%} of their fall apart"
    return f"fidelity of {precision}: {'; '.join([*texts, loss])}\n"


def _show_measurement(measurement: Measurement, path: Path) -> None:
    m = measurement
    low, high = min(m.step_ms), max(m.step_ms)
    peak = "" if m.utilization is None else f": {m.utilization:.2%} of the {m.peak_format} peak"
    following = f"what limits it: python -m common.measure roofline {path}"
    if m.network == FULL:
        following += f"\ncompare it:    python -m submission.summary {path}"
    print(
        f"{len(m.step_ms)} steps after {m.warmup_steps} of warm-up: median {m.median_step_ms:,.1f} ms"
        f", {low:,.1f} to {high:,.1f} ms\n"
        f"of a step: {m.computing_ms:,.1f} ms computing, {m.waiting_ms:,.1f} waiting for data, "
        f"{m.communicating_ms:,.1f} communicating\n"
        f"{m.samples_per_s_per_unit:.4g} samples/s per unit; at most {m.memory_bytes / 1e9:.2f} GB per rank\n"
        f"{m.flop_per_s / 1e9:,.1f} GFLOP/s in all, of the convolutions and matrix products that are made{peak}\n"
        f"{_describe_fidelity(m)}{m.line}",
        flush=True,
    )
    m.write_file(path)  # afterwards: if it fails, the numbers are there
    print(f"{path}: {NO_RESULT}\n{as_called(following)}", flush=True)
