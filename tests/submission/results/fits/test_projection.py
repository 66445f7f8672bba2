"""Projections: their rule, where they leave it, their limits, and their error over results."""

from dataclasses import replace

import pytest

from common.measure.devices import read_ceilings
from compliance.formats.table import plain_text
from submission.results.cost_model import CostModel, read_workloads
from submission.results.fits.projection import project_sets, projection_table, read_published, share_samples

MODEL = CostModel(read_workloads(), read_ceilings())


def projections(sets, units, model=MODEL):
    return project_sets(sets, units, model)


def scale(result, system, units, epoch_minutes, **more):
    """Return a result of ten epochs, or with 4 samples per unit as a power law says, and a minute of staging."""
    epochs = 5 * units**0.25
    return result(
        f"{system}_n{units}",
        4 * units,
        units,
        **{"run_stop_epoch": epochs, "run_epoch_time": epoch_minutes, "run_time": epochs * epoch_minutes + 1, **more},
    )


def by_name(found, name, units):
    (one,) = (one for one in found.projections if name in one.name and one.units == units)
    return one


def test_a_projection_follows_its_own_system_and_the_epochs_of_all(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 256, 1), scale(result, "b", 1024, 2)]
    one = by_name(projections(sets, [64]), "a_n16", 64)
    assert (one.exponent, one.exponent_of, one.notes) == (pytest.approx(-0.75), "its system", ())
    assert (one.batch_size, one.epochs) == (256, pytest.approx(5 * 64**0.25))
    assert one.epoch_minutes == pytest.approx(8 * 4**-0.75) and one.rest_minutes == pytest.approx(1)
    assert one.minutes == pytest.approx(one.epochs * one.epoch_minutes + 1)


def test_a_system_with_one_scale_takes_the_median_exponent_of_round_0_7_and_batches_end_where_results_do(result):
    sets = [scale(result, "a", 16, 8, round="0.7"), scale(result, "a", 1024, 0.35355, round="0.7")]
    sets += [scale(result, "c", 16, 8), scale(result, "c", 256, 4), scale(result, "b", 64, 2)]
    sets += [scale(result, "mini", 16, 1, mini=True), scale(result, "mini", 64, 1, mini=True)]
    one = by_name(projections(sets, [4096]), "b_n64", 4096)
    assert (one.exponent, one.exponent_of) == (pytest.approx(-0.75, abs=1e-4), "median of 1 pair of round 0.7")
    notes = ("batch size 1,024, not 16,384: the results end there", "4 units share each sample")
    assert (one.batch_size, one.notes[:2]) == (1024, notes)


def test_better_than_ideal_is_not_projected(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 64, 1)]
    one = by_name(projections(sets, [32]), "a_n16", 32)
    assert one.exponent == -1 and one.exponent_of == "its system, not -1.500: better than ideal"


def test_the_method_is_fixed_on_round_0_7_and_measured_on_later_ones(result):
    """The exponent of round 0.7 is -0.75, those of the others -0.75 and -0.25, over 16 and 4 times the units."""
    sets = [scale(result, "a", 16, 8, round="0.7"), scale(result, "a", 256, 1, round="0.7")]
    sets += [scale(result, "b", 16, 8.1), scale(result, "b", 256, 8.1 / 8), scale(result, "c", 16, 8.2)]
    sets += [scale(result, "c", 64, 8.2 / 2**0.5)]
    again = [replace(each, row=replace(each.row, round="4.0")) for each in sets]  # the same runs: nothing new
    measured = projections(sets, [])
    assert projections([*sets, *again], []).median_error == pytest.approx(measured.median_error)
    assert [(each.factor, each.epoch_time_error) for each in measured.left_out if each.scored] == [
        *((16, pytest.approx(0, abs=1e-9)), (4, pytest.approx(0.5))),
    ]
    assert (measured.median_epoch_time_error, measured.largest_factor) == (pytest.approx(0.25), 16)
    assert "in later rounds by 49 % at 4 times the units (1 pair, at worst 49 %), 28 % at 16 times" in measured.said
    assert measured.said.endswith("beyond 16 times, the most between results of a system, a range")


