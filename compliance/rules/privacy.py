"""Rules about personal data and secrets, found by `compliance.logs.privacy`.

Of the 1,545 published logs, 60 name a home directory (45 of round 0.7, 15 of 1.0), each in the source files of its
records. The only mail addresses, in 809 logs, are those of the contact, for which mlperf-logging has a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from common.command import list_some
from common.values import group_pairs
from compliance.logs.log import Log
from compliance.logs.privacy import KINDS, MAIL, PASSWORD, Mention, Watch, secrets
from compliance.model.judging import ERROR, NOTE, SKIPPED, WARNING, Case, Finding, few
from compliance.model.layout import IMPLEMENTATIONS, RESULTS, is_log, is_script
from compliance.rules.rule import LogRule, PackageRule

if TYPE_CHECKING:
    from compliance.model.package import Package  # only packages pay for it
    from compliance.model.package_files import PackageEntry

PRIVACY = "submission_rules.adoc#publication (code and results are public)"
LARGEST_TEXT = 256 << 10
MOST_BYTES = 32 << 20
LETTERS = bytes(range(82, 64, -1))
"""The body of a token, for examples."""
CREDITS = (
    r"(?i)(licen[cs]e|copying|copyright|legal|notice|patents|third.?party|authors|maintainers|contributors|citation"
    r"|credits|acknowledg)"
)
"""Files whose purpose is to name people."""
CREDIT = (
    rb"(?i)copyright|\(c\)|\xc2\xa9|licen[cs]e|(?:\b|_)(?:author|maintainer|contributor|credit)"
    rb"|\b(?:written|modified) by\b"
)
"""Lines that credit or license something: whoever passes the code on must leave the names in them."""


class NoPersonalDataInLogs(LogRule, strict_only=True):
    """A log contains neither a mail address nor a home directory."""

    id = "PRV01"
    severity = WARNING
    cite = PRIVACY
    differs = "no official tool looks for personal data"
    why = "Logs are published for good; addresses get harvested, and a home directory reveals an account name."
    once = True
    fix = "Remove them from the submitted copy: `mlperf-hpc submit assemble … --redact`."
    good = (lambda log: log().prefix(b"0: "),)
    bad = (lambda log: log().add("notice", "mail jane.doe@example.org when it ends"),)

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        for mention in log.personal:
            if mention.contact:
                message = f"submission_poc_email states a contact: {mention.text}"
                yield self.finding(log.path, mention.line, message, "an address meant to be public", severity=NOTE)
            else:
                yield self.finding(log.path, mention.line, _mention_text(mention), "no personal data")


class NothingPrivateInFiles(PackageRule, strict_only=True):
    """System descriptions, code and other files contain no mail address, home directory, private key or password."""

    id = "PRV02"
    severity = WARNING
    cite = PRIVACY
    differs = "no official tool looks for personal data and secrets"
    why = (
        "The folder is published for good: whoever finds a key or token in it can use it, and paths of one account do"
        " not work for others."
    )
    fix = "Name a role, not a person; take paths from variables; credits in licence and author lines may stay."
    good = (lambda package: package().replace("benchmarks/cosmoflow/AUTHORS", b"Jane Doe <jane.doe@example.org>"),)
    bad = (lambda package: package().replace("benchmarks/cosmoflow/a.sh", b"TOKEN=ghp_" + LETTERS * 2),)

    def check(self, package: Package) -> Iterator[Finding]:
        entries, left_out = _texts_to_search(package)
        if left_out:
            reason = f"personal data and secrets in the last {left_out} files: {MOST_BYTES >> 20} MiB were read"
            yield self.finding(package.root, 0, reason, severity=SKIPPED)
        mentions = [(package.path(entry), mention) for entry in entries for mention in _find_mentions(entry, package)]
        alike = group_pairs(  # of a kind, and in a folder that may be of one result: benchmarks/<benchmark>
            (
                (mention.kind, _names_author(path, mention), *path.removeprefix(package.root).split("/")[:3]),
                (path, mention),
            )
            for path, mention in mentions
            if mention.kind in KINDS
        )
        for pairs in alike.values():
            (path, mention), places = pairs[0], [f"{os.path.basename(path)}:{each.line}" for path, each in pairs]
            yield self.finding(
                path,
                mention.line,
                _mention_text(mention) + (f", one of {len(pairs)} lines: {list_some(places)}" if pairs[1:] else ""),
                "no personal data",
                severity=NOTE if _names_author(path, mention) else WARNING,
            )
        yield from few(self._describe_secret(path, mention) for path, mention in mentions if mention.kind not in KINDS)

    def _describe_secret(self, path: str, mention: Mention) -> Finding:
        is_password = mention.kind.startswith(PASSWORD)
        message = f"a secret: a {mention.kind}" + ("" if is_password else f", starting with {mention.text}")
        severity = WARNING if is_password else ERROR
        fix = "Revoke it first: it may be known already. Then take it from a variable or a file outside the package."
        return self.finding(path, mention.line, message, "no secrets", "", severity, fix)


def _texts_to_search(package: Package) -> tuple[list[PackageEntry], int]:
    """Return the texts to search, those among the results last, and how many are left out as there is too much."""
    # Personal data in logs is found when they are read: PRV01.
    small = [entry for entry in package.contents if entry.is_file and 0 < entry.size <= LARGEST_TEXT]
    texts = [entry for entry in small if not is_log(entry.path)]
    texts.sort(key=lambda entry: entry.path.startswith(f"{RESULTS}/"))
    read = accumulate(entry.size for entry in texts)
    first = [entry for entry, size in zip(texts, read, strict=True) if size <= MOST_BYTES]
    return first, len(texts) - len(first)


def _names_author(path: str, mention: Mention) -> bool:
    """Tell whether it is a mail address in code, where most are those of its authors; scripts are the submitter's."""
    return mention.kind == MAIL and f"/{IMPLEMENTATIONS}/" in path and not is_script(path)


def _mention_text(mention: Mention) -> str:
    return f"personal data: the {mention.kind} {mention.text}"


def _find_mentions(entry: PackageEntry, package: Package) -> list[Mention]:
    mentions: list[Mention] = []
    text = package.tree.begin(package.path(entry), LARGEST_TEXT)
    if b"\0" not in text[:1024]:
        if not re.match(CREDITS, entry.name):
            # Mail addresses in lines that credit or license something may stay.
            lines = text.split(b"\n") if b"@" in text else [text]
            unseen = [line.replace(b"@", b" ") if b"@" in line and re.search(CREDIT, line) else line for line in lines]
            Watch(mentions).look(b"\n".join(unseen), 1)
        mentions += secrets(text)
    return mentions
