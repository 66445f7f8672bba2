"""How often `accept` is wrong: simulated machines, and real measurements of this one, resampled.

    python bench/accept.py                                       shows it; a minute
    python bench/accept.py --measure 40                          measures 40 times before, resumably; about 15 minutes
    python bench/accept.py --measure 40 --keep                   also keeps the record

Simulated is the logarithm of a rate: that of the machine, an effect that all runs of a job share, and one of each run,
both normal. The verdicts are those of `submission.accept.statistics`; the two other tests are for comparison. The exit
status is 1 if a goal is missed. Measurements, of CosmoFlow's mini problem, are kept in --runs; those that are there are
not repeated, and without --measure they are read as they are.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import machine  # finds the tree, too
import numpy as np
from records import add_keep_option, keep_record, read_record

from common.measure.fom import read_measurement
from compliance.rcp.points import t_quantile
from submission.accept.baseline import JOBS, Settings, measure_job
from submission.accept.statistics import ALPHA, FAIL, PASS, THRESHOLD, UNDECIDED, compare_jobs, judge_jobs

MACHINES = 10_000
RUNS = 5
SPREADS = (0.01, 0.02, 0.03, 0.04)
"""Standard deviation of the runs of a job."""
LOSS = 0.1
SETTINGS = Settings("cosmoflow", "mini", options=("--steps", "10"))
SEED = 20261127
ABOUT = "about.json"
"""The machine of the measurements, in their folder."""
Shares = dict[str, float]


class Design(NamedTuple):
    """What is compared with what. noise: spread of the check's runs by that of the baseline's."""

    jobs: int = JOBS
    checks: int = 1
    benchmarks: int = 1
    noise: float = 1.0


DESIGNS = {
    "4 jobs": Design(jobs=4),
    "5 jobs": Design(jobs=5),
    "8 jobs": Design(jobs=8),
    "5 jobs, a check of 3": Design(jobs=5, checks=3),
    "2 benchmarks": Design(benchmarks=2),
    "2 benchmarks, 4 jobs": Design(benchmarks=2, jobs=4),
    "3 benchmarks": Design(benchmarks=3),
    "3 benchmarks, 5 jobs": Design(benchmarks=3, jobs=5),
    "a check of twice the spread": Design(noise=2),
}
WELCH = {"runs": False, "runs, or jobs by F": True}
EFFECT = {0: "none", 1: "as large as the spread"}


def draw_rates(rng: np.random.Generator, machines: int, jobs: int, spread: float, effect: float) -> np.ndarray:
    """Return rates, [machines, jobs, RUNS], of machines whose speed is 1; effect: spread of the jobs."""
    shared = rng.normal(0, effect, (machines, jobs, 1)) if effect else 0.0
    rates: np.ndarray = np.exp(shared + rng.normal(0, spread, (machines, jobs, RUNS)))
    return rates


def simulate(machines: int, spread: float, effect: float, design: Design) -> dict[str, Shares]:
    """Return the shares of verdicts on unchanged machines, and on those that lost LOSS in their first benchmark.

    effect: spread of the jobs by that of the runs.
    """
    rng = np.random.default_rng(SEED)
    kinds = range(design.benchmarks)
    bases = [draw_rates(rng, machines, design.jobs, spread, effect * spread) for _ in kinds]
    checks = [draw_rates(rng, machines, design.checks, spread * design.noise, effect * spread) for _ in kinds]
    counts = {
        "unchanged": dict.fromkeys((PASS, FAIL, UNDECIDED), 0),
        "slower": dict.fromkeys((PASS, FAIL, UNDECIDED), 0),
    }
    for index in range(machines):
        sides = [(base[index].tolist(), check[index].tolist()) for base, check in zip(bases, checks, strict=True)]
        comparisons = [compare_jobs(*side) for side in sides]
        verdicts = judge_jobs(comparisons)
        counts["unchanged"][next((v for v in (FAIL, UNDECIDED) if v in verdicts), PASS)] += 1
        slow = [[rate * (1 - LOSS) for rate in job] for job in sides[0][1]]
        verdicts = judge_jobs([compare_jobs(sides[0][0], slow), *comparisons[1:]])
        counts["slower"][verdicts[0]] += 1
    return {kind: {verdict: n / machines for verdict, n in shares.items()} for kind, shares in counts.items()}


def simulate_welch(machines: int, spread: float, effect: float, tests_jobs: bool) -> float:
    """Return the false alarms of Welch's test on runs; tests_jobs: on means of jobs if they differ significantly."""
    rng = np.random.default_rng(SEED)
    base = np.log(draw_rates(rng, machines, JOBS, spread, effect * spread))
    check = np.log(draw_rates(rng, machines, 1, spread, effect * spread))[:, 0]
    null = rng.normal(0, 1, (100_000, JOBS, RUNS))
    significant = _f_ratio(base) > np.quantile(_f_ratio(null), 1 - ALPHA)
    difference = base.mean((1, 2)) - check.mean(1)
    runs, own = base.reshape(machines, -1).var(1, ddof=1) / (JOBS * RUNS), check.var(1, ddof=1) / RUNS
    df = np.floor((runs + own) ** 2 / (runs**2 / (JOBS * RUNS - 1) + own**2 / (RUNS - 1)))
    critical = np.array([t_quantile(1 - ALPHA, int(each)) for each in df])
    fails = difference > critical * np.sqrt(runs + own)
    if tests_jobs:
        error = np.sqrt(base.mean(2).var(1, ddof=1) * (1 + 1 / JOBS))
        fails = np.where(significant, difference > t_quantile(1 - ALPHA, JOBS - 1) * error, fails)
    return float(np.mean(fails & (difference > -math.log(THRESHOLD))))


