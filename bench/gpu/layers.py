"""Time layers by themselves, at the published sizes: which are far from their floor.

A floor is the time of a layer's operations at the rate of a product of the network's shape, or of its least bytes at
the rate of a copy, whichever is longer; both rates are those that the machine reaches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosmoflow import kernels as cosmoflow_kernels
from cosmoflow.model import SLOPE
from cosmoflow.model import pool_and_activate as torch_pool
from deepcam import model as deepcam_model
from deepcam.reference import CLASSES
from gpu.candidates import switch_on
from gpu.cases import Bench, WrongError
from gpu.networks import COSMOFLOW, DEEPCAM, Network, ceilings_of
from gpu.results import Row

CACHE_BYTES: Final = 240e6
"""Inputs of a measurement take turns until they are as large: four times an H200's cache."""


def close(found: Tensor, right: Tensor, within: float) -> float:
    """Return the relative error of a result; WrongError if it is too large or NaN."""
    error = float((found.detach().double() - right.detach().double()).norm() / right.detach().double().norm())
    if not error <= within:
        raise WrongError(f"the relative error is {error:.2g}; expected at most {within:g}")
    return error


def most(pairs: Iterable[tuple[Tensor, Tensor]], within: float) -> float:
    """Return the largest relative error of results beside what is right; WrongError as in `close`."""
    return max(close(found, right, within) for found, right in pairs)


def sets_of(bench: Bench, make: Callable[[], Any], numbers: int) -> list[Any]:
    """Return as many inputs as make measurements miss the cache; numbers: bytes of one."""
    count = 1 if bench.dry else max(1, min(8, round(CACHE_BYTES / max(numbers, 1))))
    return [make() for _ in range(count)]


def floor(bench: Bench, network: Network, flop: float, moved: float) -> dict[str, float]:
    """Return the least time of these operations and bytes."""
    reached = ceilings_of(bench.known)
    least_s = max(flop / reached.flop_per_s(network.product), moved / reached.bytes_per_s)
    return {"floor_ms": 1e3 * least_s, "flop": flop, "bytes": moved}


def narrow(bench: Bench) -> torch.dtype:
    """Return bf16; in a dry run fp16, as Triton's interpreter has no products in bf16."""
    return torch.float16 if bench.dry else torch.bfloat16


def normal(bench: Bench, *shape: int, channels_last: bool = True) -> Tensor:
    """Return random numbers in the narrow format."""
    values = torch.randn(shape, device=bench.device).to(narrow(bench))
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return values.to(memory_format=formats[len(shape)]) if channels_last and len(shape) in formats else values


# -- CosmoFlow -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def setting(module: Any, **values: Any) -> Iterator[None]:
    """Set names of a module inside the body; an unknown name is an error."""
    former = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in former.items():
            setattr(module, name, value)


HALVES: Final = ("cosmoflow-halves",)
FIRST_BLOCKS: Final[tuple[tuple[str, tuple[str, ...], tuple[int, int] | None], ...]] = (
    ("as it is", (), None),
    ("halves", HALVES, None),
    ("halves, 32 cells, 4 warps", HALVES, (32, 4)),
    ("halves, 32 cells, 8 warps", HALVES, (32, 8)),
    ("halves, 64 cells, 8 warps", HALVES, (64, 8)),
)
"""Names, candidates with which the first block is timed, and sizes of the gradient's kernel if not its own."""


def plan_gradient(sizes: tuple[int, int] | None) -> Callable[..., tuple[Any, ...]]:
    """Return the plan of the gradient's kernel with so many cells and warps, or its own."""
    plan, plan_rows = cosmoflow_kernels._first_backward, cosmoflow_kernels._plan_rows

    def change_sizes(x: Tensor, slope: float) -> tuple[Any, ...]:
        if sizes is None:
            return plan(x, slope)
        with setting(cosmoflow_kernels, _plan_rows=lambda x, _most: plan_rows(x, sizes[0])):
            *others, keys = plan(x, slope)
        return *others, keys | {"num_warps": sizes[1]}

    return change_sizes


