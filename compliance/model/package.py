"""An organisation's submission folder as the rules see it: system descriptions, result sets, findings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from common.tree import ANYWHERE, Tree
from compliance.logs.personal_data import Mention
from compliance.model.finding import Finding, worst
from compliance.model.package_files import Bypass, Code, PackageEntry
from compliance.model.result_set import Copies, ResultSet
from compliance.model.system import SystemDescription
from compliance.model.waivers import Waiver


class Package(Struct, frozen=True):
    """One organisation's folder.

    flat: results/<system>/<benchmark> as in round 0.7. unexpected: folders that fit no layout, with what was
    expected there. contents: every file, folder and link below the root; code: those in benchmarks/. bypasses: lines of
    its parameter files that ask to leave checks out. crashes: paths on which the official tool ends with a traceback,
    and why; in the profile strict only those of files beside the logs. tree: reads its files.
    mentions: personal data and secrets by the path of each text that was searched: what the rules about them share.
    """

    root: str
    organisation: str
    round: str
    profile: str
    flat: bool
    sets: list[ResultSet] = []
    descriptions: dict[str, SystemDescription] = {}
    unexpected: list[tuple[str, str]] = []
    missing: list[str] = []
    contents: list[PackageEntry] = []
    code: Code = Code()
    bypasses: list[Bypass] = []
    crashes: list[tuple[str, str]] = []
    tree: Tree = ANYWHERE
    mentions: dict[str, list[Mention]] = {}
    findings: list[Finding] = []

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


class Submissions(Struct, frozen=True):
    """Everything checked in one call: packages, perhaps of several rounds; and the waivers that were given.

    copies: runs or power files of one result that have the contents of another's.
    """

    packages: list[Package]
    sets: list[ResultSet]
    profile: str
    waivers: Mapping[str, Waiver] = {}
    copies: list[Copies] = []
