"""A planet for synthetic weather: its geography, the sphere it is drawn on, and the physics of an air column.

Latitudes and longitudes are in degrees, rows run from south to north as in CAM; everything else is in SI units unless
a name says otherwise. Fields have the shape (height, width).
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

EARTH_RADIUS_M: Final = 6.371e6
ROTATION_PER_S: Final = 7.292e-5
GRAVITY: Final = 9.80665  # m/s²
GAS_CONSTANT: Final = 287.04  # of dry air, J/kg/K
LAPSE_RATE: Final = 6.5e-3  # K/m, of the standard atmosphere
AIR_DENSITY: Final = 1.15  # kg/m³, between the surface and 850 hPa
COARSEST_KM: Final = 190.0
SMALLEST: Final = 3.5
GEOGRAPHY_SEED: Final = 1998
GEOGRAPHY_WAVES: Final = 40
VAPOUR_SCALE_M: Final = 2600.0  # over which vapour thins out
LAND_FRACTION: Final = 0.3


class Planet:
    """A sphere `size` times smaller than the Earth that turns as fast, on a grid of `height` x `width` cells.

    Storms keep their kilometres, so that a coarse grid of a small planet resolves them as a fine grid of a large one.
    The continents are the same for every grid and size. ValueError for a grid or a size that makes no planet.
    """

    def __init__(self, height: int, width: int, size: float = 1.0) -> None:
        if not 1 <= size <= SMALLEST:
            raise ValueError(f"size must be from 1 (the Earth) to {SMALLEST:g} (rivers still have room), not {size:g}")
        cell_km = 2e-3 * np.pi * EARTH_RADIUS_M / size / min(2 * height, width)
        if width % 2 or cell_km > COARSEST_KM:
            raise ValueError(
                f"need an even width and cells of at most {COARSEST_KM:g} km, to see storms, not {height} x {width} "
                f"cells of {cell_km:.0f} km: give more cells, or a larger size"
            )
        self.height, self.width, self.size = height, width, size
        self.radius_m = EARTH_RADIUS_M / size
        self.km_per_degree = self.radius_m * np.pi / 180e3
        self.lat: np.ndarray = (-90 + (np.arange(height) + 0.5) * (180 / height))[:, None]
        self.lon: np.ndarray = (np.arange(width) * (360 / width))[None, :]
        self.cos_lat = np.cos(np.radians(self.lat))
        self.sign: np.ndarray = np.sign(self.lat)  # cyclones turn with the planet: +1 in the north
        self.coriolis = coriolis(self.lat)
        self.dy_m = self.radius_m * np.pi / height
        self.dx_m = self.radius_m * self.cos_lat * (2 * np.pi / width)

    @cached_property
    def elevation_m(self) -> np.ndarray:
        """The height of the land, 0 on the sea."""
        rng = np.random.default_rng(GEOGRAPHY_SEED)
        continents, mountains = (self.waves(rng, GEOGRAPHY_WAVES, scale, 3.0) for scale in (4.0, 12.0))
        coast = np.quantile(continents, 1 - LAND_FRACTION)
        above = np.maximum(continents - coast, 0)
        elevation: np.ndarray = np.minimum(500 * above + 1800 * np.minimum(above, 1) * np.maximum(mountains, 0), 4500)
        return elevation

    @property
    def land(self) -> np.ndarray:
        """True on land."""
        dry: np.ndarray = self.elevation_m > 0
        return dry

    def waves(self, rng: np.random.Generator, most: int, scale: float, slope: float) -> np.ndarray:
        """A random field of mean 0 and deviation 1 made of `most` waves around the planet: alike on every grid.

        Power falls with wavenumber k as (1 + (k/scale)²)^-slope, along each row in waves per 360 degrees at 45 degrees
        of latitude; towards the poles short waves fade out, so that no shape shrinks with the meridians.
        """
        meridional, zonal = np.arange(-most, most + 1), np.arange(most + 1)
        modes = rng.standard_normal((2, len(meridional), len(zonal)))
        k2 = (meridional[:, None] ** 2 + 2 * zonal**2) / scale**2
        spectrum = (modes[0] + 1j * modes[1]) * (1 + k2) ** (-slope / 2)
        spectrum[most, 0] = 0
        # Latitude is mirrored at the poles, so that the field is periodic in both directions.
        # einsum, because the last bits of BLAS depend on the number of threads.
        rows = np.einsum("hm,mz->hz", np.exp(1j * np.radians(self.lat + 90) * meridional), spectrum)
        rows *= np.exp(-((zonal / (3 * scale * self.cos_lat)) ** 2) / 2)
        field = np.fft.irfft(rows[:, : self.width // 2], self.width, axis=1)
        weights = np.broadcast_to(self.cos_lat, field.shape)
        field -= np.average(field, weights=weights)
        normal: np.ndarray = field / np.sqrt(np.average(field**2, weights=weights))
        return normal

    def gradient(self, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The derivatives to the east and to the north, per metre; central differences."""
        east = (np.roll(field, -1, 1) - np.roll(field, 1, 1)) / (2 * self.dx_m)
        north: np.ndarray = np.gradient(field, self.dy_m, axis=0)
        return east, north

    def east_of(self, lon: float) -> np.ndarray:
        """How many degrees (1, width) every meridian lies east of one, from -180 to 180."""
        east: np.ndarray = (self.lon - lon + 180) % 360 - 180
        return east

    def offset_km(self, lat: float, lon: float) -> tuple[np.ndarray, np.ndarray]:
        """How far every cell lies east and north of a point, on the map that keeps areas (sinusoidal)."""
        km = self.km_per_degree
        return self.east_of(lon) * self.cos_lat * km, (self.lat - lat) * km

    def distance_km(self, lat: float, lon: float) -> np.ndarray:
        """The distance of every cell from a point along the sphere."""
        return separation_km(self.radius_m, self.lat, self.lon, lat, lon)


