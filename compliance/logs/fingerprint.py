"""Fingerprints of runs, and how alike two are: whether they share intervals, shifted, scaled or jittered, or results.

A fingerprint keeps what stays the same when the times in a log are edited. It is small, and made once, from the parsed
log.

Evidence is counted in bits: how improbable it is that two different runs agree as well. How often intervals agree by
chance is taken from the runs themselves, from intervals at other places of the same runs; logs with whole seconds or
constant intervals therefore prove nothing. What pairs of published runs and their copies reach is measured by
bench/likeness.py (docs/reference/likeness.md); the thresholds lie between.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, islice, pairwise, product
from math import inf, log2
from operator import sub
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compliance.logs.log import Log
from compliance.logs.record import FILE_ORDER

SHORT: Final = 50
"""Neither do intervals of which this many make a long one."""
LENGTHS_KEPT: Final = 4096
EXACT_MS: Final = 1.1  # the ends of a scaled interval are rounded to whole milliseconds
LEVELS: Final = ((EXACT_MS, 0.25, 24.0), (10.0, 0.5, 32.0), (25.0, 0.6, 40.0), (60.0, 0.8, 40.0))
"""Tolerance in ms, the smallest share of the intervals that agree within it, and the evidence that it takes."""
LEVELS_OF_PERIODS: Final = LEVELS[:2]
"""Epochs of different runs may be alike within more, where some of them do more than others."""
SAME_VALUES: Final = (0.5, 40.0)
"""The smallest share of results that agree, and the evidence that it takes."""
SAME_VALUE: Final = 1e-4
"""By which part of itself a result may differ: half of those of different published runs differ by far more."""
FEW_DIGITS: Final = ".6g"
"""Two results in a row with more digits are never shared by chance: of 1.2 million pairs of published runs, 87 share
a result to the last digit and none shares two in a row, not even rounded to six digits; 45 do with five digits."""
KEPT: Final = 12
"""Keys of each kind by which a run is found again: the smallest ones, so that copies keep the same."""
STEPS: Final = 120
"""How finely shares of a sum are told apart: STEPS times the square of the number of intervals."""
NEXT: Final = LENGTHS_KEPT + 1
FAR: Final = NEXT << 17
FARTHER: Final = FAR << 17
NEXT_SHAPES: Final = tuple(a * FARTHER + b * FAR + c * NEXT for a, b, c in product((-1, 0, 1), repeat=3) if a or b or c)


class Fingerprint(Struct, frozen=True):
    """What two logs of one run have in common.

    times: hash of the times of all structural records; events: how many there are. lengths: of the intervals
    from one structural record to the next, in ms, without the shortest ones. periods: from one start of an epoch
    to the next, which stay when other records go. values: the results of evaluations with decimals, bit by bit.
    losses: the first ones of the training.
    """

    times: int
    events: int
    lengths: array[float]
    periods: array[float]
    values: array[float]
    losses: array[float]


NO_FINGERPRINT: Final = Fingerprint(0, 0, *(array("d") for _ in range(4)))


def fingerprint(log: Log) -> Fingerprint:
    """Return the fingerprint of the run that the log is about; never raises on damaged logs."""
    # Python hashes each NaN differently.
    times = [time_ms if (time_ms := record.time_ms) == time_ms else 0 for record in log.events]
    lengths = _interval_lengths(times)
    periods = array("d", _interval_lengths([record.time_ms for record in log["epoch_start"]]))
    keys = [key for key in log.metrics if log[key]]
    records = log[keys[0]] if len(keys) == 1 else sorted((r for key in keys for r in log[key]), key=FILE_ORDER)
    values = array("d", [record.value for record in records if type(record.value) is float])
    losses = [record.value for record in log.others.get("train_loss", [])[:KEPT] if type(record.value) is float]
    # Without those that are short beside the others, so that a scaled copy has as many.
    least = sorted(lengths)[3 * len(lengths) // 4] / SHORT if lengths else 0
    long_lengths = array("d", [length for length in lengths if length >= least])
    return Fingerprint(hash(tuple(times)), len(times), long_lengths, periods, values, array("d", losses))


def _interval_lengths(times: list[float]) -> list[float]:
    """Return the intervals between times, the first ones of many; of 20 ms, as shorter ones hardly differ, to years."""
    lengths = map(sub, islice(times, 1, None), times)
    return list(islice((length for length in lengths if 20 <= length < 1e11), LENGTHS_KEPT))


# -- how alike two runs are ---------------------------------------------------------------------------------

Levels = Sequence[tuple[float, float, float]]
Keys = tuple[Collection[float], Sequence[float]]
"""Different keys of which a copy shares some, and further keys by which it may be found."""


class Likeness(Struct, frozen=True):
    """How the intervals of two runs agree: `equal` of `count` within tolerance_ms, times `scale`.

    periods: whether the intervals are those from one start of an epoch to the next.
    """

    equal: int
    count: int
    tolerance_ms: float
    scale: float
    bits: float
    periods: bool = False


def same_times(first: Fingerprint, second: Fingerprint) -> bool:
    """Tell whether all structural records of two runs have the same times.

    Where times are whole seconds, runs that started together may have them; their results differ.
    """
    same = first.times == second.times and first.events == second.events
    return same and (first.values == second.values or any(length % 1000 for length in first.lengths))


# -- the intervals -----------------------------------------------------------------------------------------


def alike(first: Fingerprint, second: Fingerprint, moved: bool = True) -> Likeness | None:
    """Return how the intervals of two runs agree, None if no better than those of different runs.

    moved: whether to look at intervals of other places, too.
    """
    like = best_alignment(first.lengths, second.lengths, moved, LEVELS)
    if like or (not moved and len(first.lengths) == len(second.lengths)):
        return like
    like = best_alignment(first.periods, second.periods, moved, LEVELS_OF_PERIODS)
    return replace(like, periods=True) if like else None


def best_alignment(first: array[float], second: array[float], moved: bool, levels: Levels) -> Likeness | None:
    """Return how the intervals agree at the best of some alignments."""
    alignments = _likely_alignments(first, second) if moved else _unmoved_alignments(first, second)
    longer = first if len(first) >= len(second) else second
    likenesses = []
    for shift, scale in alignments:  # the length n + shift of the first lies beside the length n of the second
        ours, theirs = first[shift:] if shift > 0 else first, second[-shift:] if shift < 0 else second
        likenesses.append(_compare_lengths(ours, theirs, scale, levels, longer))
    return max((like for like in likenesses if like), key=lambda like: like.bits, default=None)


def _unmoved_alignments(first: array[float], second: array[float]) -> Iterator[tuple[int, float]]:
    yield 0, 1.0
    if len(first) == len(second) and len(first):
        scale = sum(first) / sum(second)
        if abs(scale - 1) >= 2e-5:  # else it is the same
            yield 0, scale


def _likely_alignments(first: array[float], second: array[float]) -> Iterator[tuple[int, float]]:
    """Yield by how many places, and by which factor, the intervals of the other run may be moved."""
    yield from _unmoved_alignments(first, second)
    places = {pair: at for at, pair in enumerate(pairwise(first))}
    shifts = Counter(places[pair] - at for at, pair in enumerate(pairwise(second)) if pair in places)
    yield from ((shift, 1.0) for shift, _ in shifts.most_common(2))


def _compare_lengths(
    ours: array[float], theirs: Sequence[float], scale: float, levels: Levels, usual: array[float]
) -> Likeness | None:
    """Compare the lengths of one run with `scale` times those of another; usual: all lengths of a run."""
    # Where many agree, a quarter of a dozen agrees roughly.
    stride, roughly = 1 + len(ours) // 12, levels[-1][0]
    sample = [-roughly <= a - b * scale <= roughly for a, b in zip(ours[::stride], theirs[::stride], strict=False)]
    if 4 * sum(sample) < len(sample):
        return None
    if scale != 1:
        theirs = [length * scale for length in theirs]
    apart = sorted(map(abs, map(sub, ours, theirs)))
    count, likenesses = len(apart), []
    for tolerance, share, needed in levels if count >= 4 else ():
        if apart[int(share * count)] <= tolerance:
            equal = bisect_right(apart, tolerance)
            bits = count * _bits_of_agreement(equal / count, _chance_agreement(usual, tolerance))
            if bits >= needed:
                likenesses.append(Likeness(equal, count, tolerance, scale, bits))
    return max(likenesses, key=lambda like: like.bits, default=None)


def _upper_median(numbers: Sequence[float]) -> float:
    return sorted(numbers)[len(numbers) // 2]


def _chance_agreement(lengths: array[float], tolerance: float) -> float:
    """Return how often intervals at different places of a run agree."""
    least = 1 / (2 * len(lengths) + 2)
    # Logs whose times are multiples of 100 ms have no milliseconds.
    if tolerance > EXACT_MS or sum(length % 100 == 0 for length in lengths) > len(lengths) / 10:
        return max(least, _displaced_agreement(lengths, tolerance))
    # Of few intervals none may agree to the millisecond: how many nearly agree tells more.
    return max(_displaced_agreement(lengths, tolerance), max(least, _displaced_agreement(lengths, 10 * tolerance)) / 5)


def _displaced_agreement(lengths: array[float], tolerance: float) -> float:
    """Return the largest share of intervals that agree with those some places further."""
    most, count = 0.0, len(lengths)
    for places in range(1, 7):
        if places <= count // 2:
            near = sum(abs(apart) <= tolerance for apart in map(sub, lengths[places:], lengths))
            most = max(most, near / (count - places))
    return most


def _bits_of_agreement(share: float, chance: float) -> float:
    """Return bits per interval: the relative entropy of the share that agrees, given that of chance."""
    if share <= chance:
        return 0.0
    rest = (1 - share) * log2((1 - share) / (1 - chance)) if share < 1 else 0.0
    return share * log2(share / chance) + rest


# -- the keys by which a run is found again ----------------------------------------------------------------


def interval_keys(run: Fingerprint) -> Keys:
    """Return the keys of a run by its times, exact intervals, their sum and shape."""
    if not run.events:
        return (), ()
    lengths = run.lengths
    keys = {run.times, *_pair_keys(run.periods)}
    if len(run.periods) < 12:  # many give enough keys
        keys.update(_pair_keys(lengths))
    if not lengths:
        return list(keys), ()
    steady = _steady_intervals(run)
    span, shape = int(sum(steady) / 50) * NEXT + len(steady), _shape_key(steady)
    return [*keys, span, shape], (span - NEXT, span + NEXT, *map(shape.__add__, NEXT_SHAPES))


def middle(run: Fingerprint) -> float:
    """Return the share of the first half in the sum of the intervals, which copies keep roughly."""
    steady = _steady_intervals(run)
    return sum(steady[: len(steady) // 2]) / sum(steady) if steady else 0.0


def _steady_intervals(run: Fingerprint) -> array[float]:
    """Return the intervals of which copies keep the number: short ones may come and go."""
    return run.periods if len(run.periods) >= 4 else run.lengths


def _pair_keys(numbers: Sequence[float]) -> list[int]:
    """Return keys by neighbouring numbers."""
    return sorted(set(map(hash, pairwise(numbers))))[:KEPT]


def _shape_key(lengths: array[float]) -> int:
    """Return the shares of the first quarter, half and three quarters in the sum of the lengths: scale cancels out."""
    count, sums = len(lengths), list(accumulate(lengths))
    steps = min(120_000, STEPS * count * count) / sums[-1]
    first, half, third = sums[count // 4] * steps, sums[count // 2] * steps, sums[3 * count // 4] * steps
    return -int(first) * FARTHER - int(half) * FAR - int(third) * NEXT - count


# -- the results of evaluations ----------------------------------------------------------------------------


def value_keys(run: Fingerprint) -> Keys:
    """Return the keys of a run by roughly the results, and the last results and the losses themselves."""
    # Copies have results at the same places, so that some of many do.
    some = run.values[:: 1 + len(run.values) // (2 * KEPT)]
    # Copies differ by so much less than a step of the logarithm that they share most of these keys.
    rough = _pair_keys([log2(abs(value) or 1.0) // 4e-4 for value in some])
    return {*rough, *run.values[-512:], *run.losses}, ()  # in published logs, these are all


def match_values(first: Fingerprint, second: Fingerprint) -> list[tuple[float, float]]:
    """Return the pairs of results, or else of losses, of two runs that agree, none if that may be chance.

    Results at the same places agree within SAME_VALUE, two or more in a row at any places to the last digit.
    """
    near = _near_values(first, second) or _shared_values(first.values, second.values)
    return near or _shared_values(first.losses, second.losses)


def _shared_values(first: array[float], second: array[float]) -> list[tuple[float, float]]:
    """Return, in pairs, the values that two series share, two or more in a row, if they have many digits."""
    rows = {*pairwise(first)}.intersection(pairwise(second))
    shared = {value for row in rows if row[0] != row[1] and all(map(has_many_digits, row)) for value in row}
    return [(value, value) for value in first if value in shared]


def has_many_digits(value: float) -> bool:
    """Tell whether a value is not one of FEW_DIGITS, perhaps in single precision."""
    return abs(value - float(format(value, FEW_DIGITS))) > 2**-24 * abs(value)


def _near_values(first: Fingerprint, second: Fingerprint) -> list[tuple[float, float]]:
    """Return the pairs of results at the same places that agree within SAME_VALUE, none if that may be chance."""
    pairs = list(zip(first.values, second.values, strict=False))
    near = [(a, b) for a, b in pairs if abs(a - b) <= SAME_VALUE * abs(a) < inf]
    if len(near) < max(1, SAME_VALUES[0] * min(len(first.values), len(second.values))):
        return []
    steps = [abs(a - b) for a, b in pairwise(first.values)] or [0.0]
    usual, distinct = _upper_median(steps), set(near)
    if len(near) < len(pairs):
        usual = min(usual, _upper_median([abs(a - b) for a, b in pairs if (a, b) not in distinct]))
    # Runs that do not learn yet, or no more, evaluate alike: a result proves no more than its own step.
    own_steps = {pair: min(usual, step) for pair, step in zip(pairs, (steps[0], *steps), strict=False)}
    return near if sum(_bits_of_values(*pair, own_steps[pair]) for pair in distinct) >= SAME_VALUES[1] else []


def _bits_of_values(first: float, second: float, step: float) -> float:
    """Return how much two results that agree prove, where others differ by `step`: 0 if they are rounded to that."""
    apart = max(abs(first - second), _last_decimal(first), _last_decimal(second))
    # At most 16, so that three values are needed; less 2, as results of runs may be closer than those of one.
    return min(16.0, max(0.0, log2(step / apart) - 2.0)) if step > 0 else 0.0


def _last_decimal(value: float) -> float:
    """Return the last decimal that is written of a value."""
    digits = repr(value)
    return 10.0 ** (digits.find(".") + 1 - len(digits)) if "e" not in digits else 1e-20
