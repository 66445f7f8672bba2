"""The least time of a training step by the ceilings of the hardware, for any number of units.

step = max(compute, memory, input, network): all four overlap perfectly, and each runs at its ceiling. Latencies,
waiting for the slowest unit and operations below the ceilings are not in it, so that it is a bound and no forecast:
`published_pairs` says how far published results are from it. Several ranks may share a sample (`spatial`). Gradients
are summed in fp32 by a ring over all units; a sum in fp16, first inside of nodes, or in the switches sends less.

Records come from host memory. An optional term takes them from storage where the data of a node do not fit into memory;
both of its constants are assumptions, fixed before predictions were compared. `published_pairs` compares the scaling
efficiency with and without it. It is off by default, because it brings the model no nearer to the published results.

"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

from common.command import counted
from common.config import load, rebuild
from common.measure.devices import Ceilings, ceilings_of
from compliance.formats.table import Column, TextTable, make_table
from compliance.formats.words import plain
from submission.results.fits.fit import format_percent, scaling_pairs
from submission.results.quantities import CACHEABLE, EPOCH_TIME, AnalysedSet
from submission.results.quantity_tables import format_number

FILE: Final = Path(__file__).with_name("workloads.yaml")
STATED_VALUE_BYTES: Final = 2
"""Bytes of a value for which workloads state memory and halo traffic."""
STORAGE_BYTES_PER_S: Final = 1e9
"""Assumed rate at which a node reads files, local or not: between a SATA disk (0.5 GB/s) and an NVMe disk (2 GB/s)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Costs of one sample; what the keys mean: workloads.yaml."""

    forward_flop: float
    training_flop: float
    memory_bytes: float
    input_bytes: float
    stored_bytes: float
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
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not 0 < value < math.inf:
                raise ValueError(f"{name}: expected a number above 0; got {value}")
        if self.most_spatial > 1 and self.halo_bytes is None:
            raise ValueError("most_spatial above 1 needs halo_bytes, what ranks that share a sample send for it")


@dataclass(frozen=True, slots=True)
class _WorkloadsFile:
    workloads: dict[str, dict[str, Any]]


@cache
def read_workloads() -> dict[str, Workload]:
    """Return the workloads by name."""
    entries = load(_WorkloadsFile, FILE).workloads
    return {name: rebuild(Workload, entry, f"{FILE}: workloads.{name}") for name, entry in entries.items()}


def workload_of(benchmark: str, round_: str, workloads: Mapping[str, Workload]) -> str:
    """Return the name of the workload of a benchmark in a round, "" if there is none."""
    return next((name for name in (f"{benchmark}@{round_}", benchmark) if name in workloads), "")


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
    predicted over the published ratio of both times. published_efficiency: throughput of an epoch per unit, of the
    second relative to the first; efficiency, storage_efficiency: as predicted, without and with input from storage.
    first_data_in, second_data_in: what can hold the data of a node, see `NodeData.held_by`.
    """

    first: str
    second: str
    first_binds: str
    second_binds: str
    first_ratio: float
    second_ratio: float
    calibrated_ratio: float
    published_efficiency: float
    efficiency: float
    storage_efficiency: float
    first_data_in: str = ""
    second_data_in: str = ""

    @property
    def remark(self) -> str:
        """Where the published efficiency contradicts that memory explains it."""
        data = (self.first_data_in == "memory", self.second_data_in == "memory")
        if all(data) and self.published_efficiency > 1:
            return "better than linear though memory holds the data at both: only a fitted threshold could explain it"
        if data == (False, True) and self.first_data_in and self.published_efficiency < 1:
            return "worse than linear though memory holds the data at the larger scale alone"
        return ""


