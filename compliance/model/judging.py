"""What judges and what is judged: the case (round, profile, division, benchmark), the findings, and the judged run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from common.reference import COMMON_SETTINGS, FULL, OPEN_SETTINGS, Reference, Setting
from common.rounds import TRAINING, find_usage
from compliance.benchmarks import benchmarks_of, reference_of
from compliance.logs.official import OfficialReading
from compliance.logs.power import RunPower
from compliance.logs.run import Run

STRICT: Final = "strict"
OFFICIAL: Final = "official"
PROFILES: Final = (STRICT, OFFICIAL)


class Case(Struct, frozen=True):
    """What a log or a result is judged by; can be sent to another process.

    Before its logs are read it holds what the user asks for and what folder and system description say; the logs
    complete it. division and benchmark are None where nothing states them. variant: "full" or the name of a mini
    problem. suite_code: the package says that this suite made the log. round_why: how the round was chosen, see
    `compliance.model.layout`. rules_folder: of the committee's rule files, by which logs of MLPerf Training are judged;
    "" if there are none.
    """

    round: str
    profile: str = STRICT
    division: str | None = None
    benchmark: str | None = None
    variant: str = FULL
    allow_mini: bool = False
    suite_code: bool = False
    round_why: str = ""
    rules_folder: str = ""

    @property
    def usage(self) -> str:
        """The suite of its round: HPC or TRAINING."""
        return find_usage(self.round)

    @property
    def strict(self) -> bool:
        """Whether the written rules apply; otherwise only what the official tool checks."""
        return self.profile == STRICT

    @property
    def reference(self) -> Reference | None:
        """The facts of the benchmark; None if there is no such benchmark, or no mini problem of it."""
        if self.usage == TRAINING:
            from compliance.committee.facts import find_facts  # HPC's logs do not pay for it

            return find_facts(self.rules_folder, self.round, self.benchmark, self.division or "closed")
        return reference_of(self.benchmark, self.variant)

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The names of the benchmarks of the round."""
        if self.usage == TRAINING:
            from compliance.committee.facts import list_benchmarks

            return list_benchmarks(self.rules_folder, self.round)
        return benchmarks_of(self.round)

    @property
    def committee_keys(self) -> frozenset[str]:
        """The keys that the committee's rule files of the round name; none for a round of HPC."""
        if self.usage != TRAINING:
            return frozenset()
        from compliance.committee.rounds import list_keys

        return list_keys(self.rules_folder, self.round)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings that a log of this division may state; of an unknown benchmark, those that all have."""
        if self.usage == TRAINING:
            return self.reference.settings if self.reference else ()
        benchmark = self.benchmark if self.reference else None  # a plug-in may be refused in the next check
        return _settings_of(benchmark, self.variant, self.round, self.division)


@lru_cache(maxsize=64)
def _settings_of(benchmark: str | None, variant: str, round_: str, division: str | None) -> tuple[Setting, ...]:
    reference = reference_of(benchmark, variant)
    if reference is None or division is None:
        common = COMMON_SETTINGS if division == "closed" else ()
        return (*(setting for setting in common if round_ in setting.rounds), *OPEN_SETTINGS)
    return reference.settings_of(round_, division)


ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
SKIPPED: Final = "skipped"
SEVERITIES: Final = (ERROR, WARNING, NOTE, SKIPPED)
PASS: Final = "PASS"
WARN: Final = "WARN"
INCOMPLETE: Final = "INCOMPLETE"
FAIL: Final = "FAIL"
PARTIAL: Final = "PARTIAL"
"""What takes the place of PASS and WARN where rules were left out."""
PASSING: Final = (PASS, WARN, PARTIAL)
"""The verdicts that a result may be submitted with."""
FAIL_ON: Final = {
    "error": (ERROR,),
    "warning": (ERROR, WARNING),
    "note": (ERROR, WARNING, NOTE),
    "partial": (ERROR, PARTIAL),
    "warning,partial": (ERROR, WARNING, PARTIAL),
    "note,partial": (ERROR, WARNING, NOTE, PARTIAL),
}
"""Severities of findings, and verdicts, that give the exit status 1, by what the user asks for."""
BENCHMARK_RULE = "SET02"
"""The rule that a log names a benchmark; it also says that a log is of another suite."""
COMMITTEE_RULE: Final = "COM01"
"""The rule that the committee's rule files are."""
NOT_A_RESULT: Final = "not judged as a result"
"""What is said of logs that were judged one by one."""
LOOSE_RULE: Final = "RUN24"
"""The rule that loose logs can be told apart into results; of others in their folder nothing else is judged."""
OFFICIAL_RULE: Final = "OFFICIAL"
"""The rule that tells where the official tool refuses what the written rules accept."""


