"""OC20: the official DimeNet++ with the layers of torch-geometric 1.7.2, loss, schedule and graphs beside ours.

    PYTHONPATH=bench python -m parity.oc20 CLONE RESULT.json ENVIRONMENT

ENVIRONMENT/geometric has the sources of torch-geometric 1.7.2, ENVIRONMENT/pymatgen an installation of pymatgen, both
made by `make parity-env`. Replaced: torch_scatter and torch_sparse by `geometric.py`, other optional packages by empty
modules; in float64 the conversion to float32 in `get_pbc_distances`. torch-geometric finds the roots of its Bessel
functions in float32: hence 1e-7.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml
from ase import Atoms
from ase.build import add_adsorbate, fcc111
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from torch import nn

from common.settings.optim import BoundarySchedule
from oc20 import model
from oc20.data import conversion, records
from oc20.graphs import Frame, build_graph, count_triplets, find_neighbours
from oc20.train import Oc20
from parity import child, geometric
from parity.convert import rename_oc20
from parity.rows import MissingError, Row, largest_relative, relative, spread_ratios

SLABS = (("Cu", "O", (2, 2, 3)), ("Pt", "C", (3, 3, 4)), ("Ni", "H", (1, 1, 4)))
STD = 2.887317180633545
SHAKEN = 30
"""Frames of each slab whose edges are counted."""


def our_names(ours: nn.Module) -> dict[str, str]:
    """Return the official names of parameters with ours."""
    return {official: name for name, official in rename_oc20(ours.state_dict()).items()}


class Official:
    """The modules of the clone and of torch-geometric 1.7.2."""

    def __init__(self, clone: Path, environment: Path) -> None:
        self.folder = clone / "open_catalyst"
        child.use(self.folder)
        geometric.use(environment / "geometric")
        self.package("ocpmodels.models")  # not its other models, which need more packages
        network, utils, loss, evaluator = (
            import_module(f"ocpmodels.{name}")
            for name in ("models.dimenet_plus_plus", "common.utils", "modules.loss", "modules.evaluator")
        )
        self.utils, self.loss, self.evaluator = utils, loss, evaluator
        self.config = yaml.safe_load((self.folder / "configs" / "mlperf_hpc.yml").read_text(encoding="utf-8"))
        options = {key: value for key, value in self.config["model"].items() if key != "name"}
        self.wrapped = lambda: network.DimeNetPlusPlusWrap(None, -1, 1, **options)
        network.get_pbc_distances = exact(utils.get_pbc_distances)
        self.data = import_module("torch_geometric.data.data").Data
        self.batch = import_module("torch_geometric.data.batch").Batch

    @torch.no_grad()  # torch-geometric sets a parameter by `torch.arange(out=)`, which torch now allows only so
    def model(self) -> nn.Module:
        """Return the official network of the official configuration.

        Then as now, `arange` takes that parameter out of training: else the `mul_` that follows it had failed.
        """
        network: nn.Module = self.wrapped()
        return network

    def package(self, name: str) -> None:
        """Let modules of a package be imported without its `__init__`."""
        geometric.package(name, self.folder / name.replace(".", "/"))


def exact(distances: Any) -> Any:
    """Return the official function, for arguments in float64 without its conversion to float32."""

    def found(pos: Any, edge_index: Any, cell: Any, cell_offsets: Any, neighbors: Any, **options: Any) -> Any:
        if pos.dtype == torch.float32:
            return distances(pos, edge_index, cell, cell_offsets, neighbors, **options)
        return distances(pos, edge_index, Kept(cell), Kept(cell_offsets.double()), neighbors, **options)

    return found


class Kept(torch.Tensor):
    """A tensor that `float` leaves in float64."""

    @staticmethod
    def __new__(cls, tensor: torch.Tensor) -> Any:
        return tensor.as_subclass(cls)

    def float(self) -> Any:
        return self.as_subclass(torch.Tensor)


def atoms_of(number: int) -> Atoms:
    """Return one of the slabs, with forces drawn at random and the lowest layer fixed."""
    metal, adsorbate, size = SLABS[number]
    atoms = fcc111(metal, size, vacuum=7.5, periodic=True)
    add_adsorbate(atoms, adsorbate, 1.0 if adsorbate == "H" else 1.6, "fcc")
    atoms.rattle(0.05, seed=number)
    rng = np.random.default_rng(number)
    if number == 1:  # some lie outside of the cell
        atoms.positions += rng.integers(-1, 2, (len(atoms), 3)) @ atoms.cell.array
    atoms.set_constraint(FixAtoms(mask=atoms.get_tags() == size[2]))
    atoms.calc = SinglePointCalculator(atoms, energy=rng.normal(), forces=rng.normal(size=(len(atoms), 3)))
    return atoms


def frames() -> list[Frame]:
    """Return the slabs as our frames, with our edges."""
    found = []
    for number in range(len(SLABS)):
        atoms = atoms_of(number)
        pos, cell = atoms.positions.astype(np.float32), atoms.cell.array.astype(np.float32)
        edges, offsets = find_neighbours(pos, cell)
        fixed = np.zeros(len(atoms), bool)
        fixed[atoms.constraints[0].index] = True
        frame = Frame(
            numbers=atoms.numbers.astype(np.uint8),
            pos=pos,
            cell=cell,
            tags=np.zeros(len(atoms), np.int8),
            fixed=fixed,
            force=atoms.get_forces(apply_constraint=False).astype(np.float32),
            energy=float(atoms.get_potential_energy()),
            edges=edges,
            offsets=offsets,
            sid=number,
            fid=0,
        )
        found.append(frame)
    return found


def batch_of(official: Official, some: list[Frame], dtype: torch.dtype) -> Any:
    """Return the official batch of frames: our records, unpickled by torch-geometric's own class."""
    data = [pickle.loads(records.encode_frame(frame)) for frame in some]  # our own bytes
    batch = official.batch.from_data_list(data)
    batch.neighbors = torch.tensor([len(frame.edges) for frame in some])
    for key in ("pos", "cell", "force"):
        batch[key] = batch[key].to(dtype)
    return batch


