"""Rules about seeds and copies: a run happens once, with a seed and results of its own, and counts for one result."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any, Final

from common.command import list_some
from common.console import format_duration
from common.reference import since
from common.rounds import HPC, TRAINING, find_round, label_round
from common.values import are_same, group_pairs
from compliance.logs.fingerprint import EXACT_MS, alike, has_many_digits, match_values, same_times
from compliance.model.judging import ERROR, FAIL, NOTE, SKIPPED, WARNING, Finding, JudgedRun, choose_texts
from compliance.model.layout import WEAK
from compliance.model.package import Submissions
from compliance.model.package_files import SEED_BYPASS
from compliance.model.result_set import TIMES, VALUES, Copies, ResultSet, names_of
from compliance.rules.rule import SetRule, SubmissionsRule, show
from compliance.rules.runs import RESULTS, RunsRule
from compliance.rules.settings import seed_of, seed_problem

UNSEEN = "the official tool notices a copy only by its seed; with an edited seed it passes"
SHOWN = 3
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
FEWEST_CLOCKS: Final = 3
SEEDS = "training_rules.adoc#random-numbers; seed checker (mlcommons/logging#384)"
NAME_OF_COPY = r"(?i)result_(?!\d+\.txt)|.*(?:\(\d+\)|\bcopy|copy\b|kopie|~$|\.(?:bak|orig)\b)"
"""What browsers, file managers and editors call a copy of result_0.txt."""
Pair = tuple[JudgedRun, JudgedRun]


class SeedRule(SetRule):
    """Base of the rules about the seeds of closed results."""

    cite = SEEDS
    rounds = since("1.0")
    divisions = ("closed",)


class SeedsLogged(SeedRule):
    """Every run of a closed result logs its seed, a whole number."""

    id = "RUN03"
    why = "Only runs with different seeds are independent samples of the convergence."
    fix = "Draw a seed for each run from system randomness and log it with key seed."
    differs = (
        "strict only warns about missing seeds in rounds 1.0 and 2.0, which did not require them, and lets the one run"
        " that may fail lack its seed; the official tool requires them in these rounds, too, and also asks for source"
        " file and line of the record (strict: a warning)"
    )
    good = (lambda package: package().edit(1, lambda log: log.set("seed", "77")),)
    bad = (lambda package: package().edit(1, lambda log: log.drop("seed")),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if SEED_BYPASS in results.officially_bypassed:
            return
        # The rule dates from 2024: strict only warns about earlier submissions, which could not know it.
        early = results.strict and results.case.usage == HPC and results.round != "3.0"
        # The run that may fail may have died before it logged its seed: RUN02 counts the failing runs.
        may_lack = results.strict and not early
        missing = [run for run in results.runs if not run.seeds and not (may_lack and run.verdict == FAIL)]
        if missing:
            message = f"seed missing in {len(missing)} of {len(results.runs)} runs: {names_of(missing)}"
            advice = "Restore the seed record from the original log; a run that logged none must be repeated with one."
            severity, fix = WARNING if early else ERROR, advice if len(missing) < len(results.runs) else ""
            yield self.finding(missing[0].path, 0, message, "one seed record in each run", "seed", severity, fix)
        for run in results.runs:
            yield from islice(self._find_problems(run, results.strict), 1)
            if not results.strict and not run.parsed_clean:
                yield self.finding(run.path, 0, "seeds cannot be read: lines do not parse", "a clean log", "seed")

    def _find_problems(self, run: JudgedRun, strict: bool) -> Iterator[Finding]:
        for line, file, source_line, value in run.seeds:
            official = _official_problem(file, source_line, value)
            problem = seed_problem(value) if strict else official
            if problem:
                yield self.finding(run.path, line, problem, "a whole number", "seed")
            elif official:
                yield self.finding(run.path, line, official, "as mllog writes it", "seed", WARNING)


class SeedsUnique(SeedRule):
    """No two runs of a closed result share a seed."""

    id = "RUN04"
    why = "Two runs with one seed are one sample of the convergence counted twice; a second seed changes nothing."
    fix = "Repeat the run with a new seed; move the named throughput instances to pruned_results."
    differs = (
        "the official tool compares seed, source file and source line: the same seed from another line passes, but one"
        " run that logs its seed twice fails (strict: a warning); of more than 10,000 seeds in a log the first are"
        " compared (strict: an error)"
    )
    good = (lambda package: package().edit(2, lambda log: log.double("seed", value=77)),)
    bad = (lambda package: package().edit(2, lambda log: log.set("seed", 1001)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if SEED_BYPASS in results.officially_bypassed:
            return
        copied = {id(run) for pair in results.list_copies(TIMES) for run in pair}
        # In the profile official, a seed is one by source file, source line and value.
        logged = (
            (_seed_key(results.strict, file, source_line, value), (run, line))
            for run in results.runs
            for line, file, source_line, value in run.seeds
        )
        for seed, places in group_pairs((key, place) for key, place in logged if key is not None).items():
            runs = list({id(run): run for run, _ in places}.values())
            number = seed[-1] if isinstance(seed, tuple) else seed
            run, line = places[-1]
            if len(runs) > 1:
                message = f"duplicate seed {show(number)}: also in {names_of(runs[:-1])}"
                fix = (
                    f"Keep one; move {names_of(runs[1:])} to pruned_results."
                    if results.scaling == WEAK
                    else f"Repeat all but one of these {len(runs)} runs, each with a seed of its own."
                )
                cause = "RUN05" if all(id(run) in copied for run in runs) else ""
                yield self.finding(run.path, line, message, "its own seed", "seed", fix=fix, cause=cause)
            elif len(places) > 1 and not run.damage:
                message = (
                    f"seed {show(number)} is logged {len(places)} times; the official package checker takes it as that"
                    " of two runs"
                )
                severity = WARNING if results.strict else ERROR
                yield self.finding(run.path, line, message, "one seed record, from rank 0", "seed", severity)
        for run in results.runs:
            if run.seed_count > len(run.seeds):
                message = f"{run.seed_count} seeds are logged, of which only the first {len(run.seeds)} are compared"
                severity = ERROR if results.strict else SKIPPED
                yield self.finding(
                    run.path, run.seeds[-1][0], message, "one seed record, from rank 0", "seed", severity
                )


class SeedsOfTheirTime(SetRule, strict_only=True):
    """Seeds come from system randomness, or from a clock at the time of their runs."""

    id = "RUN23"
    severity = WARNING
    cite = SEEDS
    differs = "the official tool does not compare seeds with times"
    why = (
        "A seed from a clock tells when the run was made; in all 814 published logs with one it is within an hour."
        " Numbers that are chosen may be those that converge best: small ones, in published results too, are a note."
    )
    fix = "Submit the runs of this round with their own times, not earlier ones."
    good = (lambda package: package().edit_all(lambda log: log.set("seed", log.clock_ms // 1000)),)
    bad = (lambda package: package().edit_all(lambda log: log.set("seed", log.clock_ms // 1000 - 40 * DAY_S)),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        seeds = [(run, seed_of(run.seed), run.start_ms) for run in results.runs if run.start_ms is not None]
        numbers = [seed for _, seed, _ in seeds if seed is not None]
        # Seeds that are all so small are counted or chosen, not drawn.
        if len(numbers) >= FEWEST_CLOCKS and max(map(abs, numbers)) < 1000:
            run = seeds[0][0]
            yield self.finding(
                run.path,
                run.seeds[0][0],
                f"the seeds are small numbers: {list_some(sorted(numbers))}",
                "seeds from a clock, or from system randomness",
                "seed",
                NOTE,
                "Draw the seed of each run from system randomness, such as Python's secrets.randbits(32).",
            )
        delays = [_find_delay(seed, start_ms) for _, seed, start_ms in seeds if seed is not None]
        known = [delay for delay in delays if delay is not None]
        if len(known) < max(len(results.runs), FEWEST_CLOCKS) or max(known) - min(known) > HOUR_S:
            return
        days = min(known, key=abs) / DAY_S
        if abs(days) > 1:
            run, seed, _ = seeds[0]
            message = (
                f"the seeds of all {len(known)} runs are readings of a clock, {abs(days):,.0f} days"
                f" {'before' if days > 0 else 'after'} their runs (seed {seed})"
            )
            yield self.finding(run.path, run.seeds[0][0], message, "seeds of the time of their runs", "seed")


def _find_delay(seed: int, start_ms: float) -> float | None:
    """Return how long before a run, in seconds, its seed was read from a clock since 1970; None if it was not."""
    # July 2017 to March 2030.
    seconds = next((seed / unit for unit in (1, 10**3, 10**6, 10**9) if 1.5e9 <= seed / unit < 1.9e9), None)
    return None if seconds is None else start_ms / 1000 - seconds


def _seed_key(strict: bool, file: Any, source_line: Any, value: Any) -> Hashable:
    """Return what equal seeds have in common; None for what is no seed."""
    if strict:
        return seed_of(value)
    return None if _official_problem(file, source_line, value) else (file, source_line, int(value))


def _official_problem(file: Any, source_line: Any, value: Any) -> str:
    """Return on what the official seed checker fails, "" if it can read the seed."""
    for name, field in (("file", file), ("lineno", source_line)):
        if field is None or not isinstance(field, Hashable):
            return f"the seed's {name} is {show(field)}, which the official tool cannot compare"
    try:
        int(value)
    except (TypeError, ValueError, OverflowError):
        return f"seed is {show(value)}"
    return ""


class NoCopies(RunsRule, strict_only=True):
    """No two logs of a result are of one run, by their times or by their evaluation results."""

    id = "RUN05"
    differs = UNSEEN
    why = (
        "A copied log stands for a run that never happened; no two published runs agree in their intervals. Runs with"
        " different seeds do not evaluate alike to four digits, nor share the last result, or two results or training"
        " losses in a row, to the last digit: one seed was used for all, or logs are edited, or parts of one put into"
        " another (a warning)."
    )
    fix = "Submit each run once."
    bad = (lambda package: package().copy(1, 2),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        pairs = results.list_copies(TIMES)
        for pair in pairs[:SHOWN]:
            first, second = sorted(pair, key=lambda run: bool(re.match(NAME_OF_COPY, os.path.basename(run.path))))
            message = f"duplicate log: {how_alike(first, second, os.path.basename(first.path))}"
            name = os.path.basename(second.path)
            surplus = results.reference is not None and len(results.runs) > results.reference.runs
            fix = f"Remove {name}." if surplus else f"Put the log of a run of its own in the place of {name}."
            yield self.finding(second.path, 0, message, "a run for each log", fix=fix)
        if len(pairs) > SHOWN:
            message = f"{len(pairs) - SHOWN} more duplicate logs: {_name_pairs(pairs[SHOWN:])}"
            yield self.finding(pairs[SHOWN][1].path, 0, message, "a run for each log")
        yield from self._find_alike(results)
        yield from self._find_borrowed(results)

    def _find_alike(self, results: ResultSet) -> Iterator[Finding]:
        """Yield a warning about runs with the same results."""
        alike_pairs = results.list_copies(VALUES)
        if SeedsUnique.applies(results.round, results.judged_as, results.case.profile):
            seeds = {id(run): [seed_of(seed[-1]) for seed in run.seeds] for pair in alike_pairs for run in pair}
            # Of runs with the same seeds, RUN04 says it.
            alike_pairs = [(a, b) for a, b in alike_pairs if not seeds[id(a)] or seeds[id(a)] != seeds[id(b)]]
        if alike_pairs:
            first, second = alike_pairs[0]
            logs = list({run.path: run for pair in alike_pairs for run in pair}.values())
            fix = "Repeat the runs, each with its own seed, drawn from system randomness and logged."
            message = f"{_compare_results(first, second)} in {len(logs)} logs: {names_of(logs)}"
            yield self.finding(second.path, 0, message, "results of its own for each run", "", WARNING, fix)

    def _find_borrowed(self, results: ResultSet) -> Iterator[Finding]:
        """Yield a warning about runs that end with one result; of many instances, two may do so by chance."""
        copied = {id(run) for kind in (TIMES, VALUES) for pair in results.list_copies(kind) for run in pair}
        ends = [(run.fingerprint.values[-1], run) for run in results.all_runs if run.fingerprint.values]
        for value, runs in group_pairs(ends).items() if results.scaling != WEAK else ():
            if len(runs) > 1 and has_many_digits(value) and not copied.issuperset(map(id, runs)):
                message = f"the last result is {value!r} in {len(runs)} logs: {names_of(runs)}"
                yield self.finding(runs[1].path, 0, message, "a result of its own for each run", severity=WARNING)


class UsedOnce(SubmissionsRule, strict_only=True):
    """A run counts for only one result, in one round, also with edited times or results."""

    id = "RUN12"
    cite = RESULTS
    differs = "the official tools look at one folder at a time"
    why = (
        "A run used in two results was measured once but counts twice. The rules do not forbid one organisation to "
        "use it for time to train and for throughput, or to submit a result again in another round: that is a "
        "warning. Intervals never repeat: of the published runs, no two agree even within ten times their resolution."
        " Two runs evaluate alike to four digits, or share two results or training losses in a row to the last digit,"
        " only with one seed on one system, or if one has an edited copy of the other, or of a part of it: a warning."
    )
    fix = "Make new runs for each result; do not submit a result of an earlier round as new."
    bad = (lambda package: package().copy_to("other_system"),)

    def check(self, submissions: Submissions) -> Iterator[Finding]:
        for copies in submissions.list_copies(TIMES):
            same = [pair for pair in copies.pairs if _same_log(*pair)]
            if same:
                message = f"the same run is used twice: {_describe_owners(copies, same)}"
                first, second = copies.first, copies.second
                if first.round != second.round and second.case.usage == TRAINING:
                    yield self._judge_resubmission(copies, same)
                    continue
                # No rule forbids another round, or time to train and throughput of one organisation.
                both_metrics = first.scaling != second.scaling and first.organisation == second.organisation
                severity = WARNING if first.round != second.round or both_metrics else ERROR
                yield self.finding(same[0][1].path, 0, message, "runs for each result", severity=severity)
            edited = [pair for pair in copies.pairs if not _same_log(*pair)]
            if edited:
                alike_as = how_alike(*edited[0], "the other")
                message = f"a copy with edited times: {_describe_owners(copies, edited)}; {alike_as}"
                yield self.finding(edited[0][1].path, 0, message, "runs for each result")
        yield from self._find_shared_values(submissions)

    def _judge_resubmission(self, copies: Copies, pairs: list[Pair]) -> Finding:
        """Return whether logs of an earlier round may be submitted again: training_rules.adoc#results-resubmission."""
        old, new = (
            results.description.fields if results.description else {} for results in (copies.first, copies.second)
        )
        fields = [name for name in dict.fromkeys((*old, *new)) if not are_same(old.get(name), new.get(name))]
        changes = list_some([f"{name} {show(old.get(name))} -> {show(new.get(name))}" for name in fields])
        failing = names_of([run for _, run in pairs if run.verdict == FAIL])
        round_ = find_round(copies.second.round).version
        facts = (
            (not (old and new), "the system descriptions cannot be compared"),
            (old and new and not fields, "the system descriptions agree in all fields"),
            (old and new and fields, f"the system descriptions differ: {changes}"),
            (True, f"by the rules of round {round_} {f'{failing} fail' if failing else 'all of them pass'}"),
        )
        message = f"a resubmission: {_describe_owners(copies, pairs)}; {'; '.join(choose_texts(facts))}"
        severity = NOTE if old and new and not (fields or failing) else ERROR if fields or failing else WARNING
        fix = (
            "Resubmitted logs need the system description of their round, to the letter, and must pass the new round's "
            "checker. Tell the review committee by an issue before its first meeting."
        )
        return self.finding(pairs[0][1].path, 0, message, "an equal description; passing logs", "", severity, fix)

    def _find_shared_values(self, submissions: Submissions) -> Iterator[Finding]:
        """Yield a warning on runs of different results with the same evaluation results or losses."""
        for copies in submissions.list_copies(VALUES):
            first_run, second_run = copies.pairs[0]
            message = f"{_compare_results(first_run, second_run)}: {_describe_owners(copies, copies.pairs)}"
            fix = "Make new runs for each result, with seeds of their own."
            yield self.finding(second_run.path, 0, message, "runs for each result", severity=WARNING, fix=fix)


