"""Forged logs and copied runs are named by the rules that are about them.

A family is a function in tests/conformance/forgeries/; with a number it makes one forgery, always the same. To see one
again: `python -m tests.conformance.forgeries FAMILY NUMBER`, with `--corpus FOLDER` for those of published logs.
"""

from __future__ import annotations

import pytest

from compliance.rule import RULES
from tests.conformance.forgeries.families import AGAINST, FAMILIES, OF_RUNS, UNSEEN_NAMES, forge, forge_copy, stock
from tests.conformance.forgeries.trees import of_another_tree

OPEN = {
    "run_starts_after_an_epoch": "no rules about the timeline yet",
    "run_starts_in_the_first_epoch": "no rules about the timeline yet",
    "run_starts_after_all_but_one_epoch": "no rules about the timeline yet",
    "init_and_run_start_after_an_epoch": "no rules about the timeline yet",
    "run_start_and_staging_after_an_epoch": "no rules about the timeline yet",
    "whole_start_after_an_epoch": "no rules about the timeline yet",
    "staging_over_training": "no rules about the timeline yet",
    "staging_around_an_epoch": "no rules about the timeline yet",
    "first_epochs_cut_off": "no rules about the timeline yet",
    "epochs_cut_out": "no rules about the timeline yet",
    "all_from_a_later_number": "no rules about the timeline yet",
    "all_from_two": "no rules about the timeline yet",
    "all_from_a_negative_number": "no rules about the timeline yet",
    "all_multiplied": "no rules about the timeline yet",
    "all_in_fractions": "no rules about the timeline yet",
    "late_ones_later": "no rules about the timeline yet",
    "late_evaluations_later": "no rules about the timeline yet",
    "last_epoch_later": "no rules about the timeline yet",
    "last_evaluation_later": "no rules about the timeline yet",
    "last_result_later": "no rules about the timeline yet",
    "last_result_in_a_fraction": "no rules about the timeline yet",
    "evaluations_later": "no rules about the timeline yet",
    "epochs_later": "no rules about the timeline yet",
    "numbers_repeated": "no rules about the timeline yet",
    "openfold_samples_multiplied": "no rules about the timeline yet",
    "openfold_samples_from_later": "no rules about the timeline yet",
    "openfold_samples_go_back": "no rules about the timeline yet",
    "openfold_samples_grow_unevenly": "no rules about the timeline yet",
    "blocks_of_several_epochs": "no rules about the timeline yet",
    "blocks_with_a_gap": "no rules about the timeline yet",
    "blocks_with_later_results": "no rules about the timeline yet",
    "result_without_evaluation": "no rules about the timeline yet",
    "result_of_the_epoch_before_again": "no rules about the timeline yet",
    "result_of_the_next_epoch_too_early": "no rules about the timeline yet",
    "evaluation_of_an_epoch_not_started": "no rules about the timeline yet",
    "evaluation_far_ahead": "no rules about the timeline yet",
    "second_result_in_an_evaluation": "no rules about the timeline yet",
    "every_result_twice": "no rules about the timeline yet",
    "evaluated_again": "no rules about the timeline yet",
    "evaluated_many_times": "no rules about the timeline yet",
    "earlier_epoch_evaluated_again": "no rules about the timeline yet",
    "last_result_before_its_evaluation": "no rules about the timeline yet",
    "last_result_before_its_epoch": "no rules about the timeline yet",
    "last_result_to_an_earlier_epoch": "no rules about the timeline yet",
    "last_evaluation_to_an_earlier_epoch": "no rules about the timeline yet",
    "last_evaluation_without_both": "no rules about the timeline yet",
    "all_evaluations_but_one_without_both": "no rules about the timeline yet",
    "epoch_without_records": "no rules about the timeline yet",
    "last_epoch_without_records": "no rules about the timeline yet",
    "last_epoch_starts_after_its_result": "no rules about the timeline yet",
    "shifted": "no fingerprint that survives edits yet",
    "scaled": "no fingerprint that survives edits yet",
    "scaled_by_little": "no fingerprint that survives edits yet",
    "jittered_by_ms": "no fingerprint that survives edits yet",
    "jittered_by_percent": "no fingerprint that survives edits yet",
    "scaled_and_jittered": "no fingerprint that survives edits yet",
    "rounded_to_seconds": "no fingerprint that survives edits yet",
    "intervals_exchanged": "no fingerprint that survives edits yet",
    "shifted_with_other_values": "no fingerprint that survives edits yet",
    "scaled_with_other_values": "no fingerprint that survives edits yet",
    "jittered_by_ms_with_other_values": "no fingerprint that survives edits yet",
    "one_interval_changed": "no fingerprint that survives edits yet",
    "one_interval_and_values_changed": "no fingerprint that survives edits yet",
    "tail_exchanged": "no fingerprint that survives edits yet",
    "head_exchanged": "no fingerprint that survives edits yet",
    "records_left_out": "no fingerprint that survives edits yet",
    "records_put_in": "no fingerprint that survives edits yet",
    "numbered_otherwise": "no fingerprint that survives edits yet",
    "all_but_header_of_another": "no fingerprint that survives edits yet",
}
"""Families of which some pass silently, or are named by other rules only; one of which none does must not be in it."""

