"""Rules about the system: the description is true, and the runs agree with it and fit the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from common.command import counted
from common.reference import ROUNDS
from common.values import as_count, group_pairs, is_number, is_stated
from compliance.logs.run import text_of
from compliance.model.judging import ERROR, NOTE, WARNING, Finding, JudgedRun
from compliance.model.layout import WEAK
from compliance.model.package import Package
from compliance.model.result_set import ResultSet
from compliance.model.score import most_at_once
from compliance.model.system import STATUSES, SystemDescription, is_blank, is_placeholder
from compliance.rules.package import DESCRIPTION, FIELDS, SYSTEM_TYPE, readable
from compliance.rules.rule import PackageRule, SetRule, show
from compliance.rules.runs import find_strangers

ACCELERATOR = "accelerator_model_name"
MODELS = (
    r"A64FX|XEON|EPYC|POWER ?9|GAUDI"
    r"|(?:(?<![A-Z])|(?<=DGX)|(?<=\dX))(?:(?:GH|GB|MI)[1-9]\d{1,2}|[AHB][1-9]\d?0|V100|P40|P100|L40)(?!\d)"
)
FRAMEWORKS = r"TORCH|TENSORFLOW|MXNET|JAX|PADDLE|MINDSPORE"
"""Names in capital letters, which a description and a platform have in common if both have any."""
SIZES = (r"(?i)^(\d{1,9}) ?x ?[a-z]", r"(?i)(?:^|_)(?:n(?=\d+(?:_|$))|(?=\d+x))(\d{1,9})")
"""Nodes or accelerators in the names of a platform and of a system."""
EARLIEST_CUDA = {"V100": 9, "A100": 11, "H100": 11.8, "H200": 12, "B200": 12.8}
"""The first version for an accelerator."""


class NoPlaceholderInDescription(PackageRule, strict_only=True):
    """A system description and the names of folders state facts, no placeholders."""

    id = "PKG20"
    severity = WARNING
    cite = DESCRIPTION
    differs = "the official tool accepts any text"
    why = "The published tables would show the placeholder."
    fix = "State the facts of the system; use empty text or N/A where nothing applies."
    good = (lambda package: package().system(hw_notes="see <https://example.org>"),)
    bad = (lambda package: package().system(cooling="TO BE FILLED IN: air or liquid"),)

    def check(self, package: Package) -> Iterator[Finding]:
        # The published packages of earlier rounds have some; a package of mini runs is not submitted.
        binding = package.round == ROUNDS[-1] and not all(results.mini or results.plugin for results in package.sets)
        severity = ERROR if binding else WARNING
        systems = dict.fromkeys(os.path.dirname(os.path.dirname(results.folder)) for results in package.sets)
        for folder in (package.root, *systems):
            name = os.path.basename(os.path.abspath(folder))
            if is_placeholder(name):
                message, fix = f"the name of the folder {name} is a placeholder", f"Rename the folder {name}."
                yield self.finding(folder, 0, message, "the name of the submitter or system", "", severity, fix)
        for description in readable(package):
            stated = ((name, description.fields.get(name)) for name in (*FIELDS, SYSTEM_TYPE))
            vague = [name for name, value in stated if is_placeholder(str(value))]
            if vague:
                noun = "is a placeholder" if len(vague) == 1 else "are placeholders"
                message = f"in the system json {', '.join(vague)} {noun}"
                yield self.finding(description.path, 0, message, "a fact about the system", vague[0], severity)
            number = description.count("accelerators_per_node")
            if number and str(description.fields.get(ACCELERATOR, "")).strip().upper() in ("", "N/A"):
                message = f"the system json states {number} accelerators per node, but not which"
                yield self.finding(description.path, 0, message, "the model of the accelerators", ACCELERATOR)


class RightFolder(SetRule, strict_only=True):
    """The logs have the benchmark of their folder and the division of the system description."""

    id = "RUN08"
    cite = "submission_rules.adoc#submission-structure"
    differs = "the official tool never compares logs with the folder or the system description"
    why = "A log in the wrong folder is judged by the wrong target, run count and rules."
    fix = "Move the logs to results/<system>/<scaling>/<benchmark>/ that they name; correct the system description."
    bad = (lambda package: package().rename_folder("deepcam"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        wrong = [run for run in results.runs if run.benchmark and run.benchmark != results.folder_benchmark]
        if wrong and results.folder_benchmark and not results.loose:
            expected, other = results.folder_benchmark, wrong[0].benchmark or ""
            logs, verb = f"{counted(len(wrong), 'log')} of {len(results.runs)}", "names" if len(wrong) == 1 else "name"
            message = f"benchmark folder mismatch: {logs} in the folder {expected!r} {verb} {other}"
            fix = f"Put the logs of {expected} in their place; those of {other} belong in a folder {other}/."
            if len(wrong) == len(results.runs) and len({run.benchmark for run in wrong}) == 1:
                expected, fix = other, f"Rename the folder {expected} to {other}."
            yield self.finding_in(wrong[0], "submission_benchmark", message, expected, fix=fix)
        described = results.description.division if results.description else None
        stated = [run for run in results.runs if is_stated(run.submission.get("submission_division"))]
        differing = [run for run in stated if described and run.submission["submission_division"] != described]
        if differing:
            message = (
                f"division mismatch: {len(differing)} logs say "
                f"{show(differing[0].submission.get('submission_division'))}, "
                f"the system description says {show(described)}"
            )
            yield self.finding_in(
                differing[0],
                "submission_division",
                message,
                "one division",
                fix="Correct the one that is wrong: division in the system description, or what the trainer logs.",
            )


class DescribedSystem(SetRule, strict_only=True):
    """The logs name the organisation, status and size that the system description states."""

    id = "RUN09"
    cite = "submission_rules.adoc#system-description"
    differs = "the official tool never compares logs with the system description"
    why = "The score is published for the described system, which must be the one that ran."
    fix = "Correct the system description, or the configuration of the run."
    good = (lambda package: package().system(status="Available on-premise"),)
    bad = (lambda package: package().system(status="Available Cloud"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        if strangers := find_strangers(results):  # RUN06 says so
            results = replace(results, runs=[run for run in results.runs if run not in strangers])
        description = results.description
        if description is None or description.problem:
            if not results.loose:
                yield self.skipped(
                    results.folder, "logs not compared with the system description: it is missing or unreadable"
                )
            return
        yield from self._check_names(results, str(description.fields.get("submitter", "")))
        yield from self._check_status(results, str(description.fields.get("status", "")))
        yield from self._check_platform(results)
        yield from self._check_machine(results, description)
        yield from self._check_framework(results, str(description.fields.get("framework", "")))
        yield from self._check_size(results, description)

    def _check_names(self, results: ResultSet, submitter: str) -> Iterator[Finding]:
        for name, runs in _by_value(results.runs, "submission_org"):
            if name == submitter or is_placeholder(submitter):
                continue
            if "PLACEHOLDER" in name:
                yield from self._check_folder(results, submitter)
                continue
            close = _same_organisation(name, submitter)
            logs, fix = f"{counted(len(runs), 'log')} of {len(results.runs)}", ""
            message = f"organisation spelled differently: {logs} say {show(name)}, the description {show(submitter)}"
            if not close:
                message = f"organisation mismatch: {logs} say {show(name)}, the system description {show(submitter)}"
                fix = "If these are your logs, make submitter and submission_org equal; if not, submit your own."
            severity = NOTE if close else WARNING
            yield self.finding_in(runs[0], "submission_org", message, "the same name in both", severity, fix)

    def _check_folder(self, results: ResultSet, submitter: str) -> Iterator[Finding]:
        """Yield a warning where the submission's folder, in place of the logs, names another organisation."""
        folder = results.organisation
        if results.description and folder and not is_blank(submitter) and not _same_organisation(folder, submitter):
            yield self.finding(
                results.description.path,
                0,
                f"organisation mismatch: the system description says {show(submitter)}, the folder {show(folder)}",
                "the same organisation in both; the logs name none",
                "submitter",
                WARNING,
            )

    def _check_status(self, results: ResultSet, status: str) -> Iterator[Finding]:
        described = status.strip().lower()
        for logged, runs in _by_value(results.runs, "submission_status"):
            if logged.lower() in STATUSES.get(described, ()) or is_placeholder(status):
                continue
            message = f"status is {show(logged)} in the logs, {show(status)} in the system description"
            severity = WARNING if described in STATUSES else NOTE
            yield self.finding_in(runs[0], "submission_status", message, "the same status in both", severity)

    def _check_platform(self, results: ResultSet) -> Iterator[Finding]:
        """Yield a warning where some logs name another platform than the first; how they spell it is free."""
        stated = _by_value(results.runs, "submission_platform")
        spellings = group_pairs(
            (platform.lower().strip(), (platform, runs))
            for platform, runs in stated
            if platform and not is_placeholder(platform)
        )
        if len(spellings) > 1:
            (first, _), (other, runs) = (alike[0] for alike in list(spellings.values())[:2])
            message = f"the logs name {len(spellings)} platforms: {show(other)} here, {show(first)} in others"
            yield self.finding_in(runs[0], "submission_platform", message, "one platform", WARNING)

    def _check_machine(self, results: ResultSet, description: SystemDescription) -> Iterator[Finding]:
        """Yield what description and platform say of the machine, and cannot both be true."""
        run, fields = next(iter(results.runs), None), description.fields
        platform = text_of(run.submission.get("submission_platform")) if run else None
        if run is None or platform is None:
            return
        models = [str(fields.get(name, "")).upper() for name in (ACCELERATOR, "host_processor_model_name")]
        frameworks = str(fields.get("framework", "")).upper()
        for pattern, stated, what in ((MODELS, " ".join(models), "hardware"), (FRAMEWORKS, frameworks, "framework")):
            for where, name in (("platform", platform), ("system", results.system)):
                ours, named = (set(re.findall(pattern, text.upper())) for text in (stated, name))
                if ours and named and not ours & named:
                    names = " and ".join(sorted(named))
                    message = f"{what} is {show(stated.strip())} in the system json, {names} in the name of the {where}"
                    yield self.finding_in(run, "submission_platform", message, "the same in both", WARNING)
        yield from self._check_platform_size(results, run, platform)
        cuda = re.search(r"(?i)cuda\w*\W{1,5}(\d+(?:\.\d+)?)", str(fields.get("other_software_stack", "")))
        earliest = max((version for name, version in EARLIEST_CUDA.items() if name in models[0]), default=0)
        storage, memory = description.text("host_storage_capacity"), description.text("accelerator_memory_capacity")
        in_name, stated_gb = re.search(r"(\d+) ?GB", models[0]), re.findall(r"\d+", memory)
        yield from (
            self.finding(description.path, 0, f"the system json states {fact}", "the machine that ran", key, NOTE)
            for key, is_odd, fact in (
                (
                    "host_processors_per_node",
                    description.count("host_processors_per_node") == 0,
                    "no processors in a node",
                ),
                (
                    "accelerator_memory_capacity",
                    in_name and stated_gb and in_name[1] not in stated_gb,
                    f"{show(memory)} of memory for {models[0]}",
                ),
                (
                    "host_storage_capacity",
                    run.staging_ms and re.match(r"(?i)0\b|none", storage),
                    "no storage, but data are staged",
                ),
                (
                    "other_software_stack",
                    cuda and float(cuda[1]) < earliest,
                    f"a CUDA older than {earliest} for {models[0]}",
                ),
            )
            if is_odd
        )

    def _check_platform_size(self, results: ResultSet, run: JudgedRun, platform: str) -> Iterator[Finding]:
        """Yield where a platform or system such as 64xDGX or cluster_n64 has another number than the logs."""
        nodes, each = as_count(run.nodes), as_count(run.accelerators_per_node)
        if results.scaling == WEAK or nodes is None or each is None:
            return
        for what, name, severity, size in (
            ("platform", platform, WARNING, SIZES[0]),
            ("system", results.system, NOTE, SIZES[1]),
        ):
            number = re.search(size, name)
            if number and int(number[1]) not in (nodes, nodes * each, each):
                message = f"the {what} is {show(name)}, but the logs say {nodes} nodes with {each} accelerators"
                yield self.finding_in(run, "submission_platform", message, "the nodes that ran", severity)

    def _check_framework(self, results: ResultSet, framework: str) -> Iterator[Finding]:
        """Yield a note where the description names no torch, whose version the provenance of a log states."""
        trained = next((run for run in results.runs if "torch" in run.software), None)
        if trained and "torch" not in framework.lower() and not is_blank(framework) and not is_placeholder(framework):
            message = (
                f"framework is {show(framework)} in the system json, torch {trained.software['torch']} in the logs"
            )
            yield self.finding_in(trained, "provenance", message, "the framework of the runs", NOTE)

    def _check_size(self, results: ResultSet, description: SystemDescription) -> Iterator[Finding]:
        nodes, accelerators = description.count("number_of_nodes"), description.count("accelerators_per_node")
        if nodes is None or accelerators is None:  # PKG06
            yield self.skipped(results.folder, "logs not compared with the size of the system: it is no whole number")
            return
        others = [
            run
            for run in results.runs
            if is_number(run.nodes) and is_number(run.accelerators_per_node)
            if (run.nodes, run.accelerators_per_node) != (nodes, accelerators)
        ]
        if results.scaling == WEAK:
            yield from islice(self._check_instances(others, accelerators), 1)
        elif others:
            run = others[0]
            scale = (run.nodes, run.accelerators_per_node)
            alike = [other for other in others if (other.nodes, other.accelerators_per_node) == scale]
            key = "number_of_nodes" if run.nodes != nodes else "accelerators_per_node"
            message = (
                f"size of the system: {counted(len(alike), 'log')} of {len(results.runs)} say {run.nodes} nodes with"
                f" {run.accelerators_per_node} accelerators each"
                f" ({os.path.basename(run.path)}:{run.lines.get(key, 0)}), the system description"
                f" {nodes} with {accelerators}"
            )
            same = run.scale == nodes * max(accelerators, 1) and bool(run.accelerators_per_node) is bool(accelerators)
            severity = WARNING if same else ERROR
            fix = (
                "If the logs are right, correct the system description; one made on a login node has no accelerators."
                f" If the description is right, correct what the program logs as {key}, such as the GPUs that one"
                " process sees, and repeat the runs; never edit logs."
            )
            yield self.finding(
                description.path,
                0,
                message,
                "the same in both",
                key,
                severity,
                fix,
                cause="RUN06" if len(others) < len(results.runs) else "",
            )

    def _check_instances(self, runs: list[JudgedRun], accelerators: int) -> Iterator[Finding]:
        """Yield what is wrong with instances, which have a part of the nodes, or of a node."""
        for run in runs:
            fewer = 0 < run.accelerators_per_node < accelerators
            if run.accelerators_per_node != accelerators and not (fewer and run.nodes == 1):
                stated = f"the logs say {show(run.accelerators_per_node)} accelerators per node"
                message, key = f"{stated}, the system description {accelerators}", "accelerators_per_node"
                line = run.lines.get("number_of_nodes", 0)
                yield self.finding(run.path, line, message, "the same in both", key, WARNING if fewer else ERROR)


