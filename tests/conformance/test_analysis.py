"""The analysis gives the numbers that the authors of the paper printed for round 0.7; then fits and shares of peaks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from common.measure.devices import read_ceilings
from compliance.model.layout import WEAK
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from submission.results.cost_model import CostModel, read_workloads
from submission.results.fits.fit import against_units, epochs_against_batch
from submission.results.fits.projection import project_sets, read_published
from submission.results.operations import count_operations, rate_result
from submission.results.page.analysis import list_pictures
from submission.results.page.export import flatten_quantities, render_standalone
from submission.results.quantities import AnalysedSet
from submission.results.read_rows import every_set
from submission.results.rows import ResultOperations
from submission.results.sets import analyse_sets, read_facts
from tests.bench_script import bench_script

ROOT = Path(__file__).resolve().parents[2]
RELATIVE, ABSOLUTE = 1e-4, 1e-6
"""The anchors are printed with 6 decimals."""
PRINTED = {
    ("halv100_n16_tf1.15.0", "cosmoflow"): (265.59, 29.029, 55.375, 4.793, 62077, 1.1496e5, 283.29, 0.99702, -0.38709),
    ("frontera_rtx_n16_tf1.15.2_lbs1", "cosmoflow"): (
        *(602.23, 76.662, 49.875, 12.086, 25125, 39652, 642.37, 0.67148, -0.14582),
    ),
    ("fugaku_8192xA64FX_tensorflow_closed", "cosmoflow"): (
        *(101.49, 12.865, 92.375, 1.0489, 3.2328e5, 2.754e5, 13857, 0.92678, -0.009924),
    ),
    ("abci_512xV100_tensorflow_closed", "cosmoflow"): (
        *(34.339, 4.0322, 100, 0.33531, 8.1598e5, 4.6657e6, 293.03, 0.96052, -0.51631),
    ),
    ("fugaku_512xA64FX_tensorflow_closed", "cosmoflow"): (
        *(269.59, 28.147, 110.47, 2.4197, 1.233e5, 2.2326e5, 2300.5, 0.99363, -0.11396),
    ),
    ("abci_2048xV100_tensorflow_open", "cosmoflow"): (
        *(13.212, 0.3534, 98.5, 0.13068, 2.0624e6, 1.8335e7, 450.96, 0.80349, -0.19106),
    ),
    ("fugaku_16384xA64FX_tensorflow_open", "cosmoflow"): (
        *(30.073, 0.50607, 158, 0.17867, 1.9569e6, 1.4658e6, 8212, 0.90174, 0.20328),
    ),
    ("abci_1024xV100_fjpytorch_open", "deepcam"): (
        *(10.485, 0.22817, 23.667, 0.36028, 3.4204e5, 2.8167e5, 178.95, 0.96786, -0.86566),
    ),
}
"""What the table of specs/analysis.md says of results that have no anchor, with 5 digits."""
COLUMNS = (
    *("run_time.mean", "run_time.std", "run_stop_epoch.mean", "run_epoch_time.mean", "run_train_throughput.mean"),
    *("run_eval_throughput.mean", "run_compute_budget", "explained_variance_ratio_1", "epochs_system_correlation"),
)


@pytest.fixture(scope="module")
def sets(strict: Report) -> list[AnalysedSet]:
    """Return the analysis of all published results."""
    return analyse_sets(strict, read_facts())


def quantities(sets: list[AnalysedSet], system: str, benchmark: str) -> tuple[AnalysedSet, dict[str, float | None]]:
    (found,) = (s for s in sets if (s.row.round, s.row.system, s.row.benchmark) == ("0.7", system, benchmark))
    return found, flatten_quantities(found)


def test_anchors_of_the_paper(sets: list[AnalysedSet], shared: Path) -> None:
    anchors = json.loads((shared / "corpus" / "paper_anchors_v0.7.json").read_text())
    compared = nulls = 0
    for benchmark, submissions in anchors.items():
        for name, wanted in submissions.items():
            analysed, found = quantities(sets, name.split("/")[1], benchmark)
            for key, value in wanted.items():
                if value is None:
                    nulls += 1
                    reason = analysed.excluded["run_staging_time" if "staging" in key else key]
                    assert found[key] is None and reason, (name, key)
                    continue
                compared += 1
                assert found[key] == pytest.approx(value, rel=RELATIVE, abs=ABSOLUTE), (name, key)
    assert (compared, nulls) == (106, 13)


@pytest.mark.parametrize(("system", "benchmark"), PRINTED)
def test_table_of_the_paper(sets: list[AnalysedSet], system: str, benchmark: str) -> None:
    _, found = quantities(sets, system, benchmark)
    for key, value in zip(COLUMNS, PRINTED[system, benchmark], strict=True):
        assert f"{found[key]:.4g}" == f"{value:.4g}" or found[key] == pytest.approx(value, rel=RELATIVE), key


def test_staging_of_fugaku_and_the_normalised_result(sets: list[AnalysedSet]) -> None:
    """Staging is not normalised, and its share is one of the normalised time."""
    analysed, found = quantities(sets, "fugaku_512xA64FX_tensorflow_closed", "cosmoflow")
    assert found["run_staging_time.mean"] == pytest.approx(1.5464, rel=RELATIVE)
    assert found["staging_time/run_time"] == pytest.approx(0.005736, rel=RELATIVE)
    assert found["staging_time/epoch_time"] == pytest.approx(0.63908, rel=RELATIVE)
    assert "normalised" in analysed.excluded and any("1.0817" in note for note in analysed.notes)


def test_epochs_after_the_target_are_shown_and_marked(sets: list[AnalysedSet]) -> None:
    """One log of NCSA goes on from epoch 54 to 57, of 0-based numbers."""
    analysed, _ = quantities(sets, "halv100_n16_tf1.15.0", "cosmoflow")
    (longer,) = (run for run in analysed.runs if run.values["run_target_epoch"] != run.values["run_stop_epoch"])
    assert longer.values["run_stop_epoch"] - longer.values["run_target_epoch"] == 3
    assert longer.values["run_stop_epoch"] == longer.values["run_stop_epoch_num"] + 1
    assert any("run_target_epoch" in note for note in analysed.notes)


def test_every_published_result_is_analysed(sets: list[AnalysedSet]) -> None:
    assert len(sets) == 51 and not [one.name for one in sets if one.problem]
    for one in sets:
        shares = [one.ratios[f"{part}_time/run_time"] or 0.0 for part in ("staging", "train", "eval", "rest")]
        assert math.fsum(shares) == pytest.approx(1, abs=1e-6), one.name


def test_the_picture_of_the_readme_is_drawn_from_the_published_logs(sets: list[AnalysedSet]) -> None:
    (drawn,) = (one for one in list_pictures(sets) if one.name == "v0-7-cosmoflow-time-to-solution")
    picture = ROOT / "docs" / "images" / "time-to-solution.svg"
    assert f"docs/images/{picture.name})" in (ROOT / "README.md").read_text()
    assert picture.read_text() == render_standalone(drawn.drawing)


# -- fits, projections and costs of the published results -----------------------------------------------------------

published_points = bench_script("published_points")
MODEL = CostModel(read_workloads(), read_ceilings())
FITS = {
    "cosmoflow, round 0.7": (9, 13.7261, 0.3209, 0.9347, (0.2451, 0.3967), 44.953, 392.7),
    "cosmoflow, rounds 1.0 to 2.0": (6, 2.0048, 0.4481, 0.5266, (-0.1417, 1.0379), None, None),
    "deepcam, rounds 1.0 to 3.0": (12, 1.1632, 0.3828, 0.8729, (0.2799, 0.4858), 7.560, 998.2),
    "oc20, rounds 1.0 to 2.0": (4, 0.6765, 0.5149, 0.9643, (0.2133, 0.8164), 13.667, 1354.3),
}
"""Points, a, b, R^2, interval of b, E0, Bc: section 1.5 of specs/analysis.md."""
EFFICIENCIES = {256: 1.136, 1024: 0.933, 2048: 0.641, 8192: 0.144, 16384: 0.423}
"""By the units of the larger result of CosmoFlow in round 0.7: section 1.1."""


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_efficiencies_of_the_first_round(sets):
    fits = [fit for fit in against_units(sets) if fit.benchmark == "cosmoflow" and fit.rounds == ("0.7",)]
    found = {one.second_units: one.efficiency for fit in fits for one in fit.efficiencies}
    assert found == pytest.approx(EFFICIENCIES, abs=6e-4)


@pytest.mark.exhaustive
def test_errors_of_projections_and_costs(sets):
    projected, costs = project_sets(sets, [16_384], MODEL), MODEL.published_pairs(sets)
    assert len(projected.left_out) == len(costs.pairs) == 8 and projected.largest_factor == 32
    assert sorted((each.factor, each.first[:3]) for each in projected.left_out if each.scored) == [
        *((2, "1.0"), (2, "1.0"), (8, "1.0")),
    ]
    assert "% at 2 times the units (2 pairs" in projected.said and "% at 8 times the units (1 pair" in projected.said
    assert costs.median_error > 0.8 and costs.median_calibrated_error < 0.2
    assert all(pair.second_ratio < 1 for pair in costs.pairs)  # no published result is beyond the ceilings


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_the_published_results_for_projections_are_those_of_the_published_logs(corpus):
    assert published_points.points(corpus) == (ROOT / "submission/results/fits/published.json").read_text()


@pytest.mark.exhaustive
def test_a_result_alone_is_projected_by_published_ones(sets):
    """Its published twin is not used twice: the errors are those of all published pairs."""
    (one,) = (one for one in sets if one.row.system == "dgxa100_n64_pytorch" and one.row.benchmark == "cosmoflow")
    found = project_sets([one], [1024], MODEL, read_published())
    assert [each.units for each in found.projections] == [1024] and len(found.left_out) == 8
    assert found.median_error == pytest.approx(project_sets(sets, [1024], MODEL).median_error)


# -- the utilization of published results, by the rules' formula and over the training time --------------------------

Rated = list[tuple[ResultSet, ResultOperations]]


@pytest.fixture(scope="module")
def rated(strict: Report) -> Rated:
    """Return all published results with their operations."""
    return [(results, rate_result(results)) for results in every_set(strict)]


def of_system(rated: Rated, system: str, benchmark: str, scaling: str = "strong") -> ResultOperations:
    (operations,) = (
        operations
        for results, operations in rated
        if (results.system, results.benchmark, results.scaling) == (system, benchmark, scaling)
    )
    return operations


@pytest.mark.parametrize(("benchmark", "training", "of_runs"), [("cosmoflow", 8.03, 6.66), ("deepcam", 25.84, 16.39)])
def test_the_best_shares_on_a100(rated: Rated, benchmark: str, training: float, of_runs: float):
    """of_runs: over the sum of run times, of an instance for throughput."""
    best = [
        operations
        for results, operations in rated
        if results.benchmark == benchmark and operations.accelerator.startswith("A100")
    ]
    shares = [100 * (operations.training_utilization or 0) for operations in best]
    assert max(shares) == pytest.approx(training, abs=0.01)
    shares = [100 * (operations.sustained_flops or 0) / (operations.peak_flops or 1) for operations in best]
    assert max(shares) == pytest.approx(of_runs, abs=0.01)
    assert {operations.peak_format for operations in best} == {"fp16"}


def test_the_shares_by_the_rules(rated: Rated):
    """Throughput: by the time to train all, on the whole system."""
    nvidia = of_system(rated, "dgxa100_n512_pytorch", "deepcam", WEAK)
    assert nvidia.utilization == pytest.approx(0.154, abs=0.0005)
    daint = of_system(rated, "piz_daint_gpu_n128_pt1.9.0", "deepcam")
    assert daint.utilization == pytest.approx(0.508, abs=0.0005) and daint.peak_format == "fp32"


def test_a_throughput_result_has_the_sum_of_its_instances(rated: Rated):
    weak = [(results, operations) for results, operations in rated if results.scaling == WEAK and operations.flops]
    assert len(weak) == 8
    for results, operations in weak:
        runs = [count_operations(run) for run in results.runs if run.verdict != "FAIL"]
        assert len(runs) == results.score.models
        for name in ("flops", "sustained_flops", "vflops"):
            assert getattr(operations, name) == pytest.approx(sum(getattr(run, name) for run in runs), rel=1e-12)
        assert operations.utilization < operations.sustained_flops / operations.peak_flops


def test_a_result_without_a_share_says_why(rated: Rated):
    reasons = [operations.reason for _, operations in rated if operations.utilization is None]
    assert set(reasons) == {"edges not logged", "operations of openfold are not counted", "no run is accepted"}
    graphs = [results for results, operations in rated if operations.reason == "edges not logged"]
    assert sum(len(results.runs) + len(results.pruned) for results in graphs) == 84