CAUGHT_BY: dict[str, set[str]] = {
    "run_starts_after_an_epoch": {"ORD03"},
    "run_starts_in_the_first_epoch": {"ORD03"},
    "run_starts_after_all_but_one_epoch": {"ORD03"},
    "init_and_run_start_after_an_epoch": {"ORD01", "ORD03"},
    "run_start_and_staging_after_an_epoch": set(),
    "whole_start_after_an_epoch": {"ORD03"},
    "run_start_again_after_an_epoch": {"ORD08"},
    "time_of_run_start_late": {"ORD09"},
    "staging_over_training": set(),
    "staging_around_an_epoch": set(),
    "first_epochs_cut_off": {"ORD03", "ORD12"},
    "epochs_cut_out": {"ORD11"},
    "run_stops_before_the_last_evaluation": {"QUA01"},
    "run_stops_before_the_last_result": {"QUA01"},
    "time_of_run_stop_early": {"ORD09"},
    "run_stop_already_earlier": {"QUA01"},
    "clock_set_back": {"ORD09"},
    "times_of_evaluations_shrunk": {"ORD09"},
    "all_from_a_later_number": set(),
    "all_from_two": set(),
    "all_from_a_negative_number": set(),
    "all_multiplied": {"ORD11"},
    "all_in_fractions": {"ORD11"},
    "late_ones_later": {"ORD11"},
    "late_evaluations_later": set(),
    "late_results_later": {"QUA06"},
    "last_epoch_later": {"ORD11"},
    "last_evaluation_later": set(),
    "last_result_later": {"QUA06"},
    "last_result_one_later": {"QUA06"},
    "last_result_earlier": {"QUA06"},
    "last_result_in_a_fraction": {"QUA06"},
    "results_later": {"QUA06"},
    "results_multiplied": {"QUA06"},
    "evaluations_later": set(),
    "evaluation_intervals_later": {"QUA06"},
    "epochs_later": set(),
    "epoch_starts_later": {"ORD12"},
    "epoch_stops_later": {"ORD12"},
    "numbers_repeated": {"ORD11"},
    "numbers_as_text": {"QUA06"},
    "number_of_the_last_result_twice": {"QUA06"},
    "epochs_of_no_time_put_in": {"ORD18"},
    "openfold_samples_multiplied": set(),
    "openfold_samples_from_later": set(),
    "openfold_samples_go_back": set(),
    "openfold_samples_grow_unevenly": set(),
    "blocks_of_several_epochs": set(),
    "blocks_with_a_gap": set(),
    "blocks_with_later_results": set(),
    "result_without_evaluation": set(),
    "result_of_the_epoch_before_again": set(),
    "result_of_the_next_epoch_too_early": {"ORD07"},
    "evaluation_of_an_epoch_not_started": set(),
    "evaluation_soon_after_the_start": {"ORD18"},
    "epoch_of_no_time_evaluated": {"ORD18"},
    "evaluation_far_ahead": set(),
    "evaluation_before_training": {"QUA01"},
    "second_result_in_an_evaluation": set(),
    "better_result_right_before": {"QUA04"},
    "every_result_twice": {"QUA04"},
    "evaluated_again": set(),
    "evaluated_many_times": set(),
    "earlier_epoch_evaluated_again": {"ORD11"},
    "last_result_before_its_evaluation": set(),
    "last_result_before_its_epoch": set(),
    "last_result_to_an_earlier_epoch": set(),
    "last_evaluation_to_an_earlier_epoch": set(),
    "last_result_to_the_start": {"QUA01"},
    "last_evaluation_without_start": {"ORD12"},
    "evaluation_without_stop": {"ORD12"},
    "last_evaluation_without_both": set(),
    "all_evaluations_but_one_without_both": set(),
    "epoch_without_records": {"ORD11"},
    "last_epoch_without_records": set(),
    "results_without_the_bad_ones": {"QUA06"},
    "result_after_the_run": {"QUA01", "QUA04"},
    "last_epoch_starts_after_its_result": set(),
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
    "shifted": set(),
    "scaled": set(),
    "scaled_by_little": set(),
    "jittered_by_ms": set(),
    "jittered_by_percent": set(),
    "scaled_and_jittered": set(),
    "rounded_to_seconds": set(),
    "intervals_exchanged": set(),
    "other_values": {"RUN05", "RUN12"},
    "shifted_with_other_values": set(),
    "scaled_with_other_values": set(),
    "jittered_by_ms_with_other_values": set(),
    "one_interval_changed": set(),
    "one_interval_and_values_changed": set(),
    "tail_exchanged": set(),
    "head_exchanged": set(),
    "records_left_out": set(),
    "records_put_in": set(),
    "numbered_otherwise": set(),
    "all_but_header_of_another": set(),
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
    """Return a text with the forgeries of families that are not known to be open."""
    return "\n".join(line for family, lines in wrong.items() if family not in OPEN for line in lines)


def test_every_family_has_its_rules():
    assert CAUGHT_BY.keys() == set(FAMILIES) - set(UNSEEN_NAMES)
    assert OPEN.keys() <= CAUGHT_BY.keys()
    assert all(rules <= RULES.keys() and rules for family, rules in CAUGHT_BY.items() if family not in OPEN)


def test_forgeries_of_built_logs_are_named(built):
    assert not told(unnamed(range(FEW), built))


def test_forgeries_of_published_logs_are_named(all_logs):
    assert not told(unnamed(range(FEW), all_logs))


@pytest.mark.slow
def test_two_thousand_forgeries_are_named(all_logs, built):
    wrong = unnamed(range(MANY), all_logs)
    assert not told(wrong)
    wrong |= unnamed(range(FEW), built)
    assert wrong.keys() == OPEN.keys()
    assert len(CAUGHT_BY) * MANY >= 2000


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
    """The docs list these families (docs/reference/profiles.md): one that is named must leave the list."""
    named = [str(one) for family in UNSEEN_NAMES for one in [forge(family, 0, built)] if one.new]
    assert not named
