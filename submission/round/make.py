"""Make a round on this machine: its data, its runs, its package and report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from common.datasets import manifest
from common.files import whole_file
from common.reference import MINI
from submission.round.finish import PackageInputs, RoundPackage
from submission.round.plan import Series, Setup, quoted, resolve
from submission.round.processes import JobRunner, sole_worker
from submission.round.runs import CONFIG, Runs
from submission.round.state import StateError, load_state


def make_round(
    plan: Sequence[Series], output: Path, runner: JobRunner, data: Path | None, inputs: PackageInputs
) -> str:
    """Make what is missing of a round in the folder `output`; return the verdict on its package.

    data: where the folders with the data are, or are made; None: where the configurations say.
    """
    # Before there is a folder: what cannot start leaves nothing.
    setups = [_located(resolve(series), data) for series in plan]
    package = RoundPackage(output, setups, inputs)
    with sole_worker(output) as lock:
        runner = replace(runner, lock=lock)
        state = load_state(output)
        for setup in setups:
            if setup.series.benchmark in state.runs:
                _check_same(output / setup.series.benchmark / CONFIG, setup.text)
        state.ask_for({setup.series.benchmark: setup.series.runs for setup in setups})
        for setup in setups:
            _keep(output / setup.series.benchmark / CONFIG, setup.text)
        state.save(output)
        for setup in setups:
            _provide_data(setup, runner)
        runs = Runs(output, state)
        runs.make(runner)
        return package.write(runs)


def _located(setup: Setup, data: Path | None) -> Setup:
    """Return the setup with its data in a folder of this one, if it is given."""
    if data is None:
        return setup
    return resolve(setup.series.set(f"data.data_dir={quoted(str(data / setup.data_dir.name))}"))


def _check_same(path: Path, text: str) -> None:
    """Raise StateError if another configuration is in the file: the runs of a result are alike."""
    for before, now in zip_longest(path.read_text().splitlines(), text.splitlines(), fillvalue=""):
        if before != now:
            raise StateError(
                f"{path} says `{before.strip()}`, and this call `{now.strip()}`: the runs of a round have the same "
                "configuration; restore it, or choose another folder"
            )


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_text(text)


def _provide_data(setup: Setup, runner: JobRunner) -> None:
    """Generate the data of a mini problem, unless they are complete."""
    folder = setup.data_dir
    if setup.variant == MINI and not (folder / manifest.NAME).exists():
        print(f"{setup.series.benchmark}: no data in {folder}; generating the mini dataset", flush=True)
        if runner.run([sys.executable, "-m", f"{setup.series.benchmark}.synthesize", str(folder)]):
            raise StateError(f"the data of {setup.series.benchmark} could not be made in {folder}: see above")
