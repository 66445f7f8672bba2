"""Projections: their rule, where they leave it, and their error over results."""

import pytest

from submission.analysis.fits.projection import projection_table, projections
from submission.text_table import plain_text


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
    assert (one.exponent, one.exponent_of) == (pytest.approx(-0.75), "median of 1 published pairs")
    notes = ("batch size 1,024, not 16,384: the published ones end there", "4 units share each sample")
    assert (one.batch_size, one.notes) == (1024, notes)


def test_better_than_ideal_is_not_projected(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 64, 1)]
    one = by_name(projections(sets, [32]), "a_n16", 32)
    assert one.exponent == -1 and one.exponent_of == "its system, not -1.500: better than ideal"


def test_the_error_comes_from_other_results_only(result):
    sets = [scale(result, name, 16, 8) for name in "abc"]
    sets += [scale(result, "a", 256, 1), scale(result, "b", 256, 1.001), scale(result, "c", 256, 4)]
    found = projections([*sets, scale(result, "d", 2, 9), scale(result, "e", 999, 9)], [])
    # a and b have the exponent -0.75, c has -0.25: without a those of b and c remain, with the median -0.5
    errors = [one.epoch_time_error for one in found.left_out]
    assert errors == pytest.approx([16**0.25 - 1, 16**0.25 - 1, 1 - 16**-0.5], abs=3e-3)
    assert found.worst_error == max(one.error for one in found.left_out)
    assert found.median_error == sorted(one.error for one in found.left_out)[1]
    assert found.said.startswith("projections, not results: over 3 published pairs")


def test_without_pairs_nothing_is_projected_and_the_error_is_unknown(result):
    found = projections([scale(result, "a", 16, 8), result("bare", None, None)], [32])
    assert found.projections == found.left_out == () and found.median_error is None and "unknown" in found.said


def test_the_table_is_marked_and_says_where_the_exponents_are_from(result):
    sets = [scale(result, "a", 16, 8), scale(result, "a", 256, 1)]
    text = plain_text(projection_table(projections(sets, [64])))
    assert text.startswith("projections, not results; their error is unknown: expected two systems")
    assert text.count("exponent: its system") == 2
