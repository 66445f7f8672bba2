"""Find what the published logs of a benchmark have in common: of every key, and of every pair of numbers.

    python bench/census.py                              reads ../shared/corpus, shows the table
    python bench/census.py -o compliance/census.json    writes it
    python bench/census.py --training -o compliance/census_training.json

The rule SET20 compares logs with it. Counted are the closed results that the official checker accepts. What only one
organisation's logs have, and values that the rules of the division fix anyway, are left out. Of MLPerf Training, most
of whose logs one organisation's code wrote, so is what the others' need not have: names of metadata, one line of code,
and equal numbers of different names.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Set
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from checker import ROOT
from published import TRAINING_ROUND, write_page

from common.values import group_pairs, identity
from compliance.committee.rounds import list_keys
from compliance.committee.rule_files import find_rules
from compliance.engine import Options, check_paths
from compliance.logs.log import METRICS, SETTINGS, STRUCTURE, SUBMISSION, Log, read_log
from compliance.model.judging import OFFICIAL, PASSING
from compliance.rules.census import (
    COUNT,
    EQUAL,
    MARKS,
    READERS,
    SOURCE,
    TYPE,
    VALUE,
    Fact,
    Facts,
    parse_number,
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
SETTLED = EVENTS | {"seed", "submission_poc_name", "submission_poc_email", *SUBMISSION}
SETTLED |= {setting.key for setting in SETTINGS} | {key for key, *_ in REFERENCE_RECORDS}
"""Keys whose values the rules fix, or look at, beside those that the committee's rule files name."""
ALL = ""
"""Stands for all benchmarks together."""
Owner = tuple[str, str]
"""The organisation and the folder of a result."""


class Tally:
    """What the logs of one benchmark, or of all, say.

    named: the keys in the committee's rule files; none for MLPerf HPC, whose rules the suite has itself.
    """

    def __init__(self, named: Set[str] = frozenset()) -> None:
        self.named = named
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
            for name in (key, *(f"{key}.{field}" for field in (COUNT, *fields))):
                numbers[name] = read_number(log, name)
        self.numbers.append((owner, {name: number for name, number in sorted(numbers.items()) if number is not None}))

    def list_all(self, known: list[Fact]) -> Iterator[Fact]:
        """Yield what holds in all logs, but for what is known and what follows from it."""
        subjects = {(fact.name, fact.kind) for fact in known}
        yield from (fact for fact in self.list_facts() if (fact.name, fact.kind) not in subjects)
        yield from self.list_equalities(known)

    def list_facts(self) -> Iterator[Fact]:
        """Yield what holds in all logs of each key, but for values that the rules fix."""
        for (key, kind), values in sorted(self.values.items()):
            owners = self.owners[key, kind]
            fact = Fact(key, kind, values[0], len(owners), len({owner for owner, _ in owners}))
            implied = kind == TYPE and len({*map(identity, self.values.get((key, VALUE), (1, "")))}) == 1
            judged = kind in (VALUE, TYPE) and key in SETTLED | self.named
            several = kind == MARKS and (fact.value > 1 or self.named)
            varied = len({*map(identity, values)}) > 1 or (kind != VALUE and not fact.is_general)
            if min(fact.results, fact.organisations) >= FEW and not (implied or judged or several or varied):
                yield fact

    def list_equalities(self, stated: list[Fact]) -> Iterator[Fact]:
        """Yield the pairs of numbers that are equal in all logs with both; of several equal ones, each with one."""
        known: dict[str, str] = {}
        for fact in stated:
            first, second = (find_root(known, name) for name in (fact.name, str(fact.value)))
            if fact.kind == EQUAL and first != second:
                known[second] = first
        together: dict[tuple[str, str], set[Owner]] = defaultdict(set)
        values = defaultdict(set)
        differing = set()
        for owner, numbers in self.numbers:
            for pair in combinations(numbers, 2):
                if pair in differing or (self.named and len({parse_number(name)[1] for name in pair}) > 1):
                    continue
                first, second = (numbers[name] for name in pair)
                if first != second and identity(first) != identity(second):
                    differing.add(pair)
                    together.pop(pair, None)
                else:
                    together[pair].add(owner)
                    values[pair].add(first)
        for pair, owners in sorted(together.items(), key=lambda item: (-len(item[1]), item[0])):
            organisations = {owner for owner, _ in owners}
            first, second = (find_root(known, name) for name in pair)
            if min(len(owners), len(organisations)) < FEW or len(values[pair]) < VARIED or first == second:
                continue
            known[second] = first
            if not all(name.removesuffix(".epoch_num") in EVENTS for name in pair):
                rare, common = sorted(pair, key=lambda name: len(self.owners[parse_number(name)[0], TYPE]))
                yield Fact(rare, EQUAL, common, len(owners), len(organisations))


def find_root(known: dict[str, str], name: str) -> str:
    """Return the first of the numbers that a number is known to be equal to."""
    while name in known:
        name = known[name]
    return name


def take_census(folder: Path, without: str = "", round_: str | None = None) -> tuple[dict[str, Facts], set[str]]:
    """Return by benchmark what its closed results below a folder have in common, and all names in their metadata.

    What holds in all benchmarks holds in one that has few results. without: an organisation to leave out. round_: that
    of all results, if it is one of MLPerf Training.
    """
    named = list_keys(find_rules(None), round_) if round_ else frozenset()
    tallies: dict[str, Tally] = defaultdict(lambda: Tally(named))
    for results in check_paths([folder], Options(profile=OFFICIAL, round=round_)).sets:
        owner = name_organisation(results.folder, folder)
        for run in results.runs if results.division == "closed" and owner != without.casefold() else ():
            if run.verdict in PASSING and run.benchmark:
                log = read_log(run.path, keys=named)
                for name in (ALL, run.benchmark) if log["run_stop"] else ():
                    tallies[name].add(log, (owner, results.folder))
    general = list(tallies[ALL].list_all([]))
    censuses = {}
    for benchmark in sorted(tallies.keys() - {ALL}):
        tally = tallies[benchmark]
        logged = {key for key, _ in tally.values}
        stated = [
            fact
            for fact in general
            if fact.key in logged and (fact.kind != EQUAL or parse_number(str(fact.value))[0] in logged)
        ]
        facts = sorted(
            (*stated, *tally.list_all(stated)), key=lambda fact: (fact.key, fact.name, fact.kind, str(fact.value))
        )
        censuses[benchmark] = group_pairs((fact.key, fact) for fact in facts)
    return censuses, set() if named else tallies[ALL].names


def name_organisation(result: str, folder: Path) -> str:
    """Return the organisation whose submission a result is in, in small letters."""
    return Path(os.path.relpath(result, folder)).parts[1].casefold()


def write_table(folder: Path, round_: str | None = None) -> str:
    """Return the text of the table of the results below a folder: a line for each key."""
    censuses, names = take_census(folder, round_=round_)
    tables = []
    for benchmark, facts in censuses.items():
        lines = [f'  "{key}": {msgspec.json.encode(of_key).decode()}' for key, of_key in facts.items()]
        tables.append(f' "{benchmark}": {{\n' + ",\n".join(lines) + "\n }")
    return f'{{"names": {json.dumps(sorted(names))},\n"benchmarks": {{\n' + ",\n".join(tables) + "\n}}\n"


if __name__ == "__main__":
    sys.exit(write_page(__doc__, write_table, made_training=lambda folder: write_table(folder, TRAINING_ROUND)))
