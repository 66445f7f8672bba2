"""Find what the published logs of a benchmark have in common: of every key, and of every pair of numbers.

    python bench/census.py                              reads ../shared/corpus, shows the table
    python bench/census.py -o compliance/census.json    writes it

The rule SET20 compares logs with it. Counted are the closed results that the official checker accepts. What only one
organisation's logs have, and values that the rules of the division fix anyway, are left out.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from checker import ROOT
from published import write_page

from common.values import identity
from compliance.benchmarks import REFERENCES
from compliance.engine import Options, check_paths
from compliance.logs.log import METRICS, SETTINGS, STRUCTURE, SUBMISSION, Log, read_log
from compliance.model.judging import OFFICIAL
from compliance.rules.census import (
    ALL,
    COUNT,
    COURSE,
    MANY_ORGANISATIONS,
    MANY_RESULTS,
    MARKS,
    READERS,
    SOURCE,
    TYPE,
    VALUE,
    Census,
    Equality,
    Fact,
    read_names,
    read_number,
    records_of,
    sample,
)
from compliance.rules.evidence import REFERENCE_RECORDS

TABLE = ROOT / "compliance" / "census.json"
FEW = 2
"""Results, and organisations, in which something holds at least."""
VARIED = 4
"""Values that two numbers have at least: less may be equal by chance."""
EVENTS = {*STRUCTURE, *METRICS}
"""Keys whose values and epoch_num other rules look at."""
Owner = tuple[str, str]
"""The organisation and the folder of a result."""


class Tally:
    """What the logs of one benchmark, or of all, say."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.owners: dict[tuple[str, str], set[Owner]] = defaultdict(set)
        self.numbers: list[tuple[Owner, dict[str, float]]] = []
        self.names: set[str] = set()

    def add(self, log: Log, owner: Owner) -> None:
        """Take the facts and the numbers of a log."""
        numbers = {}
        for key in (*log.records, *log.others):
            every = records_of(log, key)
            records = sample(every)
            self.names.update(read_names(records))
            for kind, read in READERS.items():
                value = read(records)
                if value is not None:
                    self.values[key, kind].append(value)
                    self.owners[key, kind].add(owner)
            fields = sorted(read_names([every[0], every[-1]]).difference(SOURCE))
            for name in (key, COUNT + key, *(f"{key}.{field}" for field in fields)):
                numbers[name] = read_number(log, name)
        self.numbers.append((owner, {name: number for name, number in sorted(numbers.items()) if number is not None}))

    def list_facts(self, settled: set[str]) -> Iterator[Fact]:
        """Yield what holds in all logs. settled: keys whose values the rules fix."""
        for (key, kind), values in sorted(self.values.items()):
            if len({identity(value) for value in values}) > 1:
                continue
            owners = self.owners[key, kind]
            fact = Fact(key, kind, values[0], len(owners), len({owner for owner, _ in owners}))
            implied = kind == TYPE and len({*map(identity, self.values.get((key, VALUE), (1, "")))}) == 1
            settled_here = kind in (VALUE, TYPE) and key in settled | EVENTS
            chance = kind == COURSE and not (fact.results >= MANY_RESULTS and fact.organisations >= MANY_ORGANISATIONS)
            several = kind == MARKS and fact.value > 1
            if min(fact.results, fact.organisations) >= FEW and not (implied or settled_here or chance or several):
                yield fact

    def list_equalities(self) -> Iterator[Equality]:
        """Yield the pairs of numbers that are equal in all logs with both; of several equal ones, each with one."""
        together: dict[tuple[str, str], set[Owner]] = defaultdict(set)
        values = defaultdict(set)
        differing = set()
        for owner, numbers in self.numbers:
            for pair in combinations(numbers, 2):
                if pair in differing:
                    continue
                first, second = (numbers[name] for name in pair)
                if first != second and identity(first) != identity(second):
                    differing.add(pair)
                    together.pop(pair, None)
                else:
                    together[pair].add(owner)
                    values[pair].add(first)
        known: dict[str, str] = {}
        for pair, owners in sorted(together.items(), key=lambda item: (-len(item[1]), item[0])):
            organisations = {owner for owner, _ in owners}
            if min(len(owners), len(organisations)) < FEW or len(values[pair]) < VARIED:
                continue
            first, second = (find_root(known, name) for name in pair)
            if first != second:
                known[second] = first
                if not all(name.removesuffix(".epoch_num") in EVENTS for name in pair):
                    yield Equality(*pair, len(owners), len(organisations))


def find_root(known: dict[str, str], name: str) -> str:
    """Return the first of the numbers that a number is known to be equal to."""
    while name in known:
        name = known[name]
    return name


def take_census(folder: Path, without: str = "") -> dict[str, Census]:
    """Return the census of ALL closed results below a folder, and what else those of a benchmark have in common."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for results in check_paths([folder], Options(profile=OFFICIAL)).sets:
        owner = name_organisation(results.folder, folder)
        for run in results.runs if results.division == "closed" and owner != without.casefold() else ():
            if run.verdict != "FAIL" and run.benchmark:
                log = read_log(run.path)
                for name in (ALL, run.benchmark):
                    tallies[name].add(log, (owner, results.folder))
    settled = {"seed", "submission_poc_name", "submission_poc_email", *SUBMISSION}
    settled |= {setting.key for setting in SETTINGS} | {key for key, *_ in REFERENCE_RECORDS}
    every = {
        name: Census([*tally.list_facts(settled)], [*tally.list_equalities()], frozenset(tally.names))
        for name, tally in tallies.items()
    }
    general = every.pop(ALL, Census())
    facts = {(fact.key, fact.kind) for fact in general.facts}
    pairs = {(pair.first, pair.second) for pair in general.equalities}
    return {ALL: general} | {
        name: Census(
            [fact for fact in every[name].facts if (fact.key, fact.kind) not in facts],
            [pair for pair in every[name].equalities if (pair.first, pair.second) not in pairs],
        )
        for name in filter(every.__contains__, REFERENCES)
    }


def name_organisation(result: str, folder: Path) -> str:
    """Return the organisation whose submission a result is in, in small letters."""
    return Path(os.path.relpath(result, folder)).parts[1].casefold()


def write_table(folder: Path) -> str:
    """Return the text of the table of the results below a folder: a line for each fact."""
    lines = []
    for benchmark, census in take_census(folder).items():
        facts, equalities = (
            ",\n  ".join(msgspec.json.encode(item).decode() for item in items)
            for items in (census.facts, census.equalities)
        )
        names = json.dumps(sorted(census.names))
        lines.append(
            f' "{benchmark}": {{"facts": [\n  {facts}],\n  "equalities": [\n  {equalities}],\n  "names": {names}}}'
        )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.exit(write_page(__doc__, write_table))
