"""DeepCAM: what rules in the manner of storm trackers find in the mini problem.

Thresholds on fields, regions of cells that touch, their length, and the distance between lows, as in TECA (Prabhat et
al. 2012, Procedia Comp. Sci. 9, 866) and Guan and Waliser (2015, JGR Atmos. 120, 12514). All numbers are chosen on the
training split; what is tried leaves out the numbers by which the labels were made.

Shapes: N snapshots, H latitude rows from south to north, W longitude columns, C channels; L lows of a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch

from baselines import Baseline
from common.data.manifest import NAME, read_manifest
from deepcam.data.dataset import Dataset
from deepcam.predictor import class_iou
from deepcam.reference import CHANNELS, CLASSES
from deepcam.settings import DataConfig
from deepcam.simulation.detection import CYCLONE, RIVER, find_regions
from deepcam.simulation.planet import Planet, separation_km

NUMBER: Final = {channel.name: number for number, channel in enumerate(CHANNELS)}
Grid = dict[str, tuple[Any, ...]]
"""What is tried for each number of a rule; the search begins in the middle."""
CYCLONES: Final[Grid] = {
    "latitude": (25, 32, 45, 55),
    "depth": (100, 250, 500, 800),
    "warmth": (0.2, 0.4, 0.8, 1.2),
    "cold": (0.2, 0.4, 0.6, 0.8, 1.2),
    "near": (700, 850, 1000, 1150, 1300, 1700, 2000),
    "wind": (10, 12, 14, 16, 19, 22),
    "reach": (300, 400, 600, 800),
    "eye": (0, 60, 80, 120, 160),
}
RIVERS: Final[Grid] = {
    "latitude": (5, 10, 20, 25),
    "poleward": (False, True),
    "surplus": (1, 2, 3, 5, 6, 8),
    "transport": (100, 140, 180, 220, 280, 340, 400),
    "length": (1100, 1400, 1600, 1800, 1900, 2100, 2300, 2600),
}
SEARCHED: Final = 128
"""Training snapshots on which the search compares what it tries."""


class Snapshots:
    """The snapshots of a split: x_NHWC, float32, and labels y_NHW, uint8.

    count: how many are read, evenly spread; default: all.
    """

    def __init__(self, folder: Path, split: str, count: int | None = None) -> None:
        facts = read_manifest(folder / NAME).facts
        shape = facts["sample_shape"]
        files = Dataset(folder / split, DataConfig(data_dir=folder, height=shape[0], width=shape[1]))
        chosen = range(0, len(files), max(1, len(files) // (count or len(files))))
        self.x_NHWC = np.empty((len(chosen), *shape), np.float32)
        self.y_NHW = np.empty((len(chosen), *shape[:2]), np.uint8)
        for number, index in enumerate(chosen):
            files.read_into(index, (self.x_NHWC[number], self.y_NHW[number]))
        self.planet = Planet(shape[0], shape[1], facts["size"])
        tmq, u, v, pressure, kelvin = (
            self.x_NHWC[..., NUMBER[name]] for name in ("TMQ", "U850", "V850", "PSL", "T500")
        )
        self.speed_NHW = np.hypot(u, v)
        self.transport_NHW = tmq * self.speed_NHW
        self.poleward_NHW = tmq * v * self.planet.sign
        self.surplus_NHW = tmq - np.median(tmq, axis=2, keepdims=True)
        self.warmth_NHW, self.depth_NHW = kelvin - average_around(kelvin), average_around(pressure) - pressure
        lowest_NHW = pressure
        for axis in (1, 2):
            lowest_NHW = np.minimum.reduce([np.roll(lowest_NHW, shift, axis) for shift in range(-2, 3)])
        self.lows = [np.nonzero(low_HW) for low_HW in pressure == lowest_NHW]

    def score_guess(self, guess_NHW: np.ndarray) -> np.ndarray:
        """Return the IoU of each class, mean of all snapshots; their mean is the benchmark's quality."""
        return class_iou(torch.from_numpy(guess_NHW), torch.from_numpy(self.y_NHW)).mean(0).numpy()


def average_around(field_NHW: np.ndarray) -> np.ndarray:
    """Return the mean of the 11 x 11 cells around each."""
    for axis in (1, 2):
        field_NHW = np.mean([np.roll(field_NHW, shift, axis) for shift in range(-5, 6)], axis=0)
    return field_NHW


