"""The official profile in round 0.7, of which mlperf-logging has no rules: a table instead of a comparison.

The rule set of that round, `hpc_0.5.0`, was never merged from the fork mlperf-hpc/logging. It is the one of round
1.0 but for this: 20 minutes of initialisation; benchmarks cosmoflow and deepcam, named also without a division;
neither node counts, gradient accumulation, dropout, weight decay nor seeds; other settings of deepcam; no sample
counts; no target in the open division.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compliance.engine.log_checker import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.judging import ERROR, OFFICIAL, Case
from compliance.samples.log import SampleLog
from tests.conformance.variants.damaged_logs import let_init_take

COSMOFLOW, DEEPCAM = ("cosmoflow", "closed"), ("deepcam", "closed")
OPEN_COSMOFLOW, OPEN_DEEPCAM = ("cosmoflow", "open"), ("deepcam", "open")
OK = ""
MINUTE_MS = 60_000


def sets(key: str, value: Any) -> Callable[[SampleLog], Any]:
    return lambda log: log.set(key, value)


def drops(key: str) -> Callable[[SampleLog], Any]:
    return lambda log: log.drop(key)


def init_takes(duration_ms: float) -> Callable[[SampleLog], Any]:
    return lambda log: let_init_take(log, duration_ms)


WARMUP = "opt_learning_rate_warmup_factor"
WARMUP_EPOCHS = "opt_learning_rate_warmup_epochs"
BOUNDARIES = "opt_learning_rate_decay_boundary_epochs"
DECAY = "opt_learning_rate_decay_factor"
WARMUP_STEPS = "opt_learning_rate_warmup_steps"
RATE = "opt_base_learning_rate"

Row = tuple[str, Callable[[SampleLog], Any], str]
TABLE: dict[tuple[str, str], list[Row]] = {  # what, in words, the change, and the keys of the errors
    COSMOFLOW: [
        ("valid", lambda log: None, OK),
        ("init of almost 20 min", init_takes(20 * MINUTE_MS - 1), OK),
        ("init of 20 min", init_takes(20 * MINUTE_MS), "init_stop"),
        ("init_stop after run_start", lambda log: log.move("init_stop", after="run_start"), "init_stop run_start"),
        ("staging in the run", lambda log: log.stage(after="run_start"), OK),
        ("staging before the run", lambda log: log.stage(after="init_start"), "staging_start"),
        ("staging stops only", lambda log: log.stage("run_start").drop("staging_start"), "staging_stop"),
        ("staging starts only", lambda log: log.stage("run_start").drop("staging_stop"), OK),
        ("no status", lambda log: log.meta("run_stop", "status", None), "run_stop"),
        ("aborted", lambda log: log.meta("run_stop", "status", "aborted"), OK),
        ("two run_stop", lambda log: log.double("run_stop"), OK),
        ("no cache_clear", drops("cache_clear"), "cache_clear"),
        ("no eval_start", drops("eval_start"), "eval_start block_start"),
        ("blocks", lambda log: log.blocks(), OK),
        (
            "block_stop without number",
            lambda log: log.blocks().meta("block_stop", "first_epoch_num", None),
            "block_stop",
        ),
        ("oc20", sets("submission_benchmark", "oc20"), "crash"),
        ("no benchmark", drops("submission_benchmark"), "submission_benchmark"),
        ("no division", drops("submission_division"), "submission_division"),
        ("unknown division", sets("submission_division", "Open"), "crash"),
        (
            "neither division nor benchmark",
            lambda log: log.drop("submission_division").drop("submission_benchmark"),
            "submission_division submission_benchmark",
        ),
        (
            "no division, target missed",
            lambda log: log.drop("submission_division").last_evaluation(0.2),
            "submission_division",
        ),
        ("unknown status", sets("submission_status", "available"), "submission_status"),
        ("empty organisation", sets("submission_org", ""), "submission_org"),
        ("nodes", sets("number_of_nodes", 0), OK),
        ("accelerators", sets("accelerators_per_node", -1), OK),
        ("gradient accumulation", sets("gradient_accumulation_steps", 0), OK),
        ("dropout", sets("dropout", 2), OK),
        ("weight decay", sets("opt_weight_decay", -1), OK),
        ("seed", sets("seed", "lucky"), OK),
        ("SGD", sets("opt_name", "SGD"), OK),
        ("adam", sets("opt_name", "adam"), "opt_name"),
        ("warmup factor of 5", sets(WARMUP, 5), OK),
        ("warmup factor below 0", sets(WARMUP, -0.1), WARMUP),
        ("warmup epochs as text", sets(WARMUP_EPOCHS, "4"), WARMUP_EPOCHS),
        ("boundaries of any kind", sets(BOUNDARIES, None), OK),
        ("no boundaries", drops(BOUNDARIES), BOUNDARIES),
        ("two decay factors", lambda log: log.double(DECAY, value=1), DECAY),
        ("batch of 0", sets("global_batch_size", 0), "global_batch_size"),
        ("train samples of any number", sets("train_samples", 1), OK),
        ("empty train samples", sets("train_samples", ""), "train_samples"),
        ("target just met", lambda log: log.last_evaluation(0.124), OK),
        ("target missed", lambda log: log.last_evaluation(0.1241), "eval_error"),
        ("target met after the run", lambda log: log.last_evaluation(0.2).add_evaluation(0.1, "run_stop"), OK),
        ("result without epoch", lambda log: log.meta("eval_error", "epoch_num", None), "eval_error"),
        ("result as text", lambda log: log.last_evaluation("0.1"), "crash"),
    ],
    DEEPCAM: [
        ("valid", lambda log: None, OK),
        ("gradient accumulation", sets("gradient_accumulation_frequency", "often"), OK),
        ("seed", sets("seed", -5), OK),
        ("train samples of any number", sets("train_samples", 1), OK),
        ("no eval samples", drops("eval_samples"), "eval_samples"),
        ("lamb", sets("opt_name", "lamb"), OK),
        ("adamw", sets("opt_name", "adamw"), OK),
        ("Adam", sets("opt_name", "Adam"), "opt_name"),
        ("epsilon of 1e-8", sets("opt_epsilon", 1e-8), OK),
        ("epsilon of 1e-7", sets("opt_epsilon", 1e-7), "opt_epsilon"),
        ("no epsilon", drops("opt_epsilon"), "opt_epsilon"),
        ("learning rate below 0", sets(RATE, -1), RATE),
        ("warmup steps below 0", sets(WARMUP_STEPS, -1), WARMUP_STEPS),
        ("warmup factor below 1", sets(WARMUP, 0.5), OK),
        ("settings of round 1.0", lambda log: log.set("opt_lr", -1).set("opt_betas", 1).set("opt_eps", 1), OK),
        ("target missed", lambda log: log.last_evaluation(0.8199), "eval_accuracy"),
        ("no results", drops("eval_accuracy"), "eval_accuracy"),
    ],
    OPEN_COSMOFLOW: [
        ("valid", lambda log: None, OK),
        ("init of 20 min", init_takes(20 * MINUTE_MS), "init_stop"),
        ("staging before the run", lambda log: log.stage(after="init_start"), "staging_start"),
        ("oc20", sets("submission_benchmark", "oc20"), "submission_benchmark"),
        ("adam", sets("opt_name", "adam"), OK),
        ("no batch size", drops("global_batch_size"), OK),
        ("target missed", lambda log: log.last_evaluation(0.5), OK),
        ("result as text", lambda log: log.last_evaluation("0.1"), OK),
    ],
    OPEN_DEEPCAM: [
        ("valid", lambda log: None, OK),
        ("no eval samples", drops("eval_samples"), "eval_samples"),
        ("no results", drops("eval_accuracy"), OK),
    ],
}
ROWS = [(base, row) for base, rows in TABLE.items() for row in rows]


def names() -> list[str]:
    return [f"{' '.join(base)}: {label}" for base, (label, _, _) in ROWS]


@pytest.mark.parametrize(("base", "row"), ROWS, ids=names())
def test_round_0_7(base, row):
    benchmark, division = base
    _, change, expected = row
    log = SampleLog(benchmark, "0.7", division, epochs=2)
    change(log)
    run = judge_log(parse_log(log.bytes()), LogTask("<bytes>", Case("0.7", OFFICIAL)))
    keys = {finding.key for finding in run.findings if finding.severity == ERROR}
    assert (run.verdict == "FAIL") == (expected != OK)
    assert keys == set(expected.split()) or expected == "crash"


def test_the_table_is_long_and_has_no_row_twice():
    assert len(set(names())) == len(ROWS) > 60
