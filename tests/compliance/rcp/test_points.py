"""Reference points: the published tables, pruning, hyperparameters."""

import io
import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.benchmarks import REFERENCES
from compliance.rcp.judge import judge
from compliance.rcp.points import ReferencePoint, compare_hyperparameters, interpolate, load_points, locate_table, prune
from compliance.rcp.table import RecordedPoint, read_table, render


def point(batch_size: int, epochs: list[float], required_runs: int = 5) -> ReferencePoint:
    return ReferencePoint.from_runs(
        RecordedPoint(f"ref_{batch_size}", batch_size, tuple(epochs), {}), "epochs", required_runs
    )


def flat_points(means: dict[int, float]) -> list[ReferencePoint]:
    """Points with a spread of zero: mean = smallest accepted mean."""
    return [point(batch_size, [mean] * 10) for batch_size, mean in sorted(means.items())]


def test_published_numbers_are_reproduced(shared: Path) -> None:
    path = shared / "corpus" / "rcp_tables.json"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    for version, benchmarks in json.loads(path.read_text()).items():
        for benchmark, records in benchmarks.items():
            points = load_points(benchmark, version.removesuffix(".0"))
            kept = {p.batch_size for p in prune(points, "official")}
            records.sort(key=lambda record: record["BS"])
            assert [(p.name, p.batch_size, list(p.epochs), p.hyperparameters) for p in points] == [
                (r["name"], r["BS"], r["epochs"], r["hyperparams"]) for r in records
            ]
            for p, r in zip(points, records, strict=True):
                assert p.mean == pytest.approx(r["mean"], rel=1e-9)
                assert p.std == pytest.approx(r["std"], rel=1e-9)
                assert p.min_mean == pytest.approx(r["min_epochs"], abs=1e-4)
                assert p.accepts_from("official") == pytest.approx(r["min_epochs"], rel=1e-12)
                assert p.max_speedup == pytest.approx(r["max_speedup"], rel=1e-4)
                assert (p.batch_size in kept) is not r["pruned"]


@pytest.mark.parametrize(
    ("round_", "benchmark", "batch_size", "mean", "std", "minimum", "speedup"),
    [
        ("3.0", "deepcam", 144, 7.052579, 0.586951, 6.358712, 1.109121),
        ("3.0", "deepcam", 1536, 17.812500, 0.833935, 16.826658, 1.058588),
        ("3.0", "cosmoflow", 48, 8.369713, 0.822676, 7.782718, 1.075423),
        ("3.0", "cosmoflow", 256, 14.853405, 0.844688, 14.250728, 1.042291),
        ("3.0", "cosmoflow", 768, 31.444444, 1.531335, 30.351840, 1.035998),
        ("3.0", "oc20", 512, 21.291667, 1.191677, 19.882843, 1.070856),
        ("3.0", "oc20", 1536, 28.625000, 1.041010, 27.394337, 1.044924),
        ("3.0", "openfold", 144, 94293.333333, 9382.552714, 87598.777233, 1.076423),
        ("3.0", "openfold", 192, 110933.333333, 11249.345117, 102906.799982, 1.077998),
        ("1.0", "cosmoflow", 256, 19.537037, 0.672111, 19.057487, 1.025163),
    ],
)
def test_interpolated_records_of_the_official_tool(
    round_: str, benchmark: str, batch_size: int, mean: float, std: float, minimum: float, speedup: float
) -> None:
    runs = REFERENCES[benchmark].runs
    verdict = judge(load_points(benchmark, round_), batch_size, [mean] * runs, runs, "official")
    found = verdict.point
    assert found is not None and " .. " in found.name and verdict.official_message == "RCP Interpolation"
    assert (found.mean, found.std) == (pytest.approx(mean, rel=1e-7), pytest.approx(std, rel=1e-6))
    assert found.accepts_from("official") == pytest.approx(minimum, abs=1e-6)
    assert found.max_speedup == pytest.approx(speedup, rel=1e-5)


@pytest.mark.parametrize("name", REFERENCES)
def test_committed_tables_are_in_the_format_that_record_writes(name: str) -> None:
    path = locate_table(REFERENCES[name])
    table = read_table(path)
    assert (table.benchmark, table.unit) == (name, REFERENCES[name].epoch_unit)
    assert render(table) == path.read_text(encoding="utf-8")


