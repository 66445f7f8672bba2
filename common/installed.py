"""What is installed beside the code: pages of the documentation, named configurations, and optional packages.

Pages and configurations are found wherever the suite is installed, in a checkout or from a wheel. A command whose
packages are missing says in one line what to install.
"""

from __future__ import annotations

import difflib
import posixpath
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from common.benchmarks import PACKAGES, ROOT, find_package, locate_package
from common.command import as_called
from common.console import print_error
from common.errors import NEEDS_POSIX, ConfigError, UsageError
from common.files import whole_file
from common.version import DISTRIBUTION

SHARED_FOLDER: Final = f"share/{DISTRIBUTION}/"
"""The folder of these files in an environment with the wheel; setup.cfg lists them."""
SECTIONS: Final = ("", "docs/", "docs/guide/", "docs/reference/", "docs/performance/", "docs/performance/records/")
"""What a short name of a page may leave out, in this order."""


def list_shared_files() -> dict[str, Path]:
    """Return the files that the wheel put beside the packages, by their names in a checkout; none for another copy."""
    try:
        wheel = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return {}
    if Path(str(wheel.locate_file(""))).resolve() != ROOT.resolve():
        return {}
    files = (file for file in wheel.files or () if SHARED_FOLDER in file.as_posix())
    return {file.as_posix().partition(SHARED_FOLDER)[2]: Path(str(wheel.locate_file(file))) for file in files}


def list_pages() -> dict[str, Path]:
    """Return the pages by name, such as docs/guide/check.md or cosmoflow/README.md."""
    readmes = {f"{name}/README.md": ROOT / name / "README.md" for name in PACKAGES}
    if (ROOT / "setup.cfg").is_file():
        paths = (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
        files = {path.relative_to(ROOT).as_posix(): path for path in paths}
    else:
        files = list_shared_files()
    return {name: path for name, path in files.items() if re.fullmatch(r"(docs/.*|README)\.md", name)} | readmes


def find_page(name: str) -> Path | None:
    """Return the page of a name: docs/guide/check.md, with or without an anchor, guide/check, check or cosmoflow."""
    pages = list_pages()
    name = posixpath.normpath(name.partition("#")[0]).removesuffix(".md")
    names = (f"{section}{name}{end}.md" for section in SECTIONS for end in ("", "/README"))
    return next((pages[page] for page in names if page in pages), None)


CLOSED: Final = "config"
SUFFIXES: Final = (".yaml", ".yml")


def find_config(benchmark: str, argument: str) -> Path:
    """Return the file that an argument stands for: a name without slash and suffix, or else a path.

    A name never depends on the files in the current folder: a file without a suffix is ./FILE. Raises ConfigError for
    an unknown name, and for a path that does not exist but was probably meant as a name.
    """
    configs = named_configs(benchmark)
    if is_name(argument):
        if argument in configs:
            return configs[argument]
        near = difflib.get_close_matches(argument, configs, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"{benchmark} has no configuration {argument!r}; {hint}known are {', '.join(configs)}; a file is "
            f"./{argument} or FILE.yaml"
        )
    path = Path(argument)
    if path.stem in configs and not path.exists():
        raise ConfigError(f"{argument}: no such file; the configuration that comes with the suite is named {path.stem}")
    return path


def is_name(argument: str) -> bool:
    """Tell whether an argument is the name of a configuration, not a path."""
    return "/" not in argument and not argument.endswith(SUFFIXES)


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


EXTRAS: Final = {"common": "[train]", "compliance": "", "submission": ""}
"""The extra that the commands of a package need; a benchmark's own has the name of its package."""
POSIX: Final = ("fcntl", "pwd", "resource")
"""Modules of Python that Windows lacks."""
TRAINING: Final = ("torch", "numpy", "mlperf_logging", "safetensors")
"""What every training imports."""


def missing_extra(error: BaseException, module: str, extra: str = "") -> str | None:
    """Return what a module needs to be imported; None if the error is not about an optional package or Windows.

    module: or `BENCHMARK COMMAND`. extra: `[NAME]` where it is not that of the module.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    name = error.name.partition(".")[0]
    command = as_called(f"python -m {module}").removesuffix(".__main__")
    if name in POSIX:
        return f"{command} {NEEDS_POSIX}"
    if name in sys.modules or find_spec(name) is not None:  # it is there, and lacks something: not for pip
        return None
    package = re.split(r"\W", module)[0]
    benchmark = find_package(package)
    if benchmark and benchmark.distribution and not extra:  # which says what it needs
        requirement = benchmark.distribution
    else:
        extra = extra or ("[train]" if benchmark and benchmark.origin else EXTRAS.get(package, f"[{package}]"))
        requirement = f"{ROOT if (ROOT / 'setup.cfg').exists() else DISTRIBUTION}{extra}"
    return f"{command} needs {name}: pip install '{requirement}'"


def require_training(benchmark: str) -> None:
    """End `python -m BENCHMARK.train`, before its imports, with one line if training is not installed."""
    for name in (*POSIX, *TRAINING):
        if find_spec(name) is None:
            print_error(f"{missing_extra(ModuleNotFoundError(name=name), f'{benchmark}.train')}")
            sys.exit(1)


def new_figure() -> Any:
    """Return an empty figure; UsageError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("--plot needs matplotlib: pip install matplotlib") from error
    return Figure(layout="constrained")


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file, whole or not at all; OSError if it cannot be written, as in an unknown format."""
    try:
        with whole_file(path) as part:
            figure.savefig(part, dpi=120, format=path.suffix[1:])
    except (OSError, ValueError) as error:
        raise OSError(f"{path}: the picture cannot be written: {error}") from error
