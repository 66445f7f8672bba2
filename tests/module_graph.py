"""Read the packages of a source tree: their modules, what each imports, and circles among the imports."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

NO_PACKAGES = {"bench", "tests"}
"""Top-level folders whose Python files nothing imports from elsewhere."""


def packages(root: Path) -> set[str]:
    """Return the top-level folders that hold Python files."""
    return {path.parent.name for path in root.glob("[!.]*/*.py")} - NO_PACKAGES


@dataclass(frozen=True)
class Module:
    """One file. path: relative to the root. name: as in an import."""

    name: str
    path: Path
    syntax: ast.Module

    @property
    def package(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """All that is imported, wherever it stands in the file.

        `from a import b` is a.b. A name that `import_module` gets has a * for what is computed.
        """
        return tuple(name for node in ast.walk(self.syntax) for name in self._imported(node))

    def _imported(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = self.name.split(".")[: None if self.path.stem == "__init__" else -1]
            parts = above[: len(above) - node.level + 1] if node.level else []
            yield from (".".join([*parts, *filter(None, [node.module]), alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield _pattern(node.args[0])


def _pattern(argument: ast.expr) -> str:
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    if isinstance(argument, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in argument.values)
    return "*"


class Tree:
    """The modules of the packages below a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.packages = root, packages(root)
        template = root / "common/template"  # which becomes a package elsewhere
        files = (path for package in self.packages for path in sorted((root / package).rglob("*.py")))
        paths = [path for path in files if template not in path.parents]
        self.modules = {module.name: module for module in map(self._read, paths)}

    def _read(self, path: Path) -> Module:
        relative = path.relative_to(self.root)
        parts = relative.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        return Module(name, relative, ast.parse(path.read_text()))

    def targets(self, module: Module) -> set[str]:
        """Return the modules of the tree that a module imports; for an attribute, the module that has it."""
        found = set()
        for name in module.imports:
            if "*" in name and name != "*":
                shape = re.escape(name).replace(r"\*", r"[^.]+")
                found |= {other for other in self.modules if re.fullmatch(shape, other)}
            # The longest part of the name that is a module; nothing of what lies elsewhere.
            while name and name not in self.modules:
                name = name.rpartition(".")[0]
            found.add(name)
        return found - {"", module.name}

    def circle(self) -> list[str]:
        """Return the modules of one circle of imports, in order; none if there is no circle."""
        try:
            TopologicalSorter({name: self.targets(module) for name, module in self.modules.items()}).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []
