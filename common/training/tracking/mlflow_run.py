"""The run at MLflow: at the server, or in the database or folder, that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

from common.ending import STOPPED, Ending
from common.training.callbacks import Callback, Epoch, RunStart, StepRecord
from common.training.tracking.tracked import flat, keep_id, known_id, named, run_name

MOST_METRICS: Final = 1000
"""That MLflow takes in one call."""
MOST_PARAMS: Final = 100
"""That MLflow takes in one call."""
LONGEST_PARAM: Final = 500
"""Characters of a value that any store of MLflow takes."""
SEND_S: Final = 5.0
"""How long metrics wait for others, so that a call takes many."""
FINISH_S: Final = 300.0
"""How long the end of a run waits for what is still to be sent."""


class MlflowRun(Callback):
    """Sends a run to an experiment, by a thread of its own. name: of the run there; None: that of its folder."""

    name = "mlflow"

    def __init__(self, experiment: str | None, run: str | None) -> None:
        self._experiment, self._run_name = experiment, run
        self._metrics: list[Any] = []
        self._sent: list[Future[Any]] = []
        self._sent_at = time.monotonic()

    def begin(self, run: RunStart) -> None:
        from mlflow import MlflowClient  # an optional package

        self._client = MlflowClient()
        self._thread = ThreadPoolExecutor(1)
        known = known_id(run, self.name)
        self._id = known or self._create(run)
        print(f"mlflow: run {self._id}", flush=True)
        if known:
            self._client.update_run(known, "RUNNING")
        else:
            keep_id(run, self.name, self._id)
            self._describe(run)

    def _create(self, run: RunStart) -> str:
        """Make a run in the experiment, which is made, too, if there is none; return its id."""
        title = self._experiment or run.benchmark
        found = self._client.get_experiment_by_name(title)
        experiment = found.experiment_id if found else self._client.create_experiment(title)
        made = self._client.create_run(experiment, run_name=self._run_name or run_name(run.folder))
        return str(made.info.run_id)

    def _describe(self, run: RunStart) -> None:
        """Send the configuration, which MLflow takes once."""
        from mlflow.entities import Param  # an optional package

        values = {**dict(flat(run.config)), "seed": run.seed, "benchmark": run.benchmark}
        params = [Param(name, str(value)[:LONGEST_PARAM]) for name, value in values.items()]
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self._id, params=params[first : first + MOST_PARAMS])

    def step(self, step: StepRecord) -> None:
        numbers = named(step)
        self._add(numbers, int(numbers.pop("step/global_step")))

    def epoch(self, epoch: Epoch) -> None:
        self._add(named(epoch), epoch.epoch)

    def saving(self) -> None:
        self._send()

    def end(self, ending: Ending) -> None:
        self._send()
        done, late = wait(self._sent, FINISH_S)
        self._thread.shutdown(wait=False, cancel_futures=True)
        if late:
            raise TimeoutError(f"{len(late)} of {len(late) + len(done)} calls took more than {FINISH_S:.0f} s")
        self._raise_failures()
        status = "FINISHED" if ending.final else "KILLED" if ending.how == STOPPED else "FAILED"
        self._client.set_tag(self._id, "ended", ending.text)
        self._client.set_terminated(self._id, status)

    def _add(self, numbers: dict[str, float], at: int) -> None:
        from mlflow.entities import Metric  # an optional package

        now_ms = time.time_ns() // 1_000_000
        self._metrics += [Metric(name, value, now_ms, at) for name, value in numbers.items()]
        if len(self._metrics) > MOST_METRICS - 10 or time.monotonic() - self._sent_at > SEND_S:
            self._send()

    def _send(self) -> None:
        """Have the thread send what was collected; raise what went wrong before."""
        self._raise_failures()
        if self._metrics:
            self._sent.append(self._thread.submit(self._client.log_batch, self._id, metrics=self._metrics))
        self._metrics, self._sent_at = [], time.monotonic()

    def _raise_failures(self) -> None:
        """Forget the calls that are done; raise the error of one that failed."""
        for call in [call for call in self._sent if call.done()]:
            self._sent.remove(call)
            call.result()
