"""First and second derivatives of the operations against finite differences, and against torch's own."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from oc20.graphs import build_graph
from oc20.operations import _AtomRows, dense_silu, gate_rows, hand_out_rows, move_rows, sum_edges


def numbers(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def check(function, asked, others):
    """First derivatives by all, and those of the derivatives by the tensors `asked`, by all again, are right."""
    assert gradcheck(function, (*asked, *others))

    def slopes(*tensors):
        value = function(*tensors)
        return torch.autograd.grad(value.square().sum(), tensors[: len(asked)], create_graph=True)

    assert gradcheck(slopes, (*asked, *others))


@pytest.mark.parametrize("shift", [None, numbers(5), numbers(4, 5)], ids=["none", "of channels", "of rows"])
def test_dense_layers(shift):
    x, weight = numbers(4, 3), numbers(5, 3)
    shifts = [] if shift is None else [shift]
    torch.testing.assert_close(
        dense_silu(x, weight, shift), torch.nn.functional.silu(x @ weight.T + (0 if shift is None else shift))
    )
    check(lambda x, weight, shift=None: dense_silu(x, weight, shift), [x], [weight, *shifts])
    with torch.autocast("cpu", torch.bfloat16):
        y = dense_silu(x.float(), weight.float(), shift)
    assert y.dtype == torch.bfloat16


@pytest.mark.parametrize("leading", [(), (3,)])
def test_gated_products(leading):
    m, basis, weight = numbers(4, 5), numbers(*leading, 4, 2), numbers(*leading, 2, 5)
    torch.testing.assert_close(gate_rows(m, basis, weight), m * (basis @ weight))
    check(gate_rows, [m, basis], [weight])
    assert gate_rows(m.bfloat16(), basis, weight).dtype == torch.bfloat16


def test_slopes_by_weights_cannot_be_recorded():
    x, weight = numbers(4, 3), numbers(5, 3)
    for value in (dense_silu(x, weight, None), gate_rows(x, numbers(4, 5), numbers(5, 3))):
        with pytest.raises(RuntimeError, match="not have been used in the graph"):
            torch.autograd.grad(value.sum(), weight, create_graph=True)


def test_rows_move_and_gradients_come_back():
    there, back = torch.tensor([2, 0, 1, 0]), torch.tensor([1, 2, 0])  # the last row is of no use
    used = torch.tensor([[1.0], [1], [1], [0]]).double()
    three, four = numbers(3, 2), numbers(4, 2)
    assert torch.equal(move_rows(three, there, back), three[there])
    for function, x in [
        (lambda x: move_rows(x, there, back) * used, three),
        (lambda x: move_rows(x * used, back, there), four),
    ]:
        assert gradcheck(function, x) and gradgradcheck(function, x)


@pytest.mark.parametrize("table", ["incoming", "outgoing"])
def test_sums_by_atom_and_their_counterpart_through_tables(slabs, table):
    graph = build_graph(slabs[:2])
    edges, atoms_E = getattr(graph, table), graph.targets if table == "incoming" else graph.sources
    x_E2, x_A2 = numbers(len(atoms_E), 2), numbers(len(graph.numbers), 2)
    torch.testing.assert_close(_AtomRows.apply(x_E2, True, edges, atoms_E, False), sum_edges(x_E2, edges, atoms_E))
    assert torch.equal(_AtomRows.apply(x_A2, False, edges, atoms_E, False), hand_out_rows(x_A2, edges, atoms_E))
    for sums, plain, x in ((True, sum_edges, x_E2), (False, hand_out_rows, x_A2)):
        cotangent = torch.randn_like(plain(x, edges, atoms_E)).requires_grad_()
        both = []
        for way in (lambda x, *table, sums=sums: _AtomRows.apply(x, sums, *table, False), plain):
            (slope,) = torch.autograd.grad(way(x, edges, atoms_E), x, cotangent, create_graph=True)
            both.append((slope, *torch.autograd.grad(slope.square().sum(), cotangent)))
        torch.testing.assert_close(*both)
