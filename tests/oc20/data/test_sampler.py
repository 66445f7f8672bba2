"""Shares of equal weight: the same frames for any number of ranks, none twice, none left."""

import numpy as np
import pytest

from common.data.sampling import Batching, draw_permutation
from oc20.data.dataset import BalancedBatching, balance_parts

WEIGHTS = np.random.default_rng(0).lognormal(9, 0.8, 500).astype(np.int32)
WORLDS = (1, 2, 3, 8, 64)


@pytest.mark.parametrize("parts", [1, 2, 7, 64, 600])
def test_each_index_comes_once_and_no_part_is_much_heavier_than_needed(parts):
    dealt = balance_parts(WEIGHTS, parts)
    assert len(dealt) == parts and sorted(np.concatenate(dealt)) == list(range(500))
    assert all((np.diff(part) > 0).all() for part in dealt)
    heaviest = max(int(WEIGHTS[part].sum()) for part in dealt)
    assert heaviest <= max(WEIGHTS.max(), WEIGHTS.sum() / parts * 4 / 3)


def test_shares_are_far_more_equal_than_by_number():
    weights = WEIGHTS[:256]
    by_weight = [weights[part].sum() for part in balance_parts(weights, 16)]
    by_number = weights.reshape(16, 16).sum(1)
    assert max(by_weight) < 1.02 * min(by_weight) and max(by_number) > 1.2 * max(by_weight)


def test_equal_weights_make_equal_numbers_by_fixed_rules():
    assert [part.tolist() for part in balance_parts(np.full(7, 5), 3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [len(part) for part in balance_parts(np.zeros(8, np.int32), 4)] == [2, 2, 2, 2]
    assert [part.tolist() for part in balance_parts(np.array([1, 9, 4, 4]), 2)] == [[1], [0, 2, 3]]
    assert [part.tolist() for part in balance_parts(WEIGHTS[:0], 2)] == [[], []]


@pytest.mark.parametrize("accumulation", [1, 3])
def test_global_batches_are_those_of_common_sampling_for_any_number_of_ranks(accumulation):
    order = draw_permutation(500, 1, 2)
    plain = [batch.parts[0] for batch in Batching(48).batches(order, 0, 1)]
    batching = BalancedBatching(48, accumulation=accumulation, weights=WEIGHTS)
    for world_size in WORLDS:
        ranks = [list(batching.batches(order, rank, world_size)) for rank in range(world_size)]
        for step, whole in enumerate(plain):
            shares = [batches[step] for batches in ranks]
            assert all(share.step == step for share in shares)
            assert all(len(share.parts) == accumulation for share in shares)
            assert sorted(np.concatenate([part for share in shares for part in share.parts])) == sorted(whole)
            assert all(len(share.parts[-1]) or not any(map(len, share.parts)) for share in shares)
        assert len(ranks[0]) == len(plain) == batching.steps(500)


def test_a_resumed_epoch_is_the_rest_of_the_epoch():
    batching = BalancedBatching(64, "drop", weights=WEIGHTS)
    order = draw_permutation(500, 3, 0)
    whole, rest = list(batching.batches(order, 1, 4)), list(batching.batches(order, 1, 4, start=5))
    assert [batch.step for batch in rest] == [5, 6] and len(whole) == 7
    assert all(np.array_equal(a.parts[0], b.parts[0]) for a, b in zip(whole[5:], rest, strict=True))