def _f_ratio(values: np.ndarray) -> np.ndarray:
    """Return the F of a one-way analysis of variance over the jobs of each machine."""
    ratio: np.ndarray = RUNS * values.mean(2).var(1, ddof=1) / values.var(2, ddof=1).mean(1)
    return ratio


def resample(rates: list[float], draws: int) -> dict[str, dict[str, Shares]]:
    """Return shares of verdicts where blocks of RUNS measurements are jobs: as they were made, and in random order."""
    rng = np.random.default_rng(SEED)
    results = {}
    for order in ("as measured", "shuffled"):
        counts = {kind: dict.fromkeys((PASS, FAIL, UNDECIDED), 0.0) for kind in ("unchanged", "slower")}
        for _ in range(draws):
            sequence = np.array(rates) if order == "as measured" else rng.permutation(rates)
            blocks = sequence[: len(rates) // RUNS * RUNS].reshape(-1, RUNS)
            chosen = blocks[rng.choice(len(blocks), JOBS + 1, replace=False)]
            for kind, factor in (("unchanged", 1.0), ("slower", 1 - LOSS)):
                comparison = compare_jobs(chosen[:-1].tolist(), (factor * chosen[-1:]).tolist())
                counts[kind][judge_jobs([comparison])[0]] += 1 / draws
        results[order] = counts
    return results


def simulate_all(machines: int) -> dict[str, Any]:
    """Return all that the page shows of simulated machines."""
    cases = [(effect, spread) for effect in (0, 1) for spread in SPREADS]
    main = [{"effect": e, "spread": s, **simulate(machines, s, e, Design())} for e, s in cases]
    others = [
        {"effect": e, "spread": s, **{name: simulate_welch(machines, s, e, way) for name, way in WELCH.items()}}
        for e, s in cases
    ]
    designs = [
        {"design": name, "effect": e, "spread": s, **simulate(machines // 5, s, e, design)}
        for name, design in DESIGNS.items()
        for e, s in cases
        if s in (0.02, 0.04)
    ]
    return {"machines": machines, "main": main, "welch": others, "designs": designs}


def find_missed(results: dict[str, Any]) -> list[str]:
    """Return the goals that the simulation of the default design misses."""
    missed = []
    for row in results["main"]:
        where = f"spread {row['spread']:.0%}, effect of the job {row['effect']}"
        if row["unchanged"][FAIL] > ALPHA:
            missed.append(f"{where}: {row['unchanged'][FAIL]:.1%} false alarms")
        if row["slower"][PASS] > 0.05:
            missed.append(f"{where}: {row['slower'][PASS]:.1%} of losses missed")
        if row["spread"] <= 0.02 and not row["effect"] and row["unchanged"][UNDECIDED] > 0.05:
            missed.append(f"{where}: {row['unchanged'][UNDECIDED]:.1%} UNDECIDED")
    return missed


# -- the page ------------------------------------------------------------------------------------------------


def _cells(row: dict[str, Any]) -> str:
    unchanged, slower = row["unchanged"], row["slower"]
    shares = (*(unchanged[v] for v in (FAIL, UNDECIDED)), *(slower[v] for v in (FAIL, UNDECIDED, PASS)))
    return " | ".join(f"{share:.1%}" for share in shares)


def page(results: dict[str, Any]) -> str:
    """Return the Markdown page."""
    simulated, about = results["simulation"], results["machine"]
    missed = "; ".join(find_missed(simulated))
    main = [
        f"| {_case(row)} | {_cells(row)} | {' | '.join(f'{other[name]:.1%}' for name in WELCH)} |"
        for row, other in zip(simulated["main"], simulated["welch"], strict=True)
    ]
    designs = [
        f"| {row['design']} | {_cells(row)} |"
        for row in simulated["designs"]
        if (row["effect"], row["spread"]) == SHOWN_CASE
    ]
    measured = page_of_measurements(results["measured"]) if results["measured"] else "None were made: `--measure 40`."
    return f"""\
# How often `accept` is wrong

`bench/accept.py`, {about["date"]}. A machine is slower by {LOSS:.0%}, or unchanged; the baseline has {JOBS} jobs of
{RUNS} runs, the check is one job of {RUNS} runs, the threshold is {THRESHOLD:.0%}. Spread: standard deviation of the
runs of a job; the effect that all runs of a job share has that spread, too, or none. Both are normal, in the logarithm
of the rate. Each row has {simulated["machines"]:,} simulated machines.

Goals: at most 5 % false alarms; at most 5 % of losses missed; without an effect of the job and up to a spread of 2 %,
at most 5 % of unchanged machines UNDECIDED: {f"**missed**: {missed}" if missed else "all met"}.

| effect of the job | spread | unchanged: {HEAD} by Welch, runs | by Welch, or means of jobs by F |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
{LINE.join(main)}

The last columns are the false alarms of other tests on the same machines. Welch's test on runs takes the runs of a job
for independent. To take the means of jobs only where they differ significantly (F test at 5 %) is not enough: with
three jobs, that test overlooks half of the effects that are as large as the spread.

## Other designs

Of a spread of {SHOWN_CASE[1]:.0%} and an effect of the job as large; accept.json has the other cases. With several
benchmarks, only the first is slower, and found or missed is its verdict; false alarms and UNDECIDED are of the whole
check. Holm's correction costs power; one more job in the baseline for each further benchmark restores it.

| design | unchanged: {HEAD}
|---|---:|---:|---:|---:|---:|
{LINE.join(designs)}

## Real measurements

{measured}
"""


LINE = "\n"
SHOWN_CASE = 1, 0.02
"""Effect of the job and spread of the other designs that the page shows."""
HEAD = "false alarms | UNDECIDED | slower: found | UNDECIDED | missed |"


def _case(row: dict[str, Any]) -> str:
    return f"{EFFECT[row['effect']]} | {row['spread']:.0%}"


def page_of_measurements(measured: dict[str, Any]) -> str:
    """Return the text about real measurements."""
    rates, about = measured["samples_per_s"], measured["machine"]
    blocks = np.log(np.array(rates[: len(rates) // RUNS * RUNS])).reshape(-1, RUNS)
    within = math.sqrt(blocks.var(1, ddof=1).mean())
    between = math.sqrt(max(0.0, blocks.mean(1).var(ddof=1) - within**2 / RUNS))
    rows = [f"| {order} | {_cells(row)} |" for order, row in measured["shares"].items()]
    return f"""\
{len(rates)} measurements of CosmoFlow's mini problem, 10 steps each, one after the other
({about["machine"]}, {about["date"]}, load average {about["load"]:.1f}): {min(rates):.4g} to
{max(rates):.4g} samples/s. Blocks of {RUNS} in succession count as jobs, although those of a baseline are an hour or
more apart: the spread in a block is {within:.1%}, that of the blocks {between:.1%}. {JOBS} random blocks are the
baseline, another is the check, as it is and slowed down by {LOSS:.0%}. Shuffled: in a random order before.

| order | unchanged: {HEAD}
|---|---:|---:|---:|---:|---:|
{LINE.join(rows)}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the machines")
    parser.add_argument("--measure", type=int, default=0, metavar="N", help="so many real measurements")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-accept"), help="of the measurements")
    add_keep_option(parser)
    arguments = parser.parse_args()
    about, measured = machine.about(), None
    if arguments.measure:
        os.nice(19)
        measure_job([SETTINGS], arguments.measure, arguments.runs)
        (arguments.runs / ABOUT).write_text(json.dumps(machine.about()))
    files = sorted(arguments.runs.glob("*/run_*/fom.json"), key=lambda path: path.stat().st_mtime)
    if len(files) >= RUNS * (JOBS + 1):
        machine_of_runs = json.loads((arguments.runs / ABOUT).read_text())
        rates = [read_measurement(path).samples_per_s for path in files]
        measured = {"samples_per_s": rates, "machine": machine_of_runs, "shares": resample(rates, 2000)}
    elif arguments.keep:
        measured = read_record("accept")["measured"]  # the page has the date of these
    machines = MACHINES // 10 if arguments.quick else MACHINES
    results = {"machine": about, "simulation": simulate_all(machines), "measured": measured}
    print(page(results))
    if arguments.keep:
        keep_record("accept", results)
    return 1 if find_missed(results["simulation"]) else 0


if __name__ == "__main__":
    sys.exit(main())
