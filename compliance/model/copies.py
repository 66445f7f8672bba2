"""Find copies among the runs of many results: of intervals, of evaluation results, of power readings.

The time is linear in the number of runs, because only those that share a key are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import replace

from compliance.logs.fingerprint import Keys, alike, interval_keys, match_values, middle, same_times, value_keys
from compliance.logs.power import shared_readings
from compliance.model.judging import JudgedRun
from compliance.model.result_set import POWER, TIMES, VALUES, Copies, ResultSet

BUCKET: Final = 16
"""Items that are remembered for a key: a key that more of them share says little."""
COMPARED: Final = 4
"""Items that an item is compared with: those that share most keys with it."""
SIBLINGS: Final = 16
"""The first runs of a result are compared with one another whatever keys they share, if their middles are near."""
NEAR: Final = 1e-3
"""How far the middles of copies may be apart, as a share of the time: those of jittered runs hardly move."""


def find_copies(results: Sequence[ResultSet], others: Sequence[ResultSet] = ()) -> list[Copies]:
    """Return the copies inside the results, between them, and of the runs of other results in them."""
    every = (*others, *results)
    runs = [
        (run, result)
        for result in every
        for run in result.all_runs
        if run.damage is None or run.damage.rule not in ("FRM01", "FRM03")  # nothing was read: such logs are no copies
    ]
    measured = {id(log): run for run, _ in runs if run.power for log in run.power.nodes}
    files = [(log, result) for run, result in runs if run.power for log in run.power.nodes if log.sketch]
    other_ids = {id(result) for result in others}
    times = Groups(lambda run: interval_keys(run.fingerprint), _same_run, lambda run: middle(run.fingerprint)).collect(
        runs
    )
    values = Groups(
        lambda run: value_keys(run.fingerprint),
        lambda run, other, _: bool(match_values(run.fingerprint, other.fingerprint)),
    ).collect(runs)
    power = Groups(lambda log: (log.sketch, ()), lambda log, other, _: shared_readings(log, other)).collect(files)
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


class Groups:
    """Put items that belong together into groups: each is compared with the earlier ones that share a key.

    keys: of an item. belong: is asked with two items and the number of their common keys. position: a number by which
    the first items of a result are compared without any, if it is nearly the same.
    """

    def __init__(
        self,
        keys: Callable[[Any], Keys],
        belong: Callable[[Any, Any, int], bool],
        position: Callable[[Any], float] | None = None,
    ) -> None:
        self._keys, self._belong, self._position = keys, belong, position
        self._siblings: dict[int, list[tuple[int, float]]] = {}  # of each result, the first items and their places
        self._first: dict[float, int] = {}  # the first item with a key, and further ones
        self._further: dict[float, list[int]] = {}
        self._items: list[Any] = []
        self._groups: list[list[Owned]] = []  # of each item

    def collect(self, items: Iterable[Owned]) -> list[list[Owned]]:
        """Return the groups of several items."""
        for item, owner in items:
            shared = dict(self._sharing_items(item))
            near = chain(shared.items(), ((at, 0) for at in self._near_siblings(item, owner) if at not in shared))
            fitting = (self._groups[at] for at, count in near if self._belong(self._items[at], item, count))
            group: list[Owned] = next(fitting, [])
            group.append((item, owner))
            self._items.append(item)
            self._groups.append(group)
        return [group for group in {id(group): group for group in self._groups}.values() if len(group) > 1]

    def _near_siblings(self, item: Any, owner: ResultSet) -> list[int]:
        """Return earlier items of the same result at nearly the same place, and remember this one."""
        siblings = self._siblings.setdefault(id(owner), [])
        if self._position is None or len(siblings) == SIBLINGS:
            return []
        here = self._position(item)
        near = [at for at, position in siblings if abs(here - position) <= NEAR]
        siblings.append((len(self._items), here))
        return near

    def _sharing_items(self, item: Any) -> list[tuple[int, int]]:
        """Return the earlier items that share most keys with this one, and remember its keys."""
        keys, near = self._keys(item)
        number, shared, first_with = len(self._items), [], self._first
        for key in keys:
            first = first_with.setdefault(key, number)
            if first != number:
                further = self._further.setdefault(key, [])
                shared += [first, *further]
                if len(further) < BUCKET:
                    further.append(number)
        for key in filter(first_with.__contains__, near):
            shared += [first_with[key], *self._further.get(key, ())]
        # Of so few, sorting all is faster than most_common().
        return sorted(Counter(shared).items(), key=itemgetter(1), reverse=True)[:COMPARED] if shared else []


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
