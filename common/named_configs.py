"""The configurations that come with a benchmark, found by name wherever the suite is installed.

`config` is the closed division's, `mini` that of the mini problem, and each file in presets/ has its own name.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Final

from common.benchmarks import locate_package
from common.config import ConfigError

CLOSED: Final = "config"
SUFFIXES: Final = (".yaml", ".yml")


def find_config(benchmark: str, given: str) -> Path:
    """Return the file that an argument stands for: a name without slash and suffix, or else a path.

    A name never depends on the files in the current folder: a file without a suffix is ./FILE. Raises ConfigError for
    an unknown name, and for a path that does not exist but was probably meant as a name.
    """
    known = named_configs(benchmark)
    if is_name(given):
        if given in known:
            return known[given]
        near = difflib.get_close_matches(given, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"{benchmark} has no configuration {given!r}; {hint}known are {', '.join(known)}; a file is ./{given} or "
            "FILE.yaml"
        )
    path = Path(given)
    if path.stem in known and not path.exists():
        raise ConfigError(f"{given}: no such file; the configuration that comes with the suite is named {path.stem}")
    return path


def is_name(given: str) -> bool:
    """Tell whether an argument is the name of a configuration, not a path."""
    return "/" not in given and not given.endswith(SUFFIXES)


def named_configs(benchmark: str) -> dict[str, Path]:
    """Return the configurations of a benchmark by name: the closed division's, the mini problem's, then the presets."""
    folder = locate_package(benchmark)
    files = [folder / f"{CLOSED}.yaml", folder / "mini.yaml", *sorted(folder.glob("presets/*.yaml"), key=_by_number)]
    return {file.stem: file for file in files if file.exists()}


def described_configs(benchmark: str) -> str:
    """Return one line for each configuration of a benchmark: its name, and the description at the top of its file."""
    configs = named_configs(benchmark)
    width = max(map(len, configs))
    tops = {name: path.read_text(encoding="utf-8").partition("\n")[0] for name, path in configs.items()}
    return "\n".join(f"{name:<{width}}  {top.removeprefix('#').strip()}" for name, top in tops.items())


def _by_number(path: Path) -> list[tuple[str, int]]:
    """Return a key that sorts gbs64 before gbs128."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D+)(\d*)", path.stem)]