def networks(official: Official) -> Iterator[Row]:
    """Yield the rows about the network."""
    torch.manual_seed(0)
    theirs, ours = official.model(), model.build_model(model.ModelConfig(), seed=0)
    counts = [sum(weights.numel() for weights in network.parameters()) for network in (ours, theirs)]
    yield Row(f"parameters, {counts[1]:,}", "number", abs(counts[0] - counts[1]), 0)
    names, own = our_names(ours), dict(ours.named_parameters())
    state = {names.get(name, name): p for name, p in theirs.state_dict().items()}
    unlike = state.keys() ^ own.keys()
    unlike |= {name for name in state.keys() & own.keys() if state[name].shape != own[name].shape}
    yield Row("names and shapes, one to one", "number of others", len(unlike), 0)
    large = [name for name, tensor in state.items() if tensor.numel() >= 10_000]
    ratios = spread_ratios((own[name].detach(), state[name]) for name in large)
    yield Row(f"initial weights, {len(large)} large tensors", "ratio of standard deviations − 1", ratios, 0.05)
    constants = [name for name, p in state.items() if not p.any()]
    unlike = {name for name, p in own.items() if not p.any()} ^ set(constants)
    yield Row(f"initial weights, {len(constants)} tensors of zeros", "number of others", len(unlike), 0)
    untrained = [name for name, p in theirs.named_parameters() if not p.requires_grad]
    yield Row(f"tensors that only ours trains: {', '.join(untrained)}", "number", len(untrained), None)
    theirs.requires_grad_()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # the last maps are 0 at the start
        for name, parameter in own.items():
            state[name] += 0.02 * torch.randn(state[name].shape, generator=generator)
            parameter.copy_(state[name])
    some = frames()
    for dtype, close in ((torch.float32, 2e-5), (torch.float64, 2e-6)):
        yield from outputs(official, ours.to(dtype), theirs.to(dtype), some, close)


