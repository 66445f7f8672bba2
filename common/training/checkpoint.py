"""Checkpoints: everything a run needs to continue as if it had not stopped, in one file without code.

A file is a zip archive as `torch.save` writes it, of tensors and plain values only. It is written under another name
and renamed when it is complete and on disk, so that a file with the final name is whole; reading checks every byte
against the archive's checksums and loads with `weights_only`, which runs no pickled code.
"""

from __future__ import annotations

import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from common.config import PLACE, key
from common.distributed.dist import Dist
from common.files import whole_file

FORMAT: Final = "mlperf-hpc-suite checkpoint 1"
FOLDER: Final = "checkpoints"
"""The folder of the checkpoints within that of a run."""
NAME: Final = re.compile(r"epoch-(\d{4})-step-(\d{7})\.pt")


class CheckpointError(ValueError):
    """A checkpoint cannot be written or read; the message names the file and how to fix it."""


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """When checkpoints are written, and how many of the newest are kept."""

    every_epochs: int = key(
        1, "epochs between checkpoints; one is also written after the last; 0: only on a signal", PLACE, unit="epochs"
    )
    keep: int = key(2, "number of newest checkpoints to keep", PLACE, unit="checkpoints")

    def __post_init__(self) -> None:
        if self.every_epochs < 0:
            raise ValueError(f"every_epochs is {self.every_epochs}; expected 0 (only on a signal) or more")
        if self.keep < 1:
            raise ValueError(f"keep is {self.keep}; expected at least 1, the newest checkpoint")


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of a run: `step` steps of `epoch` (from 0) are done."""

    epoch: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a checkpoint for this rank. generators: states of its random generators, by device type."""

    position: Position
    state: dict[str, Any]
    generators: dict[str, torch.Tensor]

    def restore_generators(self, device: torch.device) -> None:
        """Restore this rank's generators."""
        if "cpu" in self.generators:
            torch.set_rng_state(self.generators["cpu"])
        if device.type != "cpu" and device.type in self.generators:
            torch.get_device_module(device).set_rng_state(self.generators[device.type], device)


class Checkpoints:
    """The checkpoints of one run: one folder, written by rank 0."""

    def __init__(self, folder: Path, benchmark: str, config: CheckpointConfig, dist: Dist) -> None:
        self.folder, self.benchmark, self.config, self.dist = folder, benchmark, config, dist

    def due(self, epochs_done: int, ends: bool) -> bool:
        """Tell whether a checkpoint is due after this many epochs; `ends`: they were the last."""
        return self.config.every_epochs > 0 and (ends or epochs_done % self.config.every_epochs == 0)

    def save(self, position: Position, state: dict[str, Any]) -> Path:
        """Write the state of all ranks; remove older files beyond the configured number. A collective call.

        state: tensors and plain values; what differs between ranks (the generators) is gathered here.
        Raises CheckpointError on every rank if rank 0 cannot write; files that were there stay.
        """
        path = self.folder / f"epoch-{position.epoch:04d}-step-{position.step:07d}.pt"
        generators = self.dist.gather_objects(_generators(self.dist.device))
        problem = None
        earlier = self.files() if self.dist.is_main else []
        if self.dist.is_main:
            content = {
                "format": FORMAT,
                "benchmark": self.benchmark,
                "position": [position.epoch, position.step],
                "generators": generators,
                "state": state,
            }
            problem = _write(path, content)
            if problem and earlier:
                problem += f"; {earlier[-1]} is still there"
        problem = self.dist.broadcast_object(problem)
        if problem:
            raise CheckpointError(problem)
        if self.dist.is_main:
            for old in self.files()[: -self.config.keep]:
                old.unlink()
        return path

    def files(self) -> list[Path]:
        """Return the complete checkpoints of the run, oldest first."""
        return complete(self.folder)

    def load(self, place: Path | None = None) -> Saved:
        """Return the content of a checkpoint, by default the newest; CheckpointError if it is missing or invalid.

        place: a file, or the folder of a run.
        """
        if place is None and not self.files():
            raise CheckpointError(f"{self.folder}: there is no checkpoint to resume from; start without --resume")
        content = read(find(place or self.folder), self.benchmark)
        generators = content["generators"]
        # With another number of ranks the run goes on with the same samples and other dropout masks.
        mine = generators[self.dist.rank] if len(generators) == self.dist.world_size else {}
        return Saved(Position(*content["position"]), content["state"], mine)


def complete(folder: Path) -> list[Path]:
    """Return the complete checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("*.pt") if NAME.fullmatch(path.name))


def find(place: Path) -> Path:
    """Return the checkpoint at a path: the file, or the newest complete one of a run's folder.

    Raises CheckpointError if a folder has none, or the path does not exist.
    """
    if place.is_file():
        return place
    files = complete(place / FOLDER) or complete(place)
    if not files:
        there = "has no checkpoint" if place.is_dir() else "no such checkpoint"
        raise CheckpointError(f"{place}: {there}; expected a file, or the folder of a run that has {FOLDER}/")
    return files[-1]


def read(path: Path, benchmark: str | None = None) -> dict[str, Any]:
    """Return the content of a checkpoint, with its tensors on the CPU, without running code from it.

    benchmark: whose checkpoint it has to be; None: anyone's.
    Raises CheckpointError for a file that is missing, half-written, damaged, of another kind or another benchmark.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        content = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    except Exception as error:
        # Damaged bytes fail in many ways inside the libraries, and all mean the same to the user.
        raise CheckpointError(
            f"{path}: not a readable checkpoint ({type(error).__name__}: half-written, damaged, or not of this suite); "
            "remove it and resume from an older one"
        ) from error
    if content is None:
        raise CheckpointError(f"{path}: damaged: the checksum of {damaged!r} is wrong; resume from an older checkpoint")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of this suite (expected format {FORMAT!r})")
    if benchmark not in (None, content["benchmark"]):
        raise CheckpointError(f"{path}: a checkpoint of {content['benchmark']!r}, expected one of {benchmark!r}")
    return content


def _write(path: Path, content: dict[str, Any]) -> str | None:
    """Write a file atomically; return an error message, or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as part, part.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        return f"{path}: the checkpoint cannot be written ({error})"
    return None


def _generators(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the states of this rank's generators of random numbers."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state(device)
    return states
