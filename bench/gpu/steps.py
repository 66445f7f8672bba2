"""Training steps of the three networks in their variants, on batches that lie on the device."""

from __future__ import annotations

from collections.abc import Sequence

from gpu import layers
from gpu.cases import Bench
from gpu.training import Plan, step
from gpu.variants import (
    ALL,
    BLOCK,
    BLOCK_ALL,
    BLOCK_GRAPHS,
    COMPILED_FLAT,
    FLAT_GRAPHS,
    GRAPHS,
    KERNELS,
    KERNELS_GRAPHS,
    PLAIN,
    UNTUNED,
    Variant,
)


def several(bench: Bench, network: str, batches: Sequence[int], variants: Sequence[Variant], profiled: int = 0) -> None:
    """Measure steps; with a profile of each variant at one of the batches. A dry run takes two variants."""
    for batch in batches:
        for variant in variants[:: bench.size(1, max(1, len(variants) - 1))]:
            step(bench, network, bench.size(batch, 1), variant, plan(bench, batch == profiled))


def plan(bench: Bench, profiled: bool) -> Plan:
    """Return the plan, the same for all variants: graphs are recorded after some steps for each shape of a batch."""
    if bench.dry:
        return Plan(warm=0, watched=0, timed=1, profiled=int(profiled))
    return Plan(warm=22, profiled=4 if profiled else 0)


def cosmoflow(bench: Bench) -> None:
    """Measure CosmoFlow as it is and with its kernels."""
    several(bench, "cosmoflow", bench.size((16,), (16,)), (PLAIN, UNTUNED, KERNELS), profiled=16)
    several(bench, "cosmoflow", bench.size((1, 4, 32), ()), (PLAIN, KERNELS))


def deepcam(bench: Bench) -> None:
    """Measure DeepCAM as it is."""
    several(bench, "deepcam", (8,), (PLAIN, UNTUNED), profiled=8)
    several(bench, "deepcam", bench.size((1, 16), ()), (PLAIN,))


def oc20(bench: Bench) -> None:
    """Measure OC20 as it is and with its kernels."""
    several(bench, "oc20", (32,), (PLAIN, KERNELS), profiled=32)
    several(bench, "oc20", bench.size((4, 16, 64), ()), (PLAIN, KERNELS))


def cosmoflow_variants(bench: Bench) -> None:
    """Measure the fused first block by itself, and steps in all variants."""
    several(bench, "cosmoflow", (16,), (PLAIN, KERNELS, BLOCK, GRAPHS, KERNELS_GRAPHS, BLOCK_GRAPHS, BLOCK_ALL), 16)
    several(bench, "cosmoflow", bench.size((1,), ()), (PLAIN, GRAPHS, KERNELS_GRAPHS, BLOCK_GRAPHS, BLOCK_ALL))
    several(bench, "cosmoflow", bench.size((4, 32), ()), (PLAIN, KERNELS_GRAPHS, BLOCK_ALL))
    layers.first_block(bench, bench.size(16, 1), layers.blocks(bench)[0])


def deepcam_variants(bench: Bench) -> None:
    """Measure DeepCAM recorded, compiled, with flat optimizer, and all of these."""
    variants = (PLAIN, GRAPHS, FLAT_GRAPHS, COMPILED_FLAT)
    several(bench, "deepcam", (8,), variants, profiled=8)
    several(bench, "deepcam", bench.size((1,), ()), variants)


def oc20_variants(bench: Bench) -> None:
    """Measure OC20's steps in all variants, then its kernels with other tiles."""
    several(bench, "oc20", (32,), (PLAIN, GRAPHS, KERNELS, KERNELS_GRAPHS, ALL), profiled=32)
    several(bench, "oc20", bench.size((4, 16), ()), (PLAIN, KERNELS_GRAPHS, ALL))
    layers.oc20(bench)


def sweeps(bench: Bench) -> None:
    """Measure other batches with everything on."""
    several(bench, "oc20", bench.size((64, 128, 8), ()), (ALL,))
    several(bench, "cosmoflow", bench.size((8, 2, 64), (8,)), (BLOCK_ALL,))
    several(bench, "deepcam", bench.size((16, 4, 2), ()), (FLAT_GRAPHS,))
