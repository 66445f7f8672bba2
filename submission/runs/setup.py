"""The settings of a run, resolved as its train command does, and the data that it needs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from common.closed import find_config_class
from common.config import ConfigError, to_yaml
from common.datasets.journal import Journal
from common.datasets.manifest import NAME as MANIFEST
from common.datasets.manifest import ManifestError
from common.errors import UsageError
from common.extras import missing_extra
from common.reference import FULL, OWN
from common.training.progress import duration
from common.training.resolve import resolve_config
from compliance.benchmarks import require_reference
from submission.runs.plan import PlanError
from submission.runs.processes import JobRunner
from submission.runs.progress import NO_BASIS


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a run, resolved by its benchmark. text: the complete configuration as YAML.

    config: name or path, as for the train command. overrides: section.key=value. submission: org, division, status,
    platform and round. imports: modules of your own; a command that reads the run needs them named again.
    """

    benchmark: str
    config: str
    overrides: tuple[str, ...]
    text: str
    variant: str
    data_dir: Path
    submission: dict[str, str]
    imports: tuple[str, ...] = ()


def resolve_setup(benchmark: str, config: str, overrides: Sequence[str], data: Path | None = None) -> Setup:
    """Return the settings as the train command of the benchmark resolves them; UsageError if no run can have them.

    data: parent folder of the dataset; None: as the settings say.
    """
    try:
        resolved = resolve_config(find_config_class(require_reference(benchmark)), config, overrides)
    except ConfigError as error:
        raise UsageError(f"{benchmark}: {error}") from error
    if data is not None:
        folder = quote_yaml(str(data / resolved.data.data_dir.name))
        return resolve_setup(benchmark, config, [*overrides, f"data.data_dir={folder}"])
    names = ("org", "division", "status", "platform", "round")
    return Setup(
        benchmark=benchmark,
        config=config,
        overrides=tuple(overrides),
        text=to_yaml(resolved),
        variant=resolved.variant,
        data_dir=resolved.data.data_dir,
        submission={name: getattr(resolved.submission, name) for name in names},
        imports=tuple(map(str, resolved.train.imports)),
    )


def check_trainer(benchmark: str) -> None:
    """Raise ValueError if the benchmark cannot be trained here, for lack of torch; resolving needs none."""
    if problem := missing_extra(ModuleNotFoundError(name="torch"), f"{benchmark}.train"):
        raise ValueError(problem)


def provide_data(setup: Setup, runner: JobRunner) -> None:
    """Generate the dataset of a mini problem, unless it is complete."""
    folder = setup.data_dir
    if setup.variant in (FULL, OWN) or (folder / MANIFEST).exists():
        return
    work, begin = f"generating the {setup.variant} dataset", time.monotonic()
    print(f"{setup.benchmark}: no data in {folder}; {work}", flush=True)

    def describe() -> str:
        finished = total = 0
        with suppress(OSError, ManifestError):  # its parts may just be replaced by the manifest
            finished, total = Journal(folder).count_files()
        share, elapsed = finished / total if total else 0.0, time.monotonic() - begin
        left = f"about {duration(elapsed / share - elapsed)} (by the files so far)" if share else NO_BASIS
        files = f"{finished:,} of {total:,} files, " if total else ""
        return f"{setup.benchmark}: {work}: {files}{duration(elapsed)} so far; time left: {left}"

    command = [f"{setup.benchmark}.synthesize", str(folder), "--preset", setup.variant]
    if runner.run_silently([sys.executable, "-m", *command], describe):
        raise PlanError(f"cannot generate the data of {setup.benchmark} in {folder}: see the error above")


def quote_yaml(text: str) -> str:
    """Return the text as a quote_yaml YAML string."""
    return "'" + text.replace("'", "''") + "'"
