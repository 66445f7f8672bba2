"""Training steps made by the suite's own trainer, with batches that lie on the device or are read from files.

A variant is a set of configuration keys. The trainer runs one epoch of a problem that differs from the real one in
two things only: its batches come from `Watch`, which also marks the device's work whenever the trainer asks for the
next one, and its evaluation is left out unless it is what is measured.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import shutil
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import numpy as np
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import cosmoflow.train
import deepcam.train
import oc20.train
from common.commands.train import main as run_train_command
from common.training.graph import WARM_UP
from gpu import inputs
from gpu.candidates import switch_on
from gpu.cases import Bench, WrongError
from gpu.references import compare
from gpu.results import Row, describe_fault
from gpu.variants import COLD, PLAINER, Variant

BENCHMARKS: Final = {
    "cosmoflow": cosmoflow.train.BENCHMARK,
    "deepcam": deepcam.train.BENCHMARK,
    "oc20": oc20.train.BENCHMARK,
}
TINY: Final = {
    # In fp16: Triton's interpreter has no products in bf16.
    "cosmoflow": ("data.sample_shape=[4, 4, 4, 4]", "model.conv_layers=2", "precision.dtype=fp16"),
    "deepcam": ("data.height=32", "data.width=48", "model.width=0.05", "model.middle_blocks=0"),
    "oc20": (
        *("model.hidden=16", "model.blocks=1", "model.interaction=8", "model.spherical=2", "model.radial=2"),
        *("model.out=16", "model.basis=4"),
    ),
}
FORMATS: Final = {"cosmoflow": "tfrecord", "deepcam": "npy", "oc20": "compact"}
OWN_KEYS: Final = {"deepcam": ("compile=false",), "oc20": ("data.balance=none",)}
"""Unless a variant has others: defaults that depend on the card would be measured as something else."""
MOST_STEPS: Final = 20_000
"""Of a measurement that lasts for some time."""


@dataclass(frozen=True)
class Plan:
    """The steps of a measurement: to warm up, to note waits for the device, timed ones, and some under the profiler.

    seconds: if not 0, steps are timed for so long instead. different: batches that lie on the device, at most.
    needs_s: not started with less time left. warms_up: whether the trainer warms up before its run: each shape that is
    warmed up takes its time, evaluations too, and the steps are the same.
    """

    warm: int = 14
    watched: int = 10
    timed: int = 40
    profiled: int = 0
    seconds: float = 0.0
    different: int = 4
    needs_s: float = 8.0
    warms_up: bool = False

    @property
    def steps(self) -> int:
        return self.warm + self.watched + self.timed + self.profiled + 1


LOSS_STEPS: Final = 8
"""The first steps, whose losses are kept: then those of a small CosmoFlow in bf16 and in float32 are 0.3 % apart.

After 24 steps it is up to 0.7 %, as rounding drives trainings apart.
"""
LOSS_WITHIN: Final = 0.01
"""Rounding changes the mean loss of the first steps by less: each step draws its dropout from a seed of its own."""
TIMES_PLAIN: Final = 1.5
"""So many times the mean errors of torch's own operations in the same format are right."""
NOT_CHECKED: Final = "not checked"


class EnoughError(Exception):
    """The time of a measurement is over."""


class Watch:
    """Gives a trainer its batches, and watches the device between two of them."""

    def __init__(self, bench: Bench, plan: Plan) -> None:
        self.bench, self.plan = bench, plan
        self.marks: list[Any] = []
        self.host_s: list[float] = []
        self.waited_s: list[float] = []
        self.began_s = self.warm_s = self.held_s = 0.0
        self.recorded_at = 0.0
        self.edges: list[float] = []
        self.is_over = False
        self.waits: list[str] = []
        self.table = ""
        self._inside = contextlib.ExitStack()
        self._profile: Any = None
        self._ends = 0.0

    def before(self, step: int) -> None:
        """Note that the trainer asks for the batch of this step."""
        plan, first_timed = self.plan, self.plan.warm + self.plan.watched
        if step == 0:
            self.began_s = time.perf_counter()
        if step == WARM_UP + 1:  # the first step that is recorded if nothing was warmed up has been asked for
            self.bench.clock.finish()
            self.recorded_at = time.time()
        if step == plan.warm:
            self.bench.clock.finish()
            self.warm_s = time.perf_counter() - self.began_s
            self.waits = self._inside.enter_context(self.bench.clock.waits())
        if step == first_timed:
            self._inside.close()
            self._ends = time.monotonic() + plan.seconds
        last_timed = first_timed + plan.timed
        if first_timed <= step and (step <= last_timed or plan.seconds):
            self.marks.append(self.bench.clock.mark())
            self.host_s.append(time.perf_counter())
        if step == last_timed and plan.profiled:
            kinds = [ProfilerActivity.CPU]
            if self.bench.device.type == "cuda":
                kinds.append(ProfilerActivity.CUDA)
            self._profile = self._inside.enter_context(profile(activities=kinds))
        if plan.seconds and step > first_timed and time.monotonic() > self._ends:
            self.is_over = True
            raise EnoughError

    def note(self, batch: Any, samples: Any) -> None:
        """Note the wait for a batch, and the edges of frames."""
        self.waited_s.append(batch.wait_s)
        if hasattr(samples, "sizes"):
            self.edges.append(float(samples.sizes.neighbors[batch.indices].mean()))

    def close(self) -> None:
        """End what is still watched."""
        self.bench.clock.finish()
        self._inside.close()
        if self._profile is not None:
            by = "self_device_time_total" if self.bench.device.type == "cuda" else "self_cpu_time_total"
            self.table = self._profile.key_averages().table(sort_by=by, row_limit=60, max_name_column_width=90)


