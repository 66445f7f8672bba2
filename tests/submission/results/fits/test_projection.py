"""Projections: their rule, where they leave it, and their error over results."""

from dataclasses import replace

import pytest

from compliance.formats.table import plain_text
from submission.results.fits.projection import projection_table, projections


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


def test_a_system_with_one_scale_takes_the_median_exponent_and_batches_end_where_results_do(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 256, 1), scale(result, "b", 64, 2)]
    sets += [scale(result, "mini", 16, 1, mini=True), scale(result, "mini", 64, 1, mini=True)]
    one = by_name(projections(sets, [4096]), "b_n64", 4096)
    assert (one.exponent, one.exponent_of) == (pytest.approx(-0.75), "median of 1 pair")
    notes = ("batch size 1,024, not 16,384: the results end there", "4 units share each sample")
    assert (one.batch_size, one.notes) == (1024, notes)


def test_better_than_ideal_is_not_projected(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 64, 1)]
    one = by_name(projections(sets, [32]), "a_n16", 32)
    assert one.exponent == -1 and one.exponent_of == "its system, not -1.500: better than ideal"


def test_the_error_comes_from_other_results_only(result):
    sets = [scale(result, name, 16, 8 + more) for name, more in (("a", 0), ("b", 0.001), ("c", 0.002))]
    sets += [scale(result, "a", 256, 1), scale(result, "b", 256, 1.001), scale(result, "c", 256, 4)]
    again = [replace(one, row=replace(one.row, round="4.0")) for one in sets]  # the same runs: nothing new
    assert projections([*sets, *again], []).left_out == projections(sets, []).left_out
    found = projections([*sets, scale(result, "d", 2, 9), scale(result, "e", 999, 9)], [])
    # a and b have the exponent -0.75, c has -0.25: without a those of b and c remain, with the median -0.5
    errors = [one.epoch_time_error for one in found.left_out]
    assert errors == pytest.approx([16**0.25 - 1, 16**0.25 - 1, 1 - 16**-0.5], abs=3e-3)
    assert found.worst_error == max(one.error for one in found.left_out)
    assert found.median_error == sorted(one.error for one in found.left_out)[1]
    assert found.said.startswith("projections, not results: over 3 pairs of results ")
    assert " % in the median" in found.said


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
    assert projections(sets, []).said.endswith("error is unknown: no system has results at two scales")
    assert projections(sets[:1], [32]).said.startswith(
        "no projections: 3.0/Example/a_n16/strong/cosmoflow: no exponent"
    )


def test_units_that_all_results_have_and_fewer_samples_than_one(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 256, 1)]
    found = projections(sets, [16])
    assert [one.reason for one in found.not_projected] == ["it has these units already"]
    assert found.said.startswith("projections, not results")
    small = result("b_n1024", 64, 1024, run_stop_epoch=9, run_epoch_time=3, run_time=30)
    one = by_name(projections([*sets, small], [1]), "b_n1024", 1)
    assert one.notes[0] == "batch size 64, not 0.06: the results end there"


def test_the_table_is_marked_and_says_where_the_exponents_are_from(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 256, 1)]
    text = plain_text(projection_table(projections(sets, [64, 4096])))
    assert text.startswith("projections, not results; their error is unknown: the only pair of results cannot be")
    assert text.count("exponent: its system") == 4 and " 4,096 " in text
