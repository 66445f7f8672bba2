"""What is known of a round between two calls: seeds, and how its runs ended. A small file, always whole."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from common.files import whole_file
from compliance.benchmarks import reference_of
from compliance.logs.log import read_log
from compliance.model.run import clock, counted_evaluations, variant_of

NAME: Final = "round.json"
LOG: Final = "result_0.txt"
"""What the training command calls its log."""
LARGEST_SEED: Final = 2**31 - 1
TRAINED: Final = (0, 1)
"""Exit statuses of a training that ended by itself: the target was met, or not."""


class StateError(ValueError):
    """The state of a round cannot be used; the message says which file, and how to fix it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the log of a run that has stopped tells. seconds: from run_start to run_stop."""

    met: bool
    evaluations: int
    last_quality: object
    seconds: float


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


def result_of(folder: Path, exit_status: int | None) -> Result | None:
    """Return the result in the folder of a run, or None if the run has none and must be begun again.

    exit_status: of the training; None if nobody saw it end, and then only a log of a run that met its target counts:
    one that a signal has stopped looks like one that failed to.
    """
    log = read_log(str(folder / LOG))
    stop = log.last("run_stop")
    met = stop is not None and stop.meta("status") == "success"
    if stop is None or not (met or exit_status in TRAINED):
        return None
    begin, end = clock(log)
    reference = reference_of(str(log.value("submission_benchmark")), variant_of(log))
    evaluations = counted_evaluations(log, reference.target) if reference else []
    last = evaluations[-1].value if evaluations else None
    return Result(met, len(evaluations), last, (end - begin) / 1000 if begin and end else 0.0)
