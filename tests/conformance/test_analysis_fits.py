"""The fits, projections and costs of the published results."""

from pathlib import Path

import pytest

from common.measure.devices import read_ceilings
from compliance.engine import Options, check_paths
from submission.results.cost_model import CostModel, read_workloads
from submission.results.fits.fit import against_units, epochs_against_batch
from submission.results.fits.projection import project_sets, read_published
from submission.results.sets import analyse, read_facts
from tests.bench_script import bench_script

pytestmark = pytest.mark.exhaustive

published_points = bench_script("published_points")
MODEL = CostModel(read_workloads(), read_ceilings())
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
    return analyse(check_paths([str(corpus)], Options(details=True)), read_facts())


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
    fits = [fit for fit in against_units(sets) if fit.benchmark == "cosmoflow" and fit.rounds == ("0.7",)]
    found = {one.second_units: one.efficiency for fit in fits for one in fit.efficiencies}
    assert found == pytest.approx(EFFICIENCIES, abs=6e-4)


def test_errors_of_projections_and_costs(sets):
    projected, costs = project_sets(sets, [16_384], MODEL), MODEL.published_pairs(sets)
    assert len(projected.left_out) == len(costs.pairs) == 8 and projected.largest_factor == 32
    assert sorted((each.factor, each.first[:3]) for each in projected.left_out if each.scored) == [
        *((2, "1.0"), (2, "1.0"), (8, "1.0")),
    ]
    assert "% at 2 times the units (2 pairs" in projected.said and "% at 8 times the units (1 pair" in projected.said
    assert costs.median_error > 0.8 and costs.median_calibrated_error < 0.2
    assert all(pair.second_ratio < 1 for pair in costs.pairs)  # no published result is beyond the ceilings


def test_data_per_node_and_the_efficiencies_that_memory_explains(sets):
    """Memory explains neither of the two pairs of Piz Daint: the term for input from storage is off by default."""
    data = {(each.row.system, each.row.benchmark): each.data for each in sets if each.row.organisation == "CSCS"}
    kept = [data[f"daint_gpu_n{units}_tf2.2.0", "cosmoflow"] for units in (128, 256)]
    kept += [data[f"piz_daint_gpu_n{units}_pt1.9.0", "deepcam"] for units in (128, 1024)]
    assert [(round(each.raw / 1e9, 1), round(each.stored / 1e9, 1), each.held_by) for each in kept] == [
        *((42.9, 42.9, "memory"), (21.5, 21.5, "memory"), (64.1, 67.9, "neither"), (8.0, 8.5, "memory")),
    ]
    assert {each.memory for each in kept} == {64e9}
    costs = MODEL.published_pairs(sets)
    pairs = {(pair.first.split("/")[-1], round(pair.published_efficiency, 3)): pair for pair in costs.pairs}
    assert pairs["cosmoflow", 1.136].remark.endswith("only a fitted threshold could explain it")
    assert pairs["deepcam", 0.901].remark.startswith("worse than linear")
    assert costs.storage_log_error == costs.log_error and "this term stays off" in costs.text


def test_the_published_results_for_projections_are_those_of_the_published_logs(corpus):
    assert published_points.points(corpus) == (ROOT / "submission/results/fits/published.json").read_text()


def test_a_result_alone_is_projected_by_published_ones(sets):
    """Its published twin is not used twice: the errors are those of all published pairs."""
    (one,) = (one for one in sets if one.row.system == "dgxa100_n64_pytorch" and one.row.benchmark == "cosmoflow")
    found = project_sets([one], [1024], MODEL, read_published())
    assert [each.units for each in found.projections] == [1024] and len(found.left_out) == 8
    assert found.median_error == pytest.approx(project_sets(sets, [1024], MODEL).median_error)
