"""The verdict of rule files on a log: their order, what a later one withdraws, and the number of records."""

import pytest

from compliance.committee.rule_files import UnreadableError
from tests.compliance.committee.written import ROUND, begin, end, judge, key


def enqueue(name):
    return f"enqueue_config('{ROUND}/{name}.yaml')"


def said(refusals):
    return [(refusal.key, refusal.line) for refusal in refusals]


def test_a_log_that_meets_every_rule_is_accepted(tmp_path):
    rules = begin("s['n'] = 0") + key("seed", REQ="EXACTLY_ONE", CHECK="v['value'] > 0", POST="s['n'] += 1")
    assert judge(tmp_path, {"common": rules + end(CHECK="s['n'] == 1")}, ("seed", 1)) == []


def test_a_broken_check_is_reported_with_line_and_text(tmp_path):
    (refusal,) = judge(tmp_path, {"common": key("seed", CHECK=["True", "v['value']  ==  2"])}, ("a", 0), ("seed", 1))
    assert (refusal.key, refusal.line, refusal.expected) == ("seed", 2, "v['value'] == 2")
    assert "breaks a rule" in refusal.message


@pytest.mark.parametrize("check", ["s['none']", "v['value'] / 0", "v['value'] < 'a'", "v['metadata']['none'] == 1"])
def test_a_check_that_cannot_be_computed_is_broken(tmp_path, check):
    (refusal,) = judge(tmp_path, {"common": key("seed", CHECK=check)}, ("seed", 1))
    assert refusal.line == 1 and "does not apply" in refusal.message


def test_files_apply_in_the_order_in_which_they_are_enqueued_each_with_a_state_of_its_own(tmp_path):
    files = {
        "common": begin("s['a'] = 1") + key("run_start", POST=f"{enqueue('one')}; {enqueue('two')}"),
        "one": key("run_start", POST=enqueue("three")) + key("seed", CHECK="v['value'] == 2"),
        "two": key("run_stop", CHECK="s.get('a') is None and v['value'] == 2"),
        "three": key("late", REQ="EXACTLY_ONE"),
    }
    found = judge(tmp_path, files, ("run_start", None), ("seed", 1), ("run_stop", 1))
    assert said(found) == [("seed", 2), ("run_stop", 3), ("late", 0)]


def test_a_later_file_replaces_what_was_said_of_its_keys_alone(tmp_path):
    files = {
        "common": key("run_start", POST=enqueue("more"))
        + key("seed", REQ="EXACTLY_ONE", CHECK="v['value'] == 2")
        + key("other", CHECK="False")
        + end(CHECK="False"),
        "more": key("seed", CHECK="v['value'] == 1") + key("other", CHECK="v['value'] == 5"),
    }
    found = judge(tmp_path, files, ("run_start", None), ("seed", 1), ("other", 4))
    assert [(refusal.key, refusal.expected) for refusal in found] == [("other", "v['value'] == 5"), ("", "False")]


@pytest.mark.parametrize(
    ("required", "values", "message"),
    [
        ("EXACTLY_ONE", [], "not logged"),
        ("EXACTLY_ONE", [1, 1], ""),
        ("EXACTLY_ONE", [1, 2], "logged 2 times, with different values"),
        ("AT_LEAST_ONE", [], "not logged"),
        ("AT_LEAST_ONE", [1, 2], ""),
        ("AT_LEAST(3)", [1, 2], "logged 2 times"),
        ("AT_LEAST(2)", [1, 2], ""),
        ("OPTIONAL", [], ""),
        ("AT_LEAST_ONE_OR(other, more)", [], "none of more and other and seed"),
        ("AT_LEAST_ONE_OR(run_start)", [], ""),
        ("AT_LEAST_ONE_OR(other)", [1], ""),
    ],
)
def test_the_number_of_records(tmp_path, required, values, message):
    records = [("seed", value) for value in values]
    rules = key("seed", REQ=required) + "".join(map(key, ("run_start", "other", "more")))
    found = judge(tmp_path, {"common": rules}, ("run_start", None), *records)
    assert [message in refusal.message for refusal in found] == [True] * bool(message)


