"""The trained DeepCAM network with its preprocessing: snapshots as in the data files in, scores of the classes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common.training import benchmark
from deepcam.data import stats
from deepcam.data.dataset import Normalization
from deepcam.data.stats import Range
from deepcam.model import DeepLab
from deepcam.reference import CHANNELS, CLASSES


class Predictor(benchmark.Predictor):
    """The class of each grid point; see `common.training.benchmark.Predictor`."""

    @staticmethod
    def network(config: Any) -> nn.Module:
        """Return the network."""
        return DeepLab(config.model, len(config.data.channels))

    @staticmethod
    def describe(config: Any) -> dict[str, Any]:
        """Return the steps around the network, with the extremes of each channel from stats.h5."""
        data, extremes = config.data, stats.read_range(config.data.data_dir / stats.NAME)
        chosen = list(data.channels)
        return {
            "input": {
                "shape": ["batch", data.height, data.width, len(CHANNELS)],
                "type": "float32",
                "channels": [channel._asdict() for channel in CHANNELS],
            },
            "preprocessing": {
                "first": "the channels with these numbers",
                "channels": chosen,
                "then": "(x - minval) / (maxval - minval) of each",
                "minval": extremes.minval[chosen].tolist(),
                "maxval": extremes.maxval[chosen].tolist(),
            },
            "output": {
                "shape": ["batch", len(CLASSES), data.height, data.width],
                "type": "float32",
                "unit": "logit of each class; the greatest is the class of a grid point",
                "classes": list(CLASSES),
            },
        }

    def forward(self, snapshots_BHWC: Tensor | np.ndarray) -> Tensor:
        """Return the logits (B, K, H, W) of float32 snapshots (B, H, W, C) with all 16 channels, in their units."""
        x_BHWC = torch.as_tensor(snapshots_BHWC, device=self.device)
        if x_BHWC.dtype != torch.float32 or x_BHWC.dim() != 4 or x_BHWC.shape[-1] != len(CHANNELS):
            raise TypeError(
                f"snapshots are {x_BHWC.dtype} {tuple(x_BHWC.shape)}; expected float32 (batch, H, W, {len(CHANNELS)})"
            )
        facts = self.interface["preprocessing"]
        extremes = Range(*(np.array(facts[name], np.float64) for name in ("minval", "maxval")))
        normalize = Normalization(extremes, range(len(extremes.minval)), self.device)
        logits_BKHW: Tensor = self.model(normalize(x_BHWC[..., facts["channels"]])).float()
        return logits_BKHW
