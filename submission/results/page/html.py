"""Write HTML and SVG safely: text is escaped unless it is `Html`, so that nothing from a log is run.

A document is one file with its style and script, which loads nothing from a network.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Final
from urllib.parse import quote

from common.command import clean

VOID: Final = {"br", "col", "input", "link", "meta", "wbr"}

Attribute = str | float | bool | None


class Html(str):
    """Markup from the functions here or literals of this package; all other text is escaped."""

    __slots__ = ()


def escape_text(text: object) -> Html:
    r"""Return the text as markup; invisible characters, such as direction marks, are shown as `\u202e`."""
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def join_parts(parts: Iterable[object], between: str = "") -> Html:
    """Return all parts as one piece of markup, separated by the text `between`."""
    return Html(escape_text(between).join(escape_text(part) for part in parts))


def element(tag: str, *children: object, **attributes: Attribute) -> Html:
    """Return an element. `class_` becomes class, `data_x` becomes data-x; None and False omit an attribute.

    Values and children are escaped; attribute names are not.
    """
    start = _start_tag(tag, attributes)
    return start if tag in VOID else Html(f"{start}{join_parts(children)}</{tag}>")


def stream_element(tag: str, children: Iterable[Html], **attributes: Attribute) -> Iterator[Html]:
    """Yield an element in pieces, for one that is large."""
    yield _start_tag(tag, attributes)
    yield from children
    yield Html(f"</{tag}>")


def _start_tag(tag: str, attributes: Mapping[str, Attribute]) -> Html:
    words = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        words.append(name if value is True else f'{name}="{escape_text(value)}"')
    return Html(f"<{' '.join(words)}>")


def disclosure(summary: object, *children: object, class_: str | None = None) -> Html:
    """Return children that open after a click on the summary."""
    return element("details", element("summary", summary), *children, class_=class_)


def file_link(path: str, folder: str, text: str) -> Html:
    """Return a link to a file relative to `folder`, or only the text for standard input."""
    if path in ("", "-"):
        return element("span", text)
    address = quote(os.fsencode(os.path.relpath(path, folder)))
    # A colon in the first part would be read as a URL scheme.
    return element("a", text, href=address if address.startswith(".") else f"./{address}")


def draw_table(
    head: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "", texts: int = 1, ends: int = 0
) -> Html:
    """Return a table whose first `texts` and last `ends` columns are text, the others numbers; it scrolls if too wide.

    The first cell of a row is its heading.
    """
    kinds = [None if at < texts or at >= len(head) - ends else "number" for at in range(len(head))]
    return table_of_kinds(head, kinds, ((row, {}) for row in rows), caption)


def table_of_kinds(
    head: Sequence[object],
    kinds: Sequence[str | None],
    rows: Iterable[tuple[Sequence[object], Mapping[str, Attribute]]],
    caption: str,
    class_: str | None = None,
) -> Html:
    """Return a table. kinds: the class of the cells of each column. rows: the cells and the attributes of each."""
    titles = [element("th", text, scope="col", class_=kind) for text, kind in zip(head, kinds, strict=True)]
    lines = [
        element(
            "tr",
            element("th", first, scope="row", class_=kinds[0]),
            *(element("td", cell, class_=kind) for cell, kind in zip(rest, kinds[1:], strict=True)),
            **attributes,
        )
        for (first, *rest), attributes in rows
    ]
    whole = element(
        "table",
        element("caption", caption) if caption else "",
        element("thead", element("tr", *titles)),
        element("tbody", *lines),
        class_=class_,
    )
    return make_scrollable(whole, caption or "table", "scroll")


def make_scrollable(content: Html, label: str, class_: str = "canvas") -> Html:
    """Return contents in a frame that scrolls where they are too wide, also by keyboard; label: its name."""
    return element("div", content, class_=class_, tabindex="0", role="group", aria_label=label)


def shorten_end(text: str, most: int) -> str:
    """Return the first `most` characters of a text, with a mark where more follow."""
    return text if len(text) <= most else text[:most] + " …"


# -- documents ---------------------------------------------------------------------------------------------


def generator_tag(main_page: str = "") -> Html:
    """Return the tag by which the command recognises its pages. main_page: the name of that which links to this one."""
    return element(
        "meta",
        name="generator",
        content=f"mlperf-hpc-suite report{f' beside {main_page}' * bool(main_page)}",
    )


def render_document(title: str, body: Iterable[Html], main_page: str = "") -> Iterator[str]:
    """Yield a whole page in pieces. main_page: see `generator_tag`.

    Only our style and script can run, whatever a log has brought onto the page.
    """
    style, script = read_asset(__package__, "page.css"), read_asset(__package__, "page.js")
    policy = f"default-src 'none'; style-src '{_hash_text(style)}'; base-uri 'none'; form-action 'none'; "
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}script-src \'{_hash_text(script)}\'">'),
        generator_tag(main_page),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", style),
    ]
    yield "<!DOCTYPE html>\n"
    yield from stream_element(
        "html",
        chain(
            [element("head", *head)],
            stream_element("body", chain(body, [element("script", script)])),
        ),
        lang="en",
    )
    yield "\n"


@cache
def read_asset(package: str, name: str) -> Html:
    """Return a style sheet or a script that lies in a package."""
    return Html(files(package).joinpath(name).read_text(encoding="utf-8"))


def theme_switch() -> Html:
    """Return the switch between light and dark, which needs no JavaScript."""
    buttons = {
        name: element("input", type="radio", name="theme", value=name, id=f"theme-{name}", checked=name == "auto")
        for name in ("auto", "light", "dark")
    }
    choices = [element("label", button, name) for name, button in buttons.items()]
    return element("fieldset", element("legend", "Colours"), *choices, class_="theme")


def _hash_text(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def make_slug(text: str) -> str:
    """Return a text as the name of a file: lower case letters and digits, with hyphens between them."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
