"""Laws of studies: true exponents within the intervals, and refusals in words. bench/laws.py has 1,000 studies each."""

import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from submission.results.fits.laws import LAWS, Observation, fit_law
from submission.results.fits.least_squares import NoFitError
from tests.bench_script import bench_script

ROOT = Path(__file__).resolve().parents[4]
TIMES = [Observation((x,), y) for x, y in ((1, 100.0), (2, 52.0), (4, 26.5), (8, 14.0))]


def power(spread, repetitions, seed=1, sizes=(1, 2, 4, 8, 16)):
    draw = random.Random(seed)
    return [
        Observation((x,), 100 * x**-0.8 * math.exp(draw.gauss(0, spread))) for x in sizes for _ in range(repetitions)
    ]


def test_a_power_law_has_value_interval_residuals_and_band():
    law = fit_law("power", [*TIMES, Observation((16,), 0.0, "broken")])
    assert law.formula.startswith("y = 99.") and (law.count, law.points, law.degrees, law.spread) == (4, 4, 2, None)
    b = law.get("b")
    assert b.interval[0] < b.value < b.interval[1] < 0
    assert law.interval(4)[0] < law.at(4) < law.interval(4)[1]
    assert law.interval(64)[1] / law.interval(64)[0] > law.interval(4)[1] / law.interval(4)[0]
    assert law.residuals[0].relative == pytest.approx(100 / law.at(1) - 1)
    assert [(each.observation.name, each.reason) for each in law.left_out] == [
        ("broken", "a logarithm needs numbers above 0")
    ]


def test_too_few_points_and_intervals_that_say_nothing_are_refused():
    with pytest.raises(NoFitError, match="no fit: 2 points; a power law needs 4"):
        fit_law("power", [*TIMES[:2], *TIMES[:2]])
    with pytest.raises(NoFitError, match="not even its sign is known"):
        fit_law("power", [Observation((x,), y) for x, y in ((1, 3), (2, 2), (4, 2.5), (8, 3.1))])
    with pytest.raises(NoFitError, match="wider than its value"):
        fit_law("power", [Observation((x,), y) for x, y in ((1, 2.0), (2, 1.3), (4, 1.45), (8, 0.9), (16, 0.8))])


def test_repetitions_of_points_that_miss_the_law_do_not_make_it_more_certain():
    noise = fit_law("power", power(0.02, 5))
    assert noise.method == "Student's t" and noise.degrees == 23 and noise.spread == pytest.approx(0.02, rel=0.4)
    bent = [each._replace(y=each.y * (1 + 0.01 * math.log(each.x[0]) ** 2)) for each in power(0.002, 5)]
    law = fit_law("power", bent)
    assert law.degrees == 3 and "means of the points" in law.method
    again = fit_law("power", [each for each in bent for _ in range(3)])
    assert again.get("b").interval == pytest.approx(law.get("b").interval)


def test_seeds_are_resampled_from_20_of_each_point_on():
    few, many = (fit_law("power", power(0.03, repetitions)) for repetitions in (19, 20))
    assert few.method == "Student's t" and many.method == "999 resamples of the seeds"
    low, high = many.get("b").interval
    assert low < -0.8 < high and high - low == pytest.approx(
        few.get("b").interval[1] - few.get("b").interval[0], rel=0.3
    )
    assert many.interval(4)[0] < many.at(4) < many.interval(4)[1]


def test_floor_and_critical_batch():
    pytest.importorskip("scipy")
    floor = fit_law("floor", [Observation((x,), 2 + 30 * x**-0.6 * 1.001 ** ((-1) ** x)) for x in range(8, 200, 19)])
    assert [each.value for each in floor.parameters] == pytest.approx([2, 30, -0.6], rel=0.02)
    assert all(each.interval[0] < each.value < each.interval[1] for each in floor.parameters)
    batch = fit_law("batch", [Observation((x,), 10 * (1 + x / 256)) for x in (32, 64, 128, 256, 512)])
    assert [each.value for each in batch.parameters] == pytest.approx(
        [10, 256]
    ) and batch.formula == "E = 10 (1 + B / 256)"
    with pytest.raises(NoFitError, match=r"of a power law with a floor|not even its sign|wider than"):
        fit_law("floor", [Observation((x,), 9 - 5 * x**-0.5) for x in (1, 2, 4, 8, 16, 32)])


def lose(parameters, samples):
    return 0.5 + 20 * parameters**-0.4 + 30 * samples**-0.5


def test_the_joint_law_of_parameters_and_samples():
    pytest.importorskip("scipy")
    draw, sizes = random.Random(4), (1e3, 4e3, 1.6e4, 6.4e4)
    points = [(n, d) for n in sizes for d in (128, 512, 2048, 8192)]
    law = fit_law("joint", [Observation(x, lose(*x) * math.exp(draw.gauss(0, 0.01))) for x in points for _ in range(3)])
    for name, truth in (("a", 0.4), ("b", 0.5), ("E", 0.5)):
        assert law.get(name).interval[0] < truth < law.get(name).interval[1]
    assert law.at(4e3, 512) == pytest.approx(lose(4e3, 512), rel=0.02)
    with pytest.raises(NoFitError, match=r"do not separate|wider than|not even its sign"):
        fit_law("joint", [Observation((1e3, d), lose(1e3, d)) for d in range(100, 900, 100)])


def isoflop(factors, computes=(1e12, 1e13, 1e14, 1e15, 1e16)):
    """Return losses at sizes around the best one of each compute, 3 C^0.5 / 1e6."""
    return [
        Observation((3e-6 * c**0.5 * f * 1e6, c), 2 + 0.1 * math.log(f) ** 2 + 40 * c**-0.2)
        for c in computes
        for f in factors
    ]


def test_isoflop_minima_lie_within_the_sizes_tried():
    law = fit_law("isoflop", isoflop((0.25, 0.5, 1, 2, 4)))
    assert law.get("a").value == pytest.approx(0.5) and law.at(1e12) == pytest.approx(3e6)
    assert [each.minimum for each in law.parabolas] == pytest.approx(
        [3 * c**0.5 for c in (1e12, 1e13, 1e14, 1e15, 1e16)]
    )
    outside = isoflop((2, 3, 4, 6, 8), computes=[1e17])
    assert [each.reason for each in fit_law("isoflop", isoflop((0.25, 0.5, 1, 2, 4)) + outside).left_out] == [
        "the minimum at a compute of 1e+17 is outside the sizes tried"
    ]
    with pytest.raises(NoFitError, match=r"0 points with a minimum inside the sizes tried; .* needs 4; 3 sizes at a"):
        fit_law("isoflop", isoflop((0.5, 1, 2)))


def test_without_scipy_the_laws_that_need_it_say_what_to_install():
    program = (
        "import sys; sys.modules['scipy'] = None; "
        "from submission.results.fits.laws import *; x = [Observation((i + 1.0,), 1 / (i + 1)) for i in range(9)];"
        "print(fit_law('power', x).name); fit_law('floor', x)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "power\n" and "NoFitError: no fit: " in done.stderr


@pytest.mark.parametrize("name", LAWS)
def test_intervals_hold_the_truth_as_often_as_they_say(name):
    """A quick version of bench/laws.py: 60 studies leave room for 3 sigma below 95 %."""
    if name not in ("power", "isoflop"):
        pytest.importorskip("scipy")
    bench = bench_script("laws")
    coverage = bench.simulate(name, spread=0.02, studies=60)
    assert coverage["refused"] <= 1 and min(coverage["held"].values()) >= 0.85
