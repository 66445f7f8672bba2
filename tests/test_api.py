"""docs/guide/api.md lists what is API: every name there exists, and what a module itself calls public stands there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs/guide/api.md").read_text()
TABLE = PAGE.partition("| module | names |")[2].splitlines()[2:]
ROWS = [
    (module, re.findall(r"`(\w+)`", names))
    for modules, names in (line.split("|")[1:3] for line in TABLE[: TABLE.index("")])
    for module in re.findall(r"`([\w.]+)`", modules)
]


def test_the_page_has_a_table():
    assert len(ROWS) > 10


@pytest.mark.parametrize(("module", "names"), ROWS)
def test_the_names_of_the_page_are_those_of_the_code(module, names):
    found = import_module(module)
    assert names and [name for name in names if not hasattr(found, name)] == []
    assert [name for name in getattr(found, "__all__", ()) if not re.search(rf"\b{name}\b", PAGE)] == []
