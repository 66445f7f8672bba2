"""The recipes of synthetic weather, and the snapshots by them: what is in the air at one moment, and its labels.

A recipe has the presets, the names of snapshots, and the simulation of each from its seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

import numpy as np

from deepcam.reference import HEIGHT, WIDTH
from deepcam.simulation.detection import CYCLONE, RIVER, label_weather
from deepcam.simulation.planet import Planet, Plume, Sky, Storm, separation_km
from deepcam.split import SPLITS

FIRST_YEAR: Final = 1980
STEPS: Final = 8  # a day
STRIDE_DAYS: Final = 79  # shares no factor with DAYS: a year visits each day once, and 5 snapshots all seasons

build_planet: Final = lru_cache(maxsize=1)(Planet)


@dataclass(frozen=True)
class Recipe:
    """The weather of a dataset: cells of the grid, the Earth's radius over the planet's, and snapshots per split."""

    height: int
    width: int
    size: float
    train: int
    validation: int
    test: int

    def __post_init__(self) -> None:
        Planet(self.height, self.width, self.size)  # which raises UsageError

    @property
    def samples(self) -> dict[str, int]:
        """Snapshots by split."""
        return {split: getattr(self, split) for split in SPLITS}

    def simulate_snapshot(self, seed: int, split: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return channels, float32 (height, width, 16), and labels, uint8 (height, width), of snapshot i of a split."""
        rng = np.random.default_rng([seed, split, i])
        return simulate(build_planet(self.height, self.width, self.size), day_of(i), rng)


# The mini problem is fixed: any change gives other data and invalidates all reference runs.
PRESETS: Final = {
    "mini2": Recipe(96, 144, size=3.0, train=512, validation=64, test=64),
    "full-size": Recipe(HEIGHT, WIDTH, size=1.0, train=8, validation=1, test=1),
}


def day_of(i: int) -> int:
    """Return the day of the year, from 1, of snapshot i of a split."""
    return i * STRIDE_DAYS % DAYS + 1


def name_of(split: int, i: int) -> str:
    """Return the file of snapshot i of a split. Each split has its own simulation number, so that names are unique."""
    day = date(1981, 1, 1) + timedelta(days=day_of(i) - 1)  # not a leap year
    return f"{SPLITS[split]}/data-{FIRST_YEAR + i // DAYS:04d}-{day:%m-%d}-{i % STEPS:02d}-{split + 1}.h5"


WARMEST_DAY: Final = 192  # of the year in the north, three weeks after the solstice
DAYS: Final = 365  # CAM's calendar knows no leap years
ATTEMPTS: Final = 100
TRIES: Final = 20  # to find room for one thing
BESIDE_KM: Final = 1050, 1300  # from a hybrid storm to the cold low beside it
APART_KM: Final = 1700  # a cold low is farther than this from cyclones


def compute_season(day: int) -> float:
    """How warm the north is on a day of the year (1 to 365): from -1 to 1."""
    return float(np.cos(2 * np.pi * (day - WARMEST_DAY) / DAYS))


