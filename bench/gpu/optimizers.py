"""The optimizers by themselves, on the parameters of the networks that use them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn

from common.training import optim
from common.training.optim import OptimConfig
from cosmoflow import model as cosmoflow
from deepcam import model as deepcam
from gpu.cases import Bench
from gpu.layers import close
from oc20 import model as oc20

CASES: Final = {
    "lamb": ("deepcam", OptimConfig("lamb", eps=1e-6, weight_decay=0.01), 38),
    "adamw": ("oc20", OptimConfig("adamw", weight_decay=0.01), 28),
    "sgd": ("cosmoflow", OptimConfig("sgd"), 20),
}
"""The network, the configuration, and the least bytes per parameter."""


def networks(bench: Bench) -> dict[str, nn.Module]:
    """Return the networks, without weights."""
    with torch.device("meta"):
        if bench.dry:
            return {
                name: nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 8)) for name in ("cosmoflow", "deepcam", "oc20")
            }
        return {
            "cosmoflow": cosmoflow.CosmoFlow(cosmoflow.ModelConfig(), (128, 128, 128, 4)),
            "deepcam": deepcam.DeepLab(deepcam.ModelConfig(), 16),
            "oc20": oc20.DimeNet(oc20.ModelConfig()),
        }


def measure(bench: Bench) -> None:
    """Time each optimizer by torch's own operations and on flat buffers, launched and recorded."""
    made = networks(bench)
    for name, (network, config, bytes_each) in CASES.items():
        with bench.case("optimizer", name=name, fused="flat, right") as row:
            row["relative_error"] = right(bench, made[network], config)
        for fused in ("auto", "flat"):
            with bench.case("optimizer", name=name, network=network, fused=fused) as row:
                parameters = list(weights(made[network], bench.device))
                optimizer = built(config, fused, parameters)
                optimizer.step()
                row["parameters"] = sum(one.numel() for one in parameters)
                row["bytes"] = bytes_each * row["parameters"]
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


def built(config: OptimConfig, fused: str, parameters: list[nn.Parameter]) -> Any:
    keys = {name: getattr(config, name) for name in ("name", "momentum", "weight_decay", "betas", "eps")}
    return optim.build(OptimConfig(**keys, fused=fused), parameters, 0.001)  # type: ignore[arg-type]


def right(bench: Bench, network: nn.Module, config: OptimConfig) -> float:
    """Return how far three steps on flat buffers are from three plain ones in float64, relative to their length."""
    flat = list(weights(network, bench.device))
    plain = list(weights(network, bench.device, torch.float64))
    before = [one.detach().clone() for one in plain]
    for optimizer in (built(config, "flat", flat), built(config, "auto", plain)):
        for _ in range(3):
            optimizer.step()
    moved = zip(flat, plain, before, strict=True)
    pairs = [(found.detach().double() - start, exact.detach() - start) for found, exact, start in moved]
    found, exact = (torch.cat([one[side].flatten() for one in pairs]) for side in (0, 1))
    return close(found, exact, 1e-3)
