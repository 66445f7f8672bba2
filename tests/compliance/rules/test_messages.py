"""What is wrong with a record is said once, and in words that are true."""

import pytest

from compliance.samples.log import SampleLog
from tests.compliance.judged import find_all, judge_sample


def messages(log: SampleLog, rule: str) -> list[str]:
    return [finding.message for finding in find_all(judge_sample(log), rule)]


@pytest.mark.parametrize(("time_ms", "shown"), [(False, "false"), ("5", '"5"')])
def test_a_time_that_is_no_number_is_one_finding(time_ms, shown):
    log = SampleLog().field("run_stop", "time_ms", time_ms)
    assert messages(log, "FRM08") == [f"time_ms is {shown}, not a JSON number"]


def test_a_value_that_no_evaluation_can_have_is_not_the_best_one():
    (message,) = messages(SampleLog().evaluation(1, 0.2).last_evaluation(-0.5), "QUA01")
    assert "evaluations is -0.5" not in message and message.endswith("; -0.5 is not possible")


def test_a_run_that_ended_before_its_start_lacks_its_records_once_per_rule():
    log = SampleLog().cut("global_batch_size")
    (message,) = messages(log, "SET03")
    assert message.startswith(f"the log ends in line {len(log.records)}, before run_start, without ")
    assert len(messages(log, "ORD07")) == 1 and len(messages(log, "ORD05")) == 1


def test_in_a_run_that_started_each_missing_record_is_named():
    log = SampleLog().drop("global_batch_size").drop("opt_name")
    assert set(messages(log, "SET03")) == {"opt_name is not logged", "global_batch_size is not logged"}
