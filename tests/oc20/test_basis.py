"""The bases against closed forms, and against scipy where that is installed."""

import contextlib
import math

import numpy as np
import pytest
import torch

from common.candidate import try_candidates
from oc20.basis import RadialBasis, SphericalBasis, bessel_roots, smooth_envelope, spherical_bessel, spherical_harmonics
from oc20.settings import MOST_ORDERS

X = torch.cat([torch.logspace(-3, -1, 50), torch.linspace(0.1, 0.999, 300)]).double()


@pytest.fixture(params=[(), ("oc20-basis",)], ids=["as it is", "with slopes"])
def candidates(request):
    """Run the test without and with the candidate."""
    with try_candidates(*request.param):
        yield


def test_envelope_is_the_published_polynomial_and_ends_smoothly():
    torch.testing.assert_close(smooth_envelope(X, 5), 1 / X - 28 * X**5 + 48 * X**6 - 21 * X**7, rtol=1e-12, atol=1e-12)
    x = torch.tensor(1 - 1e-5, dtype=torch.float64)
    for exponent in (3, 5, 6):
        value, slope, curvature = derivatives(lambda x, p=exponent: smooth_envelope(x, p), x)
        assert abs(value) < 1e-12 and abs(slope) < 1e-7 and abs(curvature) < 2e-2
    assert not smooth_envelope(torch.tensor([1.0, 1.001, 2.0]), 5).any()


def derivatives(function, x):
    """Value, first and second derivative."""
    x = x.clone().requires_grad_()
    value = function(x)
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, x)
    return value.item(), slope.item(), curvature.item()


def test_bessel_functions_have_their_closed_forms_and_known_roots():
    t = np.logspace(-1, 1.5, 200)
    sin, cos = np.sin(t), np.cos(t)
    closed = [sin / t, sin / t**2 - cos / t, (3 / t**3 - 1 / t) * sin - 3 / t**2 * cos]
    for order, values in enumerate(closed):
        np.testing.assert_allclose(spherical_bessel(order, t), values, rtol=0, atol=1e-11)
    assert spherical_bessel(0, np.zeros(1)) == 1 and spherical_bessel(3, np.zeros(1)) == 0
    # Abramowitz and Stegun, table 10.6.
    roots = bessel_roots(3, 2)
    assert roots.flatten().tolist() == pytest.approx([3.141593, 6.283185, 4.493409, 7.725252, 5.763459, 9.095011])


def test_bessel_functions_equal_scipys():
    special = pytest.importorskip("scipy.special")
    t = np.logspace(-4, 1.7, 500)
    for order in range(MOST_ORDERS):
        digits = 1e-13 if order < 8 else 1e-9
        np.testing.assert_allclose(spherical_bessel(order, t), special.spherical_jn(order, t), rtol=1e-9, atol=digits)
    roots = bessel_roots(7, 6)
    for order, row in enumerate(roots):
        assert np.abs(special.spherical_jn(order, row)).max() < 1e-14
        between = np.linspace(0.01, row[-1] - 0.01, 2000)
        assert np.count_nonzero(np.diff(np.sign(special.spherical_jn(order, between)))) == 5, "a root was missed"


def test_radial_basis_is_an_envelope_times_sines_of_trained_frequencies(candidates):
    basis = RadialBasis(6, 5).double()
    n = torch.arange(1, 7)
    torch.testing.assert_close(
        basis(X), smooth_envelope(X, 5)[:, None] * torch.sin(math.pi * n * X[:, None]), rtol=1e-6, atol=1e-6
    )
    inputs = [tensor.detach().clone().requires_grad_() for tensor in (X[::20], basis.frequencies)]
    torch.autograd.gradcheck(lambda x, f: torch.func.functional_call(basis, {"frequencies": f}, x), inputs)


