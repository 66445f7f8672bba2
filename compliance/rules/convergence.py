"""Rules about convergence, against the reference convergence points (RCP); and what the committee's tool refuses."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from common.command import list_some
from common.reference import since
from common.rounds import TRAINING
from common.values import group_pairs, is_number
from compliance.model.judging import ERROR, NOTE, OFFICIAL_RULE, WARNING, Finding, first_text
from compliance.model.package import Submissions
from compliance.model.result_set import ResultSet
from compliance.model.waivers import unused
from compliance.rules.rule import RULES, Rule, SetRule, SubmissionsRule, show

RATE, DECAY_FACTOR = "opt_base_learning_rate", "opt_learning_rate_decay_factor"
WARMUP_EPOCHS, WARMUP_FACTOR = "opt_learning_rate_warmup_epochs", "opt_learning_rate_warmup_factor"
RCP = "training_rules.adoc#rcps; hpc_training_rules.adoc#results; rcp_checker of mlcommons/logging"


class ConvergenceRule(SetRule):
    """Base of the rules about the comparison with the reference, which closed results have since there are points."""

    cite = RCP
    rounds = since("1.0")
    divisions = ("closed",)


class Convergence(ConvergenceRule):
    """The result does not converge faster than the reference can by chance."""

    id = "RCP01"
    follows = ("RUN02", "RUN06", "RUN08")
    why = "Convergence in fewer epochs than the reference means another algorithm or selected runs."
    fix = "Check hyperparameters and data against the reference; or submit reference runs at this batch size."
    differs = (
        "strict prunes the table to its true lower convex envelope and counts a run as converged only if its last "
        "evaluation meets the target; the official tool prunes with a loop that keeps some points above the "
        "envelope and trusts the status (mlcommons/logging#368); where the two differ, strict has a note"
    )
    bad = (lambda package: package(epochs=18),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if results.strict:
            yield from self._compare_prunings(results)
        verdict = results.judged_convergence
        if verdict is None:
            problem = "mini problem" if results.mini else "benchmark"
            reasons = (
                (results.reference is None, f"the {problem} is unknown"),
                (not results.runs, "there are no runs"),
                (True, f"the {problem} has no reference convergence points of round {results.round}"),
            )
            yield self.skipped(results.folder, f"convergence not tested: {first_text(reasons)}")
            return
        if verdict.passed:
            return
        if results.missing_runs and verdict.case in ("exact", "interpolated", "smaller batch", "too few runs"):
            yield self.skipped(results.folder, f"convergence not tested: {results.missing_runs} runs are missing")
            return
        severity, more = ERROR, ""
        if results.waiver:
            severity, more = WARNING, f" (waived: {results.waiver})"
        elif results.bypasses:
            more = f" The submitter asked for the bypass ({results.bypasses[0]}); the committee's answer is --waivers."
        message = f"RCP test failed ({verdict.case}): {verdict.message}{more}"
        yield self.finding(results.folder, 0, message, "convergence not faster than the reference", severity=severity)

    def _compare_prunings(self, results: ResultSet) -> Iterator[Finding]:
        """Yield a note if both ways of pruning the reference table do not give the same verdict."""
        ours, theirs = results.convergence, results.official_convergence
        if ours is None or theirs is None or ours.case != theirs.case:
            return
        if ours.passed is not theirs.passed or abs(ours.normalization - theirs.normalization) > 1e-9:
            own, official = (f"{'pass' if v.passed else 'fail'}, factor {v.normalization:.4f}" for v in (ours, theirs))
            message = (
                f"true envelope: {own}; official pruning and interpolation: {official} ({theirs.official_message})"
            )
            fix = "Nothing to fix; expect another verdict from the official tool."
            yield self.finding(results.folder, 0, message, severity=NOTE, fix=fix)


class NormalizedScore(ConvergenceRule):
    """The result converges no faster than the mean of the reference, so its score stands as it is."""

    id = "RCP03"
    severity = NOTE
    why = "A result between the fastest acceptable mean and the reference mean is scaled to the reference mean."
    fix = "Nothing to fix; raw and normalised scores stand side by side in the report."
    bad = (lambda package: package(scaling="weak", settings={"global_batch_size": 1024}, epochs=39),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        verdict = results.judged_convergence
        if verdict is not None and verdict.passed and verdict.normalization > 1:
            message = f"faster than the reference mean: the score is normalised by {verdict.normalization:.6f}"
            yield self.finding(results.folder, 0, message)


class ReferenceSettings(ConvergenceRule, strict_only=True):
    """The hyperparameters are those of the reference runs at this batch size."""

    id = "RCP04"
    severity = NOTE
    differs = "the official tool never compares them"
    why = "Other allowed values are legal, but reviewers will ask; a result may then converge differently."
    fix = "Nothing to fix if the difference is intended."
    good = (lambda package: package(settings={RATE: 0.024}),)
    bad = (lambda package: package(settings={"opt_base_learning_rate": 0.0061}),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        verdict = results.convergence
        if verdict is None or verdict.point is None or verdict.case != "exact" or not results.runs:
            return
        run = results.runs[0]
        from compliance.rcp.points import compare_hyperparameters  # only results pay for it, not single logs

        differing = {
            key: f"{key} is {show(logged)} ({show(reference)})"
            for key, reference, logged in compare_hyperparameters(verdict.point, run.settings)
            if not _is_logged_otherwise(key, verdict.point.hyperparameters, run.settings)
        }
        if differing:
            key, texts = next(iter(differing)), "; ".join(differing.values())
            yield self.finding_in(
                run, key, f"not as in the reference runs {verdict.point.name}: {texts}", "the values in brackets"
            )


class WaiversUsed(SubmissionsRule):
    """Every waiver names a result that is checked and needs it."""

    id = "RCP06"
    severity = WARNING
    cite = "--waivers of this checker; training_rules.adoc#rcps"
    differs = "the official tool has no waivers, only a bypass for all results at once"
    why = "A waiver with a misspelled name waives nothing; one that is not needed hides a later change."
    fix = "Correct the name, round/organisation/system/scaling/benchmark, or remove the line from the waiver file."
    good = (lambda package: package(epochs=18).waive("3.0/Example/example_n64/strong/cosmoflow"),)
    bad = (lambda package: package(epochs=18).waive("3.0/Exampel/example_n64/strong/cosmoflow"),)

    def check(self, submissions: Submissions) -> Iterator[Finding]:
        yield from (
            self.finding(waiver.path, waiver.line, message, "the exact name of a result that fails RCP01")
            for waiver, message in unused(submissions.waivers, submissions.sets)
        )


class ScalingFile(SetRule, strict_only=True):
    """A scaling.json, if present, can be read, has a factor of at least 1 and agrees with the convergence test."""

    id = "RCP07"
    severity = WARNING
    cite = "training_rules.adoc#rcps; mlcommons/logging#278, #429"
    differs = (
        "the official summary crashes on a broken file, and multiplies the score by any number, also by 0.5; the"
        " official tools delete and write this file during the check, so two checks may differ"
    )
    why = (
        "A factor of the committee that is not applied, or one that improves the score, makes the score wrong. This"
        " checker reads the file, shows it and never writes it."
    )
    fix = 'Ask the committee for its file, {"scaling_factor": 1.05}; remove one that does not come from it.'
    good = (lambda package: package().file("scaling.json", '{"scaling_factor": 1}'),)
    bad = (lambda package: package().file("scaling.json", "1.05 (agreed)"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        scaling = results.scaling_file
        if scaling is not None and scaling.problem:
            expected = '{"scaling_factor": a number of at least 1}'
            fix = f"{scaling.fix}; until then no factor is applied to the score." if scaling.line else ""
            yield self.finding(scaling.path, scaling.line, f"scaling.json {scaling.problem}", expected, fix=fix)
        factor = results.committee_factor
        computed = results.convergence.normalization if results.convergence else 1.0
        untold = results.reference is None and results.case.usage == TRAINING
        if factor is not None and not untold and abs(factor - computed) > 1e-9:
            message = f"scaling.json says {factor}, the convergence test gives {computed}"
            yield self.finding(results.folder, 0, message, "the factor of the convergence test")


def _is_logged_otherwise(key: str, reference: Mapping[str, Any], logged: Mapping[str, Any]) -> bool:
    """Tell whether both mean the same: some trainers log the rate after its warm-up, or the first decay factor."""
    if key == DECAY_FACTOR:
        first, other = reference[key], logged[key]
        return (isinstance(first, list) and first[:1] == [other]) or (isinstance(other, list) and other[:1] == [first])
    if key == WARMUP_FACTOR and reference.get(WARMUP_EPOCHS) == logged.get(WARMUP_EPOCHS) == 0:
        return True
    if key not in (RATE, WARMUP_FACTOR) or reference.get(RATE) == logged.get(RATE):
        return False
    return any(math.isclose(rate, other) for rate in _list_peaks(reference) for other in _list_peaks(logged))


def _list_peaks(settings: Mapping[str, Any]) -> tuple[float, ...]:
    rate: Any = settings.get(RATE)
    factor: Any = settings.get(WARMUP_FACTOR)
    return (rate, rate * factor) if is_number(rate) and is_number(factor) and factor >= 1 else ()


class OfficialVerdict(Rule, strict_only=True):
    """The committee's checker accepts what the written rules accept."""

    id = OFFICIAL_RULE
    severity = WARNING
    cite = "mlperf-logging 4.1.68, mlperf_logging.package_checker and compliance_checker"
    differs = "this is what the profile official says"
    why = "A result is submitted to the committee's tool, which also refuses some logs that break no written rule."
    fix = "Change what the tool refuses, or ask the committee to accept it; --profile official shows all its findings."
    bad = (
        lambda package: (
            package("deepcam").edit(1, lambda log: log.set("seed", "11")).edit(2, lambda log: log.set("seed", "12"))
        ),
    )

    def check(self, refused: list[Finding], failing: str = "") -> Iterator[Finding]:
        """Yield a warning for each folder and rule of the profile official.

        refused: the causes that fail in it. failing: names of logs that fail by the written rules, too, but may.
        """
        if failing:
            rules = list_some(list(dict.fromkeys(finding.rule for finding in refused)))
            message = f"the committee's checker refuses the whole result because of {failing} ({rules})"
            fix = f"Repair {failing}, or repeat the run; that tool does not accept every run that may fail."
            yield self.finding(refused[0].path, 0, message, refused[0].expected, refused[0].key, fix=fix)
            return
        kinds = group_pairs(((finding.rule, os.path.dirname(finding.path)), finding) for finding in refused)
        for (rule, _), findings in kinds.items():
            first, keys = findings[0], list_some([*dict.fromkeys(finding.key for finding in findings if finding.key)])
            subject = f"{rule} ({keys})" if keys else rule
            more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
            message = f"the committee's checker refuses this: {subject}: {first.message}{more}"
            yield self.finding(
                first.path, first.line, message, first.expected, first.key, fix=first.fix or RULES[rule].fix
            )
