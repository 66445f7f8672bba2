"""The folder submission/: one folder for each command, and modules shared by several."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "submission"
COMMANDS = sorted(path.parent.name for path in FOLDER.glob("*/__main__.py"))
COMMAND_FILES = {"cli", "cost", "demo", "manifest"}
"""Commands without a folder."""
SHARED = {"web"}
"""Folders without a command: what pages share."""


def users_of(module):
    """Return the names of the commands that import a module of submission/."""
    found = set()
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"submission.{module}."):
                found.add(path.relative_to(FOLDER).parts[0].removesuffix(".py"))
    return found - {module}


def shared_modules():
    beside = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", *COMMAND_FILES}
    return sorted({*beside, *SHARED})


def test_each_folder_is_a_command():
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - SHARED == set(COMMANDS) and len(COMMANDS) > 5


@pytest.mark.parametrize("module", shared_modules())
def test_modules_beside_the_commands_are_shared(module):
    assert len(users_of(module)) > 1, f"submission/{module} is for one command: move it into its folder"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_thin(command):
    """A command module has only the parser, `main` and output; other modules can be imported for the rest."""
    tree = ast.parse((FOLDER / command / "__main__.py").read_text())
    assert not [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    assert public == ["main"]