def outputs(official: Official, ours: nn.Module, theirs: nn.Module, some: list[Frame], close: float) -> Iterator[Row]:
    """Yield energies, forces, loss, gradients of the weights, and the quality."""
    dtype = next(ours.parameters()).dtype
    what = str(dtype).removeprefix("torch.")
    batch, graph = batch_of(official, some, dtype), build_graph(some)
    graph = replace(graph, vectors=vectors(some).to(dtype), forces=graph.forces.to(dtype))
    energy, forces = ours(graph)
    their_energy, their_forces = theirs(batch)
    yield Row(
        f"energies, {what}, Cu12O, CPt36, HNi4",
        "relative",
        relative(energy.detach(), their_energy.detach()[:, 0]),
        close,
    )
    yield Row(f"forces, {what}", "relative", relative(forces.detach(), their_forces.detach()), close)
    free = batch.fixed == 0
    criterion = official.loss.DDPLoss(nn.L1Loss())
    coefficient = official.config["optim"]["force_coefficient"]
    with alone(official):
        their_loss = coefficient * criterion(their_forces[free], batch.force[free] / STD)
    problem, own_batch = Oc20.__new__(Oc20), SimpleNamespace(graph=graph)
    problem.config = SimpleNamespace(data=SimpleNamespace(energy_std=STD))
    loss = problem.loss(lambda _: (energy, forces), own_batch) / graph.free.sum()
    yield Row(f"loss, {what}", "relative", relative(loss.item(), their_loss.item()), close)
    for network, value in ((ours, loss), (theirs, their_loss)):
        network.zero_grad()
        value.backward()
    own, names = dict(ours.named_parameters()), our_names(ours)
    pairs = [tuple(map(slope, (own[names[name]], p))) for name, p in theirs.named_parameters()]
    yield Row(
        f"gradients through forces, {what}, {len(pairs)} tensors", "relative", largest_relative(pairs), 10 * close
    )
    judged = [{"forces": found[free].detach() * scale} for found, scale in ((their_forces, STD), (batch.force, 1))]
    mae = official.evaluator.forces_mae(*judged)["metric"]
    total, count = problem.judge(forces, own_batch).tolist()
    yield Row(f"mean absolute error of forces on free atoms, {what}", "relative", relative(total / count, mae), close)


def slope(parameter: nn.Parameter) -> torch.Tensor:
    """Return a parameter's gradient; zeros where the loss does not depend on it."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def vectors(some: list[Frame]) -> torch.Tensor:
    """Return the vectors of all edges in float64, which `collate` rounds to float32."""
    found = []
    for frame in some:
        pos, (source, centre) = frame.pos.astype(np.float64), frame.edges.T
        found.append(pos[source] - pos[centre] + frame.offsets.astype(np.float64) @ frame.cell.astype(np.float64))
    return torch.from_numpy(np.concatenate(found))


def alone(official: Official) -> Any:
    """Return a context in which the official code finds one process."""
    return child.replaced(official.loss.distutils, all_reduce=lambda value, **_: value, get_world_size=lambda: 1)


def triplets(official: Official) -> Iterator[Row]:
    """Yield the row about the number of triplets."""
    theirs, some = official.model(), frames()
    batch = batch_of(official, some, torch.float32)
    found = theirs.triplets(batch.edge_index, batch.cell_offsets, num_nodes=len(batch.pos))[2]
    ours = sum(count_triplets(frame.edges, frame.offsets, len(frame.numbers)) for frame in some)
    yield Row(f"triplets, {len(found):,}", "number", abs(len(found) - ours), 0)


def rates(official: Official) -> Iterator[Row]:
    """Yield the row about the learning rate."""
    differences = []
    settings = official.config["optim"]
    recipes = (
        (settings["lr_initial"], settings["warmup_steps"], tuple(settings["lr_milestones"])),
        (1.2e-3, 7816, (31264, 46896)),
        (1.6e-3, 3908, (23448, 31264)),
    )
    for base, warmup, boundaries in recipes:
        given = {"lr_milestones": list(boundaries), "warmup_steps": warmup, "warmup_factor": 0.2, "lr_gamma": 0.1}
        own = BoundarySchedule(base, warmup, 0.2, boundaries, 0.1)
        steps = {*range(0, boundaries[-1] + 1000, 97), *(b + d for b in (warmup, *boundaries) for d in (-1, 0, 1))}
        theirs = [base * official.utils.warmup_lr_lambda(step, given) for step in sorted(steps)]
        differences.append(relative([own.rate(256, 0, step, 10**9) for step in sorted(steps)], theirs))
    yield Row(f"learning rate, {len(recipes)} recipes", "relative", max(differences), 1e-14)


def data(official: Official) -> Iterator[Row]:
    """Yield the row about records that torch-geometric's own class pickles, with each protocol."""
    some, unlike = frames(), 0
    for frame in some:
        theirs = pickle.loads(records.encode_frame(frame))  # our own bytes
        for protocol in (2, 3, 4, 5):
            found = records.decode_frame(pickle.dumps(theirs, protocol))
            unlike += not all(
                np.array_equal(getattr(found, key), getattr(frame, key)) for key in ("pos", "edges", "offsets", "force")
            )
    yield Row("records of torch-geometric 1.7.2, protocols 2 to 5", "number of others", unlike, 0)


