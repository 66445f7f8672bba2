"""Check the laws of studies on studies whose truth is known: how often a 95 % interval holds it.

    python bench/laws.py                                shows it; about 5 CPU minutes
    python bench/laws.py --keep                         also keeps the record

1. Simulated studies, 1,000 of each law and spread: the share of intervals that hold the true parameter.
2. A network with known exponents, trained for each number of parameters and samples: the joint law of its loss.

Exit status 1 if a share of intervals of exponents is outside 93 to 97 %, or the network's truth outside its interval.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from machine import about, describe_machine
from records import add_keep_option, keep_record
from tqdm import tqdm

from submission.results.fits.laws import Law, Observation, fit_law
from submission.results.fits.least_squares import NoFitError

GOAL: Final = 0.93, 0.97
SPREADS: Final = 0.01, 0.05
Points = Callable[[], list[tuple[tuple[float, ...], float]]]


@dataclass(frozen=True)
class Study:
    """What is measured again and again. law: fitted to it. points: x and true y. truth: parameters; the first count."""

    title: str
    law: str
    points: Points
    repetitions: int
    truth: dict[str, float]
    count: int = 1


def lose(parameters: float, samples: float) -> float:
    """Return a loss with the exponents of language models. Source: Besiroglu et al., arXiv 2404.10102."""
    return 1.8 + 480 * parameters**-0.35 + 2100 * samples**-0.37


def draw_isoflop() -> list[tuple[tuple[float, ...], float]]:
    """Return losses of sizes from 1/8 of to 8 times the best one at six computes, C = 6 N D."""
    points = []
    for compute in (1e12, 1e13, 1e14, 1e15, 1e16, 1e17):
        best = (0.35 * 480 / (0.37 * 2100)) ** (1 / 0.72) * (compute / 6) ** (0.37 / 0.72)
        for size in (best * 2.0**power for power in range(-3, 4)):
            points.append(((size, compute), lose(size, compute / (6 * size))))
    return points


SIZES: Final = [1e3 * 4**power for power in range(5)]
SAMPLES: Final = [128 * 4.0**power for power in range(5)]
STUDIES: Final = {
    "power": Study(
        "time over units: 5 points",
        "power",
        lambda: [((2.0**k,), 100 * 2.0 ** (-0.8 * k)) for k in range(5)],
        3,
        {"b": -0.8},
    ),
    "power, one each": Study(
        "time over units: 6 points",
        "power",
        lambda: [((2.0**k,), 100 * 2.0 ** (-0.8 * k)) for k in range(6)],
        1,
        {"b": -0.8},
    ),
    "seeds": Study(
        "epochs over batch: 5 points, seeds resampled",
        "power",
        lambda: [((32 * 2.0**k,), 9 * 2.0 ** (0.4 * k)) for k in range(5)],
        20,
        {"b": 0.4},
    ),
    "floor": Study(
        "loss over samples: 8 points",
        "floor",
        lambda: [((8 * 2.0**k,), 2 + 30 * (8 * 2.0**k) ** -0.6) for k in range(8)],
        3,
        {"b": -0.6, "c": 2},
    ),
    "batch": Study(
        "epochs over batch: 5 points",
        "batch",
        lambda: [((x,), 10 * (1 + x / 256)) for x in (32, 64, 128, 256, 512)],
        3,
        {"Bc": 256},
    ),
    "joint": Study(
        "loss over 5 sizes and 5 numbers of samples",
        "joint",
        lambda: [((n, d), 0.5 + 20 * n**-0.4 + 30 * d**-0.5) for n in SIZES for d in SAMPLES],
        3,
        {"a": 0.4, "b": 0.5, "E": 0.5},
        count=2,
    ),
    "isoflop": Study("best of 7 sizes at 6 computes", "isoflop", draw_isoflop, 1, {"a": 0.37 / 0.72}),
}


def simulate(name: str, spread: float, studies: int, seed: int = 42) -> dict[str, Any]:
    """Return the share of intervals that hold each true parameter, and how many fits are refused.

    spread: standard deviation of the logarithm of a measured value.
    """
    study, draw = STUDIES[name], random.Random(f"{seed} {name} {spread}")
    points, held, refused = study.points(), dict.fromkeys(study.truth, 0), 0
    for _ in tqdm(range(studies), f"{name}, {spread:.0%}", disable=None, leave=False):
        measured = [
            Observation(x, y * math.exp(draw.gauss(0, spread))) for x, y in points for _ in range(study.repetitions)
        ]
        try:
            law = fit_law(study.law, measured)
        except NoFitError:
            refused += 1
            continue
        for parameter, truth in study.truth.items():
            low, high = law.get(parameter).interval
            held[parameter] += low <= truth <= high
    shares = {parameter: count / max(studies - refused, 1) for parameter, count in held.items()}
    return {"study": name, "spread": spread, "studies": studies, "held": shares, "refused": refused}


# -- a network with known exponents -----------------------------------------------------------------------------

FEATURES: Final = 400
RATE: Final = 0.2
BATCH: Final = 16
NETWORK_SIZES: Final = (4, 8, 16, 32, 64)
NETWORK_STEPS: Final = (1600, 3200, 6400, 12800, 25600)
NETWORK_TRUTH: Final = {"a": 0.8, "b": 0.5}


def train_network(parameters: int, steps: int, seed: int) -> float:
    """Return the loss, exact over the population, of a linear network trained on new samples in each step.

    The target is the sum of two parts with power-law spectra. Of the first the network sees `parameters` of infinitely
    many features; the power of those that it does not see is parameters^-0.8. The second has features of variance
    j^-2 and is seen whole; what gradient descent over D samples has not yet learned of it falls as D^-0.5.
    Source: Bordelon, Atanasov, Pehlevan, A Dynamical Model of Neural Scaling Laws, 2024.
    """
    generator = np.random.default_rng((seed, parameters, steps))
    first, second = np.arange(1, parameters + 1), np.arange(1, FEATURES + 1)
    deviations = np.concatenate([first**-0.5, second**-1.0]).astype(np.float32)
    power = [1.0, *((first[1:] - 1.0) ** -0.8 - first[1:] ** -0.8)]
    weights = np.sqrt(np.concatenate([power, 3 / (second**2 - 0.25)])) / deviations
    unseen, learned = math.sqrt(parameters**-0.8 + 0.02), np.zeros(len(weights), np.float32)
    weights = weights.astype(np.float32)
    for step in range(steps):
        samples = generator.standard_normal((BATCH, len(weights)), np.float32) * deviations
        errors = samples @ (learned - weights) - unseen * generator.standard_normal(BATCH, np.float32)
        learned -= RATE * (1 - step / steps) / BATCH * (errors @ samples)
    return unseen**2 + float((((learned - weights) * deviations).astype(float) ** 2).sum())


def fit_network(seeds: int = 2) -> tuple[Law, list[Observation]]:
    """Return the joint law of the trained networks, and their losses over (parameters, samples)."""
    jobs = [(n, steps, seed) for n in NETWORK_SIZES for steps in NETWORK_STEPS for seed in range(seeds)]
    losses = [
        Observation((n, steps * BATCH), train_network(n, steps, seed))
        for n, steps, seed in tqdm(jobs, "networks", disable=None, leave=False)
    ]
    return fit_law("joint", losses), losses


# -- the page ---------------------------------------------------------------------------------------------------


def find_misses(coverages: list[dict[str, Any]], network: dict[str, Any]) -> Iterator[str]:
    """Yield what misses its goal."""
    for each in coverages:
        study = STUDIES[each["study"]]
        for parameter in list(study.truth)[: study.count]:
            share = each["held"][parameter]
            if not GOAL[0] <= share <= GOAL[1]:
                yield f"{each['study']}, spread {each['spread']:.0%}: {parameter} is held by {share:.1%}"
    for parameter, truth in NETWORK_TRUTH.items():
        low, high = network["intervals"][parameter]
        if not low <= truth <= high:
            yield f"network: {parameter} = {truth} is outside {low:.3f} to {high:.3f}"


def describe(results: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the page."""
    machine, network = results["machine"], results["network"]
    misses = list(find_misses(results["coverages"], network))
    yield "# Laws of studies: how often an interval holds the truth"
    yield ""
    yield (f"Measured by `bench/laws.py` on {describe_machine(machine)}, {results['cpu_s']:.0f} s of CPU time.")
    yield ""
    yield "A study is simulated 1,000 times with values that spread by 1 and by 5 % (lognormal)."
    yield "The 95 % interval of an exponent, or of the critical batch, holds the truth in 93 to 97 % of them: "
    yield f"**{'; '.join(misses) if misses else 'all do'}**. Floors (c, E) stand beside them."
    yield ""
    yield "| study | law | repetitions | spread | intervals that hold the truth | refused |"
    yield "|---|---|---|---|---|---|"
    for each in results["coverages"]:
        study = STUDIES[each["study"]]
        shares = ", ".join(f"{parameter} {share:.1%}".replace("%", " %") for parameter, share in each["held"].items())
        spread = f"{each['spread'] * 100:.0f} %"
        yield f"| {study.title} | {study.law} | {study.repetitions} | {spread} | {shares} | {each['refused']} |"
    yield ""
    yield "Refused are fits whose interval is wider than the exponent. One share of 1,000 is known to about 0.7 %."
    yield "The best sizes of a larger compute are less certain, because loss falls towards its floor; the law weighs"
    yield "them alike, as their number is too small to estimate how certain each is."
    yield ""
    yield "## A network with known exponents"
    yield ""
    yield (
        f"A linear network is trained by gradient descent, {network['runs']} times: {len(NETWORK_SIZES)} sizes, "
        f"{len(NETWORK_STEPS)} numbers of samples, 2 seeds. Its target has two parts with power-law spectra: one is "
        "limited by the features that the network has, the other by the samples that it has seen. The loss is known:"
    )
    yield ""
    yield "| exponent | truth | fit | 95 % interval |"
    yield "|---|---|---|---|"
    for parameter, truth in NETWORK_TRUTH.items():
        low, high = network["intervals"][parameter]
        yield f"| {parameter} | {truth} | {network['values'][parameter]:.3f} | {low:.3f} to {high:.3f} |"
    yield ""
    largest = f"{100 * network['largest']:.1f} %"
    yield f"`{network['formula']}`; intervals by {network['method']}; the largest residual is {largest}."


def page(results: dict[str, Any]) -> str:
    """Return the Markdown page."""
    return "\n".join(describe(results)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_keep_option(parser)
    parser.add_argument("--studies", type=int, default=1000, help="default: %(default)s")
    arguments = parser.parse_args()
    begin = time.process_time()
    coverages = [simulate(name, spread, arguments.studies) for name in STUDIES for spread in SPREADS]
    law, losses = fit_network()
    network = {
        "formula": law.formula,
        "method": law.method,
        "runs": len(losses),
        "values": {each.name: each.value for each in law.parameters},
        "intervals": {each.name: each.interval for each in law.parameters},
        "largest": max(abs(each.relative) for each in law.residuals),
        "losses": [[*each.x, each.y] for each in losses],
    }
    results = {"machine": about(), "cpu_s": time.process_time() - begin, "coverages": coverages, "network": network}
    print(page(results))
    if arguments.keep:
        keep_record("laws", results)
    return bool(list(find_misses(coverages, network)))


if __name__ == "__main__":
    sys.exit(main())
