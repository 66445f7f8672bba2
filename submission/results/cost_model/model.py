"""The least time of a training step by the ceilings of the hardware, for any number of units.

step = max(compute, memory, input, network): all four overlap perfectly, and each runs at its ceiling. Latencies,
waiting for the slowest unit and operations below the ceilings are not in it, so that it is a bound and no forecast:
`published_pairs` says how far published results are from it. Several ranks may share a sample (`spatial`). Gradients
are summed in fp32 by a ring over all units; a sum in fp16, first inside of nodes, or in the switches sends less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, Final

from common.command import counted
from common.config import load, rebuild
from common.measure.accelerators import Ceilings, ceilings_of
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import plain
from submission.results.fits.fit import percent, scaling_pairs
from submission.results.quantities import EPOCH_TIME, AnalysedSet
from submission.results.quantity_tables import number

HERE: Final = Path(__file__).parent
STATED_VALUE_BYTES: Final = 2
"""Bytes of a value for which workloads state memory and halo traffic."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Costs of one sample; what the keys mean: workloads.yaml."""

    forward_flop: float
    training_flop: float
    memory_bytes: float
    input_bytes: float
    gradient_bytes: float
    train_samples: int
    eval_samples: int
    source: str
    halo_bytes: float | None = None
    most_spatial: int = 1
    atom_flop: float | None = None
    edge_flop: float | None = None
    triplet_flop: float | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int | float) and not 0 < value < math.inf:
                raise ValueError(f"{one.name}: expected a number above 0; got {value}")
        if self.most_spatial > 1 and self.halo_bytes is None:
            raise ValueError("most_spatial above 1 needs halo_bytes, what ranks that share a sample send for it")


@dataclass(frozen=True, slots=True)
class _WorkloadsFile:
    workloads: dict[str, dict[str, Any]]


def read_workloads(path: Path = HERE / "workloads.yaml") -> dict[str, Workload]:
    """Return the workloads of a file by name; UsageError as for ceilings."""
    entries = load(_WorkloadsFile, path).workloads
    return {name: rebuild(Workload, one, f"{path}: workloads.{name}") for name, one in entries.items()}


def workload_of(benchmark: str, round_: str, known: Mapping[str, Workload]) -> str:
    """Return the name of the workload of a benchmark in a round, "" if there is none."""
    return next((name for name in (f"{benchmark}@{round_}", benchmark) if name in known), "")


@dataclass(frozen=True, slots=True)
class CostedStep:
    """The least time of a training step; times in seconds.

    spatial: ranks that share a sample. binds: which of the four times is the longest. epoch_seconds: of all training
    steps and the evaluation.
    """

    workload: str
    ceilings: str
    units: int
    batch_size: int
    spatial: int
    compute: float
    memory: float
    input: float
    network: float
    step: float
    binds: str
    samples_per_s: float
    epoch_seconds: float


@dataclass(frozen=True, slots=True)
class CostedPair:
    """Predicted over published time of an epoch, for two results of one system.

    calibrated_ratio: of the second, where the model is multiplied so that it is right for the first; this is also the
    predicted over the published ratio of both times.
    """

    first: str
    second: str
    first_binds: str
    second_binds: str
    first_ratio: float
    second_ratio: float
    calibrated_ratio: float


@dataclass(frozen=True, slots=True)
class ModelError:
    """How far the model is from published pairs: medians of |ratio - 1| for the larger; None without pairs."""

    pairs: tuple[CostedPair, ...]
    median_error: float | None
    median_calibrated_error: float | None

    @property
    def said(self) -> str:
        """The errors in words."""
        if self.median_error is None or self.median_calibrated_error is None:
            expected = "expected results of a system with known ceilings at two scales"
            return f"cost model, a bound and no forecast; its error is unknown: {expected}"
        return (
            f"cost model, a bound and no forecast: over {counted(len(self.pairs), 'pair')} of results the time of an "
            f"epoch at the larger scale is off by {percent(self.median_error)} in the median, and by "
            f"{percent(self.median_calibrated_error)} with one factor for each system, set at its smaller scale"
        )


