"""A plan of runs: what each one runs, with which settings, on how many ranks, in which folder.

Whatever makes many runs, such as a round or a study, is a list of `PlannedRun`. A run keeps its plan in its own folder,
so that the same plan given again continues: what has a result is never repeated.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from common.bad_json import decode_json
from common.ending import NAME as ENDED
from common.ending import read_ending
from common.errors import UsageError
from common.files import LOG_NAME, instance_folder, write_whole_file
from common.measure.fom import NAME as FIGURE
from common.measure.fom import read_measurement
from common.record import read_run_times, read_value
from common.version import FOLDERS_VARIABLE

Kind = Literal["training", "measurement", "evaluation"]
RECORD: Final = "run.json"
"""The plan of a run, in its folder: the fields of RECORDED."""
RECORDED: Final = "benchmark kind config overrides ranks seed environment options instances".split()
RESUME: Final = "--auto-resume"


def assign_folders() -> tuple[str, ...]:
    """Return assignments for a shell, by which Python finds the packages of --benchmarks-from, too; () without any."""
    folders = os.environ.get(FOLDERS_VARIABLE, "")
    word = shlex.quote(folders)
    return (f"{FOLDERS_VARIABLE}={word}", f'PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{word}') if folders else ()


class PlanError(ValueError):
    """The folder of a plan does not fit the plan; the message says where, and how to fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run of a plan.

    config: as for the command of the kind; of an evaluation the runs to evaluate, in `options`. overrides:
    section.key=value, later ones take precedence. folder: the run's own. ranks: processes that a launcher starts; 1:
    none. seed: of a training, None if it is drawn by the training itself. environment: additional variables. options:
    further words of the command, such as --steps 30. instances: of the job, in instance_0, instance_1, …, which a
    killed job continues in place; 0: it trains one network, in its folder. group: runs that are given up together; "":
    those of the benchmark. title: the name in messages; "": benchmark and folder, such as cosmoflow/run_3.
    """

    benchmark: str
    kind: Kind
    config: str
    folder: Path
    overrides: tuple[str, ...] = ()
    ranks: int = 1
    seed: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    instances: int = 0
    group: str = ""
    title: str = ""

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.title or f"{self.benchmark}/{self.folder.name}"

    @property
    def group_name(self) -> str:
        """The name of the runs that are given up together."""
        return self.group or self.benchmark

    @property
    def result_file(self) -> Path:
        """The file that appears when the run has ended with a result."""
        names = {"training": ENDED, "measurement": FIGURE, "evaluation": "evaluation.json"}
        return self.result_folders[-1] / names[self.kind]

    @property
    def result_folders(self) -> list[Path]:
        """The folders with a log: of each instance, or that of the run."""
        return [instance_folder(self.folder, number) for number in range(self.instances)] or [self.folder]

    def words(self) -> list[str]:
        """Return the module of the run and its arguments, without a launcher."""
        if self.kind == "training":
            words = [f"{self.benchmark}.train", self.config, *self.overrides, f"output_dir={self.folder}"]
            words += [f"instances.count={self.instances}", "instances.first=0"] if self.instances else []
            words += [] if self.seed is None else [f"train.seed={self.seed}"]
            words += [RESUME] if self.instances else []
        elif self.kind == "measurement":
            words = [self.benchmark, "measure", self.config, *self.overrides, "-o", str(self.result_file)]
        else:
            words = [self.benchmark, "evaluate", *self.overrides, "-o", str(self.result_file)]
        return [*words, *self.options]

    def command(self, python: str = sys.executable) -> list[str]:
        """Return the command that makes the run on this machine."""
        launcher = [python, "-m"]
        if self.ranks > 1:
            launcher += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks), "-m"]
        return launcher + self.words()

    def encode(self) -> bytes:
        """Return what a run keeps of its plan, as JSON on a line.

        A configuration in the folder of the plan is relative to that of the run, so that the plan can be moved.
        """
        config = Path(self.config)
        is_shared = config.name != self.config and config.parent == self.folder.parent
        values = {key: getattr(self, key) for key in RECORDED}
        return msgspec.json.encode(values | ({"config": f"../{config.name}"} if is_shared else {}))

    def write_record(self) -> None:
        """Write the plan of the run into its folder, which is made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole_file(self.folder / RECORD, msgspec.json.format(self.encode()) + b"\n")


