"""Staging: copy the dataset from shared storage to the nodes before training reads it in every epoch.

mode        each node gets                reads from shared storage      disk or memory of a node
none        nothing                       all, in every epoch            nothing
shard       its part of the samples       each byte once, by one node    1 / nodes of the dataset
replicate   all files                     each byte once, by one node    the dataset
memory      all files, in a RAM disk      each byte once, by one node    the dataset

Order of the samples. With none, replicate and memory every rank reads every sample equally well, and the shuffle stays
global (`sampling.draw_permutation`). With shard the caller chooses: under `sampling.draw_permutation` the shuffle is
still global, but a rank reads samples of other nodes from shared storage (`Staged.path_of` finds each file);
`sampling.shard_order` reads from the node alone, and mixes samples only within a shard.

From an address (`stage_url`) the files come in the modes replicate and memory, by the manifest that is there.

Interrupted staging resumes: files that are present and intact are not copied again. Nothing is overwritten but what
staging itself has written, by its record `staging.jsonl` in the stage_dir. One job at a time uses a stage_dir
(`common.locks`); others wait for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
import uuid
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import torch

from common.command import describe_reason
from common.data.build import readable_bytes
from common.data.manifest import NAME as MANIFEST
from common.data.manifest import read_manifest
from common.data.node_memory import RAM_DISK, LazySequence, share_bytes, share_names
from common.data.sampling import take_share
from common.files import free_inodes
from common.locks import LOOK_S
from common.processes import in_threads
from common.ranks.dist import Dist
from common.settings.machine import StagingConfig
from common.staging.copy import StagingWorkers, copy_files, relay_chunks
from common.staging.plan import SourceFile, StagingError, StagingPlan, count_samples, make_plan, pack_chunks, size_of
from common.staging.stage_dir import MARKER, PART, RECORD, WORKPLACE, StageDir
from common.staging.storage import SharedStorage, UrlStorage
from common.stop import STOP

__all__ = ["SourceFile", "Staged", "StagingConfig", "StagingError", "source_files", "stage_dataset", "stage_url"]

LOOKUP_THREADS: Final = 16
FACTS: Final = np.dtype([("size", np.int64), ("sample", np.int64), ("sha256", "S64")])
"""Of a file, as its ranks share them."""
RAM_SHARE: Final = 0.8
"""The share of free memory that staging may take: the rest is for training."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Where the files are now.

    root: the folder on this node, None if nothing was staged. names: the files that are in it, sorted.
    bytes_read: from shared storage, by all nodes together. bytes_written: on all nodes together.
    """

    mode: str
    source: Path
    nodes: int
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    root: Path | None = None
    names: Sequence[str] = ()
    _close: Callable[[], None] = lambda: None

    def path_of(self, name: str) -> Path:
        """Return where this rank reads a file: on its node if it was staged, else on shared storage."""
        at = bisect_left(self.names, name)
        return self.root / name if self.root and [*self.names[at : at + 1]] == [name] else self.source / name

    def log_facts(self) -> dict[str, Any]:
        """Return the facts about staging for the log."""
        return {
            f"staging_{name}": getattr(self, name)
            for name in ("mode", "nodes", "bytes_read", "bytes_written", "seconds")
        }

    def close(self) -> None:
        """Remove the staged files from this node, unless `keep` is set; call it after their last use, on all ranks."""
        self._close()


def source_files(folder: Path, samples: Mapping[str, int | None]) -> list[SourceFile]:
    """Return the files of a dataset by its manifest, or without one by the file system.

    samples: names below `folder`, each with the number of its sample in its own folder.
    Raises ManifestError for an unusable manifest, StagingError for a file that is missing, or that the manifest lacks
    although it lists others in the same folder.
    """
    listing = folder / MANIFEST
    entries = read_manifest(listing).files if listing.exists() else {}
    folders = {PurePosixPath(name).parent for name in entries} - {PurePosixPath()}

    def describe_source(name: str) -> SourceFile:
        if name in entries:
            return SourceFile(name, entries[name].bytes, samples[name], entries[name].sha256)
        if PurePosixPath(name).parent in folders:
            raise StagingError(f"{folder / name} is not in {listing}: the folder mixes several datasets; separate them")
        try:
            return SourceFile(name, (folder / name).stat().st_size, samples[name])
        except OSError as error:
            raise StagingError(f"{folder / name}: {describe_reason(error)}") from error

    # A shared file system answers many requests at once.
    return list(in_threads(describe_source, list(samples), LOOKUP_THREADS))


def stage_dataset(
    files: Sequence[SourceFile], source: Path, config: StagingConfig, dist: Dist, samples: Mapping[str, int]
) -> Staged:
    """Copy the files below `source` to the nodes: a collective call, in which rank 0's `files` count.

    samples: the number of samples that each folder must have, such as {"train": 2048}.
    Waits while another job uses the stage_dir of a node.
    Raises StagingError on all ranks: before copying for wrong counts, missing files, wrong sizes, too little space, and
    a stage_dir or files in it that others can change; later for damaged files and disk errors. Finished files
    are then kept, and the next call copies the others. What else ends the job, such as a signal or a lost rank, removes
    all staged files, unless `keep` is set.
    """
    begin = time.perf_counter()
    workers = StagingWorkers(dist, config.workers)
    workers.map_items(lambda files: _check_counts(files, source, samples), [files] if dist.is_main else [])
    if config.mode == "none":
        _print_message(dist, make_plan(files, "none", dist.nodes).describe([], 0))
        return Staged("none", source, dist.nodes)
    return _copy_dataset(_share_list(files, dist), SharedStorage(source), config, workers, begin)


def stage_url(config: StagingConfig, dist: Dist) -> Staged:
    """Copy all files that the manifest at `config.source` lists, and the manifest itself, to the nodes.

    A collective call, before anything reads the data; else as `stage_dataset`. Raises StagingError on all ranks.
    """
    begin = time.perf_counter()
    workers, storage = StagingWorkers(dist, config.workers), UrlStorage(str(config.source))
    lists = workers.map_items(_list_remote_files, [storage] if dist.is_main else [])
    return _copy_dataset(_share_list(lists[0] if lists else [], dist), storage, config, workers, begin)


def _list_remote_files(storage: UrlStorage) -> list[SourceFile]:
    """Return the files of a dataset by its manifest, which is the last; StagingError if it cannot be used."""
    text, manifest = storage.read_manifest()
    if not manifest.files:
        raise StagingError(f"the manifest {storage.root}/{MANIFEST} lists no files; write it again beside the data")
    for name in manifest.files:
        if name.partition("/")[0] in (MANIFEST, RECORD, WORKPLACE):
            raise StagingError(
                f"{storage.root}/{MANIFEST} lists {name!r}, a name that staging keeps for itself; rename it"
            )
    files = [SourceFile(name, entry.bytes, sha256=entry.sha256) for name, entry in manifest.files.items()]
    return [*files, SourceFile(MANIFEST, len(text), sha256=hashlib.sha256(text).hexdigest())]


def _copy_dataset(
    listing: tuple[Sequence[SourceFile], Sequence[str], np.ndarray],
    storage: SharedStorage,
    config: StagingConfig,
    workers: StagingWorkers,
    begin: float,
) -> Staged:
    dist = workers.dist
    files, names, in_order = listing
    folder = StageDir(_stage_dir(config, storage), storage.root, config.checksum, config.inflate)
    files = _look_up(workers, files, storage, config.inflate)
    plan = make_plan(files, config.mode, dist.nodes)
    try:
        _copy_files(workers, plan, storage, folder)
        bytes_read, bytes_written = dist.all_reduce(torch.tensor([storage.bytes_read, folder.bytes_written])).tolist()
        STOP.defer()  # the caller has yet to take note of what is to be removed
    except BaseException as error:
        folder.close(remove=not isinstance(error, StagingError) and not config.keep)
        raise
    is_here: np.ndarray = np.zeros(len(files), bool)
    is_here[plan.on_node[dist.node_rank]] = True
    return Staged(
        config.mode,
        storage.root if isinstance(storage.root, Path) else folder.root,
        dist.nodes,
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        seconds=time.perf_counter() - begin,
        root=folder.root,
        names=LazySequence(names.__getitem__, array("q", in_order[is_here[in_order]].tobytes())),
        _close=partial(folder.close, remove=not config.keep),
    )


def _share_list(files: Sequence[SourceFile], dist: Dist) -> tuple[Sequence[SourceFile], Sequence[str], np.ndarray]:
    """Return rank 0's files on all ranks, their names, and their numbers in the order of the names."""
    names = share_names([file.name for file in files], dist)
    order = np.array(sorted(range(len(files)), key=lambda number: files[number].name), np.int64)
    numbers = np.frombuffer(share_bytes(order.tobytes(), dist), np.int64)
    rows = ((file.size, -1 if file.sample is None else file.sample, file.sha256 or "") for file in files)
    content = np.fromiter(rows, FACTS, len(files)).tobytes()
    facts = np.frombuffer(share_bytes(content, dist), FACTS)

    def describe_file(number: int) -> SourceFile:
        size, sample, sha256 = facts[number].tolist()
        return SourceFile(names[number], size, None if sample < 0 else sample, sha256.decode() or None)

    return LazySequence(describe_file, range(len(names))), names, numbers


