"""Assemble a package: plan which files it gets, and where, before anything is written; then write and record them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from common.command import list_some
from common.config import to_yaml
from common.errors import UsageError
from common.files import LOG_NAME
from common.record import PARTS_FILE_NAME
from common.tree import ANYWHERE, Tree
from common.values import group_pairs
from common.version import DISTRIBUTION
from compliance.cli import refuse_missing
from compliance.engine.log_checker import Options
from compliance.logs.power import read_power
from compliance.logs.run import PER_RUN, Run, names_suite, parse_run
from compliance.model.judging import ERROR, WARNING
from compliance.model.layout import (
    MAX_FILE_BYTES,
    POWER,
    PROVENANCE_FILE,
    PRUNED,
    RESULTS,
    STRONG,
    SYSTEMS,
    WEAK,
    power_files,
    result_name,
)
from compliance.model.package import Redaction, read_provenance
from compliance.model.package_files import letters_and_digits
from compliance.model.system import is_placeholder, read_description
from compliance.rules.package import FIELDS, SYSTEM_TYPE
from compliance.rules.rule import show
from compliance.rules.system import NoPlaceholderInDescription
from submission.assemble import implementation as provenance
from submission.assemble.implementation import (
    Implementation,
    PackageFile,
    find_implementation,
    suite_at,
    suite_hash,
    system_folder,
    system_items,
)
from submission.assemble.input_logs import (
    AssemblyError,
    InputLog,
    check_logs,
    check_one_result,
    check_one_system,
    check_places,
    find_logs,
    read_copy,
    read_input_logs,
)
from submission.system.describe import compare_description, explain_unread

FOLDER_NAME: Final = re.compile(r"\w[\w.,+&@()-]{0,99}")
VAGUE: Final = ("description", "machine", "node", "system", "systems", "system_description", "test", "untitled")
"""Names of files that are none of systems."""
VERSION: Final = r"([\W_]*(backup|bak|copy|corrected|draft|edited|final|fixed|new|old|\(\d+\)|v\d{1,2}(?!\d)))+[\W_\d]*"
"""What follows the name of a system in that of a file kept in several versions, such as node_final_v2.json."""
IMPLEMENTATION: Final = DISTRIBUTION
"""Name of the folder of this suite's code in a package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The input of a package.

    runs: logs, or folders with result_*.txt at any depth. output: parent of the organisation's folder.
    system: the description. name: of the system; None: that of the description's file. organisation: the folder's name;
    None: from the logs.
    pruned: instances of a throughput result that do not count. sources: the code; None: this suite.
    implementation: name of the folder of the code; None: this suite, or the name of the folder `sources`.
    scaling: "" for time to train, unless the runs may be instances of a throughput result.
    redact: remove personal data from the copies. unfinished: accept logs without run_stop.
    draft: accept placeholders in the description.
    read_runs: logs that were read before, by path; they are not read again.
    """

    runs: Sequence[Path]
    output: Path
    system: Path
    name: str | None = None
    organisation: str | None = None
    scaling: Literal["strong", "weak", ""] = ""
    pruned: Sequence[Path] = ()
    implementation: str | None = None
    sources: Path | None = None
    redact: bool = False
    unfinished: bool = False
    draft: bool = False
    read_runs: Mapping[Path, Run] = field(default_factory=dict)


class Packing:
    """All files that a package should contain.

    present: hashes of the logs already in the package, by name. hashes: their names by hash. read_runs: these and the
    given ones as read, by name. redactions: of the given logs, by name. numbers: the last run number by folder.
    """

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.scaling = assembly.scaling or STRONG
        self.warnings: list[str] = []
        self._check_use()
        self.system = _name_folder(
            (assembly.name or assembly.system.name).removesuffix(".json"),
            "--system: the file's name, or --name,",
            "rename it, or use another --name",
        )
        runs, pruned = (
            read_input_logs(
                [log for path in paths for log in find_logs(path, self.warnings)], assembly.redact, assembly.read_runs
            )
            for paths in (assembly.runs, assembly.pruned)
        )
        check_logs(runs, pruned, assembly.unfinished)
        if assembly.organisation:
            organisation = _name_folder(assembly.organisation, "--organisation", "state the name of yours")
        else:
            organisation = name_organisation(runs[0].run.organisation, runs[0].path)
        self.root = assembly.output / organisation
        self.tree = Tree.at(self.root)
        self.mini = runs[0].run.mini
        self._check_placeholders()
        self.earlier = read_provenance(self.root)
        self.read_runs: dict[str, Run] = {}
        input_runs = {log.sha256: log.run for log in runs + pruned}
        self.present = {name: self._read_present(name, input_runs) for name in provenance.find_logs(self.root)}
        self.hashes = {sha256: name for name, sha256 in self.present.items()}
        self.redactions: dict[str, Redaction | None] = {}
        self.numbers: dict[str, int] = {}
        beside = f"{RESULTS}/{self.system}/{self.scaling}/"
        existing = [(self.root / name, run) for name, run in self.read_runs.items() if name.startswith(beside)]
        check_one_system([(log.path, log.run) for log in runs + pruned] + existing)
        check_places(runs, assembly.runs, self.warnings)
        results = list(self._plan_results(runs, ""))
        planned = {item.name: Path(item.source) for item in results}
        for folder, names in group_pairs((os.path.dirname(name), name) for name in self.read_runs).items():
            if folder in map(os.path.dirname, planned):
                logs = [(planned.get(name, self.root / name), self.read_runs[name]) for name in names]
                check_one_result(logs, assembly.scaling)
        if not assembly.draft:
            self._check_description([log.run for log in runs])
        results += self._plan_results(pruned, PRUNED)
        self.items = [self._system_item({log.run.platform for log in runs + pruned})]
        benchmarks = sorted({str(log.run.benchmark) for log in runs + pruned})
        if assembly.sources and len(benchmarks) > 1 and not suite_at(assembly.sources, benchmarks[0]):
            self.warnings.append(
                f"{' and '.join(benchmarks)} get the same code, that of --sources {assembly.sources}; if each has its "
                "own, call this once for the logs of each benchmark: a later call extends the package"
            )
        for benchmark in benchmarks:
            self.items += self._plan_benchmark([log for log in runs + pruned if log.run.benchmark == benchmark])
        self.items += results  # written last: a log in the package implies that its code is there

    def files_to_write(self) -> list[PackageFile]:
        """Return the files that are not in the package yet.

        Raises AssemblyError if a different file has the name of one.
        """
        new: list[PackageFile] = []
        for item in self.items:
            target = self.root / item.name
            if self.tree.leads_out(target):
                raise AssemblyError(f"{target} leads out of {self.root} through a link; replace the link by a folder")
            if not os.path.lexists(target):
                new.append(item)
            elif item.once:
                continue
            elif self.tree.begin(target, len(data := item.read()) + 1) != data or not target.is_file():
                raise AssemblyError(
                    f"{target} exists and differs from {item.source}; nothing was written. Compare the two and remove "
                    "one, or use another -o (for other code: another --implementation)"
                )
        return new

    def _check_use(self) -> None:
        assembly = self.assembly
        if assembly.pruned and assembly.scaling != WEAK:
            raise UsageError("--pruned is for throughput results: add --scaling weak")
        logs = (*assembly.runs, *assembly.pruned)
        refuse_missing((*logs, assembly.system, *([assembly.sources] if assembly.sources else [])))
        _check_outside(assembly.output, logs)
        if (assembly.output / PROVENANCE_FILE).is_file():
            above = os.path.normpath(assembly.output / os.pardir)
            raise UsageError(f"-o {assembly.output} is a package; give the folder above it, which has it: -o {above}")
        if assembly.implementation is not None and not FOLDER_NAME.fullmatch(assembly.implementation):
            raise UsageError(
                f"--implementation {assembly.implementation}: expected letters, digits and . _ + & @ ( ) -"
            )
        if assembly.system.is_dir():
            below = ", ".join(map(str, sorted(assembly.system.glob("*.json"))[:3])) or f"{assembly.system}/SYSTEM.json"
            raise UsageError(f"--system {assembly.system} is a folder; name the description in it: {below}")
        self.description = read_description(str(assembly.system))
        if self.description.problem:
            raise AssemblyError(f"the system description {explain_unread(self.description)}")

    def _check_placeholders(self) -> None:
        """Raise AssemblyError for placeholders in the description; a warning in a draft, and of mini runs."""
        fields, path = self.description.fields, self.assembly.system
        if names := [name for name in (*FIELDS, SYSTEM_TYPE) if is_placeholder(str(fields.get(name, "")))]:
            problem = f"placeholders in {path}: {list_some(names)}"
            if not (self.assembly.draft or self.mini):
                raise AssemblyError(
                    f"{problem}; state the facts (`python -m submission.system --check {path}` lists what is open), or "
                    f"use --draft and complete {SYSTEMS}/{self.system}.json in the package later; nothing was written"
                )
            self.warnings.append(f"{problem}; complete {SYSTEMS}/{self.system}.json in the package before you submit")

    def _check_description(self, runs: Sequence[Run]) -> None:
        """Raise AssemblyError for errors in the description, or of it and the logs; a warning of mini runs."""
        path = self.assembly.system
        with_scaling = [(run, self.scaling) for run in runs]
        findings = [
            finding
            for package in compare_description(str(path), with_scaling, Options(allow_mini=True)).packages
            for finding in package.findings
            if finding.rule != NoPlaceholderInDescription.id
        ]
        errors, warnings = (
            [f"{finding.message} ({finding.rule})" for finding in findings if finding.severity == severity]
            for severity in (ERROR, WARNING)
        )
        if errors and not self.mini:
            paths = group_pairs((run.benchmark, run.path) for run in runs)
            kinds = [f"{list_some(paths[benchmark], 1)} of {benchmark}" for benchmark in sorted(paths, key=str)]
            mixed = f"; leave out logs that are not of this system ({', '.join(kinds)})" if len(kinds) > 1 else ""
            raise AssemblyError(
                f"{path}: {list_some(errors)}{mixed}. Correct it (`python -m submission.system --check {path} --logs "
                "LOGS` says how), or use --draft and correct it in the package later; nothing was written"
            )
        self.warnings += [f"{path}: {text}" for text in errors + warnings]

    def _read_present(self, name: str, input_runs: Mapping[str, Run]) -> str:
        """Return the hash of a log in the package; raise AssemblyError if the log has changed since assembly.

        input_runs: the given logs as read, by hash.
        """
        path = self.root / name
        data, _, sha256 = read_copy(path, False, self.tree)
        recorded = self.earlier.files.get(name) if self.earlier else None
        if recorded is not None and recorded.sha256 != sha256:
            raise AssemblyError(f"{path} has changed since it was assembled (see {PROVENANCE_FILE}): restore it")
        self.read_runs[name] = input_runs.get(sha256) or parse_run(data, name)
        return sha256

    def _system_item(self, platforms: set[str | None]) -> PackageFile:
        path, name = self.assembly.system, f"{SYSTEMS}/{self.system}.json"
        others = sorted(platform for platform in platforms if platform and not self._is_called(platform))
        if others:
            stated = f"submission_platform is {', '.join(map(show, others))} in the logs"
            meant = quote("_".join(others[0].split()))
            fix = f"rename it to {meant}.json, or add --name {meant} (--name {self.system} keeps it)"
            problem = f"{path}: the system would be named {self.system}, as this file is, but {stated}"
            if not (self.assembly.name or self.mini or (self.root / name).exists()):
                raise AssemblyError(f"{problem}: {fix}; nothing was written")
            named = f"{stated}, but the system is {self.system}"
            self.warnings.insert(0, named if self.assembly.name else f"{problem}: {fix}, and assemble into another -o")
        return PackageFile(name, str(path), partial(ANYWHERE.read, path, MAX_FILE_BYTES))

    def _is_called(self, platform: str | None) -> bool:
        """Tell whether a platform, as in 256xNVIDIA DGX H100, is the system's name or one that its description has."""
        name = letters_and_digits(re.sub(r"^\d+x", "", platform or ""))
        models = (f"{part}_model_name" for part in ("host_processor", "accelerator"))
        stated = [self.system, *map(self.description.fields.get, ("system_name", *models))]
        if re.fullmatch(re.escape(platform or "-") + VERSION, self.system, re.IGNORECASE):
            return False
        matches = any(name in letters_and_digits(text) for text in stated if isinstance(text, str))
        return platform == self.system or (len(name) > 2 and matches and self.system.lower() not in VAGUE)

    def _plan_results(self, logs: Iterable[InputLog], below: str) -> Iterator[PackageFile]:
        """Yield the logs, numbered: those in the package keep their numbers, new ones get the next."""
        existing = dict(self.hashes)
        for name, record in (self.earlier.logs if self.earlier else {}).items():
            if name in self.present and record.redaction:
                existing[record.redaction.original_sha256] = name
        for log in logs:
            parts = (RESULTS, self.system, self.scaling, str(log.run.benchmark), below)
            folder = "/".join(filter(None, parts))
            existing_name = existing.get(log.sha256) or existing.get(log.original_sha256)
            if existing_name and os.path.dirname(existing_name) != folder:
                raise AssemblyError(f"{log.path} is already in the package, as {existing_name}; a run counts once")
            if existing_name and self.present[existing_name] != log.sha256:
                how = "without" if log.redacted else "with"
                raise AssemblyError(
                    f"{self.root / existing_name} was copied from {log.path} {how} --redact: do the same, or remove it"
                )
            name = existing_name or f"{folder}/result_{self._next_number(folder)}.txt"
            self.read_runs[name] = log.run
            self.redactions[name] = Redaction(log.original_sha256, log.redacted) if log.redacted else None
            yield PackageFile(name, str(log.path), partial(_read_log_copy, log.path, self.assembly.redact))
            if not below:
                yield from self._plan_power(log.path, f"{folder}/{POWER}/{result_name(name)}")

    def _plan_power(self, log: Path, target: str) -> Iterator[PackageFile]:
        """Yield the power files of a run for its folder in the package, without estimates of parts of the nodes."""
        files = power_files(_power_folder(log))
        read = read_power(files.nodes, files.switches, None, None)
        parts_files = [path for path in files.others if re.fullmatch(PARTS_FILE_NAME, os.path.basename(path))]
        unknown = [path for path in files.others if path not in parts_files and os.path.isfile(path)]
        if unknown:
            self.warnings.append(
                f"{log}: not packed with its power files: {_list_names(unknown)}; expected node_<i>.txt or sw_<i>.txt, "
                "not compressed"
            )
        measured = (*read.nodes, *read.switches)
        parts = [*parts_files, *(file.path for file in measured if file.of_parts)]
        whole = [file for file in measured if not file.of_parts]
        if parts and not any(file.of_node for file in whole):
            self.warnings.append(
                f"{log}: its power was only estimated, for parts of the nodes ({_list_names(parts)}), which is "
                "not packed: measure whole nodes"
            )
            return
        for path in (Path(file.path) for file in whole):
            yield PackageFile(f"{target}/{path.name}", str(path), partial(_read_log_copy, path, self.assembly.redact))

    def _next_number(self, folder: str) -> int:
        """Return the next number for a log in a folder."""
        if folder not in self.numbers:
            names = (os.path.basename(name) for name in self.present if os.path.dirname(name) == folder)
            numbers = [int(number[1]) for name in names if (number := re.fullmatch(r"result_([0-9]{1,9})\.txt", name))]
            self.numbers[folder] = max(numbers, default=-1)
        self.numbers[folder] += 1
        return self.numbers[folder]

    def _plan_benchmark(self, logs: Sequence[InputLog]) -> Iterator[PackageFile]:
        """Yield the files of benchmarks/ for the logs of one benchmark."""
        assembly, benchmark = self.assembly, str(logs[0].run.benchmark)
        if assembly.sources is None and not any(names_suite(log.run.details.provenance) for log in logs):
            self.warnings.append(f"the {benchmark} logs are not from this suite: name their code with --sources DIR")
            return
        name = assembly.implementation or IMPLEMENTATION
        if not assembly.implementation and assembly.sources and not suite_at(assembly.sources, benchmark):
            folder = assembly.sources.resolve().name
            name = _name_folder(folder, "--sources: the folder's name", "use --implementation ID")
        code = find_implementation(benchmark, name, assembly.sources)
        if all(log.sha256 in self.hashes for log in logs) and (self.root / code.folder).is_dir():
            return  # no new runs; the code may have changed since
        _check_outside(assembly.output, code.folders)
        yield from code.package_files()
        yield from system_items(code, self.system, logs[0].run.variant)
        yield from self._plan_configurations(code, logs)
        here = suite_hash(code.root, benchmark)
        stated = {log.run.details.source_sha256 for log in logs}
        others = sorted(hash_ for hash_ in stated if hash_ and hash_ != here)
        if others:
            self.warnings.append(
                f"the {benchmark} logs are from sources with hash {others[0][:12]}, but those in {code.root} have "
                f"{str(here)[:12]}: check out the revision in the logs and name it with --sources"
            )

    def _plan_configurations(self, code: Implementation, logs: Sequence[InputLog]) -> Iterator[PackageFile]:
        """Yield config.yaml, and config_2.yaml etc. if the logs have several; existing files stay."""
        folder = system_folder(code.benchmark, self.system)
        existing = sorted((self.root / folder).glob("config*.yaml"))
        texts = {self.tree.read(path, MAX_FILE_BYTES): path.name for path in existing}
        stated = {_render_configuration(log): log.path for log in logs if log.run.details.configuration is not None}
        for text, path in stated.items():
            names = ("config.yaml", *(f"config_{number}.yaml" for number in range(2, len(texts) + 3)))
            name = texts.setdefault(text, next(name for name in names if name not in texts.values()))
            yield PackageFile(f"{folder}/{name}", str(path), partial(bytes, text))


