"""The basis functions of distance and direction by which the network sees the atoms around an atom.

After DimeNet (Gasteiger et al. 2020, arXiv:2003.03123, equations 6 to 8) and the layers of PyTorch Geometric, which the
reference uses.

Shapes: E edges; N roots (n = 1 to N) of each of L orders (l = 0 to L - 1), F = L N functions; K Chebyshev polynomials.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from common.candidate import Candidate

BASIS: Final = Candidate("oc20-basis")
"""Functions of distance come with their slopes, and a kernel computes harmonics that have no gradient."""
SERIES_BELOW: Final = 2.0
"""Below this, the recursion of the spherical Bessel functions loses too many digits, and their series is used."""
SERIES_TERMS: Final = 12
CHEBYSHEV_TERMS: Final = 32
"""In addition to two for each root and order: the functions have that many half waves."""
BISECTIONS: Final = 60


def smooth_envelope(x: Tensor, exponent: int) -> Tensor:
    """Return u(x), about 1/x near 0, which meets 0 at x = 1 with its first two derivatives; 0 beyond.

    With p = exponent + 1: 1/x - (p+1)(p+2)/2 x^(p-1) + p(p+2) x^p - p(p+1)/2 x^(p+1).
    """
    p = exponent + 1
    a, b, c = -(p + 1) * (p + 2) / 2, p * (p + 2), -p * (p + 1) / 2
    return torch.where(x < 1, 1 / x + x ** (p - 1) * (a + x * (b + x * c)), 0)


def slope_envelope(x: Tensor, exponent: int) -> Tensor:
    """Return the derivative of `smooth_envelope`."""
    p = exponent + 1
    a, b, c = -(p + 1) * (p + 2) / 2 * (p - 1), p * (p + 2) * p, -p * (p + 1) / 2 * (p + 1)
    return torch.where(x < 1, x ** (p - 2) * (a + x * (b + x * c)) - x**-2, 0)


def multiply_envelope(x_E: Tensor, exponent: int, values_EN: Tensor, slopes_EN: Tensor) -> Tensor:
    """Return u(x) times functions of x, given their values and slopes (E, N), which may depend on weights.

    The derivative by x is exact and then taken for a constant: a gradient by weights needs no second derivative by x.
    """
    u_E1, du_E1 = (function(x_E.detach()[:, None], exponent) for function in (smooth_envelope, slope_envelope))
    return _Sloped.apply(x_E, u_E1 * values_EN, du_E1 * values_EN + u_E1 * slopes_EN)


class _Sloped(torch.autograd.Function):
    """Functions of distances, given their values and slopes (E, N)."""

    @staticmethod
    def forward(ctx: Any, x_E: Tensor, values_EN: Tensor, slopes_EN: Tensor) -> Tensor:
        ctx.save_for_backward(slopes_EN)
        return values_EN

    @staticmethod
    def backward(ctx: Any, gradient_EN: Tensor) -> tuple[Tensor, Tensor, None]:
        (slopes_EN,) = ctx.saved_tensors
        return (gradient_EN * slopes_EN).sum(1), gradient_EN, None


def spherical_bessel(order: int, t: np.ndarray) -> np.ndarray:
    """Return the spherical Bessel function j_order of t >= 0, float64.

    Upward recursion j_(l+1) = (2l+1)/t j_l - j_(l-1), or the power series where t is small.
    """
    far, near = np.maximum(t, SERIES_BELOW), np.minimum(t, SERIES_BELOW)
    before, now = np.cos(far) / far, np.sin(far) / far
    for k in range(order):
        before, now = now, (2 * k + 1) / far * now - before
    series = np.ones_like(near)
    for k in range(SERIES_TERMS, 0, -1):  # the innermost bracket first
        series = 1 - series * near**2 / (2 * k * (2 * (order + k) + 1))
    series *= near**order / math.prod(range(2 * order + 1, 0, -2))
    return np.where(t < SERIES_BELOW, series, now)


def bessel_roots(orders: int, count: int) -> np.ndarray:
    """Return the first `count` positive roots of j_0 to j_(orders - 1), float64 (orders, count).

    Between two roots of one order lies one of the next.
    """
    roots: list[np.ndarray] = [math.pi * np.arange(1.0, count + orders)]
    for order in range(1, orders):
        low, high = roots[-1][:-1], roots[-1][1:]
        below = spherical_bessel(order, low)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            same = spherical_bessel(order, middle) * below > 0
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        roots.append((low + high) / 2)
    return np.stack([root[:count] for root in roots])


def spherical_harmonics(unit: Tensor, orders: int) -> list[Tensor]:
    """Return the real spherical harmonics of unit vectors (E, 3) for l = 0 to orders - 1, each (E, 2l + 1).

    Scaled after Schmidt, so that those of two vectors multiplied and summed over m give the Legendre polynomial P_l of
    the cosine of the angle between them. They are polynomials in x, y, z: no direction is singular.
    """
    x, y, z = unit.unbind(-1)
    cosines, sines = [torch.ones_like(z)], [torch.zeros_like(z)]  # sin^m(theta) times that of m phi
    for _ in range(1, orders):
        cosine, sine = cosines[-1], sines[-1]
        cosines.append(x * cosine - y * sine)
        sines.append(x * sine + y * cosine)
    legendre: dict[tuple[int, int], Tensor] = {}  # P_l^m / sin^m(theta), without the sign (-1)^m
    values = []
    for degree in range(orders):
        legendre[degree, degree] = torch.full_like(z, math.prod(range(2 * degree - 1, 0, -2)))
        for m in range(degree):
            lower = legendre[degree - 2, m] * (degree + m - 1) if m < degree - 1 else 0
            legendre[degree, m] = ((2 * degree - 1) * z * legendre[degree - 1, m] - lower) / (degree - m)
        columns = [legendre[degree, 0]]
        for m in range(1, degree + 1):
            scale = math.sqrt(2 * math.factorial(degree - m) / math.factorial(degree + m))
            columns += [scale * legendre[degree, m] * cosines[m], scale * legendre[degree, m] * sines[m]]
        values.append(torch.stack(columns, -1))
    return values


class RadialBasis(nn.Module):
    """u(x) sin(f_n x) of distances x, in units of the cutoff; the frequencies f_n, initially n pi, are trained."""

    def __init__(self, count: int, exponent: int) -> None:
        super().__init__()
        self.exponent = exponent
        self.frequencies = nn.Parameter(torch.empty(count))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the frequencies from which training starts."""
        with torch.no_grad():
            self.frequencies.copy_(math.pi * torch.arange(1, len(self.frequencies) + 1, device="cpu"))

    def forward(self, x_E: Tensor) -> Tensor:
        """Return the values (E, N)."""
        x_E1 = x_E[:, None]
        if BASIS.enabled:
            angles_EN = self.frequencies * x_E1.detach()
            return multiply_envelope(x_E, self.exponent, torch.sin(angles_EN), self.frequencies * torch.cos(angles_EN))
        return smooth_envelope(x_E1, self.exponent) * torch.sin(self.frequencies * x_E1)


