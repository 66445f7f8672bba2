"""A run and the judgement on it: what the log and the power files say, by what the log was judged, what rules found."""

from __future__ import annotations

from typing import Any, Final

from msgspec import field

from compliance.logs.official import OfficialReading
from compliance.logs.power import RunPower
from compliance.logs.run import Run
from compliance.model.case import Case
from compliance.model.finding import ERROR, Finding, worst

DAMAGE_RULES: Final = ("FRM01", "FRM02", "FRM03", "FRM09", "FRM10")
"""Rules that find a file damaged as a whole; on it no rule about its records is applied."""

OTHER_SUITE: Final = "SET02"
"""The rule that says that a log is of another suite."""


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
        rules = (self.only_rule,) if self.only_rule else DAMAGE_RULES
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
