r"""Find personal data in text: mail addresses, and home directories, which contain account names.

Only these two are found, anywhere in a text of any format; real names, host names and project folders are not.
Home directories are /home/NAME and variants (/home2/j/NAME, /gpfs/home/NAME), /Users/NAME, /users/NAME and
C:\Users\NAME, not site-specific folders. Generic accounts (/home/user, /root, noreply@…, git@…) are not personal
data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

MAIL: Final = "mail address"
HOME: Final = "home directory"
KINDS: Final = (MAIL, HOME)
CONTACT: Final = b'"submission_poc_email"'
Span = tuple[int, int, str]

# An address is found by its @, which few lines have. The top-level domain must be a country or a common one, or
# Python (`q @k.weight`) and versions (`hdf5@1.10.rc`) would look like addresses. If a path or a call follows, it is a
# clone URL (git@example.org:suite), a container or code.
_DOMAIN: Final = (
    rb"@(?<=[0-9A-Za-z_-]@)(?!(?:[0-9]+\.)+[a-z]{2}\b)(?:[0-9A-Za-z-]{1,63}+\.){1,8}"
    rb"(?i:[a-z]{2}|com|org|net|edu|gov|mil|int|info|biz|name|dev|cloud|tech|science|energy|institute|academy|email)"
    rb"(?![\w(\[/-]|\.[0-9a-z]|:[\w~/.])"
)
_LOCAL: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.%+-"
_LONGEST_LOCAL: Final = 64
_STRETCH: Final = 4 << 10
_ESCAPE: Final = re.compile(rb"u[0-9A-Fa-f]{4}|[nrtbf]")
_NOBODYS_MAIL: Final = (
    rb"(?i:no-?reply|do-?not-?reply|git|ci|root|admin|info|support|contact|help|security|legal|press|ipo|mlperf)@"
    rb"|[^@]*@(?:[^@]*\.)?no-?reply\."
)
"""Addresses of machines and of roles."""

_NOBODYS_HOME: Final = (
    rb"users?|user_?name|your_name|name|you|someone|nobody|guest|root|admin|administrator|default|public|shared?|all|"
    rb"everyone|projects?|work|data|scratch|software|apps|runner|ubuntu|debian|centos|rocky|ec2-user|opc|azureuser|"
    rb"jovyan|docker|nonroot|vscode|conda|linuxbrew|mpi|mpiuser|mlperf|jenkins|gitlab-runner|"
    rb"circleci|travis|appveyor|buildbot|builder|build|ci|devel|dev|developer"
)
# JSON may write a slash with a backslash, two backslashes for one, and \u00f6 for a letter.
_NAME: Final = (
    rb"(?!(?i:%s)(?![0-9A-Za-z_@+\x80-\xff-]|\.\w))" % _NOBODYS_HOME
    + rb"(?P<name>(?:[0-9A-Za-z_\x80-\xff]|\\u[0-9A-Fa-f]{4})(?:[0-9A-Za-z_.@+\x80-\xff-]|\\u[0-9A-Fa-f]{4})*)"
)
# One literal and one class at the start make it twice as fast as two words. The first letter of the name, or the number
# of a group, may precede the name.
_UNIX_HOME: Final = re.compile(rb"/[hUu](?:ome(?:s|\d{1,2})?|sers)\\?/(?:(?:[A-Za-z]|\d{1,6}|jusers)\\?/)?" + _NAME)
_WINDOWS_HOME: Final = rb"\\(?<=[A-Za-z]:\\)\\?Users\\{1,2}" + _NAME
_BREAKS: Final = b"\t\r\n\v\f\"'`=:,;()[]{}<>|&\\"
_WORDS: Final = bytes.maketrans(_BREAKS, b" " * len(_BREAKS))
_LONGEST_PATH: Final = 256


class Mention(NamedTuple):
    """Personal data in a text: kind, line (from 1), and the part that a report may repeat.

    contact: it is in mlperf-logging's record of the contact, so it is intentional.
    """

    kind: str
    line: int
    text: str
    contact: bool = False


def personal(text: bytes) -> Iterator[Span]:
    r"""Yield (start, end, kind) of each mail address and home directory, in order; they never overlap.

    A home directory ends with the account's name: of /home/jane/data it is /home/jane. The text may be plain or
    JSON; an escape such as \n before an address is not part of it.
    """
    last = 0
    for span in merge(_find_mails(text), _find_homes(text)):
        if span[0] >= last:
            yield span
            last = span[1]


def masked(match: bytes, kind: str) -> str:
    """Return the text with the name cut to its first letter: j…@example.org, /home/j…."""
    text = match.decode("utf-8", "replace")
    if kind == MAIL:
        return f"{text[:1]}…{text[text.rfind('@') :]}"
    name = text.rfind("/" if "/" in text else "\\") + 1
    return f"{text[: name + 1]}…"


class Watch:
    """Collect the first distinct mentions of each kind in a text that comes in pieces of whole lines."""

    DIFFERENT: Final = 3
    ALL: Final = 30
    """After this many mentions of a kind, repeated or not, the search for it ends."""

    def __init__(self, mentions: list[Mention]) -> None:
        self.mentions = mentions
        self._seen: dict[str, set[bytes]] = {kind: set() for kind in KINDS}
        self._left = dict.fromkeys(KINDS, self.ALL)

    def look(self, text: bytes, line: int) -> None:
        """Search further lines, the first of which has this number."""
        self._note_spans(_find_mails(text), MAIL, text, line)
        self._note_spans(_find_homes(text), HOME, text, line)

    def _note_spans(self, spans: Iterator[Span], kind: str, text: bytes, line: int) -> None:
        for start, end, _ in islice(spans, self._left[kind]):
            self._left[kind] -= 1
            excerpt, seen = text[start:end], self._seen[kind]
            if excerpt not in seen and len(seen) < self.DIFFERENT:
                seen.add(excerpt)
                contact = kind == MAIL and CONTACT in text[text.rfind(b"\n", 0, start) + 1 : start]
                at = line + text.count(b"\n", 0, start)
                self.mentions.append(Mention(kind, at, masked(excerpt, kind), contact))


def _find_mails(text: bytes) -> Iterator[Span]:
    begin = text.find(b"@")  # much faster than the pattern
    while begin >= 0:
        find_domains, is_nobodys = re.compile(_DOMAIN).finditer, re.compile(_NOBODYS_MAIL).match  # once, if at all
        line_end = text.find(b"\n", begin + _STRETCH)
        end = line_end if line_end >= 0 else len(text)
        for domain in find_domains(text, begin, end):
            start = _local_start(text, domain.start())
            if start < domain.start() and not is_nobodys(text, start, domain.end()):
                yield start, domain.end(), MAIL
        begin = text.find(b"@", end)


def _local_start(text: bytes, at: int) -> int:
    """Return where the part before the @ starts; the position of the @ if it is not an address."""
    head = text[max(0, at - _LONGEST_LOCAL) : at]
    start = at - len(head) + len(head.rstrip(_LOCAL))
    if text[start - 1 : start] == b"\\":
        escape = _ESCAPE.match(text, start)
        start = escape.end() if escape else start
    start = at - len(text[start:at].lstrip(b".%+-"))
    return at if text[max(0, start - 3) : start] == b"://" else start


def _find_homes(text: bytes) -> Iterator[Span]:
    unix = (
        (match.start(), _name_end(match), HOME)
        for match in _UNIX_HOME.finditer(text)
        if _is_absolute(text, match.start())
    )
    if b"\\" not in text:
        return unix
    windows = ((match.start() - len("C:"), _name_end(match), HOME) for match in re.finditer(_WINDOWS_HOME, text))
    return merge(unix, windows)


def _name_end(home: re.Match[bytes]) -> int:
    """Return where the name ends; a full stop is not part of it."""
    return home.start("name") + len(home["name"].rstrip(b"."))


def _is_absolute(text: bytes, start: int) -> bool:
    """Tell whether the path at this position is absolute: /gpfs/home/…, not src/home/… or https://host/home/…."""
    head = text[max(0, start - _LONGEST_PATH) : start].translate(_WORDS)
    lead = head[head.rfind(b" ") + 1 :]
    url = lead.startswith(b"//") and len(lead) > 2
    # Before the path there may be an option (-I/home/…) or the rest of a newline in JSON (\n/home/…).
    return not url and (lead[:1] in (b"", b"/", b"-") or lead in (b"n", b"r", b"t"))