def test_rounds_without_a_table_have_no_points_and_unknown_names_are_errors() -> None:
    assert load_points("cosmoflow", "0.7") == ()
    assert load_points("openfold", "2.0") == ()
    with pytest.raises(ValueError, match=r"'resnet'.*cosmoflow"):
        load_points("resnet", "3.0")


def test_pruning_drops_batches_below_the_fastest_and_points_above_the_line() -> None:
    points = flat_points({16: 11, 32: 10, 64: 30, 128: 16})
    for mode in ("official", "envelope"):
        assert [p.batch_size for p in prune(points, mode)] == [32, 128]


def test_official_walk_does_not_test_again_what_it_passed() -> None:
    """20 is below the line 10-30; once 30 is gone it is above the line 10-40, which only the hull sees."""
    points = flat_points({10: 10, 20: 15, 30: 24, 40: 16})
    assert [p.batch_size for p in prune(points, "official")] == [10, 20, 40]
    assert [p.batch_size for p in prune(points, "envelope")] == [10, 40]


means = st.dictionaries(st.integers(1, 4096), st.integers(10, 1000).map(lambda n: n / 10), min_size=1, max_size=12)


@given(means)
def test_envelope_is_convex_and_below_every_point(values: dict[int, float]) -> None:
    points = flat_points(values)
    hull = prune(points, "envelope")
    slopes = [(b.mean - a.mean) / (b.batch_size - a.batch_size) for a, b in pairwise(hull)]
    assert all(late >= early - 1e-9 for early, late in pairwise(slopes))
    assert all(slope >= 0 for slope in slopes)
    assert hull[-1] is points[-1] and hull[0].mean == min(p.mean for p in points)
    for p in points:
        for low, high in pairwise(hull):
            if low.batch_size <= p.batch_size <= high.batch_size:
                assert interpolate(low, high, p.batch_size, 5, "envelope").mean <= p.mean + 1e-9
    assert prune(hull, "envelope") == hull


@given(means)
def test_official_mode_keeps_at_least_the_envelope(values: dict[int, float]) -> None:
    points = flat_points(values)
    assert {p.batch_size for p in prune(points)} <= {p.batch_size for p in prune(points, "official")}


def test_pruning_agrees_with_the_official_tool_on_random_tables() -> None:
    official = pytest.importorskip("mlperf_logging.rcp_checker.rcp_checker")
    draw = random.Random(368)
    for _ in range(50):
        sizes = draw.sample(range(1, 60), draw.randint(1, 7))
        runs = {size: [max(1, round(draw.gauss(10 + size / 8, 2))) for _ in range(10)] for size in sizes}
        table = {
            f"ref_{size}": {
                "Benchmark": "oc20",
                "BS": size,
                "Hyperparams": {},
                "Epochs to converge": list(epochs),
            }
            for size, epochs in runs.items()
        }
        checker = official.RCP_Checker("hpc", "3.0.0", "oc20", False, io.StringIO(json.dumps(table)))
        kept = prune([point(size, runs[size]) for size in sorted(sizes)], "official")
        assert {p.name for p in kept} == set(checker.pruned_rcp_data)


def test_hyperparameters_are_compared_by_meaning() -> None:
    reference = replace(
        point(8, [1, 2, 3]),
        hyperparameters={
            "opt_name": "SGD",
            "scheduler_decay_rate": "0.1",
            "opt_betas": [0.9, 0.999],
            "batchnorm_groupsize": 1,
            "num_workers": 32,
            "scheduler_type": "multistep",
            "dropout": 0.5,
            "factor": 0.25,
        },
    )
    logged = {
        "opt_name": "sgd",
        "scheduler_decay_rate": 0.1000000001,
        "opt_betas": [0.9, "0.999"],
        "batchnorm_group_size": 2,
        "num_workers": 4,
        "scheduler_type": "Multistep",
        "factor": [0.25],
    }
    assert compare_hyperparameters(reference, logged) == [
        ("batchnorm_group_size", 1, 2),
        ("scheduler_type", "multistep", "Multistep"),
        ("factor", 0.25, [0.25]),
    ]
    assert compare_hyperparameters(reference, {"opt_betas": [0.9]}) == [("opt_betas", [0.9, 0.999], [0.9])]
