"""Rules about what a log states: who submits what, with which settings, on which data and variant of the problem.

The mini problems of this suite are such variants; they do not give MLPerf results.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from common.reference import ANY, FULL, MINI, NOT_EMPTY, OWN, VARIANTS, Check, Setting, one_of
from common.rounds import HPC
from common.values import is_integer
from compliance.benchmarks import benchmarks_of, describe_plugin, has_round, list_references, names_in_words, read_name
from compliance.logs.log import Log
from compliance.logs.record import Record
from compliance.logs.run import BAGGING, variant_of
from compliance.model.judging import ERROR, NOTE, WARNING, Case, Finding
from compliance.model.system import is_blank, is_placeholder
from compliance.rules.rule import LogRule, show

SUBMISSION = "submission_rules.adoc#submission-structure; training_rules.adoc#logging"
HYPERPARAMETERS = "hpc_training_rules.adoc#hyperparameters-and-optimizer"
DIVISIONS = one_of("closed", "open")
STATUSES = one_of("cloud", "onprem", "preview", "research")
KEY = "dataset_variant"
A_NAME = Check("a name", lambda value: isinstance(value, str) and not is_blank(value))


def applies(setting: Setting, log: Log) -> bool:
    """Tell whether a conditional setting applies to what this log states."""
    if setting.when is None:
        return True
    key, condition = setting.when
    return any(condition.allows(record.value) for record in log[key])


def check_of(setting: Setting, case: Case) -> Check | None:
    """Return the profile's check of the setting's value; None if it does not know the setting."""
    return setting.allowed if case.strict else setting.official


class Submission(LogRule):
    """The log states once who submits it, on which system, in which division and with which status."""

    id = "SET01"
    cite = SUBMISSION
    why = "These keys determine which rules apply to the run."
    fix = "Let the trainer log the submission_* keys from its configuration."
    differs = "strict also refuses empty names"
    good = (lambda log: log().set("submission_status", "preview"),)
    bad = (lambda log: log().drop("submission_org"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for key in ("submission_org", "submission_platform"):
            yield from self._check_value(log, key, A_NAME if case.strict else NOT_EMPTY)
        yield from self._check_value(log, "submission_division", DIVISIONS)
        yield from self._check_value(log, "submission_status", STATUSES)

    def _check_value(self, log: Log, key: str, allowed: Check) -> Iterator[Finding]:
        yield from self.exactly_once(log, key)
        first = log.first(key)
        if first and not allowed.allows(first.value):
            yield self.finding_at(log, first, f"{key} is {show(first.value)}", allowed.text)


class KnownBenchmark(LogRule):
    """The log names one benchmark of its round."""

    id = "SET02"
    cite = "hpc_training_rules.adoc#benchmarks"
    why = "Target, run count and allowed settings depend on it; the official tool crashes on an unknown name."
    fix = (
        f"Log submission_benchmark as {names_in_words()}, in lower case. For one from outside the suite, install "
        "its package or name its folder with --benchmarks-from."
    )
    differs = "strict says of which other suite a log is, and judges nothing else in it"
    bad = (lambda log: log().drop("submission_benchmark"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if not case.strict and case.division is None and case.round != "0.7":
            return  # the official tool checks the benchmark only in the files of a known division
        key = "submission_benchmark"
        first = log.first(key)
        if case.strict and log.other_suite:
            line, name, fix = first.line if first else 0, log.other_suite.name, log.other_suite.fix
            yield self.finding(log.path, line, f"this is {name}, not of MLPerf HPC", "", key, fix=fix)
            return
        yield from self.exactly_once(log, key)
        names, near = benchmarks_of(case.round), read_name(first.value) if first else ""
        if first and first.value not in names:
            plugin = describe_plugin(near)
            if first.value == near == case.benchmark and plugin and case.strict and has_round(near, case.round):
                return  # SET07
            lacks = plugin or f"round {case.round} has none of that name"
            message, fix = f"the benchmark name is {show(first.value)}: {lacks}", ""
            if (near in names or (plugin and case.strict)) and near != first.value and isinstance(first.value, str):
                has_blank = first.value.lower() != near
                ends = "ends with a blank" if first.value.rstrip() != first.value else "begins with a blank"
                message = f"the benchmark name {show(first.value)} {ends if has_blank else 'is not in lower case'}"
                fix = f"{'Remove the blank' if has_blank else 'Write it in lower case'}: {show(near)}."
            yield self.finding_at(log, first, message, " or ".join(names), fix=fix)
        elif first and case.strict and (other := _find_other_benchmark(log, case)):
            message = f"submission_benchmark is {show(first.value)}, but the log has the settings of {other}"
            fix = f'If the run trained {other}, log "{other}" and ask the committee about finished logs.'
            yield self.finding_at(log, first, message, show(other), fix=fix)


def _find_other_benchmark(log: Log, case: Case) -> str:
    """Return the benchmark whose required settings the log has, where it lacks most of its own; "" if there is none."""

    def list_required(benchmark: str | None) -> set[str]:
        settings = replace(case, benchmark=benchmark).settings
        return {setting.key for setting in settings if setting.required and applies(setting, log)}

    if sum(setting.required and setting.key not in log.records for setting in case.settings) < 3:
        return ""  # the usual case: nobody forgets so many
    own = list_required(case.benchmark)
    for other in benchmarks_of(case.round):
        theirs = list_required(other)
        if theirs - own <= log.records.keys() and 2 * len((own - theirs) & log.records.keys()) < len(own - theirs):
            return other
    return ""


class SettingsLogged(LogRule):
    """Every required setting is logged exactly once, any other with one value."""

    id = "SET03"
    follows = ("SET02",)
    cite = HYPERPARAMETERS
    why = "Reviewers compare the hyperparameters as logged; without a value, or with two, they cannot."
    fix = (
        "Restore a lost record from the original log. If the run did not log it, log it once, from rank 0, and repeat."
    )
    bad = (lambda log: log().drop("global_batch_size"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for setting in case.settings:
            records = log.records.get(setting.key, [])
            if not setting.required and case.strict and any(record.value != records[0].value for record in records):
                yield from (finding._replace(severity=WARNING) for finding in self.exactly_once(log, setting.key))
            is_needed = setting.required and check_of(setting, case) is not None and applies(setting, log)
            if is_needed and len(records) != 1 and not (case.strict and setting.key == "seed"):  # SET08, RUN03
                yield from self.exactly_once(log, setting.key, NOTE if case.strict else WARNING)


class SettingsAllowed(LogRule):
    """Every setting has a value that the rules of the division allow."""

    id = "SET04"
    follows = ("SET02",)
    cite = HYPERPARAMETERS
    why = "The closed division compares systems, so it fixes the algorithm and bounds the hyperparameters."
    fix = "Run with an allowed value, or submit to the open division."
    differs = "strict checks the written ranges and types of more settings; see the table of settings"
    good = (lambda log: log().set("opt_learning_rate_decay_factor", [0.5, 0.25]),)
    bad = (lambda log: log().set("opt_name", "adam"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        benchmark = case.benchmark if case.reference else None  # a plug-in may be refused in the next check
        for key, setting, check in _list_checks(benchmark, case.variant, case.round, case.division, case.profile):
            wrong = next((record for record in log[key] if not check.allows(record.value)), None)
            if wrong and applies(setting, log):
                message, expected, fix = _describe_value(setting, wrong, check), check.text, ""
                if isinstance(wrong.value, str) and re.fullmatch(r"\s*-?\d*\.?\d+(?:e-?\d+)?\s*", wrong.value, re.I):
                    message, expected = f"{setting.key} is the text {show(wrong.value)}", "a number"
                    fix = f"Log {setting.key} as a number, without quotes; ask the committee about finished logs."
                yield self.finding_at(log, wrong, message, expected, fix=fix)


@lru_cache(maxsize=64)
def _list_checks(
    benchmark: str | None, variant: str, round_: str, division: str | None, profile: str
) -> list[tuple[str, Setting, Check]]:
    """Return key, setting and check of the settings whose values no other rule judges; others are SET05 and SET08."""
    case = Case(round_, profile, division, benchmark, variant)
    elsewhere = ("train_samples", "eval_samples", *(["seed"] if case.strict else []))
    checks = ((setting, check_of(setting, case)) for setting in case.settings if setting.key not in elsewhere)
    return [(setting.key, setting, check) for setting, check in checks if check is not None and check is not ANY]


class Samples(LogRule):
    """A run trains and evaluates on the whole dataset."""

    id = "SET05"
    follows = ("SET02",)
    cite = "hpc_training_rules.adoc#benchmarks (datasets)"
    why = "A smaller dataset makes epochs shorter and evaluations easier."
    fix = (
        "Use the complete dataset, also the last, smaller batch (no drop_last), and log its number of samples: not that"
        " of batches, nor of one rank."
    )
    differs = "the official tool compares the numbers only for deepcam and openfold from round 1.0 on"
    good = (lambda log: log(benchmark="deepcam", round_="0.7").set("train_samples", 121_216),)
    bad = (lambda log: log().set("train_samples", 1000),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for setting in case.settings:
            if setting.key not in ("train_samples", "eval_samples"):
                continue
            if setting.key == "train_samples" and case.strict and log[BAGGING]:
                from common.settings.run import POISSON  # only the logs of ensembles pay for it

                if any(bagging.value == POISSON for bagging in log[BAGGING]):
                    continue  # a number drawn at random; SET15 is about it
            check = check_of(setting, case)
            wrong = next((r for r in log[setting.key] if check is not None and not check.allows(r.value)), None)
            if wrong and check:
                yield self.finding_at(log, wrong, _describe_value(setting, wrong, check), check.text)


class NoPlaceholder(LogRule, strict_only=True):
    """The submission keys contain real names, not placeholders."""

    id = "SET06"
    severity = NOTE
    cite = SUBMISSION
    differs = "the official tool accepts any non-empty text"
    once = True
    why = "The log should name its submitter; 306 published logs say SUBMISSION_ORG_PLACEHOLDER."
    fix = "Set organisation and platform in the configuration of the run."
    bad = (lambda log: log().set("submission_org", "SUBMISSION_ORG_PLACEHOLDER"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for key in ("submission_org", "submission_platform"):
            record = log.first(key)
            if record and isinstance(record.value, str) and is_placeholder(record.value):
                yield self.finding_at(log, record, f"{key} is a placeholder: {show(record.value)}", "the real name")


class SeedLogged(LogRule, strict_only=True):
    """The log states its seed as a whole number."""

    id = "SET08"
    severity = NOTE
    cite = "hpc_training_rules.adoc#seeds; training_rules.adoc#random-numbers"
    rounds = ("1.0", "2.0", "3.0")
    differs = (
        "the official log checker requires a seed only in closed deepcam, where several different ones fail (strict: a"
        " warning, as each rank may log its own); the package checker requires one in all (RUN03)"
    )
    once = True
    follows = ("RUN03",)
    why = "Each run of a result needs its own seed, and only the log can show it."
    fix = "Draw the seed from system randomness and log it once."
    good = (lambda log: log().set("seed", "1234567890"),)
    bad = (lambda log: log().drop("seed"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        differing = [record for record in log["seed"][1:] if record.value != log["seed"][0].value]
        if differing and any(setting.key == "seed" and setting.required for setting in case.settings):
            message = f"{len(log['seed'])} seed records with different values: the official log checker fails on them"
            yield self.finding_at(log, differing[0], message, "one seed record, from rank 0", WARNING)
        if not log["seed"]:
            severity = "a warning" if case.usage == HPC and case.round != "3.0" else "an error"
            message = f"seed missing: the log states none ({severity} in a closed submission)"
            yield self.finding(log.path, 0, message, "one seed record", "seed")
        yield from (
            self.finding_at(log, record, problem, "a whole number", severity="error")
            for record in log["seed"]
            if (problem := seed_problem(record.value))
        )


class NoMini(LogRule, strict_only=True):
    """The run is on the full problem of an MLPerf benchmark; on another that exists, with --allow-mini, it is open."""

    id = "SET07"
    cite = "docs/reference/profiles.md (the mini round of this suite)"
    differs = "the official tool does not know the mini round"
    why = (
        "Mini problems, benchmarks from outside the suite and your own data give no MLPerf results. Target, dataset "
        "sizes and reference runs depend on the problem; the closed division has the full ones only."
    )
    fix = (
        "Pass --allow-mini to check mini problems and benchmarks from outside the suite by their own rules, with this "
        "as a note. Do not submit runs on your own data."
    )
    good = (lambda log: log(),)
    bad = (lambda log: log(division="open", variant=MINI),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        variant, plugin = variant_of(log), describe_plugin(case.benchmark)
        mini = variant in VARIANTS
        if plugin:
            named, severity = log.first("submission_benchmark"), NOTE if case.allow_mini else ERROR
            line, key = named.line if named else 0, "submission_benchmark"
            other = named and named.value != case.benchmark
            message = f"{plugin}, but the log names {show(named.value)}" if named and other else plugin
            yield self.finding(log.path, line, message, "a benchmark of MLPerf HPC", key, severity)
        first = next((record for record in log[KEY] if record.value == variant), None)
        if variant != FULL and first is not None and not (plugin and mini):
            noun = "is a mini run" if mini else "is about the user's own data, without target and sizes to check"
            message = f"the log {noun} ({KEY} {variant}), not an MLPerf result"
            severity = NOTE if mini and case.allow_mini else ERROR
            yield self.finding_at(log, first, message, "a run on the full dataset", severity)
        if log[KEY]:
            yield from self._check_variant(log, case, variant)
        for record in log["submission_division"]:
            if variant != FULL and record.value != "open":
                message = f"a {'mini run' if mini else 'run on own data'} whose {record.key} is {show(record.value)}"
                yield self.finding_at(log, record, message, '"open"', fix="Log submission_division open.")

    def _check_variant(self, log: Log, case: Case, variant: str) -> Iterator[Finding]:
        """Yield what is wrong with the name of the problem: it is logged once, and the benchmark has it."""
        yield from self.exactly_once(log, KEY)
        for record in log[KEY]:
            if record.value not in (*VARIANTS, OWN):
                fix = "Log the name of the mini problem, or own; for the full problem log full, or nothing."
                yield self.finding_at(
                    log, record, f"{KEY} is {show(record.value)}", " or ".join(map(show, VARIANTS)), fix=fix
                )
        if case.benchmark and case.reference is None and variant != OWN:
            variants = [mini.variant for mini in list_references(case.benchmark)[1:]] or ["no mini problem"]
            message = f"{case.benchmark} has no problem {show(variant)}: target, sizes and settings were not checked"
            yield self.finding_at(log, log[KEY][0], message, f"of {case.benchmark}: {' or '.join(variants)}")


def seed_of(value: Any) -> int | None:
    """Return the whole number that a logged seed is, also as text; None if it is none that a generator takes."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return None
    return int(value) if is_integer(value) else None


def seed_problem(value: Any) -> str:
    """Return what is wrong with a logged seed, "" if it is a whole number."""
    if seed_of(value) is not None:
        return ""
    if type(value) is int:
        return f"seed is {show(value)}, a number of more than {sys.float_info.max_10_exp} digits"
    return f"seed is {show(value)}, not a whole number"


def _describe_value(setting: Setting, record: Record, check: Check) -> str:
    """Return what a setting is, with a hint if a number was expected but something else was logged, and the reason."""
    kinds = {str: "a string", bool: "true or false", type(None): "null", list: "a list", dict: "an object"}
    kind = kinds.get(type(record.value))
    numeric = check.text.startswith(("a number", "a whole number")) or check.text[:1].isdecimal()
    hint = f": value type is {kind}, not a number" if kind and numeric else ""
    return f"{setting.key} is {show(record.value)}{hint}{f' ({setting.why})' if setting.why else ''}"
