"""The samples of each rank and their order: pure functions of seed, epoch, rank and number of ranks.

An epoch is an order of all samples. Global batch k is order[k·B : (k+1)·B] for any number of ranks, and each rank
takes a contiguous share of it, so that the number of ranks decides only where the work is done:

    batching = Batching(global_batch_size=64, accumulation=2)
    for batch in batching.batches(draw_permutation(n, seed, epoch), rank, world_size):
        ...  # batch.parts: the indices of this rank

If each node has staged a shard, `shard_order` can replace `draw_permutation`: each node's part of every global batch
then comes from its own shard.

Evaluation takes `take_share(order, rank, world_size)` of a fixed order, such as np.arange(n), or with shards that of
`shard_assignment`: every sample comes once, without padding. Some ranks get one more than others, or none, so add up
sums and counts over the ranks, not means.

Bagging (Breiman 1996, doi:10.1007/BF00058655) trains each member of an ensemble on samples drawn at random from all of
them: some come several times, some not at all. Those that a member did not draw, its out-of-bag samples, can judge it
without a validation set. HPC AI500 V3 (doi:10.1016/j.tbench.2022.100083) uses it to keep more devices busy than one
training run can.

kind        draws of N samples                                      expected share that is drawn at least once
none        each once                                               1
bootstrap   N, each of any sample                                   1 - (1 - 1/N)^N, about 1 - 1/e = 0.632
poisson     of each sample as many as a Poisson number of mean 1    1 - 1/e = 0.632; the number of draws is random, too

The seed is that of instance 0, the same for all instances of a job. Instance i trains with the seed of instance 0 plus
i, so that one that is trained alone finds the draws that it has among others: its own seed minus i. No file is copied:
draws are numbers of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from common.settings.run import NONE, Bagging, InstancesConfig, count_steps

S = TypeVar("S", bound=Any)
"""An array or a sequence."""

TAILS: Final = ("keep", "drop")
# The purposes of random streams: streams of one seed are independent.
SHUFFLE: Final = 0
SHARDS: Final = 1
BAGGING: Final = 2
STEPS: Final = 3


def draw_permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of the samples 0..n-1 in an epoch (from 0), the same on every machine and version.

    It sorts raw 64-bit output of PCG64, which NumPy keeps stable, unlike Generator.permutation (NEP 19).
    """
    return _shuffle_samples(n, seed, SHUFFLE, epoch)


def shard_assignment(n: int, seed: int = 0) -> np.ndarray:
    """Return samples 0..n-1 in the order in which they are dealt out: node j of m has share(assignment, j, m).

    seed: not that of a run, so that later runs find their files. A shard is a random subset, independent of file names,
    and sizes of shards differ by at most one.
    """
    return _shuffle_samples(n, seed, SHARDS, 0)


def _shuffle_samples(n: int, seed: int, purpose: int, epoch: int) -> np.ndarray:
    return np.argsort(random_bits(n, seed, purpose, epoch), kind="stable")


def random_bits(n: int, seed: int, purpose: int, number: int) -> np.ndarray:
    """Return n random words of 64 bits: those of stream `number` among the streams of a purpose and seed."""
    source = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, number)))
    return source.random_raw(n)


def step_seed(seed: int, part: int, epoch: int, step: int) -> int:
    """Return a 63-bit seed for what a step draws at random, such as dropout masks; part: of the batch, with its ranks.

    A CPU's generator takes its lower 32 bits.
    """
    source = np.random.SeedSequence(seed, spawn_key=(STEPS, epoch, step, part))
    return int(source.generate_state(1, np.uint64)[0] >> np.uint64(1))


