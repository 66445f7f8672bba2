"""Forged logs and copied runs are named by the rules that are about them.

A family is a function in tests/conformance/forgeries/; with a number it makes one forgery, always the same. To see one
again: `python -m tests.conformance.forgeries FAMILY NUMBER`, with `--corpus FOLDER` for those of published logs.
"""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import product

import pytest

from compliance.rules.catalog import all_rules
from tests.conformance.forgeries.copies import CLOSE, MOVED_MS, move_each
from tests.conformance.forgeries.families import (
    AGAINST,
    COPY_RULES,
    FAMILIES,
    OF_RUNS,
    UNSEEN_NAMES,
    check,
    forge,
    forge_copy,
    found_in,
    stock,
)
from tests.conformance.forgeries.logtext import Unsuitable
from tests.conformance.forgeries.trees import (
    in_the_other_division,
    of_another_tree,
    under_another_system,
    within_the_result,
)

CAUGHT_BY: dict[str, set[str]] = {
    "run_starts_after_an_epoch": {"ORD13"},
    "run_starts_in_the_first_epoch": {"ORD13"},
    "run_starts_after_all_but_one_epoch": {"ORD13"},
    "init_and_run_start_after_an_epoch": {"ORD13"},
    "run_start_and_staging_after_an_epoch": {"ORD03"},
    "whole_start_after_an_epoch": {"ORD13"},
    "run_start_again_after_an_epoch": {"ORD04"},
    "time_of_run_start_late": {"ORD09"},
    "staging_over_training": {"ORD03"},
    "staging_around_an_epoch": {"ORD03"},
    "first_epochs_cut_off": {"ORD14", "ORD15"},
    "epochs_cut_out": {"ORD11", "ORD15"},
    "run_stops_before_the_last_evaluation": {"QUA01"},
    "run_stops_before_the_last_result": {"QUA01", "QUA04"},
    "time_of_run_stop_early": {"ORD09"},
    "run_stop_already_earlier": {"ORD05"},
    "clock_set_back": {"ORD09"},
    "times_of_evaluations_shrunk": {"ORD09"},
    "all_from_a_later_number": {"ORD14", "ORD15"},
    "all_from_two": {"ORD14", "ORD15"},
    "all_from_a_negative_number": {"ORD14", "ORD15"},
    "all_multiplied": {"ORD11", "ORD14", "ORD15"},
    "all_in_fractions": {"ORD11", "ORD14", "ORD15"},
    "late_ones_later": {"ORD11", "ORD15"},
    "late_evaluations_later": {"ORD16"},
    "late_results_later": {"QUA08"},
    "last_epoch_later": {"ORD11", "ORD15"},
    "last_evaluation_later": {"ORD16"},
    "last_result_later": {"QUA08"},
    "last_result_one_later": {"QUA08"},
    "last_result_earlier": {"QUA08", "QUA09"},
    "last_result_in_a_fraction": {"QUA08"},
    "results_later": {"QUA08"},
    "results_multiplied": {"QUA08"},
    "evaluations_later": {"ORD16"},
    "evaluation_intervals_later": {"ORD16"},
    "epochs_later": {"ORD14", "ORD15"},
    "epoch_starts_later": {"ORD12"},
    "epoch_stops_later": {"ORD12"},
    "numbers_repeated": {"ORD11", "QUA09", "QUA10"},
    "numbers_as_text": {"QUA02"},
    "number_of_the_last_result_twice": {"FRM06"},
    "epochs_of_no_time_put_in": {"ORD18"},
    "openfold_samples_multiplied": {"ORD15"},
    "openfold_samples_from_later": {"ORD15"},
    "openfold_samples_go_back": {"ORD15", "QUA09"},
    "openfold_samples_grow_unevenly": {"ORD15"},
    "blocks_of_several_epochs": {"ORD11"},
    "blocks_with_a_gap": {"ORD11"},
    "blocks_with_later_results": {"ORD16"},
    "epochs_counted_twice": {"ORD18"},
    "last_epoch_divided": {"ORD18"},
    "epochs_that_never_stop": {"ORD12"},
    "block_of_more_epochs": {"AMT03"},
    "result_without_evaluation": {"QUA08"},
    "result_of_the_epoch_before_again": {"QUA09"},
    "result_of_the_next_epoch_too_early": {"ORD07", "QUA08"},
    "evaluation_of_an_epoch_not_started": {"ORD16"},
    "evaluation_soon_after_the_start": {"ORD18"},
    "epoch_of_no_time_evaluated": {"ORD18"},
    "last_result_after_no_steps": {"QUA10"},
    "epoch_of_no_steps": {"QUA10"},
    "evaluation_far_ahead": {"ORD16"},
    "evaluation_before_training": {"ORD16"},
    "second_result_in_an_evaluation": {"QUA09"},
    "better_result_right_before": {"QUA09"},
    "every_result_twice": {"QUA09"},
    "evaluated_again": {"QUA09", "QUA10"},
    "evaluated_again_with_another_step": {"QUA09"},
    "evaluated_many_times": {"QUA09"},
    "earlier_epoch_evaluated_again": {"ORD11", "ORD15"},
    "last_result_before_its_evaluation": {"QUA08"},
    "last_result_before_its_epoch": {"QUA08"},
    "last_result_to_an_earlier_epoch": {"QUA08"},
    "last_evaluation_to_an_earlier_epoch": {"ORD16"},
    "last_result_to_the_start": {"QUA01"},
    "last_evaluation_without_start": {"ORD12"},
    "evaluation_without_stop": {"ORD12"},
    "last_evaluation_without_both": {"QUA08"},
    "all_evaluations_but_one_without_both": {"QUA08"},
    "epoch_without_records": {"ORD11", "ORD15"},
    "last_epoch_without_records": {"ORD16"},
    "results_without_the_bad_ones": {"QUA06"},
    "result_after_the_run": {"QUA01", "QUA04"},
    "last_epoch_starts_after_its_result": {"ORD16"},
    "own_seed_behind": {"RUN04"},
    "own_seed_before": {"RUN04"},
    "own_seed_of_another_file": {"RUN04"},
    "own_seed_in_one_log": {"RUN04"},
    "own_seed_at_the_end": {"RUN04"},
    "exchanged_pairs": {"RUN04"},
    "spelled_as_text": {"RUN04"},
    "spelled_as_float": {"RUN04"},
    "from_another_line": {"RUN04"},
    "same_in_all_from_other_lines": {"RUN04"},
    "repeated_in_one_log": {"RUN04"},
    "as_it_is": {"RUN05", "RUN12"},
    "shifted": {"RUN05", "RUN14"},
    "scaled": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "scaled_by_little": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "jittered_by_ms": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "jittered_by_percent": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "scaled_and_jittered": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "rounded_to_seconds": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "intervals_exchanged": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "other_values": {"RUN05", "RUN14"},
    "shifted_with_other_values": {"RUN05", "RUN14"},
    "scaled_with_other_values": {"RUN05", "RUN14"},
    "jittered_by_ms_with_other_values": {"RUN05", "RUN14"},
    "one_interval_changed": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "one_interval_and_values_changed": {"RUN05", "RUN14"},
    "tail_exchanged": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "head_exchanged": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "records_left_out": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "records_put_in": {"RUN05", "RUN14"},
    "numbered_otherwise": {"RUN05", "RUN14"},
    "all_but_header_of_another": {"RUN05", "RUN14"},
    "scaled_and_jittered_by_ms_with_other_values": {"RUN05", "RUN14"},
    "jittered_by_percent_with_rounded_values": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "stops_written_twice": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "without_some_evaluations": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "without_the_first_epochs": {"RUN05", "RUN14", "RUN15", "RUN16"},
    "with_parts_of_a_millisecond": {"RUN05", "RUN14"},
    "moved_with_close_values": {"RUN05", "RUN14", "RUN15", "RUN16"},
}
"""Which rules name a family: each of its forgeries has a finding of one of them that its original has not."""