class SphericalBasis(nn.Module):
    """The part of the spherical basis that depends on the distance x, in units of the cutoff.

    u(x) N_ln j_l(z_ln x) sqrt((2l+1) / 4 pi), where z_ln is the n-th root of j_l and N_ln = sqrt(2) / |j_(l+1)(z_ln)|.
    The basis is this times P_l of the cosine of the angle.

    All but u are smooth: polynomials that meet them in Chebyshev points equal them to the last digits of float64, and
    take one matrix product instead of a recursion for each order.
    """

    values_KF: Tensor
    slopes_KF: Tensor

    def __init__(self, orders: int, count: int, exponent: int) -> None:
        super().__init__()
        self.orders, self.count, self.exponent = orders, count, exponent
        terms = CHEBYSHEV_TERMS + 2 * (orders + count)
        self.register_buffer("values_KF", torch.empty(terms, orders * count, dtype=torch.float64), persistent=False)
        self.register_buffer("slopes_KF", torch.empty(terms, orders * count, dtype=torch.float64), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the coefficients of the functions and of their derivatives."""
        terms = len(self.values_KF)
        points = np.polynomial.chebyshev.chebpts1(terms)
        values = np.polynomial.chebyshev.chebfit(points, self._smooth_parts(points), terms - 1)
        # The polynomials are those of 2x - 1, whose derivative is 2; the derivative has one term less.
        slopes = np.pad(np.polynomial.chebyshev.chebder(values, scl=2), ((0, 1), (0, 0)))
        self.values_KF.copy_(torch.from_numpy(values))
        self.slopes_KF.copy_(torch.from_numpy(slopes))

    def _smooth_parts(self, points: np.ndarray) -> np.ndarray:
        """Return the functions without u at x = (1 + points) / 2: (points, F)."""
        x = (1 + points[:, None]) / 2
        columns = []
        for order, roots in enumerate(bessel_roots(self.orders, self.count)):
            scale = math.sqrt((2 * order + 1) / (2 * math.pi)) / np.abs(spherical_bessel(order + 1, roots))
            columns.append(scale * spherical_bessel(order, roots * x))
        return np.concatenate(columns, axis=1)

    def forward(self, x_E: Tensor) -> Tensor:
        """Return the values (E, F) in the type of x; F runs over l, and within l over n.

        Their derivative by x is exact and then taken for a constant: as nothing here is trained, the gradient of a loss
        of forces needs no second derivative.
        """
        with torch.no_grad():
            angles_E1 = torch.arccos((2 * x_E.double() - 1).clamp_max(1))[:, None]
            k_K = torch.arange(len(self.values_KF), device=x_E.device)
            chebyshev_EK = torch.cos(angles_E1 * k_K)
            values_EF = (chebyshev_EK @ self.values_KF.double()).to(x_E.dtype)
            slopes_EF = (chebyshev_EK @ self.slopes_KF.double()).to(x_E.dtype)
        if BASIS.enabled:
            return multiply_envelope(x_E, self.exponent, values_EF, slopes_EF)
        x_E1 = x_E[:, None]
        return smooth_envelope(x_E1, self.exponent) * (values_EF + slopes_EF * (x_E1 - x_E1.detach()))
