"""Find secrets in text: private keys, tokens of services whose form tells what they are, and passwords.

A key is found with its contents, not by the mention of its first line; a token by the length and letters that the
service gives out; a password by the command, URL or assignment that states it. Placeholders such as ghp_xxxx, changeme
or $PASSWORD, and the samples of documentation, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from compliance.logs.personal_data import Mention

MOST: Final = 5
"""Secrets of one file that are reported."""
PASSWORD: Final = "password"
"""How the kinds begin that are passwords, whose form is less certain than that of a token."""
_SAMPLE: Final = re.compile(
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
            is_sample = len(set(secret)) < least or _SAMPLE.search(secret)
            if len(ends) < MOST and not is_sample and end not in ends:
                ends.append(end)
                yield Mention(kind, text.count(b"\n", 0, match.start()) + 1, f"{match[0][:4].decode('latin-1')}…")
