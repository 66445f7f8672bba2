"""The command line that writes a benchmark as a package of its own, which trains at once, from common/template."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.benchmarks import ROOT, looks_official
from common.command import CommandParser, UsageError, folder_path, run_command

DESCRIPTION: Final = """\
Write a benchmark as a separate project for pip: a package NAME that trains on a laptop at once, and its tests. No file
of the suite changes. The template solves a small problem of heat conduction. Replace it part by part, and keep the
tests passing: facts (reference.py), keys (settings.py), data (data/, synthesize.py), network (model.py), loss and
quality (train.py). docs/guide/new-benchmark.md has the steps, common/training/benchmark.py the contract.
"""
EXAMPLES: Final = """\
examples:
  python -m common.new_benchmark heat                                  in ./mlperf-hpc-heat
  python -m common.new_benchmark ocean_eddies --title "Ocean Eddies" --package ~/src/eddies
"""
NEXT: Final = """\
next:
  cd {folder}
  python -m pip install --editable '.[test]'
  python -m pytest
  mlperf-hpc train {name} mini
  mlperf-hpc check --allow-mini runs/{name}-mini/result_0.txt
  mlperf-hpc round --config mini --benchmarks {name} -o runs/first-round
then replace its parts by yours: docs/guide/new-benchmark.md
"""
TEMPLATE: Final = Path(__file__).parent / "template"
PLACEHOLDER: Final = "newbenchmark"
PREFIX: Final = "mlperf-hpc-"
"""Of the distribution's name."""
LONGEST: Final = 20
LONGEST_TITLE: Final = 30
RESERVED: Final = frozenset("tests data runs full mini model no null off on true false yes".split())
"""Folders beside the package, names of configurations, and words that YAML does not read as text."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = CommandParser("python -m common.new_benchmark", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("name", metavar="NAME", help=f"of the package and in the log: a-z, 0-9, _, at most {LONGEST}")
    parser.add_argument("--title", help="for people (default: the name in words)")
    parser.add_argument(
        "--package",
        type=folder_path,
        nargs="?",
        metavar="FOLDER",
        help=f"the new project, outside the suite (default ./{PREFIX}NAME)",
    )
    options = parser.parse_args(argv)
    return run_command(lambda: write_project(options.name, options.package, options.title), (OSError,))


def write_project(name: str, folder: Path | None = None, title: str | None = None) -> int:
    """Write the project with the package and its tests into a new folder; return the exit code.

    Raises UsageError, before anything is written, for a name, a title or a folder that cannot be taken.
    """
    _check_name(name)
    distribution = PREFIX + name.replace("_", "-")
    folder = folder or Path(distribution)
    _check_folder(folder, distribution)
    words = {
        "mlperf-hpc-new-benchmark": distribution,
        "New Benchmark": _check_title(name.replace("_", " ").capitalize() if title is None else title),
        "NewBenchmark": "".join(part.capitalize() for part in name.split("_")),
        PLACEHOLDER: name,
    }
    sources = [
        path
        for path in sorted(TEMPLATE.rglob("*"))
        if path.is_file() and {"__pycache__", ".ruff_cache"}.isdisjoint(path.parts)
    ]
    for source in sources:
        text = source.read_text(encoding="utf-8")
        for placeholder, word in words.items():
            text = text.replace(placeholder, word)
        path = folder / str(source.relative_to(TEMPLATE)).replace(PLACEHOLDER, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"wrote {folder}, {len(sources)} files")
    print(NEXT.format(name=name, folder=folder), end="")
    return 0


def _check_name(name: str) -> None:
    """Raise UsageError for a name that is not one, or that something else has."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > LONGEST:
        raise UsageError(
            f"NAME is {name!r}; expected at most {LONGEST} lower-case letters, digits and _ between them, such as "
            "ocean_eddies"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise UsageError(f"NAME is {name!r}, a keyword of Python; choose another")
    if name in RESERVED:
        raise UsageError(f"NAME is {name!r}, a word with a meaning of its own; choose another")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise UsageError(f"NAME is {name!r}, and so is the name of an installed module; choose another")
    if looks_official(name):
        raise UsageError(f"NAME is {name!r}, which could be taken for MLPerf's; choose another")


def _check_folder(folder: Path, distribution: str) -> None:
    """Raise UsageError for a folder that has something in it, or is part of the suite."""
    if folder.resolve().is_relative_to(ROOT.resolve()):
        raise UsageError(f"{folder} is inside the suite, {ROOT}; choose another: --package ../{distribution}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists; choose another by --package FOLDER, or remove it first")


def _check_title(title: str) -> str:
    """Return the title; raise UsageError for one that cannot stand in a docstring and in a heading."""
    if not title.strip() or len(title) > LONGEST_TITLE or not title.isprintable() or set(title) & set('"\\{}'):
        raise UsageError(
            f"--title is {title!r}; expected 1 to {LONGEST_TITLE} printable characters without double quotes, "
            "backslashes and braces"
        )
    if looks_official(title):
        raise UsageError(f"--title is {title!r}, which could be taken for MLPerf's; choose another")
    return title.strip()


if __name__ == "__main__":
    sys.exit(main())