def watched(kind: type, watch: Watch, resident: bool, evaluates: bool) -> type:
    """Return a problem's class whose batches go through the watch.

    resident: the batches lie on the device; otherwise they are read. evaluates: evaluations are watched, not steps.
    """

    class Watched(kind):  # type: ignore[misc,valid-type]  # a class by contract
        def __init__(self, config: Any, dist: Any, seed: int) -> None:
            super().__init__(config, dist, seed)
            size = config.train.global_batch_size
            steps = watch.plan.steps if not watch.plan.seconds else MOST_STEPS
            self.train_samples = size * (1 if evaluates else steps)
            if evaluates:
                self.eval_samples = (config.train.eval_batch_size or size) * watch.plan.steps

        def order(self, epoch: int) -> np.ndarray:
            return np.arange(self.train_samples) % len(self.sets["train"])

        def eval_share(self) -> np.ndarray:
            return np.arange(self.eval_samples) % len(self.sets["validation"])

        def read(self, samples: Any, indices: Iterable[np.ndarray]) -> Generator[Any]:
            counted = samples is self.sets["validation" if evaluates else "train"]
            read, chosen = super().read, iter(indices)
            if resident:
                begin = time.perf_counter()
                first = list(itertools.islice(chosen, watch.plan.different))
                held = [replace(cloned(batch), wait_s=0.0) for batch in read(samples, first)]
                watch.held_s = time.perf_counter() - begin
                source = (held[step % len(held)] for step, _ in enumerate(itertools.chain(first, chosen)))
            else:
                source = read(samples, chosen)
            with contextlib.closing(source):
                for step in itertools.count():
                    if counted:
                        watch.before(step)
                    batch = next(source, None)
                    if batch is None:
                        return
                    if counted:
                        watch.note(batch, samples)
                    yield batch

        def evaluate(self) -> float:
            if evaluates:
                return float(super().evaluate())
            return 0.0 if not self.reference.target.lower_is_better else 99.0

    return Watched


def cloned(value: Any) -> Any:
    """Return a copy of nested dataclasses with tensors of their own."""
    if isinstance(value, Tensor):
        return value.clone()
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: cloned(getattr(value, one.name)) for one in fields(value)})
    return value


# -- measurements --------------------------------------------------------------------------------------------


def arguments(bench: Bench, network: str, batch: int, variant: Variant, folder: Path) -> list[str]:
    """Return the arguments of the training command."""
    data = inputs.folder(bench, "packed" if "data.format=packed" in variant.keys else network)
    return [
        "config",
        f"output_dir={folder}",
        f"data.data_dir={data}",
        f"data.format={FORMATS[network]}",
        *("data.train_samples=null", "data.eval_samples=null"),
        *("submission.division=open", "train.epochs=1", "train.seed=1", "train.tail=drop", "checkpoint.every_epochs=0"),
        f"train.global_batch_size={batch}",
        f"dist.device={bench.device.type}",
        "precision.dtype=bf16",
        *(TINY[network] if bench.dry else ()),
        *OWN_KEYS.get(network, ()),
        *variant.overrides,
    ]


def train(
    bench: Bench, network: str, batch: int, variant: Variant, watch: Watch, **how: bool
) -> tuple[list[float], Row]:
    """Run the training command; return the losses of the first steps, and the row of what it says.

    There are no losses if it was ended. The row has the samples per second and the seconds before them, and a note if
    its steps were not recorded.
    """
    bench.clock.forget()
    folder = bench.work / f"run-{network}"
    shutil.rmtree(folder, ignore_errors=True)
    given = {"resident": True, "evaluates": False} | how
    keys = [COLD] if given["resident"] and not watch.plan.warms_up else []
    benchmark = BENCHMARKS[network]
    benchmark = replace(benchmark, problem=watched(benchmark.problem, watch, **given))
    said = io.StringIO()
    try:
        # EnoughError is that of code outside the suite, which the command reports as its cause.
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(EnoughError):
            run_train_command(benchmark, [*arguments(bench, network, batch, variant, folder), *keys])
        ended = not watch.is_over
    finally:
        watch.close()
        print(said.getvalue())
    lines = said.getvalue().strip().splitlines()
    losses = read_losses(folder) if ended else []
    if ended and not losses:
        raise RuntimeError(lines[-1] if lines else "no steps")
    row = rates(bench, batch, watch)
    if not given["evaluates"]:
        row |= start_times(folder, watch)
    if reasons := [line for line in lines if "without CUDA graphs" in line]:
        row["note"] = reasons[0]
    shutil.rmtree(folder)
    return losses, row


