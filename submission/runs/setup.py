"""The settings of a run, resolved as its train command does, and the data that it needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.config import ConfigError, to_yaml
from common.data.manifest import NAME as MANIFEST
from common.errors import UsageError
from common.installed import missing_extra
from common.reference import FULL, OWN
from common.settings.keys import find_config_class
from common.training.resolve import resolve_config
from compliance.benchmarks import require_reference
from submission.runs.plan import PlanError
from submission.runs.processes import JobRunner


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
    data = f"the dataset of the mini problem ({setup.variant})"
    print(f"{setup.benchmark}: no data in {folder}; generating {data}", flush=True)
    command = [f"{setup.benchmark}.synthesize", str(folder), "--preset", setup.variant]
    if runner.run_silently([sys.executable, "-m", *command]):
        raise PlanError(f"cannot generate the data of {setup.benchmark} in {folder}: see the error above")


def quote_yaml(text: str) -> str:
    """Return the text as a quote_yaml YAML string."""
    return "'" + text.replace("'", "''") + "'"
