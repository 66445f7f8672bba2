"""What is known of a round between two calls: seeds, and how its runs ended. A small file, always whole."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from common.files import LOG_NAME, whole_file
from compliance.logs.run import Run, read_run

NAME: Final = "round.json"
LARGEST_SEED: Final = 2**31 - 1
TRAINED: Final = (0, 1)
"""Exit statuses of a training that ended by itself: the target was met, or not."""


class StateError(ValueError):
    """The state of a round cannot be used; the message says which file, and how to fix it."""


class RunState(msgspec.Struct):
    """A run. exit_status: of the training, None while it has not ended by itself. seconds: of the process."""

    seed: int
    exit_status: int | None = None
    seconds: float = 0.0


class State(msgspec.Struct, forbid_unknown_fields=True):
    """The runs of each benchmark, by number."""

    runs: dict[str, list[RunState]] = {}

    def ask_for(self, counts: Mapping[str, int]) -> None:
        """Each benchmark has so many runs; a new one has a seed that no other run of the round has.

        Raises StateError if one has more of them: to leave runs out would be to choose.
        """
        for benchmark, runs in self.runs.items():
            if counts.get(benchmark, 0) < len(runs):
                raise StateError(
                    f"{benchmark} has {len(runs)} runs in this round, and {counts.get(benchmark, 0)} are asked for: a "
                    "round can only grow; for a smaller one choose another folder"
                )
        taken = {run.seed for runs in self.runs.values() for run in runs}
        for benchmark, count in counts.items():
            runs = self.runs.setdefault(benchmark, [])
            while len(runs) < count:
                seed = random.SystemRandom().randint(1, LARGEST_SEED)
                if seed not in taken:
                    taken.add(seed)
                    runs.append(RunState(seed))

    def save(self, folder: Path) -> None:
        """The state is in the folder, for the next call."""
        with whole_file(folder / NAME) as part:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def load_state(folder: Path) -> State:
    """Return the state in a folder, an empty one if there is none; StateError if it is damaged."""
    path = folder / NAME
    if not path.exists():
        return State()
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except msgspec.DecodeError as error:
        raise StateError(f"{path}: not the state of a round ({error}); restore it, or choose another folder") from error


def finished_run(folder: Path, exit_status: int | None) -> Run | None:
    """Return what the log in the folder of a run says, or None if the run has not finished and must be started again.

    exit_status: of the training; None if nobody saw it end, and then only a log of a run that met its target counts:
    one that a signal has stopped looks like one that failed to.
    """
    run = read_run(str(folder / LOG_NAME))
    return run if run.finished and (met_target(run) or exit_status in TRAINED) else None


def met_target(run: Run) -> bool:
    """Tell whether a run says that it met its target."""
    return bool(run.status == "success")
