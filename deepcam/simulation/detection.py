"""Labels by detection on the fields themselves: tropical cyclones and atmospheric rivers.

In the manner of TECA (Prabhat et al. 2012, Procedia Comp. Sci. 9, 866), which made the published labels: a cyclone is a
closed low with a warm core, vorticity and gales, and no cold low near; a river is a long and narrow region of much
vapour that flows poleward outside the tropics (Guan and Waliser 2015, JGR Atmos. 120, 12514). What decides is far away:
the cold low lies more than 1,000 km from the storm, and where a river is broken, its pieces differ from one of 2,000 km
only at their ends. Labels contain no chance: they can all be found from the channels.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from deepcam.simulation.planet import Planet, separation_km

BACKGROUND, CYCLONE, RIVER = 0, 1, 2
TMQ, U850, V850, PSL, T200, T500 = 0, 1, 2, 7, 8, 9  # in the published order

# Tropical cyclones
GALE: Final = 17.2  # m/s, Beaufort 8
SPIN: Final = 1e-4  # 1/s
CLOSED_PA: Final = 400  # the centre below every place of the ring
WARM_K: Final = 2.0  # the core above the ring, mean of 500 and 200 hPa
EYE_KM, CORE_KM, RING_KM, REACH_KM = 90, 200, 350, 500
COLD_K: Final = 1.0  # the core of a cold low below the ring at 500 hPa
NEAR_KM: Final = 1500  # a cold low within this distance makes a storm a hybrid
POLAR: Final = 75  # degrees; poleward of it no lows are looked for
STORMY: Final = 40  # degrees; poleward of it no cyclone is tropical
# Atmospheric rivers
SURPLUS: Final = 4  # kg/m² above the median of the parallel
TRANSPORT: Final = 250  # kg/m/s
POLEWARD: Final = 50  # kg/m/s, the component towards the pole, mean of the region
LONG_KM: Final = 2000
WIDE_KM: Final = 700  # area by length
LEAST_KM2: Final = 200_000  # smaller regions are not measured
TROPICS: Final = 15  # degrees


def label_weather(planet: Planet, fields: np.ndarray) -> np.ndarray:
    """The classes (height, width), uint8, of 16 channels (height, width, 16): a function of the fields alone."""
    cyclones = find_cyclones(planet, fields)
    rivers = find_rivers(planet, fields, cyclones)
    labels: np.ndarray = np.where(rivers, RIVER, BACKGROUND).astype(np.uint8)
    labels[cyclones] = CYCLONE
    return labels


def find_cyclones(planet: Planet, fields: np.ndarray) -> np.ndarray:
    """True where the gales around the centre of a tropical cyclone blow, and in its eye.

    A cyclone is a closed low with a warm core, a maximum of vorticity and gales, and with no cold low near: beside one
    the same storm is a hybrid, on the way from tropical to extratropical (Hart 2003, Mon. Wea. Rev. 131, 585).
    """
    u, v, psl, t200, t500 = np.moveaxis(fields[..., [U850, V850, PSL, T200, T500]].astype(float), -1, 0)
    speed = np.hypot(u, v)
    spin = (planet.gradient(v)[0] - planet.gradient(u)[1]) * planet.sign
    warmth = (t500 + t200) / 2
    warm, cold = [], []  # distances of all cells from the centres
    for row, column in find_lows(planet, psl):
        distance = planet.distance_km(float(planet.lat[row, 0]), float(planet.lon[0, column]))
        core, ring = distance <= CORE_KM, (distance >= RING_KM) & (distance <= REACH_KM)
        if psl[ring].min() - psl[row, column] < CLOSED_PA:
            continue
        if t500[ring].mean() - t500[core].mean() >= COLD_K:
            cold.append(distance)
        elif (
            abs(planet.lat[row, 0]) <= STORMY
            and warmth[core].max() - warmth[ring].mean() >= WARM_K
            and spin[core].max() >= SPIN
            and speed[core].max() >= GALE
        ):
            warm.append(distance)
    eyes, reach = np.zeros((2, *psl.shape), bool)
    for distance in warm:
        eye = distance <= EYE_KM
        if not any((other[eye] <= NEAR_KM).any() for other in cold):
            eyes |= eye
            reach |= distance <= REACH_KM
    region, count = find_regions(eyes | (reach & (speed >= GALE)))
    kept: np.ndarray = np.zeros(count + 1, bool)  # the last is outside
    kept[region[eyes]] = True
    return kept[region]


def find_lows(planet: Planet, psl: np.ndarray) -> np.ndarray:
    """Rows and columns (n, 2) of the lowest pressure among 24 neighbours, outside the polar regions."""
    lowest = psl.copy()
    for axis in (0, 1):
        lowest = np.minimum.reduce([np.roll(lowest, shift, axis) for shift in (-2, -1, 0, 1, 2)])
    return np.argwhere((psl == lowest) & (abs(planet.lat) <= POLAR))


def find_rivers(planet: Planet, fields: np.ndarray, cyclones: np.ndarray) -> np.ndarray:
    """True where a long and narrow band of vapour flows poleward."""
    tmq, u, v = np.moveaxis(fields[..., [TMQ, U850, V850]].astype(float), -1, 0)
    wet = (tmq - np.median(tmq, axis=1, keepdims=True) >= SURPLUS) & (abs(planet.lat) >= TROPICS)
    onward = tmq * (u + v * planet.sign) / np.sqrt(2)  # to the east and the pole, as ahead of a cold front
    region, count = find_regions(wet & (onward >= TRANSPORT) & ~cyclones)
    inside = np.nonzero(region >= 0)
    names = region[inside]
    area = np.broadcast_to(planet.dx_m * planet.dy_m / 1e6, tmq.shape)[inside]
    areas = np.bincount(names, area, count)
    transport = tmq * v * planet.sign
    poleward = np.bincount(names, area * transport[inside], count) >= POLEWARD * areas
    kept: np.ndarray = np.zeros(count, bool)
    for name in np.flatnonzero((areas >= LEAST_KM2) & poleward):
        rows, columns = (axis[names == name] for axis in inside)
        length = extent_km(planet, rows, columns)
        kept[name] = length >= LONG_KM and areas[name] <= WIDE_KM * length
    rivers: np.ndarray = np.zeros(tmq.shape, bool)
    rivers[inside] = kept[names]
    return rivers


def extent_km(planet: Planet, rows: np.ndarray, columns: np.ndarray) -> float:
    """The largest distance between two cells of a region."""
    step = max(1, len(rows) // 300)
    lat = planet.lat[rows[::step], 0]
    lon = planet.lon[0, columns[::step]]
    return float(separation_km(planet.radius_m, lat[:, None], lon[:, None], lat, lon).max())


def find_regions(mask: np.ndarray) -> tuple[np.ndarray, int]:
    """The regions of a mask that touch by a side or a corner, also across the first meridian.

    Returns the number of the region of each cell, -1 outside, and how many there are.
    """
    number = np.full(mask.shape, -1)
    cells = np.count_nonzero(mask)
    number[mask] = np.arange(cells)
    pairs = []
    for other, here in (
        (np.roll(number, -1, 1), number),
        (number[1:], number[:-1]),
        (np.roll(number, -1, 1)[1:], number[:-1]),
        (np.roll(number, 1, 1)[1:], number[:-1]),
    ):
        both = (here >= 0) & (other >= 0)
        pairs.append((here[both], other[both]))
    a, b = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    root = np.arange(cells)
    while (differ := root[a] != root[b]).any():
        a, b = a[differ], b[differ]
        low, high = np.sort([root[a], root[b]], axis=0)
        np.minimum.at(root, high, low)
        while (root[root] != root).any():
            root = root[root]
    roots, names = np.unique(root, return_inverse=True)
    region = np.full(mask.shape, -1)
    region[mask] = names
    return region, len(roots)
