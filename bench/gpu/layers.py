"""Time layers by themselves, at the published sizes: which are far from their floor.

A floor is the time of a layer's operations at the rate of a large product, or of its least bytes at the rate of a
copy, whichever is longer; both rates are those that the machine reaches.
"""

from __future__ import annotations

import contextlib
import itertools
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
from gpu.cases import Bench, WrongError
from gpu.networks import ceilings_of
from gpu.references import frames
from gpu.results import Row
from oc20.graphs import Graph, build_graph
from oc20.operations import Surroundings, _silu_double_backward

CACHE_BYTES: Final = 240e6
"""Inputs of a measurement take turns until they are as large: four times an H200's cache."""
BLOCKS: Final = ((4, 32, 128), (32, 64, 64), (64, 128, 32), (128, 256, 16), (256, 512, 8))
"""CosmoFlow's convolutions: channels before and after, side."""
PASSES: Final = {"forward": None, "input gradient": (True, False, False), "weight gradient": (False, True, False)}


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


def floor(bench: Bench, flop: float, moved: float) -> dict[str, float]:
    """Return the least time of these operations and bytes."""
    reached = ceilings_of(bench.known)
    return {"floor_ms": 1e3 * max(flop / reached.flop_per_s, moved / reached.bytes_per_s), "flop": flop, "bytes": moved}


def narrow(bench: Bench) -> torch.dtype:
    """Return bf16; in a dry run fp16, as Triton's interpreter has no products in bf16."""
    return torch.float16 if bench.dry else torch.bfloat16


def normal(bench: Bench, *shape: int, channels_last: bool = True) -> Tensor:
    """Return random numbers in the narrow format."""
    values = torch.randn(shape, device=bench.device).to(narrow(bench))
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return values.to(memory_format=formats[len(shape)]) if channels_last and len(shape) in formats else values


# -- CosmoFlow -----------------------------------------------------------------------------------------------


def cosmoflow(bench: Bench) -> None:
    """Time CosmoFlow's convolutions and poolings, and other ways to compute the first block."""
    batch, first = bench.size(16, 1), blocks(bench)[0]
    torch.backends.cudnn.benchmark = True
    convolutions(bench, batch)
    for name in ("forward", "weight gradient"):
        convolution(bench, "convolution 1, 8 channels", name, (batch, 8, first[1], first[2]))
    strided(bench, batch, first)
    for number, (_, channels, side) in enumerate(blocks(bench), 1):
        pooling(bench, number, (batch, channels, side))
    for smaller in bench.size((1, 4), ()):
        convolutions(bench, smaller)
    torch.backends.cudnn.benchmark = False
    convolutions(bench, batch, tuned=False)


def convolutions(bench: Bench, batch: int, tuned: bool = True) -> None:
    """Time all passes of the convolutions; the first one makes no gradient by its input."""
    for number, (before, after, side) in enumerate(blocks(bench), 1):
        for name in PASSES if number > 1 else ("forward", "weight gradient"):
            convolution(bench, f"convolution {number}", name, (batch, before, after, side), tuned)


def blocks(bench: Bench) -> tuple[tuple[int, int, int], ...]:
    """Return the convolutions."""
    chosen: tuple[tuple[int, int, int], ...] = bench.size(BLOCKS, ((4, 32, 4), (32, 16, 2)))
    return chosen


def convolution(bench: Bench, what: str, name: str, size: tuple[int, int, int, int], tuned: bool = True) -> None:
    """Time a pass of a 3³ convolution. size: batch, channels before and after, side."""
    batch, before, after, side = size
    with bench.case("layer", network="cosmoflow", layer=what, way=name, batch=batch, tuned=tuned) as row:
        weight = normal(bench, after, before, 3, 3, 3)
        voxels = batch * side**3
        moved = 2 * voxels * (before + after)

        def make() -> tuple[Tensor, Tensor]:
            return normal(bench, batch, before, side, side, side), normal(bench, batch, after, side, side, side)

        given = sets_of(bench, make, moved)
        row.update(bench.clock.per_call_ms([partial(_convolved, name, x, y, weight) for x, y in given]))
        row.update(floor(bench, 2 * 27 * before * after * voxels, moved))