@dataclass(frozen=True, slots=True)
class ModelError:
    """How far the model is from published pairs: medians of |ratio - 1| for the larger; None without pairs.

    log_error, storage_log_error: sum of |log(predicted / published efficiency)| without and with input from storage.
    """

    pairs: tuple[CostedPair, ...]
    median_error: float | None = None
    median_calibrated_error: float | None = None
    log_error: float | None = None
    storage_log_error: float | None = None

    @property
    def text(self) -> str:
        """The errors in a sentence."""
        if self.median_error is None or self.median_calibrated_error is None:
            expected = "expected results of a system with known ceilings at two scales"
            return f"cost model, a bound and no forecast; its error is unknown: {expected}"
        helps = (self.storage_log_error or 0.0) < (self.log_error or 0.0)
        return (
            f"cost model, a bound and no forecast: over {counted(len(self.pairs), 'pair')} of results the time of an "
            f"epoch at the larger scale is off by {format_percent(self.median_error)} in the median, and by "
            f"{format_percent(self.median_calibrated_error)} with one factor for each system, set at its smaller "
            f"scale; the sum of |log error| of the efficiency is {self.log_error:.3f}, and "
            f"{self.storage_log_error:.3f} if data beyond {format_percent(CACHEABLE)} of a node's memory are read "
            f"from storage at {STORAGE_BYTES_PER_S / 1e9:g} GB/s (assumptions)"
            f"{'' if helps else ': no better, so that this term stays off'}"
        )


