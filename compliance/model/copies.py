"""Find copies among the runs of many results: of intervals, of evaluation results, of power readings.

The time is linear in the number of runs, because only those that share a key are compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import replace

from compliance.logs.fingerprint import Keys, alike, interval_keys, match_values, same_times, value_keys
from compliance.logs.power import shared_readings
from compliance.model.judging import JudgedRun
from compliance.model.result_set import POWER, TIMES, VALUES, Copies, ResultSet

BUCKET: Final = 16
"""Items that are remembered for a key: a key that more of them share says little."""
COMPARED: Final = 4
"""Items that an item is compared with: those that share most keys with it."""


def find_copies(results: Sequence[ResultSet], others: Sequence[ResultSet] = ()) -> list[Copies]:
    """Return the copies inside the results, between them, and of the runs of other results in them."""
    every = (*others, *results)
    runs = [(run, result) for result in every for run in (*result.runs, *result.pruned) if not _is_empty(run)]
    measured = {id(log): run for run, _ in runs if run.power for log in run.power.nodes}
    files = [(log, result) for run, result in runs if run.power for log in run.power.nodes if log.sketch]
    other_ids = {id(result) for result in others}
    times = group_items(runs, lambda run: interval_keys(run.fingerprint), _is_same_run)
    values = group_items(runs, lambda run: value_keys(run.fingerprint), _has_same_values)
    power = group_items(files, lambda log: (log.sketch, ()), shared_readings)
    copied = {id(run): number for number, group in enumerate(times) for run, _ in group}

    def is_news(item: Any, other: Any) -> bool:
        """Tell whether the two are not from copies of one run, of which the values and readings are copies as well."""
        first, second = (id(measured.get(id(each), each)) for each in (item, other))
        return first == second or first not in copied or copied[first] != copied.get(second)

    same_runs = _pair_results(TIMES, times, other_ids)
    others_alike = (*_pair_results(VALUES, values, other_ids), *_pair_results(POWER, power, other_ids))
    news = (replace(copies, pairs=[pair for pair in copies.pairs if is_news(*pair)]) for copies in others_alike)
    return [copies for copies in (*same_runs, *news) if copies.pairs and not _same_result(copies, other_ids)]


def _is_empty(run: JudgedRun) -> bool:
    """Tell whether nothing was read of the log: two such logs are no copies."""
    return run.damage is not None and run.damage.rule in ("FRM01", "FRM03")


def _is_same_run(run: JudgedRun, other: JudgedRun) -> bool:
    first, second = run.fingerprint, other.fingerprint
    return same_times(first, second) or alike(first, second) is not None


def _has_same_values(run: JudgedRun, other: JudgedRun) -> bool:
    return bool(match_values(run.fingerprint, other.fingerprint))


def _same_result(copies: Copies, other_ids: set[int]) -> bool:
    """Tell whether the other result is the same one, in another copy of the submission."""
    first, second = copies.first, copies.second
    same = (first.round, first.name.lower()) == (second.round, second.name.lower())
    return id(first) in other_ids and same and not first.loose


# -- groups ------------------------------------------------------------------------------------------------

Owned = tuple[Any, ResultSet]


def group_items(
    items: Sequence[Owned], find_keys: Callable[[Any], Keys], belong: Callable[[Any, Any], bool]
) -> list[list[Owned]]:
    """Return the items that belong together: each is compared with the earlier ones that share most keys with it."""
    first_with: dict[float, int] = {}  # the first item with a key, and further ones
    further: defaultdict[float, list[int]] = defaultdict(list)
    groups: list[list[Owned]] = []
    for number, (item, owner) in enumerate(items):
        keys, near = find_keys(item)
        shared = [at for key in near if key in first_with for at in (first_with[key], *further.get(key, ()))]
        for key in keys:
            first = first_with.setdefault(key, number)
            if first != number:
                shared += [first, *further[key]]
                if len(further[key]) < BUCKET:
                    further[key].append(number)
        # Of so few, sorting all is faster than most_common().
        likely = sorted(Counter(shared).items(), key=itemgetter(1), reverse=True)[:COMPARED] if shared else []
        group: list[Owned] = next((groups[at] for at, _ in likely if belong(items[at][0], item)), [])
        group.append((item, owner))
        groups.append(group)
    return [group for group in {id(group): group for group in groups}.values() if len(group) > 1]


def _pair_results(kind: str, groups: Iterable[list[Owned]], other_ids: set[int]) -> Iterator[Copies]:
    """Yield the copies by pair of results; every result of a group is named beside one of its round, or the first."""
    by_results: dict[tuple[int, int], Copies] = {}

    def note(first: Owned, second: Owned) -> None:
        copies = by_results.setdefault((id(first[1]), id(second[1])), Copies(kind, first[1], second[1]))
        copies.pairs.append((first[0], second[0]))

    for group in groups:
        firsts: dict[int, Owned] = {}
        for item, owner in group:
            if id(owner) in firsts:
                if id(owner) not in other_ids:
                    note(firsts[id(owner)], (item, owner))
                continue
            earlier = sorted(firsts.values(), key=lambda first: first[1].round != owner.round)
            firsts[id(owner)] = (item, owner)
            if earlier and id(owner) not in other_ids:
                note(earlier[0], (item, owner))
    yield from by_results.values()
