"""A figure as an SVG file."""

from __future__ import annotations

import re
from typing import Final

from submission.web.document import asset
from submission.web.html import Html

RULE: Final = re.compile(r"^svg[ .][^{]*\{[^}]*\}", re.MULTILINE)
VARIABLE: Final = re.compile(r"(--\w+): (light-dark\([^)]*\));")
SIZE: Final = re.compile(r'viewBox="0 0 (\S+) (\S+)"')
PAIR: Final = re.compile(r"light-dark\(([^,]*), ([^)]*)\)")


def standalone(svg: Html) -> str:
    """Return the text of an SVG file, with the rules of page.css that it needs, for light and dark surroundings."""
    style = asset("submission.web", "page.css")
    variables = dict(VARIABLE.findall(style))
    used = set(re.findall(r"[\w-]+", " ".join(re.findall(r'class="([^"]*)"', svg))))
    rules = [
        re.sub(r"var\((--\w+)\)", lambda found: variables[found[1]], rule)
        for rule in RULE.findall(style)
        if set(re.findall(r"\.([\w-]+)", rule.partition("{")[0])) <= used
    ]
    rules.append(f"svg {{ background: {variables['--card']}; }}")
    light = "\n".join(PAIR.sub(r"\1", rule) for rule in rules)
    dark = "\n".join(PAIR.sub(r"\2", rule) for rule in rules if "light-dark" in rule)
    sheet = f"<style>{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}</style>"
    head, _, rest = svg.partition(">")
    width, height = SIZE.findall(head)[0]
    return f'{head} xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{sheet}{rest}\n'
