"""The trained OC20 network with its preprocessing: frames of atoms in, energies in eV and forces in eV/angstrom out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common.training import benchmark
from oc20.graphs import MOST_NEIGHBOURS, Frame, find_neighbours, join_frames, link_frames
from oc20.model import ELEMENTS, DimeNet
from oc20.settings import CUTOFF_ANGSTROM


class Predictor(benchmark.Predictor):
    """Energies and forces; see `common.training.benchmark.Predictor`."""

    @staticmethod
    def network(config: Any) -> nn.Module:
        """Return the network, computed by torch's own operations."""
        return DimeNet(replace(config.model, kernels="torch"))

    @staticmethod
    def describe(config: Any) -> dict[str, Any]:
        """Return the steps around the network."""
        return {
            "input": {
                "numbers": {"shape": ["atoms"], "unit": f"atomic number, at most {ELEMENTS - 1}"},
                "positions": {"shape": ["atoms", 3], "unit": "angstrom"},
                "cell": {"shape": [3, 3], "unit": "angstrom", "rows": "lattice vectors, periodic in all directions"},
            },
            "preprocessing": {
                "first": "the edges from the nearest atoms and images to each atom, within the cutoff",
                "cutoff_angstrom": CUTOFF_ANGSTROM,
                "most_neighbours": MOST_NEIGHBOURS,
                "after the network": "energy * energy_std + energy_mean, forces * energy_std",
                "energy_mean": config.data.energy_mean,
                "energy_std": config.data.energy_std,
            },
            "output": {
                "energy": {"shape": ["frames"], "type": "float32", "unit": "eV, less the system's reference energy"},
                "forces": {"shape": ["atoms", 3], "type": "float32", "unit": "eV/angstrom"},
            },
        }

    def forward(self, frames: Sequence[Frame]) -> tuple[Tensor, Tensor]:
        """Return the energies (G,) of frames with edges, and the forces (A, 3) on all their atoms, one after another.

        Forces have gradients by the weights where torch records them; they are computed in inference mode, too.
        """
        recorded = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        facts = self.interface["preprocessing"]
        with torch.inference_mode(False), torch.set_grad_enabled(recorded):  # forces are gradients
            energy_G, forces_A3 = self.model(link_frames(join_frames(frames).to(self.device)))
            return energy_G * facts["energy_std"] + facts["energy_mean"], forces_A3 * facts["energy_std"]


def frame(numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray) -> Frame:
    """Return the frame of atoms with its edges, such as of ase's `atoms.numbers, atoms.positions, atoms.cell.array`.

    numbers: atomic numbers (N,). positions (N, 3), cell (3, 3): in angstrom. Raises ValueError for a cell or positions
    that make no graph, other shapes, and atomic numbers that the network does not have. Energy, forces and tags, which
    only training needs, are 0.
    """
    atoms = len(numbers)
    if (np.shape(positions), np.shape(cell)) != ((atoms, 3), (3, 3)):
        raise ValueError(
            f"positions have the shape {np.shape(positions)}, the cell {np.shape(cell)}; expected {(atoms, 3)} for as "
            "many atomic numbers, and (3, 3)"
        )
    if atoms and not 1 <= np.min(numbers) <= np.max(numbers) < ELEMENTS:
        raise ValueError(f"atomic numbers from {np.min(numbers)} to {np.max(numbers)}; expected 1 to {ELEMENTS - 1}")
    edges, offsets = find_neighbours(positions, cell)
    return Frame.without_forces(numbers, positions, cell, edges=edges, offsets=offsets)
