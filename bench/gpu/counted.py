"""Launch the kernels of one kind some times, for a profiler: `python bench/gpu/counted.py pool|triplets cuda|cpu`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT / "bench")
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402  (the path is set above)

from gpu.cases import Bench  # noqa: E402
from gpu.layers import _blocked, _fused_block, _pooled, _sums, normal  # noqa: E402
from gpu.references import frames  # noqa: E402


def pool(bench: Bench) -> None:
    """Make CosmoFlow's first block and a pooling, forward and backward."""
    from cosmoflow import kernels
    from cosmoflow.model import SLOPE

    batch, side = bench.size((16, 128), (1, 4))
    x, weight = normal(bench, batch, 4, side, side, side), normal(bench, 32, 4, 3, 3, 3)
    bias, by = torch.randn(32, device=bench.device), normal(bench, batch, 32, *[side // 2] * 3)
    wide = normal(bench, batch, 32, side, side, side)
    for _ in range(bench.size(4, 1)):
        _blocked(_fused_block, x, weight, bias, by)
        _pooled(lambda x, bias: kernels.pool_and_activate(x, bias, SLOPE), wide, bias, by)


def triplets(bench: Bench) -> None:
    """Make the sums over triplets and their gradients."""
    from oc20.graphs import build_graph

    graph = build_graph(frames(bench.size(32, 1), bench.dry)).to(bench.device)
    orders, roots, channels = bench.size((7, 6, 64), (2, 2, 8))
    edges = len(graph.sources)
    shapes = [(edges, channels), (edges, orders * roots), (edges, orders * roots), (orders * roots, channels)]
    given = [normal(bench, *shape).float() for shape in (*shapes, (edges, channels))]
    unit = torch.nn.functional.normalize(graph.vectors, dim=1)
    for _ in range(bench.size(4, 1)):
        _sums(graph, unit, (orders, roots), given, "triton")


if __name__ == "__main__":
    device = torch.device(sys.argv[2])
    made = Bench(device, device.type == "cpu", ROOT, ROOT / "unused")
    {"pool": pool, "triplets": triplets}[sys.argv[1]](made)
    made.clock.finish()
