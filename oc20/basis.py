"""The functions of distance and direction in which the network sees the atoms around an atom.

After DimeNet (Gasteiger et al. 2020, arXiv:2003.03123, equations 6 to 8) and the layers of PyTorch Geometric, which the
reference uses.

Shapes: E edges, T any number, N roots (n = 1 to N) of each of L orders (l = 0 to L - 1).
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn

SERIES_BELOW: Final = 1.0
"""Below this the recursion of the spherical Bessel functions loses too many digits, and their series does the work."""
SERIES_TERMS: Final = 9
BISECTIONS: Final = 60


def envelope(x: Tensor, exponent: int) -> Tensor:
    """Return u(x), about 1/x near 0, which meets 0 at x = 1 with its first two derivatives; 0 beyond.

    With p = exponent + 1: 1/x - (p+1)(p+2)/2 x^(p-1) + p(p+2) x^p - p(p+1)/2 x^(p+1).
    """
    p = exponent + 1
    a, b, c = -(p + 1) * (p + 2) / 2, p * (p + 2), -p * (p + 1) / 2
    return torch.where(x < 1, 1 / x + x ** (p - 1) * (a + x * (b + x * c)), 0)


def bessel(orders: int, t: Tensor) -> list[Tensor]:
    """Return the spherical Bessel functions j_0 to j_(orders - 1) of t > 0, in t's type: give it float64.

    Upward recursion j_(l+1) = (2l+1)/t j_l - j_(l-1), or a power series where t is small.
    """
    safe = t.clamp_min(SERIES_BELOW)
    recursion = [safe.sin() / safe, safe.sin() / safe**2 - safe.cos() / safe]
    for order in range(1, orders - 1):
        recursion.append((2 * order + 1) / safe * recursion[-1] - recursion[-2])
    near = t.clamp_max(SERIES_BELOW)
    values = []
    for order in range(orders):
        series = torch.ones_like(near)
        for k in range(SERIES_TERMS, 0, -1):  # innermost bracket first
            series = 1 - series * near**2 / (2 * k * (2 * (order + k) + 1))
        series = series * near**order / math.prod(range(2 * order + 1, 0, -2))
        values.append(torch.where(t < SERIES_BELOW, series, recursion[order]))
    return values


def bessel_roots(orders: int, count: int) -> Tensor:
    """Return the first `count` positive roots of j_0 to j_(orders - 1), float64 (orders, count).

    Between two roots of one order lies one of the next.
    """
    roots = [math.pi * torch.arange(1, count + orders, dtype=torch.float64)]
    for order in range(1, orders):
        low, high = roots[-1][:-1], roots[-1][1:]
        below = bessel(order + 1, low)[order]
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            same = bessel(order + 1, middle)[order] * below > 0
            low, high = torch.where(same, middle, low), torch.where(same, high, middle)
        roots.append((low + high) / 2)
    return torch.stack([root[:count] for root in roots])


def harmonics(unit: Tensor, orders: int) -> list[Tensor]:
    """Return the real spherical harmonics of unit vectors (T, 3) for l = 0 to orders - 1, each (T, 2l + 1).

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
    """u(x) sin(f_n x) of distances x, given over the cutoff; the frequencies f_n, n pi at the start, are trained."""

    def __init__(self, count: int, exponent: int) -> None:
        super().__init__()
        self.exponent = exponent
        self.frequencies = nn.Parameter(math.pi * torch.arange(1, count + 1))

    def forward(self, x_E: Tensor) -> Tensor:
        """Return the values (E, N)."""
        x_E1 = x_E[:, None]
        return envelope(x_E1, self.exponent) * torch.sin(self.frequencies * x_E1)


class SphericalBasis(nn.Module):
    """The part of the spherical basis that depends on the distance x, given over the cutoff.

    u(x) N_ln j_l(z_ln x) sqrt((2l+1) / 4 pi), where z_ln is the n-th root of j_l and N_ln = sqrt(2) / |j_(l+1)(z_ln)|.
    The basis is this times P_l of the cosine of the angle.
    """

    roots_LN: Tensor
    scales_LN: Tensor

    def __init__(self, orders: int, count: int, exponent: int) -> None:
        super().__init__()
        self.orders, self.exponent = orders, exponent
        self.register_buffer("roots_LN", torch.empty(orders, count, dtype=torch.float64), persistent=False)
        self.register_buffer("scales_LN", torch.empty(orders, count, dtype=torch.float64), persistent=False)

    def forward(self, x_E: Tensor) -> Tensor:
        """Return the values (L, E, N) in the type of x; computed in float64.

        Their derivative by x is exact, and taken for a constant: nothing here is trained, so that the gradient of a
        loss of forces needs no second derivative.
        """
        with torch.no_grad():
            x_1E1 = x_E.double()[None, :, None]
            ...
