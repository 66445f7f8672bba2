"""The network against published numbers, and against a plain one with the same weights that lists all triplets."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oc20.basis import bessel_roots
from oc20.graphs import Frame, build_graph, count_triplets, find_neighbours
from oc20.model import ModelConfig, build_model

SMALL = ModelConfig(hidden=24, blocks=2, radial=4, spherical=5, cutoff=4.0, interaction=8, basis=5, out=16)


def crystal(seed, atoms=7, width=4.2, cutoff=4.0, most=50):
    """Return a frame of random atoms, no two close, in a skewed cell that is thinner than the cutoff's sphere."""
    generator = np.random.default_rng(seed)
    cell = np.array([[width, 0, 0], [0.3 * width, width, 0], [-0.2 * width, 0.1 * width, 1.1 * width]])
    places = np.stack(np.meshgrid(*[[0.1, 0.6]] * 3), -1).reshape(-1, 3)[:atoms]
    pos = (places + generator.uniform(-0.1, 0.1, places.shape)) @ cell
    return framed(pos, cell, generator.choice([1, 6, 8, 29, 78], atoms), cutoff, most)


def framed(pos, cell, numbers, cutoff=4.0, most=50):
    edges, offsets = find_neighbours(pos, cell, cutoff, most)
    n = len(numbers)
    return Frame(
        numbers=np.asarray(numbers, np.uint8),
        pos=np.asarray(pos, np.float64),  # so that tests can be exact
        cell=np.asarray(cell, np.float64),
        tags=np.zeros(n, np.int8),
        fixed=np.arange(n) % 3 == 0,
        force=np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32),
        energy=0.5 * n,
        edges=edges,
        offsets=offsets,
        sid=0,
        fid=0,
    )


def exact(frames):
    """Return the graph in float64, also its vectors."""
    vectors = [f.pos[f.edges[:, 0]] - f.pos[f.edges[:, 1]] + f.offsets.astype(np.float64) @ f.cell for f in frames]
    return replace(build_graph(frames), vectors=torch.from_numpy(np.concatenate(vectors)))