def _copy_files(workers: StagingWorkers, plan: StagingPlan, storage: SharedStorage, folder: StageDir) -> None:
    """Copy what the nodes lack of their files."""
    dist = workers.dist
    _take_folders(workers, folder)
    lacking, staged = _find_lacking(workers, plan, folder)
    own = [plan.files[number] for number in lacking]
    here = [plan.files[number] for number in _collect_lacking(workers, lacking, folder)]
    _check_space(workers, plan.mode, here, folder)
    # Two bytes for each file, whatever the number of nodes: whether one lacks it, and whether one has it.
    presence = torch.zeros(2, len(plan.files), dtype=torch.uint8)
    presence[0, lacking], presence[1, staged] = 1, 1
    # Known to the first rank of each node alone: these may be half a million files.
    anywhere, anywhere_kept = (
        LazySequence(plan.files.__getitem__, row.nonzero()[:, 0].tolist() if dist.local_rank == 0 else [])
        for row in dist.all_reduce(presence, "max")
    )
    total = int(dist.all_reduce(torch.tensor(size_of(own))))
    largest = int(dist.all_reduce(torch.tensor(size_of(here)), "max"))
    copied = len(plan.files) - len(anywhere)
    text = plan.describe(anywhere, largest)
    text += f"; {copied:,} of {len(plan.files):,} files already staged" if copied else ""
    unverified = sum(not folder.compares_with_manifest(file) for file in anywhere_kept)
    _print_message(dist, text + (f"; {unverified:,} staged files NOT verified by a manifest" if unverified else ""))
    try:
        if plan.mode == "shard":
            with workers.show_bar("staging", total, "B"):
                copy_files(workers, own, storage, folder)
        else:
            with workers.show_bar("staging", size_of(anywhere), "B"):
                relay_chunks(workers, pack_chunks(anywhere), storage, folder, {file.name for file in here})
    finally:
        folder.remove_unfinished()


