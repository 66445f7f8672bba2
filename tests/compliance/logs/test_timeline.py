"""How fast a run trains, by its epochs, blocks or samples, and what it records of itself."""

import math

import pytest

from compliance.logs.log import Rate, parse_log
from compliance.logs.timeline import find_steps_back, order_by_time, samples_per_second
from compliance.samples.log import SampleLog
from tests.compliance.judged import judge_sample


def rate_of(log):
    return samples_per_second(parse_log(log.bytes()), log.reference)


def test_the_rate_counts_each_epoch_once_from_the_first_start_to_the_last_stop():
    log = SampleLog(epochs=2)
    first, last = log.records_of("epoch_start")[0]["time_ms"], log.records_of("epoch_stop")[-1]["time_ms"]
    expected = pytest.approx(2 * 524_288 / ((last - first) / 1000))
    assert rate_of(log) == expected
    assert rate_of(SampleLog(epochs=2).blocks().meta("block_start", "epoch_count", 1)) == expected
    assert rate_of(SampleLog(epochs=2).double("epoch_start")) < rate_of(log), "without its stop it lasts to run_stop"


def test_an_epoch_without_its_stop_lasts_to_the_end_of_the_run():
    log = SampleLog(epochs=2)
    first, last = log.records_of("epoch_start")[0]["time_ms"], log.records_of("run_stop")[-1]["time_ms"]
    assert rate_of(log.drop("epoch_stop", -1)) == pytest.approx(2 * 524_288 / ((last - first) / 1000))


def test_where_epochs_are_samples_the_last_evaluation_counts_them():
    log = SampleLog("openfold", epochs=2)
    samples = log.records_of("eval_accuracy")[-1]["metadata"]["epoch_num"]
    seconds = (log.records_of("epoch_stop")[-1]["time_ms"] - log.records_of("epoch_start")[0]["time_ms"]) / 1000
    assert rate_of(log) == pytest.approx(samples / seconds)


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.drop("epoch_start"),
        lambda log: log.drop("train_samples"),
        lambda log: log.set("train_samples", "many"),
        lambda log: log.set("train_samples", 0),
        lambda log: log.drop("epoch_stop").drop("run_stop"),
        lambda log: log.times(lambda ms: -ms),
        lambda log: log.times(lambda ms: math.nan),
    ],
)
def test_a_log_that_does_not_tell_has_no_rate(change):
    assert rate_of(change(SampleLog())) is None


def test_no_time_at_all_is_taken_for_a_millisecond():
    assert rate_of(SampleLog(epochs=1).times(lambda ms: 1_690_000_000_000)) == 524_288 * 1000


def test_throughput_is_read_from_both_kinds_of_records():
    log = SampleLog().add("throughput", 5.5, "run_stop", epoch_num=1, step=7)
    log.add("tracked_stats", {"throughput": 5.5}, "run_stop", epoch_num=1)
    log.add("tracked_stats", {"throughput": 7}, "run_stop", epoch_num=2).add("throughput", 8, "run_stop", epoch_num=2)
    log.add("throughput", "fast", "run_stop", epoch_num=3).add("throughput", -1, "run_stop", epoch_num=3)
    log.add("tracked_stats", {"loss": 1}, "run_stop", epoch_num=3).add("throughput", 6, "run_stop")
    rates = parse_log(log.bytes()).rates
    first = log.records.index(log.records_of("throughput")[0]) + 1
    assert rates[1] == Rate(5.5, 7, first) and set(rates) == {1, 2}
    assert not rates[2].alone, "an epoch with several speeds"


@pytest.mark.parametrize("key", ["epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_error"])
def test_lines_that_a_buffer_writes_late_are_judged_by_their_times(key):
    log = SampleLog()
    at = log._record_index(key, 4)
    log.records.insert(at + 4, log.records.pop(at))
    findings = judge_sample(log).findings
    assert {(finding.rule, finding.severity) for finding in findings} <= {("ORD09", "note")}


def test_a_clock_that_is_set_back_keeps_the_order_of_the_lines():
    log = SampleLog()
    start = log.records_of("epoch_start")[4]["time_ms"]
    set_back = parse_log(log.times(lambda ms: ms if ms < start else ms - 60_000).bytes())
    assert order_by_time(set_back).events == set_back.events
    assert [(step.record.key, step.by_ms) for step in find_steps_back(set_back)] == [("epoch_start", 59_997)]