def separation_km(
    radius_m: float, lat_a: np.ndarray, lon_a: np.ndarray, lat_b: float | np.ndarray, lon_b: float | np.ndarray
) -> np.ndarray:
    """Distances along the sphere between points given in degrees; the arguments are broadcast."""
    a, b = np.radians(lat_a), np.radians(lat_b)
    half = np.sin((a - b) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(np.radians(lon_a - lon_b) / 2) ** 2
    distance: np.ndarray = 2e-3 * radius_m * np.arcsin(np.sqrt(np.minimum(half, 1)))
    return distance


def coriolis(lat: np.ndarray) -> np.ndarray:
    """The Coriolis parameter in 1/s."""
    parameter: np.ndarray = 2 * ROTATION_PER_S * np.sin(np.radians(lat))
    return parameter


def saturation_pressure(kelvin: np.ndarray) -> np.ndarray:
    """The pressure of saturated vapour over water in Pa (Bolton 1980, eq. 10)."""
    celsius = kelvin - 273.15
    pressure: np.ndarray = 611.2 * np.exp(17.67 * celsius / (celsius + 243.5))
    return pressure


def saturated_humidity(kelvin: np.ndarray, pressure_pa: np.ndarray) -> np.ndarray:
    """The specific humidity of saturated air in kg/kg."""
    vapour = saturation_pressure(kelvin)
    humidity: np.ndarray = 0.622 * vapour / (pressure_pa - 0.378 * vapour)
    return humidity


def saturated_column(kelvin: np.ndarray) -> np.ndarray:
    """The water in a saturated column of this sea-level temperature in kg/m²."""
    water: np.ndarray = saturation_pressure(kelvin) / (461.5 * kelvin) * VAPOUR_SCALE_M
    return water


def mean_layer_temperature(surface: np.ndarray, t500: np.ndarray, t200: np.ndarray) -> np.ndarray:
    """The temperature that gives the thickness of the layer from 1000 to 200 hPa, by the trapezoidal rule in log p."""
    mean: np.ndarray = 0.22 * surface + 0.5 * t500 + 0.28 * t200
    return mean
