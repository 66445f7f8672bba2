"""The operations of runs and results per second.

They follow from the counted operations of the reference model and the times of a log. FLOPS over the training time:
those of HPC AI500 V3.0 (TBench 2, 2022, 100083), equation 6, training FLOP of a sample * samples trained / T_train.
Sustained: training and evaluation over the time from run_start to run_stop. VFLOPS: FLOPS * (achieved / target)^n, with
target / achieved where lower is better. Terms of time and samples: see `submission.results.quantities`.

The FLOPS of a result are the mean over the runs of its score, those of a throughput result the sum over its instances
(equations 4 and 6).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from common.reference import Target
from common.values import is_number
from compliance.benchmarks import reference_of
from compliance.model.judged_run import JudgedRun
from compliance.model.layout import WEAK
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from submission.results.cost_model.model import Workload, read_workloads, workload_of
from submission.results.quantities import RUN_TIME, SAMPLES, evaluated_samples, quantities, unmeasured
from submission.results.rows import NoResultsError, ResultOperations

EXPONENTS: Final = {"deepcam": 10.0}
"""The n of VFLOPS: 10 for Extreme Weather in HPC AI500, whose counterpart DeepCAM is."""
N: Final = 5.0
"""The n of all other benchmarks: that of Image Classification."""
GRAPH: Final = ("atoms", "edges", "triplets")
"""What the operations of a graph depend on; `sample_means` of a log of this suite states them."""
LARGEST_MEAN: Final = 1e9
TRAINING: Final = 3
"""Operations of training on a graph by those of its energy and forces."""


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of the run of one log; None where `reason` says why a number is missing.

    workload: name in workloads.yaml. training_flop, forward_flop: of one sample. samples: trained up to the last
    evaluation; evaluated: in all evaluations. train_minutes: T_train; run_minutes: from run_start to run_stop.
    quality: of the last evaluation; n: exponent of VFLOPS. flops, sustained_flops, vflops: per second.
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

    @property
    def table_order(self) -> tuple[str, str, bool]:
        """The round, benchmark and whether mini, by which tables are sorted."""
        return self.round, self.benchmark, self.mini


def read_operations(report: Report, workloads: Mapping[str, Workload], n: float | None) -> list[Operations]:
    """Return the operations of each log of a report with details, by round, benchmark and path.

    n: exponent of VFLOPS, None for that of the benchmark. Raises NoResultsError if no file is a result log.
    """
    logs = [run for run in report.runs if run.submission or run.details.seconds]
    if not logs:
        raise NoResultsError("no result log found: expected files with :::MLLOG lines, or folders with result_*.txt")
    costs = [count_operations(run, workloads, n) for run in logs]
    return sorted(costs, key=lambda cost: (*cost.table_order, cost.log))


def count_operations(run: JudgedRun, workloads: Mapping[str, Workload], n: float | None) -> Operations:
    """Return the operations of the run of one log."""
    benchmark = run.benchmark or ""
    empty = Operations(run.path, run.round, benchmark, run.mini)
    reference, workload = reference_of(benchmark, run.variant), workload_of(benchmark, run.round, workloads)
    reason = _explain_uncounted(run, workload)
    if reason or reference is None:
        return replace(empty, reason=reason)
    cost = _size_workload(workloads[workload], run)
    if cost is None:
        return replace(empty, reason="edges not logged")
    known = replace(empty, workload=workload, training_flop=cost.training_flop, forward_flop=cost.forward_flop)
    if reason := unmeasured(run):
        return replace(known, reason=reason)
    found = quantities(run, reference, None)
    samples, train = found.get(SAMPLES, 0.0), found.get("run_train_time", 0.0)
    evaluated = evaluated_samples(run) or 0.0
    if reason := _explain_unrated(samples, evaluated, train):
        return replace(known, reason=reason)
    quality, target, exponent = run.details.evaluations[-1].value, reference.target, n or EXPONENTS.get(benchmark, N)
    training, share = cost.training_flop * samples, find_valid_share(target, quality, exponent)
    flops = training / (60 * train)
    return replace(
        known,
        samples=samples,
        evaluated=evaluated,
        train_minutes=train,
        run_minutes=found[RUN_TIME],
        quality=quality,
        target=target.value,
        n=exponent,
        flops=flops,
        sustained_flops=(training + cost.forward_flop * evaluated) / (60 * found[RUN_TIME]),
        vflops=None if share is None else flops * share,
        reason="no VFLOPS: the quality has no ratio to the target" if share is None else "",
    )


def _explain_uncounted(run: JudgedRun, workload: str) -> str:
    """Return why the operations of a sample are unknown, "" if they are known."""
    if run.benchmark is None:
        return "no benchmark of this round is named in submission_benchmark"
    if run.mini:
        return "mini problem: its operations are not counted"
    return "" if workload else f"operations of {run.benchmark} are not counted"


def _size_workload(cost: Workload, run: JudgedRun) -> Workload | None:
    """Return the workload with the operations of the run's mean sample, None if they depend on what is not logged."""
    each = (cost.atom_flop, cost.edge_flop, cost.triplet_flop)
    means: list[Any] = [run.details.sample_means.get(name) for name in GRAPH]
    if None in each:
        return cost
    if not all(is_number(mean) and 0 < mean < LARGEST_MEAN for mean in means):
        return None
    forward = sum(flop * mean for flop, mean in zip(each, means, strict=True) if flop and mean)
    return replace(cost, forward_flop=forward, training_flop=TRAINING * forward)


def _explain_unrated(samples: float, evaluated: float, train_minutes: float) -> str:
    """Return what of the samples and their times a log does not give, "" if it gives all."""
    if samples <= 0:
        return "samples unknown: train_samples or epoch_num of the last evaluation is missing"
    if evaluated <= 0:
        return "evaluation unknown: eval_start, eval_stop or eval_samples is missing"
    return "" if train_minutes > 0 else "no training time: the epochs take no longer than their evaluations"


def find_valid_share(target: Target, quality: float, n: float) -> float | None:
    """Return VFLOPS / FLOPS, above 1 if the quality is better than the target; None where it is not above 0, or near.

    n: exponent of the ratio of both.
    """
    if quality <= 0:
        return None
    try:
        share = math.pow(target.value / quality if target.lower_is_better else quality / target.value, n)
    except OverflowError:
        return None
    return share if math.isfinite(share) else None


# -- results -----------------------------------------------------------------------------------------------


def sum_instances(operations: Iterable[Operations]) -> ResultOperations:
    """Return the operations of a throughput result: sums over its instances; with the reason if one has no number."""
    instances = list(operations)
    reason = next((run.reason for run in instances if run.flops is None), "")
    if reason or not instances:
        return ResultOperations(reason=reason or "no instance counts")
    valid = [run.vflops for run in instances]
    return ResultOperations(
        sum(run.flops or 0.0 for run in instances),
        sum(run.sustained_flops or 0.0 for run in instances),
        None if None in valid else sum(rate or 0.0 for rate in valid),
    )


def rate_result(results: ResultSet) -> ResultOperations:
    """Return the operations of a result of a report with details."""
    if results.scaling != WEAK:
        return ResultOperations(reason="not rated")
    workloads = read_workloads()
    return sum_instances(count_operations(run, workloads, None) for run in results.runs if run.verdict != "FAIL")
