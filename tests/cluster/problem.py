"""The small problem that the tests train, 64 + 16 universes in seconds, and what they read of a run's folder."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.cluster.slurm import ROOT, processes, until, variables_of

SETTINGS = "cosmoflow/mini.yaml train.epochs=2 train.target=0.0001 train.seed=7 data.workers=1 precision.dtype=fp32"
"""A run that misses its target after two epochs; later settings take precedence."""
LOG = "result_0.txt"


class Problem:
    """The small problem, with its data."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def words(self, folder: Path, *settings: str) -> list[str]:
        """Return the words of a training in a folder, from the module on."""
        return [
            "-m",
            "cosmoflow.train",
            *SETTINGS.split(),
            f"data.data_dir={self.data}",
            f"output_dir={folder}",
            *settings,
        ]

    def round(self, folder: Path, epochs: int, *settings: str) -> Path:
        """Write the plan of a round of one run; return the file. With other epochs it changes the run."""
        config = folder / "mini-small.yaml"
        config.write_text(f"base: {ROOT}/cosmoflow/mini.yaml\ntrain: {{epochs: {epochs}}}\n")
        overrides = [f"data.data_dir={self.data}", "train.target=0.0001", "data.workers=1", "precision.dtype=fp32"]
        plan = {"config": str(config), "runs": 1, "overrides": [*overrides, *settings]}
        file = folder / "round.yaml"
        file.write_text(json.dumps({"cosmoflow": plan}))
        return file


def events(folder: Path, key: str) -> list[dict[str, Any]]:
    """Return the records of the log with a key."""
    lines = (folder / LOG).read_text().splitlines() if (folder / LOG).exists() else []
    records = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines if line.endswith("}")]
    return [record for record in records if record["key"] == key]


def ended(folder: Path) -> str:
    """Return how the run in a folder ended, by its own record; "" without one."""
    record = folder / "ended.json"
    return str(json.loads(record.read_text())["how"]) if record.exists() else ""


def newest(folder: Path) -> str:
    """Return the name of the newest checkpoint; "" without one."""
    return max((path.name for path in folder.glob("checkpoints/*.pt")), default="")


def epochs_saved(folder: Path) -> int:
    """Return the epochs of the newest checkpoint, epoch-0007-step-….pt."""
    return int(newest(folder).split("-")[1])


def until_trained(folder: Path, epochs: int = 1, timeout_s: float = 90) -> None:
    """Wait until a run has checkpoints of this many epochs more than now."""
    before = newest(folder)

    def trained() -> bool:
        return sum(path.name > before for path in folder.glob("checkpoints/*.pt")) >= epochs

    until(trained, f"{folder} has {epochs} checkpoints after {before or 'none'}", timeout_s)


def trainings(folder: Path) -> list[int]:
    """Return the processes that train in a folder, without their launchers."""
    word = f"output_dir={folder}"
    return list(processes(lambda words: Path(words[0]).name == "python" and words[1] == "-m" and word in words)) + list(
        processes(lambda words: word in words and words[1:3] == ["-u", "-m"])  # torchrun's
    )


def launchers(folder: Path) -> list[int]:
    """Return the processes of torchrun for the training in a folder."""
    word = f"output_dir={folder}"
    return list(processes(lambda words: word in words and "torchrun" in Path(words[1]).name))


def kill_rank(folder: Path, rank: int) -> None:
    """Kill one rank of the training in a folder."""
    names = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    for pid in trainings(folder):
        variables = variables_of(pid)
        if next((variables[name] for name in names if name in variables), "") == str(rank):
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError(f"rank {rank} of {folder} is not there")


def unfinished(folder: Path) -> list[str]:
    """Return the files of a run's folder that were not finished, and those that say that it is in use."""
    names = ("**/*.tmp", "**/*.part", "**/lease*")
    return [str(path.relative_to(folder)) for name in names for path in folder.glob(name)]
