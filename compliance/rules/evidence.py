"""Rules about records of machine, data and start that contradict what a run claims to be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from common.reference import FULL
from common.settings.keys import take
from common.values import are_same, is_number
from compliance.benchmarks import MINIS, list_references
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.logs.run import BAGGING, DATA, INIT_WEIGHTS, PROVENANCE, configuration, variant_of
from compliance.model.judging import ERROR, NOTE, WARNING, Case, Finding
from compliance.rules.closed import OURS, SuiteRule, configured
from compliance.rules.rule import LogRule, show

MINI_DATA = {digest: ref.variant for refs in MINIS.values() for ref in refs for digest in ref.data_sha256}
"""The variant of each known digest of generated data."""
NOTHING = ("", "none", "null", "false", "no")
"""Texts that name no checkpoint."""


class MachineAndData(SuiteRule):
    """The machine and data recorded in a log of this suite agree with its header."""

    id = "SET17"
    severity = WARNING
    once = True
    cite = OURS
    why = "A run of a mini problem on a laptop can be edited to look like one of a large machine."
    fix = "Submit the log as the trainer wrote it."
    good = (lambda log: log(division="open").by_suite().set("accelerators_per_node", 0).versions(torch="2.13.0+cpu"),)
    bad = (lambda log: log().by_suite().versions(torch="2.13.0+cpu"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for record in log[PROVENANCE]:
            if isinstance(record.value, dict):
                yield from (
                    self.finding_at(log, record, *contradiction)
                    for contradiction in self._find_contradictions(log, case, record.value)
                )

    def _find_contradictions(self, log: Log, case: Case, provenance: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Yield message, what was expected and severity of what a provenance says against its log."""
        stated = partial(configured, config=provenance)
        torch, cores = stated(take("versions.torch")), stated(take("host.cores"))
        device = str(stated(take("config.dist.device"))).casefold().partition(":")[0]
        accelerators = log.value("accelerators_per_node")
        if is_number(accelerators) and accelerators > 0:
            for contradicts, fact in (
                (re.search(r"\+cpu\b", str(torch), re.IGNORECASE), f"torch {show(torch)} has no GPU support"),
                (is_number(cores) and cores < accelerators, f"the host has {show(cores)} cores"),
                (device == "cpu", "the run was configured for the CPU (dist.device)"),
            ):
                if contradicts:
                    message = f"accelerators_per_node is {show(accelerators)}, but {fact}"
                    yield message, "provenance and settings of one machine", WARNING
        count = stated(take("config.instances.count"))
        if is_number(count) and count != 1:
            yield f"instances.count is {show(count)}, but a log is of one instance", "instances.count 1", WARNING
        if variant_of(log) != FULL:
            return
        digest = str(provenance.get(DATA)).strip().casefold().removeprefix("sha256:")
        folder = stated(take("config.data.data_dir"))
        own = {sha256: mini.variant for mini in list_references(case.benchmark)[1:] for sha256 in mini.data_sha256}
        if variant := own.get(digest) or MINI_DATA.get(digest):
            message = f"{DATA} is that of the generated data of {variant}, but the log is of the full problem"
            yield message, f"dataset_variant {variant}", ERROR
        elif isinstance(folder, str) and re.search(r"(?i)(?:^|[-_./])mini2?(?![^-_./])", folder):
            message = f"the data are in {show(folder)}, as those of a mini problem, but the log is of the full one"
            yield message, "the full data", WARNING


