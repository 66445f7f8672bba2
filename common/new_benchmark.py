"""The command line that adds a benchmark to the suite: a package that trains at once, from templates/benchmark."""

from __future__ import annotations

import configparser
import importlib.util
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.benchmarks import ROOT
from common.command import CommandParser, UsageError, run_command

DESCRIPTION: Final = """\
Adds a benchmark to this checkout: a package NAME that trains on a laptop at once, its tests, and the lines that list
it. What it does is a small problem of heat conduction; replace it part by part, and keep the tests passing:
facts (reference.py), keys (settings.py), data (data/, synthesize.py), network (model.py), loss and quality (train.py).
docs/guide/new-benchmark.md is the recipe, common/training/benchmark.py says what a benchmark gives.
"""
EXAMPLES: Final = """\
examples:
  python -m common.new_benchmark heat
  python -m common.new_benchmark ocean_eddies --title "Ocean Eddies"
"""
NEXT: Final = """\
next:
  python -m {name}.train mini
  python -m compliance.check --allow-mini runs/{name}-mini/result_0.txt
  python -m submission.round --config mini --benchmarks {name} -o runs/first-round
  make docs
  python -m pytest {tests}
then replace its parts by yours: docs/guide/new-benchmark.md
"""
TESTS: Final = "tests/{name} tests/test_layers.py tests/test_static_lists.py tests/common/training/test_benchmark.py"
"""The benchmark's own tests, and the quick ones that find what is missing in it."""
GUIDE: Final = "docs/guide/new-benchmark.md"
TEMPLATE: Final = "templates/benchmark"
PLACEHOLDER: Final = "newbenchmark"
SETUP: Final = "setup.cfg"
LIST: Final = "common/benchmarks.py"
LINES: Final = {
    LIST: '    "{name}",\n',
    SETUP: "    mlperf-hpc-suite[{name}]\n",
    "containers/Dockerfile": "COPY {name} {name}\n",
    "containers/Dockerfile.dockerignore": "!{name}\n",
    "containers/mlperf-hpc.def": "    {name} /opt/mlperf-hpc-suite/{name}\n",
}
"""Files that list the benchmarks, and the line that lists one."""
ALL_EXTRAS: Final = "# For all benchmarks.\nall =\n"
EXTRA: Final = "{name} =\n    mlperf-hpc-suite[train]\n"
LONGEST: Final = 20
LONGEST_TITLE: Final = 30
RESERVED: Final = frozenset(
    "openfold build data dist full htmlcov mini model no null off on runs true false yes".split()
)
"""Folders that git ignores, names of configurations, and words that YAML does not read as text."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = CommandParser("python -m common.new_benchmark", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("name", metavar="NAME", help=f"of the package and in the log: a-z, 0-9, _, at most {LONGEST}")
    parser.add_argument("--title", help="for people (default: the name in words)")
    given = parser.parse_args(argv)
    return run_command(lambda: add(ROOT, given.name, given.title), (OSError,))


def add(root: Path, name: str, title: str | None = None) -> int:
    """Write the package and its tests below `root`, and list it; return the exit code.

    Raises UsageError, before anything is written, for a name that cannot be taken or a tree that is not a checkout.
    """
    if not (root / TEMPLATE).is_dir():
        raise UsageError(f"{root} has no {TEMPLATE}: a benchmark is added to a checkout; clone the repository")
    _check_name(root, name)
    words = {
        "New Benchmark": _valid_title(name.replace("_", " ").capitalize() if title is None else title),
        "NewBenchmark": "".join(part.capitalize() for part in name.split("_")),
        PLACEHOLDER: name,
    }
    files = _from_template(root / TEMPLATE, name, words)
    lists = _listed(root, name)
    for path, text in (files | lists).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    print(f"wrote {name}/ and tests/{name}/, {len(files)} files; listed {name} in {', '.join(lists)}")
    print(NEXT.format(name=name, tests=TESTS.format(name=name)), end="")
    return 0


def _check_name(root: Path, name: str) -> None:
    """Raise UsageError for a name that is not one, or that something else has."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > LONGEST:
        expected = f"expected at most {LONGEST} lower-case letters, digits and _ between them, such as ocean_eddies"
        raise UsageError(f"NAME is {name!r}; {expected}")
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise UsageError(f"NAME is {name!r}, a keyword of Python; choose another")
    if name in RESERVED:
        raise UsageError(f"NAME is {name!r}, a word with a meaning of its own in this checkout; choose another")
    if f'"{name}"' in _read(root, LIST):
        raise UsageError(f"{LIST} lists a benchmark {name!r} already; choose another name, or remove that one: {GUIDE}")
    for taken in (root / name, root / "tests" / name):
        if taken.exists():
            raise UsageError(f"{taken} exists; choose another name, or remove it first")
    if name in _required(root):
        raise UsageError(f"NAME is {name!r}, an extra or a package in {SETUP}; choose another")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise UsageError(f"NAME is {name!r}, and so is the name of an installed module; choose another")


