"""The utilization of published results, by the rules' formula and over the training time."""

from __future__ import annotations

from pathlib import Path

import pytest

from compliance.engine import Options, check_paths
from compliance.model.layout import WEAK
from compliance.model.result_set import ResultSet
from submission.results.operations import count_operations, rate_result
from submission.results.read_rows import every_set
from submission.results.rows import ResultOperations

Rated = list[tuple[ResultSet, ResultOperations]]


@pytest.fixture(scope="module")
def rated(corpus: Path) -> Rated:
    """Return all published results with their operations."""
    report = check_paths([str(corpus)], Options(details=True))
    return [(results, rate_result(results)) for results in every_set(report)]


def of_system(rated: Rated, system: str, benchmark: str, scaling: str = "strong") -> ResultOperations:
    (operations,) = (
        operations
        for results, operations in rated
        if (results.system, results.benchmark, results.scaling) == (system, benchmark, scaling)
    )
    return operations


@pytest.mark.parametrize(("benchmark", "training", "of_runs"), [("cosmoflow", 8.03, 6.66), ("deepcam", 25.84, 16.39)])
def test_the_best_shares_on_a100(rated: Rated, benchmark: str, training: float, of_runs: float):
    """of_runs: over the sum of run times, of an instance for throughput."""
    best = [
        operations
        for results, operations in rated
        if results.benchmark == benchmark and operations.accelerator.startswith("A100")
    ]
    shares = [100 * (operations.training_utilization or 0) for operations in best]
    assert max(shares) == pytest.approx(training, abs=0.01)
    shares = [100 * (operations.sustained_flops or 0) / (operations.peak_flops or 1) for operations in best]
    assert max(shares) == pytest.approx(of_runs, abs=0.01)
    assert {operations.peak_format for operations in best} == {"fp16"}


def test_the_shares_by_the_rules(rated: Rated):
    """Throughput: by the time to train all, on the whole system."""
    nvidia = of_system(rated, "dgxa100_n512_pytorch", "deepcam", WEAK)
    assert nvidia.utilization == pytest.approx(0.154, abs=0.0005)
    daint = of_system(rated, "piz_daint_gpu_n128_pt1.9.0", "deepcam")
    assert daint.utilization == pytest.approx(0.508, abs=0.0005) and daint.peak_format == "fp32"


def test_a_throughput_result_has_the_sum_of_its_instances(rated: Rated):
    weak = [(results, operations) for results, operations in rated if results.scaling == WEAK and operations.flops]
    assert len(weak) == 8
    for results, operations in weak:
        runs = [count_operations(run) for run in results.runs if run.verdict != "FAIL"]
        assert len(runs) == results.score.models
        for name in ("flops", "sustained_flops", "vflops"):
            assert getattr(operations, name) == pytest.approx(sum(getattr(run, name) for run in runs), rel=1e-12)
        assert operations.utilization < operations.sustained_flops / operations.peak_flops


def test_a_result_without_a_share_says_why(rated: Rated):
    reasons = [operations.reason for _, operations in rated if operations.utilization is None]
    assert set(reasons) == {"edges not logged", "operations of openfold are not counted", "no run is accepted"}
    graphs = [results for results, operations in rated if operations.reason == "edges not logged"]
    assert sum(len(results.runs) + len(results.pruned) for results in graphs) == 84
