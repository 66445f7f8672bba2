"""Find copies among the runs of many results: of intervals, of evaluation results, of power readings.

The time is linear in the number of runs, because only those that share a key are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from compliance.logs.fingerprint import Keys, alike, interval_keys, match_values, middle, same_times, value_keys
from compliance.logs.power import shared_readings
from compliance.model.judging import JudgedRun
from compliance.model.result_set import POWER, TIMES, VALUES, Copies, ResultSet


def find_copies(results: Sequence[ResultSet], others: Sequence[ResultSet] = ()) -> list[Copies]:
    """Return the copies inside the results, between them, and of the runs of other results in them."""
    runs = [
        (run, result)
        for result in (*others, *results)
        for run in result.all_runs
        if run.damage is None or run.damage.rule not in ("FRM01", "FRM03")  # nothing was read: such logs are no copies
    ]
    measured = {id(log): run for run, _ in runs if run.power for log in run.power.nodes}
    files = [(log, result) for run, result in runs if run.power for log in run.power.nodes if log.sketch]
    other_ids = {id(result) for result in others}
    times = _group_items(
        runs, lambda run: interval_keys(run.fingerprint), _same_run, lambda run: middle(run.fingerprint)
    )
    values = _group_items(
        runs,
        lambda run: value_keys(run.fingerprint),
        lambda run, other, _: bool(match_values(run.fingerprint, other.fingerprint)),
    )
    power = _group_items(files, lambda log: (log.sketch, ()), lambda log, other, _: shared_readings(log, other))
    copied = {id(run): number for number, group in enumerate(times) for run, _ in group}

    def is_news(item: Any, other: Any) -> bool:
        """Tell whether the two are not from copies of one run, of which the values and readings are copies as well."""
        first, second = (id(measured.get(id(each), each)) for each in (item, other))
        return first == second or first not in copied or copied[first] != copied.get(second)

    same_runs = _pair_results(TIMES, times, other_ids)
    others_alike = (*_pair_results(VALUES, values, other_ids), *_pair_results(POWER, power, other_ids))
    news = (replace(copies, pairs=[pair for pair in copies.pairs if is_news(*pair)]) for copies in others_alike)
    return [copies for copies in (*same_runs, *news) if copies.pairs and not _same_result(copies, other_ids)]


def _same_run(run: JudgedRun, other: JudgedRun, shared: int) -> bool:
    first, second = run.fingerprint, other.fingerprint
    return same_times(first, second) or alike(first, second, moved=shared > 1) is not None


def _same_result(copies: Copies, other_ids: set[int]) -> bool:
    """Tell whether the other result is the same one, in another copy of the submission."""
    first, second = copies.first, copies.second
    same = (first.round, first.name.lower()) == (second.round, second.name.lower())
    return id(first) in other_ids and same and not first.loose


# -- groups ------------------------------------------------------------------------------------------------

Owned = tuple[Any, ResultSet]


def _group_items(
    items: Iterable[Owned],
    read_keys: Callable[[Any], Keys],
    belong: Callable[[Any, Any, int], bool],
    find_position: Callable[[Any], float] | None = None,
) -> list[list[Owned]]:
    """Return the groups of several items that belong together: each is compared with earlier ones that share a key.

    belong: is asked with two items and the number of their common keys. find_position: returns a number by which the
    first items of a result are compared without any common key, if it is nearly the same.
    """
    first_with: dict[float, int] = {}  # the first item with a key, and further ones
    further_with: dict[float, list[int]] = {}
    siblings: dict[int, list[tuple[int, float]]] = {}  # of each result, the first items and their positions
    grouped: list[tuple[Any, list[Owned]]] = []  # each item, and its group
    for number, (item, owner) in enumerate(items):
        keys, near_keys = read_keys(item)
        shared = []
        for key in keys:
            first = first_with.setdefault(key, number)
            if first != number:
                further = further_with.setdefault(key, [])
                shared += [first, *further]
                if len(further) < 16:  # a key that more items share says little
                    further.append(number)
        for key in filter(first_with.__contains__, near_keys):
            shared += [first_with[key], *further_with.get(key, ())]
        # Those that share most keys; of so few, sorting all is faster than most_common().
        alike = dict(sorted(Counter(shared).items(), key=itemgetter(1), reverse=True)[:4])
        beside = siblings.setdefault(id(owner), [])
        if find_position is not None and len(beside) < 16:  # the first ones, whatever keys they share
            here = find_position(item)
            # The middles of jittered runs hardly move.
            near = (at for at, position in beside if abs(here - position) <= 1e-3 and at not in alike)
            alike |= dict.fromkeys(near, 0)
            beside.append((number, here))
        fitting = (grouped[at][1] for at, count in alike.items() if belong(grouped[at][0], item, count))
        group: list[Owned] = next(fitting, [])
        group.append((item, owner))
        grouped.append((item, group))
    return [group for group in {id(group): group for _, group in grouped}.values() if len(group) > 1]


def _pair_results(kind: str, groups: Iterable[list[Owned]], other_ids: set[int]) -> Iterator[Copies]:
    """Yield the copies by pair of results; every result of a group is named beside one of its round, or the first."""
    by_results: dict[tuple[int, int], Copies] = {}
    for group in groups:
        firsts: dict[int, Owned] = {}
        for item, owner in group:
            nearest = sorted(firsts.values(), key=lambda first: (first[1] is not owner, first[1].round != owner.round))
            if nearest and id(owner) not in other_ids:
                first, result = nearest[0]
                copies = by_results.setdefault((id(result), id(owner)), Copies(kind, result, owner))
                copies.pairs.append((first, item))
            firsts.setdefault(id(owner), (item, owner))
    yield from by_results.values()
