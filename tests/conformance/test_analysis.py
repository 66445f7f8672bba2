"""The analysis gives the numbers that the authors of the paper printed for round 0.7."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from compliance.engine import Options, check_paths
from submission.results.page.analysis import list_pictures
from submission.results.page.export import flatten_quantities, render_standalone
from submission.results.quantities import AnalysedSet
from submission.results.sets import analyse_sets, read_facts

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
def sets(corpus: Path) -> list[AnalysedSet]:
    """Return the analysis of all published results."""
    return analyse_sets(check_paths([str(corpus)], Options(details=True)), read_facts())


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
