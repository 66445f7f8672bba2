"""What others wrote is opened by `common.tree` alone: nothing else in the checker and around it opens files to read.

And files are written by `common.files` alone, or through its opener: nothing else could write through a link.
"""

import ast

import pytest

from tests.module_graph import packages
from tests.problems import ROOT

GUARDED = ("compliance", "submission")
TREES = ("Tree", "tree", "ANYWHERE", "NAMED", "_tree")
READS = ("open", "open_code", "fdopen", "GzipFile", "memmap", "mmap", "fromfile")
METHODS = ("read_bytes", "read_text")
COPIES = ("copy", "copy2", "copyfile", "copytree", "copyfileobj", "move")
OWN_FILES = {
    "compliance/rules/catalog.py": "the rules, which the user names",
    "compliance/rules/bounds.py": "the tables of published amounts and rates, installed with the suite",
    "compliance/rules/census.py": "the tables of what published logs have in common, installed with the suite",
    "submission/cli.py": "the pages of the documentation, installed with the suite",
    "submission/integrations.py": "the files of integrations/, installed with the suite",
    "submission/round/make.py": "the configuration that an earlier call wrote",
    "submission/runs/scripts/script.py": "the templates of job scripts, installed with the suite",
    "submission/runs/plan.py": "the plan of a run that an earlier call wrote",
    "submission/system/__main__.py": "the description that an earlier call wrote",
    "submission/system/machine.py": "the system's own files in /proc and /sys",
    "submission/results/page/html.py": "style and script of the pages, installed with the suite",
}
"""Modules that open files of the user, and which."""


def raw_opens(text):
    """Return the lines that open a file to read, or copy one, other than through a tree."""
    return sorted(node.lineno for node in ast.walk(ast.parse(text)) if is_method(node) or is_raw(node))


def is_method(node):
    """Tell whether it is `path.read_bytes`, called or handed on."""
    return isinstance(node, ast.Attribute) and node.attr in METHODS


def is_raw(call):
    if not isinstance(call, ast.Call):
        return False
    if isinstance(call.func, ast.Name):
        return call.func.id in READS and not writes(call.args[1:])
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = name_of(call.func.value)
    if call.func.attr in COPIES:
        return owner == "shutil"
    return call.func.attr in READS and owner not in TREES and not writes(call.args)


def name_of(node):
    """Return the last name of `tree`, `self.tree` or `self._tree(path)`."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", getattr(node, "id", ""))


def writes(arguments):
    return any(isinstance(one, ast.Constant) and str(one.value)[:1] in ("w", "x", "a") for one in arguments)


def modules():
    return [path for package in GUARDED for path in sorted((ROOT / package).rglob("*.py"))]


def test_files_of_others_are_opened_by_the_tree():
    opens = {path.relative_to(ROOT).as_posix(): raw_opens(path.read_text()) for path in modules()}
    assert len(opens) > 100
    assert {name for name, lines in opens.items() if lines} == set(OWN_FILES), {
        name: lines for name, lines in opens.items() if lines and name not in OWN_FILES
    }


RAW = [
    "open(path)",
    "open(path, 'rb')",
    "path.open('rb')",
    "os.open(path, os.O_RDONLY)",
    "path.read_text()",
    "data = Path(name).read_bytes()",
    "gzip.open(path)",
    "gzip.GzipFile(path)",
    "shutil.copy(path, other)",
    "with open(path) as file: pass",
    "f(path.read_bytes)",
]


@pytest.mark.parametrize("text", RAW)
def test_a_raw_open_is_found(text):
    assert raw_opens(text) == [1]


@pytest.mark.parametrize("text", ["tree.open(path)", "self._tree(path).read(path, 1)", "open(path, 'w')", "copy(x)"])
def test_other_calls_are_not(text):
    assert raw_opens(text) == []


UNGUARDED_WRITES = {
    "common/data/manifest.py": "a file in memory",
    "common/mllog.py": "a file of the kernel",
    "common/console.py": "os.devnull",
    "common/new_benchmark.py": "sources, in the user's new project",
    "common/training/predictions.py": "the new file of `whole_file`",
    "common/training/profile.py": "into an open file",
    "compliance/cli.py": "the file that the user names",
    "compliance/demo.py": "a temporary folder",
    "compliance/samples/package.py": "packages for tests",
    "cosmoflow/data/dali.py": "a temporary folder",
    "oc20/data/extxyz.py": "the new files of `whole_file`",
    "submission/accept/outputs.py": "the new file of `whole_file`",
    "submission/assemble/writing.py": "the new file of `whole_file`",
    "submission/round/make.py": "a temporary folder",
}
"""Modules that write files without the opener, and where."""


def unguarded_writes(text):
    """Return the lines that may write through a link."""
    return [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and may_follow(node)]


def may_follow(call):
    name = name_of(call.func)
    if name in ("write_text", "write_bytes"):
        return isinstance(call.func, ast.Attribute)
    modes = [one for one in call.args if isinstance(one, ast.Constant) and str(one.value)[:1] in ("w", "a")]
    return name == "open" and bool(modes) and "opener" not in [keyword.arg for keyword in call.keywords]


def test_files_are_not_written_through_links():
    paths = [path for package in packages(ROOT) for path in (ROOT / package).rglob("*.py")]
    names = {path.relative_to(ROOT).as_posix() for path in paths if unguarded_writes(path.read_text())}
    assert names == set(UNGUARDED_WRITES), names ^ set(UNGUARDED_WRITES)
