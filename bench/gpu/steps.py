"""Training steps of the three networks in their variants, on batches that lie on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpu import layers
from gpu.cases import Bench
from gpu.training import Plan, step
from gpu.variants import (
    BLOCK,
    BLOCK_GRAPHS,
    COLD,
    COMPILED,
    GRAPHS,
    KERNELS,
    KERNELS_GRAPHS,
    PLAIN,
    WARMED,
    Variant,
)

COMPILING_S = 80
"""The time left with which DeepCAM is compiled."""


def several(bench: Bench, network: str, batches: Sequence[int], variants: Sequence[Variant], profiled: int = 0) -> None:
    """Measure steps; with a profile of each variant at one of the batches. A dry run takes two variants."""
    for batch in batches:
        for variant in variants[:: bench.size(1, max(1, len(variants) - 1))]:
            step(bench, network, bench.size(batch, 1), variant, plan(bench, batch == profiled))


def warmed(bench: Bench, network: str, batch: int) -> None:
    """Measure recorded steps of a run that was warmed up, and how long that took."""
    step(bench, network, bench.size(batch, 1), GRAPHS.with_keys(WARMED), replace(plan(bench, False), warms_up=True))


def plan(bench: Bench, profiled: bool) -> Plan:
    """Return the plan, the same for all variants: graphs are recorded after some steps for each shape of a batch."""
    if bench.dry:
        return Plan(warm=0, watched=0, timed=1, profiled=int(profiled))
    return Plan(warm=22, profiled=4 if profiled else 0)


def cold(bench: Bench, network: str, batch: int) -> None:
    """Measure the first steps of a process that has chosen no algorithms yet, which is why it is the first case."""
    few = Plan(*bench.size((6, 0, 10), (0, 0, 1)), different=1)
    step(bench, network, bench.size(batch, 1), GRAPHS.with_keys(COLD), few)


def cosmoflow_variants(bench: Bench) -> None:
    """Measure steps in all variants, then the fused first block by itself."""
    cold(bench, "cosmoflow", 16)
    several(bench, "cosmoflow", (16,), (PLAIN, KERNELS, BLOCK, GRAPHS, KERNELS_GRAPHS, BLOCK_GRAPHS), 16)
    several(bench, "cosmoflow", bench.size((1,), ()), (PLAIN, GRAPHS, KERNELS_GRAPHS, BLOCK_GRAPHS))
    several(bench, "cosmoflow", bench.size((4, 32), ()), (PLAIN, KERNELS_GRAPHS, BLOCK_GRAPHS))
    warmed(bench, "cosmoflow", 16)
    layers.first_block(bench, bench.size(16, 1), layers.blocks(bench)[0])


def deepcam_variants(bench: Bench) -> None:
    """Measure DeepCAM's steps: of one sample, of eight, and compiled."""
    cold(bench, "deepcam", 1)
    several(bench, "deepcam", bench.size((1,), ()), (PLAIN, GRAPHS))
    several(bench, "deepcam", (8,), (PLAIN, GRAPHS))
    step(bench, "deepcam", bench.size(8, 1), COMPILED, replace(plan(bench, True), needs_s=COMPILING_S))


def oc20_variants(bench: Bench) -> None:
    """Measure OC20's steps in all variants, then its kernels."""
    cold(bench, "oc20", 32)
    several(bench, "oc20", (32,), (PLAIN, GRAPHS, KERNELS, KERNELS_GRAPHS), profiled=32)
    several(bench, "oc20", bench.size((4,), ()), (PLAIN, KERNELS_GRAPHS))
    warmed(bench, "oc20", 32)
    layers.oc20(bench)


def sweeps(bench: Bench) -> None:
    """Measure other batches with everything on."""
    several(bench, "oc20", bench.size((64, 128, 8), ()), (KERNELS_GRAPHS,))
    several(bench, "cosmoflow", bench.size((8, 2, 64), (8,)), (BLOCK_GRAPHS,))
    several(bench, "deepcam", bench.size((16, 4, 2), ()), (GRAPHS,))
