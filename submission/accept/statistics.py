"""The test of acceptance: whether a machine is slower than its baseline, and whether the test could have seen it.

The runs of one job share what is peculiar to that job: its node, its neighbours, the temperature of the day. So n runs
in a job are not n independent values, and the unit of the test is the job: the mean of log(samples/s) over its runs.
`bench/accept.py` shows by simulation why: the runs as units, or the jobs only where they differ significantly, give
false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from statistics import fmean
from typing import Final

from compliance.rcp.points import t_quantile, upper_tail

ALPHA: Final = 0.05
"""The probability that an unchanged machine fails, over all benchmarks."""
POWER: Final = 0.95
"""The probability that a test must have to find the loss that it is for."""
THRESHOLD: Final = 0.95
"""The share of the baseline's speed below which a machine may fail."""
NOISIER: Final = 2.0
"""The variance of a check's runs counts instead of the baseline's where it is more than so many times that."""
LEAST_ERROR: Final = 1e-9
"""Of a difference, where all rates are the same."""
NODES: Final = 400
"""Of the integral over the spread that a test estimates: power to 1e-4."""
MOST_RUNS, MOST_JOBS, MOST_CHECKS = 50, 24, 8
"""Larger numbers of runs in a job, jobs of a baseline and of a check are no advice."""
PASS, FAIL, UNDECIDED = "PASS", "FAIL", "UNDECIDED"
Jobs = Sequence[Sequence[float]]
"""The rates of the runs of each job."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The jobs of a check beside those of a baseline, in units of log(samples/s), which are shares for small ones.

    difference: the mean of the baseline's jobs less that of the check's; positive if the check is slower. error: its
    standard error, with `df` degrees of freedom. within: standard deviation of the runs of a job. between: that of the
    effects of jobs, by the estimate of variance components; 0 where the runs explain the means of jobs, or of one job.
    jobs: of the baseline and of the check; runs: in a job of each, the harmonic mean. check_within: as `within`, of the
    check; None if its jobs have one run each. mean_rate: of the check's jobs, samples/s;
    ratio: by that of the baseline. p: the probability of such a difference, or a larger one, on an unchanged machine.
    """

    mean_rate: float
    ratio: float
    p: float
    difference: float
    error: float
    df: int
    within: float
    between: float
    jobs: tuple[int, int]
    runs: tuple[float, float]
    check_within: float | None

    @property
    def noise(self) -> float:
        """How many times as much as the baseline's the runs of the check vary, where that counts; else 1."""
        own = self.check_within or 0.0
        return own / max(self.within, LEAST_ERROR) if own**2 > NOISIER * self.within**2 else 1.0


def compare_jobs(baseline: Jobs, check: Jobs) -> Comparison:
    """Return the comparison of jobs; each has one run or more, and one job of the baseline at least two runs.

    A check is often one job, whose mean then varies by the effect of that job, too: with J jobs of m runs in the
    baseline and K in the check, the variance of the difference is s² (1/J + 1/K), s² that of the means of jobs. It is
    at least what the runs give by themselves, and larger where the check has fewer runs than m or noisier ones. More
    runs in the check give no credit: they do not average out what its job has in common. With one job on each side
    there is no s², and what jobs differ by is not in the error.
    """
    sides = [[[math.log(rate) for rate in job] for job in side] for side in (baseline, check)]
    (base_means, check_means) = ([fmean(job) for job in side] for side in sides)
    base_within, base_df = _pool_variance(sides[0])
    check_within, check_df = _pool_variance(sides[1])
    own_within = _choose_variance(base_within, check_within)
    runs, check_runs = (len(side) / sum(1 / len(job) for job in side) for side in sides)
    between_jobs, df = _pool_variance((base_means, check_means))
    mean_variance = max(between_jobs, base_within / runs)
    excess = max(0.0, own_within / check_runs - base_within / runs)
    J, K = len(base_means), len(check_means)
    difference = fmean(base_means) - fmean(check_means)
    error = max(LEAST_ERROR, math.sqrt(mean_variance / J + (mean_variance + excess) / K))
    return Comparison(
        mean_rate=math.exp(fmean(check_means)),
        ratio=math.exp(-difference),
        p=upper_tail(difference / error, df or base_df),
        difference=difference,
        error=error,
        df=df or base_df,
        within=math.sqrt(base_within),
        between=math.sqrt(max(0.0, between_jobs - base_within / runs)),
        jobs=(J, K),
        runs=(runs, check_runs),
        check_within=math.sqrt(check_within) if check_df else None,
    )


def _choose_variance(baseline: float, check: float) -> float:
    """Return the variance that the runs of a check count with: their own where it is over NOISIER times the other."""
    return check if check > NOISIER * baseline else baseline


