"""Fits: the values of published results, intervals that hold, and which results count."""

import math
import random
from dataclasses import replace

import pytest

from submission.results.fits.fit import (
    against_power_cap,
    against_units,
    epochs_against_batch,
    scaling_pairs,
)
from submission.results.fits.least_squares import NoFitError, critical_batch, power_law

FIRST_ROUND = [
    *((256, 70.25), (512, 113.125), (512, 100), (512, 92.375), (64, 53.875)),
    *((512, 111.875), (64, 55.375), (512, 102.125), (64, 49.875)),
]
"""Batch size and epochs of the closed results of CosmoFlow in round 0.7."""
SIZES = (64, 128, 256, 256, 512, 512, 1024, 2048)


def test_power_law_and_critical_batch_of_the_first_round():
    power, critical = power_law(FIRST_ROUND), critical_batch(FIRST_ROUND)
    assert (power.a, power.b, power.r_squared) == pytest.approx((13.7261, 0.3209, 0.9347), abs=5e-5)
    assert power.b_interval == pytest.approx((0.2451, 0.3967), abs=5e-5) and not power.holds_zero
    assert (critical.e0, critical.bc, critical.problem) == (
        pytest.approx(44.953, abs=5e-4),
        pytest.approx(392.7, abs=0.05),
        "",
    )


def test_the_interval_of_the_curve_is_wider_away_from_the_middle():
    power = power_law(FIRST_ROUND)
    near, far = power.interval(256), power.interval(65_536)
    assert near[0] < power.at(256) < near[1] and far[1] / far[0] > near[1] / near[0]


@pytest.mark.parametrize("model", ["power law", "critical batch"])
def test_intervals_hold_the_truth_as_often_as_they_say(model):
    draw, held = random.Random(7), 0
    for _ in range(1000):
        if model == "power law":
            points = [(x, 3 * x**0.4 * math.exp(draw.gauss(0, 0.2))) for x in SIZES]
            low, high = power_law(points).b_interval
            held += low <= 0.4 <= high
        else:
            points = [(x, 10 * (1 + x / 500) + draw.gauss(0, 2)) for x in SIZES]
            low, high = critical_batch(points).line.slope_interval
            held += low <= 10 / 500 <= high
    assert 930 <= held <= 970


def test_few_points():
    two = power_law([(1, 8), (2, 4)])
    assert (two.a, two.b) == pytest.approx((8, -1))
    assert two.b_interval is two.a_interval is two.interval(4) is None and not two.holds_zero
    for points in ([], [(4, 1)], [(4, 1), (4, 2)]):
        with pytest.raises(NoFitError, match="two different values"):
            power_law(points)
    with pytest.raises(NoFitError, match="above 0"):
        power_law([(1, 0), (2, 4)])


def test_a_line_that_falls_or_starts_below_zero_has_no_critical_batch():
    assert critical_batch([(1, 5), (2, 4)]).bc is None and "do not grow" in critical_batch([(1, 5), (2, 4)]).problem
    assert critical_batch([(1, 1), (2, 5)]).e0 is None and "below 0" in critical_batch([(1, 1), (2, 5)]).problem


def test_epochs_count_once_closed_and_apart_from_the_first_round(result):
    sets = [
        result("a", 64, 1, run_stop_epoch=10, run_time=1),
        result("b", 128, 1, run_stop_epoch=26, run_time=2, normalisation=2),
        result("c", 256, 1, run_stop_epoch=16, run_time=3),
        result("copy", 256, 1, run_stop_epoch=16, run_time=3, organisation="Other", round="2.0"),
        result("open", 512, 1, run_stop_epoch=99, run_time=4, division="open"),
        result("undivided", 512, 1, run_stop_epoch=99, run_time=4.5, division=""),
        result("weak", 512, 1, run_stop_epoch=99, run_time=5, scaling="weak"),
        result("unknown", None, 1, run_stop_epoch=99, run_time=6),
        result("old", 64, 1, run_stop_epoch=99, run_time=7, round="0.7"),
        result("mini", 64, 1, run_stop_epoch=99, run_time=8, mini=True),
    ]
    first, later, mini = epochs_against_batch(sets)
    assert [point.y for point in later.points] == [16, 10, 13] and later.rounds == ("2.0", "3.0")
    assert {one.name.split("/")[2]: one.reason for one in later.left_out} == {
        "c": "the same runs as 2.0/Other/copy/strong/cosmoflow",
        "open": "open division, not closed",
        "undivided": "no division stated",
        "weak": "a throughput result",
        "unknown": "its logs and system description give no batch",
    }
    assert first.problem == "no fit: it needs results at two batch sizes or more" and first.power is None
    assert mini.title == "epochs against batch: cosmoflow (mini), round 3.0"
    assert later.said.startswith("cosmoflow, rounds 2.0 to 3.0: E grows as batch^0.339 (95 % interval ")
    assert later.said.endswith("; epochs as run, before normalisation") and "before" not in mini.said


