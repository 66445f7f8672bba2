"""The facts of the benchmarks, against the numbers of the published rules."""

import math

import pytest

from common.reference import ROUNDS, Check, Target, each, equals, integer, list_of, mini_of, number, since
from compliance.benchmarks import MINIS, REFERENCES, benchmarks_of, reference_of
from tests.conformance.variants.damaged_logs import PUBLISHED


def test_rounds_and_their_benchmarks():
    assert since("2.0") == ("2.0", "3.0") and since("0.7", "1.0") == ("0.7", "1.0")
    assert {round_: tuple(name for name in benchmarks_of(round_) if name in PUBLISHED) for round_ in ROUNDS} == {
        "0.7": ("cosmoflow", "deepcam"),
        "1.0": ("cosmoflow", "deepcam", "oc20"),
        "2.0": ("cosmoflow", "deepcam", "oc20"),
        "3.0": ("cosmoflow", "deepcam", "oc20", "openfold"),
    }


@pytest.mark.parametrize(
    ("name", "target", "runs", "train", "evaluation"),
    [
        ("cosmoflow", "0 < eval_error <= 0.124", 10, 524_288, 65_536),
        ("deepcam", "0.82 <= eval_accuracy <= 1", 5, 121_266, 15_158),
        ("oc20", "0 < eval_error <= 0.036", 5, 2_000_000, 999_866),
        ("openfold", "0.8 <= eval_accuracy <= 1", 10, 594_595, 180),
    ],
)
def test_published_facts(name, target, runs, train, evaluation):
    reference = REFERENCES[name]
    assert reference.target.range_text == target and reference.runs == runs
    assert reference.dataset.train_samples["3.0"] == (train,) and reference.dataset.eval_samples["3.0"] == (evaluation,)
    assert reference.cite.startswith("hpc_training_rules.adoc")


def test_the_first_round_of_cosmoflow_had_half_the_data():
    settings = {s.key: s for s in REFERENCES["cosmoflow"].settings_of("0.7", "closed")}
    assert settings["train_samples"].allowed.allows(262_144) and not settings["train_samples"].allowed.allows(524_288)
    assert "dropout" not in settings and "number_of_nodes" not in settings


def test_a_benchmarks_own_setting_replaces_the_common_one():
    settings = [
        s for s in REFERENCES["deepcam"].settings_of("3.0", "closed") if s.key == "gradient_accumulation_frequency"
    ]
    assert len(settings) == 1 and settings[0].required


def test_the_open_division_fixes_only_that_samples_are_logged():
    assert [s.key for s in REFERENCES["openfold"].settings_of("3.0", "open")] == ["train_samples", "eval_samples"]


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
def test_a_mini_problem_asks_for_all_settings_in_any_division_and_leaves_their_values_free(reference):
    mini = mini_of(reference, "mini", 0.5, (20, 10), "tests")
    for round_ in reference.rounds:
        settings = mini.settings_of(round_, "open")
        closed = reference.settings_of(round_, "closed")
        assert [(s.key, s.required, s.when) for s in settings] == [(s.key, s.required, s.when) for s in closed]
        free = {s.key: s for s in settings}
        assert free["opt_name"].allowed.allows("of my own") and not free["global_batch_size"].allowed.allows(0.5)
        assert free["train_samples"].allowed.allows(20) and not free["eval_samples"].allowed.allows(9)


def test_facts_by_variant():
    assert reference_of("cosmoflow", "full") is REFERENCES["cosmoflow"]
    assert [reference_of("cosmoflow", name) for name in ("mini2", "mini")] == list(MINIS["cosmoflow"])
    assert reference_of("oc20", "mini2") is None
    assert reference_of("openfold", "mini") is reference_of("resnet", "full") is reference_of(None, "full") is None


@pytest.mark.parametrize("value", [0.124, 0.1, 1e-9])
def test_target_met(value):
    assert Target("eval_error", 0.124, True).met(value)


@pytest.mark.parametrize("value", [0.12400001, 0, -0.1, math.nan, math.inf, "0.1", None, True, [0.1]])
def test_target_not_met(value):
    assert not Target("eval_error", 0.124, True).met(value)


def test_accuracy_has_an_upper_end():
    target = Target("eval_accuracy", 0.82, False)
    assert target.met(0.82) and target.met(1) and not target.met(1.01) and not target.met(True)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (number("> 0", lambda v: v > 0), [1, 0.5], [0, -1, "1", None, True, math.inf]),
        (integer(">= 1", lambda v: v >= 1), [1, 2.0, 10**30], [0, 1.5, "1", [1]]),
        (each(number("> 0", lambda v: v > 0)), [1, [1, 2], []], [[1, 0], "1", {}]),
        (list_of(integer(">= 1", lambda v: v >= 1)), [[], [1, 2]], [1, [0], [1.5], "12", None]),
        (equals(1.0), [1, 1.0], [True, 2, "1.0", math.nan]),
        (equals(True), [True], [1, "true", None]),
        (Check("short", lambda v: len(v) < 3), ["ab", []], ["abc", 1, None]),
    ],
    ids=lambda value: value.text if isinstance(value, Check) else "",
)
def test_checks_tell_good_from_bad_and_never_raise(check, good, bad):
    assert all(check.allows(value) for value in good)
    assert not any(check.allows(value) for value in bad)
