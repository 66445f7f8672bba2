"""A planet for synthetic weather: its geography, the sphere it is drawn on, and the physics of an air column.

Latitudes and longitudes are in degrees, rows run from south to north as in CAM; everything else is in SI units unless
a name says otherwise. Fields have the shape (height, width).

Weather on a planet: one moment of 16 fields in balance with each other, made of waves, storms and plumes of vapour.

The wind follows from a streamfunction and the pressure from the wind (geostrophic; in storms the gradient wind of
Holland's profile), temperature from where the wind has brought the air from, and heights, surface pressure and the
column of vapour from hydrostatics and saturation. Beside tropical cyclones and atmospheric rivers there are things
that resemble them: lows with a cold core, weak lows, calm plumes, and plumes that dry air breaks.

"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from common.errors import UsageError

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
    The continents are the same for every grid and size. UsageError for a grid or a size that makes no planet.
    """

    def __init__(self, height: int, width: int, size: float = 1.0) -> None:
        if not 1 <= size <= SMALLEST:
            raise UsageError(f"size must be from 1 (the Earth) to {SMALLEST:g} (rivers still have room), not {size:g}")
        cell_km = 2e-3 * np.pi * EARTH_RADIUS_M / size / min(2 * height, width)
        if width % 2 or cell_km > COARSEST_KM:
            raise UsageError(
                f"need an even width and cells of at most {COARSEST_KM:g} km, to see storms, not {height} x {width} "
                f"cells of {cell_km:.0f} km: give more cells, or a larger size"
            )
        self.height, self.width, self.size = height, width, size
        self.radius_m = EARTH_RADIUS_M / size
        self.km_per_degree = self.radius_m * np.pi / 180e3
        self.lat = (-90 + (np.arange(height) + 0.5) * (180 / height))[:, None]
        self.lon = (np.arange(width) * (360 / width))[None, :]
        self.cos_lat = np.cos(np.radians(self.lat))
        self.sign = np.sign(self.lat)  # cyclones turn with the planet: +1 in the north
        self.coriolis = coriolis_parameter(self.lat)
        self.dy_m = self.radius_m * np.pi / height
        self.dx_m = self.radius_m * self.cos_lat * (2 * np.pi / width)

    @cached_property
    def elevation_m(self) -> np.ndarray:
        """The height of the land, 0 on the sea."""
        rng = np.random.default_rng(GEOGRAPHY_SEED)
        continents, mountains = (self.waves(rng, GEOGRAPHY_WAVES, scale, 3.0) for scale in (4.0, 12.0))
        coast = np.quantile(continents, 1 - LAND_FRACTION)
        above = np.maximum(continents - coast, 0)
        peaks = 1800 * np.minimum(above, 1) * np.maximum(mountains, 0)
        return np.minimum(500 * above + peaks, 4500)

    @property
    def land(self) -> np.ndarray:
        """True on land."""
        return self.elevation_m > 0

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
        return field / np.sqrt(np.average(field**2, weights=weights))

    def gradient(self, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The derivatives to the east and to the north, per metre; central differences."""
        east = (np.roll(field, -1, 1) - np.roll(field, 1, 1)) / (2 * self.dx_m)
        north = np.gradient(field, self.dy_m, axis=0)
        return east, north

    def east_of(self, lon: float) -> np.ndarray:
        """How many degrees (1, width) every meridian lies east of one, from -180 to 180."""
        return (self.lon - lon + 180) % 360 - 180

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
    eastward = np.sin(np.radians(lon_a - lon_b) / 2)
    half = np.sin((a - b) / 2) ** 2 + np.cos(a) * np.cos(b) * eastward**2
    return 2e-3 * radius_m * np.arcsin(np.sqrt(np.minimum(half, 1)))


def coriolis_parameter(lat: np.ndarray) -> np.ndarray:
    """The Coriolis parameter in 1/s."""
    return 2 * ROTATION_PER_S * np.sin(np.radians(lat))


def gaussian_bell(x: np.ndarray, width: float) -> np.ndarray:
    """1 at 0, falling to 1/e at this width."""
    return np.exp(-((x / width) ** 2))


def saturation_pressure(kelvin: np.ndarray) -> np.ndarray:
    """The pressure of saturated vapour over water in Pa (Bolton 1980, eq. 10)."""
    celsius = kelvin - 273.15
    return 611.2 * np.exp(17.67 * celsius / (celsius + 243.5))


def saturated_humidity(kelvin: np.ndarray, pressure_pa: np.ndarray) -> np.ndarray:
    """The specific humidity of saturated air in kg/kg."""
    vapour = saturation_pressure(kelvin)
    return 0.622 * vapour / (pressure_pa - 0.378 * vapour)


def saturated_column(kelvin: np.ndarray) -> np.ndarray:
    """The water in a saturated column of this sea-level temperature in kg/m²."""
    return saturation_pressure(kelvin) / (461.5 * kelvin) * VAPOUR_SCALE_M


def mean_temperature(lat: np.ndarray) -> np.ndarray:
    """The temperature at sea level in K where the sun is over the equator."""
    return 301 - 50 * abs(np.sin(np.radians(np.clip(lat, -90, 90)))) ** 2.3


SEA_LEVEL_PA: Final = 101_100.0
EDDY_WIND: Final = 7.0  # m/s, root mean square of each component in the storm tracks
DISPLACED_DEGREES: Final = 0.45  # where the air comes from, per m/s of meridional wind
STORM_EDGE_KM: Final = 370.0
DRY: Final = 0.3  # relative humidity of the air that breaks a plume


@dataclass(frozen=True)
class Storm:
    """A circular low. deficit_pa: how far below its surroundings; core_k: warmth at 500 hPa; core_200_k: at 200 hPa."""

    lat: float
    lon: float
    deficit_pa: float
    radius_km: float  # of the strongest wind
    shape: float  # Holland's B
    core_k: float
    core_200_k: float
    humidity: float  # relative, of the column in the core
    rain: float  # m/s

    def profile(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Radii in km, the pressure there in Pa against the surroundings, and the tangential wind in m/s.

        Holland 1980 (Mon. Wea. Rev. 108, 1212) with an edge; the wind is in gradient balance.
        """
        r = np.linspace(1, 4 * STORM_EDGE_KM, 1200)
        pressure = self.deficit_pa * np.expm1(-((self.radius_km / r) ** self.shape)) * gaussian_bell(r, STORM_EDGE_KM)
        half = abs(coriolis_parameter(np.asarray(self.lat))) * r * 500
        squared = np.maximum(half**2 + r / AIR_DENSITY * np.gradient(pressure, r), 0)
        return r, pressure, np.sqrt(squared) - half


@dataclass(frozen=True)
class Plume:
    """A band of vapour along an axis that runs poleward. lat, lon: its middle; bow_km: how far the middle bulges."""

    lat: float
    lon: float
    length_km: float
    width_km: float
    slope: float  # angle of the axis to the parallels, radians
    bow_km: float
    wind: float  # m/s along the axis
    humidity: float
    rain: float
    gap_km: float = 0.0  # of dry air at the middle, which breaks the band

    def frame(self, planet: Planet) -> tuple[np.ndarray, np.ndarray]:
        """For every cell the distances in km from the axis, positive poleward, and along it from the middle."""
        # The map on which meridians are parallel: on one where they meet, a plume that goes on comes back near a pole.
        km = planet.km_per_degree
        x = planet.east_of(self.lon) * km * np.cos(np.radians(self.lat))
        y = (planet.lat - self.lat) * km * np.sign(self.lat)
        along = x * np.cos(self.slope) + y * np.sin(self.slope)
        across = y * np.cos(self.slope) - x * np.sin(self.slope)
        t = 2 * along / self.length_km
        across = across - self.bow_km * (1 - t**2)
        across /= np.sqrt(1 + (4 * self.bow_km * t / self.length_km) ** 2)
        return across, along

    def axis(self, planet: Planet) -> tuple[np.ndarray, np.ndarray]:
        """Latitudes and longitudes of some points from one end to the other."""
        t = np.linspace(-1, 1, 9)
        along, across = t * self.length_km / 2, self.bow_km * (1 - t**2)
        x = along * np.cos(self.slope) - across * np.sin(self.slope)
        y = along * np.sin(self.slope) + across * np.cos(self.slope)
        km = planet.km_per_degree
        return self.lat + np.sign(self.lat) * y / km, self.lon + x / km / np.cos(np.radians(self.lat))


class Sky:
    """What the things in the air have added up to: fields that `fields` turns into the 16 channels."""

    def __init__(self, planet: Planet, season: float, rng: np.random.Generator) -> None:
        self.planet, self.season, self.rng = planet, season, rng
        lat = planet.lat
        winter = 1 - 0.3 * season * planet.sign
        self.zonal_wind = (  # westerlies, trades, polar easterlies
            10 * winter * gaussian_bell(abs(lat) - 44, 13)
            - 7 * gaussian_bell(lat, 19)
            - 2 * gaussian_bell(abs(lat) - 78, 9)
        )
        track = 0.25 + 0.75 * winter * gaussian_bell(abs(lat) - 46, 20)
        detail = 1 / np.sqrt(planet.size)  # a small planet has room for fewer eddies
        self.psi = planet.waves(rng, 40, 9 * detail, 4.0) * track
        east, north = planet.gradient(self.psi)
        storm_tracks = (abs(lat[:, 0]) > 30) & (abs(lat[:, 0]) < 60)
        squares = (east**2 + north**2)[storm_tracks]
        self.psi *= EDDY_WIND / np.sqrt(np.mean(squares) / 2)
        shape = (planet.height, planet.width)
        self.storm_pa, self.storm_u, self.storm_v, self.rain = (np.zeros(shape) for _ in range(4))
        self.warm_surface, self.warm_500, self.warm_200 = (np.zeros(shape) for _ in range(3))
        itcz = lat - 7 * season  # wet where the trades meet, dry on both sides of it
        column = 0.55 + 0.25 * gaussian_bell(itcz, 9) - 0.12 * gaussian_bell(abs(itcz) - 24, 9)
        self.humidity = column + rng.uniform(-0.1, 0.1) + 0.09 * planet.waves(rng, 80, 14 * detail, 2.6)
        self.humidity = np.clip(self.humidity, 0.08, 0.93)

    def add_storm(self, storm: Storm) -> None:
        """The storm is in pressure, wind, temperature, vapour and rain."""
        distance = self.planet.distance_km(storm.lat, storm.lon)
        near = np.flatnonzero((distance < 4 * STORM_EDGE_KM).any(axis=1))
        rows = slice(int(near[0]), int(near[-1]) + 1)
        r = distance[rows]
        east, north = (part[rows] for part in self.planet.offset_km(storm.lat, storm.lon))
        table, pressure, wind = storm.profile()
        turn = np.sign(storm.lat) * np.interp(r, table, wind) / np.maximum(np.hypot(east, north), 1)
        self.storm_pa[rows] += np.interp(r, table, pressure)
        self.storm_u[rows] -= turn * north
        self.storm_v[rows] += turn * east
        core = gaussian_bell(r, 2.5 * storm.radius_km)
        self.warm_500[rows] += storm.core_k * core
        self.warm_200[rows] += storm.core_200_k * core
        self._mix_vapour(rows, gaussian_bell(r, 4.5 * storm.radius_km), storm.humidity)
        arms = 1 + 0.6 * np.sin(2 * np.arctan2(north, east) - np.sign(storm.lat) * r / 90)
        self.rain[rows] += storm.rain * arms * core

    def add_plume(self, plume: Plume) -> None:
        """The plume is in vapour, wind (a low on its poleward side, a high on the other), warmth and rain."""
        across, along = plume.frame(self.planet)
        to_end = plume.length_km / 2 - abs(along)
        band = (1 + np.tanh(to_end / 180)) / 2 * np.exp(-((across / plume.width_km) ** 2) / 2)
        self._mix_vapour(slice(None), band, plume.humidity)
        if plume.gap_km:
            gap = np.exp(-((2 * along / plume.gap_km) ** 8)) * np.exp(-((across / (3 * plume.width_km)) ** 4))
            self._mix_vapour(slice(None), gap, DRY)
            band *= 1 - gap
        jet_km = 1.8 * plume.width_km
        stream = 1000 * plume.wind * across * np.exp(-((across / jet_km) ** 2) / 2)
        stream *= (1 + np.tanh(to_end / 250)) / 2  # softly: where it ends, the wind turns
        self.psi -= np.sign(plume.lat) * stream
        self.warm_surface += 4 * band
        self.warm_500 += 2.5 * band
        self.rain += plume.rain * band**2

    def _mix_vapour(self, rows: slice, share: np.ndarray, humidity: float) -> None:
        """The relative humidity of the column approaches a value where the share is near 1."""
        here = self.humidity[rows]
        here += share * (humidity - here)

    def fields(self) -> np.ndarray:
        """The 16 channels (height, width, 16) in the published order, float32."""
        planet, rng = self.planet, self.rng
        land, elevation = planet.land, planet.elevation_m
        east, north = planet.gradient(self.psi)
        u, v = self.zonal_wind - north, east
        slope = -AIR_DENSITY * planet.coriolis * self.zonal_wind * planet.dy_m
        zonal_pa = np.cumsum(slope, axis=0) - slope / 2
        zonal_pa -= np.average(zonal_pa, weights=planet.cos_lat)
        psl = SEA_LEVEL_PA + zonal_pa + AIR_DENSITY * planet.coriolis * self.psi + self.storm_pa

        # The wind brings the temperature of where it comes from; storms are too small for that.
        displaced = np.clip(DISPLACED_DEGREES * v, -12, 12)
        u, v = u + self.storm_u, v + self.storm_v
        air = mean_temperature(planet.lat - displaced - 7 * self.season)
        sea = mean_temperature(planet.lat - 5 * self.season)
        sea = np.maximum(sea + 0.8 * planet.waves(rng, 40, 8.0, 3.0), 271.3)
        surface = np.where(land, air, 0.5 * (air + sea)) + self.warm_surface
        t500 = 266.5 + 0.72 * (air - 301) + self.warm_500 + 0.5 * planet.waves(rng, 40, 8.0, 3.0)
        t200 = 218 - 0.12 * (air - 280) + self.warm_200 + 0.8 * planet.waves(rng, 40, 8.0, 3.0)
        reference = surface - LAPSE_RATE * elevation
        ground = np.where(land, reference + 3 * planet.waves(rng, 80, 20.0, 2.0), sea)

        column_mean = surface - LAPSE_RATE * elevation / 2
        ps = psl * np.exp(-GRAVITY * elevation / (GAS_CONSTANT * column_mean))
        humid = np.clip(0.45 + 0.5 * self.humidity + 0.04 * planet.waves(rng, 60, 8.0, 2.6), 0.05, 0.99)
        q = np.where(land, humid - 0.08, humid) * saturated_humidity(reference, ps)
        tmq = self.humidity * saturated_column(surface) * np.exp(-elevation / VAPOUR_SCALE_M)
        z1000 = GAS_CONSTANT * surface / GRAVITY * np.log(psl / 1e5)
        # Of the layer from 1000 to 200 hPa, with its mean temperature by the trapezoidal rule in log p.
        thickness = GAS_CONSTANT / GRAVITY * np.log(5) * (0.22 * surface + 0.5 * t500 + 0.28 * t200)
        zbot = GAS_CONSTANT / GRAVITY * reference * (1 + 0.61 * q) * 0.0075
        z200 = z1000 + thickness
        bottom = self._surface_wind(u, v)
        showers = np.exp(1.2 * planet.waves(rng, 80, 25.0, 2.0))
        rain = (self.rain + 4e-8 * np.maximum(self.humidity - 0.55, 0) / 0.35 * tmq / 30) * showers
        channels = (tmq, u, v, *bottom, q, ps, psl, t200, t500, rain, ground, reference, z1000, z200, zbot)
        return np.stack(channels, axis=-1).astype(np.float32)

    def _surface_wind(self, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Friction slows the wind and turns it towards low pressure, over land more than over the sea."""
        angle = np.radians(np.where(self.planet.land, 28, 16)) * self.planet.sign
        slowed = np.where(self.planet.land, 0.55, 0.78)
        cos, sin = slowed * np.cos(angle), slowed * np.sin(angle)
        return u * cos - v * sin, v * cos + u * sin