def test_beyond_the_largest_factor_a_projection_is_a_range_from_ideal_scaling_to_none(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 64, 4), scale(result, "a", 1024, 1)]
    (up,) = (each for each in projections(sets, [2048]).projections if each.published_units == 16)
    assert (up.minutes, up.epoch_minutes, up.factor) == (None, None, 128)
    assert (up.epoch_minutes_low, up.epoch_minutes_high) == pytest.approx((0.5, 1))
    assert up.minutes_high == pytest.approx(up.epochs * 1 + 1) and up.notes[-1].startswith(
        "a range: 128 times the units"
    )
    assert "0.5000 to 1.000" in plain_text(projection_table(projections(sets, [2048])))
    (down,) = (each for each in projections(sets, [8]).projections if each.published_units == 1024)
    assert (down.epoch_minutes_low, down.epoch_minutes_high) == pytest.approx((8, 16))


def test_no_projection_is_below_the_bound_of_the_cost_model(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 256, 1)]
    slow = replace(MODEL, ceilings={"V100": replace(MODEL.ceilings["V100"], network_bytes_per_s=1e6)})
    bound = slow.cost_step("cosmoflow", "V100", 64, 256).epoch_seconds / 60
    each = by_name(projections(sets, [64], slow), "a_n16", 64)
    assert each.epoch_minutes == each.bound_epoch_minutes == pytest.approx(bound)
    assert each.notes == ("at the bound of the cost model",)
    unknown = by_name(
        projections([replace(each, row=replace(each.row, accelerator="?")) for each in sets], [64]), "a_n16", 64
    )
    assert unknown.bound_epoch_minutes is None and unknown.notes[0].startswith("no bound")


def test_units_that_cannot_share_a_sample_do_not_work(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 256, 1)]
    each = by_name(projections(sets, [100_000]), "a_n256", 16_384)
    assert (each.asked_units, each.batch_size, each.spatial) == (100_000, 1024, 16)
    assert "16,384 of 100,000 units can work: a batch of 1,024, and at most 16 units a sample" in each.notes
    deepcam = [replace(each, row=replace(each.row, benchmark="deepcam", batch_size=each.units)) for each in sets]
    projected = projections(deepcam, [4096])
    assert {each.units for each in projected.projections} == {256}
    assert [each.reason for each in projected.not_projected] == [
        "256 of 4,096 units can work: a batch of 256, and at most 1 unit a sample; it has these"
    ]
    assert [share_samples(*sizes) for sizes in ((8, 8, 16), (7, 8, 16), (17, 8, 16), (4099, 2048, 16), (9, 2, 2))] == [
        *((8, 1), (7, 1), (16, 2), (4098, 3), (4, 2)),
    ]


def test_published_results_are_projected_within_the_limits():
    units = [2048, 16_384, 99_991, 100_000]
    projected = project_sets(published := read_published(), units, MODEL)
    assert {each.asked_units for each in projected.projections} == set(units)
    for each in projected.projections:
        assert each.epoch_minutes_low >= (each.bound_epoch_minutes or 0), each
        assert each.spatial <= MODEL.workloads[each.workload].most_spatial, each
        assert each.units <= min(each.batch_size * each.spatial, each.asked_units), each
        assert (each.minutes is None) == (
            each.factor > projected.largest_factor
        ) and each.minutes_high >= each.minutes_low
        if each.minutes is not None:
            assert each.minutes == each.minutes_low == each.minutes_high
    assert all(each.ceilings for each in projected.projections) and len(published) > 30


def test_without_pairs_nothing_is_projected_and_the_reasons_are_said(result):
    sets = [scale(result, "a", 16, 8), result("bare", None, 8, run_epoch_time=3, run_time=3), result("none", 1, None)]
    found = projections(sets, [32])
    assert found.projections == found.left_out == () and found.median_error is None
    assert {one.name.split("/")[2]: one.reason for one in found.not_projected} == {
        "a_n16": "no exponent: no comparable system has results at two scales",
        "bare": "its logs give no batch size and no epochs",
        "none": "its logs and system description give no units",
    }
    assert found.said.startswith("no projections: 1 result: no exponent: no comparable system has")
    assert "error is unknown: no system of a later round than 0.7 has two scales" in projections(sets, []).said


def test_units_that_all_results_have_and_fewer_samples_than_one(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 256, 1)]
    found = projections(sets, [16])
    assert [one.reason for one in found.not_projected] == ["it has these units already"]
    assert found.said.startswith("projections, not results")
    small = result("a_n1024", 64, 1024, run_stop_epoch=9, run_epoch_time=3, run_time=30)
    one = by_name(projections([*sets, small], [1]), "a_n1024", 1)
    assert one.notes[0] == "batch size 64, not 0.06: the results end there"