def test_a_result_given_twice_counts_once(result):
    sets = [result(name, size, 1, run_stop_epoch=size, run_time=size) for name, size in (("a", 64), ("b", 128))]
    (fit,) = epochs_against_batch([*sets, *sets])
    assert len(fit.points) == 2 and [one.reason for one in fit.left_out] == ["given twice"] * 2
    scales = [result(f"s_n{n}", 64, n, run_epoch_time=1 / n, run_time=1 / n) for n in (8, 64)]
    again = [replace(one, row=replace(one.row, round="4.0")) for one in scales]
    assert len(scaling_pairs([*scales, *scales, *again])) == 1


def test_samples_are_not_called_epochs(result):
    sets = [result(f"s{size}", size, 1, run_stop_samples=1 / size, run_time=size) for size in (64, 128)]
    (fit,) = epochs_against_batch(sets)
    assert fit.critical.problem.startswith("samples do not grow")


@pytest.mark.parametrize(("names", "title"), [(("Clus_n32", "clus_N8"), "Clus"), (("_n32", "_n8"), "_n32")])
def test_the_name_of_a_system_in_any_letter_case(result, names, title):
    sets = [result(name, 64, units, run_epoch_time=1 / units) for name, units in zip(names, (32, 8), strict=True)]
    (fit,) = against_units(sets)
    assert fit.title == f"epoch time against units: cosmoflow on {title}, round 3.0"


def test_only_points_that_determine_a_law_make_one(result):
    sets = [
        result(name, size, 1, run_stop_epoch=epochs, run_time=epochs)
        for name, size, epochs in [("a", 64, 10), ("b", 128, 20), ("c", 256, 11), ("d", 512, 18), ("e", 1024, 13)]
    ]
    two, three, five = (epochs_against_batch(sets[:count])[0] for count in (2, 3, 5))
    assert two.said.endswith("2 results are too few for a law; the line through them has the exponent 1.000")
    assert "no law: the exponent is 0.069 (95 % interval -6.763 to 6.900, 3 results)" in three.said
    assert five.said.endswith("5 results); the interval holds 0: no growth is shown")
    assert [fit.is_law for fit in (two, three, five)] == [False, False, True]
    again = [*sets[:2], result("f", 128, 1, run_stop_epoch=20.1, run_time=3)]
    assert not epochs_against_batch(again)[0].is_law, "three points at two batch sizes are a line through two"


def test_scales_of_one_system_give_an_exponent_and_efficiencies(result):
    sets = [
        result("fugaku_512x", 512, 512, run_epoch_time=2.42, run_time=1, organisation="RIKEN"),
        result("fugaku_8192x", 512, 8192, run_epoch_time=1.05, run_time=2, division="open"),
        result("fugaku_n8_other_chip", 512, 8, run_epoch_time=9, run_time=3, accelerator="P100"),
        result("fugaku_n8_other_round", 512, 8, run_epoch_time=9, run_time=4, round="2.0"),
        result("daint_n8", 512, 8, run_epoch_time=9, run_time=5),
    ]
    (fit,) = against_units(sets)
    assert (
        fit.title == "epoch time against units: cosmoflow on fugaku, round 3.0"
        and "2 results are too few for a law" in fit.said
    )
    (found,) = fit.efficiencies
    assert (found.first_units, found.second_units) == (512, 8192)
    assert found.efficiency == pytest.approx(2.42 * 512 / (1.05 * 8192))


def test_energy_and_power_caps_of_simulated_results(result):
    scales = [result(f"s_n{n}", 64, n, energy_joules=1e6 * n**0.25, run_time=n, run_epoch_time=1) for n in (8, 64, 512)]
    _, energy = against_units(scales)
    assert energy.power.b == pytest.approx(0.25) and energy.efficiencies == () and "energy grows as" in energy.said
    assert energy.y.unit == "kJ" and max(one.y for one in energy.points) == pytest.approx(512**0.25 * 1000)
    capped = [
        result(f"s_{watts}W", 64, 8, run_time=1000 * watts**-0.5, energy_joules=watts**0.5, watts=watts)
        for watts in (150, 200, 250)
    ]
    time, joules = against_power_cap(capped, {one.full_name: one.mean("watts") for one in capped})
    assert time.power.b == pytest.approx(-0.5) and joules.power.b == pytest.approx(0.5)
    assert time.said.startswith("cosmoflow on s, 8 accelerators, round 3.0: run time falls as power cap^-0.500")
    assert against_power_cap(capped, {}) == []