def _print_message(dist: Dist, text: str) -> None:
    if dist.is_main:
        print(f"staging: {text}", flush=True)


def _stage_dir(config: StagingConfig, storage: SharedStorage) -> Path:
    if config.stage_dir is None:
        # By user and by dataset, so that none finds another's files.
        return RAM_DISK / f"mlperf-hpc-{os.getuid()}-{zlib.crc32(os.fsencode(storage.identity)):08x}"
    if str(config.stage_dir.resolve()) == storage.identity:
        raise StagingError(f"staging.stage_dir {config.stage_dir} is the dataset's own folder; choose another")
    return config.stage_dir


def _check_counts(files: Sequence[SourceFile], source: Path, samples: Mapping[str, int]) -> None:
    counts = count_samples(files)
    for folder, count in samples.items():
        if counts.get(folder, 0) != count:
            raise StagingError(
                f"{source / folder}: {counts.get(folder, 0):,} samples, but the configuration asks for {count:,}; "
                "complete the dataset or correct the configuration"
            )


def _look_up(
    workers: StagingWorkers, files: Sequence[SourceFile], storage: SharedStorage, inflate: bool
) -> Sequence[SourceFile]:
    """Return the files with size and time of change from the file system; each rank looks up a part."""

    def look_up(number: int) -> tuple[int, int]:
        current = storage.look_up(files[number], inflate)
        workers.advance_bar(1)
        return 0 if current.raw_size is None else current.raw_size + 1, current.mtime_ns

    with workers.show_bar("looking up files", len(files), " files"):
        own_numbers = take_share(range(len(files)), workers.dist.rank, workers.dist.world_size)
        own_rows = workers.map_items(look_up, own_numbers)
    facts = torch.zeros(len(files), 2, dtype=torch.int64)  # the size after inflating, 0 without one, and mtime
    facts[list(own_numbers)] = torch.tensor(own_rows, dtype=torch.int64).reshape(-1, 2)
    rows = workers.dist.all_reduce(facts).numpy()

    def describe_file(number: int) -> SourceFile:
        size, mtime_ns = rows[number].tolist()
        return replace(files[number], raw_size=size - 1 if size else None, mtime_ns=mtime_ns)

    return LazySequence(describe_file, range(len(files)))


