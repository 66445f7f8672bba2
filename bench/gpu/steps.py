"""Training steps of the three networks in their variants, on batches that lie on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch._inductor import config as inductor

from gpu import layers
from gpu.cases import Bench
from gpu.training import Plan, step
from gpu.variants import (
    AUTOTUNED,
    BASES,
    BLOCK,
    BLOCK_GRAPHS,
    CANDIDATES,
    COMPILED_ALL,
    COMPILED_UNTUNED,
    GRAPHS,
    KERNELS,
    KERNELS_GRAPHS,
    PACKED,
    PLAIN,
    UNTUNED,
    Variant,
)

COMPILING_S: Final = 60
"""The time left with which DeepCAM is compiled."""


def several(bench: Bench, network: str, batch: int, variants: Sequence[Variant], profiled: bool = False) -> None:
    """Measure steps of variants, the first with a profile if asked for. A dry run takes the first and the last."""
    for number, variant in enumerate(variants[:: bench.size(1, max(1, len(variants) - 1))]):
        step(bench, network, bench.size(batch, 1), variant, plan(bench, profiled and number == 0))


def plan(bench: Bench, profiled: bool, needs_s: float = 8.0) -> Plan:
    """Return the plan, the same for all variants: graphs are recorded after some steps for each shape of a batch."""
    if bench.dry:
        return Plan(warm=0, watched=0, timed=1, profiled=int(profiled))
    return Plan(warm=22, profiled=4 if profiled else 0, needs_s=needs_s)


def cosmoflow_candidates(bench: Bench) -> None:
    """Measure CosmoFlow's steps with each candidate, and the first block by itself."""
    for batch in bench.size((16, 1), (16,)):
        several(bench, "cosmoflow", batch, BASES["cosmoflow"].try_each(CANDIDATES["cosmoflow"]), batch == 16)
        step(bench, "cosmoflow", bench.size(batch, 1), PACKED, plan(bench, False))
    layers.first_block(bench)


def oc20_candidates(bench: Bench) -> None:
    """Measure OC20's steps with each candidate; the interpreter cannot run the kernels of all."""
    names = CANDIDATES["oc20"]
    for batch in bench.size((32, 4), (32,)):
        several(bench, "oc20", batch, BASES["oc20"].try_each(bench.size(names, names[:2])), batch == 32)


def deepcam_candidates(bench: Bench) -> None:
    """Measure DeepCAM's steps with each candidate; cuDNN's search for algorithms would take 40 s for each batch."""
    for batch in bench.size((8, 1), (8,)):
        several(bench, "deepcam", batch, BASES["deepcam"].try_each(CANDIDATES["deepcam"]), profiled=True)


def deepcam_compiled(bench: Bench) -> None:
    """Measure DeepCAM's steps compiled, whose losses are compared with those of plain steps."""
    for batch in bench.size((8, 1), (8,)):
        batch = bench.size(batch, 1)
        if bench.found("step", network="deepcam", batch=batch, variant=UNTUNED.name) is None:
            step(bench, "deepcam", batch, UNTUNED, plan(bench, False))
        step(bench, "deepcam", batch, COMPILED_UNTUNED, plan(bench, True, COMPILING_S))
    if not bench.dry:  # interpreted, the kernels of depthwise layers would take minutes
        step(bench, "deepcam", 8, COMPILED_ALL, plan(bench, True, COMPILING_S))


def deepcam_autotuned(bench: Bench) -> None:
    """Measure DeepCAM's steps compiled with a search among Triton's products and cuDNN's convolutions."""
    with inductor.patch(max_autotune=True):
        step(bench, "deepcam", bench.size(8, 1), AUTOTUNED, plan(bench, False, COMPILING_S))


def variants(bench: Bench) -> None:
    """Measure the steps of each network in all its variants."""
    several(bench, "cosmoflow", 16, (PLAIN, KERNELS, BLOCK, GRAPHS, KERNELS_GRAPHS, BLOCK_GRAPHS), profiled=True)
    several(bench, "oc20", 32, (PLAIN, GRAPHS, KERNELS, KERNELS_GRAPHS), profiled=True)
    several(bench, "deepcam", 8, (PLAIN, GRAPHS), profiled=True)
    for network, batch, best in bench.size((("cosmoflow", 1, BLOCK_GRAPHS), ("oc20", 4, KERNELS_GRAPHS)), ()):
        several(bench, network, batch, (PLAIN, GRAPHS, best))