def network(config=SMALL, seed=1):
    """Return a network with energies: none of its weights is 0."""
    model = build_model(config, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.double()


class Plain:
    """DimeNet++ as its layer table has it, with a list of all triplets, which takes weights by their names."""

    def __init__(self, config, weights):
        self.config, self.w = config, weights

    def lin(self, name, x):
        return F.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def act(self, name, x):
        return F.silu(self.lin(name, x))

    def residual(self, name, x):
        return x + self.act(f"{name}.second", self.act(f"{name}.first", x))

    def envelope(self, x):
        p = self.config.envelope_exponent + 1
        u = 1 / x - (p + 1) * (p + 2) / 2 * x ** (p - 1) + p * (p + 2) * x**p - p * (p + 1) / 2 * x ** (p + 1)
        return u * (x < 1)

    def spherical(self, x, kj, theta):
        """u(x) N j_l(z x) Y_l0(theta), l slow and n fast."""
        columns, legendre = [], [torch.ones_like(theta), theta.cos()]
        for order, roots in enumerate(bessel_roots(self.config.spherical, self.config.radial).tolist()):
            legendre.append(((2 * order + 3) * theta.cos() * legendre[-1] - (order + 1) * legendre[-2]) / (order + 2))
            radial = []
            for root in roots:
                scale = math.sqrt(2) / abs(self.bessel(order + 1, torch.tensor(root, dtype=x.dtype)))
                radial.append(self.envelope(x) * scale * self.bessel(order, root * x))
            y = math.sqrt((2 * order + 1) / (4 * math.pi)) * legendre[order]
            columns.append(torch.stack(radial, 1)[kj] * y[:, None])
        return torch.cat(columns, 1)

    @staticmethod
    def bessel(order, t):
        values = [t.sin() / t, t.sin() / t**2 - t.cos() / t]
        for k in range(1, order):
            values.append((2 * k + 1) / t * values[-1] - values[-2])
        return values[order]

    def triplets(self, frames):
        """Edges kj and ji of each triplet, found pair by pair."""
        kj, ji, start = [], [], 0
        for frame in frames:
            for second, (j, i) in enumerate(frame.edges):
                for first in np.flatnonzero(frame.edges[:, 1] == j):
                    k = frame.edges[first, 0]
                    if k != i or (frame.offsets[first] + frame.offsets[second]).any():
                        kj.append(start + first)
                        ji.append(start + second)
            start += len(frame.edges)
        return torch.tensor(kj, dtype=torch.int64), torch.tensor(ji, dtype=torch.int64)

    def forward(self, frames):
        """Energies of the frames, forces on the atoms."""
        numbers, pos, j, i, shift, image = [], [], [], [], [], []
        for index, frame in enumerate(frames):
            j += (frame.edges[:, 0] + len(numbers)).tolist()
            i += (frame.edges[:, 1] + len(numbers)).tolist()
            shift += (frame.offsets.astype(np.float64) @ frame.cell).tolist()
            numbers += frame.numbers.tolist()
            pos += frame.pos.tolist()
            image += [index] * len(frame.numbers)
        pos = torch.tensor(pos, dtype=torch.float64).requires_grad_()
        vector = pos[j] - pos[i] + torch.tensor(shift, dtype=torch.float64)
        x = vector.norm(dim=1) / self.config.cutoff
        kj, ji = self.triplets(frames)
        directions = vector.detach() if self.config.detach_angles else vector
        a, b = directions[ji], directions[kj]
        theta = torch.atan2(torch.linalg.cross(a, b).norm(dim=1), (a * b).sum(1))
        rbf = self.envelope(x)[:, None] * torch.sin(self.w["radial.frequencies"] * x[:, None])
        sbf = self.spherical(x, kj, theta)
        h = self.w["embedding.elements.weight"][torch.tensor(numbers)]
        m = self.act("embedding.join", torch.cat([h[i], h[j], self.act("embedding.radial", rbf)], 1))
        atoms = self.output("outputs.0", m, rbf, i, len(numbers))
        for block in range(self.config.blocks):
            m = self.interaction(f"interactions.{block}", m, rbf, sbf, (kj, ji))
            atoms = atoms + self.output(f"outputs.{block + 1}", m, rbf, i, len(numbers))
        energy = torch.zeros(len(frames), dtype=torch.float64).index_add(0, torch.tensor(image), atoms[:, 0])
        (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        return energy, -slope

    def interaction(self, name, m, rbf, sbf, triplets):
        kj, ji = triplets
        b = self.act(f"{name}.arriving", m) * self.lin(f"{name}.radial.1", self.lin(f"{name}.radial.0", rbf))
        b = self.act(f"{name}.down", b)
        t = b[kj] * self.lin(f"{name}.spherical.1", self.lin(f"{name}.spherical.0", sbf))
        b = torch.zeros_like(b).index_add(0, ji, t)
        h = self.act(f"{name}.own", m) + self.act(f"{name}.up", b)
        for layer in range(self.config.before_skip):
            h = self.residual(f"{name}.before_skip.{layer}", h)
        h = self.act(f"{name}.skip", h) + m
        for layer in range(self.config.after_skip):
            h = self.residual(f"{name}.after_skip.{layer}", h)
        return h

    def output(self, name, m, rbf, i, atoms):
        x = m.new_zeros(atoms, m.shape[1]).index_add(0, torch.tensor(i), self.lin(f"{name}.radial", rbf) * m)
        x = self.lin(f"{name}.up", x)
        for layer in range(self.config.output_layers):
            x = self.act(f"{name}.layers.{layer}", x)
        return self.lin(f"{name}.energy", x)


FRAMES = {
    "two frames": [crystal(1), crystal(2, atoms=5, width=3.6)],
    "one way only": [crystal(3, most=9)],
    "many images": [framed([[0.3, 5.0, -7.0], [1.4, 3.6, 2.0]], 2.9 * np.eye(3) + 0.4, [29, 1])],
}


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("detach_angles", [True, False], ids=["detached", "attached"])
def test_energies_forces_and_gradients_equal_those_by_a_list_of_triplets(frames, detach_angles):
    config = replace(SMALL, detach_angles=detach_angles)
    model = network(config)
    weights = {name: tensor.detach().clone().requires_grad_() for name, tensor in model.named_parameters()}
    plain = Plain(config, weights)
    listed = sum(count_triplets(frame.edges, frame.offsets, len(frame.numbers)) for frame in frames)
    assert len(plain.triplets(frames)[0]) == listed > 0
    results = {}
    for name, (energy, forces) in {"ours": model(exact(frames)), "plain": plain.forward(frames)}.items():
        results[name] = (energy, forces)
        (energy.square().sum() + (forces - 0.1).abs().sum()).backward()
    torch.testing.assert_close(*results.values(), rtol=1e-10, atol=1e-10)
    assert results["ours"][1].abs().max() > 1e-2
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name
        scale = weights[name].grad.abs().max().item()
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=0, atol=1e-10 * scale, msg=name)


def moved(frame, pos=None, cell=None, numbers=None):
    """Return the frame with other positions, its edges found again."""
    pos, cell = (frame.pos if pos is None else pos), (frame.cell if cell is None else cell)
    return framed(pos, cell, frame.numbers if numbers is None else numbers)


def turned(frame, generator):
    rotation, _ = np.linalg.qr(generator.normal(size=(3, 3)))  # or a reflection
    turn = lambda vectors: vectors @ rotation.T  # noqa: E731  # a name for what is returned
    return moved(frame, turn(frame.pos), turn(frame.cell)), turn


def shifted(frame, generator):
    return moved(frame, frame.pos + generator.normal(size=3)), lambda forces: forces


def in_other_images(frame, generator):
    return moved(frame, frame.pos + generator.integers(-3, 4, frame.pos.shape) @ frame.cell), lambda forces: forces


def in_another_cell(frame, generator):
    """Return the same crystal with other lattice vectors."""
    return moved(frame, cell=np.array([[1, 0, 0], [1, 1, 0], [0, -1, 1]]) @ frame.cell), lambda forces: forces


def in_another_order(frame, generator):
    order = generator.permutation(len(frame.pos))
    return moved(frame, frame.pos[order], numbers=frame.numbers[order]), lambda forces: forces[order]


def with_edges_in_another_order(frame, generator):
    order = np.lexsort((generator.permutation(len(frame.edges)), frame.edges[:, 1]))
    return replace(frame, edges=frame.edges[order], offsets=frame.offsets[order]), lambda forces: forces


@pytest.mark.parametrize("detach_angles", [True, False], ids=["detached", "attached"])
@pytest.mark.parametrize(
    "change", [turned, shifted, in_other_images, in_another_cell, in_another_order, with_edges_in_another_order]
)
def test_energies_stay_and_forces_follow(change, detach_angles):
    model = network(replace(SMALL, detach_angles=detach_angles))
    frame = crystal(5)
    other, follow = change(frame, np.random.default_rng(8))
    with torch.no_grad():
        energy, forces = model(exact([frame]))
        other_energy, other_forces = model(exact([other]))
    torch.testing.assert_close(other_energy, energy, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(other_forces, follow(forces.numpy()), rtol=0, atol=1e-9)
    assert forces.abs().mean() > 0.1
    torch.testing.assert_close(forces.sum(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-10)


def test_forces_are_slopes_of_the_energy_with_attached_angles_only():
    frame, step = crystal(6), 1e-4
    slopes = np.empty((3, 3))
    models = [network(replace(SMALL, detach_angles=detached)) for detached in (False, True)]
    with torch.no_grad():
        for atom, axis in np.ndindex(3, 3):
            move = np.zeros_like(frame.pos)
            move[atom, axis] = step
            there, back = (models[0](exact([moved(frame, frame.pos + sign * move)]))[0] for sign in (1, -1))
            slopes[atom, axis] = (there - back).item() / (2 * step)
        attached, detached = (model(exact([frame])) for model in models)
    np.testing.assert_allclose(-slopes, attached[1][:3], rtol=0, atol=1e-6)
    torch.testing.assert_close(detached[0], attached[0])
    assert (detached[1] - attached[1]).abs().max() > 0.01


def test_frames_of_a_batch_do_not_see_each_other():
    model = network()
    frames = [crystal(1), framed([[1.0, 2.0, 3.0]], 30 * np.eye(3), [8]), crystal(2, atoms=3)]
    with torch.no_grad():
        energy, forces = model(exact(frames))
        alone = [model(exact([frame])) for frame in frames]
    torch.testing.assert_close(energy, torch.cat([energy for energy, _ in alone]))
    torch.testing.assert_close(forces, torch.cat([forces for _, forces in alone]))
    assert not energy.requires_grad and not forces.requires_grad
    assert not forces[7].any(), "an atom without neighbours"


def test_edges_between_atoms_at_the_same_place_are_as_good_as_none():
    model = network()
    found = []
    frame = framed([[0, 0, 0], [0, 0, 0], [0, 0, 1.5], [1, 2, 1]], 9 * np.eye(3), [8, 29, 1, 6])
    edges = np.array([[1, 0], [0, 1], [2, 0], [2, 1], [3, 2], [0, 2], [1, 2], [2, 3]], np.int32)
    for some in (edges, edges[2:]):
        some = some[np.argsort(some[:, 1], kind="stable")]
        graph = build_graph([replace(frame, edges=some, offsets=np.zeros((len(some), 3), np.int8))])
        model.zero_grad()
        energy, forces = model(replace(graph, vectors=graph.vectors.double()))
        forces.abs().sum().backward()
        found.append([energy, forces, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)
    assert found[0][1].any(1).all()


@pytest.mark.parametrize("atoms", [0, 1])
@pytest.mark.parametrize("mixed", [False, True], ids=["float32", "bfloat16"])
def test_a_rank_without_edges_has_zero_gradients(atoms, mixed):
    model = build_model(SMALL, seed=1)
    frames = [framed([[1.0, 2.0, 3.0]], 30 * np.eye(3), [8])] * atoms
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        energy, forces = model(build_graph(frames))
    assert energy.shape == (atoms,) and forces.shape == (atoms, 3)
    forces.abs().sum().backward()
    assert not any(parameter.grad.any() for parameter in model.parameters())


def nearly_trained(config, seed=1):
    """Return a network whose energies are not 0, otherwise with its initial weights."""
    model = build_model(config, seed)
    generator = torch.Generator().manual_seed(seed)
    for output in model.outputs:
        torch.nn.init.normal_(output.energy.weight, std=0.1, generator=generator)
    return model


def test_float32_and_bfloat16_stay_close_and_the_bases_are_float32():
    model = nearly_trained(ModelConfig())
    frames = [crystal(4, cutoff=6.0, width=5.0)]
    types = set()
    for basis in (model.radial, model.spherical):
        basis.register_forward_hook(lambda _module, _inputs, output: types.add(output.dtype))
    graph = exact(frames)
    single = replace(graph, vectors=graph.vectors.float())
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model(single)
        rounded = model(single)
        assert types == {torch.float32}
        energy, forces = model.double()(graph)
    assert mixed[0].dtype == mixed[1].dtype == torch.float32
    size = forces.abs().mean()
    assert (rounded[1] - forces).abs().max() < 1e-5 * size
    assert (rounded[0] - energy).abs().max() < 1e-5 * energy.abs().max()
    assert (mixed[1] - forces).abs().mean() < 0.03 * size


def test_mixed_precision_trains_like_float32():
    frames = [crystal(1, cutoff=6.0), crystal(2, cutoff=6.0)]
    gradients = []
    for mixed in (False, True):
        model = nearly_trained(ModelConfig())
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            _, forces = model(build_graph(frames))
        (forces - 0.1).square().sum().backward()
        assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert F.cosine_similarity(*gradients, dim=0) > 0.99


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_numbers_of_parameters_are_the_published_ones():
    model = build_model(ModelConfig(), seed=0)
    assert size(model) == 1_810_182
    assert (size(model.embedding), size(model.radial), size(model.spherical)) == (130_368, 6, 0)
    assert [size(output) for output in model.outputs] == 4 * [149_568]
    assert [size(interaction) for interaction in model.interactions] == 3 * [360_512]


def test_start_is_the_published_one():
    model = build_model(ModelConfig(), seed=1)
    assert torch.equal(model.radial.frequencies, math.pi * torch.arange(1, 7))
    elements = model.embedding.elements.weight
    assert elements.std().item() == pytest.approx(1, abs=0.02) and 1.72 < elements.abs().max() < 1.7321
    for layer in (model.embedding.radial, model.embedding.join):
        limit = layer.in_features**-0.5
        for tensor in layer.parameters():
            assert 0.95 * limit < tensor.abs().max() <= limit
    for name, layer in [*model.interactions.named_modules(), *model.outputs.named_modules()]:
        if not isinstance(layer, torch.nn.Linear):
            continue
        if name.endswith("energy"):
            assert not layer.weight.any()
            continue
        outputs, inputs = layer.weight.shape
        assert layer.weight.var().item() == pytest.approx(2 / (outputs + inputs), rel=1e-4)
        square = layer.weight @ layer.weight.T if outputs <= inputs else layer.weight.T @ layer.weight
        torch.testing.assert_close(square / square[0, 0], torch.eye(len(square)), rtol=0, atol=1e-5)
        if layer.bias is not None:
            limit = inputs**-0.5 if name.endswith("up") else 0
            assert 0.9 * limit <= layer.bias.abs().max() <= limit
    with torch.no_grad():
        energy, forces = model(build_graph([crystal(1)]))
    assert not energy.any() and not forces.any()


def test_start_depends_on_the_seed_alone():
    torch_state = torch.get_rng_state()
    start = build_model(SMALL, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), torch_state)
    for same, seed in ((True, 5), (False, 6)):
        other = build_model(SMALL, seed).state_dict()
        assert all(torch.equal(tensor, other[name]) for name, tensor in start.items()) is same


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden": 0}, "hidden is 0; expected at least 1"),
        ({"spherical": 0}, "spherical is 0; expected 1 to 12"),
        ({"blocks": -1}, "blocks is -1; expected 0 to 256"),
        ({"cutoff": 0.0}, "cutoff is 0.0; expected more than 0 and less than 100 angstrom"),
        ({"cutoff": 100.0}, "cutoff is 100.0; expected more than 0 and less than 100 angstrom"),
    ],
)
def test_impossible_networks_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**wrong)
