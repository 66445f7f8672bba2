"""`python -m deepcam.baselines`: what rules and small networks find that see a pixel and at most a few near it.

Shapes: N snapshots, H latitude rows from south to north, W longitude columns, C channels; P pixels of any
snapshots, F numbers that describe one.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from common.commands import baselines
from common.commands.baselines import Baseline, Baselines, Say
from common.data.split import DatasetError
from common.datasets.manifest import NAME, read_manifest
from deepcam.data.dataset import Dataset
from deepcam.metrics import class_iou
from deepcam.reference import CHANNELS, CLASS_WEIGHTS, CLASSES, MINIS
from deepcam.settings import DataConfig
from deepcam.synthesize import SYNTHESIS

CYCLONE, RIVER = 1, 2
Rule = Callable[["Snapshots", float, float], np.ndarray]
NUMBER: Final = {channel.name: number for number, channel in enumerate(CHANNELS)}
STORMY, TROPICS = 40, 15  # degrees: no cyclone is poleward of one, no river equatorward of the other
WIND, PRESSURE = np.arange(12.0, 27.0, 2), np.arange(98_000.0, 101_600.0, 400)  # m/s and Pa, tried for cyclones
SURPLUS, TRANSPORT = np.arange(0.0, 15.0, 2), np.arange(100.0, 750.0, 75)  # kg/m² and kg/m/s, tried for rivers
NEIGHBOURS: Final = tuple((rows, columns) for d in (1, 3, 6) for rows, columns in ((d, 0), (-d, 0), (0, d), (0, -d)))
SEEN_NEARBY: Final = [NUMBER[name] for name in ("TMQ", "U850", "V850", "PSL")]
HIDDEN, STEPS, BATCH, RATE = 64, 3_000, 8_192, 5e-3


class Snapshots:
    """The snapshots of a split: x_NHWC, float32, and labels y_NHW, uint8."""

    def __init__(self, folder: Path, split: str) -> None:
        shape = read_manifest(folder / NAME).facts["sample_shape"]
        if len(shape) != 3 or shape[2] != len(CHANNELS):
            raise DatasetError(f"{folder / NAME}: sample_shape is {shape}; expected {len(CHANNELS)} channels")
        files = Dataset(folder / split, DataConfig(data_dir=folder, height=shape[0], width=shape[1]))
        self.x_NHWC = np.empty((len(files), *shape), np.float32)
        self.y_NHW = np.empty((len(files), *shape[:2]), np.uint8)
        for number in range(len(files)):
            files.read_into(number, (self.x_NHWC[number], self.y_NHW[number]))
        self.latitude_H = -90 + (np.arange(shape[0], dtype=np.float32) + 0.5) * (180 / shape[0])
        self.median_NHC = np.stack([np.median(x_HWC, axis=1) for x_HWC in self.x_NHWC])
        """Of each parallel."""

    def score_guess(self, guess_NHW: np.ndarray) -> np.ndarray:
        """Return the IoU of each class, mean of all snapshots; their mean is the benchmark's quality."""
        scores: np.ndarray = class_iou(torch.from_numpy(guess_NHW), torch.from_numpy(self.y_NHW)).mean(0).numpy()
        return scores


def fit_baselines(folder: Path, say: Say) -> Iterator[Baseline]:
    """Yield the baselines of a dataset."""
    say("reading the snapshots")
    train, judged = Snapshots(folder, "train"), Snapshots(folder, "validation")

    def rate_guess(name: str, guess_NHW: np.ndarray, note: str, **details: float) -> Baseline:
        scores = judged.score_guess(guess_NHW)
        by_class = dict(zip(CLASSES, scores.tolist(), strict=True))
        return Baseline(name, float(scores.mean()), note, {"by_class": by_class, **details})

    guess_NHW = np.zeros_like(judged.y_NHW)
    yield rate_guess("background", guess_NHW, "background everywhere")
    say("choosing thresholds")
    wind, pressure = choose_thresholds(train, mark_cyclones, CYCLONE, itertools.product(WIND, PRESSURE))
    surplus, transport = choose_thresholds(train, mark_rivers, RIVER, itertools.product(SURPLUS, TRANSPORT))
    guess_NHW[mark_rivers(judged, surplus, transport)] = RIVER
    guess_NHW[mark_cyclones(judged, wind, pressure)] = CYCLONE
    note = "rules for cyclones (wind, pressure, latitude) and rivers (vapour, its transport, latitude)"
    details = {"wind": wind, "pressure": pressure, "surplus": surplus, "transport": transport}
    yield rate_guess("thresholds", guess_NHW, note, **details)
    for nearby, weights in itertools.product(((), NEIGHBOURS), ((1.0, 1.0, 1.0), CLASS_WEIGHTS)):
        name = f"MLP{' of neighbours' if nearby else ''}{', weighted' if weights == CLASS_WEIGHTS else ''}"
        note = f"dense network of a pixel{f' and {len(nearby)} up to 6 away' if nearby else ''}"
        say(f"fitting {name}")
        yield rate_guess(name, PixelNetwork(train, nearby, weights).predict_classes(judged), note)