@dataclass(frozen=True, slots=True)
class CostModel:
    """Workloads and ceilings by name."""

    workloads: Mapping[str, Workload]
    ceilings: Mapping[str, Ceilings]

    def cost_step(self, workload: str, ceilings: str, units: int, batch: int, spatial: int = 1) -> CostedStep:
        """Return the cost of a step; ValueError if the units cannot share the batch in this way."""
        work, top = self.workloads[workload], self.ceilings[ceilings]
        if min(units, spatial) < 1 or spatial > work.most_spatial or units % spatial or batch < units // spatial:
            raise ValueError(
                f"{workload}: {units} units, {spatial} of which share a sample, cannot work on a batch of {batch}: "
                f"expected at most {work.most_spatial}, a divisor of the units, and a sample for each group"
            )
        groups = units // spatial
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
        steps = []
        for count in units:
            ways = [ranks for ranks in range(1, self.workloads[workload].most_spatial + 1) if count % ranks == 0]
            spatial = next((ranks for ranks in ways if count // ranks <= batch), ways[-1])
            steps.append(self.cost_step(workload, ceilings, count, max(batch, count // spatial), spatial))
        return steps

    def find_names(self, result: AnalysedSet) -> tuple[str, str]:
        """Return the names of the workload and the ceilings of a result; "" where unknown, and of mini problems."""
        row = result.row
        workload = "" if row.mini else workload_of(row.benchmark, row.round, self.workloads)
        return workload, ceilings_of(row.device, self.ceilings) if workload else ""

    def cost_result(self, result: AnalysedSet, from_storage: bool = False) -> CostedStep | None:
        """Return the cost of a step of a result, None if it lacks units or batch size or is on unknown hardware.

        from_storage: records come from storage if the data of a node exceed what its memory can cache.
        """
        row, (workload, ceilings) = result.row, self.find_names(result)
        if not (workload and ceilings and result.units and row.batch_size):
            return None
        data, units, sharing = result.data, result.units, result.sharing
        work, top = self.workloads[workload], self.ceilings[ceilings]
        if from_storage and data and data.held_by in ("disk", "neither"):
            stored = STORAGE_BYTES_PER_S * data.nodes / units * work.input_bytes / work.stored_bytes
            top = replace(top, input_bytes_per_s=min(stored, top.input_bytes_per_s))
            return replace(self, ceilings={ceilings: top}).cost_result(result)
        if 1 < sharing <= work.most_spatial and units % sharing == 0:
            return self.cost_step(workload, ceilings, units, max(row.batch_size, units // sharing), sharing)
        return self.scale_out(workload, ceilings, [units], row.batch_size)[0]

    def published_pairs(self, sets: Iterable[AnalysedSet]) -> ModelError:
        """Return how far the model is from the published results of systems with several scales."""
        pairs = []
        for both in scaling_pairs(sets):
            steps = [step for result in both if (step := self.cost_result(result))]
            if len(steps) < len(both):
                continue
            stored = [step for result in both if (step := self.cost_result(result, from_storage=True))]
            times = [(result.mean(EPOCH_TIME) or 0.0) * 60 for result in both]
            predicted, with_storage = ([step.epoch_seconds for step in costs] for costs in (steps, stored))
            first_ratio, second_ratio = predicted[0] / times[0], predicted[1] / times[1]
            growth = steps[1].units / steps[0].units
            published, model, storage = (first / second / growth for first, second in (times, predicted, with_storage))
            first_data_in, second_data_in = (result.data.held_by if result.data else "" for result in both)
            pairs.append(
                CostedPair(
                    first=both[0].full_name,
                    second=both[1].full_name,
                    first_binds=steps[0].binds,
                    second_binds=steps[1].binds,
                    first_ratio=first_ratio,
                    second_ratio=second_ratio,
                    calibrated_ratio=second_ratio / first_ratio,
                    published_efficiency=published,
                    efficiency=model,
                    storage_efficiency=storage,
                    first_data_in=first_data_in,
                    second_data_in=second_data_in,
                )
            )
        if not pairs:
            return ModelError(())
        return ModelError(
            tuple(pairs),
            median(abs(pair.second_ratio - 1) for pair in pairs),
            median(abs(pair.calibrated_ratio - 1) for pair in pairs),
            sum(abs(math.log(pair.efficiency / pair.published_efficiency)) for pair in pairs),
            sum(abs(math.log(pair.storage_efficiency / pair.published_efficiency)) for pair in pairs),
        )


def cost_table(steps: Sequence[CostedStep]) -> TextTable:
    """Return costed steps as a table, with times in milliseconds."""
    columns = (
        Column[CostedStep]("workload", "", lambda step: step.workload, numeric=False),
        Column[CostedStep]("ceilings", "", lambda step: step.ceilings, numeric=False),
        Column[CostedStep]("units", "", lambda step: plain(step.units)),
        Column[CostedStep]("batch", "samples", lambda step: plain(step.batch_size)),
        Column[CostedStep]("ranks per", "sample", lambda step: str(step.spatial)),
        Column[CostedStep]("compute", "ms", lambda step: format_number(1000 * step.compute, 3)),
        Column[CostedStep]("memory", "ms", lambda step: format_number(1000 * step.memory, 3)),
        Column[CostedStep]("input", "ms", lambda step: format_number(1000 * step.input, 3)),
        Column[CostedStep]("network", "ms", lambda step: format_number(1000 * step.network, 3)),
        Column[CostedStep]("binds", "", lambda step: step.binds, numeric=False),
        Column[CostedStep]("rate", "samples/s", lambda step: f"{step.samples_per_s:,.0f}"),
        Column[CostedStep]("epoch", "s", lambda step: format_number(step.epoch_seconds, 3)),
    )
    return make_table("Least time of a step by the ceilings: a bound, no result", columns, steps)


def error_table(error: ModelError) -> TextTable:
    """Return predicted over published times of an epoch as a table."""
    columns = (
        Column[CostedPair]("smaller result", "", lambda pair: pair.first, numeric=False),
        Column[CostedPair]("larger result", "", lambda pair: pair.second, numeric=False),
        Column[CostedPair](
            "binds",
            "smaller, larger",
            lambda pair: f"{pair.first_binds}, {pair.second_binds}",
            False,
        ),
        Column[CostedPair]("smaller", "pred./meas.", lambda pair: f"{pair.first_ratio:.3f}"),
        Column[CostedPair]("larger", "pred./meas.", lambda pair: f"{pair.second_ratio:.3f}"),
        Column[CostedPair]("efficiency", "published", lambda pair: f"{pair.published_efficiency:.3f}"),
        Column[CostedPair]("efficiency", "predicted", lambda pair: f"{pair.efficiency:.3f}"),
        Column[CostedPair]("efficiency", "with storage", lambda pair: f"{pair.storage_efficiency:.3f}"),
        Column[CostedPair](
            "data in",
            "smaller, larger",
            lambda pair: f"{pair.first_data_in}, {pair.second_data_in}".strip(", "),
            False,
        ),
        Column[CostedPair]("remark", "", lambda pair: pair.remark, numeric=False),
    )
    return make_table(error.text, columns, error.pairs)
