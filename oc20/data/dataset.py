"""OC20's frames: their files, configuration and sizes, how they are read as graphs, and how batches are padded.

The sizes of the frames of a folder, in order, are in `metadata.npz` beside the files:

    natoms, neighbors      atoms, and edges; int32, as in published files
    triplets, free         triplets, and atoms that are not fixed; int32

The work is proportional to the triplets, and losses are divided by the free atoms: both must be known in advance.

A batch is padded to the first bucket in which it fits, so that batches have few sizes and CUDA graphs can be replayed.
What pads it is one more frame, of fixed atoms that see images of themselves from farther away than any cutoff. All
basis functions are 0 there, and so is what they add to the forces, the loss, the score and the gradients.
"""

from __future__ import annotations

import fnmatch
import heapq
import math
import threading
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils import data

from common.data.prefetch import AHEAD, Job, carry_batches, in_order, map_tensors, reading_threads
from common.data.sampling import Batching, RankBatch
from common.data.split import DatasetError as DatasetError
from common.data.split import find_index, find_once, list_folder
from common.file_kind import NPZ, explain_file
from common.files import open_whole_file
from common.ranks.dist import Dist
from common.tree import open_regular
from oc20.data import compact, records
from oc20.graphs import MOST_NEIGHBOURS, Frame, Graph, Joined, count_triplets, join_frames, link_frames
from oc20.settings import FAR_ANGSTROM, DataConfig

NAME: Final = "metadata.npz"


class Metadata(NamedTuple):
    """Numbers of atoms, edges, triplets and free atoms of each frame, int32."""

    natoms: np.ndarray
    neighbors: np.ndarray
    triplets: np.ndarray
    free: np.ndarray

    @classmethod
    def from_sizes(cls, sizes: Iterable[tuple[int, ...]]) -> Metadata:
        """Return the metadata of frames with these sizes."""
        return cls(*np.array(list(sizes), np.int32).reshape(-1, len(cls._fields)).T)


def count_parts(frame: Frame) -> tuple[int, ...]:
    """Return the numbers of a frame's atoms, edges, triplets and free atoms."""
    atoms = len(frame.numbers)
    return (
        atoms,
        len(frame.edges),
        count_triplets(frame.edges, frame.offsets, atoms),
        atoms - int(frame.fixed.sum()),
    )


def write_metadata(path: Path, metadata: Metadata) -> None:
    """Write metadata to a file; an old one is replaced."""
    with open_whole_file(path) as file:
        np.savez(file, **metadata._asdict())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name; DatasetError if it is damaged, FileNotFoundError if it does not exist.

    Published files lack `free`, and some `triplets`.
    """
    try:
        with open(open_regular(path), "rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {key: file[key] for key in Metadata._fields if key in file}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        problem = explain_file(path, NPZ) or f"it is damaged ({error})"
        raise DatasetError(f"{path}: {problem}: delete it, and {_how_to_fix(path)}") from error


def read_metadata(path: Path, count: int) -> Metadata:
    """Return the metadata of a folder with `count` frames; DatasetError if it is missing, incomplete or wrong."""
    try:
        arrays = read_arrays(path)
    except FileNotFoundError as error:
        raise DatasetError(f"{path} with the sizes of the frames is missing: {_how_to_fix(path)}") from error
    if missing := [key for key in Metadata._fields if key not in arrays]:
        raise DatasetError(f"{path} has no {' or '.join(missing)}: {_how_to_fix(path)}")
    for key, array in arrays.items():
        if array.shape != (count,) or array.dtype != np.int32:
            raise DatasetError(
                f"{path}: `{key}` is {array.dtype} {array.shape}, but the folder has {count:,} frames: delete it, and "
                f"{_how_to_fix(path)}"
            )
    return Metadata(**arrays)


def _how_to_fix(path: Path) -> str:
    return f"make it by `python -m oc20.prepare metadata {path.parent.parent}`"


STEP: Final = 1.06
"""A bucket has that many times the edges of the one before."""
FEWER: Final = 1.64
MORE: Final = 3.09
"""Standard deviations below and above the mean: 5 % of batches have fewer edges, 0.1 % more than the buckets."""
EDGES_MULTIPLE: Final = 128
ATOMS_MULTIPLE: Final = 16
WIDTHS: Final = (MOST_NEIGHBOURS, 80)
"""Of the tables of edges by centre and by source. Of an atom of 32 generated slabs at most 65 edges start."""
FRAMES: Final = 4
"""A bucket has places for that many times the usual number of frames; frames balanced by triplets differ in number."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The numbers of edges, atoms and frames of a padded batch, one of its frames for the padding."""

    edges: int
    atoms: int
    images: int