def test_keys_that_stand_for_each_other_are_reported_once(tmp_path):
    rules = key("a", REQ="AT_LEAST_ONE_OR(b)") + key("b", REQ="AT_LEAST_ONE_OR(a)")
    (refusal,) = judge(tmp_path, {"common": rules}, ("seed", 1))
    assert "none of a and b" in refusal.message


def test_a_first_check_is_of_the_first_record_alone(tmp_path):
    files = {"common": key("seed", FIRST_CHECK="v['value'] == 1")}
    assert judge(tmp_path, files, ("seed", 1), ("seed", 2)) == []
    assert said(judge(tmp_path, files, ("seed", 1), ("seed", 1))) == []


def test_a_first_check_that_fails_is_reported(tmp_path):
    files = {"common": key("seed", FIRST_CHECK="v['value'] == 1")}
    assert said(judge(tmp_path, files, ("seed", 2), ("seed", 1))) == [("seed", 1)]


def test_of_submission_keys_only_the_first_record_is_judged(tmp_path):
    files = {"common": key("submission_org", CHECK="v['value'] == 'a'") + key("seed", CHECK="v['value'] == 1")}
    found = judge(tmp_path, files, ("submission_org", "a"), ("submission_org", "b"), ("seed", 1), ("seed", 2))
    assert said(found) == [("seed", 4)]


def test_one_of_the_records_must_meet_the_target(tmp_path):
    files = {"common": key("eval_accuracy", ATLEAST_ONE_CHECK="v['value'] <= 3.3")}
    assert judge(tmp_path, files, ("eval_accuracy", 3.4), ("eval_accuracy", 3.2)) == []
    (refusal,) = judge(tmp_path, files, ("eval_accuracy", 3.4), ("eval_accuracy", 3.5))
    assert "meets its target" in refusal.message and refusal.expected == "v['value'] <= 3.3"
    assert judge(tmp_path, files, ("seed", 1)) == []


def test_a_circle_of_files_is_not_judged(tmp_path):
    files = {"common": key("seed", POST=enqueue("more")), "more": key("seed", POST=enqueue("common"))}
    with pytest.raises(UnreadableError, match="in a circle"):
        judge(tmp_path, files, ("seed", 1))


def test_a_file_that_is_not_there_refuses_the_log_and_one_that_is_refused_leaves_it_unjudged(tmp_path):
    common = {"common": key("seed", POST="enqueue_config('training_9.9.0/closed_{}.yaml'.format(v['value']))")}
    (refusal,) = judge(tmp_path, common, ("seed", "none"))
    assert "there is no rule file training_9.9.0/closed_none.yaml" in refusal.message
    with pytest.raises(UnreadableError, match=r"closed_bad.yaml: not readable: line 3"):
        judge(tmp_path, common | {"closed_bad": key("a", CHECK="open('x')")}, ("seed", "bad"))


@pytest.mark.parametrize(
    "rules",
    [
        begin("s['a'] = s['none']") + key("seed"),
        key("seed", ATLEAST_ONE_CHECK="v['value'] < 'a'"),
    ],
)
def test_where_the_committees_checker_ends_with_a_traceback_the_log_is_refused(tmp_path, rules):
    (refusal,) = judge(tmp_path, {"common": rules}, ("seed", 1))
    assert "checker ends at" in refusal.message


def test_code_that_fails_refuses_the_value(tmp_path):
    (refusal,) = judge(tmp_path, {"common": key("seed", POST="s['a'] = v['value'] + 1")}, ("seed", "text"))
    assert refusal.line == 1 and "does not apply" in refusal.message


def test_a_value_cannot_name_a_file_outside(tmp_path):
    (refusal,) = judge(
        tmp_path, {"common": key("seed", POST="enqueue_config('r/{}.yaml'.format(v['value']))")}, ("seed", "../x")
    )
    assert "not a word" in refusal.message