# -- rules ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CycloneRule:
    """The winds around warm lows, and their eyes, where no cold low is near."""

    label: ClassVar[int] = CYCLONE
    latitude: float  # degrees, at most
    depth: float  # Pa, of the pressure below its surroundings
    warmth: float  # K, above the surroundings at 500 hPa
    cold: float  # K, below the surroundings: of a cold low
    near: float  # km, to a cold low
    wind: float  # m/s
    reach: float  # km, of the winds
    eye: float  # km

    def mark_class(self, snapshots: Snapshots, number: int) -> np.ndarray:
        """Return where the class is in a snapshot, bool (H, W)."""
        planet, lows = snapshots.planet, snapshots.lows[number]
        lat_L, lon_L = planet.lat[lows[0], 0], planet.lon[0, lows[1]]
        warmth_L, depth_L = snapshots.warmth_NHW[number][lows], snapshots.depth_NHW[number][lows]
        apart_LL = separation_km(planet.radius_m, lat_L[:, None], lon_L[:, None], lat_L, lon_L)
        hybrid_L = ((apart_LL <= self.near) & (warmth_L <= -self.cold)).any(1)
        tropical_L = (abs(lat_L) <= self.latitude) & (depth_L >= self.depth) & (warmth_L >= self.warmth) & ~hybrid_L
        windy_HW = snapshots.speed_NHW[number] >= self.wind
        mask_HW = np.zeros(windy_HW.shape, bool)
        for lat, lon in zip(lat_L[tropical_L], lon_L[tropical_L], strict=True):
            distance_HW = planet.distance_km(lat, lon)
            mask_HW |= ((distance_HW <= self.reach) & windy_HW) | (distance_HW <= self.eye)
        return mask_HW


@dataclass(frozen=True)
class RiverRule:
    """Long regions outside the tropics where much vapour flows."""

    label: ClassVar[int] = RIVER
    latitude: float  # degrees, at least
    poleward: bool  # whether only the flow towards the pole counts
    surplus: float  # kg/m², of vapour above the median of the parallel
    transport: float  # kg/m/s
    length: float  # km, largest distance between two cells

    def mark_class(self, snapshots: Snapshots, number: int) -> np.ndarray:
        """Return where the class is in a snapshot, bool (H, W)."""
        planet = snapshots.planet
        flow_HW = (snapshots.poleward_NHW if self.poleward else snapshots.transport_NHW)[number]
        moist_HW = (snapshots.surplus_NHW[number] >= self.surplus) & (abs(planet.lat) >= self.latitude)
        region_HW, count = find_regions(moist_HW & (flow_HW >= self.transport))
        inside = np.nonzero(region_HW >= 0)
        order = np.argsort(region_HW[inside], kind="stable")
        ends = np.cumsum(np.bincount(region_HW[inside], minlength=count))
        long = np.zeros(count + 1, bool)  # the last is outside
        for region, cells in enumerate(np.split(order, ends[:-1]) if count else ()):
            if len(cells) >= 10:  # smaller regions have no length
                long[region] = measure_length(planet, inside[0][cells], inside[1][cells]) >= self.length
        return long[region_HW]


def measure_length(planet: Planet, rows: np.ndarray, columns: np.ndarray) -> float:
    """Return the largest distance between two of about 60 of the cells, in km."""
    step = max(1, len(rows) // 60)
    lat, lon = np.radians(planet.lat[rows[::step], 0]), np.radians(planet.lon[0, columns[::step]])
    points = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    return float(planet.radius_m / 1e3 * np.arccos(np.clip((points @ points.T).min(), -1, 1)))


def choose_rule(train: Snapshots, kind: type[CycloneRule] | type[RiverRule], grid: Grid) -> CycloneRule | RiverRule:
    """Return the rule with the best IoU of its class that changes of a number at a time lead to."""
    labels_NHW = train.y_NHW == kind.label

    def rate_rule(rule: CycloneRule | RiverRule) -> float:
        guess_NHW = np.stack([rule.mark_class(train, number) for number in range(len(labels_NHW))])
        either_N = np.maximum((guess_NHW | labels_NHW).sum((1, 2)), 1)
        return float(((guess_NHW & labels_NHW).sum((1, 2)) / either_N).mean())

    rule = kind(**{name: values[len(values) // 2] for name, values in grid.items()})
    best, before = rate_rule(rule), -1.0
    while best > before:
        before = best
        for name, values in grid.items():
            for changed in (replace(rule, **{name: value}) for value in values):
                if changed != rule and (quality := rate_rule(changed)) > best:
                    best, rule = quality, changed
    return rule


# -- the baselines -------------------------------------------------------------------------------------------


def fit_baselines(folder: Path) -> Iterator[Baseline]:
    """Yield the baselines of a dataset."""
    train, judged = Snapshots(folder, "train", SEARCHED), Snapshots(folder, "validation")

    def rate_rules(name: str, note: str, *rules: CycloneRule | RiverRule) -> Baseline:
        guess_NHW = np.zeros_like(judged.y_NHW)
        for rule in rules:
            for number, guess_HW in enumerate(guess_NHW):
                guess_HW[rule.mark_class(judged, number)] = rule.label
        scores = judged.score_guess(guess_NHW)
        details = {"by_class": dict(zip(CLASSES, scores.tolist(), strict=True))}
        return Baseline(
            name, float(scores.mean()), note, details | {type(rule).__name__: asdict(rule) for rule in rules}
        )

    yield rate_rules("background", "background everywhere")
    for name, note, rivers, cyclones in (
        ("thresholds", "moist flow, winds around warm lows", RIVERS | {"length": (0,)}, CYCLONES | {"near": (0,)}),
        ("regions and distances", "the same where regions are long and no cold low is near", RIVERS, CYCLONES),
    ):
        yield rate_rules(name, note, choose_rule(train, RiverRule, rivers), choose_rule(train, CycloneRule, cyclones))
