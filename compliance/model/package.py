"""An organisation's submission folder as the rules see it: system descriptions, result sets, findings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from common.tree import ANYWHERE, Tree
from compliance.logs.personal_data import Mention
from compliance.model.finding import Finding, worst
from compliance.model.package_files import PackageEntry
from compliance.model.parameters import Bypass
from compliance.model.result_set import Copies, ResultSet
from compliance.model.system import SystemDescription
from compliance.model.waivers import Waiver


@dataclass(slots=True)
class Package:
    """One organisation's folder.

    flat: results/<system>/<benchmark> as in round 0.7. unexpected: folders that fit no layout, with what was
    expected there. contents: every file, folder and link below the root. bypasses: lines of its parameter files that
    ask to leave checks out. crashes: paths on which the official tool ends with a traceback, and why; in the profile
    strict only those of files beside the logs. tree: reads its files.
    mentions: personal data and secrets in its texts, by path; None before they are searched.
    """

    root: str
    organisation: str
    round: str
    profile: str
    flat: bool
    sets: list[ResultSet] = field(default_factory=list)
    descriptions: dict[str, SystemDescription] = field(default_factory=dict)
    unexpected: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    contents: list[PackageEntry] = field(default_factory=list)
    bypasses: list[Bypass] = field(default_factory=list)
    crashes: list[tuple[str, str]] = field(default_factory=list)
    tree: Tree = ANYWHERE
    mentions: dict[str, list[Mention]] | None = None
    findings: list[Finding] = field(default_factory=list)

    def path(self, entry: PackageEntry) -> str:
        """Return where an entry of the contents is."""
        return os.path.join(self.root, entry.path)

    @property
    def strict(self) -> bool:
        """Whether the written rules apply."""
        return self.profile == "strict"

    @property
    def verdict(self) -> str:
        """PASS, WARN, INCOMPLETE or FAIL of the folder's own findings and its result sets."""
        return worst([*self.findings, *(f for results in self.sets for f in results.findings)])


@dataclass(slots=True)
class Submissions:
    """Everything checked in one call: packages, perhaps of several rounds; and the waivers that were given.

    copies: runs or power files of one result that have the contents of another's.
    """

    packages: list[Package]
    sets: list[ResultSet]
    profile: str
    waivers: Mapping[str, Waiver] = field(default_factory=dict)
    copies: list[Copies] = field(default_factory=list)
