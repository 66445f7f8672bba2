"""Rules about what logs of this suite state of themselves: configuration, provenance, size of the network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from common.benchmarks import PACKAGES
from common.command import list_some
from common.own_code import OWN_CODE
from common.reference import FULL, Reference
from common.settings.keys import (
    Comparison,
    LogValue,
    compare_closed,
    find_log_values,
    find_rows,
    take,
    value_of,
)
from common.values import are_same, is_integer, is_stated
from common.version import DISTRIBUTION, VERSION, version_numbers
from compliance.logs.course import Course
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.logs.run import (
    PROVENANCE,
    SOURCES,
    configuration,
    describe_own_code,
    names_suite,
    read_suite_version,
    variant_of,
)
from compliance.model.judging import ERROR, NOTE, WARNING, Case, Finding
from compliance.model.layout import FLAT, NAMED
from compliance.rules.rule import LogRule, show

DIVISIONS = "training_rules.adoc#divisions; docs/reference/config.md (column closed)"
OURS = "docs/reference/profiles.md (logs of this suite)"
PARAMETERS = "number_of_parameters"
VARIANT = "dataset_variant"
"""The key of a record that this suite writes, and no published log has; others may log that a run was resumed."""
WRITERS = tuple(f"/common/{name}.py" for name in ("mllog", "training/loop", "training/run", "training/train_command"))
"""The ends of the files of this suite that write records, as their metadata name them."""
MOST_KEYS = 8
LONGEST_KEY = 60


class SuiteRule(LogRule, strict_only=True):
    """Base of the rules about what logs of this suite state of themselves."""

    differs = "the official tool ignores the records of this suite"


class Configuration(SuiteRule):
    """The configuration in a log of this suite is that of its division and round, and agrees with the log."""

    id = "SET11"
    cite = DIVISIONS
    why = "The closed division fixes network, data processing and optimizer; the configuration shows what was trained."
    fix = "Submit the run to the open division, or train it with the closed division's configuration."
    once = True
    good = (lambda log: log(benchmark="deepcam").by_suite({"model.init": "nvidia", "train.epochs": 70}),)
    bad = (lambda log: log().by_suite({"model.conv_size": 4}),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for record in log[PROVENANCE]:
            config = configuration(record.value)
            if config is None:
                continue
            yield from self._other_round(log, record, configured(take("submission.round"), config), case)
            if case.reference is None:
                continue
            if case.division == "closed":
                comparison = compare_closed(config, case.reference, case.round, read_suite_version(record.value))
                yield from self._find_departures(log, record, comparison)
            yield from self._find_more_epochs(log, record, configured(take("train.epochs"), config), case.reference)
            for key, log_value in find_log_values(case.reference).items():
                if key in log.records:
                    yield from self._find_contradiction(log, record, key, configured(log_value, config))

    def _other_round(self, log: Log, record: Record, stated: Any, case: Case) -> Iterator[Finding]:
        """Yield a contradiction between the round of the configuration and that of the folder, or of the check."""
        if not is_stated(stated) or stated == case.round:
            return
        in_folder = case.round_why in (FLAT, NAMED)
        why = f" ({case.round_why})" if case.round_why else ""
        message = (
            f"the run was configured for round {show(stated)}, but is judged by the rules of round {case.round}{why}"
        )
        expected = "a folder of the run's own round" if in_folder else "the run's own round, see --round"
        yield self.finding_at(log, record, message, expected, ERROR if in_folder else WARNING)

    def _find_departures(self, log: Log, record: Record, comparison: Comparison) -> Iterator[Finding]:
        for row, value in comparison.refused[:MOST_KEYS]:
            message = f"the configuration of the run has {row.key} {show(value)}"
            yield self.finding(
                log.path, record.line, message, row.allowed.text.replace("'", '"') + f" in closed: {row.cite}", row.key
            )
        others = [row.key for row, _ in comparison.refused[MOST_KEYS:]]
        if others:
            keys = f"{len(others)} more keys: {_list_keys(others)}"
            yield self.finding_at(log, record, f"the configuration of the run departs from closed in {keys}")

    def _find_more_epochs(self, log: Log, record: Record, most: Any, reference: Reference) -> Iterator[Finding]:
        """Yield a contradiction between the epochs that the run trained and the most that it was configured for."""
        if not is_integer(most) or "run_resumed" in log.records:  # a resumed run may be given more
            return
        course = log.derive(Course, reference.target.key)
        trained = len(course.started)
        if trained > most:
            message = f"{trained} epochs were trained, but the configuration in line {record.line} allows {most}"
            yield self.finding(log.path, course.epochs[-1][1].line, message, f"at most {most}", "train.epochs")

    def _find_contradiction(self, log: Log, record: Record, key: str, stated: Any) -> Iterator[Finding]:
        repeats = log[key] if is_stated(stated) else ()
        wrong = next((repeated for repeated in repeats if not _values_agree(repeated.value, stated)), None)
        if wrong is not None:
            contradiction = f"the configuration in line {record.line} makes it {show(stated)}"
            yield self.finding_at(
                log, wrong, f"{key} is {show(wrong.value)}, but {contradiction}", "what the run was configured with"
            )


class Provenance(SuiteRule):
    """A closed log of this suite has its network's size, and a provenance with versions, sources and configuration."""

    id = "SET12"
    cite = f"{OURS}; training_rules.adoc#graph-definition"
    divisions = ("closed",)
    why = "The suite's own records show that a run is closed, and its trainer always writes them."
    fix = "Submit the log as the trainer wrote it."
    bad = (lambda log: log().by_suite().drop(PROVENANCE),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        yield from self._check_size(log, case)
        mark, line = _find_mark(log, case) if variant_of(log) == FULL else ("", 0)  # a mini run is not closed: SET07
        if not mark:
            return
        record, start = log.first(PROVENANCE), log.first("run_start")
        if record is None:
            message = f"{mark}, so this suite made the log, but it has no provenance"
            yield self.finding(log.path, line, message, "the provenance that the trainer writes", PROVENANCE)
            return
        if start is not None and record.order > start.order:
            message = f"the provenance comes after run_start, which is in line {start.line}"
            yield self.finding_at(log, record, message, "at the start of the initialisation")
            return
        yield from self.exactly_once(log, PROVENANCE)
        problem = _find_problem(record.value)
        if problem:
            yield self.finding_at(log, record, f"the provenance {problem}", "the provenance that the trainer writes")
            return
        version = read_suite_version(record.value)
        if case.reference is not None and find_rows(case.reference):
            comparison = compare_closed(record.value["config"], case.reference, case.round, version)
            yield from self._check_keys(log, record, comparison, version)
        if PARAMETERS not in log.records:
            message = f"{PARAMETERS} is not logged; this suite always logs it"
            yield self.finding(log.path, record.line, message, "one record", PARAMETERS)
        yield from self._check_revision(log, record, case)

    def _check_size(self, log: Log, case: Case) -> Iterator[Finding]:
        """Yield where the network, whoever logs its size, is another one: a smaller network trains faster."""
        expected = case.reference.parameters.get(case.round) if case.reference is not None else None
        for record in log[PARAMETERS] if expected is not None else ():
            if not is_integer(record.value) or record.value != expected:
                fix = "Train the network of the reference, or submit to the open division."
                yield self.finding_at(
                    log, record, f"the network has {show(record.value)} parameters", f"{expected:,}", fix=fix
                )

    def _check_revision(self, log: Log, record: Record, case: Case) -> Iterator[Finding]:
        """Yield a contradiction between revision and sources, and a note on a revision that is not the whole code."""
        from common.provenance import hash_revision  # imports half of what the checker does: only such logs pay for it

        revision = str(record.value.get("git_revision"))
        own_hash = hash_revision(("common", case.benchmark), revision) if case.benchmark in PACKAGES else None
        if own_hash not in (None, record.value[SOURCES]):
            message = f"{SOURCES} is {show(record.value[SOURCES])}, but git_revision is that of this checker"
            yield self.finding(log.path, record.line, message, show(own_hash), SOURCES)
        if revision.endswith("-dirty"):
            message = "the code that made the log had changes that its git_revision does not contain"
            yield self.finding_at(log, record, message, "a revision without -dirty", NOTE)

    def _check_keys(self, log: Log, record: Record, comparison: Comparison, version: Any) -> Iterator[Finding]:
        """Yield what is wrong with the keys of the configuration; to leave one out is no better than a wrong value."""
        versions = "" if version == VERSION else f" (the log is of version {show(version)}, this is {VERSION})"
        if comparison.missing:
            message = f"the configuration lacks {_list_keys(comparison.missing)}{versions}"
            yield self.finding_at(log, record, message, "all keys of the trainer")
        if comparison.unknown:
            keys = _list_keys(sorted(comparison.unknown))
            message = f"the configuration has keys that are not known here: {keys}{versions}"
            yield self.finding_at(log, record, message, "keys of the trainer", WARNING)


def _find_mark(log: Log, case: Case) -> tuple[str, int]:
    """Return what shows that this suite made the log, and in which line; ("", 0) if nothing does."""
    if log.value(VARIANT) == FULL:
        return f"{VARIANT} is logged", log[VARIANT][0].line
    for key, records in log.records.items():
        file = records[0].meta("file")
        if isinstance(file, str) and f"/{file}".endswith(WRITERS):
            return f"{key} was written by {file}", records[0].line
    for record in log[PROVENANCE]:
        config = configuration(record.value)
        rows = find_rows(case.reference) if config is not None and case.reference else ()
        if names_suite(record.value) or any(configured(take(row.key), config or {}) is not None for row in rows):
            return "there is a provenance", record.line
    return ("the package has the code of this suite as its implementation", 0) if case.suite_code else ("", 0)


def _find_problem(provenance: Any) -> str:
    """Return what is wrong with the form of a provenance, "" if nothing is."""
    if not isinstance(provenance, dict):
        return f"is {show(provenance)}"
    if not names_suite(provenance):
        return f"lacks the version of {DISTRIBUTION}"
    version, digest = read_suite_version(provenance), provenance.get(SOURCES)
    if version is not None and not version_numbers(version):
        return f"has {show(version)} as version of {DISTRIBUTION}"
    if not isinstance(digest, str) or not re.fullmatch("(?!0{64})[0-9a-f]{64}", digest):
        return f"has {show(digest)} as source_sha256"
    return "" if configuration(provenance) is not None else "has no configuration"


def configured(value: LogValue, config: Mapping[str, Any]) -> Any:
    """Return the value that the configuration gives to a key of the log; None if it gives none."""
    try:
        return value(partial(value_of, config))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None


def _values_agree(logged: Any, stated: Any) -> bool:
    """Tell whether a logged value is the one that was configured; a list of one value may be logged as the value."""
    if isinstance(logged, str) and isinstance(stated, str):
        return logged.strip().casefold() == stated.strip().casefold()
    if isinstance(stated, list) is not isinstance(logged, list):
        stated, logged = (value if isinstance(value, list) else [value] for value in (stated, logged))
    return are_same(logged, stated)


def _list_keys(keys: Iterable[str]) -> str:
    """Return the first keys, long ones cut, and how many more there are."""
    return list_some([key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}…" for key in keys], MOST_KEYS)


class OwnCode(SuiteRule):
    """A closed run was computed by the suite's code alone; of an open one, what else computed is a note."""

    id = "SET19"
    cite = DIVISIONS
    once = True
    why = "Your own network, loss or optimizer is not the reference's, whatever the configuration says."
    fix = (
        "Submit the run to the open division, or train without train.imports, your own classes, and callbacks that "
        "act on the training."
    )
    good = (lambda log: log(division="open").by_suite().provenance(own_code=[]),)
    bad = (
        lambda log: log().by_suite().provenance(own_code=[{"kind": "optimizer", "name": "lars", "file": "lars.py"}]),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for record in log[PROVENANCE]:
            codes = describe_own_code(record.value)
            if codes:
                message = f"{codes} computed in place of the suite's code, so this is not the reference"
                severity = ERROR if case.division == "closed" and variant_of(log) == FULL else NOTE
                yield self.finding(log.path, record.line, message, "the suite's code alone", OWN_CODE, severity)
