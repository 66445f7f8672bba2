"""Lists that all ranks read, such as the names of half a million files: in memory once per node."""

from __future__ import annotations

import contextlib
import mmap
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar, overload

import numpy as np

if TYPE_CHECKING:  # torch takes a second to import, and the commands that make data do without
    from common.ranks.dist import Dist

T = TypeVar("T")

RAM_DISK: Final = Path("/dev/shm")
LEAST_SHARED: Final = 2**20
"""Bytes of a list that is worth sharing."""


class LazySequence(Sequence[T]):
    """A sequence whose items are made when they are asked for.

    numbers: of the items, in their order. get_item: makes the item of a number.
    """

    def __init__(self, get_item: Callable[[int], T], numbers: Sequence[int]) -> None:
        self._get_item, self._numbers = get_item, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> LazySequence[T]: ...

    def __getitem__(self, at: int | slice) -> T | LazySequence[T]:
        if isinstance(at, slice):
            return LazySequence(self._get_item, self._numbers[at])
        return self._get_item(self._numbers[at])

    def __reduce__(self) -> tuple[Callable[[Sequence[T]], list[T]], tuple[list[T]]]:
        return list, ([*self],)  # another process has no part in the memory


def share_names(names: Sequence[str], ranks: Dist) -> Sequence[str]:
    """Return rank 0's names on all ranks: a collective call, in which the other ranks' `names` do not count."""
    coded = [name.encode(errors="surrogatepass") for name in names]  # a name on disk may be any bytes
    ends = np.frombuffer(share_bytes(np.cumsum([0, *map(len, coded)]).tobytes(), ranks), np.int64)
    text = share_bytes(b"".join(coded), ranks)

    def decode_name(number: int) -> str:
        start, end = ends[number : number + 2].tolist()
        return bytes(text[start:end]).decode(errors="surrogatepass")

    return LazySequence(decode_name, range(len(ends) - 1))


def share_bytes(content: bytes, ranks: Dist) -> memoryview:
    """Return rank 0's bytes on all ranks, read-only: a collective call.

    The ranks of a node have many bytes in memory once, if their /dev/shm is the same and has room for them.
    """
    size, name, main_node = ranks.broadcast_json([len(content), uuid.uuid4().hex, ranks.node_rank])
    if size < LEAST_SHARED or ranks.nodes == ranks.world_size:
        return memoryview(ranks.broadcast_bytes(content))
    import torch

    leaders, path = ranks.find_leaders(), RAM_DISK / f"mlperf-hpc-{name}-{ranks.node_rank}"
    made = _open_file(path, "x+b") if leaders else None
    try:
        ranks.barrier()
        file = made if leaders else _open_file(path, "r+b")
        ranks.barrier()
    finally:
        if made:
            path.unlink(missing_ok=True)  # while it is empty, so that a killed job leaves nothing large
    try:
        if made:
            os.posix_fallocate(made.fileno(), 0, size)
    except OSError:
        file = None
    lacking = int(ranks.all_reduce(torch.tensor(file is None, dtype=torch.int32), "max"))
    if lacking or file is None:
        return memoryview(ranks.broadcast_bytes(content))
    with file:
        shared = mmap.mmap(file.fileno(), size)
    if ranks.is_main:
        shared[:] = content
    ranks.barrier()
    if leaders:
        leaders.broadcast(torch.frombuffer(shared, dtype=torch.uint8), main_node)
    ranks.barrier()
    return memoryview(shared).toreadonly()


def _open_file(path: Path, mode: str) -> IO[bytes] | None:
    """Return a file for this user alone; None if it cannot be opened."""
    with contextlib.suppress(OSError):
        return open(path, mode, buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))
    return None
