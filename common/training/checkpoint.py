"""Checkpoints: all that a run needs to continue as if it had not stopped, in one file without code.

A file is a zip archive of tensors and plain values, as `torch.save` writes it. It is written under another name and
renamed when it is complete and on disk. Reading checks every byte against the archive's checksums and loads with
`weights_only`, which runs no pickled code; what would take much more memory than the file has bytes is not read. A
damaged file in a run's folder is skipped for the one before it; so is one whose log is not there, when a run continues.
Of several ranks only rank 0 reads a file, once, and sends its bytes to the others.
"""

from __future__ import annotations

import contextlib
import errno
import io
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import torch

from common.console import print_warning
from common.file_kind import CHECKPOINT, explain_file
from common.files import CHECKPOINTS, link_whole_file, name_errors, open_whole_file, suggest_folder
from common.mllog import PUT_BACK, LogMismatchError
from common.own_code import OWN_CODE, Code, read_codes
from common.ranks.dist import Dist
from common.settings.machine import CheckpointConfig
from common.stop import STOP

FORMAT: Final = "mlperf-hpc-suite checkpoint 1"
NAME: Final = re.compile(r"epoch-(\d{4})-step-(\d{7})\.pt")
BEST: Final = "best.pt"
"""The checkpoint of the best evaluation, with checkpoint.best."""
SENT_BYTES: Final = 64 * 2**20
"""The bytes of a file in one message."""
EXAMPLE: Final = f"{CHECKPOINTS}/epoch-0009-step-0000000.pt"
ENTRY: Final = re.compile(r"[^/]+/(data/\d+|data\.pkl|\.?[a-z_]+|\.data/[a-z_]+)")
"""How torch names what is in a file: numbers of tensors, a pickle, and facts about the format."""
MOST_ENTRIES: Final = 1 << 20
PICKLED_BYTES: Final = 1024
"""Bytes of the pickle for each tensor, which takes about 200; and those of 2048 tensors: a MiB takes seconds."""
MOST_VALUES: Final = 1 << 22


class CheckpointError(ValueError):
    """A checkpoint cannot be written or read; the message names the file and how to fix it."""


class DamagedCheckpointError(CheckpointError):
    """A file cannot be read as a checkpoint."""


class NoCheckpointError(CheckpointError):
    """A folder has no checkpoint, or none that can be read."""


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of a run: `step` steps of `epoch` (from 0) are done."""

    epoch: int = 0
    step: int = 0


START: Final = Position()
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _State(msgspec.Struct):
    """What commands read of the state of a run, see `Saved.state`; it has more."""

    seed: Number = 0
    config: dict[str, Any] = {}
    model: dict[str, torch.Tensor] = {}


class _Content(msgspec.Struct):
    """What a checkpoint has, besides its format. position: epoch and step."""

    benchmark: str
    position: tuple[Number, Number]
    state: _State


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was read.

    skipped: what is wrong with each newer file in the folder. file: its bytes, if they were read at once.
    """

    path: Path
    content: dict[str, Any]
    skipped: Sequence[str] = ()
    file: io.BytesIO | None = None

    @property
    def position(self) -> Position:
        """The progress of the run."""
        return Position(*self.content["position"])

    @property
    def state(self) -> dict[str, Any]:
        """The state of the run; CheckpointError if it lacks what commands read."""
        state: dict[str, Any] = self.content["state"]
        if missing := [name for name in _State.__struct_fields__ if name not in state]:
            raise CheckpointError(f"{self.path}: its state lacks {', '.join(missing)}; expected a checkpoint of a run")
        return state

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the run, for its network alone: each rank has whole samples, whatever trained it."""
        tree: dict[str, Any] = self.state["config"]
        dist = tree.get("dist", {})
        return {**tree, "dist": {**dist, "spatial": 1}} if isinstance(dist, dict) else tree

    @property
    def own_code(self) -> tuple[Code, ...]:
        """The code that computed in place of the suite's."""
        with self.explain_errors():
            return read_codes(self.state.get(OWN_CODE))

    @property
    def log_bytes(self) -> int:
        """How much of its log the run had written; CheckpointError if that is not told."""
        with self.explain_errors():
            return int(self.state["log_bytes"])

    def warn(self) -> None:
        """Print which newer files were skipped, and why."""
        if self.skipped:
            print_warning(f"{'; '.join(self.skipped)}; using {self.path.name} instead")

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Name the file in an error about what it has."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: the run cannot go on from it ({type(error).__name__}: {error}); name an older one, or "
                "start a new run"
            ) from error