COPIES = tuple(family for family in OF_RUNS if family not in UNSEEN_NAMES)
FEW, MANY = 2, 20


@pytest.fixture(scope="module")
def built():
    """Return the logs and results of the builder."""
    return stock(None)


@pytest.fixture(scope="module")
def all_logs(corpus):
    """Return published logs and results, and those of the builder."""
    return stock(corpus)


def unnamed(numbers, of, families=tuple(CAUGHT_BY)):
    """Return, by family, the forgeries that none of their rules names."""
    wrong = {}
    for family in families:
        forged = [forge(family, number, of) for number in numbers]
        missed = [str(one) for one in forged if not one.new & CAUGHT_BY[family]]
        if missed:
            wrong[family] = missed
    return wrong


def told(wrong):
    """Return a text with the forgeries."""
    return "\n".join(line for lines in wrong.values() for line in lines)


def test_every_family_has_its_rules():
    assert CAUGHT_BY.keys() == set(FAMILIES) - set(UNSEEN_NAMES)
    assert all(rules <= all_rules().keys() and rules for rules in CAUGHT_BY.values())


def test_forgeries_of_built_logs_are_named(built):
    assert not told(unnamed(range(FEW), built))


@pytest.mark.exhaustive
def test_forgeries_of_published_logs_are_named(all_logs):
    assert not told(unnamed(range(FEW), all_logs))


@pytest.mark.exhaustive
def test_two_thousand_forgeries_are_named(all_logs, built):
    assert not told(unnamed(range(MANY), all_logs))
    assert not told(unnamed(range(FEW), built))
    assert len(CAUGHT_BY) * MANY >= 2000


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", CLOSE)
@pytest.mark.parametrize("most_ms", MOVED_MS)
def test_copies_with_close_values_are_named(all_logs, most_ms, part):
    rng, disguise, unseen = random.Random(most_ms), move_each(most_ms, part), []
    results = [*all_logs.built_results, *all_logs.published_results]
    for result, place in product(results, (within_the_result, under_another_system, in_the_other_division)):
        if not COPY_RULES & found_in(result).keys():
            with suppress(Unsuitable):
                _, findings = check(place(result, disguise, rng))
                if not COPY_RULES & {finding.rule for finding in findings}:
                    unseen.append(f"{place.__name__}: {result.name}")
    assert not unseen


@pytest.mark.skipif(not AGAINST, reason="the checker has no option --against")
def test_copies_are_named_if_their_originals_are_in_another_tree(built):
    wrong = [
        str(forged)
        for family in COPIES
        for forged in [forge_copy(family, 0, built, of_another_tree)]
        if not forged.new & CAUGHT_BY[family]
    ]
    assert not wrong


def test_what_no_log_alone_shows_is_not_named(built):
    """The docs list these families (docs/guide/check.md): one that is named must leave the list."""
    named = [str(one) for family in UNSEEN_NAMES for one in [forge(family, 0, built)] if one.new]
    assert not named
