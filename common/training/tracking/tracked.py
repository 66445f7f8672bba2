"""What the trackers share: the names of a run there, which of their runs a resumed training continues, its settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from common.files import INSTANCE, write_whole_file
from common.training.callbacks import Epoch, RunStart, StepRecord

IDS: Final = "tracked.json"
"""The ids of the tracked runs by tracker, in the folder of the run."""


def run_name(folder: Path) -> str:
    """Return the name of a run by its folder; of one of several trainings with that of their job."""
    folder = folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if INSTANCE.fullmatch(folder.name) else folder.name


def known_id(run: RunStart, tracker: str) -> str | None:
    """Return the id of the tracked run that a resumed training continues; None if it begins one."""
    found = _ids(run.folder).get(tracker) if run.resumed else None
    return found if isinstance(found, str) else None


def keep_id(run: RunStart, tracker: str, id_: str) -> None:
    """Keep the id of the tracked run, for a training that continues it."""
    write_whole_file(run.folder / IDS, json.dumps({**_ids(run.folder), tracker: id_}) + "\n")


def _ids(folder: Path) -> dict[str, Any]:
    with suppress(FileNotFoundError, ValueError):
        if isinstance(found := json.loads((folder / IDS).read_text(encoding="utf-8")), dict):
            return found
    return {}


def named(record: StepRecord | Epoch) -> dict[str, float]:
    """Return the numbers of a record by their names at trackers: step/loss, epoch/quality, ..."""
    kind = "step" if isinstance(record, StepRecord) else "epoch"
    return {f"{kind}/{name}": value for name, value in asdict(record).items() if name not in ("epoch", "step")}


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a configuration by dotted key."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
