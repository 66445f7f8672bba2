"""The trained network of New Benchmark with its preprocessing: fields in, predictions out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from common.training import benchmark
from torch import Tensor, nn

from newbenchmark import model
from newbenchmark.report import LABELS


class Predictor(benchmark.Predictor):
    """The diffusivity of plates; see `common.training.benchmark.Predictor`."""

    @staticmethod
    def network(config: Any) -> nn.Module:
        """Return the network."""
        return model.NewBenchmark(config.model)

    @staticmethod
    def describe(config: Any) -> dict[str, Any]:
        """Return what is around the network: nothing is done to a field before it."""
        side = config.data.side
        return {
            "input": {"shape": ["batch", side, side], "type": "float32", "unit": "temperature, scaled"},
            "preprocessing": {},
            "output": {"shape": ["batch", 1], "type": "float32", "unit": ", ".join(LABELS)},
        }

    def forward(self, fields_BHW: Tensor | np.ndarray) -> Tensor:
        """Return the predictions (B, 1) for float32 fields (B, H, W)."""
        predictions_B1: Tensor = self.model(torch.as_tensor(fields_BHW, device=self.device)).float()
        return predictions_B1
