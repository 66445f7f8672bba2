"""Addresses of data at a server: which ones are accepted, and how a message quotes them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urljoin, urlsplit

SECRETS: Final = re.compile(r"(?<=://)[^/@\s]*(?=@)|(?<=\?)\S+")
"""What may be secret in an address: user and password, and what follows a question mark, such as a signature."""


def mask_secrets(text: str) -> str:
    """Return a text without what may be secret in the addresses in it."""
    return SECRETS.sub("***", text) if "://" in text else text


def check_address(text: str, schemes: Collection[str]) -> str:
    """Return an address without a slash at its end; ValueError, which quotes no password, unless it is a server's."""
    try:
        parts = urlsplit(text)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:  # brackets, a port beyond 65535
        port_fits = False
    plain = text.isascii() and text.isprintable() and " " not in text
    if not port_fits or not plain or parts.scheme not in schemes or not re.search(r"\w", parts.hostname or ""):
        expected = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"{mask_secrets(text)}: expected an address that begins with {expected}")
    if parts.username is not None:
        raise ValueError("has a user name or a password, which would end up in records: name a public address")
    return text.rstrip("/")


def check_redirect(address: str, target: str) -> None:
    """Raise ValueError unless the redirect of an address is followed: to https, or from http to http."""
    source = mask_secrets(address)
    try:
        target = urljoin(address, target)
        scheme = urlsplit(target).scheme
    except ValueError as error:
        raise ValueError(f"{source} redirects to an address that is malformed ({error})") from None
    expected = ("https",) if address.startswith("https:") else ("http", "https")
    if scheme not in expected:
        raise ValueError(f"{source} redirects to {mask_secrets(target)}, which is not {' or '.join(expected)}")