def _pool_variance(groups: Jobs) -> tuple[float, int]:
    """Return the variance within groups and its degrees of freedom; 0.0, 0 if all have a single value."""
    df = sum(len(group) - 1 for group in groups)
    total = sum(sum((value - mean) ** 2 for value in group) for group in groups for mean in [fmean(group)])
    return (total / df if df else 0.0), df


def judge_jobs(comparisons: Sequence[Comparison], threshold: float = THRESHOLD) -> list[str]:
    """Return the verdict on each comparison.

    FAIL: significantly slower, by Holm's procedure over all of them, and below the threshold. UNDECIDED: not FAIL, but
    a loss could have been missed. PASS: else.
    """
    count = len(comparisons)
    level, slower = ALPHA / count, True
    verdicts = [PASS] * count
    for rank, number in enumerate(sorted(range(count), key=lambda number: comparisons[number].p)):
        comparison = comparisons[number]
        slower = slower and comparison.p <= ALPHA / (count - rank)
        if slower and comparison.ratio < threshold:
            verdicts[number] = FAIL
        elif comparison.error > find_largest_error(comparison.df, level, threshold):
            verdicts[number] = UNDECIDED
    return verdicts


def find_loss(threshold: float) -> float:
    """Return the loss that a check must be able to find, twice the one that it tolerates: 10 % at 95 %."""
    return 2 * (1 - threshold)


def find_power(error: float, df: int, level: float, threshold: float) -> float:
    """Return the probability that a test at a level fails a machine that has lost `find_loss`.

    error: true standard error of the difference, which the test estimates with `df` degrees of freedom. A midpoint rule
    over that estimate; without a threshold it is the power of the noncentral t distribution.
    """
    critical, least, loss = t_quantile(1 - level, df), -math.log(threshold), -math.log(1 - find_loss(threshold))
    half_width = 7 / math.sqrt(2 * df)
    first = max(0.0, 1 - half_width)
    step = (1 + half_width - first) / NODES
    scale = math.log(2) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)
    total = 0.0
    for node in range(NODES):
        estimate = first + (node + 0.5) * step  # by the true error
        density = math.exp(scale + (df - 1) * math.log(estimate) - df * estimate**2 / 2)
        needed = max(critical * error * estimate, least)
        total += density * math.erfc((needed - loss) / error / math.sqrt(2)) / 2
    return total * step


@lru_cache(maxsize=1024)
def find_largest_error(df: int, level: float, threshold: float) -> float:
    """Return the standard error of a difference up to which the test has POWER."""
    low, high = 0.0, find_loss(threshold)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if find_power(middle, df, level, threshold) >= POWER else (low, middle)
    return low


def explain_verdict(verdict: str, comparison: Comparison, benchmarks: int, threshold: float) -> str:
    """Return the reason for a verdict; of UNDECIDED what would decide, at the same spreads."""
    loss = f"a loss of {find_loss(threshold):.0%}"
    if verdict == FAIL:
        return f"{1 - comparison.ratio:.1%} slower than the baseline, p {comparison.p:.2g}"
    if verdict == PASS:
        return f"{loss} would have been found with {POWER:.0%} power"
    sizes = f"{_find_sizes(comparison, ALPHA / benchmarks, threshold)} show {loss} with {POWER:.0%} power"
    if comparison.noise == 1:
        return sizes
    return f"the runs of the check vary {comparison.noise:.1f} times as much as the baseline's; if that stays, {sizes}"


def _find_sizes(comparison: Comparison, level: float, threshold: float) -> str:
    """Return the runs in each job, and the jobs, with which a test would find a loss."""
    (base_jobs, check_jobs), (base_runs, check_runs) = comparison.jobs, comparison.runs
    sides = 1 / base_jobs + 1 / check_jobs
    variance = comparison.within**2
    check_variance = _choose_variance(variance, (comparison.check_within or 0.0) ** 2)
    excess = max(0.0, check_variance / check_runs - variance / base_runs)
    mean_variance = (comparison.error**2 - excess / check_jobs) / sides  # of a job, as in compare_jobs
    ways = []
    room = find_largest_error(comparison.df, level, threshold) ** 2 - sides * comparison.between**2
    runs = math.ceil((variance / base_jobs + check_variance / check_jobs) / room) if room > 0 else 0
    if check_runs < runs <= MOST_RUNS:
        ways.append(f"n = {runs} runs in each job, of the baseline too,")
    # Few jobs of the check first: a baseline is recorded once.
    for checks, size in product(range(1, MOST_CHECKS + 1), range(max(2, base_jobs), MOST_JOBS + 1)):
        error = math.sqrt(mean_variance * (1 / size + 1 / checks) + excess / checks)
        if error <= find_largest_error(size + checks - 2, level, threshold):
            check = f" and a check of {checks} (--fom for each)" if checks > 1 else ""
            ways.append(f"a baseline of {size} jobs{check}")
            break
    return f"{' or '.join(ways) or 'no reasonable number of runs or jobs'} would"
