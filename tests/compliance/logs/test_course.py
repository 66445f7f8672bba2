"""The course of a run: which epochs were trained, and to which evaluation a result belongs."""

from itertools import chain, combinations

import pytest

from compliance.logs.course import Course
from compliance.logs.log import parse_log
from compliance.model.judging import ERROR
from compliance.samples.log import SampleLog
from tests.compliance.judged import judge_sample

KEYS = (("epoch_start", "epoch_stop"), ("eval_start", "eval_stop"), ("eval_error",))


def course_of(sample):
    return parse_log(sample.bytes()).derive(Course, sample.reference.target.key)


def test_an_epoch_may_start_before_the_one_before_it_is_evaluated():
    sample = SampleLog(epochs=4)
    second = next(r for r in sample.records_of("epoch_start") if r["metadata"]["epoch_num"] == 2)
    sample.records.remove(second)
    sample.records.insert(sample.records.index(sample.records_of("eval_start")[0]), second)
    course = course_of(sample)
    assert course.untrained == course.misplaced == []


def test_a_result_belongs_to_the_evaluation_of_its_number_wherever_it_stands():
    sample = SampleLog(epochs=4).move("eval_error", before="run_stop")
    assert course_of(sample).misplaced == []
    sample.meta("eval_error", "epoch_num", 9, -1)
    assert [number for number, _ in course_of(sample).misplaced] == [9]


def test_what_follows_run_stop_is_no_part_of_the_run():
    course = course_of(SampleLog(epochs=4).add_evaluation(0.1, after="run_stop"))
    assert [number for number, _ in course.results] == [1, 2, 3, 4]
    assert len(course.counted) == 4


def test_a_block_covers_its_epochs():
    sample = SampleLog(epochs=4).blocks().meta("block_start", "epoch_count", 2)
    course = course_of(sample)
    assert [course.training(number).line for number in (1, 2)] == [
        course.blocks[0].start.line,
        course.blocks[1].start.line,
    ]
    assert course.training(5) is None


@pytest.mark.parametrize("keys", [keys for size in (1, 2, 3) for keys in combinations(KEYS, size)])
@pytest.mark.parametrize("shift", [-3, -1, 1, 13])
def test_without_an_error_convergence_is_the_number_of_epochs_that_were_trained(keys, shift):
    sample = SampleLog(epochs=24)
    sample.numbers(lambda number: number + shift, *chain.from_iterable(keys))
    run = judge_sample(sample)
    if not any(found.severity == ERROR for found in run.findings):
        numbers = {record["metadata"]["epoch_num"] for record in sample.records_of("epoch_start")}
        assert run.convergence == len(numbers) - 1 + min(numbers)


@pytest.mark.parametrize("round_", ["0.7", "3.0"])
@pytest.mark.parametrize("key", ["eval_start", "epoch_start", "run_start"])
def test_repeated_results_without_their_evaluations_are_judged(key, round_):
    """No rule fails itself where a log lacks what the others stand for."""
    sample = SampleLog(round_=round_, epochs=4).double("eval_error", 1, value=0.3).double("eval_error", 1, value=0.2)
    run = judge_sample(sample.drop(key))
    assert {"QUA08", "ORD04", "ORD11"} & {found.rule for found in run.findings}
    assert not any("itself failed" in found.message for found in run.findings)
