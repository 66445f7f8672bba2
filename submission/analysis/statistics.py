"""Statistics over the runs of a result that count."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from submission.analysis.model import LogPca, Statistics
from submission.analysis.quantities import QUANTITIES


def summarise(name: str, values: Sequence[float]) -> Statistics:
    """Return the statistics of a quantity over at least one run.

    Throughputs are averaged harmonically; their std is 1 / (1/mean - std(1/x)) - mean, as the paper's analysis has it.
    """
    mean, std = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    if QUANTITIES[name].harmonic and min(values) > 0:
        inverse = [1 / value for value in values]
        slowness = statistics.fmean(inverse)
        mean = 1 / slowness
        if len(values) > 1:
            fastest = slowness - statistics.stdev(inverse)
            std = 1 / fastest - mean if fastest > 0 else math.inf
    return Statistics(mean, std, statistics.median(values), min(values), max(values), len(values))


def log_pca(pairs: Iterable[tuple[float, float]]) -> LogPca | None:
    """Return the principal components of (log10 epochs, log10 epoch time); None for fewer than two runs."""
    points = [(math.log10(x), math.log10(y)) for x, y in pairs if x > 0 and y > 0]
    if len(points) < 2:
        return None
    xs, ys = [x for x, _ in points], [y for _, y in points]
    center = (statistics.fmean(xs), statistics.fmean(ys))
    xx, yy = statistics.variance(xs), statistics.variance(ys)
    xy = sum((x - center[0]) * (y - center[1]) for x, y in points) / (len(points) - 1)
    # The eigenvectors of [[xx, xy], [xy, yy]] are turned against the axes by this angle.
    angle = math.atan2(2 * xy, xx - yy) / 2
    first = (math.cos(angle), math.sin(angle))
    middle, radius = (xx + yy) / 2, math.hypot((xx - yy) / 2, xy)
    flat = min(xx, yy) <= 1e-30
    return LogPca(
        center,
        first,
        (-first[1], first[0]),
        (middle + radius, max(middle - radius, 0.0)),
        None if flat else xy / math.sqrt(xx * yy),
    )