def choose_buckets(sizes: Metadata, frames: int) -> tuple[Bucket, ...]:
    """Return the buckets, by size, for batches of some `frames` frames drawn from those with these sizes.

    The number of edges of a batch is taken to be log-normal, and its atoms to be as many as the edges let expect, and
    MORE standard deviations.
    """
    mean = float(sizes.neighbors.mean())
    if not mean:
        return ()
    per_edge = float(sizes.natoms.mean()) / mean
    spread = math.sqrt(math.log1p((float(sizes.neighbors.std()) / mean) ** 2 / frames))
    additional = 1 + MORE * math.sqrt(frames) * float((sizes.natoms - sizes.neighbors * per_edge).std())
    count = 1 + math.ceil((FEWER + MORE) * spread / math.log(STEP))
    largest = frames * mean * math.exp(MORE * spread)
    levels = [_round_up(largest / STEP**k, EDGES_MULTIPLE) for k in reversed(range(count))]
    return tuple(
        Bucket(level, _round_up(level * per_edge + additional, ATOMS_MULTIPLE), FRAMES * frames)
        for level in dict.fromkeys(levels)
    )


def pad_frames(frames: Sequence[Frame], buckets: Sequence[Bucket]) -> Joined:
    """Return the joined frames, padded to the first bucket in which they fit, or as they are if they fit in none.

    Nor do they fit if more edges start at an atom than the tables are wide.
    """
    atoms = sum(len(frame.numbers) for frame in frames)
    edges = sum(len(frame.edges) for frame in frames)
    for bucket in buckets:
        spare_atoms, spare_edges = bucket.atoms - atoms, bucket.edges - edges
        if 0 <= spare_edges <= MOST_NEIGHBOURS * spare_atoms and len(frames) < bucket.images:
            joined = join_frames([*frames, make_padding(spare_atoms, spare_edges)], bucket.images)
            if joined.widths[1] <= WIDTHS[1]:
                return replace(joined, widths=WIDTHS)
            break
    return join_frames(frames)


def make_padding(atoms: int, edges: int) -> Frame:
    """Return a frame that changes nothing, with at most MOST_NEIGHBOURS edges to each atom from its own images."""
    centres_E: np.ndarray = np.arange(edges, dtype=np.int32) // MOST_NEIGHBOURS
    offsets_E3: np.ndarray = np.zeros((edges, 3), np.int8)
    offsets_E3[:, 0] = 1
    offsets_E3[:, 1] = np.arange(edges) % MOST_NEIGHBOURS  # no edge is there twice, and none leads straight back
    numbers, pos, cell = np.zeros(atoms), np.zeros((atoms, 3)), np.diag([FAR_ANGSTROM, 0, 0])
    frame = Frame.without_forces(numbers, pos, cell, edges=np.stack([centres_E, centres_E], 1), offsets=offsets_E3)
    return replace(frame, fixed=np.ones(atoms, np.bool_))


def _round_up(number: float, multiple: int) -> int:
    return math.ceil(number / multiple) * multiple