def first_block(bench: Bench) -> None:
    """Time the fused first block, forward and with its gradients, for some choices of its sizes."""
    batch, before, after, side = bench.size((16, 4, 32, 128), (1, 4, 32, 4))
    for way, candidates, sizes in bench.size(FIRST_BLOCKS, FIRST_BLOCKS[:3:2]):
        with (
            bench.case("layer", network="cosmoflow", layer="block 1, fused", way=way, batch=batch) as row,
            switch_on(candidates),
            setting(cosmoflow_kernels, _first_backward=plan_gradient(sizes)),
        ):
            weight, bias = normal(bench, after, before, 3, 3, 3), torch.randn(after, device=bench.device)
            by = normal(bench, batch, after, side // 2, side // 2, side // 2)
            moved = 2 * batch * (side**3 * before + 1.5 * after * (side // 2) ** 3)
            given = sets_of(bench, partial(normal, bench, batch, before, side, side, side), int(moved))
            right = _blocked(_plain_block, given[0].float(), weight.float(), bias, by)
            found = _blocked(_fused_block, given[0], weight, bias, by)
            row["relative_error"] = most(zip(found, right, strict=True), 2e-2)
            del found, right
            for way, call in (("forward", _blocked_forward), ("both", partial(_blocked, _fused_block))):
                times = bench.clock.per_call_ms([partial(call, x, weight, bias, by) for x in given])
                row.update({f"{way}_{key}": value for key, value in times.items()})
            row["ms"] = row["both_ms"]
            row.update(floor(bench, COSMOFLOW, 4 * 27 * before * after * batch * side**3, 2 * moved))


def _fused_block(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return cosmoflow_kernels.first_block(x, weight, bias, SLOPE)


def _plain_block(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch_pool(F.conv3d(x, weight, bias, padding=1))


def _blocked_forward(x: Tensor, weight: Tensor, bias: Tensor, by: Tensor) -> Tensor:
    with torch.no_grad():
        return _fused_block(x, weight, bias)


def _blocked(block: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor, by: Tensor) -> list[Tensor]:
    weight, bias = weight.detach().requires_grad_(), bias.detach().requires_grad_()
    y = block(x, weight, bias)
    return [y, *torch.autograd.grad(y, [weight, bias], by.to(y.dtype))]


# -- DeepCAM -------------------------------------------------------------------------------------------------

Layer = tuple[nn.Module, tuple[int, ...]]


def deepcam(bench: Bench) -> None:
    """Time each kind of DeepCAM's layers, forward and backward, at batch 8, and add up how often it occurs."""
    torch.backends.cudnn.benchmark = True
    sides, batch = bench.size((768, 1152), (32, 48)), bench.size(8, 1)
    config = deepcam_model.ModelConfig(**bench.size({}, {"width": 0.05, "middle_blocks": 0}))
    layers = list(layers_of(config, (batch, *sides, 16)).items())
    for (kind, name), found in layers[:: bench.size(1, -3)]:  # a dry run: a third of them, from the last
        layer, shape = found[0]
        for way, timed, candidates in list_ways(layer):
            names = {"kind": kind, "layer": name, "way": ", ".join(filter(None, (way, *candidates)))}
            with (
                bench.case("layer", network="deepcam", **names, batch=batch, times=len(found)) as row,
                switch_on(candidates),
            ):
                row.update(layer_ms(bench, timed, shape))


def list_ways(layer: nn.Module) -> Iterator[tuple[str, nn.Module, tuple[str, ...]]]:
    """Yield what is timed of a layer: its name, and the candidates that are on.

    The candidate of a depthwise convolution takes in what comes before it.
    """
    yield "", layer, ()
    if isinstance(layer, nn.ConvTranspose2d) and layer.out_channels == len(CLASSES):
        yield "", layer, ("deepcam-output-8",)
    elif isinstance(layer, nn.Conv2d) and layer.groups > 1:
        with torch.device("meta"):
            chain = nn.Sequential(nn.BatchNorm2d(layer.in_channels), nn.ReLU(), layer)
        yield "normalised", chain, ()
        yield "normalised", chain, ("deepcam-depthwise",)


def layers_of(config: deepcam_model.ModelConfig, shape_BHWC: tuple[int, ...]) -> dict[tuple[str, str], list[Layer]]:
    """Return the convolutions and normalisations of the network with the shapes of their inputs, by kind and name."""
    with torch.device("meta"):
        network = deepcam_model.DeepLab(config, shape_BHWC[-1])
        x_BHWC = torch.empty(shape_BHWC)
    found: dict[tuple[str, str], list[Layer]] = {}

    def note(module: nn.Module, given: tuple[Tensor, ...], _output: Tensor) -> None:
        shape = tuple(given[0].shape)
        found.setdefault((kind_of(module), f"{module}, {shape[2]} × {shape[3]}"), []).append((module, shape))

    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.BatchNorm2d):
            module.register_forward_hook(note)
    network(x_BHWC)
    return found


def kind_of(module: nn.Module) -> str:
    """Return the kind of a layer."""
    if isinstance(module, nn.BatchNorm2d):
        return "batch normalisation and ReLU"
    if isinstance(module, nn.ConvTranspose2d):
        return "transposed"
    assert isinstance(module, nn.Conv2d)
    dilated = ", dilated" if module.dilation[0] > 1 else ""
    strided = ", stride 2" if module.stride[0] > 1 else ""
    if module.groups > 1:
        return f"depthwise{dilated}{strided}"
    return f"{module.kernel_size[0]} × {module.kernel_size[1]}{dilated}{strided}"


def layer_ms(bench: Bench, layer: nn.Module, shape: tuple[int, ...]) -> Row:
    """Return the time of a layer, or of normalisation, ReLU and it, forward and backward, with its floor."""
    layer = layer.to_empty(device=bench.device).to(memory_format=torch.channels_last).train()
    norms = [part for part in layer.modules() if isinstance(part, nn.BatchNorm2d)]
    layer.to(dtype=narrow(bench))
    with torch.no_grad():
        for weights in layer.parameters():
            weights.normal_(std=max(1, weights[0].numel()) ** -0.5)
    for norm in norms:
        norm.float().reset_running_stats()  # its statistics are wide, as in training
    run_layers = getattr(deepcam_model, "run_layers", lambda layers, x: layers(x))  # where the candidate is

    def forward(x: Tensor) -> Tensor:
        if isinstance(layer, nn.Sequential):
            chained: Tensor = run_layers(layer, x)
            return chained
        y: Tensor = layer(x)
        return F.relu(y) if norms else y

    def both(x: Tensor, by: Tensor) -> Any:
        return torch.autograd.grad(forward(x), [x, *layer.parameters()], by)

    x = normal(bench, *shape).requires_grad_()
    y = forward(x)
    numbers = x.numel() + y.numel()
    passes = 2 * numbers + (2 * x.numel() if isinstance(layer, nn.BatchNorm2d) else x.numel())
    given = sets_of(bench, lambda: (normal(bench, *shape).requires_grad_(), normal(bench, *y.shape)), 2 * numbers)
    found: Row = dict(bench.clock.per_call_ms([partial(both, *one) for one in given]))
    with torch.no_grad():
        found["forward_ms"] = bench.clock.per_call_ms([partial(forward, x) for x, _ in given])["ms"]
    convolution = layer[-1] if isinstance(layer, nn.Sequential) else layer
    return found | floor(bench, DEEPCAM, 3 * forward_flop(convolution, x, y), 2 * passes)


def forward_flop(layer: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the operations of a convolution's forward pass; none for normalisation."""
    if isinstance(layer, nn.BatchNorm2d):
        return 0.0
    weight: Any = layer.weight
    pixels = x if isinstance(layer, nn.ConvTranspose2d) else y
    return 2.0 * weight.numel() * pixels.numel() / pixels.shape[1]
