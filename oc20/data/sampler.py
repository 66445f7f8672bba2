"""Balance the work of ranks: distribute the frames of a global batch by their weights.

Frames differ by a factor of ten in their triplets, and a step takes as long as its slowest rank. The frames of a global
batch are dealt out to the ranks by weight; all ranks compute the same result without communication. The global batch
itself does not change (see `common.data.sampling`): only the place of the work depends on the number of ranks.

Source: longest processing time first (Graham 1969, doi:10.1137/0117039): no part is heavier than 4/3 of the best.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from common.data.sampling import Batching, RankBatch


def partition(weights: np.ndarray, parts: int) -> list[np.ndarray]:
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
            dealt = partition(self.weights[whole], world_size * self.accumulation)
            mine = dealt[rank * self.accumulation : (rank + 1) * self.accumulation]
            yield RankBatch(step, tuple(whole[part] for part in sorted(mine, key=len)), len(whole))