@dataclass(frozen=True, slots=True)
class CostModel:
    """Workloads and ceilings by name."""

    workloads: Mapping[str, Workload]
    ceilings: Mapping[str, Ceilings]

    def cost(self, workload: str, ceilings: str, units: int, batch: int, spatial: int = 1) -> CostedStep:
        """Return the cost of a step; ValueError if the units cannot share the batch in this way."""
        work, top = self.workloads[workload], self.ceilings[ceilings]
        if min(units, batch, spatial) < 1 or spatial > work.most_spatial or units % spatial:
            raise ValueError(
                f"{workload}: {units} units cannot share samples by {spatial}: expected a divisor of the units, "
                f"at most {work.most_spatial}"
            )
        groups = units // spatial
        if batch < groups:
            raise ValueError(
                f"{workload}: a batch of {batch} leaves units idle: expected at least {groups} samples, one for each "
                f"group of {spatial} units"
            )
        each = math.ceil(batch / groups)
        share, values = each / spatial, top.value_bytes / STATED_VALUE_BYTES
        halo = (work.halo_bytes or 0) * values * each if spatial > 1 else 0.0
        times = {
            "compute": share * work.training_flop / top.peak_flop_per_s,
            "memory": share * work.memory_bytes * values / top.memory_bytes_per_s,
            "input": share * work.input_bytes / top.input_bytes_per_s,
            "network": (2 * (units - 1) / units * work.gradient_bytes + halo) / top.network_bytes_per_s,
        }
        binds = max(times, key=lambda name: times[name])
        step, forward = times[binds], work.forward_flop / work.training_flop
        evaluated = max(times["compute"] * forward, times["memory"] * forward, times["input"]) / (each * groups)
        epoch = math.ceil(work.train_samples / batch) * step + work.eval_samples * evaluated
        rates = {"samples_per_s": batch / step, "epoch_seconds": epoch}
        return CostedStep(workload, ceilings, units, batch, spatial, **times, step=step, binds=binds, **rates)

    def scale_out(self, workload: str, ceilings: str, units: Sequence[int], batch: int) -> list[CostedStep]:
        """Return the cost on each number of units with a batch of at most this size, as far as that is possible.

        More units than samples share samples; if even that leaves units idle, the batch grows.
        """
        found = []
        for count in units:
            most = self.workloads[workload].most_spatial
            ways = [ranks for ranks in range(1, most + 1) if count % ranks == 0]
            spatial = next((ranks for ranks in ways if count // ranks <= batch), ways[-1])
            found.append(self.cost(workload, ceilings, count, max(batch, count // spatial), spatial))
        return found

    def published(self, one: AnalysedSet) -> CostedStep | None:
        """Return the cost of a step of a result, None if it lacks units or batch size or is on unknown hardware."""
        row, ceilings = one.row, ceilings_of(one.row.device, self.ceilings)
        workload = workload_of(row.benchmark, row.round, self.workloads)
        if row.mini or not (workload and ceilings and one.units and row.batch_size):
            return None
        if 1 < one.sharing <= self.workloads[workload].most_spatial and one.units % one.sharing == 0:
            batch = max(row.batch_size, one.units // one.sharing)
            return self.cost(workload, ceilings, one.units, batch, one.sharing)
        return self.scale_out(workload, ceilings, [one.units], row.batch_size)[0]

    def published_pairs(self, sets: Iterable[AnalysedSet]) -> ModelError:
        """Return how far the model is from the published results of systems with several scales."""
        pairs = []
        for first, second in scaling_pairs(sets):
            costs = self.published(first), self.published(second)
            times = [(one.mean(EPOCH_TIME) or 0.0) * 60 for one in (first, second)]
            if costs[0] and costs[1]:
                ratios = costs[0].epoch_seconds / times[0], costs[1].epoch_seconds / times[1]
                binds = (costs[0].binds, costs[1].binds)
                pairs.append(CostedPair(first.full_name, second.full_name, *binds, *ratios, ratios[1] / ratios[0]))
        if not pairs:
            return ModelError((), None, None)
        errors = median(abs(p.second_ratio - 1) for p in pairs), median(abs(p.calibrated_ratio - 1) for p in pairs)
        return ModelError(tuple(pairs), *errors)


def cost_table(steps: Sequence[CostedStep]) -> TextTable:
    """Return costed steps as a table, with times in milliseconds."""
    columns = (
        Column[CostedStep]("workload", "", lambda step: step.workload, numeric=False),
        Column[CostedStep]("ceilings", "", lambda step: step.ceilings, numeric=False),
        Column[CostedStep]("units", "", lambda step: plain(step.units)),
        Column[CostedStep]("batch", "samples", lambda step: plain(step.batch_size)),
        Column[CostedStep]("ranks per", "sample", lambda step: str(step.spatial)),
        Column[CostedStep]("compute", "ms", lambda step: number(1000 * step.compute, 3)),
        Column[CostedStep]("memory", "ms", lambda step: number(1000 * step.memory, 3)),
        Column[CostedStep]("input", "ms", lambda step: number(1000 * step.input, 3)),
        Column[CostedStep]("network", "ms", lambda step: number(1000 * step.network, 3)),
        Column[CostedStep]("binds", "", lambda step: step.binds, numeric=False),
        Column[CostedStep]("rate", "samples/s", lambda step: f"{step.samples_per_s:,.0f}"),
        Column[CostedStep]("epoch", "s", lambda step: number(step.epoch_seconds, 3)),
    )
    return make_table("Least time of a step by the ceilings: a bound, no result", columns, steps)


def error_table(error: ModelError) -> TextTable:
    """Return predicted over published times of an epoch as a table."""
    columns = (
        Column[CostedPair]("smaller result", "", lambda pair: pair.first, numeric=False),
        Column[CostedPair]("larger result", "", lambda pair: pair.second, numeric=False),
        Column[CostedPair]("binds", "smaller, larger", lambda pair: f"{pair.first_binds}, {pair.second_binds}", False),
        Column[CostedPair]("smaller", "pred./meas.", lambda pair: f"{pair.first_ratio:.3f}"),
        Column[CostedPair]("larger", "pred./meas.", lambda pair: f"{pair.second_ratio:.3f}"),
        Column[CostedPair]("larger", "calibrated", lambda pair: f"{pair.calibrated_ratio:.3f}"),
    )
    return make_table(error.said, columns, error.pairs)
