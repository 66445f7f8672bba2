"""The state of a round between two calls: seeds and durations of its runs, in a file written atomically."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from common.ending import read_ending
from common.files import LOG_NAME, write_whole_file
from compliance.logs.run import Run, read_run

NAME: Final = "round.json"
LARGEST_SEED: Final = 2**31 - 1


class StateError(ValueError):
    """The state of a round is unusable; the message says which file, and how to fix it."""


class RunState(msgspec.Struct):
    """A run. seconds: duration of the process. How the run ended is recorded in its own folder."""

    seed: int
    seconds: float = 0.0


class State(msgspec.Struct, forbid_unknown_fields=True):
    """The runs of each benchmark, by number."""

    runs: dict[str, list[RunState]] = {}

    def request_runs(self, counts: Mapping[str, int]) -> None:
        """Add runs, each with a new seed, until each benchmark has as many as `counts` says.

        Raises StateError if a benchmark has more runs already: leaving some out would be cherry-picking.
        """
        for benchmark, runs in self.runs.items():
            if counts.get(benchmark, 0) < len(runs):
                raise StateError(
                    f"{benchmark} has {len(runs)} runs in this round, but {counts.get(benchmark, 0)} are requested: a "
                    "round can only grow; for a smaller round choose another folder with -o"
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
        """Write the state into the folder of the round, for the next call."""
        write_whole_file(folder / NAME, msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def load_state(folder: Path) -> State:
    """Return the state in a folder, an empty one if there is none; raise StateError if it is damaged."""
    path = folder / NAME
    if not path.exists():
        return State()
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except msgspec.DecodeError as error:
        raise StateError(f"{path} is not the state of a round ({error}); restore it, or use another folder") from error


def finished_run(folder: Path) -> Run | None:
    """Return the log in the folder of a run, as read; None if the run has no result yet and must be started again.

    The training itself has recorded how it ended: a run without such a record is active or was killed.
    """
    ending = read_ending(folder)
    if ending is None or not ending.final:
        return None
    run = read_run(str(folder / LOG_NAME))
    return run if run.finished else None


def met_target(run: Run) -> bool:
    """Return whether the log says that the run met its target."""
    return bool(run.status == "success")
