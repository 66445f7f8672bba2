"""What a package gets: the files for it, each with its place, before anything is written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from common.command import UsageError
from common.config import to_yaml
from compliance.logs.run import PER_RUN, Run, parse_run
from compliance.model.layout import PRUNED, RESULTS, SYSTEMS, WEAK
from compliance.model.system import read_description
from compliance.rule import show
from submission.assemble import provenance
from submission.assemble.implementation import (
    Implementation,
    PackageFile,
    code_of,
    suite_hash,
    system_folder,
    system_items,
)
from submission.assemble.input_logs import AssemblyError, InputLog, input_logs, read_copy, refuse, refuse_mixture

FOLDER_NAME: Final = re.compile(r"\w[\w.,+&@()-]{0,99}")
RUN_NUMBER: Final = re.compile(r"result_([0-9]{1,9})\.txt")
IMPLEMENTATION: Final = "mlperf-hpc-suite"
"""The folder of the code in a package, unless the user names another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """What to make a package of.

    runs: logs, or folders with files result_*.txt at any depth. output: gets the organisation's folder.
    system: the description, named after the system. organisation: the folder's name; None: as the logs say.
    pruned: instances of a throughput result that do not count. sources: the code; None: this suite.
    redact: take personal data out of the copies. unfinished: take logs without run_stop.
    known: what was read of logs before, by path; these are not read again.
    """

    runs: tuple[Path, ...]
    output: Path
    system: Path
    organisation: str | None = None
    scaling: Literal["strong", "weak"] = "strong"
    pruned: tuple[Path, ...] = ()
    implementation: str = IMPLEMENTATION
    sources: Path | None = None
    redact: bool = False
    unfinished: bool = False
    known: Mapping[Path, Run] = field(default_factory=dict)


