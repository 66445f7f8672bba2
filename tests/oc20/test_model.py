"""The network against published numbers, and against a plain one with the same weights that lists all triplets."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oc20.basis import bessel_roots
from oc20.graphs import Frame, collate, count_triplets, neighbours
from oc20.model import ModelConfig, build

SMALL = ModelConfig(hidden=24, blocks=2, radial=4, spherical=5, cutoff=4.0, interaction=8, basis=5, out=16)


def crystal(seed, atoms=7, width=4.2, cutoff=4.0, most=50):
    """A frame of atoms at random places, no two close, in a skewed cell that is thinner than the cutoff's sphere."""
    generator = np.random.default_rng(seed)
    cell = np.array([[width, 0, 0], [0.3 * width, width, 0], [-0.2 * width, 0.1 * width, 1.1 * width]])
    places = np.stack(np.meshgrid(*[[0.1, 0.6]] * 3), -1).reshape(-1, 3)[:atoms]
    pos = (places + generator.uniform(-0.1, 0.1, places.shape)) @ cell
    return framed(pos, cell, generator.choice([1, 6, 8, 29, 78], atoms), cutoff, most)


def framed(pos, cell, numbers, cutoff=4.0, most=50):
    edges, offsets = neighbours(pos, cell, cutoff, most)
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
    """The graph in float64, also its vectors."""
    vectors = [f.pos[f.edges[:, 0]] - f.pos[f.edges[:, 1]] + f.offsets.astype(np.float64) @ f.cell for f in frames]
    return replace(collate(frames), vectors=torch.from_numpy(np.concatenate(vectors)))


def network(config=SMALL, seed=1):
    """A network with energies: none of its weights is 0."""
    model = build(config, seed)
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

    def spherical(self, x, theta):
        """u(x) N j_l(z x) Y_l0(theta), l slow and n fast."""
        columns = []
        for order, roots in enumerate(bessel_roots(self.config.spherical, self.config.radial).tolist()):
            for root in roots:
                scale = math.sqrt(2) / abs(self.bessel(order + 1, torch.tensor(root, dtype=x.dtype)))
                legendre = [torch.ones_like(theta), theta.cos()]
                for k in range(1, order):
                    legendre.append(((2 * k + 1) * theta.cos() * legendre[-1] - k * legendre[-2]) / (k + 1))
                y = math.sqrt((2 * order + 1) / (4 * math.pi)) * legendre[order]
                columns.append(self.envelope(x) * scale * self.bessel(order, root * x) * y)
        return torch.stack(columns, 1)

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
        sbf = self.spherical(x[kj], theta)
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
