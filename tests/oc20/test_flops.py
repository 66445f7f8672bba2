"""Operations of DimeNet++ against those of a network that lists all triplets, and against published numbers."""

from typing import NamedTuple

import pytest
from torch.utils.flop_counter import FlopCounterMode

from oc20.graphs import build_graph, count_triplets
from oc20.model import ModelConfig
from oc20.train import count_own, count_table3
from submission.results.cost_model import read_workloads
from tests.oc20.test_model import SMALL, Plain, crystal, framed, network


class Operations(NamedTuple):
    """Operations on a graph: of the energy; of energy and forces; of a training step by a loss of the forces."""

    energy: int
    forces: int
    training: int


def sizes(frame):
    return len(frame.numbers), len(frame.edges), count_triplets(frame.edges, frame.offsets, len(frame.numbers))


def count_published(config: ModelConfig, atoms: int, edges: int, triplets: int) -> Operations:
    """Return the operations of the published layers for these numbers of atoms, edges and triplets.

    The forces' gradient takes as many products as the energy, one for each. The training step differentiates both
    passes by the arguments of each product, which is two products more for each; that a few of the atoms' last maps are
    not needed, less than 1 in 10,000, is left out.
    """
    hidden, sums, radial, basis, out = config.hidden, config.interaction, config.radial, config.basis, config.out
    square_layers = 3 + 2 * (config.before_skip + config.after_skip)  # with own, arriving, skip
    embedding_of_edge = (radial + 3 * hidden) * hidden
    block_of_edge = square_layers * hidden**2 + (radial + hidden) * basis + 2 * hidden * sums
    block_of_triplet = (config.spherical * radial + sums) * basis
    output_of_edge = radial * hidden
    output_of_atom = (hidden + config.output_layers * out + 1) * out
    of_edge = embedding_of_edge + config.blocks * block_of_edge + (config.blocks + 1) * output_of_edge
    of_triplet, of_atom = config.blocks * block_of_triplet, (config.blocks + 1) * output_of_atom
    energy = 2 * (edges * of_edge + triplets * of_triplet + atoms * of_atom)
    return Operations(energy, 2 * energy, 6 * energy)


def test_operations_are_those_of_a_network_that_lists_triplets():
    frame, weights = crystal(1), dict(network().named_parameters())
    operations = count_published(SMALL, *sizes(frame))
    with FlopCounterMode(display=False) as counter:
        _, forces = Plain(SMALL, weights).forward([frame])
        assert counter.get_total_flops() == operations.forces == 2 * operations.energy
        forces.sum().backward()
    # The map to an atom's energy comes last and is linear: it needs fewer gradients.
    assert counter.get_total_flops() == pytest.approx(operations.training, rel=1e-4)


@pytest.mark.parametrize(
    ("metal", "size", "edges", "triplets", "gflop"),
    [
        ("Pt", (4, 5, 4), 3_427, 144_578, (9.0, 18.0, 54)),
        ("Cu", (4, 5, 4), 3_969, 192_044, (10.5, 21.0, 63)),
        ("Cu", (3, 3, 3), 1_363, 65_408, (3.6, 7.2, 22)),
    ],
)
def test_operations_of_slabs_are_the_known_ones(metal, size, edges, triplets, gflop):
    build = pytest.importorskip("ase.build")
    slab = build.fcc111(metal, size, vacuum=10, periodic=True)
    build.add_adsorbate(slab, "O", 1.5, "fcc")
    frame = framed(slab.positions, slab.cell.array, slab.numbers, cutoff=6.0)
    found = sizes(frame)
    # Where the oxygen of the known slabs lay is not recorded.
    assert found == pytest.approx((len(slab), edges, triplets), rel=0.005)
    operations = count_published(ModelConfig(), *found)
    assert [number / 1e9 for number in operations] == pytest.approx(gflop, rel=0.02)
    if size == (3, 3, 3):
        ours = count_own(ModelConfig(), build_graph([frame]))
        ratios = ours.evaluation / operations.forces, ours.training / operations.training
        assert ratios == pytest.approx((0.900, 0.891), abs=0.002)
        other = count_table3(
            ModelConfig(), build_graph([frame])
        )  # a multiply-add of a product as one, and all element-wise work
        assert other.training == 3 * other.evaluation
        assert ours.evaluation / 2 < other.evaluation < ours.evaluation


def test_the_cost_model_has_these_operations():
    cost, config = read_workloads()["oc20"], ModelConfig()
    of_one = [count_published(config, *counts).forces for counts in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert of_one == [cost.atom_flop, cost.edge_flop, cost.triplet_flop]
    atoms, edges, triplets = 78, 3_700, 165_000
    assert f"{atoms} atoms, {edges:,} edges and {triplets:,} triplets" in cost.source
    _, forces, training = count_published(config, atoms, edges, triplets)
    assert (cost.forward_flop, cost.training_flop) == pytest.approx((forces, training), rel=1e-4)


def test_shapes_give_the_operations_of_a_real_step():
    graph, model = build_graph([crystal(1)]), network().float()
    with FlopCounterMode(display=False) as counter:
        model(graph)[1].sum().backward()
    assert count_own(SMALL, graph).training == counter.get_total_flops()
