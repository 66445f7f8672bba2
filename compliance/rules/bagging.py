"""Rules about members of an ensemble, each trained on samples drawn at random, which is not an MLPerf result."""

from __future__ import annotations

from collections.abc import Iterator

from common.reference import FULL, MINI
from common.settings.keys import take
from common.values import is_stated
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.logs.run import BAGGING, PROVENANCE, variant_of
from compliance.model.case import STRICT, Case
from compliance.model.finding import ERROR, NOTE, Finding
from compliance.rules.closed import configuration, configured
from compliance.rules.rule import LogRule, show

NONE = (None, "none")


class NoBagging(LogRule):
    """The run trains on the training set, not on samples drawn from it for a member of an ensemble."""

    id = "SET15"
    cite = "training_rules.adoc#training-and-test-sets; hpc_training_rules.adoc#benchmarks"
    profiles = (STRICT,)
    differs = "the official tool does not know the records of this suite"
    why = "A member of a bagged ensemble sees 63 % of the samples; its result is compared with no other."
    fix = "Train with instances.bagging=none. With --allow-mini it is a note in a mini run."
    good = (
        lambda log: log(),
        lambda log: log().by_suite(),
        lambda log: log(division="open").by_suite({"instances.bagging": "none"}),
    )
    bad = (
        lambda log: log().by_suite({"instances.bagging": "bootstrap"}),
        lambda log: log(division="open").by_suite({"instances.bagging": "poisson"}),
        lambda log: log(division="open").add(BAGGING, "bootstrap"),
        lambda log: log(division="open", variant=MINI).add(BAGGING, "bootstrap"),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        finding = next(_bagging_records(log), None)
        if finding is None:
            return
        record, kind = finding
        message = f"the training samples are drawn at random (bagging {show(kind)}), so this is not an MLPerf result"
        severity = NOTE if case.allow_mini and variant_of(log) != FULL else ERROR
        yield self.finding(log.path, record.line, message, "a run on the whole training set", BAGGING, severity)


def _bagging_records(log: Log) -> Iterator[tuple[Record, object]]:
    """Yield the records that state bagging, and its kind."""
    yield from ((record, record.value) for record in log[BAGGING] if record.value not in NONE)
    for record in log[PROVENANCE]:
        config = configuration(record.value)
        kind = None if config is None else configured(take("instances.bagging"), config)
        if is_stated(kind) and kind not in NONE:
            yield record, kind