class ResumedInTime(LogRule, strict_only=True):
    """A run that was resumed shows the pause, and all that was trained before."""

    id = "SET22"
    severity = WARNING
    cite = "training_rules.adoc#run-time; docs/reference/profiles.md (logs of this suite)"
    differs = "the official tool does not know the record"
    why = "The pause between two jobs belongs to the run; without it the time is too short."
    fix = "Submit the log as the jobs wrote it, with all of them."
    good = (lambda log: log(division="open").add("run_resumed", None, before="run_stop"),)
    bad = (lambda log: log(division="open").add("run_resumed", None, before="epoch_start", epoch_num=12),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for resumed in log["run_resumed"]:
            before = [r for r in log.events if r.order < resumed.order and not r.key.startswith("staging")]
            after = next((record for record in log["epoch_start"] if record.order > resumed.order), None)
            trained = [record.meta("epoch_num") for record in before if record.key == "epoch_start"]
            number = resumed.meta("epoch_num")
            if is_number(number) and number > max(filter(is_number, trained), default=0):
                message = f"the run was resumed from epoch {show(number)}, which the log does not have"
                yield self.finding_at(log, resumed, message, "all epochs of the run")
            elif after and before and after.time_ms - before[-1].time_ms < 1500:  # to import torch takes longer
                pause = f"{after.time_ms - before[-1].time_ms:,.0f} ms after the last record of the job before"
                message = f"the resumed run goes on {pause}: no job restarts so soon"
                yield self.finding_at(log, resumed, message, "the pause between the jobs")


UNUSUAL = (
    (
        BAGGING,
        "instances.bagging",
        (None, "none"),
        "the training samples are drawn at random (bagging {})",
        "a run on the whole training set",
    ),
    (INIT_WEIGHTS, "train.init_from", (), "the run starts from given weights ({})", "random initial weights"),
)
"""Key of a record, key of the configuration, values of both that say nothing, message and what would be right."""


class UsualTraining(LogRule, strict_only=True):
    """The run starts from random weights, and trains on the training set, all of it, to the target of the benchmark."""

    id = "SET15"
    cite = "training_rules.adoc#training-and-test-sets; training_rules.adoc#pre-training-is-not-allowed"
    differs = "the official tool does not know the records of this suite, and does not read those of the references"
    once = True
    why = (
        "A member of a bagged ensemble sees 63 % of the samples, and trained weights reach the target sooner: neither "
        "can be compared with other results, nor can a part of the data or an easier target. In closed, what only"
        " reference implementations log of them is a warning."
    )
    fix = (
        "Train on all samples, from random weights, to the target: in this suite instances.bagging=none and"
        " train.init_from=null. With --allow-mini it is a note in a mini run."
    )
    good = (lambda log: log(division="open").by_suite({"instances.bagging": "none", "train.init_from": None}),)
    bad = (lambda log: log().by_suite({"instances.bagging": "bootstrap"}),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for key, configured_by, usual, message, expected in UNUSUAL:
            for record, value in self._find_values(log, key, configured_by):
                if value not in usual:
                    message = f"{message.format(show(value))}, so this is not an MLPerf result"
                    severity = NOTE if case.allow_mini and variant_of(log) != FULL else ERROR
                    yield self.finding(log.path, record.line, message, expected, key, severity)
                    break
        for key, is_usual, claim, expected in REFERENCE_RECORDS if case.division == "closed" else ():
            odd = next((record for record in log[key] if not is_usual(record.value, case)), None)
            if odd is not None:
                yield self.finding_at(log, odd, f"{key} is {show(odd.value)}: {claim}", expected, WARNING)

    def _find_values(self, log: Log, key: str, configured_by: str) -> Iterator[tuple[Record, Any]]:
        yield from ((record, record.value) for record in log[key])
        for record in log[PROVENANCE]:
            value = configured(take(configured_by), configuration(record.value) or {})
            if value is not None:
                yield record, value


def _is_target(value: Any, case: Case) -> bool:
    share = _read_number(value)  # what lies outside 0 to 1 is no target
    return not 0 < share <= 1 or case.reference is None or are_same(share, case.reference.target.value)


def _read_number(value: Any) -> float:
    """Return a number, which may be logged as text; NaN for anything else."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


REFERENCE_RECORDS: tuple[tuple[str, Callable[[Any, Case], bool], str, str], ...] = (
    (
        "checkpoint",
        lambda value, case: not isinstance(value, str) or value.strip().casefold() in NOTHING,
        "the run seems to start from a checkpoint",
        "null",
    ),
    (
        "data_oversampling_factor",
        lambda value, case: not _read_number(value) < 1,
        "an epoch covers only this fraction of the samples",
        "1 or more",
    ),
    ("target_accuracy_reached", _is_target, "the run ended at another target", "the target of the benchmark"),
)
"""Key, which values are usual, what others say, and what is expected; published logs have no other values."""
