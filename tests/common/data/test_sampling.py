"""Every sample exactly once, the same batches for any number of ranks, resuming in the middle."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.sampling import (
    Batching,
    draw_permutation,
    sample_seed,
    shard_assignment,
    shard_order,
    step_seed,
    take_share,
)

SEEDS = st.integers(0, 2**63 - 1)
COUNTS = st.integers(1, 200)
SMALL = st.integers(1, 9)


def global_batches(batching, order, world_size, start=0):
    """Return what all ranks together see in each step."""
    ranks = [list(batching.batches(order, rank, world_size, start)) for rank in range(world_size)]
    return [np.concatenate([part for batch in step for part in batch.parts]) for step in zip(*ranks, strict=True)]


@given(n=st.integers(0, 300), seed=SEEDS, epoch=st.integers(0, 1000))
def test_an_epoch_is_a_permutation(n, seed, epoch):
    order = draw_permutation(n, seed, epoch)
    assert order.dtype == np.int64
    assert sorted(order) == list(range(n))
    assert np.array_equal(order, draw_permutation(n, seed, epoch))


def test_orders_are_the_same_on_every_machine():
    assert draw_permutation(10, 42, 3).tolist() == [6, 3, 0, 9, 2, 8, 5, 7, 4, 1]
    assert shard_assignment(10, 42).tolist() == [4, 8, 5, 2, 3, 0, 9, 1, 7, 6]
    assert sample_seed(42, 3, np.arange(2)).tolist() == [8625030933615020391, 17566964923686834219]


def test_orders_of_other_epochs_seeds_and_purposes_differ():
    orders = [draw_permutation(1000, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0), (2**32, 0))]
    orders.append(shard_assignment(1000, 0))
    for one, other in combinations(orders, 2):
        assert np.mean(one == other) < 0.01


@given(n=COUNTS, size=st.integers(1, 50), world_size=SMALL, accumulation=st.integers(1, 4))
def test_an_epoch_covers_every_sample_once(n, size, world_size, accumulation):
    batching = Batching(size, "keep", accumulation)
    batches = global_batches(batching, draw_permutation(n, 7, 1), world_size)
    assert len(batches) == batching.steps(n)
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert sorted(np.concatenate(batches)) == list(range(n))


@given(n=COUNTS, size=st.integers(1, 50), world_size=SMALL)
def test_batches_do_not_depend_on_the_number_of_ranks(n, size, world_size):
    order = draw_permutation(n, 1, 2)
    alone = global_batches(Batching(size), order, 1)
    assert all(map(np.array_equal, alone, global_batches(Batching(size, accumulation=3), order, world_size)))


@given(n=COUNTS, size=st.integers(1, 50), rank=st.integers(0, 3), data=st.data())
def test_a_resumed_epoch_is_the_rest_of_the_epoch(n, size, rank, data):
    batching, order = Batching(size, accumulation=2), draw_permutation(n, 3, 0)
    whole = list(batching.batches(order, rank, 4))
    start = data.draw(st.integers(0, len(whole)))
    rest = list(batching.batches(order, rank, 4, start))
    assert [batch.step for batch in rest] == list(range(start, len(whole)))
    for one, other in zip(whole[start:], rest, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one.parts, other.parts, strict=True))


@given(n=COUNTS, size=st.integers(1, 50), world_size=SMALL, accumulation=st.integers(1, 4))
def test_parts_are_even_and_the_last_is_empty_only_without_samples(n, size, world_size, accumulation):
    for rank in range(world_size):
        for batch in Batching(size, "keep", accumulation).batches(np.arange(n), rank, world_size):
            sizes = [len(part) for part in batch.parts]
            assert len(sizes) == accumulation and max(sizes) - min(sizes) <= 1
            assert sizes[-1] > 0 or sum(sizes) == 0
            assert abs(sum(sizes) - min(size, n - batch.step * size) / world_size) < 1


def test_a_dropped_tail_is_another_one_in_each_epoch():
    batching = Batching(8, "drop")
    seen = [np.concatenate(global_batches(batching, draw_permutation(21, 5, epoch), 2)) for epoch in range(12)]
    assert all(len(epoch) == 16 for epoch in seen)
    assert set(np.concatenate(seen)) == set(range(21))
    with pytest.raises(ValueError, match="7 samples make no batch of 8"):
        batching.steps(7)


@given(n=st.integers(0, 200), world_size=SMALL)
def test_evaluation_covers_every_sample_once(n, world_size):
    shares = [take_share(np.arange(n), rank, world_size) for rank in range(world_size)]
    assert np.concatenate(shares).tolist() == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(n=COUNTS, nodes=st.integers(1, 5), local_size=st.integers(1, 3), per_node=st.integers(1, 7), seed=SEEDS)
def test_shards_feed_their_own_nodes(n, nodes, local_size, per_node, seed):
    assignment = shard_assignment(n, 0)
    shards = [set(take_share(assignment, node, nodes)) for node in range(nodes)]
    order = shard_order(assignment, nodes, per_node * nodes, seed, 4)
    assert sorted(order) == list(range(n))
    for rank in range(nodes * local_size):
        for batch in Batching(per_node * nodes).batches(order, rank, nodes * local_size):
            assert set(batch.parts[0]) <= shards[rank // local_size]


def test_shards_are_random_subsets_shuffled_in_each_epoch():
    assignment = shard_assignment(1000, 0)
    # Half of a random half comes from the first half of the names; 50 is more than 4 standard deviations.
    assert abs(np.sum(take_share(assignment, 0, 2) < 500) - 250) < 50
    first, second = (take_share(shard_order(assignment, 2, 1000, 9, epoch), 0, 2) for epoch in (0, 1))
    assert set(first) == set(second) and np.mean(first == second) < 0.02
    with pytest.raises(ValueError, match="is 9; expected a multiple of the 2 nodes"):
        shard_order(assignment, 2, 9, 0, 0)


@given(seed=SEEDS, epoch=st.integers(0, 1000))
def test_seeds_of_samples_differ(seed, epoch):
    index = np.arange(500).reshape(5, 100)
    seeds = sample_seed(seed, epoch, index)
    assert seeds.shape == index.shape and seeds.dtype == np.uint64
    assert len(np.unique(seeds)) == 500
    assert int(sample_seed(seed, epoch, 42)) == int(seeds[0, 42])
    assert not np.any(seeds == sample_seed(seed, epoch + 1, index))


def test_seeds_of_steps_differ_by_rank_epoch_step_and_run():
    seeds = [step_seed(*numbers) for numbers in np.ndindex(2, 40, 5, 5)]
    assert len({seed % 2**32 for seed in seeds}) == len(seeds) and max(seeds) < 2**63
    assert step_seed(7, 0, 1, 2) == step_seed(7, 0, 1, 2)


def test_nonsense_is_refused():
    for arguments in ((0,), (4, "pad"), (4, "keep", 0)):
        with pytest.raises(ValueError, match="expected sizes of at least 1"):
            Batching(*arguments)
    with pytest.raises(ValueError, match="part 2 of 2"):
        take_share(np.arange(3), 2, 2)