def _take_folders(workers: StagingWorkers, folder: StageDir) -> None:
    """Make, take and open the nodes' folders; wait while another job uses one, StagingError if two nodes share one."""
    leader = [folder] if workers.dist.local_rank == 0 else []
    _check_alone(workers, folder, leader)
    has_told = False
    while True:
        workers.map_items(StageDir.make_folder, leader)
        holders = workers.map_items(StageDir.take_folder, leader)
        nodes = workers.agree_on_errors(sum(map(bool, holders)))
        if not nodes:
            break
        workers.map_items(partial(StageDir.close, remove=False), leader)  # no job waits for one that waits for it
        if not has_told:
            holder = next(filter(None, holders), "of another job")
            _print_message(
                workers.dist,
                f"staging.stage_dir {folder.root} is in use by process {holder}, on {nodes:,} node(s); waiting until "
                "it is free. Jobs that train at the same time need a folder each, such as one with "
                "$SLURM_JOB_ID in its name",
            )
        has_told = True
        STOP.sleep(LOOK_S)
    workers.map_items(StageDir.open_record, [folder])


def _check_alone(workers: StagingWorkers, folder: StageDir, leader: Sequence[StageDir]) -> None:
    """Raise StagingError if two nodes share a folder. leader: the folder, on one rank of each node."""
    workers.map_items(StageDir.make_folder, leader)
    job = workers.dist.broadcast_json(uuid.uuid4().hex)
    marker = folder.workplace / f"{job}-{workers.dist.node_rank}{MARKER}"

    def leave_marker(folder: StageDir) -> None:
        with contextlib.suppress(FileNotFoundError):  # another job ends, and has just removed the folder
            marker.touch()

    try:
        workers.map_items(leave_marker, leader)

        def check_alone(folder: StageDir) -> None:
            if len(list(folder.workplace.glob(f"{job}-*{MARKER}"))) > 1:
                raise StagingError(
                    f"staging.stage_dir {folder.root} is shared by several nodes; choose a folder on each node's own "
                    "disk"
                )

        workers.map_items(check_alone, leader)
    finally:
        marker.unlink(missing_ok=True)


def _find_lacking(workers: StagingWorkers, plan: StagingPlan, folder: StageDir) -> tuple[list[int], list[int]]:
    """Return the numbers of the files that this node lacks, and of those it has, in the share of this rank."""
    dist = workers.dist
    own_numbers = take_share(plan.on_node[dist.node_rank], dist.local_rank, dist.local_size)

    def check_file(number: int) -> bool:
        is_present = folder.holds_file(plan.files[number])
        workers.advance_bar(1)
        return is_present

    with workers.show_bar("checking staged files", sum(map(len, plan.on_node)), " files"):
        presence = workers.map_items(check_file, own_numbers)
    numbers, present = np.array(own_numbers, np.int64), np.array(presence, bool)
    return numbers[~present].tolist(), numbers[present].tolist()


def _collect_lacking(workers: StagingWorkers, lacking: list[int], folder: StageDir) -> list[int]:
    """Return what all ranks of this node found lacking, on the first of them, and nothing on the others.

    They tell it by files on the node, since no other node has to know.
    """
    dist = workers.dist
    notes = [folder.workplace / f"lacking-{local_rank}{PART}" for local_rank in range(dist.local_size)]

    def leave_note(note: Path) -> None:
        with note.open("xb") as file:
            file.write(np.array(lacking, np.int64))

    workers.map_items(leave_note, [notes[dist.local_rank]])

    def take_note(note: Path) -> list[int]:
        numbers: list[int] = np.frombuffer(note.read_bytes(), np.int64).tolist()
        note.unlink()
        return numbers

    parts = workers.map_items(take_note, notes if dist.local_rank == 0 else [])
    return sorted(number for numbers in parts for number in numbers)


def _check_space(workers: StagingWorkers, mode: str, files: Sequence[SourceFile], folder: StageDir) -> None:
    """Raise StagingError if the files that a node lacks do not fit on it."""

    def check_node(files: Sequence[SourceFile]) -> None:
        needed = sum(file.staged_size for file in files)
        free = shutil.disk_usage(folder.root).free
        if needed > free:
            raise StagingError(
                f"{folder.root}: {readable_bytes(needed)} to be staged, {readable_bytes(free)} free; "
                "free disk space, choose another staging.stage_dir, or use more nodes and staging.mode=shard"
            )
        inodes = free_inodes(folder.root)
        if inodes is not None and len(files) > inodes:
            raise StagingError(
                f"{folder.root}: {len(files):,} files to be staged, the file system has room for {inodes:,} more (its "
                "free inodes), whatever bytes are free; remove files there, or choose another staging.stage_dir"
            )
        if mode != "memory":
            return
        import psutil  # few runs need it

        memory = psutil.virtual_memory().available  # what Linux can give to new processes
        if needed > RAM_SHARE * memory:
            raise StagingError(
                f"{readable_bytes(needed)} to be staged in memory, {readable_bytes(memory)} available; "
                f"staging may use {RAM_SHARE:.0%} of it: use staging.mode=replicate or shard with a stage_dir on a disk"
            )

    workers.map_items(check_node, [files] if workers.dist.local_rank == 0 else [])