class Finding(NamedTuple):
    """One thing that a rule found.

    path, line: where (line counts from 1; 0 means the file or folder as a whole).
    key: the log key that it is about, if any. expected: what would have been right, in words.
    incomplete: of an error that says only that runs are missing, which their submitter can still make.
    fix: how to fix this one, where the rule's own text does not fit; cause: the rule whose finding it follows from.
    """

    rule: str
    severity: str
    path: str
    line: int
    message: str
    expected: str = ""
    key: str = ""
    incomplete: bool = False
    fix: str = ""
    cause: str = ""


def lower_errors(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of a tolerated run as they count for the verdict: errors are warnings."""
    yield from (finding._replace(severity=WARNING) if finding.severity == ERROR else finding for finding in findings)


def worst(findings: Iterable[Finding]) -> str:
    """Return the verdict: FAIL with an error, INCOMPLETE if runs are missing, WARN with a warning, else PASS."""
    kinds = {(finding.severity, finding.incomplete) for finding in findings}
    if (ERROR, False) in kinds:
        return FAIL
    if (ERROR, True) in kinds:
        return INCOMPLETE
    return WARN if any(severity == WARNING for severity, _ in kinds) else PASS


def few(findings: Iterable[Finding], most: int = 20) -> Iterator[Finding]:
    """Yield the first findings of one kind, and a count of the others."""
    kept = list(findings)
    yield from kept[:most]
    if len(kept) > most:
        yield kept[most]._replace(message=f"and {len(kept) - most} more such findings, starting with this one")


def choose_texts(cases: Iterable[tuple[object, str]]) -> list[str]:
    """Return the texts that apply. cases: whether each applies, and its text."""
    return [text for applies, text in cases if applies]


def first_text(cases: Iterable[tuple[object, str]]) -> str:
    """Return the first text that applies, "" if none does. cases: whether each applies, and its text."""
    return next(iter(choose_texts(cases)), "")


class JudgedRun(Run, frozen=True, kw_only=True):
    """What one log says, and how it was judged.

    case: what it was judged by. power: what its power files say, None without them.
    findings: of the rules about logs; ignored: those that do not count, with the reason.
    only_rule: that was applied to a file that is no log of MLPerf HPC, else "".
    parsed_clean: the official tools could decode every record. official: what else these tools read; None in the
    profile strict. by_official: the same run judged by the profile official, where that was asked for.
    repaired_minutes: time to train of a damaged log once it is repaired; None if it is unknown.
    """

    case: Case
    power: RunPower | None = None
    findings: list[Finding] = field(default_factory=list)
    ignored: list[tuple[Finding, str]] = field(default_factory=list)
    only_rule: str = ""
    parsed_clean: bool = True
    official: OfficialReading | None = None
    repaired_minutes: float | None = None
    by_official: JudgedRun | None = None

    @property
    def round(self) -> str:
        """The round by whose rules it was judged."""
        return self.case.round

    @property
    def division(self) -> str | None:
        """The division by whose rules it was judged."""
        return self.case.division

    @property
    def verdict(self) -> str:
        """PASS, WARN or FAIL from the rules about the log itself."""
        return worst(self.findings)

    @property
    def damage(self) -> Finding | None:
        """What says that the file is damaged, so that it tells little of the run; None in the profile official."""
        if not self.case.strict:
            return None
        # These find a file damaged as a whole; on it no rule about its records is applied.
        rules = (self.only_rule,) if self.only_rule else ("FRM01", "FRM02", "FRM03", "FRM09", "FRM10")
        return next((finding for finding in self.findings if finding.rule in rules and finding.severity == ERROR), None)

    @property
    def energy_joules(self) -> float | None:
        """Energy of nodes and switches from run_start to run_stop, in joules; None if it was not measured."""
        return self.power.joules if self.power else None

    @property
    def total_inflated_bytes(self) -> int:
        """What was read of the compressed log and its compressed power files."""
        return self.inflated_bytes + (self.power.inflated_bytes if self.power else 0)


def add_judgement(run: Run, case: Case, **judgement: Any) -> JudgedRun:
    """Return a run that was read with what it was judged by, and the other fields of `JudgedRun`."""
    return JudgedRun(**{name: getattr(run, name) for name in Run.__struct_fields__}, case=case, **judgement)
