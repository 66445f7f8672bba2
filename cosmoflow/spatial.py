"""CosmoFlow with samples that several ranks share (`dist.spatial`): which blocks they divide, and their layers.

The ranks of a group divide the D axis of a sample, or D and H, as long as each has an even number of voxels there for
pooling to halve; the first block must be so. The blocks after that are computed by each rank, from gathered voxels.
The first convolution's halo comes from the reader. The first dense layer is divided by its input. The network itself,
`cosmoflow.model`, is that of one device: its layers are replaced from outside.

config: a `Config` of `cosmoflow.settings`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from common.ranks.dist import Dist
from common.spatial.grid import Block, Grid, Reach
from common.spatial.halo import GatheredConv3d, HaloConv3d
from common.spatial.shards import Shard, ShardedLinear
from cosmoflow.model import CosmoFlow
from cosmoflow.settings import ModelConfig, why_indivisible


def divided_blocks(model: ModelConfig, sides: tuple[int, ...], extents: tuple[int, int]) -> int:
    """Return how many blocks of the network, from the first on, the ranks divide. sides: (D, H, …) of a sample."""
    reach = max(Reach.of_kernel(model.kernel_size))
    for layer in range(model.conv_layers):
        if any(why_indivisible(side >> layer, extent, reach) for side, extent in zip(sides, extents, strict=False)):
            return layer
    return model.conv_layers


def block_with_halo(config: Any, dist: Dist) -> Block | None:
    """Return what this rank reads of a sample; None: all of it."""
    if dist.sharing.world_size == 1:
        return None
    grid = Grid(config.dist.extents, dist.sharing.rank)
    return grid.own_block(config.data.sample_shape, Reach.of_kernel(config.model.kernel_size))


def share_layers(network: CosmoFlow, config: Any, dist: Dist) -> None:
    """Replace the layers of a network by those for ranks that share samples, if they do."""
    group, peers = dist.sharing, dist.peers
    if group.world_size == 1:
        return
    grid, sides = Grid(config.dist.extents, group.rank), config.data.sample_shape
    divided = divided_blocks(config.model, sides, grid.extents)
    for layer in range(divided):
        network.convs[layer] = HaloConv3d(network.convs[layer], grid, group, with_halo=layer == 0)
    gathered = divided < len(network.convs)
    if gathered:
        network.convs[divided] = GatheredConv3d(network.convs[divided], grid, group)
    dense = network.hidden[0]
    columns = _divide_features(dense.in_features, None if gathered else [side >> divided for side in sides[:2]], grid)
    if columns is not None:
        network.hidden[0] = ShardedLinear(dense, Shard(columns, group, peers), gathered=gathered)


def _divide_features(features: int, sides: list[int] | None, grid: Grid) -> Tensor | None:
    """Return the features of each rank (S, F / S), in the order d, h, w, c; None if they cannot be divided.

    sides: D and H of the last block, if it is divided; None: any features are as good.
    """
    every = torch.arange(features)
    if sides is not None:
        features_DHF = every.view(*sides, -1)
        return torch.stack([features_DHF[block.slices].flatten() for block in grid.all_blocks(sides)])
    return None if features % grid.ranks else every.view(grid.ranks, -1)


def shared_text(config: Any, dist: Dist) -> str:
    """Return the text for the user about ranks that share samples; "" if they do not."""
    ranks = dist.sharing.world_size
    if ranks == 1:
        return ""
    extents, layers = config.dist.extents, config.model.conv_layers
    divided = divided_blocks(config.model, config.data.sample_shape, extents)
    text = f"; {ranks} ranks share each sample, {extents[0]} × {extents[1]} along D × H, in {dist.data_size} group(s)"
    if divided < layers:
        blocks = f"block {layers}" if divided + 1 == layers else f"blocks {divided + 1} to {layers}"
        text += f"; each of them computes all of {blocks}, too small to be divided"
    if config.data.augment != "none":
        text += f"; augment={config.data.augment} turns samples, so that each reads whole training samples"
    if dist.device.type != "cpu":
        text += (
            f"\nwarning: dist.spatial is {config.dist.spatial_text}: on GPUs, ranks that share a sample are slower "
            "than one that has it alone, records its steps and uses kernels; set dist.spatial=1, and start at most one "
            "rank per sample of the batch"
        )
    return text
