"""submission/accept/statistics.py: the goals on simulated machines, the power of the test, and its advice."""

import math
import re

import pytest

from submission.accept.statistics import (
    FAIL,
    PASS,
    POWER,
    UNDECIDED,
    compare_jobs,
    explain_verdict,
    find_largest_error,
    find_power,
    judge_jobs,
)
from tests.bench_script import bench_script

QUIET = [[100.0, 101.0, 100.5], [100.4, 99.6, 100.2], [99.8, 100.9, 100.1]]
SLOW = [[89.0, 90.0, 89.5]]


def test_goals_on_simulated_machines():
    bench = bench_script("accept")
    simulated = bench.simulate_all(1000)
    assert bench.find_missed(simulated) == []
    worst = simulated["welch"][-1]
    assert worst["runs"] > 0.1 and worst["runs, or jobs by F"] > 0.05  # why jobs are the units


@pytest.mark.parametrize("df", [1, 2, 3, 8, 40])
def test_power_is_that_of_the_noncentral_t(df):
    scipy_stats = pytest.importorskip("scipy.stats")
    threshold, error = 0.95, 0.03
    least, critical = -math.log(threshold), scipy_stats.t.ppf(0.95, df)
    draws = scipy_stats.norm(-math.log(0.9), error).rvs(100_000, random_state=1)
    estimates = error * (scipy_stats.chi2(df).rvs(100_000, random_state=2) / df) ** 0.5
    simulated = (draws > (critical * estimates).clip(least)).mean()
    assert find_power(error, df, 0.05, threshold) == pytest.approx(simulated, abs=0.005)
    assert find_power(find_largest_error(df, 0.05, threshold), df, 0.05, threshold) == pytest.approx(POWER, abs=1e-4)


def test_verdicts():
    unchanged, slow = compare_jobs(QUIET, [QUIET[0]]), compare_jobs(QUIET, SLOW)
    assert judge_jobs([unchanged, slow]) == [PASS, FAIL]
    assert slow.ratio == pytest.approx(0.893, abs=0.002) and slow.p < 0.01 < unchanged.p
    assert judge_jobs([slow], threshold=0.85) != [FAIL]


def test_an_effect_of_the_job_is_in_the_error():
    effect = [[rate * factor for rate in job] for job, factor in zip(QUIET, (0.9, 1.0, 1.1), strict=True)]
    comparison = compare_jobs(effect, SLOW)
    assert comparison.between == pytest.approx(0.1, rel=0.1) and comparison.error > comparison.between
    assert judge_jobs([comparison]) == [UNDECIDED]


def test_holm_asks_more_of_several_benchmarks():
    weak = compare_jobs([[100.0, 101.0], [101.0, 104.0], [98.0, 97.0]], [[91.5, 92.0]])
    assert 0.025 < weak.p < 0.05
    assert judge_jobs([weak])[0] == FAIL
    assert judge_jobs([weak, compare_jobs(QUIET, [QUIET[0]])])[0] == UNDECIDED


def test_noise_of_the_check_counts():
    calm, noisy = (compare_jobs(QUIET, [[95 - by, 95.0, 95 + by]]) for by in (0.5, 5))
    assert noisy.error > 2 * calm.error
    assert calm.noise == 1 and noisy.noise == pytest.approx(noisy.check_within / noisy.within)
    wild = compare_jobs(QUIET, [[90.0, 100.0, 111.0]])
    text = explain_verdict(UNDECIDED, wild, 1, 0.95)
    runs = int(re.search(r"vary [\d.]+ times as much .* n = (\d+) runs", text)[1])
    assert runs > wild.runs[1]
    more = compare_jobs(QUIET, [[90.0, 100.0, 111.0] * math.ceil(runs / 3)])
    assert more.error < 1.1 * find_largest_error(more.df, 0.05, 0.95)


def test_what_is_advised_decides():
    base = [[100.0, 110.0, 103.0], [96.0, 101.0, 108.0], [108.0, 97.0, 107.0]]
    comparison = compare_jobs(base, [[99.0, 104.0, 101.0]])
    text = explain_verdict(UNDECIDED, comparison, 1, 0.95)
    runs, jobs, checks = map(int, re.findall(r"n = (\d+) runs .* baseline of (\d+) jobs and a check of (\d+)", text)[0])
    assert math.sqrt(comparison.within**2 / runs * (1 / 3 + 1)) <= find_largest_error(2, 0.05, 0.95)
    error = comparison.error * math.sqrt((1 / jobs + 1 / checks) / (1 / 3 + 1))
    assert error <= find_largest_error(jobs + checks - 2, 0.05, 0.95)
    wild = [[50.0, 51.0], [100.0, 99.0], [200.0, 201.0]]
    assert "no reasonable number" in explain_verdict(UNDECIDED, compare_jobs(wild, [[100.0, 99.0]]), 1, 0.95)
