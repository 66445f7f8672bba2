"""DimeNet++: the energy of atoms, and from its gradient the forces on them.

After the model of the reference (mlcommons/hpc open_catalyst ocpmodels/models/dimenet_plus_plus.py), which extends the
one of PyTorch Geometric (Gasteiger et al. 2020, arXiv:2011.14115): 1,810,182 parameters. The code is for one device and
any precision; parallelism and mixed precision come from outside.

Shapes: A atoms, E edges, G frames; H hidden channels, C channels of the sums over triplets, R radial functions, N of
each of L orders.
"""

from __future__ import annotations

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.precision import product_dtype
from oc20.basis import RadialBasis, SphericalBasis
from oc20.graphs import Graph
from oc20.operations import Surroundings, dense_silu, gate_rows, hand_out_rows, sum_edges
from oc20.settings import Kernels, ModelConfig

ELEMENTS: Final = 95
"""Rows of the table of elements, as in the reference; the atomic number names the row."""


class DimeNet(nn.Module):
    """The network, with initial weights of torch but for the elements; `build_model` makes one with the reference's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.radial = RadialBasis(config.radial, config.envelope_exponent)
        self.spherical = SphericalBasis(config.spherical, config.radial, config.envelope_exponent)
        self.embedding = Embedding(config)
        self.interactions = nn.ModuleList(Interaction(config) for _ in range(config.blocks))
        self.outputs = nn.ModuleList(Output(config) for _ in range(config.blocks + 1))
        for layer in self.modules():
            if isinstance(layer, Dense | Output):
                layer.kernels = config.kernels

    def forward(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Return the energy of each frame (G,) and the forces (A, 3), its negative gradient by the atoms' positions.

        Both are in the units of the training's targets, and float32 also under autocast. If torch records gradients, a
        loss of the forces has gradients by the weights.
        """
        recording = torch.is_grad_enabled()
        with torch.enable_grad():
            vectors_E3 = graph.vectors.detach().requires_grad_()
            energy_G = self.compute_energies(graph, vectors_E3)
            with torch.autocast(graph.vectors.device.type, enabled=False):
                (slope_E3,) = torch.autograd.grad(energy_G.sum(), vectors_E3, create_graph=recording)
        # A vector leads from the target to the source.
        kernels = self.config.kernels
        forces_A3 = sum_edges(slope_E3, graph.incoming, graph.targets, kernels) - sum_edges(
            slope_E3, graph.outgoing, graph.sources, kernels
        )
        return energy_G if recording else energy_G.detach(), forces_A3

    def compute_energies(self, graph: Graph, vectors_E3: Tensor) -> Tensor:
        """Return the energy of each frame (G,), given the vectors from the edges' targets to their sources."""
        config, dtype = self.config, product_dtype(vectors_E3)
        with torch.autocast(vectors_E3.device.type, enabled=False):  # basis functions need full precision
            distance_E = torch.linalg.vector_norm(vectors_E3, dim=1)
            unit_E3 = vectors_E3 / distance_E[:, None]
            x_E = distance_E / config.cutoff
            radial_ER = self.radial(x_E)
            radial_ELN = self.spherical(x_E).unflatten(1, (config.spherical, config.radial))
            turning_E3 = unit_E3.detach() if config.detach_angles else unit_E3
            surroundings = Surroundings.from_graph(graph, radial_ELN, turning_E3, config.kernels, dtype)
        m_EH = self.embedding(graph, radial_ER)
        energy_A = self.outputs[0](graph, m_EH, radial_ER)
        for interaction, output in zip(self.interactions, self.outputs[1:], strict=True):
            m_EH = interaction(m_EH, radial_ER, surroundings)
            energy_A = energy_A + output(graph, m_EH, radial_ER)
        return energy_A.new_zeros(graph.images).index_add(0, graph.image, energy_A)


class Dense(nn.Linear):
    """A linear layer with SiLU."""

    kernels: Kernels = "torch"

    def forward(self, x: Tensor) -> Tensor:
        return dense_silu(x, self.weight, self.bias, self.kernels)


