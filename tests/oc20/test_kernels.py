"""The Triton kernels against torch's own operations: on a GPU, or where there is none through Triton's interpreter."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from common.candidate import try_candidates
from oc20.basis import spherical_harmonics
from oc20.graphs import _build_table, build_graph, find_neighbours
from oc20.model import ModelConfig, build_model
from oc20.operations import (
    Surroundings,
    _add_silu_backward,
    _silu_double_backward,
    hand_out_rows,
    sum_edges,
)
from tests.hopper import compile_for_amd, resources
from tests.interpreter import DEVICE, needs_gpu, needs_triton, not_interpreted, run_in_the_interpreter
from tests.tape import NeverWaits, leave_out_autocast

ORDERS, ROOTS, CHANNELS = 3, 3, 5
WITHIN = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2**-7}
CANDIDATES = ("oc20-tf32", "oc20-bases-64", "oc20-rows", "oc20-basis", "oc20-sums")


@needs_triton
@not_interpreted
@pytest.mark.exhaustive
def test_all_others_pass_in_the_interpreter():
    run_in_the_interpreter(__file__)


def normal(*shape, seed=1, dtype=torch.float64):
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(DEVICE, dtype)


@pytest.fixture(params=[(), CANDIDATES], ids=["as it is", "candidates"])
def candidates(request):
    """Run the test without candidates, and with all of them."""
    pytest.importorskip("oc20.kernels")  # some are defined there
    with try_candidates(*request.param):
        yield request.param


@pytest.fixture(scope="module")
def graph(slabs):
    """Return four atoms: one with neighbours for two tiles of float64, one without any."""
    cell, one = 2.0 * np.eye(3), slabs[7]
    edges, offsets = find_neighbours(one.pos[:1], cell, cutoff=5.0, most=20)
    crowded = replace(one, numbers=one.numbers[:1], pos=one.pos[:1], cell=cell, edges=edges, offsets=offsets)
    graph = build_graph([crowded, one]).to(DEVICE)
    assert torch.bincount(graph.targets, minlength=4).tolist() == [20, 2, 0, 2]
    return graph


def sums_and_gradients(graph, kernels, detached, dtype):
    """Return the sums, their gradients, and the gradients of a loss of both the sums and the first gradients."""
    edges = len(graph.sources)
    b, radial = normal(edges, CHANNELS, dtype=dtype), normal(edges, ORDERS, ROOTS, seed=2, dtype=dtype)
    weight, cotangent = (
        normal(ORDERS, ROOTS, CHANNELS, seed=3, dtype=dtype),
        normal(edges, CHANNELS, seed=4, dtype=dtype),
    )
    unit = torch.nn.functional.normalize(graph.vectors.double(), dim=1).to(dtype)
    moving = [b, radial] if detached else [b, radial, unit]
    for tensor in (*moving, weight, cotangent):
        tensor.requires_grad_()
    sums = Surroundings.from_graph(graph, radial, unit, kernels).sum_triplets(b, weight)
    plain = torch.autograd.grad(sums, [*moving, weight], cotangent.detach(), retain_graph=True)
    slopes = torch.autograd.grad(sums, moving, cotangent, create_graph=True)
    loss = sums.square().sum() + sum(slope.square().sum() for slope in slopes)
    return [sums, *plain, *slopes, *torch.autograd.grad(loss, [*moving, weight, cotangent])]


@needs_triton
@needs_gpu
@pytest.mark.parametrize(
    ("dtype", "detached"), [(torch.float64, False), (torch.float32, True)], ids=["float64", "detached float32"]
)
def test_sums_and_both_gradients_equal_those_of_torch(graph, candidates, dtype, detached):
    expected = sums_and_gradients(graph, "torch", detached, torch.float64)
    found = sums_and_gradients(graph, "triton", detached, dtype)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype and theirs.abs().max() > 0.1
        assert (ours - theirs).abs().max() <= WITHIN[dtype] * theirs.abs().max()


@needs_triton
@needs_gpu
def test_loops_that_end_with_the_edges_change_no_bit(graph):
    import oc20.kernels  # noqa: F401  # its candidates

    expected = sums_and_gradients(graph, "triton", True, torch.float32)
    with try_candidates("oc20-rows"):
        found = sums_and_gradients(graph, "triton", True, torch.float32)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@needs_triton
@needs_gpu
def test_sums_of_bfloat16_are_rounded_once(graph):
    from oc20.kernels import Fused

    edges = len(graph.sources)
    values = [normal(edges, ORDERS, ROOTS), normal(edges, ORDERS**2), normal(edges, CHANNELS)]
    short = [value.bfloat16() for value in (*values, normal(ORDERS, ROOTS, CHANNELS))]
    found, expected = (
        Fused.from_graph(graph, radial, harmonics, radial.dtype).sum_moments(b, weight)
        for radial, harmonics, b, weight in (short, [value.double() for value in short])
    )
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=1e-5)  # the interpreter cuts off


@needs_triton
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_second_derivatives_of_activations_equal_those_of_torch(dtype):
    values = [normal(37, 60, seed=seed, dtype=dtype) * 3 for seed in (1, 2, 3)]
    expected = _silu_double_backward(*(value.to(torch.float64, copy=True) for value in values), "torch")
    found = _silu_double_backward(*values, "triton")
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        assert (ours - theirs).abs().max() <= WITHIN[dtype] * theirs.abs().max()


@needs_triton
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [37, 0])
def test_gradients_of_activations_are_added_as_by_torch(rows, dtype):
    from oc20.kernels import add_silu_backward

    values = [normal(rows, 60, seed=seed, dtype=dtype) * 3 for seed in (1, 2, 3)]
    expected = _add_silu_backward(*(value.double() for value in values), "torch")
    found = add_silu_backward(*values)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=WITHIN[dtype], atol=30 * WITHIN[dtype])


@needs_triton
@needs_gpu
@pytest.mark.parametrize(("edges", "orders"), [(300, 7), (1, 12), (5, 1), (0, 3)])
def test_harmonics_equal_those_of_torch(edges, orders):
    from oc20.kernels import compute_harmonics

    unit = torch.nn.functional.normalize(normal(edges, 3), dim=1)
    unit[:6] = torch.cat([torch.eye(3), -torch.eye(3)]).to(unit)[:edges]  # poles too
    expected = torch.cat(spherical_harmonics(unit, orders), 1)
    torch.testing.assert_close(compute_harmonics(unit, orders), expected, rtol=0, atol=1e-13)
    single = compute_harmonics(unit.float(), orders)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=0, atol=1e-5)


@needs_triton
@needs_gpu
@pytest.mark.parametrize("shape", [(), (3,), (2, 35)], ids=["numbers", "vectors", "two tiles"])
@pytest.mark.parametrize(
    ("atoms", "degrees"), [(5, [0, 70, 3, 0, 32]), (2, [0, 0]), (0, [])], ids=["usual", "no edges", "no atoms"]
)
def test_sums_by_rows_and_both_their_gradients_equal_those_of_torch(shape, atoms, degrees):
    import oc20.kernels  # noqa: F401  # its candidates

    owners_E = torch.repeat_interleave(torch.arange(atoms), torch.tensor(degrees, dtype=torch.int64))
    order_E = torch.randperm(len(owners_E), generator=torch.Generator().manual_seed(1))
    edges = _build_table(owners_E, order_E, atoms, max(degrees, default=0) + 3).to(DEVICE)
    atoms_E = torch.empty_like(owners_E).index_copy(0, order_E, owners_E).to(DEVICE)
    x_E, x_A = normal(len(owners_E), *shape).requires_grad_(), normal(atoms, *shape, seed=2).requires_grad_()
    for function, x, length in ((sum_edges, x_E, atoms), (hand_out_rows, x_A, len(owners_E))):
        cotangent = normal(length, *shape, seed=3).requires_grad_()
        results = []
        for kernels in ("torch", "triton"):
            with try_candidates("oc20-rows"):
                y = function(x, edges, atoms_E, kernels)
                (slope,) = torch.autograd.grad(y, x, cotangent, create_graph=True)
                results.append((y, slope, *torch.autograd.grad(slope.square().sum(), cotangent)))
        torch.testing.assert_close(*results)


@needs_triton
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_by_rows_are_rounded_once(dtype):
    from oc20.kernels import sum_rows

    edges = _build_table(torch.zeros(70, dtype=torch.int64), torch.arange(70), 2, 70).to(DEVICE)
    x_E = normal(70, 5, dtype=dtype)
    found = sum_rows(x_E, edges)
    assert found.dtype == dtype and not found[1].any()
    torch.testing.assert_close(found[0].double(), x_E.double().sum(0), rtol=WITHIN[dtype], atol=1e-5)


def network(config, kernels):
    """Return a network whose energies are not 0, as they are at first."""
    model = build_model(replace(config, kernels=kernels), seed=1)
    for output in model.outputs:
        torch.nn.init.normal_(output.energy.weight, generator=torch.Generator().manual_seed(1))
    return model.to(DEVICE)


@needs_triton
@needs_gpu
def test_energies_forces_and_gradients_of_the_network_equal_those_with_torch(graph, candidates):
    small = ModelConfig(hidden=8, blocks=1, radial=3, spherical=2, interaction=6, basis=4, out=8)
    results = []
    for kernels in ("torch", "triton"):
        model = network(small, kernels).double()
        energy, forces = model(replace(graph, vectors=graph.vectors.double()))
        (energy.square().sum() + forces.square().sum()).backward()
        results.append([energy, forces, *(parameter.grad for parameter in model.parameters())])
    for theirs, ours in zip(*results, strict=True):
        assert theirs.any() and (ours - theirs).abs().max() <= 1e-10 * theirs.abs().max()


@needs_triton
@needs_gpu
@pytest.mark.parametrize("frames", [1, 8])
def test_losses_of_training_are_those_with_torch(slabs, frames):
    """The forces train, as in the benchmark; some atoms have no edge. The interpreter may take over 20 s."""
    import oc20.kernels  # noqa: F401  # its candidates

    chosen = slabs[7:] if frames == 1 else [slabs[7], slabs[3]] * 4
    graph = build_graph(chosen).to(DEVICE)
    small = ModelConfig(hidden=8, blocks=1, radial=3, spherical=2, interaction=6, basis=4, out=8)
    losses = []
    for kernels, names in (("torch", ()), ("triton", CANDIDATES)):
        model = network(small, kernels)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        with try_candidates(*names):
            for _ in range(3):
                loss = ((model(graph)[1] - graph.forces) * graph.free[:, None]).abs().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-4) and losses[2] != losses[0]


@needs_triton
@needs_gpu
@pytest.mark.parametrize("atoms", [0, 2])
def test_without_edges_all_is_zero(slabs, candidates, atoms):
    model = build_model(ModelConfig(hidden=8, blocks=1, interaction=4, out=8, kernels="triton"), seed=1).to(DEVICE)
    _, forces = model(build_graph([slabs[3]] * atoms).to(DEVICE))
    forces.sum().backward()
    assert forces.shape == (atoms, 3) and not any(parameter.grad.any() for parameter in model.parameters())


@pytest.fixture
def launches(monkeypatch):
    """Return a list of the launches of the test: each kernel with its arguments by name. None is made."""
    from triton.runtime.jit import JITFunction

    made = []
    monkeypatch.setattr(
        JITFunction,
        "run",
        lambda kernel, *values, grid, warmup, **named: made.append(
            (kernel, dict(zip(kernel.arg_names, values, strict=False)) | named)
        ),
    )
    return made


def variant(kernel, arguments):
    """Return what a kernel is compiled for."""
    kinds = {name: value.dtype if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
    kinds |= {name: value % 16 == 0 for name, value in kinds.items() if name in ("size", "atoms")}
    return kernel.__name__, *kinds.items()


def compile_launches(launches, target):
    """Compile each variant that was launched; raise AssertionError if one spills. Return machine code by kernel."""
    codes = {}
    for kernel, arguments in {variant(*launch): launch for launch in launches}.values():
        arguments = dict(arguments)
        options = {"warps": arguments.pop("num_warps"), "stages": arguments.pop("num_stages", 2)}
        if target == "gfx942":
            code = compile_for_amd(kernel, arguments, **options)
        else:
            code = resources(kernel, arguments, **options, target=target).sass
        codes.setdefault(kernel.__name__, []).append(code)
    return codes


def launch_step(model, graph, dtype):
    """Launch what a step launches in a run that computes products in this type; only forward passes have autocast."""
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        _, forces = model(graph)
    forces.sum().backward()


def launch_published(slab, dtype, detached=True):
    """Launch what a step of the published network launches for a frame of this slab."""
    edges, offsets = find_neighbours(slab.pos, slab.cell, cutoff=8.0)
    graph = build_graph([replace(slab, edges=edges, offsets=offsets)])
    assert graph.incoming.members.shape[1] == 50
    model = build_model(ModelConfig(kernels="triton", detach_angles=detached), seed=1)
    if dtype == torch.float64:
        model, graph = model.double(), replace(graph, vectors=graph.vectors.double())
    launch_step(model, graph, dtype)


@needs_triton
@not_interpreted
@pytest.mark.parametrize(
    ("target", "detached", "dtype", "names"),
    [
        ("sm_90a", True, torch.bfloat16, ()),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                ("sm_90a", True, torch.float32, ()),
                ("sm_90a", False, torch.float32, ()),
                ("sm_90a", False, torch.float64, ()),
                ("sm_80", True, torch.bfloat16, ()),
                ("gfx942", True, torch.bfloat16, ()),
                ("sm_90a", True, torch.bfloat16, CANDIDATES),
                ("sm_90a", True, torch.bfloat16, ("oc20-rows",)),
                ("sm_80", True, torch.bfloat16, CANDIDATES),
                ("gfx942", True, torch.bfloat16, CANDIDATES),
            )
        ),
    ],
)
def test_what_the_published_network_launches_compiles_and_spills_nothing(
    slabs, launches, monkeypatch, target, detached, dtype, names
):
    """The compilation of some ten variants takes 20 s."""
    from oc20.kernels import TILES

    if target == "gfx942":
        monkeypatch.setattr(torch.version, "hip", "7.0")
    with try_candidates(*names):
        launch_published(slabs[2], dtype, detached)
    codes = compile_launches(launches, target)
    by_names = {"oc20-rows": "sum_kernel", "oc20-basis": "harmonics_kernel", "oc20-sums": "silu_backward_kernel"}
    added = {kernel for name, kernel in by_names.items() if name in names}
    assert set(codes) == {"silu_double_backward_kernel", *TILES, *added}
    if target != "gfx942":
        for sass in (*codes["silu_double_backward_kernel"], *codes.get("silu_backward_kernel", ())):
            assert set(re.findall(r"(?:LDG|STG)\.E[.A-Z]*\.?(\d*)", sass)) == {"128"}, "not 16 bytes at a time"


SMALL = ModelConfig(hidden=8, blocks=1, radial=3, spherical=2, interaction=6, basis=4, out=8, kernels="triton")


@needs_triton
@not_interpreted
@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_what_a_small_network_launches_compiles_for_other_gpus(graph, launches, monkeypatch, target):
    from oc20.kernels import TILES

    monkeypatch.setattr(torch.version, "hip", "7.0" if target == "gfx942" else None)
    build_model(SMALL, seed=1).to(graph.numbers.device)(graph)
    assert set(compile_launches(launches, target)) >= set(TILES) - {"weights_kernel"}


@needs_triton
@not_interpreted
def test_what_candidates_launch_in_a_small_network_compiles(graph, launches):
    pytest.importorskip("oc20.kernels")
    with try_candidates(*CANDIDATES):
        launch_step(build_model(SMALL, seed=1).to(graph.numbers.device), graph, torch.float32)
    added = ("sum_kernel", "harmonics_kernel", "silu_backward_kernel")
    assert set(compile_launches([launch for launch in launches if launch[0].__name__ in added], "sm_90a")) == set(added)


@needs_triton
@not_interpreted
@pytest.mark.parametrize(
    ("dtype", "hip", "names", "precision"),
    [
        (torch.bfloat16, None, ("oc20-tf32",), "tf32"),
        (torch.float32, None, ("oc20-tf32",), "tf32x3"),
        (torch.bfloat16, None, (), "tf32x3"),
        (torch.bfloat16, "7.0", ("oc20-tf32",), "ieee"),
    ],
)
def test_the_forward_pass_chooses_the_precision_of_all_products(
    graph, launches, monkeypatch, dtype, hip, names, precision
):
    from oc20.kernels import TILES

    monkeypatch.setattr(torch.version, "hip", hip)
    with try_candidates(*names):
        launch_step(build_model(SMALL, seed=1).to(graph.numbers.device), graph, dtype)
    chosen = {(kernel.__name__, arguments.get("PRECISION")) for kernel, arguments in launches}
    assert {pair for pair in chosen if pair[0] in TILES} == {(name, precision) for name in TILES}


@needs_triton
@not_interpreted
def test_a_step_with_kernels_does_not_wait_for_the_device(graph, candidates, launches, monkeypatch):
    leave_out_autocast(monkeypatch)
    model = build_model(ModelConfig(kernels="triton", detach_angles=False), seed=1).to("meta")
    there = graph.to("meta")
    with NeverWaits():
        _, forces = model(there)
        forces.sum().backward()
    assert launches
