"""A result set: the runs of one system and benchmark, what is known about the system, and the outcome."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from common.command import list_some
from common.reference import FULL, Reference
from common.rounds import HPC, TRAINING
from common.values import identity, is_stated, shared_value, to_plain
from compliance.benchmarks import describe_plugin
from compliance.model.judging import FAIL, Case, Finding, JudgedRun, choose_texts, lower_errors, worst
from compliance.model.layout import STRONG, WEAK, PowerPlace, list_results
from compliance.model.score import Throughput, TimeToTrain, most_at_once

if TYPE_CHECKING:
    from compliance.model.package_files import Bypass, Scaling
    from compliance.model.system import SystemDescription
    from compliance.rcp.judge import Verdict  # only results pay for it, not single logs


LIKE_A_LOG: Final = r"(?i)result[^.]*[0-9](\.(txt|log|out)(\.gz)?)?|[^.].*\.(log|out)"
COPY: Final = r"\W*(?P<run>result_\w+\.txt)\W.*|(?:\.nfs|\.fuse_hidden|Unconfirmed ).+"
"""Names that rsync, browsers, editors and file systems give to files that they have not finished, or keep."""
TIMES: Final = "times"
VALUES: Final = "values"
POWER: Final = "power"


class ResultSet(Struct, frozen=True):
    """The runs of one system and benchmark in one folder.

    case: what it is judged by; its division and benchmark are from folder and system description, else from the logs.
    scaling: "strong" (time to train) or "weak" (throughput). folder_benchmark: the folder's name.
    variant: of most of its logs, "full" or the name of a mini problem.
    loose: the logs lie in a folder that is not part of a submission. label: what tells them from others there.
    not_judged: why they are not judged as a result, "" if they are. unchecked: the official tool does not look there.
    power: the power files by result (result_1, …), None if no power was measured.
    scaling_file: what a scaling.json says, None without one. waiver: reason of an RCP waiver.
    bypasses: lines of parameter files that ask to leave its convergence test out; shown beside its verdict.
    officially_bypassed: the checks that the official tool leaves out on such a line; empty in the profile strict.
    copies: runs or power files of this result that have the contents of others of it.
    inherited: findings on its package, or between packages, that are about this result.
    """

    folder: str
    case: Case
    scaling: str = STRONG
    organisation: str = ""
    system: str = ""
    folder_benchmark: str = ""
    variant: str = FULL
    runs: list[JudgedRun] = []
    pruned: list[JudgedRun] = []
    other_files: list[str] = []
    description: SystemDescription | None = None
    loose: bool = False
    label: str = ""
    not_judged: str = ""
    unchecked: bool = False
    power: dict[str, PowerPlace] | None = None
    scaling_file: Scaling | None = None
    waiver: str = ""
    bypasses: list[Bypass] = []
    officially_bypassed: frozenset[str] = frozenset()
    findings: list[Finding] = []
    convergence: Verdict | None = None
    official_convergence: Verdict | None = None
    score: TimeToTrain | Throughput | None = None
    copies: list[Copies] = []
    inherited: list[Finding] = []

    @property
    def name(self) -> str:
        """Name of the set in reports: system/scaling/benchmark."""
        scaling = self.scaling if self.system and self.case.usage == HPC else ""
        parts = (self.organisation, self.system, scaling, self.folder_benchmark)
        name = "/".join(part for part in parts if part) or self.folder
        return f"{name} ({self.label})" if self.label else name

    @property
    def all_runs(self) -> list[JudgedRun]:
        """The runs, those that count and the pruned ones."""
        return [*self.runs, *self.pruned]

    @property
    def round(self) -> str:
        """The round whose rules apply."""
        return self.case.round

    @property
    def strict(self) -> bool:
        """Whether the written rules apply."""
        return self.case.strict

    @property
    def benchmark(self) -> str | None:
        """The benchmark, if it is a known one."""
        return self.case.benchmark

    @property
    def division(self) -> str | None:
        """The division, if anything states it."""
        return self.case.division

    @property
    def reference(self) -> Reference | None:
        """The facts of its benchmark, if it is a known one."""
        return self.case.reference

    @property
    def convergence_unit(self) -> str:
        """What its runs count up to the target: "epochs", "samples" or "tokens"."""
        stated = (run.convergence_unit for run in self.runs if run.convergence is not None)
        return shared_value(stated) or (self.reference.epoch_unit if self.reference else "") or "epochs"

    @property
    def mini(self) -> bool:
        """Whether it is a result on the mini problem, which is not an MLPerf result."""
        return self.variant != FULL

    @property
    def plugin(self) -> str:
        """Says that its benchmark is not MLPerf's, and where it comes from; "" for one of MLPerf's."""
        return describe_plugin(self.benchmark)

    @property
    def judged_as(self) -> str | None:
        """The division whose rules about runs apply: mini runs are compared with reference runs like closed ones."""
        return "closed" if self.strict and self.mini else self.division

    @property
    def verdict(self) -> str:
        """PASS, WARN, INCOMPLETE or FAIL of the set as a whole; one run of a time-to-train result may fail."""
        return worst(self.findings)

    @property
    def tolerated(self) -> set[str]:
        """Paths of failing runs that do not fail the result: one of a time-to-train result, if it had a target.

        The official tool also allows one per throughput result, and never reads pruned logs or folders of other names.
        """
        paths = set()
        unjudged = self.not_judged or self.foreign or self.of_no_benchmark
        may_fail = not unjudged and (self.scaling == STRONG or not self.strict)
        if may_fail and len(self.failing) == 1 and not (self.strict and self.failing[0].without_target):
            paths.add(self.failing[0].path)
        if not self.strict:
            paths.update(run.path for run in self.pruned)
        if self.unchecked:
            paths.update(run.path for run in self.runs)
        return paths

    def decisive_findings(self) -> Iterator[Finding]:
        """Yield its findings, those of its logs and the inherited ones as they count; see `tolerated`."""
        yield from self.findings
        yield from self.inherited
        tolerated = self.tolerated
        for run in self.all_runs:
            yield from lower_errors(run.findings) if run.path in tolerated else run.findings

    @property
    def states(self) -> tuple[str, ...]:
        """What the committee was asked or decided, or the submitter chose, beside the verdict."""
        has_failed = self.judged_convergence is not None and not self.judged_convergence.passed
        states = (
            (has_failed and self.waiver, "waived"),
            (has_failed and self.bypasses and not self.waiver, "bypass asked for"),
            (self.pruned, "pruned"),
        )
        return tuple(choose_texts(states))

    @property
    def judged_convergence(self) -> Verdict | None:
        """The verdict on convergence that counts in the profile; None if it is not tested."""
        return self.convergence if self.strict else self.official_convergence

    @property
    def committee_factor(self) -> float | None:
        """The committee's factor on the score; None without a scaling.json that has one."""
        return self.scaling_file.factor if self.scaling_file else None

    @property
    def missing_runs(self) -> int:
        """Number of runs that a submitted result still lacks; always 0 in the profile official, where it just fails."""
        if self.reference is None or self.not_judged or not self.strict:
            return 0
        return max(0, self.reference.runs - len(self.runs))

    @property
    def foreign(self) -> bool:
        """Whether there are logs and none of them is one of MLPerf HPC: then nothing is judged of the runs together."""
        return bool(self.runs) and all(run.only_rule for run in self.runs)

    @property
    def lacks_facts(self) -> bool:
        """Whether it is one of MLPerf Training whose number of runs and target are not known."""
        return self.case.usage == TRAINING and self.reference is None

    @property
    def of_no_benchmark(self) -> bool:
        """Whether none of its runs may fail, as nothing is known about its benchmark."""
        return self.strict and self.lacks_facts

    @property
    def misnamed_logs(self) -> list[str]:
        """The other files and folders that seem to be logs of runs under another name than result_<i>.txt."""
        return [
            path
            for path in self.other_files
            if re.fullmatch(LIKE_A_LOG, os.path.basename(path)) or (self.missing_runs and list_results(path))
        ]

    @property
    def copies_of_missing(self) -> dict[str, str]:
        """The other files that may be what an interrupted copy or an editor left of a missing run, and of which."""
        present = {os.path.basename(run.path) for run in self.runs}
        names = [(path, re.fullmatch(COPY, os.path.basename(path))) for path in self.other_files if self.missing_runs]
        return {path: name["run"] or "the missing run" for path, name in names if name and name["run"] not in present}

    @property
    def failing(self) -> list[JudgedRun]:
        """The runs whose own log fails."""
        return [run for run in self.runs if run.verdict == FAIL]

    @property
    def batch_size(self) -> Any:
        """The global batch size if all runs that state one agree on it, else None; 512 for 512.0."""
        sizes = {identity(run.batch_size): run.batch_size for run in self.runs if is_stated(run.batch_size)}
        return to_plain(next(iter(sizes.values()))) if len(sizes) == 1 else None

    def list_copies(self, kind: str) -> list[tuple[Any, Any]]:
        """Return the pairs of runs, or for POWER of power files, in which the second is a copy of this kind."""
        return [pair for copies in self.copies if copies.kind == kind for pair in copies.pairs]

    @property
    def energy_joules(self) -> float | None:
        """Energy that belongs to the score, in joules; None without score or measurement."""
        return self.score.energy_joules if self.score else None

    @property
    def system_scale(self) -> int | None:
        """Accelerators of the system, or its host processors if it has none; None if unknown."""
        return self.description.scale if self.description else None

    @property
    def instance_scale(self) -> int | None:
        """Accelerators of one instance: as the logs state, or where they state the whole system, T / M of the rules."""
        stated = self.stated_scale
        if stated is None or not self.states_whole_system:
            return stated
        return stated // self.at_once or None

    @property
    def states_whole_system(self) -> bool:
        """Whether the log of each of several simultaneous instances states the size of the whole system."""
        may_state = self.scaling == WEAK and self.strict and self.stated_scale is not None
        return may_state and self.stated_scale == self.system_scale and self.at_once > 1

    @property
    def at_once(self) -> int:
        """The largest number of instances that were active at the same time, including pruned and broken ones."""
        return most_at_once(self.all_runs, end_ms=float("inf"))

    @property
    def stated_scale(self) -> int | None:
        """Accelerators of one run (host processors of a system without), as its log states, if all undamaged agree."""
        runs = [run for run in self.runs if not run.damage]
        scale: int | None = shared_value(run.scale for run in runs)
        if scale is None or not self.strict or self.description is None or runs[0].accelerators_per_node:
            return scale
        return scale * (self.description.count("host_processors_per_node") or 1)


class Copies(Struct, frozen=True):
    """Pairs of runs (for POWER: of power files), of which each has intervals, results or readings of the other.

    kind: TIMES, VALUES or POWER. first, second: the results that the runs belong to, the same one for copies inside it.
    """

    kind: str
    first: ResultSet
    second: ResultSet
    pairs: list[tuple[Any, Any]] = []


def names_of(runs: Sequence[JudgedRun]) -> str:
    """Return the file names of runs, the first four of many."""
    return list_some([os.path.basename(run.path) for run in runs], 4)
