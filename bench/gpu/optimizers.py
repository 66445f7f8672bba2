"""LAMB by itself, on the parameters of DeepCAM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from common.training import optim
from common.training.optim import OptimConfig
from deepcam import model as deepcam
from gpu.cases import Bench
from gpu.layers import close

LAMB: Final = OptimConfig("lamb", eps=1e-6, weight_decay=0.01)
LEAST_BYTES: Final = 38
"""The least bytes read and written per parameter."""


def measure(bench: Bench) -> None:
    """Time LAMB by torch's own operations and on flat buffers, launched and recorded."""
    with torch.device("meta"):
        network = nn.Linear(40, 40) if bench.dry else deepcam.DeepLab(deepcam.ModelConfig(), 16)
    with bench.case("optimizer", name="lamb", fused="flat, right") as row:
        row["relative_error"] = right(bench, network)
    for fused in ("auto", "flat"):
        with bench.case("optimizer", name="lamb", network="deepcam", fused=fused) as row:
            parameters = list(weights(network, bench.device))
            optimizer = built(fused, parameters)
            optimizer.step()
            row["parameters"] = sum(parameter.numel() for parameter in parameters)
            row["bytes"] = LEAST_BYTES * row["parameters"]
            row.update(bench.clock.per_call_ms([optimizer.step]))
            marks = [bench.clock.mark()]
            for _ in range(bench.size(40, 2)):
                optimizer.step()
                marks.append(bench.clock.mark())
            row["launched_ms"] = bench.clock.steps_ms(marks)["ms"]
            row["bytes_per_s"] = 1e3 * row["bytes"] / row["ms"]
            row["memory_mb"] = bench.clock.memory_mb()
        bench.clock.forget()


def weights(network: nn.Module, device: torch.device, dtype: torch.dtype = torch.float32) -> Iterator[nn.Parameter]:
    """Yield random parameters of the network's shapes with random gradients, the same in each call."""
    generator = torch.Generator().manual_seed(0)
    for shaped in network.parameters():
        drawn: Tensor = torch.randn(shaped.shape, generator=generator)
        parameter = nn.Parameter((0.1 * drawn).to(device, dtype))
        parameter.grad = (0.01 * drawn.flip(0)).to(device, dtype)
        yield parameter


def built(fused: str, parameters: list[nn.Parameter]) -> Any:
    return optim.build(replace(LAMB, fused=fused), parameters, 0.001)


def right(bench: Bench, network: nn.Module) -> float:
    """Return how far three steps on flat buffers are from three plain ones in float64, relative to their length."""
    flat = list(weights(network, bench.device))
    plain = list(weights(network, bench.device, torch.float64))
    before = [one.detach().clone() for one in plain]
    for optimizer in (built("flat", flat), built("auto", plain)):
        for _ in range(3):
            optimizer.step()
    moved = zip(flat, plain, before, strict=True)
    pairs = [(found.detach().double() - start, exact.detach() - start) for found, exact, start in moved]
    found, exact = (torch.cat([one[side].flatten() for one in pairs]) for side in (0, 1))
    return close(found, exact, 1e-3)
