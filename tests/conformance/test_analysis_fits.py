"""The fits, projections and costs of the published results."""

from pathlib import Path

import pytest

from common.measure.accelerators import read_ceilings
from compliance.engine import Options, check_paths
from submission.results.cost_model.model import CostModel, read_workloads
from submission.results.fits.fit import epoch_time_against_units, epochs_against_batch
from submission.results.fits.projection import projections, read_published
from submission.results.sets import analyse, known_facts
from tests.bench_script import bench_script

pytestmark = pytest.mark.exhaustive

published_points = bench_script("published_points")
ROOT = Path(__file__).resolve().parents[2]
FITS = {
    "cosmoflow, round 0.7": (9, 13.7261, 0.3209, 0.9347, (0.2451, 0.3967), 44.953, 392.7),
    "cosmoflow, rounds 1.0 to 2.0": (6, 2.0048, 0.4481, 0.5266, (-0.1417, 1.0379), None, None),
    "deepcam, rounds 1.0 to 3.0": (12, 1.1632, 0.3828, 0.8729, (0.2799, 0.4858), 7.560, 998.2),
    "oc20, rounds 1.0 to 2.0": (4, 0.6765, 0.5149, 0.9643, (0.2133, 0.8164), 13.667, 1354.3),
}
"""Points, a, b, R^2, interval of b, E0, Bc: section 1.5 of specs/analysis.md."""
EFFICIENCIES = {256: 1.136, 1024: 0.933, 2048: 0.641, 8192: 0.144, 16384: 0.423}
"""By the units of the larger result of CosmoFlow in round 0.7: section 1.1."""


@pytest.fixture(scope="module")
def sets(corpus):
    return analyse(check_paths([str(corpus)], Options(details=True)), known_facts())


def test_epochs_against_batch(sets):
    fits = {fit.title.removeprefix("epochs against batch: "): fit for fit in epochs_against_batch(sets)}
    for title, (count, a, b, r_squared, interval, e0, bc) in FITS.items():
        power, critical = fits[title].power, fits[title].critical
        assert len(fits[title].points) == count
        assert (power.a, power.b, power.r_squared) == pytest.approx((a, b, r_squared), abs=6e-5)
        assert power.b_interval == pytest.approx(interval, abs=6e-5)
        if e0 is not None:
            assert (critical.e0, critical.bc) == pytest.approx((e0, bc), rel=2e-4)
    assert "no growth is shown" in fits["cosmoflow, rounds 1.0 to 2.0"].said


def test_efficiencies_of_the_first_round(sets):
    fits = [fit for fit in epoch_time_against_units(sets) if fit.benchmark == "cosmoflow" and fit.rounds == ("0.7",)]
    found = {one.second_units: one.efficiency for fit in fits for one in fit.efficiencies}
    assert found == pytest.approx(EFFICIENCIES, abs=6e-4)


def test_errors_of_projections_and_costs(sets):
    found, costs = projections(sets, [16_384]), CostModel(read_workloads(), read_ceilings()).published_pairs(sets)
    assert len(found.left_out) == len(costs.pairs) == 8
    assert found.median_error < 0.25 and found.worst_error < 0.6
    assert costs.median_error > 0.8 and costs.median_calibrated_error < 0.2
    assert all(pair.second_ratio < 1 for pair in costs.pairs)  # no published result is beyond the ceilings


def test_the_published_results_for_projections_are_those_of_the_published_logs(corpus):
    assert published_points.points(corpus) == (ROOT / "submission/results/fits/published.json").read_text()


def test_a_result_alone_is_projected_by_published_ones(sets):
    """Its published twin is not used twice: the errors are those of all published pairs."""
    (one,) = (one for one in sets if one.row.system == "dgxa100_n64_pytorch" and one.row.benchmark == "cosmoflow")
    found = projections([one], [1024], read_published())
    assert [each.units for each in found.projections] == [1024] and len(found.left_out) == 8
    assert found.median_error == pytest.approx(projections(sets, [1024]).median_error)
