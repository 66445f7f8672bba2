"""A sweep: trainings with different values of some keys, one after another, each in a folder with a speaking name."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

import torch
import yaml

from common.config import ConfigError, Loader, Override
from common.ending import Ending, classify_error, read_ending
from common.errors import UsageError
from common.files import LOG_NAME, open_whole_file
from common.lease import InUseError
from common.ranks.launch import find_rank_position
from common.record import read_run_times
from common.settings.run import RunConfig
from common.stop import STOP
from common.training.benchmark import Benchmark
from common.training.job import SHOWN, configure_training, free_memory, job_ending, train
from common.training.run import TRAINING_ERRORS, Start
from common.training.tracking.files import read_history

TABLE: Final = "sweep.csv"
FORBIDDEN: Final = re.compile(r"[^\w.+-]+")
"""What a folder's name has a dash for."""
LONGEST: Final = 120
"""Characters of a folder's name."""


@dataclass(frozen=True, slots=True)
class Point:
    """One of the trainings. values: by key, those that differ; config: whose output_dir is the folder of this one."""

    values: dict[str, Any]
    config: RunConfig

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.config.output_dir


class Sweep:
    """The trainings with each combination of values. values: of each key; the last key varies first.

    Everything is checked here, before anything is made: ConfigError names what no run can have.
    """

    def __init__(
        self, benchmark: Benchmark, config: str, overrides: Sequence[Override], values: Mapping[str, Sequence[Any]]
    ) -> None:
        launch = find_rank_position(os.environ)
        if launch.world_size != 1:  # an error of one training would end all
            raise UsageError(
                f"a sweep trains in one process, but {launch.launcher} started several: start it alone, or train each "
                "combination by a command of its own"
            )
        self.benchmark, self.overrides = benchmark, tuple(overrides)
        self.lower_is_better = benchmark.reference.target.lower_is_better
        lasts = [key.rpartition(".")[2] for key in values]
        names = {key: last if lasts.count(last) == 1 else key for key, last in zip(values, lasts, strict=True)}
        self.points: list[Point] = []
        self.failed: dict[Path, Ending] = {}
        for combination in itertools.product(*values.values()):
            point = dict(zip(values, combination, strict=True))
            resolved = configure_training(benchmark, config, [*overrides, point])
            if resolved.instances.count > 1 or resolved.instances.first is not None:
                raise ConfigError("a sweep trains single networks: leave instances.count and instances.first out")
            self.folder = resolved.output_dir
            folder = self.folder / "_".join(f"{names[key]}-{_name_value(value)}" for key, value in point.items())
            self.points.append(Point(point, replace(resolved, output_dir=folder)))
        if (self.folder / LOG_NAME).exists():
            raise ConfigError(f"{self.folder} has a run; choose an output_dir for the sweep alone")
        folders = [point.folder for point in self.points]
        for folder in folders:
            if folders.count(folder) > 1:
                raise ConfigError(f"two trainings of the sweep would have the folder {folder}: give each value once")
            if len(folder.name) > LONGEST:
                raise ConfigError(f"{folder.name} is too long for the name of a folder; sweep over fewer keys at once")

    def run(self, start: Start) -> int:
        """Train what has no result yet, in order, and show the table; return the exit status, that of instances."""
        for number, point in enumerate(self.points, 1):
            print(f"[{number}/{len(self.points)}] {point.folder}", flush=True)
            try:
                train(self.benchmark, point.config, replace(start, overrides=(*self.overrides, point.values)))
            except (*TRAINING_ERRORS, InUseError) as error:
                self.failed[point.folder] = classify_error(error)
                print(f"error: {point.folder.name}: {error}", file=sys.stderr, flush=True)
            finally:
                self._write_table()
                free_memory(torch.accelerator.current_accelerator() or torch.device("cpu"))
            if STOP.number:
                print("the same command continues the sweep", flush=True)
                break
        print("\n".join(self._format_table()), flush=True)
        return job_ending(dict(enumerate(map(self._find_ending, self.points)))).exit_status

    def _find_ending(self, point: Point) -> Ending | None:
        """Return how a training ended; None if it has not."""
        return self.failed.get(point.folder) or read_ending(point.folder)

    def _list_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the record of each training so far."""
        for point in self.points:
            ending, history = self._find_ending(point), read_history(point.folder)
            clock = read_run_times(point.folder / LOG_NAME)
            qualities = [epoch.quality for epoch in history]
            how = shorten(ending.text, SHOWN, placeholder=" …") if ending else "killed" if history else "not started"
            yield {
                "folder": point.folder.name,
                **{key: _format_value(value) for key, value in point.values.items()},
                "epochs": len(history),
                "best": (min if self.lower_is_better else max)(qualities) if qualities else None,
                "last": qualities[-1] if qualities else None,
                "loss": history[-1].loss if history else None,
                "minutes": (clock[1] - clock[0]) / 60_000 if clock else None,
                "ended": how,
            }

    def _write_table(self) -> None:
        rows = list(self._list_rows())
        self.folder.mkdir(parents=True, exist_ok=True)
        with open_whole_file(self.folder / TABLE, "w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)

    def _format_table(self) -> Iterator[str]:
        rows = [{name: _format_cell(value) for name, value in row.items()} for row in self._list_rows()]
        for row in rows:
            del row["folder"]
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
        *_, last = widths
        for row in ({name: name for name in widths}, *rows):
            yield "  ".join(row[name] if name == last else f"{row[name]:>{width}}" for name, width in widths.items())
        yield f"{self.benchmark.reference.target.key} is best and last; the table: {self.folder / TABLE}"


def parse_axes(arguments: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values by key of arguments such as "optim.momentum=0.8,0.9"; UsageError for one without values."""
    values_of: dict[str, list[Any]] = {}
    for text in arguments:
        key, _, list_text = text.partition("=")
        try:
            values = yaml.load(f"[{list_text}]", Loader=Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            values = None
        if not values or not key:
            raise UsageError(
                f"--sweep {text}: expected section.key=VALUE,VALUE with values in YAML, such as train.seed=1,2 or "
                "'optim.betas=[0.9, 0.99],[0.9, 0.999]'"
            )
        if key in values_of or key == "output_dir":
            reason = "is named twice" if key in values_of else "is made by the sweep"
            raise UsageError(f"--sweep {text}: {key} {reason}")
        values_of[key] = values
    return values_of


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _name_value(value: Any) -> str:
    """Return a value as it is in the name of a folder."""
    text = _format_value(value)
    return FORBIDDEN.sub("-", text).strip("-") if FORBIDDEN.search(text) else text


def _format_cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
