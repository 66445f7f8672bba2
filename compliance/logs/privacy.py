"""Find personal data and secrets in text.

Personal data are mail addresses, and home directories, which contain account names: only these two are found, anywhere
in a text of any format; real names, host names and project folders are not. Home directories are /home/NAME and
variants (/home2/j/NAME, /gpfs/home/NAME), /Users/NAME, /users/NAME and their like on Windows, not site-specific
folders. Generic accounts (/home/user, /root, noreply@…, git@…) are not personal data.

Secrets are private keys, tokens of services whose form tells what they are, and passwords. A key is found with its
contents, not by the mention of its first line; a token by the length and letters that the service gives out; a password
by the command, URL or assignment that states it. Placeholders such as ghp_xxxx, changeme or $PASSWORD, and the samples
of documentation, are left out.
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
_FOLDERS: Final = (b"/home", b"sers")
_WINDOWS_HOME: Final = rb"\\(?<=[A-Za-z]:\\)\\?Users\\{1,2}" + _NAME
_BREAKS: Final = b"\t\r\n\v\f\"'`=:,;()[]{}<>|&\\"
_WORDS: Final = bytes.maketrans(_BREAKS, b" " * len(_BREAKS))


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
                contact = kind == MAIL and b'"submission_poc_email"' in text[text.rfind(b"\n", 0, start) + 1 : start]
                at = line + text.count(b"\n", 0, start)
                self.mentions.append(Mention(kind, at, masked(excerpt, kind), contact))


def _find_mails(text: bytes) -> Iterator[Span]:
    begin = text.find(b"@")  # much faster than the pattern
    while begin >= 0:
        find_domains, is_nobodys = re.compile(_DOMAIN).finditer, re.compile(_NOBODYS_MAIL).match  # once, if at all
        line_end = text.find(b"\n", begin + (4 << 10))
        end = line_end if line_end >= 0 else len(text)
        for domain in find_domains(text, begin, end):
            start = _local_start(text, domain.start())
            if start < domain.start() and not is_nobodys(text, start, domain.end()):
                yield start, domain.end(), MAIL
        begin = text.find(b"@", end)


def _local_start(text: bytes, at: int) -> int:
    """Return where the part before the @ starts; the position of the @ if it is not an address."""
    head = text[max(0, at - 64) : at]
    start = at - len(head) + len(head.rstrip(_LOCAL))
    if text[start - 1 : start] == b"\\":
        escape = re.match(rb"u[0-9A-Fa-f]{4}|[nrtbf]", text[start : start + 5])
        start += escape.end() if escape else 0
    start = at - len(text[start:at].lstrip(b".%+-"))
    return at if text[max(0, start - 3) : start] == b"://" else start


def _find_homes(text: bytes) -> Iterator[Span]:
    # To look for their folders is much faster than the patterns.
    unix = (
        (match.start(), _name_end(match), HOME)
        for match in (_UNIX_HOME.finditer(text) if any(folder in text for folder in _FOLDERS) else ())
        if _is_absolute(text, match.start())
    )
    windows = (
        (match.start() - len("C:"), _name_end(match), HOME)
        for match in (re.finditer(_WINDOWS_HOME, text) if b"\\" in text else ())
    )
    return merge(unix, windows)


def _name_end(home: re.Match[bytes]) -> int:
    """Return where the name ends; a full stop is not part of it."""
    return home.start("name") + len(home["name"].rstrip(b"."))


def _is_absolute(text: bytes, start: int) -> bool:
    """Tell whether the path at this position is absolute: /gpfs/home/…, not src/home/… or https://host/home/…."""
    head = text[max(0, start - 256) : start].translate(_WORDS)
    lead = head[head.rfind(b" ") + 1 :]
    url = lead.startswith(b"//") and len(lead) > 2
    # Before the path there may be an option (-I/home/…) or the rest of a newline in JSON (\n/home/…).
    return not url and (lead[:1] in (b"", b"/", b"-") or lead in (b"n", b"r", b"t"))