class FitsSystem(SetRule, strict_only=True):
    """Concurrent instances fit on the system: M · S <= T."""

    id = "RUN10"
    cite = "hpc_training_rules.adoc#results (throughput: S <= T <= M * S)"
    differs = "the official tool accepts T and S as stated"
    why = (
        "Instances that run together cannot have more accelerators than the system. If each log states the whole "
        "system, as many valid ones do, it is a warning."
    )
    fix = "Log the nodes of the instance, not of the whole system; correct the system description."
    good = (lambda package: package(scaling="weak").with_time_to_train().system(number_of_nodes="160"),)
    bad = (lambda package: package(scaling="weak").start_together().system(number_of_nodes="32"),)

    def check(self, results: ResultSet) -> Iterator[Finding]:
        total, scale = results.system_scale, results.stated_scale
        if results.scaling != WEAK or total is None or scale is None:
            return
        together = most_at_once(results.runs)
        if together * scale > total:
            whole = results.states_whole_system  # as many valid logs do
            message = (
                f"{together} instances at the same time x {scale} accelerators = {together * scale}"
                f" > {total} of the system{': the logs state the whole system' if whole else ''}"
            )
            severity = WARNING if whole else ERROR
            yield self.finding(results.folder, 0, message, f"M * S <= T = {total}", "number_of_nodes", severity)


def _by_value(runs: list[JudgedRun], key: str) -> list[tuple[str, list[JudgedRun]]]:
    stated = ((run.submission.get(key), run) for run in runs)
    return list(group_pairs((value, run) for value, run in stated if isinstance(value, str)).items())


def _same_organisation(name: str, longer: str) -> bool:
    """Tell whether two names may be one organisation's: they share a word, or one is part or initials of the other."""
    words = _name_words(longer)
    short, whole = "".join(_name_words(name)), "".join(words)
    shared = {word for word in _name_words(name) if len(word) > 2}.intersection(words)
    return bool(shared) or short in whole or short == "".join(word[0] for word in words if word != "and")


def _name_words(name: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", name.lower()) if word]
