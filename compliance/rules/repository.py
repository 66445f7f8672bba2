"""Rules about a submission folder as part of a repository: names, sizes, links, and files that do not belong there."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator

from common.command import list_some
from common.record import TOKEN
from common.values import group_pairs
from compliance.model.judging import ERROR, NOTE, WARNING, Finding, few
from compliance.model.layout import MAX_FILE_BYTES, RESULTS, SYSTEMS, is_judged_file
from compliance.model.package import Package
from compliance.model.package_files import FOLDER, LINK, MOST, OTHER, PackageEntry
from compliance.rules.rule import PackageRule

LOG_NAME = re.compile(r"(?:result_.*|(?:result|run)[_-]\d+)\.txt(?:\.gz)?", re.IGNORECASE)
LONGEST_PATH = 200
OF_TESTS = re.compile(r"benchmarks/[^/]+/implementations/(?:[^/]+/)+tests?/")
"""Logs there are samples."""
RESERVED = re.compile(r"(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?", re.IGNORECASE)
LEFT_OVER = re.compile(
    r"(?P<cache>__pycache__|.*\.egg-info|Thumbs\.db)|(?P<compiled>.*\.(?:py[co]|o|obj|class))"
    r"|(?P<mac>\.DS_Store|\._.*|__MACOSX)|(?P<core>core(?:\.[0-9]+)?)|(?P<weights>.*\.(?:ckpt|pth?|safetensors))"
    r"|(?P<copy>.*(?:~|\.bak|\.orig|\.rej|\.swp))|(?P<log>.*\.(?:log|out))"
)
KINDS = {
    "cache": (
        "a by-product of a tool",
        r"find . \( -name __pycache__ -o -name '*.egg-info' -o -name Thumbs.db \) -prune -exec rm -r {} +",
    ),
    "compiled": ("compiled code", r"find . -type f -regex '.*\.\(py[co]\|o\|obj\|class\)' -delete"),
    "mac": (
        "metadata of macOS, no part of the submission",
        r"find . \( -name '._*' -o -name .DS_Store -o -name __MACOSX \) -prune -exec rm -r {} +",
    ),
    "core": ("a core dump, which contains the memory of a process", ""),
    "weights": ("a checkpoint among the results", ""),
    "copy": ("a copy made by an editor or merge tool", ""),
    "log": ("an empty log", ""),
}
"""What each kind is, and a command that deletes it."""


class RepositoryRule(PackageRule):
    """Base of the rules about what a repository may contain."""

    cite = "repo_checker of mlcommons/logging; submission_rules.adoc#submission-structure"
    differs = "no official tool checks this"


class RepositoryNames(RepositoryRule, strict_only=True):
    """Files have reasonable sizes and plain names, which every file system can store; links have a target."""

    id = "PKG10"
    differs = "the official repository checker is a separate tool; it reports valid relative links as broken"
    why = (
        "The committee's repository checker refuses such files; published packages have some with a leading dot."
        " Elsewhere the checkout may fail, or one of two files silently replace the other."
    )
    fix = (
        "Use letters a-z, digits, dot, dash, underscore and plus, without a leading dot; do not let names differ only"
        " in case; keep data and checkpoints out; fix links."
    )
    good = (lambda package: package().link("../latest", "cosmoflow"),)
    bad = (lambda package: package().file("../my notes.txt", "x"),)

    def check(self, package: Package) -> Iterator[Finding]:
        yield from few(
            self.finding(package.path(entry), 0, f"name with a space: {entry.name!r}", "a plain name", severity=WARNING)
            for entry in package.contents
            if " " in entry.name and _left_over(entry) != "mac"
        )
        hidden = [entry for entry in package.contents if entry.name.startswith(".") and _left_over(entry) != "mac"]
        if hidden:
            message = f"names with a leading dot: {list_some(sorted({entry.name for entry in hidden}))}"
            yield self.finding(package.path(hidden[0]), 0, message, "plain names", severity=NOTE)
        fix = "Put the file itself there, a copy instead of the link."
        yield from few(
            self.finding(package.path(entry), 0, "the target of the link does not exist", "an existing file", fix=fix)
            for entry in package.contents
            if entry.kind == LINK and not os.path.isabs(entry.target) and not os.path.exists(package.path(entry))
        )
        yield from few(
            self.finding(package.path(entry), 0, "the file is larger than 50 MiB", "at most 50 MiB")
            for entry in package.contents
            if entry.size > MAX_FILE_BYTES
        )
        if len(package.contents) >= MOST:
            message = f"contains more than {MOST:,} files and folders: the rest was not checked"
            yield self.finding(package.root, 0, message, "a few thousand at most", severity=WARNING)
        yield from few(self._find_alike(package))
        yield from few(self._find_unportable(package))

    def _find_alike(self, package: Package) -> Iterator[Finding]:
        alike = group_pairs(((entry.folder, entry.name.casefold()), entry) for entry in package.contents)
        for entries in alike.values():
            if len(entries) > 1:
                names = " and ".join(repr(entry.name) for entry in entries)
                yield self.finding(
                    package.path(entries[0]), 0, f"{names} differ only in case", "different names", severity=WARNING
                )

    def _find_unportable(self, package: Package) -> Iterator[Finding]:
        for entry in package.contents:
            if re.search(r'[^ -~]|[<>:"|?*\\]|\.$', entry.name) or RESERVED.fullmatch(entry.name):
                message = f"not every file system can store the name {entry.name!a}"
                expected = "letters a-z, digits, dot, dash, underscore, plus"
                yield self.finding(package.path(entry), 0, message, expected, severity=WARNING)
            elif len(entry.path) > LONGEST_PATH and entry.kind != FOLDER:
                message, expected = (
                    f"the path has {len(entry.path)} characters",
                    f"at most {LONGEST_PATH} below the package",
                )
                yield self.finding(package.path(entry), 0, message, expected, severity=WARNING)


class JudgedFiles(RepositoryRule):
    """Only files inside the package are judged, and no link leads out of it; it has only files, folders and links."""

    id = "PKG33"
    differs = "the official tool follows links to anywhere, and waits for ever at a pipe; strict looks at code as well"
    why = (
        "A link out of the results is not followed, so its target is not judged; on another machine, links that are"
        " absolute or leave the package break, or lead to something else."
    )
    fix = "Copy the file itself into the package, on the machine that has the link's target: cp -L, rsync -L, tar -h."
    good = (lambda package: package().link("../latest", "cosmoflow"),)
    bad = (lambda package: package().link("result_11.txt", "/var/log/result_1.txt"),)

    def check(self, package: Package) -> Iterator[Finding]:
        yield from few(
            self.finding(package.path(entry), 0, f"{why}: not read", "a file of the package")
            for entry in package.contents
            if (why := _not_judged(entry, package))
        )
        others = (entry for entry in package.contents if package.strict and not _not_judged(entry, package))
        yield from few(finding for entry in others for finding in self._check_other(entry, package))

    def _check_other(self, entry: PackageEntry, package: Package) -> Iterator[Finding]:
        fix = "Replace the link by its target, or make it relative: ln -s ../implementations/torch/setup.sh setup.sh."
        is_link, is_absolute = entry.kind == LINK, os.path.isabs(entry.target)
        leaves = is_link and not is_absolute and _leads_out(entry, package)
        yield from (
            self.finding(package.path(entry), 0, message, expected, "", severity, advice)
            for applies, message, expected, severity, advice in (
                (entry.kind == OTHER, "is not a file, folder or link", "a file", ERROR, ""),
                (is_link and is_absolute, f"absolute link to {entry.target!r}", "a relative link", ERROR, fix),
                (leaves, f"the link leaves the package: {entry.target!r}", "a link inside the package", WARNING, fix),
            )
            if applies
        )


def _not_judged(entry: PackageEntry, package: Package) -> str:
    """Return why an entry that results and systems should be read from is not; "" for any other entry."""
    if entry.is_file:
        return ""
    if entry.kind == FOLDER:
        # The official tool sees only some of them: PKG01.
        return "is a folder, not a file" if package.strict and is_judged_file(entry.path) else ""
    if entry.path.partition("/")[0] not in (RESULTS, SYSTEMS):
        return ""
    if entry.kind == OTHER:
        return "is not a file, folder or link"
    return f"the link leaves the package, to {entry.target!r}" if _leads_out(entry, package) else ""


def _leads_out(entry: PackageEntry, package: Package) -> bool:
    """Tell whether a link leads out of the package, by its text or through other links."""
    target = posixpath.normpath(posixpath.join(entry.folder, entry.target))
    return target.split("/")[0] in ("..", "") or package.tree.leads_out(package.path(entry))


class NothingUnread(RepositoryRule, strict_only=True):
    """No results lie in the package where nothing reads them."""

    id = "PKG36"
    severity = WARNING
    why = "A second submission inside another is neither judged nor counted, but published with it."
    fix = "Move the submission beside this one, its results into this one's results/, or leave it out."
    good = (lambda package: package().replace("benchmarks/cosmoflow/implementations/torch/result_1.txt", b"0.124"),)
    bad = (lambda package: package().replace("more/results/a/strong/oc20/result_1.txt", b":::MLLOG {}"),)

    def check(self, package: Package) -> Iterator[Finding]:
        systems = {entry.folder for entry in package.contents if entry.kind == FOLDER and entry.name == SYSTEMS}
        outside = [entry for entry in package.contents if not f"{entry.path}/".startswith(f"{RESULTS}/")]
        logs = [entry for entry in outside if _is_log(entry, package)]
        nested = [entry for entry in outside if entry.name == RESULTS and entry.folder in systems]
        folders = group_pairs(
            (entry.path.rpartition(f"/{RESULTS}/")[0] or entry.folder, entry.path) for entry in logs + nested
        )
        yield from few(
            self.finding(
                posixpath.join(package.root, folder),
                0,
                f"result logs where no tool reads them: {paths[0]}",
                f"results only below {RESULTS}/",
            )
            for folder, paths in folders.items()
        )


def _is_log(entry: PackageEntry, package: Package) -> bool:
    """Tell whether a file has the name of a result log and begins like one."""
    if not entry.is_file or not LOG_NAME.fullmatch(entry.name) or OF_TESTS.match(entry.path):
        return False
    return entry.name.lower().endswith(".gz") or TOKEN in package.tree.begin(package.path(entry), 16 << 10)


class NothingLeftOver(RepositoryRule, strict_only=True):
    """The package contains no caches, compiled code, core dumps, editor copies or empty logs."""

    id = "PKG32"
    severity = WARNING
    why = "They hide what matters, and a core dump may contain passwords."
    fix = "Delete them; of copies, make sure first that each original is there and whole."
    good = (lambda package: package().replace("benchmarks/cosmoflow/implementations/torch/core/a.py", b"x"),)
    bad = (lambda package: package().replace("benchmarks/cosmoflow/implementations/torch/__pycache__/a.pyc", b"x"),)

    def check(self, package: Package) -> Iterator[Finding]:
        yield from few(self._left_over(package))

    def _left_over(self, package: Package) -> Iterator[Finding]:
        inside = "\0"  # inside a folder that is reported as a whole
        for entry in package.contents:
            kind = _left_over(entry)
            if kind and not entry.path.startswith(inside):
                inside = f"{entry.path}/" if entry.kind == FOLDER else inside
                name, command = KINDS[kind]
                fix = f"Delete them, in the folder of the package:\n$ {command}" if command else ""
                yield self.finding(package.path(entry), 0, f"left over: {name}", "not in the package", fix=fix)


def _left_over(entry: PackageEntry) -> str:
    """Return its kind, a key of `KINDS`, or ""."""
    match = LEFT_OVER.fullmatch(entry.name)
    kind = match.lastgroup if match else None
    if kind is None or (kind not in ("cache", "mac") and not entry.is_file):
        return ""
    among_results = entry.path.startswith(f"{RESULTS}/")
    if (kind == "log" and (entry.size or among_results)) or (kind == "weights" and not among_results):
        return ""  # other rules read the results
    return kind
