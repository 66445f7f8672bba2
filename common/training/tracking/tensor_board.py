"""The curves of a run for TensorBoard, where that is installed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from common.ending import Ending
from common.files import naming
from common.training.callbacks import Callback, Epoch, RunStart, StepRecord

FOLDER: Final = "tensorboard"


class TensorBoard(Callback):
    """Writes scalars: step/NAME over steps, epoch/NAME over epochs."""

    name = FOLDER

    def begin(self, run: RunStart) -> None:
        from torch.utils.tensorboard import SummaryWriter  # an optional package

        self._folder = run.folder / FOLDER
        again = run.global_step + 1 if run.resumed else None  # from here on, the viewer ignores what was written before
        with naming(self._folder):
            self._board = SummaryWriter(str(self._folder), purge_step=again)

    def step(self, step: StepRecord) -> None:
        numbers = asdict(step)
        at = numbers.pop("global_step")
        del numbers["epoch"], numbers["step"]
        self._write("step", numbers, at)

    def epoch(self, epoch: Epoch) -> None:
        numbers = asdict(epoch)
        self._write("epoch", numbers, numbers.pop("epoch"))

    def saving(self) -> None:
        self._board.flush()

    def end(self, ending: Ending) -> None:
        with naming(self._folder):
            self._board.close()

    def _write(self, kind: str, numbers: dict[str, float], at: int) -> None:
        """Write all numbers as one event, which takes a tenth of the time of `add_scalar` for each."""
        from tensorboard.compat.proto.summary_pb2 import Summary  # an optional package

        values: list[Any] = [Summary.Value(tag=f"{kind}/{name}", simple_value=value) for name, value in numbers.items()]
        with naming(self._folder):
            self._board.file_writer.add_summary(Summary(value=values), at)