def read_losses(folder: Path) -> list[float]:
    """Return the losses of a run's first steps, none if there are none."""
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return [record["loss"] for record in map(json.loads, lines) if record["kind"] == "step"][:LOSS_STEPS]


def log_events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a run's log, none if there is no log."""
    log = folder / "result_0.txt"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]


def start_times(folder: Path, watch: Watch | None = None) -> Row:
    """Return the seconds that a run warmed up before its start, and from there until its first recorded step is done.

    The latter without those in which the batches were brought to the device.
    """
    events = {event["key"]: event for event in log_events(folder)}
    row: Row = {}
    warm_up_s = events.get("init_stop", {}).get("metadata", {}).get("warm_up_s")
    if warm_up_s is not None:
        row["warm_up_s"] = float(warm_up_s)
    if watch is not None and watch.recorded_at and "run_start" in events:
        row["until_recorded_s"] = watch.recorded_at - events["run_start"]["time_ms"] / 1e3 - watch.held_s
    return row


def check(bench: Bench, network: str, variant: Variant, format: str = "bf16") -> None:
    """Raise WrongError unless a variant's network gives the reference's numbers, about as well as torch's operations.

    RuntimeError for a candidate that there is not.
    """
    plain = compare_network(bench, network, Variant(""), format)
    with switch_on(variant.candidates):
        row = compare_network(bench, network, variant, format)
    if "wrong" in row or "error" in row:
        raise WrongError(f"not timed, as the network is wrong: {row.get('wrong') or row.get('error')}")
    for error in ("output_error", "gradient_error"):
        if not row[error] <= TIMES_PLAIN * plain.get(error, math.inf):
            raise WrongError(f"not timed, as {error} is {row[error]:.2g}, with torch's operations {plain[error]:.2g}")


def compare_network(bench: Bench, network: str, variant: Variant, format: str) -> Row:
    """Return the row of a variant's network, whose candidates are on, beside its references; measured once in a run."""
    names = {"network": network, "model": str(variant.model), "format": format}
    names["candidates"] = ", ".join(variant.candidates)
    known = bench.found("right", **names)
    if known is not None:
        return known
    with bench.case("right", **names) as row:
        row.update(compare(network, variant.model, format, bench.device, bench.dry))
    return row


def step(bench: Bench, network: str, batch: int, variant: Variant, plan: Plan) -> None:
    """Measure training steps on batches that lie on the device; wrong networks are not timed."""
    names = {"network": network, "batch": batch, "variant": variant.name}
    if bench.lacks_time(plan.needs_s, "step", **names):
        return
    with bench.case("step", **names) as row:
        check(bench, network, variant)
        watch = Watch(bench, plan)
        with switch_on(variant.candidates):
            losses, measured = train(bench, network, batch, variant, watch)
        row.update(measured, losses=losses)
        if watch.table:
            bench.profile(f"{network}, batch {batch}, {variant.name}", watch.table)
        row["losses_like"] = compare_losses(bench, row)


def rates(bench: Bench, batch: int, watch: Watch) -> Row:
    """Return what the watch has measured."""
    found: Row = dict(bench.clock.steps_ms(watch.marks))
    host_s = [last - first for first, last in itertools.pairwise(watch.host_s)]
    waited_s = watch.waited_s[-len(host_s) :]
    found |= {
        "per_s": 1e3 * batch / found["ms"],
        "host_ms": 1e3 * median(host_s),
        "wait_share": sum(waited_s) / sum(host_s),
        "memory_mb": bench.clock.memory_mb(),
        "warm_s": watch.warm_s,
        "waits": len(watch.waits),
    }
    if watch.waits:
        found["waits_at"] = sorted(set(watch.waits))[:8]
    if watch.edges:
        found["edges"] = mean(watch.edges)
    return found


def compare_losses(bench: Bench, row: Row) -> str:
    """Return the plainer variant of the same batches whose first losses are the row's, NOT_CHECKED if there is none.

    WrongError if they differ.
    """
    for variant in PLAINER:
        plain = bench.found(row["what"], network=row["network"], batch=row["batch"], variant=variant.name)
        if variant.name == row["variant"] or plain is None or describe_fault(plain) or not plain.get("losses"):
            continue
        first = min(len(row["losses"]), len(plain["losses"]))
        ours, theirs = (mean(losses[:first]) for losses in (row["losses"], plain["losses"]))
        row["losses_apart"] = abs(ours / theirs - 1)
        if not row["losses_apart"] <= LOSS_WITHIN:
            raise WrongError(f"the mean loss of {first} steps is {ours:.5g}, that of {variant.name} {theirs:.5g}")
        return variant.name
    return NOT_CHECKED