class Packing:
    """All files of a package as they should be.

    present: hash of the logs that are there, by name. hashes: the same the other way round. known: what these and
    the logs that are given say, by name. fresh: what was taken out of the logs that are given.
    numbers: the last one of each folder.
    """

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.warnings: list[str] = []
        self._check_use()
        self.system = _folder_name(assembly.system.name.removesuffix(".json"), "--system: the file's name", "rename it")
        runs, pruned = (
            input_logs(paths, assembly.redact, assembly.known) for paths in (assembly.runs, assembly.pruned)
        )
        refuse(runs, pruned, assembly.unfinished)
        self.root = assembly.output / self._organisation(runs)
        self.mini = runs[0].run.mini
        self.earlier = provenance.read_provenance(self.root)
        self.known: dict[str, Run] = {}
        given = {log.sha256: log.run for log in runs + pruned}
        self.present = {name: self._read_present(name, given) for name in provenance.logs_of(self.root)}
        self.hashes = {sha256: name for name, sha256 in self.present.items()}
        self.fresh: dict[str, provenance.Redaction | None] = {}
        self.numbers: dict[str, int] = {}
        beside = f"{RESULTS}/{self.system}/{assembly.scaling}/"
        there = [(self.root / name, run) for name, run in self.known.items() if name.startswith(beside)]
        refuse_mixture([(log.path, log.run) for log in runs + pruned] + there)
        results = [*self._results(runs, ""), *self._results(pruned, PRUNED)]
        self.items = [self._system_item({log.run.platform for log in runs + pruned})]
        for benchmark in sorted({str(log.run.benchmark) for log in runs + pruned}):
            self.items += self._benchmark([log for log in runs + pruned if log.run.benchmark == benchmark])
        self.items += results  # the last to be written: where a log is, its code is

    def files_to_write(self) -> list[PackageFile]:
        """Return the files to be written: those that are not there yet.

        Raises AssemblyError if another file is in the place of one.
        """
        new: list[PackageFile] = []
        for item in self.items:
            target = self.root / item.name
            if not os.path.lexists(target):
                new.append(item)
            elif not (item.once or (target.is_file() and target.read_bytes() == item.read())):
                raise AssemblyError(
                    f"{target} is there and differs from {item.source}; nothing was written. Compare the two, and "
                    "remove one, or give another -o (other code: another --implementation)"
                )
        return new

    def _check_use(self) -> None:
        given = self.assembly
        if given.pruned and given.scaling != WEAK:
            raise UsageError("--pruned is for throughput results: give --scaling weak as well")
        for path in (*given.runs, *given.pruned, given.system, *([given.sources] if given.sources else [])):
            if not path.exists():
                raise UsageError(f"no such file or folder: {path}")
        _refuse_inside(given.output, (*given.runs, *given.pruned))
        if not FOLDER_NAME.fullmatch(given.implementation):
            raise UsageError(f"--implementation {given.implementation}: expected letters, digits and . _ + & @ ( ) -")
        problem = read_description(str(given.system)).problem
        if problem:
            raise AssemblyError(
                f"the system description {given.system} {problem}; `python -m submission.system` makes one"
            )

    def _organisation(self, runs: Sequence[InputLog]) -> str:
        said = self.assembly.organisation or runs[0].run.organisation
        if said is None:
            raise AssemblyError(f"{runs[0].path} has no submission_org: give --organisation NAME")
        return _folder_name(said, "organisation", "give --organisation NAME")

    def _read_present(self, name: str, given: Mapping[str, Run]) -> str:
        """Return the hash of a log in the package; AssemblyError if it has changed since it was put there.

        given: what the logs that are given say, by hash.
        """
        path = self.root / name
        data, _, sha256 = read_copy(path, redacted=False)
        recorded = self.earlier.files.get(name) if self.earlier else None
        if recorded is not None and recorded.sha256 != sha256:
            raise AssemblyError(f"{path} has changed since it was assembled (see {provenance.NAME}): restore it")
        self.known[name] = given.get(sha256) or parse_run(data, name)
        return sha256

    def _system_item(self, platforms: set[str | None]) -> PackageFile:
        others = sorted(show(platform) for platform in platforms - {self.system})
        if others:
            self.warnings.append(f"the logs say submission_platform {', '.join(others)}, the system is {self.system}")
        path = self.assembly.system
        return PackageFile(f"{SYSTEMS}/{self.system}.json", str(path), path.read_bytes)

    def _results(self, logs: Iterable[InputLog], below: str) -> Iterator[PackageFile]:
        """Yield the logs with their numbers: those that they have, else the next ones."""
        there = dict(self.hashes)
        for name, record in (self.earlier.logs if self.earlier else {}).items():
            if name in self.present and record.redaction:
                there[record.redaction.original_sha256] = name
        redacted = self.assembly.redact
        for log in logs:
            parts = (RESULTS, self.system, self.assembly.scaling, str(log.run.benchmark), *([below] if below else ()))
            folder = "/".join(parts)
            known = there.get(log.sha256) or there.get(log.original_sha256)
            if known and os.path.dirname(known) != folder:
                raise AssemblyError(f"{log.path} is in the package already, as {known}; a run counts once")
            if known and self.present[known] != log.sha256:
                how = "without" if log.redacted else "with"
                raise AssemblyError(
                    f"{self.root / known} is a copy of {log.path} made {how} --redact: remove it, or choose the same"
                )
            name = known or f"{folder}/result_{self._number(folder)}.txt"
            self.known[name] = log.run
            self.fresh[name] = provenance.Redaction(log.original_sha256, log.redacted) if log.redacted else None
            yield PackageFile(name, str(log.path), partial(_copy, log.path, redacted))

    def _number(self, folder: str) -> int:
        """Return a number for a log: after the highest in its folder, and after those that were given before."""
        if folder not in self.numbers:
            there = (os.path.basename(name) for name in self.present if os.path.dirname(name) == folder)
            found = [int(number[1]) for name in there if (number := RUN_NUMBER.fullmatch(name))]
            self.numbers[folder] = max(found, default=-1)
        self.numbers[folder] += 1
        return self.numbers[folder]

    def _benchmark(self, logs: Sequence[InputLog]) -> Iterator[PackageFile]:
        """Yield what goes to benchmarks/ for the logs of one benchmark."""
        given, benchmark = self.assembly, str(logs[0].run.benchmark)
        if given.sources is None and not any(log.run.details.from_suite for log in logs):
            self.warnings.append(f"the {benchmark} logs are not of this suite: name their code, --sources DIR")
            return
        code = code_of(benchmark, given.implementation, given.sources)
        if all(log.sha256 in self.hashes for log in logs) and (self.root / code.folder).is_dir():
            return  # nothing new was run; the code may have changed since
        _refuse_inside(given.output, code.folders)
        yield from code.items()
        yield from system_items(code, self.system, logs[0].run.variant)
        yield from self._configurations(code, logs)
        here = suite_hash(code.root, benchmark)
        stated = {log.run.details.source_sha256 for log in logs}
        others = sorted(hash_ for hash_ in stated if hash_ and hash_ != here)
        if others:
            self.warnings.append(
                f"the {benchmark} logs were made by sources with the hash {others[0][:12]}…, those in {code.root} have "
                f"{str(here)[:12]}…: check out the revision that the logs name, and give it as --sources"
            )

    def _configurations(self, code: Implementation, logs: Sequence[InputLog]) -> Iterator[PackageFile]:
        """Yield config.yaml, and config_2.yaml and so on where logs state several; those that are there stay."""
        folder = system_folder(code.benchmark, self.system)
        texts = {path.read_bytes(): path.name for path in sorted((self.root / folder).glob("config*.yaml"))}
        stated = {_yaml(log): log.path for log in logs if log.run.details.configuration is not None}
        for text, path in stated.items():
            names = ("config.yaml", *(f"config_{number}.yaml" for number in range(2, len(texts) + 3)))
            name = texts.setdefault(text, next(name for name in names if name not in texts.values()))
            yield PackageFile(f"{folder}/{name}", str(path), partial(bytes, text))


def _copy(path: Path, redacted: bool) -> bytes:
    return read_copy(path, redacted)[0]


def _yaml(log: InputLog) -> bytes:
    """Return a log's configuration as the file that `train` reads."""
    try:
        text = to_yaml(log.run.details.configuration)
    except RecursionError:
        raise AssemblyError(f"{log.path}: the configuration in its provenance record is nested too deeply") from None
    return f"# As the result logs state it, all defaults filled in; {PER_RUN} are the run's own.\n{text}".encode()


def _folder_name(text: str, what: str, fix: str) -> str:
    """Return the text without blanks; AssemblyError if it is no plain name for a folder all the same."""
    name = "_".join(text.split())
    if not FOLDER_NAME.fullmatch(name):
        raise AssemblyError(f"{what} is {show(text)}, which is no plain folder name: {fix}")
    return name


def _refuse_inside(output: Path, folders: Iterable[Path]) -> None:
    target = os.path.realpath(output)
    for folder in folders:
        if folder.is_dir() and os.path.commonpath((target, real := os.path.realpath(folder))) == real:
            raise UsageError(f"-o {output} is inside {folder}, which is only read: name a folder beside it")
