"""Tell which results of a package were made by this suite, as the code in benchmarks/ says."""

from __future__ import annotations

from collections.abc import Iterable

from common.version import DISTRIBUTION
from compliance.model.layout import BENCHMARKS, IMPLEMENTATIONS
from compliance.model.package_files import PackageEntry


class SuiteCode:
    """The implementations in a package, by benchmark, and those that are this suite: by name, or by its files."""

    def __init__(self, contents: Iterable[PackageEntry]) -> None:
        paths = (tuple(entry.path.split("/")) for entry in contents if entry.path.startswith(f"{BENCHMARKS}/"))
        self._paths = {path[1:] for path in paths if len(path) > 3}
        self._ends: dict[str, dict[str, set[tuple[str, ...]]]] = {}  # by benchmark and implementation
        for path in self._paths:
            if path[1] == IMPLEMENTATIONS:
                self._ends.setdefault(path[0], {}).setdefault(path[2], set()).add(path[-2:])

    def made(self, benchmark: str, system: str) -> bool:
        """Tell whether a result was made by this suite.

        A file <system>_<implementation>.json says which code made it; without one it is the only code there is.
        """
        names = self._ends.get(benchmark, {}).keys()
        linked = {name for name in names if (benchmark, system, f"{system}_{name}.json") in self._paths}
        made_by = linked or names
        return bool(made_by) and all(self._is_suite(benchmark, name) for name in made_by)

    def _is_suite(self, benchmark: str, name: str) -> bool:
        has_its_name = letters_and_digits(name) == letters_and_digits(DISTRIBUTION)
        return has_its_name or {("common", "provenance.py"), (benchmark, "train.py")} <= self._ends[benchmark][name]


def letters_and_digits(name: str) -> str:
    """Return the letters and digits of a name in lower case: spelled with hyphens or not, it is the same."""
    return "".join(filter(str.isalnum, name.lower()))