# -- what the rules share ------------------------------------------------------------------------------------


def how_alike(first: JudgedRun, second: JudgedRun, name: str) -> str:
    """Return what of one run the other one repeats; name: what to call the first one."""
    if same_times(first.fingerprint, second.fingerprint):
        return f"the same times {'and results ' * _same_log(first, second)}as {name}"
    like = alike(first.fingerprint, second.fingerprint)
    if like is None:
        return f"the intervals are those of {name}, slightly changed"
    count = f"all {like.count}" if like.equal == like.count else f"{like.equal} of {like.count}"
    are = "are" if like.scale == 1 else f"are {1 / like.scale:.5g} times"
    how = "to the millisecond" if like.tolerance_ms == EXACT_MS else f"within {like.tolerance_ms:.0f} ms"
    intervals = "intervals from epoch to epoch" if like.periods else "intervals"
    return f"{count} {intervals} {are} those of {name} {how}{_describe_delay(first, second)}"


def _compare_results(first: JudgedRun, second: JudgedRun) -> str:
    pairs = match_values(first.fingerprint, second.fingerprint)
    apart = max((abs(a - b) / abs(a) for a, b in pairs if a != b), default=0.0)
    what = "training losses" if pairs and pairs[0][0] in first.fingerprint.losses else "evaluation results"
    how = f"differ by at most {100 * apart:.2g} % (as in copies)" if apart else "are equal to the last bit"
    # Where both have parts of a third run, they need not share any.
    return f"{len(pairs) or 'some'} {what} {how}"


