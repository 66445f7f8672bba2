"""What is wrong with a record is said once, and in words that are true."""

import re

import pytest

from compliance.samples.log import SampleLog
from tests.compliance.judged import find_all, judge_sample


def messages(log: SampleLog, rule: str) -> list[str]:
    return [finding.message for finding in find_all(judge_sample(log), rule)]


@pytest.mark.parametrize(("time_ms", "shown"), [(False, "false"), ("5", '"5"')])
def test_a_time_that_is_no_number_is_one_finding(time_ms, shown):
    log = SampleLog().field("run_stop", "time_ms", time_ms)
    assert messages(log, "FRM08") == [f"time_ms is {shown}, not a JSON number"]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (SampleLog().evaluation(1, 0.2).last_evaluation(-0.5), r"evaluations is 0\.\d+; -0.5 is not possible"),
        (SampleLog("deepcam").evaluation(1, 0.7).last_evaluation(79.5), "evaluations is .*; 79.5 is not possible"),
        (SampleLog(epochs=2).evaluation(1, 30).last_evaluation(12.1), "percent in all 2 .*12.1 for 0.121"),
        (SampleLog("deepcam", epochs=2).evaluation(1, 55).last_evaluation(79.1), "percent.*79.1 for 0.791"),
        (
            SampleLog().evaluation(2, float("nan")).last_evaluation(0.3),
            "training diverged at line 33: eval_error is nan",
        ),
        (SampleLog().last_evaluation(0.3).add("train_loss", float("inf")), "training diverged at line .*train_loss"),
    ],
)
def test_why_the_target_is_missed_is_said(log, words):
    (message,) = messages(log, "QUA01")
    assert re.search(words, message), message


def test_a_run_that_ended_before_its_start_lacks_its_records_once_per_rule():
    log = SampleLog().cut("global_batch_size")
    (message,) = messages(log, "SET03")
    assert message.startswith(f"the log ends in line {len(log.records)}, before run_start, without ")
    assert len(messages(log, "ORD07")) == 1 and len(messages(log, "ORD05")) == 1


def test_in_a_run_that_started_each_missing_record_is_named():
    log = SampleLog().drop("global_batch_size").drop("opt_name")
    assert set(messages(log, "SET03")) == {"opt_name is not logged", "global_batch_size is not logged"}
