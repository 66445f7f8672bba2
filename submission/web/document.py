"""The HTML document that a page is: one file with its style and script, which loads nothing from a network."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from submission.web.html import Html, element


def document(title: str, body: Html, generator: Html, script: Html | None = None) -> str:
    """Return the whole page. generator: the `meta` tag by which a command recognises its own pages.

    Only this style and this script can run, whatever a log has brought onto the page.
    """
    style = asset("submission.web", "page.css")
    policy = f"default-src 'none'; style-src '{_digest(style)}'; base-uri 'none'; form-action 'none'"
    policy += f"; script-src '{_digest(script)}'" if script else ""
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        generator,
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", style),
    ]
    scripts = [element("script", script)] if script else []
    whole = element("html", element("head", *head), element("body", body, *scripts), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def asset(package: str, name: str) -> Html:
    """Return a style sheet or a script that lies in a package."""
    return Html(files(package).joinpath(name).read_text(encoding="utf-8"))


def theme_switch() -> Html:
    """Return the switch between light and dark, which needs no JavaScript."""
    choices = [
        element(
            "label", element("input", type="radio", name="theme", value=name, id=f"theme-{name}", checked=first), name
        )
        for name, first in (("auto", True), ("light", False), ("dark", False))
    ]
    return element("fieldset", element("legend", "Colours"), *choices, class_="theme")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
