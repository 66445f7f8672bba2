"""An organisation's submission folder as the rules see it: system descriptions, result sets, findings."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from common.tree import ANYWHERE, Tree
from compliance.logs.personal_data import Mention
from compliance.model.finding import Finding, worst
from compliance.model.layout import BENCHMARKS, SYSTEMS
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
    whole: all its results are judged, and it itself; else only what concerns those that are.
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
    whole: bool = True
    mentions: dict[str, list[Mention]] = {}
    findings: list[Finding] = []

    def path(self, entry: PackageEntry) -> str:
        """Return where an entry of the contents is."""
        return posixpath.join(self.root, entry.path)

    def match_results(self, findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[ResultSet]]]:
        """Yield each finding with the results in whose folder or code, or above these, or in whose description it is.

        In linear time: a package may have thousands of results.
        """
        own: dict[str, list[ResultSet]] = defaultdict(list)
        above: dict[str, list[ResultSet]] = defaultdict(list)
        for results in self.sets:
            own[posixpath.join(self.root, SYSTEMS, f"{results.system}.json")].append(results)
            code = posixpath.join(self.root, BENCHMARKS, results.folder_benchmark, results.system)
            for folder in (results.folder, code):
                own[folder].append(results)
                for outer in _list_outer(folder):
                    above[outer].append(results)
        above.pop(self.root, None)
        for finding in findings:
            matches = [*above.get(finding.path, ()), *own.get(finding.path, ())]
            matches += [results for outer in _list_outer(finding.path) for results in own.get(outer, ())]
            yield finding, list({id(results): results for results in matches}.values())

    @property
    def strict(self) -> bool:
        """Whether the written rules apply."""
        return self.profile == "strict"

    @property
    def verdict(self) -> str:
        """PASS, WARN, INCOMPLETE or FAIL of the folder's own findings, its results and their logs."""
        return worst(self.decisive_findings())

    def decisive_findings(self) -> list[Finding]:
        """Return its findings, those of its results and of their logs as they count for the verdict."""
        return [*self.findings, *(finding for results in self.sets for finding in results.decisive_findings())]


def _list_outer(path: str) -> list[str]:
    """Return the folders that a path is in."""
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


class Submissions(Struct, frozen=True):
    """Everything checked in one call: packages, perhaps of several rounds; and the waivers that were given.

    copies: runs or power files of one result that have the contents of another's.
    """

    packages: list[Package]
    sets: list[ResultSet]
    profile: str
    waivers: Mapping[str, Waiver] = {}
    copies: list[Copies] = []