def _convolved(name: str, x: Tensor, y: Tensor, weight: Tensor) -> Any:
    """Make a pass of the convolution; y: what it returned, or a gradient by that."""
    options = ([1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1)
    if name == "forward":
        return torch.ops.aten.convolution(x, weight, None, *options)
    return torch.ops.aten.convolution_backward(y, x, weight, None, *options, list(PASSES[name] or ()))


def strided(bench: Bench, batch: int, block: tuple[int, int, int]) -> None:
    """Time block 1 as a convolution of 4³ with stride 2 and all eight voxels of a cell as channels, then a maximum."""
    before, after, side = block
    with bench.case("layer", network="cosmoflow", layer="block 1 as 4³, stride 2", way="forward", batch=batch) as row:
        narrow = normal(bench, after, before, 3, 3, 3)
        wide = torch.cat(
            [F.pad(narrow, (w, 1 - w, h, 1 - h, d, 1 - d)) for d, h, w in itertools.product((0, 1), repeat=3)]
        ).to(memory_format=torch.channels_last_3d)

        def block_1(x: Tensor) -> Tensor:
            y = F.conv3d(F.pad(x, (1, 1, 1, 1, 1, 1)), wide, stride=2)
            return y.unflatten(1, (8, after)).amax(1)

        moved = 2 * batch * side**3 * (before + after)
        given = sets_of(bench, partial(normal, bench, batch, before, side, side, side), moved)
        right = F.max_pool3d(F.conv3d(given[0].float(), narrow.float(), padding=1), 2)
        row["relative_error"] = close(block_1(given[0]), right, 2e-2)
        row.update(bench.clock.per_call_ms([partial(block_1, x) for x in given]))
        row.update(floor(bench, 2 * 64 * 8 * before * after * batch * (side // 2) ** 3, moved))


def pooling(bench: Bench, number: int, size: tuple[int, int, int]) -> None:
    """Time pooling with bias and activation, forward and backward, by torch and by the kernel."""
    batch, channels, side = size

    def of_torch(x: Tensor, bias: Tensor) -> Tensor:
        return torch_pool(x + bias.to(x.dtype)[:, None, None, None])

    def of_kernel(x: Tensor, bias: Tensor) -> Tensor:
        return cosmoflow_kernels.pool_and_activate(x, bias, SLOPE)

    moved = 2 * batch * channels * side**3 + 3 * batch * channels * (side // 2) ** 3
    for name, pool in (("torch", of_torch), ("kernel", of_kernel)):
        with bench.case("layer", network="cosmoflow", layer=f"pooling {number}", way=name, batch=batch) as row:
            bias = torch.randn(channels, device=bench.device)
            x = normal(bench, batch, channels, side, side, side)
            by = normal(bench, batch, channels, side // 2, side // 2, side // 2)
            if pool is of_kernel:  # torch rounds the sum with the bias, so that other voxels win
                right = _pooled(of_torch, x.double(), bias, by)
                row["relative_error"] = most(zip(_pooled(pool, x, bias, by), right, strict=True), 2e-2)
                del right
            for way, call in (("forward", partial(_forward, pool)), ("both", partial(_pooled, pool))):
                given = sets_of(bench, partial(normal, bench, batch, channels, side, side, side), moved)
                times = bench.clock.per_call_ms([partial(call, x, bias, by) for x in given])
                row.update({f"{way}_{key}": value for key, value in times.items()})
            row["ms"] = row["both_ms"]
            row.update(floor(bench, 0, 2 * moved))


def _forward(pool: Callable[..., Tensor], x: Tensor, bias: Tensor, by: Tensor) -> Tensor:
    with torch.no_grad():
        return pool(x, bias)


def _pooled(pool: Callable[..., Tensor], x: Tensor, bias: Tensor, by: Tensor) -> list[Tensor]:
    """Return the result and its gradients."""
    x, bias = x.detach().requires_grad_(), bias.detach().requires_grad_()
    y = pool(x, bias)
    return [y, *torch.autograd.grad(y, [x, bias], by.to(y.dtype))]


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


FIRST_BLOCKS: Final = (
    ({}, "as it is"),
    ({"ROWS": 2}, "2 rows"),
    ({"ROWS": 32}, "32 rows"),
    ({"SHARES": 44}, "44 shares"),
    ({"SHARES": 264}, "264 shares"),
)


def first_block(bench: Bench, batch: int, block: tuple[int, int, int]) -> None:
    """Time the fused first block, forward and with its gradients, for some choices of its sizes."""
    before, after, side = block
    for values, name in bench.size(FIRST_BLOCKS, FIRST_BLOCKS[1:2]):
        with (
            setting(cosmoflow_kernels, **values),
            bench.case("layer", network="cosmoflow", layer="block 1, fused", way=name, batch=batch) as row,
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
            row.update(floor(bench, 4 * 27 * before * after * batch * side**3, 2 * moved))


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
    for (kind, name), found in layers_of(config, (batch, *sides, 16)).items():
        layer, shape = found[0]
        with bench.case("layer", network="deepcam", kind=kind, layer=name, batch=batch, times=len(found)) as row:
            row.update(layer_ms(bench, layer, shape))


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
    """Return the time of a layer forward and backward, with its floor."""
    dtype = torch.float32 if isinstance(layer, nn.BatchNorm2d) else narrow(bench)  # its statistics, as in training
    layer = layer.to_empty(device=bench.device).to(dtype=dtype, memory_format=torch.channels_last).train()
    with torch.no_grad():
        for weights in layer.parameters():
            weights.normal_(std=max(1, weights[0].numel()) ** -0.5)
    if isinstance(layer, nn.BatchNorm2d):
        layer.reset_running_stats()

    def forward(x: Tensor) -> Tensor:
        y: Tensor = layer(x)
        return F.relu(y) if isinstance(layer, nn.BatchNorm2d) else y

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
    return found | floor(bench, 3 * forward_flop(layer, x, y), 2 * passes)


def forward_flop(layer: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the operations of a convolution's forward pass; none for normalisation."""
    if isinstance(layer, nn.BatchNorm2d):
        return 0.0
    weight: Any = layer.weight
    pixels = x if isinstance(layer, nn.ConvTranspose2d) else y
    return 2.0 * weight.numel() * pixels.numel() / pixels.shape[1]


# -- OC20 ----------------------------------------------------------------------------------------------------


def oc20(bench: Bench) -> None:
    """Time the sums over triplets, forward and with all that training makes of them."""
    graph = build_graph(frames(bench.size(32, 1), bench.dry)).to(bench.device)
    pointwise(bench, len(graph.sources))
    for kernels in ("torch", "triton"):
        triplets(bench, graph, kernels)


def triplets(bench: Bench, graph: Graph, kernels: str) -> None:
    """Time the sums over triplets of one interaction block."""
    with bench.case("layer", network="oc20", layer="triplets", way=kernels) as row:
        orders, roots, channels = bench.size((7, 6, 64), (2, 2, 8))
        edges = len(graph.sources)
        made = [normal(bench, edges, channels).float(), *normal(bench, 2, edges, orders * roots).float()]
        made += [normal(bench, orders * roots, channels).float(), normal(bench, edges, channels).float()]
        unit = F.normalize(graph.vectors, dim=1)
        sizes = (orders, roots)
        found = _sums(graph, unit, sizes, made, kernels)
        exact = [one.double() for one in made]
        right = _sums(graph, unit.double(), sizes, exact, "torch")
        row["relative_error"] = most(zip(found, right, strict=True), 1e-4)
        del found, right, exact
        row.update(bench.clock.per_call_ms([partial(_sums, graph, unit, sizes, made, kernels)]))
        with torch.no_grad():
            forward = partial(_summed, graph, unit, sizes, made, kernels)
            row["forward_ms"] = bench.clock.per_call_ms([forward])["ms"]
        row["edges"] = edges


def _summed(graph: Graph, unit: Tensor, sizes: tuple[int, int], given: list[Tensor], kernels: Any) -> Tensor:
    b, radial, _, weight, _ = given
    surroundings = Surroundings.from_graph(graph, radial.unflatten(1, sizes), unit, kernels)
    return surroundings.sum_triplets(b, weight.unflatten(0, sizes))


def _sums(graph: Graph, unit: Tensor, sizes: tuple[int, int], given: list[Tensor], kernels: str) -> list[Tensor]:
    """Return the sums, their gradients as for the forces, and the gradients of both."""
    b, radial, second, weight, cotangent = (one.detach().requires_grad_() for one in given)
    y = _summed(graph, unit, sizes, [b, radial, second, weight, cotangent], kernels)
    slopes = torch.autograd.grad(y, [b, radial], cotangent, create_graph=True)
    loss = (slopes[0] * cotangent.detach()).sum() + (slopes[1] * second.detach()).sum() + (y * b.detach()).sum()
    return [y, *slopes, *torch.autograd.grad(loss, [b, radial, weight, cotangent])]


def pointwise(bench: Bench, edges: int) -> None:
    """Time the pointwise part of a dense layer's second derivative, with a copy of what it overwrites."""
    channels = bench.size(192, 16)
    given = sets_of(bench, lambda: normal(bench, 3, edges, channels).unbind(), 2 * 8 * edges * channels)

    def copied(kernels: Any, by_product: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        return _silu_double_backward(by_product.clone(), *others, kernels)

    for kernels in ("torch", "triton"):
        with bench.case("layer", network="oc20", layer="second derivative of SiLU", way=kernels) as row:
            right = copied("torch", *(one.double() for one in given[0]))
            row["relative_error"] = most(zip(copied(kernels, *given[0]), right, strict=True), 2e-2)
            row.update(bench.clock.per_call_ms([partial(copied, kernels, *one) for one in given]))
            row.update(floor(bench, 0, 2 * 8 * edges * channels))
