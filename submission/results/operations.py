"""The operations of runs and results per second, and their share of the peak of the system.

They follow from the operations for a sample, which a log of this suite states of its network, or else from those of the
reference model, and from the times of a log. FLOPS over the training time: those of HPC AI500 V3.0 (TBench 2, 2022,
100083), equation 6, training FLOP of a sample * samples trained / T_train. Sustained: training and evaluation over the
time from run_start to run_stop. VFLOPS: FLOPS * (achieved / target)^n, with target / achieved where lower is better.
Terms of time and samples: see `submission.results.quantities`.

A result counts by its accepted runs. Time to train: the FLOP of all by the time of all. Throughput: FLOPS, sustained
FLOPS and VFLOPS are sums over the instances (equations 4 and 6). Utilization (training_rules.adoc, "Appendix:
Utilization"): FLOP of training and evaluation / (peak * units * time), where the time of throughput is that from the
first start to the last stop, and the units are those of the whole system. A multiplication and an addition count as
two; the peak is that of dense products in the format that the logs state, or else in that of training by default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, Final

from common.measure.devices import ceilings_of, read_ceilings
from common.measure.fom import EXPONENTS, N, find_valid_share
from common.values import is_number, shared_value
from compliance.logs.run import text_of
from compliance.model.judging import FAIL, JudgedRun
from compliance.model.layout import WEAK
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from submission.results.cost_model import read_workloads, workload_of
from submission.results.quantities import LARGEST, RUN_TIME, SAMPLES, evaluated_samples, explain_unmeasured, measure_run
from submission.results.rows import NOT_JUDGED, NoResultsError, ResultOperations

LOG, WORKLOADS = "log", "workloads.yaml"
"""Who counts the operations of a sample: the log, which nobody checks, or this suite, of the reference model."""
TRAINING: Final = 3
"""Operations of training on a graph by those of its energy and forces."""


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of the run of one log; None where `reason` says why a number is missing.

    workload: name in workloads.yaml. training_flop, forward_flop: of one sample. samples: trained up to the last
    evaluation; evaluated: in all evaluations. train_minutes: T_train; run_minutes: from run_start to run_stop.
    quality: of the last evaluation; n: exponent of VFLOPS. flops, sustained_flops, vflops: per second. flop_source: LOG
    or WORKLOADS, who counts the FLOP of a sample. verdict: of the log; result_verdict: of its result, or NOT_JUDGED.
    plugin: that the benchmark is not one of MLPerf, and its origin; "" for those of the suite.
    """

    log: str
    round: str
    benchmark: str
    mini: bool
    workload: str = ""
    training_flop: float | None = None
    forward_flop: float | None = None
    samples: float | None = None
    evaluated: float | None = None
    train_minutes: float | None = None
    run_minutes: float | None = None
    quality: float | None = None
    target: float | None = None
    n: float | None = None
    flops: float | None = None
    sustained_flops: float | None = None
    vflops: float | None = None
    reason: str = ""
    flop_source: str = ""
    verdict: str = ""
    result_verdict: str = ""
    plugin: str = ""

    @property
    def table_order(self) -> tuple[str, str, bool]:
        """The round, benchmark and whether mini, by which tables are sorted."""
        return self.round, self.benchmark, self.mini


def read_operations(report: Report, n: float | None) -> list[Operations]:
    """Return the operations of each log of a report with details, by round, benchmark and path.

    n: exponent of VFLOPS, None for that of the benchmark. Raises NoResultsError if no file is a result log.
    """
    logs = [run for run in report.runs if run.submission or run.details.seconds]
    if not logs:
        raise NoResultsError(
            "no result log found: expected files with :::MLLOG lines and their times, or folders with result_*.txt"
        )
    verdicts = {run.path: report.verdict_of(results) for results in report.sets for run in results.runs}
    costs = [replace(count_operations(run, n), result_verdict=verdicts.get(run.path, NOT_JUDGED)) for run in logs]
    return sorted(costs, key=lambda cost: (*cost.table_order, cost.log))


def count_operations(run: JudgedRun, n: float | None = None) -> Operations:
    """Return the operations of the run of one log. n: see `read_operations`."""
    benchmark = run.benchmark or ""
    empty = Operations(run.path, run.round, benchmark, run.mini, verdict=run.verdict, plugin=run.plugin)
    reference, workload = run.case.reference, workload_of(benchmark, run.round, read_workloads())
    if reference is None:
        problem = f"no target of the problem {run.variant!r:.40} is known" if benchmark else ""
        return replace(
            empty,
            reason=problem or "no benchmark of this round is named in submission_benchmark",
        )
    flop = _find_sample_flop(run, workload)
    if isinstance(flop, str):
        return replace(empty, reason=flop)
    training, forward, source = flop
    costed = replace(
        empty,
        workload=workload,
        training_flop=training,
        forward_flop=forward,
        flop_source=source,
    )
    if reason := explain_unmeasured(run):
        return replace(costed, reason=reason)
    measured = measure_run(run, None)
    samples, train = measured.get(SAMPLES, 0.0), measured.get("run_train_time", 0.0)
    evaluated = evaluated_samples(run) or 0.0
    if reason := _explain_unrated(samples, evaluated, train):
        return replace(costed, reason=reason)
    quality, target, exponent = run.details.evaluations[-1].value, reference.target, n or EXPONENTS.get(benchmark, N)
    share = find_valid_share(target, quality, exponent)
    flops = training * samples / (60 * train)
    return replace(
        costed,
        samples=samples,
        evaluated=evaluated,
        train_minutes=train,
        run_minutes=measured[RUN_TIME],
        quality=quality,
        target=target.value,
        n=exponent,
        flops=flops,
        sustained_flops=(training * samples + forward * evaluated) / (60 * measured[RUN_TIME]),
        vflops=None if share is None else flops * share,
        reason="no VFLOPS: the quality has no ratio to the target" if share is None else "",
    )


