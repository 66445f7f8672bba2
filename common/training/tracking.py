"""Where the numbers of a run go: its files and TensorBoard always, Weights & Biases and MLflow by `track.to`.

history.csv has a row per epoch, metrics.jsonl a line per step and epoch.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, TextIO

from common.config import ConfigError
from common.console import print_warning
from common.ending import STOPPED, Ending
from common.files import INSTANCE, follow_no_link, name_errors, open_whole_file, read_end, write_whole_file
from common.mllog import set_aside
from common.record import METRICS, parse_object
from common.settings.machine import TrackConfig, Tracker
from common.training.callbacks import Callback, Epoch, RunStart, StepRecord
from common.training.checkpoint import Position

HISTORY: Final = "history.csv"


class RunFile(Callback):
    """A file of a run that an error of the file system, which may pass, does not end.

    What could not be written comes with what is written next; there is one warning. guard: raises if another training
    owns the folder now.
    """

    def __init__(self, guard: Callable[[], None]) -> None:
        self._guard, self._failed = guard, False

    @contextmanager
    def _retried_later(self) -> Iterator[None]:
        """Show the first error of the system in any `with`, and go on."""
        self._guard()
        try:
            yield
        except OSError as error:
            if not self._failed:
                print_warning(f"{self.name}: {error}; training goes on, and tries again")
            self._failed = True


class History(RunFile):
    """Writes the table of epochs: as a whole first, and where the file is not as it was left; else the last row."""

    name = HISTORY

    def begin(self, run: RunStart) -> None:
        self._path, self._epochs = run.folder / HISTORY, list(run.history)
        self._written, self._bytes = len(run.history), -1

    def epoch(self, epoch: Epoch) -> None:
        self._epochs.append(epoch)
        self._write_rows()

    def end(self, ending: Ending) -> None:
        if self._written < len(self._epochs):
            self._write_rows()

    def _write_rows(self) -> None:
        with self._retried_later():
            if self._path.exists() and self._path.stat().st_size == self._bytes:
                with (
                    name_errors(self._path),
                    open(self._path, "a", encoding="utf-8", newline="", opener=follow_no_link) as file,
                ):
                    self._table_of(file).writerows(map(asdict, self._epochs[self._written :]))
            else:
                with open_whole_file(self._path, "w") as file:
                    table = self._table_of(file)
                    table.writeheader()
                    table.writerows(map(asdict, self._epochs))
            self._written, self._bytes = len(self._epochs), self._path.stat().st_size

    def _table_of(self, file: TextIO) -> csv.DictWriter[str]:
        return csv.DictWriter(file, [field.name for field in fields(Epoch)])


class Metrics(RunFile):
    """Writes a line for each step and each epoch: JSON, with null for what is not a finite number.

    A resumed run removes the lines of what it will do again; a new one keeps an earlier file under another name.
    """

    name = METRICS

    def __init__(self, guard: Callable[[], None]) -> None:
        super().__init__(guard)
        self._lines: deque[str] = deque(maxlen=100_000)  # that cannot be written; the oldest are lost first
        self._wrote_at = time.monotonic()
        self._unprepared: RunStart | None = None
        self._bytes = 0

    def begin(self, run: RunStart) -> None:
        self._path, self._unprepared = run.folder / METRICS, run
        with self._retried_later():
            self._prepare_file()

    def step(self, step: StepRecord) -> None:
        self._lines.append(_format_line("step", step))
        if time.monotonic() - self._wrote_at > 1:  # s, for which lines are kept in memory
            self._write_lines()

    def epoch(self, epoch: Epoch) -> None:
        self._lines.append(_format_line("epoch", epoch))
        self._write_lines()

    def saving(self) -> None:
        self._write_lines()

    def end(self, ending: Ending) -> None:
        self._write_lines()

    def _prepare_file(self) -> None:
        """Keep what an earlier start has written of what is not done again; only the first call does it."""
        run = self._unprepared
        if run is None:
            return
        if not run.resumed:
            set_aside(self._path)
        elif self._path.exists():
            # Damaged lines, as of a killed run, go too.
            with open_whole_file(self._path, "w") as new, self._path.open(encoding="utf-8") as old:
                new.writelines(line for line in old if _is_before(line, run.position, len(run.history)))
        self._bytes = self._path.stat().st_size if self._path.exists() else 0
        self._unprepared = None

    def _write_lines(self) -> None:
        self._wrote_at = time.monotonic()
        if not self._lines:
            return
        with self._retried_later():
            self._prepare_file()
            text = "".join(self._lines).encode()
            with name_errors(self._path), open(self._path, "ab", opener=follow_no_link) as file:
                self._bytes = min(self._bytes, file.tell())
                file.truncate(self._bytes)  # without the part of a write that failed
                file.write(text)
            self._bytes += len(text)
            self._lines.clear()


def _format_line(kind: str, record: StepRecord | Epoch) -> str:
    numbers = {name: value if math.isfinite(value) else None for name, value in asdict(record).items()}
    return json.dumps({"kind": kind, **numbers}) + "\n"


def _is_before(line: str, position: Position, epochs: int) -> bool:
    """Tell whether a line is of a step up to a position, or of one of the first epochs."""
    try:
        record: Any = json.loads(line)
        if record["kind"] == "epoch":
            return bool(record["epoch"] <= epochs)
        return bool((record["epoch"] - 1, record["step"]) <= (position.epoch, position.step))
    except (ValueError, TypeError, LookupError, RecursionError):
        return False


def read_history(folder: Path) -> list[Epoch]:
    """Return the epochs of a run, by the table in its folder; none if it has no table yet."""
    path = folder / HISTORY
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    rows = csv.DictReader(text[: text.rfind("\n") + 1].splitlines())  # a row may just be being written
    names = [field.name for field in fields(Epoch) if field.name != "epoch"]
    return [Epoch(int(row["epoch"]), **{name: float(row[name]) for name in names if name in row}) for row in rows]


TENSORBOARD: Final = "tensorboard"
IDS: Final = "tracked.json"
"""The ids of the tracked runs by tracker, in the folder of the run."""
AXES: Final = {"step": "step/global_step", "epoch": "epoch/epoch"}
"""What the numbers of each kind are drawn over."""
FINISH_S: Final = 300.0
"""How long the end of a run waits for what is still to be sent."""
MOST_PARAMS: Final = 100
"""That MLflow takes in one call."""
SEND_S: Final = 5.0
"""How long metrics wait for others, so that a call takes many."""


def check_installed(config: TrackConfig) -> None:
    """Raise ConfigError for a tracker whose package is missing."""
    for tracker in config.to:
        if importlib.util.find_spec(tracker) is None:
            raise ConfigError(f"track.to names {tracker}, which is not installed: pip install '.[{tracker}]'")


def make_callbacks(config: TrackConfig, guard: Callable[[], None]) -> Iterator[Callback]:
    """Yield what a configuration tracks a training with. guard: raises if another training owns the folder now."""
    yield History(guard)
    yield Metrics(guard)
    if importlib.util.find_spec(TENSORBOARD):
        yield TensorBoard()
    for tracker in config.to:
        yield TRACKERS[tracker](config)


class NumbersCallback(Callback):
    """Takes the numbers of steps and epochs by their names at trackers: step/loss, epoch/quality, ..."""

    def step(self, step: StepRecord) -> None:
        self._add_record("step", step, step.global_step)

    def epoch(self, epoch: Epoch) -> None:
        self._add_record("epoch", epoch, epoch.epoch)

    def _add_record(self, kind: str, record: StepRecord | Epoch, count: int) -> None:
        counters = ("epoch", "step", "global_step")
        self.add_numbers(
            kind, {f"{kind}/{name}": value for name, value in asdict(record).items() if name not in counters}, count
        )

    def add_numbers(self, kind: str, numbers: dict[str, float], count: int) -> None:
        """Take the numbers of a step or an epoch, the `count`-th."""
        raise NotImplementedError


class TensorBoard(NumbersCallback):
    """Writes scalars for TensorBoard: step/NAME over steps, epoch/NAME over epochs."""

    name = TENSORBOARD

    def begin(self, run: RunStart) -> None:
        from torch.utils.tensorboard import SummaryWriter  # an optional package

        self._folder = run.folder / TENSORBOARD
        again = run.global_step + 1 if run.resumed else None  # from here on, the viewer ignores what was written before
        with name_errors(self._folder):
            self._board = SummaryWriter(str(self._folder), purge_step=again)

    def saving(self) -> None:
        self._board.flush()

    def end(self, ending: Ending) -> None:
        with name_errors(self._folder):
            self._board.close()

    def add_numbers(self, kind: str, numbers: dict[str, float], count: int) -> None:
        """Write all numbers as one event, which takes a tenth of the time of `add_scalar` for each."""
        from tensorboard.compat.proto.summary_pb2 import Summary  # an optional package

        values: list[Any] = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        with name_errors(self._folder):
            self._board.file_writer.add_summary(Summary(value=values), count)


class TrackedRun(NumbersCallback):
    """A run at a tracker; one that is resumed is continued there."""

    def __init__(self, config: TrackConfig) -> None:
        self._config = config

    def title_of(self, run: RunStart) -> str:
        """Return the name of the project or experiment."""
        return self._config.project or run.benchmark

    def name_of(self, run: RunStart) -> str:
        """Return the name of the run: by default that of its folder, with that of the job of several trainings."""
        folder = run.folder.resolve()
        return self._config.name or (
            f"{folder.parent.name}/{folder.name}" if re.fullmatch(INSTANCE, folder.name) else folder.name
        )

    def find_id(self, run: RunStart) -> str | None:
        """Return the id of the tracked run that a resumed training continues; None if it begins one."""
        id_ = _read_ids(run.folder).get(self.name) if run.resumed else None
        return id_ if isinstance(id_, str) else None

    def keep_id(self, run: RunStart, id_: str) -> None:
        """Keep the id of the tracked run, for a training that continues it."""
        write_whole_file(run.folder / IDS, json.dumps({**_read_ids(run.folder), self.name: id_}) + "\n")


def _read_ids(folder: Path) -> dict[str, Any]:
    return parse_object(read_end(folder / IDS))


class WandbRun(TrackedRun):
    """Sends a run to a project of Weights & Biases; WANDB_MODE=offline keeps it in output_dir, for `wandb sync`."""

    name = "wandb"

    def begin(self, run: RunStart) -> None:
        import wandb  # an optional package

        id_ = self.find_id(run) or secrets.token_hex(8)
        self._run = wandb.init(
            project=self.title_of(run),
            name=self.name_of(run),
            id=id_,
            resume="allow",
            dir=str(run.folder),
            config={**run.config, "seed": run.seed, "benchmark": run.benchmark},
            allow_val_change=True,  # such as train.epochs of a resumed run
            # With its `console` it would take the place of standard output, and it writes much there itself.
            settings=wandb.Settings(console="off", silent=True, finish_timeout=FINISH_S),
        )
        self.keep_id(run, id_)
        offline = f"offline, in {run.folder}/wandb: `wandb sync` sends it"
        print(f"wandb: {offline if self._run.offline else self._run.url}", flush=True)
        # Steps after a checkpoint come again, and wandb's own counter never goes back.
        for kind, axis in AXES.items():
            self._run.define_metric(axis, hidden=True)
            self._run.define_metric(f"{kind}/*", step_metric=axis)
        self._run.define_metric("epoch/quality", summary="min" if run.target.lower_is_better else "max")

    def add_numbers(self, kind: str, numbers: dict[str, float], count: int) -> None:
        self._run.log({**numbers, AXES[kind]: count})

    def end(self, ending: Ending) -> None:
        self._run.summary["ended"] = ending.how
        self._run.finish(exit_code=0 if ending.final else ending.exit_status)


class MlflowRun(TrackedRun):
    """Sends a run to an experiment of MLflow, by a thread of its own.

    MLFLOW_TRACKING_URI names the server, or the database or folder.
    """

    name = "mlflow"

    def begin(self, run: RunStart) -> None:
        from mlflow import MlflowClient  # an optional package

        self._client, self._thread = MlflowClient(), ThreadPoolExecutor(1)
        self._metrics: list[Any] = []
        self._calls: list[Future[Any]] = []
        self._sent_at = time.monotonic()
        if id_ := self.find_id(run):
            self._id = id_
            self._client.update_run(id_, "RUNNING")
        else:
            title = self.title_of(run)
            experiment = self._client.get_experiment_by_name(title)
            experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(title)
            self._id = str(self._client.create_run(experiment_id, run_name=self.name_of(run)).info.run_id)
            self.keep_id(run, self._id)
            self._describe_run(run)
        print(f"mlflow: run {self._id}", flush=True)

    def _describe_run(self, run: RunStart) -> None:
        """Send the configuration, which MLflow takes once."""
        from mlflow.entities import Param  # an optional package

        values = {**dict(_flatten_config(run.config)), "seed": run.seed, "benchmark": run.benchmark}
        # Any store of MLflow takes 500 characters.
        params = [Param(name, str(value)[:500]) for name, value in values.items()]
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self._id, params=params[first : first + MOST_PARAMS])

    def saving(self) -> None:
        self._send_metrics()

    def end(self, ending: Ending) -> None:
        self._send_metrics()
        done, late = wait(self._calls, FINISH_S)
        self._thread.shutdown(wait=False, cancel_futures=True)
        if late:
            raise TimeoutError(f"{len(late)} of {len(late) + len(done)} calls took more than {FINISH_S:.0f} s")
        self._raise_failures()
        status = "FINISHED" if ending.final else "FAILED"
        if ending.how == STOPPED:
            status = "KILLED"
        self._client.set_tag(self._id, "ended", ending.text)
        self._client.set_terminated(self._id, status)

    def add_numbers(self, kind: str, numbers: dict[str, float], count: int) -> None:
        from mlflow.entities import Metric  # an optional package

        now_ms = time.time_ns() // 1_000_000
        self._metrics += [Metric(name, value, now_ms, count) for name, value in numbers.items()]
        # MLflow takes 1,000 in one call.
        if len(self._metrics) > 990 or time.monotonic() - self._sent_at > SEND_S:
            self._send_metrics()

    def _send_metrics(self) -> None:
        """Have the thread send what was collected; raise what went wrong before."""
        self._raise_failures()
        if self._metrics:
            self._calls.append(self._thread.submit(self._client.log_batch, self._id, metrics=self._metrics))
        self._metrics, self._sent_at = [], time.monotonic()

    def _raise_failures(self) -> None:
        """Forget the calls that are done; raise the error of one that failed."""
        for call in [call for call in self._calls if call.done()]:
            self._calls.remove(call)
            call.result()


def _flatten_config(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a configuration by dotted key."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten_config(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


TRACKERS: Final[dict[Tracker, type[TrackedRun]]] = {"wandb": WandbRun, "mlflow": MlflowRun}