def _describe_delay(first: JudgedRun, second: JudgedRun) -> str:
    if first.start_ms is None or second.start_ms is None:
        return ""
    seconds = abs(second.start_ms - first.start_ms) / 1000
    how_long = format_duration(seconds) if seconds < 172_800 else f"{seconds / 86_400:.3g} days"
    return f", {how_long} {'later' if second.start_ms > first.start_ms else 'earlier'}"


def _same_log(run: JudgedRun, other: JudgedRun) -> bool:
    """Tell whether two logs are of one run, with nothing of it edited but who submits it as what."""
    first, second = run.fingerprint, other.fingerprint
    return same_times(first, second) and first.values == second.values


def _describe_owners(copies: Copies, pairs: list[Pair]) -> str:
    logs = "a log" if len(pairs) == 1 else f"{len(pairs)} logs"
    verb = "is that" if len(pairs) == 1 else "are those"
    first, second = (
        f"{results.name} (round {label_round(results.round)})" for results in (copies.first, copies.second)
    )
    return f"{logs} of {second} {verb} of {first}: {_name_pairs(pairs)}"


def _name_pairs(pairs: list[Pair]) -> str:
    names = [f"{os.path.basename(second.path)} = {os.path.basename(first.path)}" for first, second in pairs]
    return list_some(names, SHOWN)