# -- rules ---------------------------------------------------------------------------------------------------


def mark_cyclones(snapshots: Snapshots, wind: float, pressure: float) -> np.ndarray:
    """Return where a gale blows at low pressure outside the storm tracks (N, H, W)."""
    u, v, psl = (snapshots.x_NHWC[..., NUMBER[name]] for name in ("U850", "V850", "PSL"))
    near = abs(snapshots.latitude_H) <= STORMY
    mask: np.ndarray = (np.hypot(u, v) >= wind) & (psl <= pressure) & near[:, None]
    return mask


def mark_rivers(snapshots: Snapshots, surplus: float, transport: float) -> np.ndarray:
    """Return where more vapour than the parallel's median moves fast outside the tropics (N, H, W)."""
    tmq, u, v = (snapshots.x_NHWC[..., NUMBER[name]] for name in ("TMQ", "U850", "V850"))
    anomaly = tmq - snapshots.median_NHC[..., None, NUMBER["TMQ"]]
    far = abs(snapshots.latitude_H) >= TROPICS
    mask: np.ndarray = (anomaly >= surplus) & (tmq * np.hypot(u, v) >= transport) & far[:, None]
    return mask


def choose_thresholds(
    train: Snapshots, rule: Rule, label: int, tried: Iterable[tuple[float, float]]
) -> tuple[float, float]:
    """Return the thresholds of a rule with the best IoU of its class in the training snapshots."""
    wanted_NHW = train.y_NHW == label

    def rate_thresholds(thresholds: tuple[float, float]) -> float:
        found_NHW = rule(train, *thresholds)
        either_N = np.maximum((found_NHW | wanted_NHW).sum((1, 2)), 1)
        return float(((found_NHW & wanted_NHW).sum((1, 2)) / either_N).mean())

    first, second = max(tried, key=rate_thresholds)
    return float(first), float(second)


# -- small networks ------------------------------------------------------------------------------------------


class PixelNetwork:
    """A dense network that sees a pixel, and a few channels of some pixels near it, and not the rest of the snapshot.

    nearby: rows and columns from a pixel to its neighbours. weights: of the classes in the loss.
    """

    def __init__(self, train: Snapshots, nearby: Sequence[tuple[int, int]], weights: Sequence[float]) -> None:
        self.nearby = nearby
        self.mean_C, self.scale_C = train.x_NHWC.mean((0, 1, 2)), train.x_NHWC.std((0, 1, 2))
        features = 2 * len(CHANNELS) + 1 + len(nearby) * len(SEEN_NEARBY)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            hidden = [nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
            self.network = nn.Sequential(*hidden, nn.Linear(HIDDEN, len(CLASSES)))
        optimizer = torch.optim.Adam(self.network.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, STEPS)
        loss = nn.CrossEntropyLoss(torch.tensor(weights))
        rng = np.random.default_rng(0)
        for _ in range(STEPS):
            n, row, column = rng.integers(0, train.y_NHW.shape, (BATCH, 3)).T
            optimizer.zero_grad()
            labels = torch.from_numpy(train.y_NHW[n, row, column]).long()
            loss(self.network(self.gather_features(train, n, row, column)), labels).backward()
            optimizer.step()
            schedule.step()

    def gather_features(self, snapshots: Snapshots, n: np.ndarray, row: np.ndarray, column: np.ndarray) -> Tensor:
        """Return the network's input for pixels, float32 (P, F).

        These are values, anomalies from the parallel's median, latitude, and values nearby.
        """
        height, width = snapshots.y_NHW.shape[1:]
        x_PC = snapshots.x_NHWC[n, row, column]
        anomalies_PC = (x_PC - snapshots.median_NHC[n, row]) / self.scale_C
        parts = [(x_PC - self.mean_C) / self.scale_C, anomalies_PC, snapshots.latitude_H[row, None] / 90]
        for rows, columns in self.nearby:
            cells = n, np.clip(row + rows, 0, height - 1), (column + columns) % width
            parts.append(((snapshots.x_NHWC[cells] - self.mean_C) / self.scale_C)[:, SEEN_NEARBY])
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def predict_classes(self, snapshots: Snapshots) -> np.ndarray:
        """Return the most probable class of each pixel, uint8 (N, H, W)."""
        count, *sides = snapshots.y_NHW.shape
        row, column = np.indices(sides).reshape(2, -1)
        with torch.inference_mode():
            guesses = [
                self.network(self.gather_features(snapshots, np.full_like(row, n), row, column)).argmax(1)
                for n in range(count)
            ]
        classes: np.ndarray = torch.stack(guesses).view(count, *sides).to(torch.uint8).numpy()
        return classes


BASELINES: Final = Baselines("deepcam", MINIS, fit_baselines, SYNTHESIS.provide_data)
main = partial(baselines.main, BASELINES)

if __name__ == "__main__":
    sys.exit(main())
