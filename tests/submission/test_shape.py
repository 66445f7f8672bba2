"""The folder submission/: thin commands over rooms that do not know them."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "submission"


def test_results_know_no_command():
    for path in FOLDER.glob("results/**/*.py"):
        modules = [n.module or "" for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
        ours = [module for module in modules if module.startswith("submission.")]
        assert all(module.startswith("submission.results") for module in ours), path
