"""Group logs that nobody sorted into results: the runs of one result agree in who submits what, on which system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from math import inf
from typing import Any, Final, TypeVar

from common.values import group_pairs, identity, is_stated, to_plain
from compliance.logs.run import Run, text_of
from compliance.model.judging import first_text
from compliance.model.layout import STRONG, WEAK

AnyRun = TypeVar("AnyRun", bound=Run)
Facts = tuple[Any, ...]
NAMES: Final = ("organisation", "benchmark", "problem", "division", "platform", "nodes", "accelerators", "batch size")
"""What the runs of one result have in common, in words; it tells apart the published results of a round but for five
of 51, which have the facts of another one."""
LONGEST: Final = 40
"""Characters of a fact in a label."""


def group_runs(runs: Sequence[AnyRun]) -> list[list[AnyRun]]:
    """Return the runs by the result that they may be of, in their order.

    A run that does not state some facts is of the only result that it fits; if it fits several, it stays alone.
    """
    groups = group_pairs((_read_facts(run), run) for run in runs)
    for facts in [facts for facts in groups if None in facts]:
        fitting = (other for other in groups if all(f in (None, g) for f, g in zip(facts, other, strict=True)))
        whole = [other for other in fitting if other is not facts]
        if len(whole) == 1:
            groups[whole[0]] += groups.pop(facts)
    order = {id(run): at for at, run in enumerate(runs)}
    return [sorted(members, key=lambda run: order[id(run)]) for members in groups.values()]


def label_groups(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Return the facts that tell each group from the others: `cosmoflow, nodes 32`; "" for a single one."""
    facts = [_merge_facts(map(_read_facts, group)) for group in groups]
    stated = [_merge_facts(map(_list_facts, group)) for group in groups]
    chosen: list[int] = []
    for at in range(len(NAMES)):
        kinds = {tuple(each[known] for known in chosen) for each in facts}
        if len({each[at] for each in facts}) > 1 and len(kinds) < len(facts):
            chosen.append(at)
    return [", ".join(_name_fact(NAMES[at], each[at]) for at in chosen) for each in stated]


def find_scaling(runs: Sequence[Run], required: int, names: Collection[str]) -> tuple[str, str]:
    """Return of which scaling a group of runs is, and why it is not one result; "" if it is.

    required: runs of a time-to-train result. names: of their folder and that above, which may say strong or weak.
    """
    scaling = WEAK if WEAK in names else STRONG
    unnamed = scaling not in names
    kinds = Counter(frozenset((key, identity(value)) for key, value in run.settings.items()) for run in runs)
    clocks = sorted((run.start_ms, run.stop_ms or inf) for run in runs if run.start_ms is not None)
    # Instances start within seconds; runs of other published results, but for two, 16 min apart.
    at_once = any(later < min(stop, start + 60_000) for (start, stop), (later, _) in pairwise(clocks))
    why_not = first_text(
        (
            (
                len(kinds) > 1 and kinds.most_common(1)[0][1] * 2 <= len(runs),
                f"their settings differ ({len(kinds)} kinds in {len(runs)} logs), as in a sweep",
            ),
            (
                unnamed and len(runs) > required,
                f"a time-to-train result has {required} runs, and nothing says that these are instances",
            ),
            (
                unnamed and at_once,
                "some start at once, as instances do, and nothing says that they are runs of a time to train",
            ),
        )
    )
    return scaling, why_not


def _list_facts(run: Run) -> Facts:
    return (
        run.organisation,
        run.benchmark,
        run.variant,
        text_of(run.submission.get("submission_division")),
        run.platform,
        run.nodes,
        run.accelerators_per_node,
        run.batch_size,
    )


def _read_facts(run: Run) -> Facts:
    """Return the facts so that equal ones are the same: names in lower case."""
    facts = (fact.casefold() if isinstance(fact, str) else fact for fact in _list_facts(run))
    return tuple(identity(fact) if is_stated(fact) else None for fact in facts)


def _merge_facts(several: Iterable[Facts]) -> Facts:
    return tuple(next(filter(is_stated, column), None) for column in zip(*several, strict=True))


def _name_fact(name: str, fact: Any) -> str:
    if fact is None:
        return f"no {name}"
    return fact[:LONGEST] if isinstance(fact, str) else f"{name} {str(to_plain(fact))[:LONGEST]}"
