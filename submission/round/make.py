"""Run a round on this machine: its data, runs, package and report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from common.datasets import manifest
from common.files import write_whole_file
from common.reference import FULL
from submission.round.finish import PackageInputs, RoundPackage
from submission.round.plan import Series, Setup, quoted, resolve
from submission.round.processes import JobRunner, exclusive_lock
from submission.round.runs import CONFIG, Runs
from submission.round.state import StateError, load_state


def make_round(
    plan: Sequence[Series], output: Path, runner: JobRunner, data: Path | None, inputs: PackageInputs
) -> str:
    """Train the missing runs of a round in the folder `output`; return the verdict on its package.

    data: parent folder of the datasets; None: as the configurations say.
    """
    # Before the folder is created: a round that cannot start leaves nothing behind.
    setups = [with_data(resolve(series), data) for series in plan]
    package = RoundPackage(output, setups, inputs)
    with exclusive_lock(output) as lock:
        runner = replace(runner, lock=lock)
        state = load_state(output)
        for setup in setups:
            if setup.series.benchmark in state.runs:
                check_same(output / setup.series.benchmark / CONFIG, setup.text)
        state.request_runs({setup.series.benchmark: setup.series.runs for setup in setups})
        for setup in setups:
            write_config(output / setup.series.benchmark / CONFIG, setup.text)
        state.save(output)
        for setup in setups:
            provide_data(setup, runner)
        runs = Runs(output, state)
        runs.make(runner)
        return package.write(runs)


def with_data(setup: Setup, data: Path | None) -> Setup:
    """Return the setup with its dataset moved below `data`, if given."""
    if data is None:
        return setup
    return resolve(setup.series.set(f"data.data_dir={quoted(str(data / setup.data_dir.name))}"))


def check_same(path: Path, text: str) -> None:
    """Raise StateError if the file holds another configuration: all runs of a result share one."""
    for before, now in zip_longest(path.read_text().splitlines(), text.splitlines(), fillvalue=""):
        if before != now:
            raise StateError(
                f"{path} has `{before.strip()}`, but this call has `{now.strip()}`: all runs of a round use the same "
                "configuration; restore the setting, or choose another folder with -o"
            )


def write_config(path: Path, text: str) -> None:
    """Write the configuration that all runs of a benchmark share."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole_file(path, text)


def provide_data(setup: Setup, runner: JobRunner) -> None:
    """Generate the dataset of a mini problem, unless it is complete."""
    folder = setup.data_dir
    if setup.variant != FULL and not (folder / manifest.NAME).exists():
        what = f"{setup.series.benchmark}: no data in {folder}; generating the {setup.variant} dataset"
        print(what, flush=True)
        command = [f"{setup.series.benchmark}.synthesize", str(folder), "--preset", setup.variant]
        if runner.run([sys.executable, "-m", *command], instead=what):
            raise StateError(f"cannot generate the data of {setup.series.benchmark} in {folder}: see the error above")
