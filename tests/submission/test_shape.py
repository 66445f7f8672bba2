"""The folder submission/: thin commands over rooms that do not know them."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "submission"
COMMANDS = sorted((*FOLDER.glob("*/__main__.py"), FOLDER / "summary.py", FOLDER / "report.py"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: path.relative_to(FOLDER).parts[0].removesuffix(".py"))
def test_commands_are_thin(command):
    """A command module has only the parser, `main` and output; other modules can be imported for the rest."""
    tree = ast.parse(command.read_text())
    assert not [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    assert public == ["main"]


def test_results_know_no_command():
    for path in FOLDER.glob("results/**/*.py"):
        modules = [n.module or "" for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
        ours = [module for module in modules if module.startswith("submission.")]
        assert all(module.startswith("submission.results") for module in ours), path