def graphs(official: Official, environment: Path) -> Iterator[Row]:
    """Yield the rows about edges: with NumPy's products on this processor, as the official code has them, and ours."""
    if not (environment / "pymatgen").is_dir():
        raise MissingError(f"the edges: {environment / 'pymatgen'} is missing; `make parity-env` makes it")
    maker = import_module("ocpmodels.preprocessing.atoms_to_graphs").AtomsToGraphs(
        max_neigh=50, radius=6, r_energy=False, r_forces=False, r_fixed=True, r_distances=False, r_edges=True
    )
    here, alike, more = 0, [], 0
    for number, seed in itertools.product(range(len(SLABS)), range(SHAKEN)):
        atoms = atoms_of(number)
        if seed:
            atoms.rattle(0.05, seed=len(SLABS) + seed)
        found = maker.convert(atoms)
        theirs = torch.cat([found.edge_index.T, found.cell_offsets], 1).numpy().astype(int)
        pos, cell = atoms.positions, np.asarray(atoms.cell.array)
        alike.append(unlike(conversion.find_reference_neighbours(pos, cell), theirs, pos, cell))
        with child.replaced(
            conversion, _wrap_positions=lambda pos, cell: np.dot(np.dot(pos, np.linalg.inv(cell)), cell)
        ):
            here += unlike(conversion.find_reference_neighbours(pos, cell), theirs, pos, cell)
        more += len(find_neighbours(pos, cell)[0]) - len(theirs)
    what = f"edges of {len(alike)} frames, `--edges reference`"
    yield Row(f"{what} with this processor's products", "number of others", here, 0)
    yield Row(f"{what}, {sum(map(bool, alike))} frames with others", "number of others", sum(alike), None)
    yield Row("edges of `--edges nearest`, the default", "number more than the official", more, None)


def unlike(ours: tuple[np.ndarray, np.ndarray], theirs: np.ndarray, pos: np.ndarray, cell: np.ndarray) -> int:
    """Return how many edges only one side has; of equally near ones the official code keeps any."""
    sides = [{*map(tuple, side.tolist())} for side in (np.hstack(ours), theirs)]
    only: list[Counter[tuple[int, float]]] = []
    for side, other in (sides, sides[::-1]):
        ends = [(source, centre, np.array(offset)) for source, centre, *offset in side - other]
        distances = [np.linalg.norm(pos[source] + offset @ cell - pos[centre]) for source, centre, offset in ends]
        only.append(Counter((end[1], round(distance, 9)) for end, distance in zip(ends, distances, strict=True)))
    return ((only[0] - only[1]) + (only[1] - only[0])).total()


def compare(clone: Path, environment: Path) -> tuple[Iterator[Row], dict[str, str]]:
    """Return the rows, and the versions of what was used."""
    official, versions = Official(clone, environment), {"torch": torch.__version__, "torch-geometric": "1.7.2"}
    if (environment / "pymatgen").is_dir():  # only the edges need it
        sys.path.append(str(environment / "pymatgen"))
        versions["pymatgen"] = version("pymatgen")
    parts = (part(official) for part in (networks, triplets, rates, data))
    return itertools.chain(*parts, graphs(official, environment)), versions


if __name__ == "__main__":
    sys.exit(child.main("oc20", compare))
