"""Verdicts on convergence: the cases, and the official tool's verdict on the same numbers."""

import math
import random
from typing import Any

import pytest

from compliance.benchmarks import REFERENCES
from compliance.rcp.judge import judge
from compliance.rcp.points import Mode, interpolate, load_points, min_acceptable_mean
from tests.conformance.variants.damaged_logs import PUBLISHED

ROUNDS_WITH_TABLES = [
    (name, round_) for name in PUBLISHED for round_ in REFERENCES[name].rounds[-3:] if round_ != "0.7"
]
NEVER = math.inf
OC20 = load_points("oc20", "3.0")


def test_exact_batch_size_slower_than_the_reference() -> None:
    verdict = judge(OC20, 256, [20, 21, 22, 23, 24], 5)
    assert (verdict.passed, verdict.case, verdict.official_message) == (True, "exact", "RCP found")
    assert (verdict.submission_mean, verdict.normalization) == (22, 1.0)
    assert "without normalization" in verdict.message


def test_faster_within_chance_is_normalized() -> None:
    verdict = judge(OC20, 256, [18, 19, 19, 19, 25], 5)
    assert verdict.passed and verdict.normalization == pytest.approx(19.75 / 19)
    assert "19.75 / 19 = 1.039474" in verdict.message


@pytest.mark.parametrize("mode", ["official", "envelope"])
def test_faster_than_chance_fails(mode: Mode) -> None:
    verdict = judge(OC20, 256, [18, 18, 18, 18, 18], 5, mode)
    assert (verdict.passed, verdict.normalization, verdict.official_message) == (False, 1.0, "RCP found")
    assert "too fast" in verdict.message and "by chance at least 18.2" in verdict.message


def test_larger_than_all_is_missing() -> None:
    verdict = judge(OC20, 4096, [90] * 5, 5)
    assert (verdict.passed, verdict.case, verdict.point) == (False, "missing", None)
    assert verdict.official_message == "Missing RCP, please submit RCP with BS = 4096"
    assert "Submit 10 reference runs" in verdict.message


@pytest.mark.parametrize(
    ("epochs", "passed", "phrase"),
    [
        (20, True, "RCP not found but slower convergence on smaller batch size"),
        (17, False, "Missing RCP, please submit RCP with BS = 96"),
    ],
)
def test_smaller_than_all_is_compared_with_the_smallest(epochs: int, passed: bool, phrase: str) -> None:
    verdict = judge(OC20, 96, [epochs] * 5, 5)
    assert (verdict.passed, verdict.case, verdict.official_message) == (passed, "smaller batch", phrase)
    assert verdict.point is OC20[0]


def test_a_pruned_batch_size_is_interpolated() -> None:
    verdict = judge(load_points("deepcam", "3.0"), 256, [9] * 5, 5)
    assert (verdict.case, verdict.passed) == ("interpolated", True)
    assert verdict.point is not None and verdict.point.name == "deepcam_ref_128 .. deepcam_ref_1024"


def test_envelope_mode_counts_as_many_reference_runs_as_olympic_statistics_keep() -> None:
    official, ours = (interpolate(OC20[0], OC20[1], 512, 5, mode) for mode in ("official", "envelope"))
    assert official.mean == ours.mean
    assert official.min_mean == pytest.approx(19.8828, abs=1e-4)
    assert ours.min_mean == min_acceptable_mean(ours.mean, ours.std, 8, 5) < official.min_mean


@pytest.mark.parametrize("mode", ["official", "envelope"])
def test_without_spread_a_result_equal_to_the_reference_passes(mode: Mode) -> None:
    points = load_points("deepcam", "1.0")
    for batch_size in (128, 200, 256):
        assert judge(points, batch_size, [9] * 5, 5, mode).passed
        assert judge(points, batch_size, [9] * 5, 5, mode).normalization == 1.0
        assert not judge(points, batch_size, [8, 9, 9, 8, 9], 5, mode).passed


def test_one_run_may_fail_to_converge() -> None:
    for never in (NEVER, 1e9, math.nan):
        assert judge(OC20, 256, [20, 20, 20, 20, never], 5).submission_mean == 20
        verdict = judge(OC20, 256, [20, never, 20, 20, never], 5)
        assert (verdict.case, verdict.official_message) == (
            "insufficient convergence",
            "Insufficient convergence",
        )
        assert not verdict.passed and "2 of 5 runs" in verdict.message


@pytest.mark.parametrize("batch_size", [None, -1, "256"])
def test_unknown_batch_size(batch_size: Any) -> None:
    verdict = judge(OC20, batch_size, [20] * 5, 5)
    assert (verdict.passed, verdict.case) == (False, "no batch size")
    assert verdict.official_message == "Could not detect global_batch_size"


def test_no_table_and_too_few_runs_are_not_passed() -> None:
    assert judge((), 256, [20] * 5, 5).case == "no table"
    verdict = judge(OC20, 256, [20, 20], 5)
    assert (verdict.passed, verdict.case, verdict.submission_mean) == (False, "too few runs", None)
    assert not judge(OC20, 256, [0] * 5, 5).passed


def official_verdict(checker: Any, batch_size: int, epochs: list[float]) -> tuple[bool, str, float]:
    """Return what check_directory of the official tool says about these numbers, by its own methods."""
    found = checker._find_rcp(batch_size, "pruned_rcps")
    low = checker._find_top_min_rcp(batch_size, "pruned_rcps")
    high = checker._find_bottom_max_rcp(batch_size, "pruned_rcps")
    missing = f"Missing RCP, please submit RCP with BS = {batch_size}"
    phrase = "RCP found"
    if found is None:
        if high is None:
            return False, missing, 1.0
        phrase = "RCP Interpolation"
        found = checker._create_interp_rcp(batch_size, low, high)[1] if low else checker._find_min_rcp("pruned_rcps")
    passed, factor = checker._eval_submission_record(found, sorted(epochs), "")
    if low is None and phrase == "RCP Interpolation":
        phrase = "RCP not found but slower convergence on smaller batch size" if passed else missing
    return passed, phrase, factor if passed else 1.0


@pytest.mark.parametrize(("benchmark", "round_"), ROUNDS_WITH_TABLES)
def test_verdicts_agree_with_the_official_tool(benchmark: str, round_: str) -> None:
    official = pytest.importorskip("mlperf_logging.rcp_checker.rcp_checker")
    points, runs = load_points(benchmark, round_), REFERENCES[benchmark].runs
    checker = official.RCP_Checker("hpc", f"{round_}.0", benchmark, False)
    draw = random.Random(f"{benchmark} {round_}")
    for _ in range(25):
        batch_size = draw.choice([draw.choice(points).batch_size, draw.randint(1, points[-1].batch_size + 50)])
        near = judge(points, batch_size, [1] * runs, runs, "official").point or points[-1]
        centre = draw.choice([near.mean, near.min_mean])
        epochs: list[float] = [max(0.1, round(draw.gauss(centre, near.std), 3)) for _ in range(runs)]
        epochs[0] = draw.choice([epochs[0], 1e9])
        ours = judge(points, batch_size, epochs, runs, "official")
        passed, phrase, factor = official_verdict(checker, batch_size, epochs)
        assert (ours.passed, ours.official_message) == (passed, phrase)
        assert ours.normalization == pytest.approx(factor, rel=1e-12)