def _find_sample_flop(run: JudgedRun, workload: str) -> tuple[float, float, str] | str:
    """Return the FLOP for a sample in training and evaluation and who counts them, or why they are unknown.

    Those of graphs are of the run's mean sample.
    """
    stated: list[Any] = [run.details.flop_per_sample.get(phase) for phase in ("training", "evaluation")]
    if all(is_number(flop) and 0 < flop < 1e18 for flop in stated):
        return float(stated[0]), float(stated[1]), LOG
    if run.mini:
        return "mini problem: its log states no flop_per_sample"
    if not workload:
        return f"operations of {run.benchmark} are not counted"
    cost = read_workloads()[workload]
    if cost.atom_flop is None or cost.edge_flop is None or cost.triplet_flop is None:
        return cost.training_flop, cost.forward_flop, WORKLOADS
    means: list[Any] = [run.details.sample_means.get(name) for name in ("atoms", "edges", "triplets")]
    if not all(is_number(mean) and 0 < mean < 1e9 for mean in means):
        return "edges not logged"
    forward = sum(map(mul, (cost.atom_flop, cost.edge_flop, cost.triplet_flop), means))
    return TRAINING * forward, forward, WORKLOADS


def _explain_unrated(samples: float, evaluated: float, train_minutes: float) -> str:
    """Return what of the samples and their times a log does not give, "" if it gives all."""
    if samples <= 0:
        return "samples unknown: train_samples or epoch_num of the last evaluation is missing or not plausible, or cut"
    if evaluated <= 0:
        return "evaluation unknown: eval_start, eval_stop or eval_samples is missing or not plausible"
    return "" if train_minutes > 0 else "no training time: the epochs take no longer than their evaluations"


# -- results -----------------------------------------------------------------------------------------------


def rate_result(results: ResultSet) -> ResultOperations:
    """Return the operations of a result of a report with details."""
    counted = [run for run in results.runs if run.verdict != FAIL]
    operations = list(map(count_operations, counted))
    reason = next(
        (run.reason for run in operations if run.flops is None),
        "" if operations else "no run is accepted",
    )
    if reason:
        return ResultOperations(reason=reason)
    weak = results.scaling == WEAK
    rated, device_peak = _combine_runs(operations, weak), _find_peak(results, counted)
    if isinstance(device_peak, str):
        return replace(rated, reason=_join_texts(rated.reason, device_peak))
    name, number_format, peak = device_peak
    minutes = results.score.minutes if weak and results.score else _sum_rates(operations, "run_minutes")
    flop = sum(60 * (run.run_minutes or 0.0) * (run.sustained_flops or 0.0) for run in operations)
    # Missing runs alone leave a measurement of the others.
    if results.score and results.score.minutes is None and (results.failing or not results.missing_runs):
        minutes = None
    utilization = flop / (60 * minutes) / peak if minutes else None
    if utilization is None or utilization > 1:
        reason = "no time of the result" if utilization is None else "more FLOPS than the peak: is it the right one?"
        return replace(rated, reason=_join_texts(rated.reason, reason))
    # Instances one after another use the same units.
    active = min(1.0, results.at_once / len(counted)) if weak else 1.0
    return replace(
        rated,
        utilization=utilization,
        training_utilization=active * (rated.flops or 0.0) / peak,
        peak_format=number_format,
        accelerator=name,
        peak_flops=peak,
    )


def _combine_runs(operations: Sequence[Operations], of_instances: bool) -> ResultOperations:
    """Return the operations of a result per second: sums over instances, or the FLOP of all runs by the time of all."""

    def rate(name: str, minutes: str) -> float:
        if of_instances:
            return _sum_rates(operations, name)
        times = [float(getattr(run, minutes)) for run in operations]
        return float(sum(getattr(run, name) * time for run, time in zip(operations, times, strict=True)) / sum(times))

    return ResultOperations(
        rate("flops", "train_minutes"),
        rate("sustained_flops", "run_minutes"),
        None if any(run.vflops is None for run in operations) else rate("vflops", "train_minutes"),
        reason=_join_texts(*(run.reason for run in operations)),
        flop_source=_join_texts(*(run.flop_source for run in operations)),
    )


def _find_peak(results: ResultSet, runs: Sequence[JudgedRun]) -> tuple[str, str, float] | str:
    """Return the accelerator, the format of its peak and that of all units in FLOP/s, or why they are unknown."""
    device, units = _read_device(results, runs), results.system_scale
    if units is None and results.scaling != WEAK:
        units = results.stated_scale
    name = ceilings_of(device, read_ceilings())
    if not name:
        return f"peak of {device!r:.60} unknown" if device else "no accelerator is named"
    if not units or not 0 < units < LARGEST:
        return "units of the system unknown"
    number_format, peak = read_ceilings()[name].find_peak(shared_value((run.details.precision for run in runs), ""))
    return name, number_format, peak * units


def _read_device(results: ResultSet, runs: Sequence[JudgedRun]) -> str:
    """Return the model of the accelerators, or of the processors of a system without; else that which logs name."""
    description = results.description
    if description is not None:
        accelerator, processor = (description.text(f"{kind}_model_name") for kind in ("accelerator", "host_processor"))
        return processor if description.count("accelerators_per_node") == 0 or not accelerator else accelerator
    hosts = [run.details.provenance.get("host") for run in runs]
    devices = (text_of(host.get("accelerator")) if isinstance(host, dict) else None for host in hosts)
    return shared_value(devices) or ""


def _sum_rates(operations: Iterable[Operations], name: str) -> float:
    return math.fsum(getattr(run, name) for run in operations)


def _join_texts(*texts: str) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))
