"""The folder of a run, or of a job of instances: its owner, how the training in it ended, and what may continue it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from common.config import ConfigError, list_leaves, quote_value
from common.console import CONSOLE, print_warning
from common.ending import (
    COMPLETED,
    NAME,
    STOPPED,
    TARGET_NOT_MET,
    Ending,
    classify_error,
    forget_ending,
    read_ending,
    read_logged_epochs,
    write_ending,
)
from common.files import LOG_NAME, instance_folders
from common.locks import LOOK_S, InUseError, Lease
from common.mllog import LogError
from common.ranks.dist import Dist
from common.reference import NO_TARGET
from common.settings.run import RunConfig
from common.stop import STOP
from common.training.checkpoint import CheckpointError

TURN_S: Final = 0.02
LAST_TURN_S: Final = 2.0


class OwnedFolder:
    """A folder that rank 0 owns while the ranks train. result: how the training ended, once it has its result.

    If rank 0 is lost, the first of the others that live records that.
    """

    def __init__(self, path: Path, ranks: Dist) -> None:
        self.path, self.ranks, self.lease = path, ranks, Lease(path)
        self.result: Ending | None = None
        self._goes_on = False
        self._lease_of_main: list[str] = []

    def take_over(self, wait: bool) -> Ending | None:
        """Wait until rank 0 owns the folder; return how the training in it ended, if it has. A collective call."""
        main = self.ranks.is_main
        with STOP.interrupting():
            # In turns, since a collective may not wait as long as another run lasts.
            while not self.ranks.broadcast_json(main and self.lease.take(wait)):
                STOP.sleep(LOOK_S)
            if main:
                CONSOLE.begin_notes(self.path)
            ending = read_ending(self.path) if main else None
            shared, self._lease_of_main = self.ranks.broadcast_json(
                [asdict(ending) if ending else None, self.lease.describe()]
            )
        return Ending(**shared) if shared else None

    def forget_ending(self) -> None:
        """Remove the record of how the training ended: from now on this one writes it."""
        if self.ranks.is_main:
            forget_ending(self.path)
        self._goes_on = True

    def record_ending(self, ending: Ending) -> None:
        """Record how the training ended."""
        if self.ranks.is_main:
            self.lease.check()
            with self.result_kept():
                write_ending(self.path, ending)
        elif self.ranks.has_lost_main:
            # No message tells the ranks who else lives: each leaves time to those before it.
            time.sleep(min(self.ranks.rank * TURN_S, LAST_TURN_S))
            if self.lease.is_left(self._lease_of_main) and not (self.path / NAME).exists():
                write_ending(self.path, ending)

    @contextlib.contextmanager
    def result_kept(self) -> Iterator[None]:
        """Show an exception inside the `with` as a warning if the training has its result: then the status is that."""
        try:
            yield
        except Exception as error:
            if self.result is None:
                raise
            print_warning(f"{classify_error(error).cause}; the result of the run stays")

    @contextlib.contextmanager
    def failure_recorded(self) -> Iterator[None]:
        """Record an exception inside the `with`, on all ranks the first one; then the folder has no owner any more.

        A call that changed nothing leaves the record as it is. A training that has its result keeps it, whatever fails
        afterwards.
        """
        try:
            with STOP.recording(self._record_and_release), self.ranks.first_failure():
                yield
        except BaseException as error:
            if not isinstance(error, InUseError):
                self._record_failure(classify_error(error))
            raise
        finally:
            CONSOLE.end_notes(self.path)
            self.lease.release()

    def _record_failure(self, ending: Ending) -> Ending:
        """Record how the training ended, unless it changed nothing here; return that, or the result that it has."""
        ending = self.result or ending
        if not ending.epochs:
            ending = replace(ending, epochs=read_logged_epochs(self.path / LOG_NAME))
        stopped_early = ending.how == STOPPED and self.lease.held and read_ending(self.path) is None
        if self._goes_on or stopped_early:
            with contextlib.suppress(OSError):  # the error itself, such as a full disk, is shown
                self.record_ending(ending)
        return ending

    def _record_and_release(self, ending: Ending) -> Ending:
        ending = self._record_failure(ending)
        self.lease.release()
        return ending


def check_kind(output_dir: Path, instances: bool) -> None:
    """Raise LogError if a single run and instances would share a folder: each kind records there how it ended.

    instances: whether instances are to be trained.
    """
    logs = [output_dir] if instances else instance_folders(output_dir).values()
    for log in (folder / LOG_NAME for folder in logs):
        if log.exists():
            here, other = ("a single run", "instances") if instances else ("an instance of a job", "a single run")
            raise LogError(
                f"{log}: the log of {here}; {other} cannot be trained in the same output_dir: choose another output_dir"
            )


def has_result(ended: Ending, config: RunConfig) -> bool:
    """Tell whether a run has ended for good; one that missed its target, or had none, goes on with more epochs."""
    longer = config.train.epochs > ended.epochs > 0 and not config.train.ends_in_epoch
    return ended.final and not (longer and ended.how in (TARGET_NOT_MET, COMPLETED))


def seed_of(config: RunConfig) -> int | None:
    """Return the seed that a configuration gives to its instance; None if it is drawn."""
    seed = config.train.seed
    return None if seed is None else seed + config.instances.number


def check_seed(config: RunConfig, seed: int) -> None:
    """Raise ConfigError if a configuration names another seed than that of the run it continues or evaluates."""
    if seed_of(config) not in (None, seed):
        raise ConfigError(
            f"train.seed is {config.train.seed}, but the run has {seed - config.instances.number} and keeps it: leave "
            "train.seed out"
        )


def check_unchanged(kind: type[RunConfig], before: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raise CheckpointError if a setting that a run must keep is not what it was before; where: it is written."""
    for leaf in list_leaves(kind):
        value, earlier = leaf.find_value(now), leaf.find_value(before)
        is_kept = not leaf.key.role.may_differ or (leaf.name == "train.target" and NO_TARGET in (value, earlier))
        if is_kept and value != earlier:
            raise CheckpointError(
                f"{leaf.name} is {quote_value(value)}, but {quote_value(earlier)} in {where}; a resumed run keeps its "
                f"settings, so {leaf.name} cannot be changed: restore it, or start a new run in another output_dir"
            )
