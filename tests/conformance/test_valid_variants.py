"""Valid variants of logs and submissions get no error and no warning that the original has not."""

from __future__ import annotations

import pytest

from tests.conformance.valid_submissions import Stock
from tests.conformance.valid_variants import EACH, GROUPS, describe, find_false_alarms

OPEN = {
    "escaped_texts": "PRV01 reads bytes, not records",
    "slow_epochs_of_a_short_run": "ORD18, in round 0.7: beside slow epochs, others come as soon as parts of one",
    "machine_that_slows_down": "ORD18, in round 0.7",
    "slow_for_a_while": "ORD18: half of the epochs take half of the time, as those that were cut in two",
}
"""Variants that the checker wrongly complains about, and the rules that do; others must not be here."""


def list_false_alarms(names, numbers, stock):
    """Return a text for each variant that is complained about, by its name."""
    texts = {}
    for change in (change for group in GROUPS.values() for change in group if change.__name__ in names):
        for number in numbers:
            name, findings = find_false_alarms(change, number, stock)
            if findings:
                texts.setdefault(change.__name__, []).append(describe(change, number, name, findings))
    return texts


@pytest.mark.parametrize("group", GROUPS)
def test_a_valid_variant_of_each_group_is_accepted(group):
    names = [next(change.__name__ for change in GROUPS[group] if change.__name__ not in OPEN)]
    assert not list_false_alarms(names, range(1), Stock())


@pytest.mark.exhaustive
def test_valid_variants_are_accepted(corpus):
    names = [change.__name__ for group in GROUPS.values() for change in group]
    assert len(names) == len(set(names))
    assert len(names) * EACH >= 240
    wrong = list_false_alarms(names, range(EACH), Stock(corpus))
    assert not "\n".join(text for name, texts in wrong.items() if name not in OPEN for text in texts)
    assert wrong.keys() == OPEN.keys()
