"""Predict cosmological parameters with saved weights, and report how good the predictions are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from common.data import manifest
from common.reference import FULL, MINI, MINI_2
from common.training import benchmark
from common.training.predictions import NumberReport, Scale, number_columns
from cosmoflow.data.dataset import scaled_input
from cosmoflow.model import OUTPUTS, CosmoFlow
from cosmoflow.simulation import DRIFT, ORIGINAL, REDSHIFTS, WIDE

PARAMETERS: Final = ("Omega_m", "sigma_8", "n_s", "H_0")
PARAMETERS_OF: Final = {MINI_2: ("sigma_8", "drift_x", "drift_y", "drift_z")}
"""By variant, where they are others."""
PRIORS: Final = {FULL: ORIGINAL, MINI: WIDE, MINI_2: DRIFT}
"""By variant: what labels of -1 and 1 stand for."""
UNITS: Final = {"h_0": "km/s/Mpc", "drift_x": "Mpc/h", "drift_y": "Mpc/h", "drift_z": "Mpc/h"}
"""Of the parameters that have one."""


class Report(NumberReport):
    """Errors of the four parameters, each in half the range of its prior."""

    labels = PARAMETERS
    columns = number_columns(PARAMETERS, "labels (the mini problem has others), -1 and 1 at the ends of their ranges")

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in this variant of the problem."""
        return PARAMETERS_OF.get(self.variant, PARAMETERS)

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The physical values of the labels, by the prior of this variant of the problem."""
        if self.variant not in PRIORS:
            return super().scales
        return tuple(
            Scale((low + high) / 2, (high - low) / 2, UNITS.get(name, ""))
            for name, (low, high) in PRIORS[self.variant].ranges.items()
        )


class Predictor(benchmark.Predictor):
    """The four parameters of universes; see `common.training.benchmark.Predictor`."""

    @staticmethod
    def network(config: Any) -> nn.Module:
        """Return the network, computed by torch's own operations."""
        return CosmoFlow(replace(config.model, kernels="torch"), config.data.sample_shape)

    @staticmethod
    def describe(config: Any) -> dict[str, Any]:
        """Return the steps around the network, with the ranges of the labels where the data state them."""
        data = config.data
        return {
            "input": {
                "shape": ["batch", *data.sample_shape],
                "type": "int16",
                "unit": "particles per voxel",
                "channels": [f"redshift {redshift:g}" for redshift in REDSHIFTS],
            },
            "preprocessing": {
                "first": "log(1 + counts)" if data.apply_log else "counts / mean of the sample's counts",
                "then": "(x - shift) / scale",
                "shift": data.shift,
                "scale": data.scale,
            },
            "output": {
                "shape": ["batch", OUTPUTS],
                "type": "float32",
                "unit": "label: -1 and 1 are the ends of the parameter's range",
                "names": list(PARAMETERS_OF.get(config.variant, PARAMETERS)),
                "ranges": _label_ranges(config),
            },
        }

    def forward(self, counts_BDHWC: Tensor | np.ndarray) -> Tensor:
        """Return the labels (B, P) of int16 counts (B, D, H, W, C)."""
        x_BDHWC = torch.as_tensor(counts_BDHWC, device=self.device)
        if x_BDHWC.dtype != torch.int16 or x_BDHWC.dim() != 5:
            raise TypeError(f"counts are {x_BDHWC.dtype} {tuple(x_BDHWC.shape)}; expected int16 (batch, D, H, W, C)")
        return self.model(scaled_input(x_BDHWC, self.config.data)).float()


def _label_ranges(config: Any) -> Any:
    """Return the ends of each parameter's range, in the order of the labels; None if the data do not say them."""
    if config.variant == FULL:
        return list(ORIGINAL.ranges.values())
    path = config.data.data_dir / manifest.NAME
    prior = manifest.read_manifest(path).facts.get("prior") if path.exists() else None
    return list(prior.values()) if isinstance(prior, dict) else None
