"""Copy files to the nodes, all ranks together: each file by one rank, or chunks read by one node and broadcast."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import accumulate
from threading import Event, Lock
from typing import Any, Final, TypeVar

import numpy as np
import torch

from common.console import open_bar
from common.ranks.dist import Dist
from common.staging.plan import Piece, SourceFile, StagingError, split_file
from common.staging.stage_dir import StageDir, crc32
from common.staging.storage import SharedStorage
from common.stop import STOP

T = TypeVar("T")
R = TypeVar("R")

TICK_S: Final = 0.2
"""The interval at which independent ranks agree on progress and errors."""


class StagingWorkers:
    """All ranks with `threads` threads each, one progress bar; an error on one rank stops all.

    Every method but `advance_bar` and `open_pool` is a collective call. ended: set when a signal, or another rank, ends
    the job: the threads then stop at once; after an error they finish their items, which need not be done again.
    """

    def __init__(self, dist: Dist, threads: int) -> None:
        self.dist, self.threads = dist, threads
        self.ended = Event()
        self._advanced = 0
        self._lock = Lock()
        self._bar: Any = None

    @contextmanager
    def show_bar(self, title: str, total: int, unit: str) -> Iterator[None]:
        """Show a progress bar on rank 0; `total` is over all ranks."""
        self._advanced = 0
        with open_bar(
            total=total,
            desc=title,
            unit=unit,
            unit_scale=True,
            leave=False,
            disable=None if self.dist.is_main else True,
        ) as self._bar:
            yield
        self._bar = None

    def advance_bar(self, amount: int) -> None:
        """Advance the bar; thread-safe."""
        with self._lock:
            self._advanced += amount

    @contextmanager
    def open_pool(self) -> Iterator[ThreadPoolExecutor]:
        """Yield threads, and wait for them at the end; when the job ends, only for what they do at the moment."""
        pool = ThreadPoolExecutor(self.threads)
        try:
            yield pool
        except BaseException as error:
            if not isinstance(error, Exception):
                self.ended.set()
                pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            pool.shutdown()

    def agree_on_errors(self, unfinished: int = 0, error: BaseException | None = None) -> int:
        """Return the sum of `unfinished` over the ranks; if any rank has an error, StagingError on all ranks.

        It is a barrier. Ranks that only wait call it too, often enough that no collective call times out.
        """
        STOP.check()
        state = torch.tensor([unfinished, int(error is not None), self._advanced])
        unfinished, failed, advanced = self.dist.all_reduce(state).tolist()
        if self._bar is not None:
            self._bar.update(advanced - self._bar.n)
        if failed:
            prefix = f"node {self.dist.node_rank}: " if self.dist.nodes > 1 else ""
            reason = str(error) if isinstance(error, (StagingError, OSError)) else repr(error)
            raise StagingError(self.dist.find_first(None if error is None else prefix + reason)) from error
        return int(unfinished)

    def map_items(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply a function to this rank's items in threads, and return the results in order."""
        queue = deque(enumerate(items))
        results: dict[int, R] = {}

        def process_items() -> None:
            while not self.ended.is_set():
                try:
                    i, item = queue.popleft()
                except IndexError:
                    return
                results[i] = function(item)

        with self.open_pool() as pool:
            running = {pool.submit(process_items) for _ in range(self.threads)}
            error: BaseException | None = None
            try:
                unfinished = 1
                while unfinished:
                    done, running = wait(running, TICK_S, FIRST_EXCEPTION)
                    error = error or first_error(done)
                    unfinished = self.agree_on_errors(len(running), error)
            finally:
                queue.clear()  # after an error the threads stop after their current item
        return [results[i] for i in range(len(items))]


def first_error(futures: Collection[Future[Any]]) -> BaseException | None:
    """Wait for all and return an exception, if there was one."""
    while wait(futures, TICK_S).not_done:
        STOP.check()
    errors = [future.exception() for future in futures]
    return next((error for error in errors if error is not None), None)


def copy_files(workers: StagingWorkers, files: Sequence[SourceFile], storage: SharedStorage, stage: StageDir) -> None:
    """Copy each rank's files to its node."""

    def copy_file(file: SourceFile) -> None:
        for piece in split_file(file):
            if workers.ended.is_set():
                return
            data = memoryview(bytearray(piece.length))
            storage.read_into(piece, data)
            stage.write_piece(piece, data)
            workers.advance_bar(piece.length)

    workers.map_items(copy_file, files)


class LoadedChunk:
    """A chunk in memory: the CRC-32 of each piece as it was read, then the bytes of all pieces."""

    def __init__(self, chunk: Sequence[Piece]) -> None:
        self.chunk = chunk
        ends = list(accumulate(piece.length for piece in chunk))
        head = 4 * len(chunk)
        self.tensor = torch.empty(head + ends[-1], dtype=torch.uint8)
        buffer = self.tensor.numpy()
        self._sums = buffer[:head].view(np.uint32)
        data = memoryview(buffer)[head:]
        self._views = [data[end - piece.length : end] for piece, end in zip(chunk, ends, strict=True)]

    def read_piece(self, i: int, storage: SharedStorage) -> None:
        """Read a piece from shared storage."""
        storage.read_into(self.chunk[i], self._views[i])
        self._sums[i] = crc32(self._views[i])

    def write_piece(self, i: int, stage: StageDir) -> None:
        """Write a piece to the node's folder; StagingError if it differs from what its reader read."""
        if crc32(self._views[i]) != self._sums[i]:
            raise StagingError(f"{self.chunk[i].file.name}: damaged in transit between two nodes; start again")
        stage.write_piece(self.chunk[i], self._views[i])


def relay_chunks(
    workers: StagingWorkers,
    chunks: Sequence[Sequence[Piece]],
    storage: SharedStorage,
    stage: StageDir,
    names: set[str],
) -> None:
    """Read each chunk on one node, broadcast it, and write the wanted files on each node.

    chunks, names: of the wanted files; they count on the first rank of each node.
    The nodes take turns reading. While a chunk is broadcast, its reader reads its next one and all write the previous.
    """
    leaders = workers.dist.find_leaders()
    count = int(workers.dist.all_reduce(torch.tensor(len(chunks)), "max"))
    if leaders is None:
        for _ in range(count + 1):
            workers.agree_on_errors()
        return
    with workers.open_pool() as pool, storage.ending_reads():
        reading: dict[int, tuple[LoadedChunk, list[Future[None]]]] = {}

        def start_reading(number: int) -> None:
            if number < len(chunks):
                loaded = LoadedChunk(chunks[number])
                reading[number] = loaded, [pool.submit(loaded.read_piece, i, storage) for i in range(len(loaded.chunk))]

        start_reading(leaders.rank)
        writes: list[Future[None]] = []
        for number, chunk in enumerate(chunks):
            reader = number % leaders.world_size
            loaded, reads = reading.pop(number) if number in reading else (LoadedChunk(chunk), [])
            error = first_error(reads)
            if reader == leaders.rank:
                start_reading(number + leaders.world_size)
                workers.advance_bar(sum(piece.length for piece in chunk))
            leaders.broadcast(loaded.tensor, reader)  # after an error too: the others wait for it
            workers.agree_on_errors(error=error or first_error(writes))
            writes = [
                pool.submit(loaded.write_piece, i, stage) for i, piece in enumerate(chunk) if piece.file.name in names
            ]
        workers.agree_on_errors(error=first_error(writes))