def is_finished(run: PlannedRun) -> bool:
    """Tell whether a run has its result, by its folder alone; one without is active, was killed, or not started."""
    if run.kind == "training":
        return all(map(has_ended, run.result_folders))
    if run.kind == "measurement":
        try:
            read_measurement(run.result_file)
        except UsageError:
            return False
        return True
    return run.result_file.exists()


def has_ended(folder: Path) -> bool:
    """Tell whether the training in a folder has ended with a result, by its record and its log."""
    ending, log = read_ending(folder), folder / LOG_NAME
    return ending is not None and ending.final and (not log.exists() or read_run_times(log) is not None)


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the plan that a run keeps in its folder; None if it has none. Raises PlanError if it is damaged."""
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        return decode_json(path.read_bytes(), dict[str, Any])
    except ValueError as error:
        raise PlanError(f"{path} is not the plan of a run: {error}; restore it, or use another folder") from error


def has_result(run: PlannedRun) -> bool:
    """Tell whether a run, or an instance of it, has ended with a result."""
    return any(map(has_ended, run.result_folders)) if run.kind == "training" else is_finished(run)


def keep_seeds(runs: Sequence[PlannedRun], draw: Iterator[int]) -> list[PlannedRun]:
    """Return the runs, each with the seed that its folder keeps, else one that is drawn and no other run has.

    Raises PlanError if record and log contradict each other, or a log has neither.
    """
    kept = [_read_seed(run) for run in runs]
    used = set(kept)
    seeded = []
    for run, seed in zip(runs, kept, strict=True):
        if seed is None:
            seed = next(seed for seed in draw if seed not in used)
            used.add(seed)
        seeded.append(replace(run, seed=seed))
    return seeded


def _read_seed(run: PlannedRun) -> int | None:
    """Return the seed of a run by its record, else by its log; None if it has not begun."""
    record, log = read_record(run.folder), run.result_folders[0] / LOG_NAME
    planned, logged = (record or {}).get("seed"), read_value(log, "seed")
    if planned is not None and (type(planned) is not int or not 0 <= planned < 2**63):
        raise PlanError(f"{run.folder / RECORD}: seed is {planned!r}, expected a whole number from 0 on; restore it")
    if None not in (planned, logged) and planned != logged:
        raise PlanError(
            f"{run.folder / RECORD}: seed is {planned}, but {log} has {logged}; restore the file that is wrong"
        )
    seed = logged if planned is None else planned
    if seed is None and record is None and log.exists():
        raise PlanError(f"{run.folder} has a log without a seed, and no {RECORD}; restore it, or remove the folder")
    return seed


def check_records(runs: Sequence[PlannedRun]) -> None:
    """Raise PlanError if a folder keeps another plan than that of its run: results of both would be mixed."""
    for run in runs:
        if (before := read_record(run.folder)) is None:
            continue
        changeable = {"ranks", "instances"} if run.instances else set()
        for key, value in msgspec.json.decode(run.encode()).items():
            if key not in changeable and before.get(key) != value:
                old, new = _list_items(before.get(key)), _list_items(value)
                raise PlanError(
                    f"{run.folder / RECORD}: {key} has changed: {_list_others(old, new)} before, "
                    f"{_list_others(new, old)} now; restore it, or choose another folder with -o"
                )


def _list_items(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name}={text}" for name, text in value.items()]
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def _list_others(items: Sequence[str], others: Sequence[str]) -> str:
    """Return the items that are not among the others."""
    return ", ".join(item for item in items if item not in others) or "none"