PASSWORD: Final = "password"
"""How the kinds begin that are passwords, whose form is less certain than that of a token."""
_SAMPLE: Final = (
    rb"(?i:example|sample|dummy|placeholder|your|xxxx|1234567|abcdefg|pass|change|secret)"
    rb"|eyJzdWIiOiIxMjM0NTY3"
)
"""Words of placeholders; the last is the subject 1234567890 of jwt.io's sample, encoded."""
_BREAK: Final = rb"(?:\\[nr]|[\s\"',+])+"
_PASSWORD: Final = rb"(?=[^\s\"']{0,127}[0-9A-Z])[^\s\"'`$<>{}()\[\]\\]{6,128}"
"""Small letters alone are a word of documentation, or a name."""
_FORMS: Final = (
    (
        "private key",
        "KEY-----",
        rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----%s(?:[\w-]+: [^\n]{1,200}\s+){0,4}[A-Za-z0-9+/]{32}" % _BREAK,
    ),
    ("private key", "BLOCK-----", rb"-----BEGIN PGP PRIVATE KEY BLOCK-----\s[^-]{0,400}?[A-Za-z0-9+/]{48}"),
    ("private key", "PuTTY-User-Key-File", rb"PuTTY-User-Key-File-[23]: [^\0]{1,4000}?Private-Lines: \d"),
    ("key of AWS", "AKIA ASIA", rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    (
        "secret key of AWS",
        "AWS_SECRET_ACCESS_KEY aws_secret_access_key",
        rb"(?i:aws_secret_access_key)\s{0,3}[:=]\s{0,3}([0-9A-Za-z/+]{40})(?![0-9A-Za-z/+=])",
    ),
    ("token of GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", rb"\bgh[pousr]_[0-9A-Za-z]{36}\b"),
    ("token of GitHub", "github_pat_", rb"\bgithub_pat_[0-9A-Za-z]{22}_[0-9A-Za-z]{59}\b"),
    ("token of GitLab", "glpat-", rb"\bglpat-[0-9A-Za-z_-]{20,64}(?![\w-])"),
    ("token of Hugging Face", "hf_", rb"\bhf_[0-9A-Za-z]{34}\b"),
    ("key of NGC", "nvapi-", rb"\bnvapi-[0-9A-Za-z_-]{60,80}(?![\w-])"),
    (
        "key of NGC",
        "NGC ngc apikey oauthtoken",
        rb"(?:(?i:(?:ngc_(?:cli_)?api_?|api)key)[\"']?\s{0,3}[:=]|oauthtoken[\"']?\s{1,3}(?:-p|--password)[ =])"
        rb"\s{0,3}[\"']?([0-9A-Za-z+/]{84})(?![0-9A-Za-z+/=])",
    ),
    (
        "key of Weights & Biases",
        "WANDB_API_KEY wandb",
        rb"(?:WANDB_API_KEY\W{1,8}|wandb(?:\.login\(|\s+login\s)[^\n]{0,20}?\b)[0-9a-f]{40}\b",
    ),
    (
        "token of Slack",
        "xoxa- xoxb- xoxp- xoxr- xoxs-",
        rb"\bxox[abprs]-(?:[0-9A-Za-z]{8,64}-){1,3}([0-9A-Za-z]{12,64})",
    ),
    ("key of Google", "AIza", rb"\bAIza[0-9A-Za-z_-]{35}(?![\w-])"),
    ("key of Anthropic or OpenAI", "sk-", rb"\bsk-(?:(?:ant|proj)-[\w-]{40,200}|[0-9A-Za-z]{48})(?![\w-])"),
    ("token of PyPI", "pypi-AgE", rb"\bpypi-AgE[0-9A-Za-z_-]{50,}"),
    ("token of npm", "npm_", rb"\bnpm_[0-9A-Za-z]{36}\b"),
    ("token of Docker", "dckr_pat_", rb"\bdckr_pat_[0-9A-Za-z_-]{27}(?![\w-])"),
    ("JSON web token", ".eyJ", rb"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}"),
    (
        "key in an assignment",
        "KEY key TOKEN token SECRET secret",
        rb"(?i:api_?key|secret_?(?:access_?)?key|(?:auth|access)_?token)[\"']?\s{0,3}[:=]\s{0,3}[\"']"
        rb"(?=[^\"'\n]*[0-9])(?=[^\"'\n]*[A-Z])(?=[^\"'\n]*[a-z])([0-9A-Za-z+/_=-]{32,128})[\"']",
    ),
    (
        "password in a URL",
        "://",
        rb"://[\w.%+-]{0,64}:(?=[^\s/@]{0,127}[0-9A-Z])([^\s\"'`$<>{}()/@]{6,128})@(?=[\w\[])",
    ),
    (
        "password in a command",
        "curl",
        rb"\bcurl\b[^\n]{0,120}?\s(?:-u|--user)[ =]{0,2}[\"']?[\w.@+-]{1,64}:(%s)(?=[\s\"']|$)" % _PASSWORD,
    ),
    (
        "password of a host",
        "machine",
        rb"\bmachine\s{1,8}\S{1,99}\s{1,8}login\s{1,8}\S{1,99}\s{1,8}password\s{1,8}(%s)(?=\s|$)" % _PASSWORD,
    ),
    (
        "password in an assignment",
        "PASSWORD password PASSWD passwd",
        rb"(?i:password|passwd)(?:[\"']?\s{0,3}[:=]\s{0,3}[\"'](?=[^\"'\n]{0,99}[0-9])(%s)[\"']"
        rb"|=(?=\S{0,99}[0-9])(?=\S{0,99}[A-Z])(?=\S{0,99}[a-z])(%s)(?=[\s;]|$))" % (_PASSWORD, _PASSWORD),
    ),
)
"""Kind, marks and pattern of each: a secret contains one of the marks, which are much faster to see than it."""


def secrets(text: bytes) -> Iterator[Mention]:
    """Yield the first secrets in a text, each with no more of it than what tells its kind."""
    ends: list[int] = []
    for kind, marks, pattern in _FORMS:
        for match in re.finditer(pattern, text) if any(mark.encode() in text for mark in marks.split()) else ():
            secret, end = match[match.lastindex or 0], match.end(match.lastindex or 0)
            least = 5 if kind.startswith(PASSWORD) else 10  # a secret of fewer different characters is a placeholder
            is_sample = len(set(secret)) < least or re.search(_SAMPLE, secret)
            if len(ends) < 5 and not is_sample and end not in ends:
                ends.append(end)
                yield Mention(kind, text.count(b"\n", 0, match.start()) + 1, f"{match[0][:4].decode('latin-1')}…")
