"""Write HTML and SVG safely: text is escaped unless it is `Html`, so that nothing from a log is run."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

from common.command import clean

VOID: Final = {"br", "col", "input", "link", "meta", "wbr"}

Attribute = str | float | bool | None


class Html(str):
    """Markup from the functions here or literals of this package; all other text is escaped."""

    __slots__ = ()


def escaped(text: object) -> Html:
    r"""Return the text as markup; invisible characters, such as direction marks, are shown as `\u202e`."""
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Return all parts as one piece of markup, separated by the text `between`."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def element(tag: str, *children: object, **attributes: Attribute) -> Html:
    """Return an element. `class_` becomes class, `data_x` becomes data-x; None and False omit an attribute.

    Values and children are escaped; attribute names are not.
    """
    words = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        words.append(name if value is True else f'{name}="{escaped(value)}"')
    start = f"<{' '.join(words)}>"
    if tag in VOID:
        return Html(start)
    return Html(f"{start}{joined(children)}</{tag}>")


def disclosure(summary: object, *children: object, class_: str | None = None, id_: str | None = None) -> Html:
    """Return children that open after a click on the summary."""
    return element("details", element("summary", summary), *children, class_=class_, id=id_)


def file_link(path: str, folder: str, text: str) -> Html:
    """Return a link to a file relative to `folder`, or only the text for standard input."""
    if path in ("", "-"):
        return element("span", text)
    address = quote(os.fsencode(os.path.relpath(path, folder)))
    # A colon in the first part would be read as a URL scheme.
    return element("a", text, href=address if address.startswith(".") else f"./{address}")


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "", texts: int = 1, ends: int = 0
) -> Html:
    """Return a table whose first `texts` and last `ends` columns are text, the others numbers; it scrolls if too wide.

    The first cell of a row is its heading.
    """
    kinds = [None if at < texts or at >= len(head) - ends else "number" for at in range(len(head))]
    titles = [element("th", text, scope="col", class_=kind) for text, kind in zip(head, kinds, strict=True)]
    lines = []
    for row in rows:
        first, *rest = row
        cells = [element("td", cell, class_=kind) for cell, kind in zip(rest, kinds[1:], strict=True)]
        lines.append(element("tr", element("th", first, scope="row", class_=kinds[0]), *cells))
    whole = element(
        "table",
        element("caption", caption) if caption else "",
        element("thead", element("tr", *titles)),
        element("tbody", *lines),
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption or "table")