def take_share(order: S, part: int, parts: int) -> S:
    """Return part 0..parts-1 of an order: contiguous, of nearly equal sizes, each sample in exactly one."""
    if not 0 <= part < parts:
        raise ValueError(f"part {part} of {parts}: expected 0 <= part < parts")
    n = len(order)
    return order[part * n // parts : (part + 1) * n // parts]


def shard_order(assignment: np.ndarray, nodes: int, global_batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """Return an order of all samples in which each node's part of each global batch comes from its own shard.

    assignment: from shard_assignment, as the files were staged. Shards are reshuffled in each epoch, and every
    sample comes once. It holds for ranks numbered node by node, equally many on each; otherwise ranks read some samples
    from other shards. A fixed subset per node costs convergence at scale (sparticlesteve/cosmoflow-benchmark#41);
    `draw_permutation` mixes all samples.
    """
    if global_batch_size % nodes:
        raise ValueError(f"the global batch size is {global_batch_size}; expected a multiple of the {nodes} nodes")
    n = len(assignment)
    positions = np.arange(n)
    holder: np.ndarray = np.empty(n, np.int64)
    holder[assignment] = _part_of(positions, n, nodes)
    shuffled = draw_permutation(n, seed, epoch)
    node_by_node = shuffled[np.argsort(holder[shuffled], kind="stable")]
    first = positions - positions % global_batch_size
    size = np.minimum(global_batch_size, n - first)
    order: np.ndarray = np.empty(n, np.int64)
    order[np.argsort(_part_of(positions - first, size, nodes), kind="stable")] = node_by_node
    return order


def _part_of(position: np.ndarray, n: int | np.ndarray, parts: int) -> np.ndarray:
    """Return for each position in an order of n the part that `take_share` puts it into."""
    return ((position + 1) * parts - 1) // n


@dataclass(frozen=True, slots=True)
class RankBatch:
    """A rank's share of a global batch.

    step: number of the global batch in its epoch, from 0.
    parts: indices for each accumulation step, which may be none; the last has some if the rank has any at all.
    """

    step: int
    parts: tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class Batching:
    """The rule for cutting an order into batches.

    global_batch_size: samples per step over all ranks.
    tail: "keep": the last batch of an epoch is smaller, and every sample comes once per epoch;
        "drop": it is left out, in each epoch other samples.
    accumulation: parts of a rank's share, computed one after the other.
    """

    global_batch_size: int
    tail: str = "keep"
    accumulation: int = 1

    def __post_init__(self) -> None:
        if self.global_batch_size < 1 or self.accumulation < 1 or self.tail not in TAILS:
            raise ValueError(f"expected sizes of at least 1 and a tail of {' or '.join(map(repr, TAILS))}, not {self}")

    def steps(self, n: int) -> int:
        """Return the number of batches of n samples; ValueError if there are none."""
        return count_steps(n, self.global_batch_size, self.tail)

    def batches(self, order: np.ndarray, rank: int, world_size: int, start: int = 0) -> Iterator[RankBatch]:
        """Yield the rank's share of each batch from step `start` on: a resumed epoch is the rest of the epoch."""
        for step in range(start, self.steps(len(order))):
            global_batch = order[step * self.global_batch_size : (step + 1) * self.global_batch_size]
            rank_batch = take_share(global_batch, rank, world_size)
            parts = tuple(take_share(rank_batch, part, self.accumulation) for part in range(self.accumulation))
            yield RankBatch(step, parts)


def sample_seed(seed: int, epoch: int, index: int | np.ndarray) -> np.ndarray:
    """Return a 64-bit seed per sample and epoch, of the shape of `index`, for its random augmentation.

    It does not depend on the rank, and within an epoch no two samples share a seed.
    Source: splitmix64 (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195), chained over the three numbers.
    """
    state: np.ndarray = np.zeros((), np.uint64)
    for number in (seed, epoch, index):
        state = _mix_bits(state + np.asarray(number, np.uint64))
    return state


def _mix_bits(value: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64
        value = value + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))


BITS: Final = 53
"""Of a random number in [0, 1): as many as a double has."""
MOST: Final = 20
"""Times that a sample is drawn at most: the probability that a Poisson number of mean 1 is larger is below 2^-53."""


def draw_samples(kind: Bagging, seed: int, instance: int, samples: int) -> np.ndarray:
    """Return the numbers of the samples that an instance draws, ascending, each as often as it is drawn: int64.

    seed: of instance 0. The same on every rank, machine and version, as only raw bits of NumPy's generator are used.
    """
    if kind == NONE:
        return np.arange(samples)
    if seed < 0:
        raise ValueError(f"the seed of instance 0 is {seed}, by that of instance {instance}; expected at least 0")
    uniform = (random_bits(samples, seed, BAGGING, instance) >> np.uint64(64 - BITS)) * 2.0**-BITS
    if kind == "bootstrap":
        return np.sort((uniform * samples).astype(np.int64))
    times = np.searchsorted(_POISSON, uniform, side="right")
    return np.repeat(np.arange(samples), times)


def drawn_samples(instances: InstancesConfig, seed: int, samples: int) -> np.ndarray:
    """Return the numbers of the training samples of the first instance, see `draw_samples`.

    seed: of this instance: the seed of instance 0 plus the number of this instance.
    """
    return draw_samples(instances.bagging, seed - instances.number, instances.number, samples)


def out_of_bag(draws: np.ndarray, samples: int) -> np.ndarray:
    """Return the numbers of the samples that are not among the draws, ascending."""
    return np.flatnonzero(np.bincount(draws, minlength=samples) == 0)


_POISSON: Final[np.ndarray] = np.cumsum([1 / (math.e * math.factorial(times)) for times in range(MOST)])
"""Element k: the probability that a Poisson number of mean 1 is at most k."""
