"""Rules about the weights from which a run starts."""

from __future__ import annotations

from collections.abc import Iterator

from common.reference import FULL, MINI
from common.settings.keys import take
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.logs.run import INIT_WEIGHTS, PROVENANCE, variant_of
from compliance.model.case import STRICT, Case
from compliance.model.finding import ERROR, NOTE, Finding
from compliance.rules.closed import configuration, configured
from compliance.rules.rule import LogRule, show


class NoPretraining(LogRule):
    """The run starts from random weights, not from those of an earlier training."""

    id = "SET16"
    cite = "training_rules.adoc#pre-training-is-not-allowed"
    profiles = (STRICT,)
    differs = "the official tool does not know the records of this suite"
    why = "Weights that are trained already reach the target in less time, which says nothing about the system."
    fix = "Train with train.init_from=null. With --allow-mini it is a note in a mini run."
    good = (
        lambda log: log(),
        lambda log: log().by_suite(),
        lambda log: log(division="open").by_suite({"train.init_from": None}),
        lambda log: log(benchmark="openfold"),
    )
    bad = (
        lambda log: log().by_suite({"train.init_from": "cosmoflow.safetensors"}),
        lambda log: log(benchmark="oc20", division="open").by_suite({"train.init_from": "runs/before"}),
        lambda log: log(division="open").add(INIT_WEIGHTS, "5" * 64),
        lambda log: log(benchmark="deepcam", division="open", variant=MINI).add(INIT_WEIGHTS, "5" * 64),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        finding = next(_weight_records(log), None)
        if finding is None:
            return
        record, weights = finding
        message = f"the run starts from given weights ({show(weights)}), so this is not an MLPerf result"
        severity = NOTE if case.allow_mini and variant_of(log) != FULL else ERROR
        yield self.finding(log.path, record.line, message, "random initial weights", INIT_WEIGHTS, severity)


def _weight_records(log: Log) -> Iterator[tuple[Record, object]]:
    """Yield the records that state initial weights, and which."""
    yield from ((record, record.value) for record in log[INIT_WEIGHTS])
    for record in log[PROVENANCE]:
        config = configuration(record.value)
        source = None if config is None else configured(take("train.init_from"), config)
        if source is not None:
            yield record, source
