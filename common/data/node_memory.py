"""Lists that all ranks read, such as the names of half a million files: in memory once per node."""

from __future__ import annotations

import contextlib
import mmap
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, overload

import numpy as np

if TYPE_CHECKING:  # torch takes a second to import, and the commands that make data do without
    from common.ranks.dist import Dist

T = TypeVar("T")

RAM_DISK: Final = Path("/dev/shm")


class LazySequence(Sequence[T]):
    """A sequence whose items are made when they are asked for. get_item: makes that of a number. numbers: of all."""

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

    The ranks of a node have them in memory once if their /dev/shm is the same and has room for them.
    """
    size, job = ranks.broadcast_json([len(content), uuid.uuid4().hex])
    if size == 0 or ranks.nodes == ranks.world_size:
        return memoryview(ranks.broadcast_bytes(content))
    import torch

    leaders, shared, path = ranks.find_leaders(), None, RAM_DISK / f"mlperf-hpc-{job}-{ranks.node_rank}"
    try:
        if leaders:
            shared = _map_file(path, size, os.O_CREAT | os.O_EXCL)
        ranks.barrier()
        if not leaders:
            shared = _map_file(path, size)
        lacking = int(ranks.all_reduce(torch.tensor(shared is None, dtype=torch.int32), "max"))
    finally:
        if leaders:
            path.unlink(missing_ok=True)
    if lacking or shared is None:
        return memoryview(ranks.broadcast_bytes(content))
    if ranks.is_main:
        shared[:] = content
    if leaders:
        leaders.broadcast(torch.frombuffer(shared, dtype=torch.uint8))
    ranks.barrier()
    return memoryview(shared).toreadonly()


def _map_file(path: Path, size: int, flags: int = 0) -> mmap.mmap | None:
    """Return a file in memory, one of `size` bytes if it is new; None if it cannot be opened, or has no room."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
        try:
            if flags:
                os.posix_fallocate(handle, 0, size)
            return mmap.mmap(handle, size)
        finally:
            os.close(handle)
    return None