Check = Callable[[Saved], None]


def accept_any(_: Saved) -> None:
    """Accept any checkpoint."""


class Checkpoints:
    """The checkpoints of a run: a folder that rank 0 writes.

    guard: called by rank 0 before it writes; raises if another training owns the folder now.
    """

    def __init__(
        self,
        folder: Path,
        benchmark: str,
        config: CheckpointConfig,
        dist: Dist,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self.benchmark, self.config, self.dist, self._guard = folder, benchmark, config, dist, guard

    def is_due(self, epochs_done: int, ends: bool) -> bool:
        """Tell whether a checkpoint is due after this many epochs; ends: the run ends here."""
        return self.config.every_epochs > 0 and (ends or epochs_done % self.config.every_epochs == 0)

    def save(self, position: Position, state: dict[str, Any]) -> Path:
        """Write the state of a run and delete the oldest files beyond the configured number. A collective call.

        state: tensors and plain values, the same on all ranks.
        Raises CheckpointError on every rank if rank 0 cannot write; then no file is deleted.
        """
        path = self._path_of(position)
        problem = None
        if self.dist.is_main:
            earlier = self.list_files()
            self._guard()
            content = {
                "format": FORMAT,
                "benchmark": self.benchmark,
                "position": [position.epoch, position.step],
                "state": state,
            }
            try:
                with name_errors(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                with open_whole_file(path, sync=True) as file:
                    torch.save(content, file)
                with zipfile.ZipFile(path) as archive:
                    if unreadable := find_wrong_entry(archive, path.stat().st_size):
                        path.unlink()
                        raise ValueError(f"it would have {unreadable}: keep large states of callbacks in tensors")
            except (OSError, RuntimeError, ValueError) as error:  # torch reports a full disk as RuntimeError
                still_there = f"; {earlier[-1]} is still there" if earlier else ""
                problem = f"{path}: the checkpoint cannot be written ({error}){still_there}"
        problem = self.dist.broadcast_json(problem)
        if problem:
            raise CheckpointError(problem)
        if self.dist.is_main:
            others = [file for file in self.list_files() if file != path]
            for old in others[: max(0, len(others) + 1 - self.config.keep)]:
                old.unlink()
        return path

    def keep_best(self, epoch: int) -> None:
        """Keep the checkpoint after an epoch, which is the best so far, as best.pt, if that is asked for and it exists.

        Raises CheckpointError if rank 0, which alone does it, cannot.
        """
        path, best = self._path_of(Position(epoch)), self.folder / BEST
        if self.config.best and self.dist.is_main and path.exists():
            self._guard()
            try:
                link_whole_file(path, best)
            except OSError as error:
                raise CheckpointError(f"{best}: the best checkpoint cannot be kept ({error})") from error

    def _path_of(self, position: Position) -> Path:
        return self.folder / f"epoch-{position.epoch:04d}-step-{position.step:07d}.pt"

    def list_files(self) -> list[Path]:
        """Return the complete checkpoints of the run, oldest first."""
        return list_checkpoints(self.folder)

    def load(self, location: Path | None = None, check: Check = accept_any) -> Saved:
        """Return the content of a checkpoint, by default of the newest readable one. A collective call.

        location: a file, or the folder of a run. check: see `load`, on rank 0.
        Raises CheckpointError if it has no usable checkpoint.
        """
        saved = None
        if self.dist.is_main:  # one rank chooses for all
            if location is None and not self.list_files():
                raise NoCheckpointError(f"{self.folder}: there is no checkpoint to resume from; start without --resume")
            saved = load(location or self.folder, self.benchmark, check, at_once=self.dist.world_size > 1)
        return self._share_saved(saved)

    def load_if_any(self, check: Check) -> Saved | None:
        """Return the content of the newest usable checkpoint; None if there is none. A collective call.

        check: see `load`, on rank 0.
        """
        saved = None
        if self.dist.is_main and self.list_files():
            try:
                saved = load(self.folder, self.benchmark, check, at_once=self.dist.world_size > 1)
            except NoCheckpointError as error:
                print_warning(error)
        return self._share_saved(saved) if self.dist.broadcast_json(saved is not None) else None

    def _share_saved(self, saved: Saved | None) -> Saved:
        """Return the checkpoint that rank 0 has read, from the bytes of its file on the others."""
        if saved:
            saved.warn()
            if saved.file is None:  # there are no others
                return saved
        file = (saved and saved.file) or io.BytesIO()
        name, size = self.dist.broadcast_json([str(saved.path) if saved else "", file.getbuffer().nbytes])
        if saved is None:
            file.seek(size - 1)
            file.write(b"\0")
        for part in torch.frombuffer(file.getbuffer(), dtype=torch.uint8).split(SENT_BYTES):
            self.dist.broadcast(part)
        if saved:
            return replace(saved, file=None)
        return Saved(Path(name), read_checkpoint(Path(name), self.benchmark, file))


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("*.pt") if NAME.fullmatch(path.name))


def best_of(run: Path) -> Path:
    """Return the checkpoint of the best evaluation in the folder of a run; CheckpointError if it was not kept."""
    path = run / CHECKPOINTS / BEST
    if not path.is_file():
        raise CheckpointError(
            f"{run}: there is no {CHECKPOINTS}/{BEST}; expected the folder of a run with checkpoint.best=true; without "
            "--best its newest checkpoint is taken"
        )
    return path


def load(location: Path, benchmark: str | None = None, check: Check = accept_any, *, at_once: bool = False) -> Saved:
    """Return the checkpoint in a file, or the newest usable one in a run's folder.

    benchmark: the benchmark that it must belong to; None: any. check: raises LogMismatchError if a run cannot go on
    from a checkpoint, so that the one before it is tried. at_once: read the file once, into memory, which then has it
    twice; else it is read twice.
    Raises CheckpointError if there is none, or it belongs to another benchmark.
    """
    skipped: list[str] = []
    is_there = False
    files = [location] if location.is_file() else list_checkpoints(location / CHECKPOINTS) or list_checkpoints(location)
    if not files:
        problem = "no checkpoint in this folder" if location.is_dir() else "no such checkpoint"
        near = suggest_folder(location, [CHECKPOINTS])
        raise CheckpointError(
            f"{location}: {problem}; expected a file, or the folder of a run that has {CHECKPOINTS}/{near}"
        )
    for path in reversed(files):
        STOP.check()
        try:
            file = io.BytesIO() if at_once else None
            saved = Saved(path, read_checkpoint(path, benchmark, file), skipped, file)
            check(saved)
            return saved
        except DamagedCheckpointError as error:
            skipped.append(str(error))
        except LogMismatchError as error:
            skipped.append(f"{path.name}: {error}")
            is_there = True
    if is_there:  # a person decides whether its log can be had
        raise CheckpointError(f"{'; '.join(skipped)}; {PUT_BACK}")
    if location.is_dir():
        raise NoCheckpointError("; ".join(skipped) + f"; {location} has no other checkpoint: start a new run")
    raise CheckpointError(f"{skipped[0]}; name an older one, or the run's folder for its newest readable one")


def read_checkpoint(path: Path, benchmark: str | None = None, file: io.BytesIO | None = None) -> dict[str, Any]:
    """Return the content of a file, with its tensors on the CPU, without running any code in it.

    file: has its bytes, or gets them.
    Raises DamagedCheckpointError if it is half-written or damaged, or if it would grow in memory, CheckpointError if it
    is missing, not a checkpoint of this suite, or of another benchmark.
    """
    content, problem = None, ""
    try:
        if file is not None and not file.getbuffer().nbytes:
            with path.open("rb") as stored:
                shutil.copyfileobj(stored, file, SENT_BYTES)
        source, size = (path, path.stat().st_size) if file is None else (file, file.getbuffer().nbytes)
        with zipfile.ZipFile(source) as archive:
            problem = find_wrong_entry(archive, size)
            if not problem and (damaged := archive.testzip()):
                problem = f"the checksum of {damaged!r} is wrong"
        if not problem:
            if file is not None:
                file.seek(0)
            content = torch.load(source, map_location="cpu", weights_only=True)
            problem = _find_excess(content, size)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    except Exception as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) not in (None, errno.EINVAL, errno.EISDIR):
            raise CheckpointError(f"{path}: cannot be read ({error}); try again, or name another checkpoint") from error
        # The libraries fail in many ways on damaged bytes, which all mean the same to the user.
        if NAME.fullmatch(path.name) or path.name == BEST:
            raise DamagedCheckpointError(f"{path}: half-written or damaged") from error
        problem = explain_file(path, CHECKPOINT) or "not a checkpoint"
        raise CheckpointError(
            f"{path}: {problem}; expected the folder of a run, or a file such as {EXAMPLE} in it"
        ) from error
    if problem:
        raise DamagedCheckpointError(f"{path}: damaged, or not written by this suite: {problem}")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of this suite (expected format {FORMAT!r})")
    try:
        msgspec.convert(content, _Content)
    except (msgspec.ValidationError, RecursionError) as error:
        raise CheckpointError(f"{path}: not as this suite writes checkpoints: {error}") from error
    if benchmark not in (None, content["benchmark"]):
        name = content["benchmark"]
        raise CheckpointError(f"{path}: a checkpoint of {name!r}; write {name} in place of {benchmark}, or another run")
    return content


