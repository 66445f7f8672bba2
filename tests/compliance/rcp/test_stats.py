"""The statistics of convergence points, against published values and scipy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.rcp.points import min_acceptable_mean, t_quantile


@pytest.mark.parametrize(
    ("df", "expected"),
    [
        (1, 6.313751514675041),
        (2, 2.919985580353725),
        (3, 2.3533634348018233),
        (9, 1.833112933),
        (10, 1.812461123),
        (11, 1.795884819),
        (19, 1.729132812),
        (24, 1.710882080),
        (26, 1.705617920),
        (37, 1.687093620),
        (39, 1.684875122),
        (1000, 1.6463788172854639),
    ],
)
def test_t_quantile_at_95_percent(df: int, expected: float) -> None:
    assert t_quantile(0.95, df) == pytest.approx(expected, rel=1e-9)


def test_t_quantile_is_symmetric_and_refuses_nonsense() -> None:
    assert t_quantile(0.5, 7) == pytest.approx(0, abs=1e-12)
    assert t_quantile(0.025, 4) == pytest.approx(-t_quantile(0.975, 4), rel=1e-12)
    for p, df in ((0.0, 3), (1.0, 3), (0.9, 0), (0.9, 2.5)):
        with pytest.raises(ValueError, match="t_quantile needs"):
            t_quantile(p, df)


@given(st.floats(0.001, 0.999), st.integers(1, 200))
def test_t_quantile_agrees_with_scipy(p: float, df: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9, abs=1e-12)


def test_min_acceptable_mean_needs_enough_runs_unless_nothing_varies() -> None:
    assert min_acceptable_mean(9.0, 0.0, 0, 0) == 9.0
    assert min_acceptable_mean(1.0, 100.0, 8, 5) == 0.0
    with pytest.raises(ValueError, match="record more runs"):
        min_acceptable_mean(9.0, 1.0, 1, 3)