def _power_folder(log: Path) -> str:
    """Return the folder of a run's power files: power/result_3 beside result_3.txt; of a training's log also power.

    A power folder with result_<i> inside has files of such runs alone.
    """
    folder = log.parent / POWER
    of_training = log.name == LOG_NAME and not any(path.is_dir() for path in folder.glob("result_*"))
    return str(folder if of_training else folder / result_name(str(log)))


def _list_names(paths: Iterable[str]) -> str:
    return list_some([os.path.basename(path) for path in paths])


def _read_log_copy(path: Path, redacted: bool) -> bytes:
    return read_copy(path, redacted)[0]


def _render_configuration(log: InputLog) -> bytes:
    """Return the configuration in a log as a YAML file for `train`."""
    try:
        text = to_yaml(log.run.details.configuration)
    except RecursionError:
        raise AssemblyError(f"{log.path}: the configuration in its provenance record is nested too deeply") from None
    return f"# From the result logs, with all defaults; {PER_RUN} differ from run to run.\n{text}".encode()


def name_organisation(organisation: str | None, source: str | Path) -> str:
    """Return the name of an organisation's folder; AssemblyError for none, and for a placeholder. source: names it."""
    if organisation is None:
        raise AssemblyError(f"{source} has no submission_org: use --organisation NAME")
    return _name_folder(organisation, f"the organisation in {source}", "use --organisation NAME")


def _name_folder(text: str, subject: str, fix: str) -> str:
    """Return the text with underscores for blanks; AssemblyError if that is a placeholder, or no plain folder name."""
    name = "_".join(text.split())
    if not FOLDER_NAME.fullmatch(name):
        raise AssemblyError(f"{subject} is {show(text)}, which is not a plain folder name: {fix}")
    if is_placeholder(text):
        raise AssemblyError(f"{subject} is {show(text)}, a placeholder: {fix}; nothing was written")
    return name


def _check_outside(output: Path, folders: Iterable[Path]) -> None:
    target = os.path.realpath(output)
    for folder in folders:
        if folder.is_dir() and os.path.commonpath((target, real := os.path.realpath(folder))) == real:
            raise UsageError(f"-o {output} is inside {folder}, an input: choose a folder outside it")
