"""A log is compared with what all published logs have in common."""

import json

import pytest

from compliance.logs.log import parse_log
from compliance.model.judging import Case
from compliance.rules.census import MOST_NOTES, AsPublished, read_census
from compliance.samples.log import SampleLog, make_record
from tests.compliance.judged import find_all, judge_sample


def log(**options) -> SampleLog:
    """Return a log of deepcam with the loss of each epoch."""
    made = SampleLog("deepcam", **options).steps()
    for number, record in enumerate(made.records_of("epoch_stop"), 1):
        at = made.records.index(record)
        metadata = {"epoch_num": number, "step_num": record["metadata"]["step_num"]}
        made.records.insert(at, make_record("train_loss", 1 / number, record["time_ms"], metadata))
    return made


def notes_on(made: SampleLog) -> dict[str, str]:
    return {finding.key: finding.severity for finding in find_all(judge_sample(made), "SET20")}


def test_a_usual_log_is_like_the_published_ones():
    assert notes_on(log().add("opt_step", 0).add("shuffle_mode", "global")) == {}


@pytest.mark.parametrize(
    ("key", "severity", "change"),
    [
        ("opt_step", "warning", lambda made: made.add("opt_step", 5000)),
        ("opt_step", "note", lambda made: made.add("opt_step", "none")),
        ("shuffle_mode", "warning", lambda made: made.add("shuffle_mode", "none")),
        ("stage_verify", "note", lambda made: made.add("stage_verify", True)),
        ("eval_accuracy", "note", lambda made: made.meta("eval_accuracy", "lineno", 7, which=-1)),
        ("run_stop", "note", lambda made: made.meta("run_stop", "eval_accuracy", 0.71)),
    ],
)
def test_what_no_published_log_does(key, severity, change):
    assert notes_on(change(log())) == {key: severity}
    assert notes_on(change(log(division="open"))) == {}


@pytest.mark.parametrize("value", [0.7, float("nan")])
def test_a_loss_that_does_not_fall(value):
    made = log()
    for record in made.records_of("train_loss"):
        record["value"] = value
    assert notes_on(made) == {"train_loss": "warning"}


def test_steps_that_are_others_than_those_of_the_epoch():
    made = log().throughput()
    for record in made.records_of("tracked_stats"):
        record["metadata"]["step"] = 7
    (finding,) = find_all(judge_sample(made), "SET20")
    assert finding.key == "tracked_stats" and "tracked_stats.step is 7" in finding.message
    assert "in all 5 published results" in finding.message


def test_few_notes_on_a_log_that_is_quite_different():
    made = log()
    census, _ = read_census("deepcam")
    values = {fact.key: 0 for facts in census.values() for fact in facts if fact.kind in ("value", "type")}
    for key in values.keys() - {record["key"] for record in made.records}:
        made.add(key, "other")
    findings = [finding for finding in find_all(judge_sample(made), "SET20") if finding.severity == "note"]
    assert len(findings) == MOST_NOTES + 1
    assert "more facts" in findings[-1].message


@pytest.mark.parametrize(("stops", "findings"), [(4, []), (3, ["block_start (their number) is 4, block_stop"])])
def test_a_log_of_training_is_compared_with_those_of_its_suite(stops, findings):
    keys = ["run_start", *["block_start"] * 4, *["block_stop"] * stops, "run_stop"]
    records = [make_record(key, None, 1_700_000_000_000 + number, {}) for number, key in enumerate(keys)]
    data = "".join(f":::MLLOG {json.dumps(record)}\n" for record in records).encode()
    found = AsPublished().check(parse_log(data), Case("training-4.1", division="closed", benchmark="bert"))
    texts = [finding.message for finding in found]
    assert [text.partition(" (their number) 3;")[0] for text in texts] == findings
    assert all("published results of round 4.1 that have it" in text for text in texts)
    assert not AsPublished.applies("training-4.1", "open", "strict")
