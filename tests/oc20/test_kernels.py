"""The Triton kernels against torch's own operations: on a GPU, or where there is none through Triton's interpreter.

The interpreter has to be chosen before Triton is imported, so that one test runs the others in a process of their own.
"""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from oc20 import triplets
from oc20.graphs import collate
from oc20.model import ModelConfig, build
from oc20.triplets import Surroundings, fused

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
ORDERS, ROOTS, CHANNELS = 3, 3, 5
WITHIN = {torch.float64: 1e-12, torch.float32: 1e-5}

needs_triton = pytest.mark.skipif(not find_spec("triton"), reason="needs Triton")
needs_gpu = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a GPU, or Triton's interpreter")


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter")
def test_all_others_pass_in_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", __file__]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "GPU" not in done.stdout, "a test was left out"


def normal(*shape, seed=1, dtype=torch.float64):
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(DEVICE, dtype)


@pytest.fixture(scope="module")
def graph(slabs):
    """Eight atoms with no, one, three or four neighbours."""
    graph = collate([slabs[4]]).to(DEVICE)
    assert set(torch.bincount(graph.targets, minlength=8).tolist()) == {0, 1, 3, 4}
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
    sums = Surroundings.of(graph, radial, unit, kernels).sums(b, weight)
    plain = torch.autograd.grad(sums, [*moving, weight], cotangent.detach(), retain_graph=True)
    slopes = torch.autograd.grad(sums, moving, cotangent, create_graph=True)
    loss = sums.square().sum() + sum(slope.square().sum() for slope in slopes)
    return [sums, *plain, *slopes, *torch.autograd.grad(loss, [*moving, weight, cotangent])]


@needs_triton
@needs_gpu
@pytest.mark.parametrize(
    ("dtype", "detached", "tile"),
    [(torch.float64, False, 64), (torch.float32, True, 64), (torch.float32, False, 2)],
    ids=["float64", "detached", "several tiles"],
)
def test_sums_and_both_gradients_equal_those_of_torch(monkeypatch, graph, dtype, detached, tile):
    monkeypatch.setattr("oc20.kernels.LARGEST_TILE", tile)
    expected = sums_and_gradients(graph, "torch", detached, torch.float64)
    found = sums_and_gradients(graph, "triton", detached, dtype)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype and theirs.abs().max() > 0.1
        assert (ours - theirs).abs().max() <= WITHIN[dtype] * theirs.abs().max()


@needs_triton
@needs_gpu
def test_sums_of_bfloat16_are_rounded_once(graph):
    from oc20.kernels import Fused

    edges = len(graph.sources)
    values = [normal(edges, ORDERS, ROOTS), normal(edges, ORDERS**2), normal(edges, CHANNELS)]
    short = [value.bfloat16() for value in (*values, normal(ORDERS, ROOTS, CHANNELS))]
    found, expected = (
        Fused.of(graph, radial, harmonics).moments(b, weight)
        for radial, harmonics, b, weight in (short, [value.double() for value in short])
    )
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=1e-5)  # the interpreter cuts off


@needs_triton
@needs_gpu
def test_energies_forces_and_gradients_of_the_network_equal_those_with_torch(graph):
    small = ModelConfig(hidden=8, blocks=2, radial=3, spherical=4, cutoff=4.0, interaction=6, basis=4, out=8)
    results = []
    for kernels in ("torch", "triton"):
        model = build(replace(small, kernels=kernels), seed=1)
        for output in model.outputs:
            torch.nn.init.normal_(output.energy.weight, generator=torch.Generator().manual_seed(1))
        model.to(DEVICE).double()
        energy, forces = model(replace(graph, vectors=graph.vectors.double()))
        (energy.square().sum() + forces.square().sum()).backward()
        results.append([energy, forces, *(parameter.grad for parameter in model.parameters())])
    for theirs, ours in zip(*results, strict=True):
        assert theirs.any() and (ours - theirs).abs().max() <= 1e-10 * theirs.abs().max()


@needs_triton
@needs_gpu
@pytest.mark.parametrize("atoms", [0, 2])
def test_without_edges_all_is_zero(slabs, atoms):
    model = build(ModelConfig(hidden=8, blocks=1, interaction=4, out=8, kernels="triton"), seed=1).to(DEVICE)
    _, forces = model(collate([slabs[3]] * atoms).to(DEVICE))
    forces.sum().backward()
    assert forces.shape == (atoms, 3) and not any(parameter.grad.any() for parameter in model.parameters())


def test_kernels_are_chosen_by_device_and_refused_where_they_cannot_run(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(triplets, "find_spec", lambda name: name)
    assert fused("triton", gpu) and not fused("torch", gpu) and not fused("torch", cpu)
    with pytest.raises(
        ValueError, match=r"model\.kernels is triton, which needs a GPU, but the device is cpu: set it to"
    ):
        fused("triton", cpu)
    monkeypatch.setattr(triplets, "find_spec", lambda name: None)
    assert not fused("torch", gpu)
    with pytest.raises(ValueError, match=r"model\.kernels is triton, which is not installed: `pip install triton`"):
        fused("triton", gpu)


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("optional", [True, False], ids=["all", "least"])
@pytest.mark.parametrize("name", ["_moments_kernel", "_slopes_kernel"])
def test_kernels_compile_for_a_gpu_that_is_not_here(name, optional):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from oc20 import kernels

    members, b, weight = torch.zeros(1, 50, dtype=torch.int64), torch.zeros(1, 64), torch.zeros(7, 6, 64)
    known = kernels._sizes(members, b, weight)
    if not optional:
        left_out = ("b_tangent", "harmonics_tangent", "radial_tangent", "by_harmonics", "by_weight")
        known |= dict.fromkeys(left_out)
    kernel = getattr(kernels, name)
    types = {"members": "*i64", "count": "*i32", "width": "i32"}
    signature = {key: "constexpr" if key in known else types.get(key, "*fp32") for key in kernel.arg_names}
    source = ASTSource(kernel, signature, {key: value for key, value in known.items() if key in signature})
    assert triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["cubin"]
