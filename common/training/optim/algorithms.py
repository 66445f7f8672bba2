"""The optimizers that torch does not have: SGD with Keras's momentum, LAMB, and Muon."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from common.spatial import shards


class KerasSGD(Optimizer):
    """SGD with the rate inside the velocity: v = momentum * v - lr * g, then w = w + v.

    torch.optim.SGD has the rate outside (v = momentum * v + g, w = w - lr * v). At a constant rate both are equal; when
    the rate changes, torch's also rescales the past velocity. lr may be a tensor, for CUDA graphs.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float | Tensor, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            with torch.no_grad():
                parameters, gradients = _with_gradients(group)
                velocities = _state(self, "velocity", parameters)
                torch._foreach_mul_(velocities, group["momentum"])
                torch._foreach_sub_(velocities, torch._foreach_mul(gradients, group["lr"]))
                torch._foreach_add_(parameters, velocities)


class Lamb(Optimizer):
    """Adam with each tensor's step scaled to the norm of its weights (You et al. 2020, arXiv:1904.00962, algorithm 2).

    As in apex's FusedLAMB, the global gradient norm is first clipped to max_grad_norm, and without weight decay the
    step is Adam's. Moments are corrected for bias.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float | Tensor, **options: Any) -> None:
        """Take betas, eps, weight_decay and max_grad_norm of `OptimConfig` as options."""
        super().__init__(parameters, {"lr": lr, **options})
        for group in self.param_groups:
            group["step"] = torch.zeros((), dtype=torch.float32, device=group["params"][0].device)

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        norm = shards.gradient_norm(parameter for group in self.param_groups for parameter in group["params"])
        for group in self.param_groups:
            with torch.no_grad():
                parameters, gradients = _with_gradients(group)
                group["step"].add_(1)
                steps = self._adam_steps(group, parameters, gradients, norm)
                rates = group["lr"]
                if group["weight_decay"]:
                    torch._foreach_add_(steps, parameters, alpha=group["weight_decay"])
                    rates = list((_trust_ratios(parameters, steps) * group["lr"]).unbind())
                torch._foreach_mul_(steps, rates)
                torch._foreach_sub_(parameters, steps)

    def _adam_steps(
        self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor], norm: Tensor
    ) -> list[Tensor]:
        """Update the moments; return mean / (sqrt(mean of squares) + eps), both corrected for bias."""
        beta1, beta2 = group["betas"]
        # That is Adam's step from weights of 0 at a rate of -1, for which torch has a kernel.
        steps = [torch.zeros_like(parameter) for parameter in parameters]
        torch._fused_adam_(
            steps,
            gradients,
            _state(self, "mean", parameters),
            _state(self, "square", parameters),
            [],
            [group["step"]] * len(steps),
            lr=-1.0,
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=(norm / group["max_grad_norm"]).clamp(min=1).float(),
        )
        return steps


class Muon(Optimizer):
    """SGD with orthogonalised momentum: each weight matrix moves equally far along all singular directions.

    A convolution kernel counts as a matrix with one row per output channel, a bias as one row.
    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; Bernstein and Newhouse 2024, arXiv:2409.20325.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float | Tensor, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            with torch.no_grad():
                parameters, gradients = _with_gradients(group)
                sums = _state(self, "sum", parameters)
                torch._foreach_mul_(sums, group["momentum"])
                torch._foreach_add_(sums, gradients)
                ahead = torch._foreach_add(gradients, sums, alpha=group["momentum"])  # Nesterov momentum
                for pairs in _by_matrix(parameters, ahead).values():
                    moves = orthogonal(torch.stack([matrix for _, matrix in pairs])) * group["lr"]
                    for (parameter, _), move in zip(pairs, moves, strict=True):
                        parameter.sub_(shards.take_own(parameter, move).reshape(parameter.shape))


NEWTON_SCHULZ: Final = (3.4445, -4.7750, 2.0315)
"""Coefficients that bring singular values close to 1 in few iterations, but not exactly to 1 (Jordan et al. 2024)."""


def orthogonal(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Return each matrix with its singular values set to about 1 (0.7 to 1.2), times sqrt(rows / columns) if tall.

    matrices: (..., rows, columns); a batch of one shape is faster than one at a time.
    """
    a, b, c = NEWTON_SCHULZ
    rows, columns = matrices.shape[-2:]
    tall = rows > columns
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + torch.finfo(x.dtype).tiny)
    for _ in range(iterations):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT * math.sqrt(rows / columns) if tall else x


def _by_matrix(parameters: list[Tensor], moves: list[Tensor]) -> dict[torch.Size, list[tuple[Tensor, Tensor]]]:
    """Return the parameters with their moves as matrices, those of shards whole, grouped by the shape of the matrix."""
    groups: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
    for parameter, part in zip(parameters, moves, strict=True):
        move = shards.gather_whole(parameter, part)
        matrix = move.reshape(1 if move.ndim < 2 else len(move), -1)
        groups.setdefault(matrix.shape, []).append((parameter, matrix))
    return groups


def _trust_ratios(parameters: list[Tensor], steps: list[Tensor]) -> Tensor:
    """Return |w| / |step| of each tensor, or 1 where either is 0."""
    ratios = shards.tensor_norms(parameters, parameters) / shards.tensor_norms(parameters, steps)
    return torch.where(ratios.isfinite() & (ratios > 0), ratios, 1.0)


def _with_gradients(group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters of a group that have a gradient, and their gradients."""
    parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
    return parameters, [parameter.grad for parameter in parameters]


def _state(optimizer: Optimizer, name: str, parameters: list[Tensor]) -> list[Tensor]:
    """Return the optimizer's state tensor of this name for each parameter, zeros at first."""
    states = [optimizer.state[parameter] for parameter in parameters]
    for state, parameter in zip(states, parameters, strict=True):
        if name not in state:
            state[name] = torch.zeros_like(parameter)
    return [state[name] for state in states]