Shard = records.LmdbShard | compact.CompactShard
"""The frames of a file, for several threads."""
SHARDS: Final[Mapping[str, type[Shard]]] = {"lmdb": records.LmdbShard, "compact": compact.CompactShard}
PATTERNS: Final = {"lmdb": records.PATTERN, "compact": compact.PATTERN}


class Dataset(data.Dataset[Frame]):
    """The frames of one split, such as data_dir/train, in the order of its files. sizes: of each frame.

    `dataset[i]` is a `Frame`, whose fields have their units there; `oc20.graphs.build_graph` joins several to the input
    of the network: `DataLoader(…, collate_fn=build_graph)`.

    ranks: see `find_once`.
    DatasetError if the folder is missing or empty, has another format, no or wrong metadata, or fewer than `samples`;
    FrameError or LmdbError if the start of a file is damaged.
    """

    def __init__(
        self, folder: Path | str, config: DataConfig, samples: int | None = None, ranks: Dist | None = None
    ) -> None:
        folder = Path(folder)
        self.split, self.config = folder.name, config
        self._locate: Callable[[str], Path] = folder.parent.joinpath
        files = find_once(partial(_find_files, folder, config.format), ranks)
        self._shards = [f"{self.split}/{file}" for file in files]
        self._open: dict[int, Shard] = {}
        self._opening = threading.Lock()
        self._kept: dict[int, Frame] = {}
        self._ends = list(accumulate(len(self._open_shard(number)) for number in range(len(self._shards))))
        count = self._ends[-1]
        if samples is not None and count < samples:
            raise DatasetError(
                f"{folder} has {count:,} frames, the configuration asks for {samples:,}: lower "
                "data.train_samples or data.eval_samples, set it to null to use all frames, or complete the folder"
            )
        self.sizes = Metadata(*(array[:samples] for array in read_metadata(folder / NAME, count)))

    def __len__(self) -> int:
        return len(self.sizes.natoms)

    def __getitem__(self, index: int) -> Frame:
        """Return a frame, see `read`; IndexError beyond the last."""
        return self.read(find_index(index, len(self)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}, "_opening": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "_opening": threading.Lock()}

    def files(self) -> Iterator[tuple[str, int | None]]:
        """Yield the name of each file below data_dir that is read, and None, since it has many samples."""
        used = bisect_right(self._ends, len(self) - 1) + 1
        yield from ((file, None) for file in self._shards[:used])

    def paths(self, index: int) -> tuple[Path, ...]:
        """Return the path of the file with a frame."""
        return (self._locate(self._shards[bisect_right(self._ends, index)]),)

    def moved(self, locate: Callable[[str], Path]) -> Self:
        """Return the same frames, each file read from where `locate` finds its name."""
        moved = copy(self)
        moved._locate, moved._open = locate, {}
        return moved

    def read(self, index: int) -> Frame:
        """Return a frame; FrameError or LmdbError for a damaged file, OSError for an unreadable one."""
        frame = self._kept.get(index)
        if frame is None:
            frame = self._read_frame(index)
            if self.config.cache:
                self._kept[index] = frame
        return frame

    def _read_frame(self, index: int) -> Frame:
        number = bisect_right(self._ends, index)
        begin = self._ends[number - 1] if number else 0
        frame = self._open_shard(number).read_frame(index - begin)
        sizes = len(frame.numbers), len(frame.edges), len(frame.numbers) - int(frame.fixed.sum())
        expected = tuple(int(array[index]) for array in (self.sizes.natoms, self.sizes.neighbors, self.sizes.free))
        if sizes != expected:
            path = self._locate(self._shards[number])
            raise DatasetError(
                f"{path}, frame {index - begin}: atoms, edges and free atoms are {sizes}, but {NAME} has "
                f"{expected}: complete or fetch the folder again, or delete {NAME} and make it again by "
                "`python -m oc20.prepare metadata`"
            )
        return frame

    def _open_shard(self, number: int) -> Shard:
        with self._opening:
            if number not in self._open:
                self._open[number] = SHARDS[self.config.format](self._locate(self._shards[number]))
            return self._open[number]