def _required(root: Path) -> set[str]:
    """Return the names of the extras, and of the packages that they need, whether installed or not."""
    setup = configparser.ConfigParser()
    try:
        setup.read_string(_read(root, SETUP))
        extras = setup["options.extras_require"]
    except (configparser.Error, KeyError):
        raise UsageError(f"{SETUP} has no list of extras: restore it") from None
    packages = re.findall(r"^[\w-]+", "\n".join(extras.values()), re.MULTILINE)
    return {name.lower().replace("-", "_") for name in (*extras, *packages)}


def _valid_title(title: str) -> str:
    """Return the title; raise UsageError for one that cannot stand in a docstring and in a heading."""
    if not title.strip() or len(title) > LONGEST_TITLE or not title.isprintable() or set(title) & set('"\\{}'):
        expected = f"1 to {LONGEST_TITLE} printable characters without double quotes, backslashes and braces"
        raise UsageError(f"--title is {title!r}; expected {expected}")
    return title.strip()


def _read(root: Path, name: str) -> str:
    """Return the text of a file of the checkout; raise UsageError where it is missing."""
    try:
        return (root / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{root / name} is missing: restore it") from None


def _from_template(template: Path, name: str, words: dict[str, str]) -> dict[str, str]:
    """Return the files of the new package and its tests, by their paths below the root."""
    files = {}
    for path in sorted(template.rglob("*")):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        inside = path.relative_to(template)
        place = Path("tests", name, *inside.parts[1:]) if inside.parts[0] == "tests" else name / inside
        text = path.read_text(encoding="utf-8")
        for placeholder, word in words.items():
            text = text.replace(placeholder, word)
        files[str(place)] = _imports_sorted(text) if path.suffix == ".py" else text
    return files


def _imports_sorted(text: str) -> str:
    """Return a module with its imports in order again: another name may come before or after its neighbours."""
    return re.sub(r"(^from [\w.]+ import [^(\n]+\n)+", _block_sorted, text, flags=re.MULTILINE)


def _block_sorted(block: re.Match[str]) -> str:
    return "".join(sorted(block[0].splitlines(keepends=True), key=lambda line: line.split()[1]))


def _listed(root: Path, name: str) -> dict[str, str]:
    """Return the files that list the benchmarks, with one more, by their paths.

    Raises UsageError if a file lacks the line of the last benchmark.
    """
    packages = re.search(r"^PACKAGES: Final = \(\n((?:.*\n)+?)\)$", _read(root, LIST), re.MULTILINE)
    if packages is None:
        raise UsageError(f"{LIST} has no tuple PACKAGES with a line per benchmark: restore it")
    last = packages[1].split()[-1].strip('",')
    files = {}
    for path, line in LINES.items():
        text, mark = _read(root, path), line.format(name=last)
        if text.count(mark) != 1:
            raise UsageError(f"{path} has {text.count(mark)} lines {mark.strip()!r}, expected 1: restore it")
        text = text.replace(mark, mark + line.format(name=name))
        files[path] = text
    if files[SETUP].count(ALL_EXTRAS) != 1:
        raise UsageError(f"{SETUP} lacks the lines {ALL_EXTRAS!r}: restore it")
    files[SETUP] = files[SETUP].replace(ALL_EXTRAS, EXTRA.format(name=name) + ALL_EXTRAS)
    return files


if __name__ == "__main__":
    sys.exit(main())