def simulate(planet: Planet, day: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A snapshot: 16 channels (height, width, 16), float32, and the classes (height, width), uint8.

    Weather without a cyclone or a river is drawn again, in the mini problem one in 25: real snapshots have both,
    and a class that is nowhere would count as found.
    """
    for _ in range(ATTEMPTS):
        fields = Forecast(planet, compute_season(day), rng).fields()
        labels = label_weather(planet, fields)
        if (labels == CYCLONE).any() and (labels == RIVER).any():
            return fields, labels
    raise RuntimeError(f"no weather with a cyclone and a river in {ATTEMPTS} attempts")


class Forecast:
    """Puts things into a sky at random places, apart from each other."""

    def __init__(self, planet: Planet, season: float, rng: np.random.Generator) -> None:
        self.planet, self.season, self.rng = planet, season, rng
        self.sky = Sky(planet, season, rng)
        self.cyclones: list[tuple[int, int]] = []
        self.occupied: list[tuple[np.ndarray, np.ndarray, float]] = []

    def fields(self) -> np.ndarray:
        """The 16 channels of waves, cyclones, rivers, and what resembles them."""
        rng, share = self.rng, 1 / self.planet.size  # there is less room on a small planet
        for draw, kind, number in (
            (self._add_storm, "cyclone", 1 + rng.poisson(0.75)),
            (self._add_storm, "hybrid", 1 + rng.poisson(0.75)),
            (self._add_plume, "river", 1 + rng.poisson(4 * share**1.5)),
            (self._add_plume, "broken river", 1 + rng.poisson(4 * share**1.5)),
            (self._add_storm, "cold low", rng.poisson(0.5 * share)),
            (self._add_storm, "weak low", rng.poisson(2 * share)),
            (self._add_plume, "calm plume", rng.poisson(3 * share)),
        ):
            for _ in range(number):
                draw(kind)
        return self.sky.fields()

    def _add_storm(self, kind: str) -> None:
        """A storm of this kind is in the sky if there was room; those of the tropics need the sea.

        A hybrid is like a cyclone, but has a cold low beside it, to the west and the pole. No cyclone has one nearby.
        """
        cold = kind == "cold low"
        for _ in range(TRIES):
            lat, lon = self._draw_spot(26, 58, 0) if cold else self._draw_spot(10, 28, 0.35 * self.season)
            row = int((lat + 90) / 180 * self.planet.height)
            column = int(lon / 360 * self.planet.width)
            kinds, spots = [kind], [(lat, lon)]
            if kind == "hybrid":
                kinds.append("cold low")
                spots.append(self._draw_beside(lat, lon))
            lats, lons = np.array(spots).T
            allowed = cold or not self.planet.land[row, column]
            allowed = allowed and (kinds[-1] != "cold low" or self._is_alone(*spots[-1]))
            if allowed and self._take_room(lats, lons, 450):
                for name, spot in zip(kinds, spots, strict=True):
                    self.sky.add_storm(self._draw_storm(name, *spot))
                if kind == "cyclone":
                    self.cyclones.append((row, column))
                return

    def _draw_beside(self, lat: float, lon: float) -> tuple[float, float]:
        """A random place to the west and the pole, as of a trough that comes near."""
        degrees = self.rng.uniform(*BESIDE_KM) / self.planet.km_per_degree
        angle = self.rng.uniform(0.5, 1.1)
        other = lat + np.sign(lat) * degrees * np.cos(angle)
        westward = degrees * np.sin(angle) / np.cos(np.radians((lat + other) / 2))
        return other, (lon - westward) % 360

    def _is_alone(self, lat: float, lon: float) -> bool:
        """Whether a place is far from all cyclones."""
        distance = self.planet.distance_km(lat, lon)
        return all(distance[row, column] > APART_KM for row, column in self.cyclones)

    def _draw_storm(self, kind: str, lat: float, lon: float) -> Storm:
        rng = self.rng
        radius, shape = rng.uniform(50, 90), rng.uniform(1.2, 1.7)
        if kind == "cold low":
            deficit, core = rng.uniform(2500, 5000), -rng.uniform(4, 8)
            return Storm(lat, lon, deficit, 1.5 * radius, shape, core, -0.2 * core, 0.8, 2e-10 * deficit)
        # The warmth makes the low fade with height: about 8 m of 1000 hPa per hPa.
        deficit = rng.uniform(200, 600) if kind == "weak low" else rng.uniform(2000, 6000)
        return Storm(lat, lon, deficit, radius, shape, 2e-3 * deficit, 1.8e-3 * deficit, 0.97, 8e-10 * deficit)

    def _add_plume(self, kind: str) -> None:
        """A plume of this kind is in the sky if there was room."""
        rng = self.rng
        longest = min(4200, 100 * self.planet.km_per_degree)  # to go around a small planet is too far
        for _ in range(TRIES):
            length = rng.uniform(3000, longest)
            start, end = rng.uniform(20, 28), rng.uniform(45, 60)
            slope = np.arcsin(min(0.85, (end - start) * self.planet.km_per_degree / length)) * rng.uniform(0.7, 1)
            middle = start + length / 2 * np.sin(slope) / self.planet.km_per_degree
            plume = Plume(
                lat=middle * rng.choice((-1, 1)),
                lon=rng.uniform(0, 360),
                length_km=length,
                width_km=rng.uniform(150, 220),
                slope=slope,
                bow_km=rng.uniform(-0.12, 0.15) * np.tan(slope) * length,
                wind=rng.uniform(-10, 0) if kind == "calm plume" else rng.uniform(27, 34),
                humidity=rng.uniform(0.9, 0.98),
                rain=rng.uniform(0.5e-7, 2e-7),
                gap_km=rng.uniform(600, 800) if kind == "broken river" else 0,
            )
            if self._take_room(*plume.axis(self.planet), 350):
                self.sky.add_plume(plume)
                return

    def _draw_spot(self, low: float, high: float, bias: float) -> tuple[float, float]:
        """A random place between two latitudes of either hemisphere, of the northern one more often by `bias`."""
        side = 1 if self.rng.random() < 0.5 + bias else -1
        return side * self.rng.uniform(low, high), self.rng.uniform(0, 360)

    def _take_room(self, lat: np.ndarray, lon: np.ndarray, reach_km: float) -> bool:
        """Whether these points (n,) are apart from all that is there; if so they are taken now."""
        for other_lat, other_lon, other_km in self.occupied:
            apart = separation_km(self.planet.radius_m, lat[:, None], lon[:, None], other_lat, other_lon)
            if apart.min() < reach_km + other_km:
                return False
        self.occupied.append((lat, lon, reach_km))
        return True