class Embedding(nn.Module):
    """The first message along each edge, from the elements at its ends and their distance."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # Not drawn by torch, which would import its compiler on the meta device: `initialise_weights` draws them.
        self.elements = nn.Embedding(ELEMENTS, config.hidden, _weight=torch.zeros(ELEMENTS, config.hidden))
        self.radial = Dense(config.radial, config.hidden)
        self.join = nn.Linear(3 * config.hidden, config.hidden)

    def forward(self, graph: Graph, radial_ER: Tensor) -> Tensor:
        """Return the messages (E, H): a linear map of target, source and distance, here of each for itself."""
        target_HH, source_HH, radial_HH = self.join.weight.chunk(3, dim=1)
        atoms_AH = self.elements(graph.numbers)
        kernels = self.radial.kernels
        targets_EH = hand_out_rows(F.linear(atoms_AH, target_HH), graph.incoming, graph.targets, kernels)
        sources_EH = hand_out_rows(F.linear(atoms_AH, source_HH), graph.outgoing, graph.sources, kernels)
        shift_EH = targets_EH + sources_EH + self.join.bias
        return dense_silu(self.radial(radial_ER), radial_HH, shift_EH, kernels)


class Interaction(nn.Module):
    """Updates each message from those that arrive at its source, by distance and angle."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, functions = config.hidden, config.spherical * config.radial
        self.radial = nn.Sequential(
            nn.Linear(config.radial, config.basis, bias=False), nn.Linear(config.basis, hidden, bias=False)
        )
        self.spherical = nn.Sequential(
            nn.Linear(functions, config.basis, bias=False), nn.Linear(config.basis, config.interaction, bias=False)
        )
        self.own = Dense(hidden, hidden)
        self.arriving = Dense(hidden, hidden)
        self.down = Dense(hidden, config.interaction, bias=False)
        self.up = Dense(config.interaction, hidden, bias=False)
        self.before_skip = nn.Sequential(*(Residual(hidden) for _ in range(config.before_skip)))
        self.skip = Dense(hidden, hidden)
        self.after_skip = nn.Sequential(*(Residual(hidden) for _ in range(config.after_skip)))

    def forward(self, m_EH: Tensor, radial_ER: Tensor, surroundings: Surroundings) -> Tensor:
        """Return the messages (E, H)."""
        # There is no activation between either pair of maps: one map of both is equal, and narrower.
        radial_HR = self.radial[1].weight @ self.radial[0].weight
        arriving_EH = gate_rows(self.arriving(m_EH), radial_ER, radial_HR.T)
        arriving_EC = self.down(arriving_EH)
        with torch.autocast(m_EH.device.type, enabled=False):  # sums of many terms, from which one is subtracted again
            spherical_CF = self.spherical[1].weight @ self.spherical[0].weight
            weight_LNC = spherical_CF.T.unflatten(0, surroundings.radial_ELN.shape[1:])
            sums_EC = surroundings.sum_triplets(arriving_EC.to(weight_LNC.dtype), weight_LNC)
        h_EH = self.own(m_EH) + self.up(sums_EC)
        h_EH = self.skip(self.before_skip(h_EH)) + m_EH
        return self.after_skip(h_EH)


class Residual(nn.Module):
    """Two layers with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = Dense(channels, channels), Dense(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))


class Output(nn.Module):
    """A share of each atom's energy, from the messages that arrive there."""

    kernels: Kernels = "torch"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.radial = nn.Linear(config.radial, config.hidden, bias=False)
        self.up = nn.Linear(config.hidden, config.out)
        self.layers = nn.ModuleList(Dense(config.out, config.out) for _ in range(config.output_layers))
        self.energy = nn.Linear(config.out, 1, bias=False)

    def forward(self, graph: Graph, m_EH: Tensor, radial_ER: Tensor) -> Tensor:
        """Return the energies (A,), in the type of the weights."""
        arriving_EH = gate_rows(m_EH, radial_ER, self.radial.weight.T).to(radial_ER.dtype)
        x_AH = self.up(sum_edges(arriving_EH, graph.incoming, graph.targets, self.kernels))
        for layer in self.layers:
            x_AH = layer(x_AH)
        with torch.autocast(m_EH.device.type, enabled=False):
            energy_A1 = self.energy(x_AH.to(radial_ER.dtype))
        return energy_A1[:, 0]


def initialise_weights(model: DimeNet, generator: torch.Generator) -> None:
    """Set the initial weights of the reference.

    Kernels of interaction and output blocks are orthogonal with variance 2 / (inputs + outputs), their biases 0, the
    maps to energies 0; elements are uniform within sqrt(3). The embedding's two maps, and the biases of the outputs'
    first, keep torch's default, uniform within 1 / sqrt(inputs).
    """
    limits = {id(model.embedding.radial), id(model.embedding.join), *(id(output.up) for output in model.outputs)}
    with torch.no_grad():
        model.radial.reset_parameters()
        model.spherical.reset_parameters()
        nn.init.uniform_(model.embedding.elements.weight, -math.sqrt(3), math.sqrt(3), generator=generator)
        for name, layer in model.named_modules():
            if not isinstance(layer, nn.Linear):
                continue
            limit = 1 / math.sqrt(layer.in_features) if id(layer) in limits else 0
            if name.startswith("embedding"):
                nn.init.uniform_(layer.weight, -limit, limit, generator=generator)
            else:
                nn.init.orthogonal_(layer.weight, generator=generator)
                layer.weight *= math.sqrt(2 / (sum(layer.weight.shape) * layer.weight.var()))
            if layer.bias is not None:
                nn.init.uniform_(layer.bias, -limit, limit, generator=generator)
        for output in model.outputs:
            nn.init.zeros_(output.energy.weight)


def build_model(config: ModelConfig, seed: int) -> DimeNet:
    """Return the network on the CPU with initial weights drawn from `seed`, not from torch's own generator."""
    with torch.device("meta"):
        model = DimeNet(config)
    model.to_empty(device="cpu")
    initialise_weights(model, torch.Generator().manual_seed(seed))
    return model
