"""The laws that are no straight lines of logarithms, by least squares over the logarithm of y.

The interval of a parameter is its profile: all values at which the sum of squares, with the other parameters fitted
again, is at most (1 + t^2 / df) times the least one. Source: Bates and Watts, Nonlinear Regression Analysis and Its
Applications (1988), chapter 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final

import numpy as np
import scipy.optimize

from compliance.rcp.points import t_quantile
from submission.results.fits.least_squares import CONFIDENCE, Interval, NoFitError

SLOPES: Final = np.geomspace(0.02, 3.0, 24)
"""Exponents from which the search starts."""
WIDEST: Final = 40
"""Steps, each 1.5 times as long as the one before, after which an end of an interval counts as infinite."""
EXACT: Final = 1e-16
"""A mean square below this is that of rounding and of where the search ends."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A law inside the search.

    compute: returns y and its derivatives (points x parameters) at the searched parameters and x (variables x points).
    transforms: give the parameters of the law from those of the search.
    """

    compute: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    transforms: tuple[Callable[[float], float], ...]


def _compute_floor(theta: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    floor, log_a, b = theta
    power = np.exp(log_a + b * np.log(x[0]))
    return floor + power, np.stack([np.ones_like(power), power, power * np.log(x[0])], axis=1)


def _compute_batch(theta: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    base, slope = np.exp(theta[0]), theta[1]
    return base * (1 + slope * x[0]), np.stack([base * (1 + slope * x[0]), base * x[0]], axis=1)


def _compute_joint(theta: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    floor, log_a, a, log_b, b = theta
    logs = np.log(x)
    first, second = np.exp(log_a - a * logs[0]), np.exp(log_b - b * logs[1])
    columns = [np.ones_like(first), first, -first * logs[0], second, -second * logs[1]]
    return floor + first + second, np.stack(columns, axis=1)


FORMS: Final = {
    "floor": _Form(_compute_floor, (float, np.exp, float)),
    "batch": _Form(_compute_batch, (np.exp, lambda slope: 1 / slope if slope > 0 else math.inf)),
    "joint": _Form(_compute_joint, (float, np.exp, float, np.exp, float)),
}


class NonlinearSolution:
    """The least squares of a law of FORMS through y at x, both above 0; NoFitError if they do not have its shape.

    title: of the law, for messages. values: its parameters.
    """

    def __init__(self, name: str, title: str, x: Sequence[Sequence[float]], y: Sequence[float]) -> None:
        self._title, self._form = title, FORMS[name]
        self._x, self._log_y = np.array(x, dtype=float).T, np.log(y)
        start = _find_start(name, self._x, np.array(y, dtype=float))
        if start is None:
            raise NoFitError(f"no fit: the points do not have the shape of {title}")
        self._theta = self._minimise_squares(start, np.arange(0))
        residuals, slopes = self._find_residuals(self._theta), self._find_slopes(self._theta)
        self._squares, self._degrees = float(residuals @ residuals), len(y) - len(self._theta)
        if np.linalg.matrix_rank(slopes / np.linalg.norm(slopes, axis=0), tol=1e-9) < len(self._theta):
            raise NoFitError(f"no fit: the points do not separate the parameters of {title}")
        self._root = np.linalg.pinv(slopes)  # its product with its transpose is the covariance of unit errors
        self._t = t_quantile((1 + CONFIDENCE) / 2, self._degrees)
        transforms = self._form.transforms
        self.values = tuple(float(convert(value)) for convert, value in zip(transforms, self._theta, strict=True))

    def at(self, x: Sequence[float]) -> float:
        return float(self._form.compute(self._theta, np.array(x, dtype=float)[:, None])[0][0])

    def band(self, x: Sequence[float]) -> Interval:
        y, slopes = self._form.compute(self._theta, np.array(x, dtype=float)[:, None])
        half = self._t * math.sqrt(self._squares / self._degrees) * np.linalg.norm(slopes[0] / y[0] @ self._root)
        return float(y[0] * np.exp(-half)), float(y[0] * np.exp(half))

    def find_intervals(self) -> tuple[Interval, ...]:
        transforms = enumerate(self._form.transforms)
        ends = [[convert(self._find_end(at, sign)) for sign in (-1, 1)] for at, convert in transforms]
        return tuple((float(min(pair)), float(max(pair))) for pair in ends)

    def _find_residuals(self, theta: np.ndarray) -> np.ndarray:
        residuals: np.ndarray = self._log_y - np.log(np.maximum(self._form.compute(theta, self._x)[0], 1e-300))
        return residuals

    def _find_slopes(self, theta: np.ndarray) -> np.ndarray:
        y, slopes = self._form.compute(theta, self._x)
        logarithmic: np.ndarray = -slopes / np.maximum(y, 1e-300)[:, None]
        return logarithmic

    def _minimise_squares(self, theta: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        """Return the parameters of the least squares near `theta`. fixed: the numbers of those that stay."""
        free = np.setdiff1d(np.arange(len(theta)), fixed)

        def put(values: np.ndarray) -> np.ndarray:
            whole = theta.copy()
            whole[free] = values
            return whole

        with np.errstate(over="ignore", invalid="ignore"):
            answer = scipy.optimize.least_squares(
                lambda values: np.nan_to_num(self._find_residuals(put(values)), nan=1e6, posinf=1e6, neginf=-1e6),
                theta[free],
                lambda values: np.nan_to_num(self._find_slopes(put(values))[:, free]),
                method="lm",
                x_scale="jac",
                xtol=1e-10,
                ftol=1e-10,
            )
        return put(answer.x)

    def _find_end(self, at: int, sign: int) -> float:
        """Return one end of the interval of a parameter; infinite if the sum of squares stays below the limit."""
        variance = self._squares / self._degrees
        step = self._t * math.sqrt(variance) * float(np.linalg.norm(self._root[at]))
        if variance < EXACT:
            return float(self._theta[at])
        limit, theta = self._squares + self._t**2 * variance, self._theta

        @cache  # a second search at the same value could end elsewhere
        def exceed(value: float) -> float:
            nonlocal theta
            theta = theta.copy()
            theta[at] = value
            theta = self._minimise_squares(theta, np.array([at]))
            residuals = self._find_residuals(theta)
            return float(residuals @ residuals) - limit

        if exceed(float(self._theta[at])) > 0:
            raise NoFitError(f"no fit: no parameters of {self._title} are the best ones")
        inner, outer = 0.0, 1.0
        for _ in range(WIDEST):
            if exceed(self._theta[at] + sign * step * outer) > 0:
                ends = (
                    self._theta[at] + sign * step * inner,
                    self._theta[at] + sign * step * outer,
                )
                return float(scipy.optimize.brentq(exceed, *ends, xtol=1e-3 * step, rtol=1e-6))
            inner, outer = outer, outer * 1.5
        return sign * math.inf


def _find_start(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return the best parameters on a grid of exponents, for which linear least squares give the others.

    None if these have the wrong sign.
    """
    grids: dict[str, list[tuple[float, ...]]] = {
        "batch": [(1.0,)],
        "floor": [(b,) for b in (*-SLOPES, *SLOPES)],
    }
    exponents = np.array(grids.get(name) or [(-a, -b) for a, b in product(SLOPES, SLOPES)])
    powers = np.exp(exponents[:, :, None] * np.log(x)[None])  # grid, variables, points
    columns = np.concatenate([np.ones_like(powers[:, :1]), powers], axis=1) / y
    sizes = np.linalg.norm(columns, axis=2, keepdims=True)
    design = (columns / sizes).transpose(0, 2, 1)
    weights = np.linalg.pinv(design) @ np.ones(len(y))
    squares = ((np.einsum("gnk,gk->gn", design, weights) - 1) ** 2).sum(axis=1)
    weights /= sizes[:, :, 0]
    squares[(weights[:, 1:] <= 0).any(axis=1)] = math.inf
    best = int(np.argmin(squares))
    if math.isinf(squares[best]) or (name == "batch" and weights[best, 0] <= 0):
        return None
    first, *others = weights[best].tolist()
    logs = [math.log(weight) for weight in others]
    if name == "batch":
        start: np.ndarray = np.array([math.log(first), others[0] / first])
        return start
    signed = np.abs(exponents[best]) if name == "joint" else exponents[best]
    start = np.array([first, *(value for pair in zip(logs, signed, strict=True) for value in pair)])
    return start