def find_wrong_entry(archive: zipfile.ZipFile, size: int) -> str:
    """Return what an archive has that torch does not write, such as compressed entries; "" if nothing. size: its."""
    entries = archive.infolist()
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or not ENTRY.fullmatch(entry.filename):
            return f"unexpected entry {entry.filename[:100]!r}"
    if len({entry.filename for entry in entries}) < len(entries) or sum(entry.file_size for entry in entries) > size:
        return "entries overlap"
    pickled = sum(entry.file_size for entry in entries if entry.filename.endswith(".pkl"))
    if pickled > PICKLED_BYTES * (2048 + len(entries)):
        return f"a pickle of {pickled:,} bytes with {len(entries):,} entries beside it"
    return f"{len(entries):,} entries" if len(entries) > MOST_ENTRIES else ""


def _find_excess(content: Any, size: int) -> str:
    """Return what makes content much larger than its file of this many bytes; "" if nothing."""
    values, count, tensor_bytes = [content], 1, 0
    while values:
        value = values.pop()
        if isinstance(value, torch.Tensor):
            if not is_dense(value):
                return f"a tensor of shape {tuple(value.shape)} that is not dense"
            tensor_bytes += value.nbytes
        elif isinstance(value, dict | list | tuple | set):
            count += len(value)
            if count > MOST_VALUES:
                return f"more than {MOST_VALUES:,} values"
            values.extend(value.values() if isinstance(value, dict) else value)
    # The same bytes may be in four tensors, on average.
    return f"tensors of {tensor_bytes:,} bytes" if tensor_bytes > 4 * size else ""


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has a number in memory for each of its elements."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and not tensor.is_meta
        and tensor.nbytes <= tensor.untyped_storage().nbytes()
    )
