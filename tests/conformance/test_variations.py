"""Valid variants of logs and results, as other tools and launchers write them, are judged as the originals are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.conformance.forgeries.bases import accepted, counted, judge
from tests.conformance.forgeries.families import check, found_in, stock
from tests.conformance.forgeries.logtext import LogText, Unsuitable
from tests.conformance.forgeries.trees import Tree
from tests.conformance.variations import BYTES, RECORDS, RESULTS

JUSTIFIED = {"settings_by_each_rank": {"SET03"}}
"""Warnings that a variant has and its original has not: the official tool has them, too."""

OPEN: dict[str, str] = {}
"""Variants of which some are judged worse, with the reason; one of which none is must not be in it."""

FEW, MANY = 3, 15


@pytest.fixture(scope="module")
def built():
    """Return the logs and results of the builder."""
    return stock(None)


@pytest.fixture(scope="module")
def all_logs(corpus):
    """Return published logs and results, and those of the builder."""
    return stock(corpus)


def varied(change, number, of):
    """Return the base, the rules with more errors and warnings than about it, and the messages of all findings."""
    rng = random.Random(f"{change.__name__} {number}")
    for _ in range(50):
        try:
            return (_result if change in RESULTS else _log)(change, of, rng)
        except Unsuitable:
            continue
    raise ValueError(f"{change.__name__} {number}: no suitable log")


def _log(change, of, rng):
    found = accepted(of.source(rng))
    if found is None:
        raise Unsuitable("fails without a change")
    base, before = found
    if change in BYTES:
        data = change(base.data, rng)
    else:
        log = LogText(base.data, base.benchmark, base.round)
        change(log, rng)
        data = log.bytes()
    return base.name, before, judge(base, data).findings


def _result(change, of, rng):
    result = of.result(rng)
    logs = result.texts()
    change(logs, rng)
    tree = Tree(replace(result, logs=tuple(log.bytes() for log in logs)).files)
    return result.name, found_in(result), check(tree)[1]


def worse(numbers, of):
    """Return, by variant, what is found that is not found in the original."""
    wrong = {}
    for change in (*BYTES, *RECORDS, *RESULTS):
        for number in numbers:
            base, before, found = varied(change, number, of)
            new = {rule for rule, count in counted(found).items() if count > before[rule]}
            for finding in found:
                if finding.rule in new - JUSTIFIED.get(change.__name__, set()):
                    line = (
                        f"{change.__name__} {number} of {base}: {finding.rule} line {finding.line}: {finding.message}"
                    )
                    wrong.setdefault(change.__name__, []).append(line)
    return wrong


def told(wrong):
    """Return a text with what is found in variants that are not known to be open."""
    return "\n".join(line for name, lines in wrong.items() if name not in OPEN for line in lines)


def test_variants_of_built_logs_are_judged_alike(built):
    assert not told(worse(range(FEW), built))


@pytest.mark.exhaustive
def test_variants_of_published_logs_are_judged_alike(all_logs):
    assert not told(worse(range(FEW), all_logs))


@pytest.mark.exhaustive
def test_five_hundred_variants_are_judged_alike(all_logs):
    wrong = worse(range(FEW, FEW + MANY), all_logs)
    assert not told(wrong)
    assert wrong.keys() == OPEN.keys()
    assert len((*BYTES, *RECORDS, *RESULTS)) * MANY >= 500
