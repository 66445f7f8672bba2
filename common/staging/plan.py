"""The node for each file, and the pieces for reading it: pure functions of files and number of nodes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import numpy as np

from common.data.build import readable_bytes
from common.data.sampling import shard_assignment, take_share
from common.stop import STOP
from common.values import group_pairs

CHUNK_BYTES: Final = 64 * 2**20
"""Bytes that are read, held in memory and broadcast at once: thousands of small files, or a part of a large one."""


class StagingError(RuntimeError):
    """Staging cannot start or continue; the message says where, with which numbers, and how to fix it."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file on shared storage.

    name: relative to the dataset's folder, with `/`.
    size: bytes as stored there.
    sample: index of the file's sample in its folder; None: the file belongs to all samples, every node gets it, and
        with shards each node reads it itself.
    sha256: of the stored bytes, in hexadecimal, if known.
    raw_size: bytes after inflating; None: unknown, or not compressed.
    mtime_ns: time of the last change; set by staging.
    """

    name: str
    size: int
    sample: int | None = None
    sha256: str | None = None
    raw_size: int | None = None
    mtime_ns: int = 0

    def __post_init__(self) -> None:
        if self.name.startswith("/") or ".." in self.name.split("/"):
            raise ValueError(f"{self.name!r}: expected a name below the dataset's folder")

    @property
    def folder(self) -> str:
        """The name of the folder, such as `train`."""
        return str(PurePosixPath(self.name).parent)

    @property
    def staged_size(self) -> int:
        """Bytes that the file takes on a node."""
        return self.size if self.raw_size is None else self.raw_size

    @property
    def identity(self) -> str:
        """A text that changes with the content."""
        return self.sha256 or f"{self.size} bytes of {self.mtime_ns}"


class Piece(NamedTuple):
    """A part of a file."""

    file: SourceFile
    start: int
    length: int

    @property
    def is_last(self) -> bool:
        """Whether it is the last piece of its file."""
        return self.start + self.length == self.file.size


def split_file(file: SourceFile) -> Iterator[Piece]:
    """Yield a file in pieces of at most CHUNK_BYTES; an empty file is one empty piece."""
    for start in range(0, max(file.size, 1), CHUNK_BYTES):
        yield Piece(file, start, min(CHUNK_BYTES, file.size - start))


def pack_chunks(files: Iterable[SourceFile]) -> list[list[Piece]]:
    """Return all pieces of the files in order, packed into chunks of at most CHUNK_BYTES."""
    chunks: list[list[Piece]] = [[]]
    chunk_bytes = 0
    for file in files:
        for piece in split_file(file):
            if chunks[-1] and chunk_bytes + piece.length > CHUNK_BYTES:
                chunks.append([])
                chunk_bytes = 0
            chunks[-1].append(piece)
            chunk_bytes += piece.length
    return chunks if chunks[-1] else []


def count_samples(files: Iterable[SourceFile]) -> dict[str, int]:
    """Return how many samples each folder holds."""
    numbers = group_pairs((file.folder, file.sample) for file in files if file.sample is not None)
    return {folder: len(set(samples)) for folder, samples in numbers.items()}


def size_of(files: Iterable[SourceFile]) -> int:
    """Return the bytes that files take on shared storage."""
    return sum(file.size for file in files)


@dataclass(frozen=True, slots=True)
class StagingPlan:
    """Where the files go. on_node: the numbers in `files` of the files for each node, ascending."""

    mode: str
    files: Sequence[SourceFile]
    on_node: tuple[Sequence[int], ...]

    def describe(self, lacking: Sequence[SourceFile], largest: int) -> str:
        """Return the copying in one line. lacking: the files that some node lacks. largest: bytes for one node."""
        nodes = len(self.on_node)
        count, size = len(lacking), readable_bytes(size_of(lacking))
        on_nodes = f"{nodes} node{'s'[: nodes > 1]}"
        if self.mode == "none":
            return f"none: {len(self.files):,} files, {readable_bytes(size_of(self.files))}, read from shared storage"
        if not lacking:
            return f"{self.mode}: nothing to copy"
        if self.mode == "shard":
            text = f"shard: {count:,} files, {size} over {on_nodes}; {readable_bytes(largest)} read per node"
        else:
            per_node = readable_bytes(size_of(lacking) / nodes)
            text = f"{self.mode}: {count:,} files, {size} to each of {on_nodes}; {per_node} read per node"
        raw = sum(file.staged_size for file in lacking)
        return text if raw == size_of(lacking) else f"{text}; {readable_bytes(raw)} after inflating"


def make_plan(files: Sequence[SourceFile], mode: str, nodes: int) -> StagingPlan:
    """Return where the files go.

    none: nowhere; replicate, memory: to every node; shard: the samples of each folder are dealt to the nodes by
    `sampling.shard_assignment`, and files that belong to no sample go to every node.
    """
    if mode == "none":
        return StagingPlan(mode, files, ((),) * nodes)
    if mode != "shard":
        return StagingPlan(mode, files, (range(len(files)),) * nodes)
    samples = group_pairs((file.folder, file.sample) for file in files if file.sample is not None)
    holders = {folder: _assign_holders(max(numbers) + 1, nodes) for folder, numbers in samples.items()}
    node_files = [array("q") for _ in range(nodes)]
    for number, file in enumerate(files):
        STOP.check()
        for node in range(nodes) if file.sample is None else (holders[file.folder][file.sample],):
            node_files[node].append(number)
    return StagingPlan(mode, files, tuple(node_files))


def _assign_holders(n: int, nodes: int) -> list[int]:
    """Return the node that holds each of n samples."""
    assignment = shard_assignment(n)
    holders: np.ndarray = np.empty(n, np.int64)
    for node in range(nodes):
        holders[take_share(assignment, node, nodes)] = node
    return [int(node) for node in holders]