def _find_files(folder: Path, format: str) -> list[str]:
    """Return the sorted names of the files with frames in a folder."""
    listing = list_folder(folder, "oc20")
    names = {kind: fnmatch.filter(listing.names, pattern) for kind, pattern in PATTERNS.items()}
    return listing.select_samples(format, names, PATTERNS[format], lambda file: (file,))


# -- batches -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GraphBatch:
    """Frames on the device, in the order of `indices`; there may be none.

    graph: their graph, or the input of `link_frames`. indices: int64 (G,). names: `<sid>_<fid>` of each.
    wait_s: seconds that the consumer waited.
    """

    graph: Graph | Joined
    indices: np.ndarray
    names: list[str] = field(default_factory=list)
    wait_s: float = 0.0


def load_batches(
    dataset: Dataset, indices: Iterable[np.ndarray], device: torch.device, buckets: Sequence[Bucket] = ()
) -> Generator[GraphBatch]:
    """Yield a batch for each array of indices, read and joined ahead by threads; close it if it is not exhausted.

    On a CPU the threads also make the graph. buckets: sizes to which batches are padded. An error of a file is raised
    when its batch is due: see `Dataset.read`.
    """

    def load_batch(chosen: np.ndarray, into: list[GraphBatch]) -> None:
        frames = [dataset.read(index) for index in chosen.tolist()]
        joined = pad_frames(frames, buckets)
        graph = link_frames(joined) if device.type == "cpu" else map_tensors(joined, Tensor.pin_memory)
        into.append(GraphBatch(graph, chosen, [f"{frame.sid}_{frame.fid}" for frame in frames]))

    def list_jobs() -> Iterator[Job[list[GraphBatch]]]:
        for chosen in indices:
            into: list[GraphBatch] = []
            yield into, [partial(load_batch, chosen, into)]

    with closing(in_order(list_jobs(), reading_threads(dataset.config.workers, device), AHEAD)) as ready:
        yield from carry_batches((batch for (batch,) in ready), device)


# -- the order of an epoch -------------------------------------------------------------------------------------


def balance_parts(weights: np.ndarray, parts: int) -> list[np.ndarray]:
    """Return for each part the ascending indices of its weights: each index once, with sums balanced greedily.

    The heaviest comes first, to the lightest part so far; of equal weights the first index is taken, of equally heavy
    parts the one with the fewest. Weights are integers of at least 0.
    """
    lightest = [(0, 0, part) for part in range(parts)]
    dealt: list[list[int]] = [[] for _ in range(parts)]
    order = np.argsort(-weights.astype(np.int64), kind="stable")
    for index, weight in zip(order.tolist(), weights[order].tolist(), strict=True):
        load, count, part = lightest[0]
        dealt[part].append(index)
        heapq.heapreplace(lightest, (load + weight, count + 1, part))
    return [np.array(sorted(indices), np.int64) for indices in dealt]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BalancedBatching(Batching):
    """`Batching` with shares balanced over all ranks and all parts of a step.

    weights: of each sample, such as its triplets.
    """

    weights: np.ndarray = field(repr=False)

    def batches(self, order: np.ndarray, rank: int, world_size: int, start: int = 0) -> Iterator[RankBatch]:
        """Yield the rank's share of each batch from step `start` on. The last part has some if the rank has any."""
        for step in range(start, self.steps(len(order))):
            whole = order[step * self.global_batch_size : (step + 1) * self.global_batch_size]
            dealt = balance_parts(self.weights[whole], world_size * self.accumulation)
            mine = dealt[rank * self.accumulation : (rank + 1) * self.accumulation]
            yield RankBatch(step, tuple(whole[part] for part in sorted(mine, key=len)))