@pytest.mark.parametrize(("orders", "count"), [(7, 6), (1, 1), (3, 8)])
def test_spherical_basis_and_its_slope_equal_the_formula(candidates, orders, count):
    special = pytest.importorskip("scipy.special")
    u, du = (
        smooth_envelope(X, 5).numpy(),
        torch.autograd.functional.jvp(lambda x: smooth_envelope(x, 5), X, torch.ones_like(X))[1].numpy(),
    )
    values, slopes = [], []
    for order, roots in enumerate(bessel_roots(orders, count).tolist()):
        for root in roots:
            scale = (
                math.sqrt(2) / abs(special.spherical_jn(order + 1, root)) * math.sqrt((2 * order + 1) / (4 * math.pi))
            )
            j, dj = (special.spherical_jn(order, root * X.numpy(), derivative) for derivative in (False, True))
            values.append(scale * u * j)
            slopes.append(scale * (du * j + u * root * dj))
    basis = SphericalBasis(orders, count, 5)
    x = X.clone().requires_grad_()
    result = basis(x)
    np.testing.assert_allclose(result.detach(), np.stack(values, 1), rtol=1e-10, atol=1e-10)
    for column, slope in enumerate(slopes):
        (found,) = torch.autograd.grad(result[:, column].sum(), x, retain_graph=True)
        np.testing.assert_allclose(found, slope, rtol=1e-9, atol=1e-7)
    single = basis(X.float()).double()
    assert ((single - result).abs() / (1 + result.abs())).max() < 3e-6, "float32 loses digits"
    assert not basis(torch.tensor([1.0, 1.2])).any()


@pytest.mark.parametrize("exponent", [1, 5])
def test_functions_with_slopes_give_a_loss_of_forces_the_same_gradients(exponent):
    """By frequencies and by what the network makes of the functions; x may be beyond the cutoff, and none is there."""
    for x in (torch.tensor([0.03, 0.2, 0.5, 0.999, 1.0, 1.3]), torch.empty(0)):
        results = []
        for context in (contextlib.nullcontext(), try_candidates("oc20-basis")):
            with context:
                distances = x.double().requires_grad_()
                radial, spherical = RadialBasis(6, exponent).double(), SphericalBasis(3, 4, exponent)
                values = [radial(distances), spherical(distances)]
                weights = [torch.linspace(-1, 1, value.numel()).double().view_as(value) for value in values]
                cotangents = [weight.requires_grad_() for weight in weights]
                (forces,) = torch.autograd.grad(values, distances, cotangents, create_graph=True)
                loss = (forces * x**2).square().sum() + sum(value.square().sum() for value in values)
                found = torch.autograd.grad(loss, [radial.frequencies, *cotangents])
                results.append([*values, forces, *found])
        torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_harmonics_multiply_to_legendre_polynomials():
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(2, 200, 3, generator=generator, dtype=torch.float64)
    vectors[0, :6] = torch.cat([torch.eye(3), -torch.eye(3)])  # poles too
    vectors[1, :3], vectors[1, 3:6] = vectors[0, :3], vectors[0, :3]
    a, b = torch.nn.functional.normalize(vectors, dim=2)
    cosine = (a * b).sum(1)
    legendre = [torch.ones_like(cosine), cosine]
    for order in range(1, 7):
        legendre.append(((2 * order + 1) * cosine * legendre[-1] - order * legendre[-2]) / (order + 1))
    for order, (of_a, of_b) in enumerate(zip(spherical_harmonics(a, 7), spherical_harmonics(b, 7), strict=True)):
        assert of_a.shape == (200, 2 * order + 1)
        torch.testing.assert_close((of_a * of_b).sum(1), legendre[order], rtol=0, atol=1e-13)
        torch.testing.assert_close(spherical_harmonics(-a, 7)[order], (-1) ** order * of_a)
    x, y, z = a.unbind(1)
    second = [z**2 - (x**2 + y**2) / 2, *(math.sqrt(3) * f for f in (x * z, y * z, (x**2 - y**2) / 2, x * y))]
    torch.testing.assert_close(spherical_harmonics(a, 3)[2], torch.stack(second, 1))
