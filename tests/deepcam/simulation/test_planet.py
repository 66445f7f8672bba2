"""The physics of the synthetic weather against balances and identities, and its labels against its fields."""

import numpy as np
import pytest

from deepcam.reference import CHANNELS
from deepcam.simulation import detection
from deepcam.simulation.detection import CYCLONE, RIVER, find_regions, find_rivers, label_weather
from deepcam.simulation.planet import (
    AIR_DENSITY,
    GAS_CONSTANT,
    GRAVITY,
    LAPSE_RATE,
    Planet,
    Plume,
    Sky,
    Storm,
    saturated_column,
    saturated_humidity,
    saturation_pressure,
    separation_km,
)
from deepcam.simulation.snapshot_generator import compute_season, simulate

PLANET = Planet(96, 144, 3.0)
NUMBER = {channel.name: number for number, channel in enumerate(CHANNELS)}
WARM = {"core_k": 8.0, "core_200_k": 7.0, "humidity": 0.97, "rain": 3e-6}
COLD = {"core_k": -6.0, "core_200_k": 1.0, "humidity": 0.8, "rain": 1e-6}


def simulate_sky(*things, seed=0):
    """Return the fields of a sky with these storms and plumes."""
    sky = Sky(PLANET, 0.0, np.random.default_rng(seed))
    for thing in things:
        add = sky.add_storm if isinstance(thing, Storm) else sky.add_plume
        add(thing)
    return sky.fields()


def storm(lat, lon=200.0, deficit_pa=4_000.0, **core):
    return Storm(lat, lon, deficit_pa, radius_km=70.0, shape=1.5, **(core or WARM))


def plume(lat=38.0, **changes):
    settings = {"length_km": 3300.0, "width_km": 190.0, "slope": 0.3, "bow_km": 0.0, "wind": 26.0}
    return Plume(lat, 200.0, humidity=0.96, rain=1e-7, **settings | changes)


def channel(fields, name):
    return fields[..., NUMBER[name]].astype(float)


def at(lat, lon):
    return int((lat + 90) / 180 * PLANET.height), int(lon / 360 * PLANET.width)


def river_pixels(fields):
    return np.count_nonzero(label_weather(PLANET, fields) == RIVER)


@pytest.fixture(scope="module")
def snapshots():
    """Channels (n, height, width, 16) and labels (n, height, width) of different seasons."""
    made = [simulate(PLANET, 1 + 79 * i % 365, np.random.default_rng([5, i])) for i in range(24)]
    return tuple(np.stack(part) for part in zip(*made, strict=True))


@pytest.fixture(scope="module")
def fields(snapshots):
    return snapshots[0]


@pytest.fixture(scope="module")
def labels(snapshots):
    return snapshots[1]


def test_weather_follows_from_the_generator_alone():
    first, again, other = (simulate(PLANET, 30, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first[0].dtype == np.float32 and first[0].shape == (96, 144, 16)
    assert first[1].dtype == np.uint8 and first[1].shape == (96, 144)
    assert (first[0] == again[0]).all() and (first[1] == again[1]).all()
    assert (first[0] != other[0]).any()


def test_values_are_finite_and_those_of_an_earth(fields):
    assert np.isfinite(fields).all()
    for name, low, high in (
        ("TMQ", 0, 90),
        ("U850", -80, 80),
        ("V850", -80, 80),
        ("PS", 45_000, 108_000),
        ("PSL", 90_000, 108_000),
        ("T200", 195, 240),
        ("T500", 215, 285),
        ("PRECT", 0, 3e-4),
        ("TS", 220, 325),
        ("TREFHT", 215, 315),
        ("Z1000", -900, 700),
        ("Z200", 10_300, 12_900),
        ("ZBOT", 45, 75),
    ):
        values = channel(fields, name)
        assert low <= values.min() and values.max() <= high, name
    weights = np.broadcast_to(PLANET.cos_lat, fields.shape[:3])
    means = {name: np.average(channel(fields, name), weights=weights) for name in ("TMQ", "PSL", "TREFHT", "PRECT")}
    assert 15 < means["TMQ"] < 30 and 100_500 < means["PSL"] < 101_700 and 278 < means["TREFHT"] < 293
    assert 1 < means["PRECT"] * 8.64e7 < 10  # mm a day; storms cover more of a small planet


def test_wind_is_geostrophic_where_there_are_no_storms():
    fields = simulate_sky(plume())
    east, north = PLANET.gradient(channel(fields, "PSL"))
    rows = (abs(PLANET.lat[:, 0]) > 30) & (abs(PLANET.lat[:, 0]) < 70)
    for wind, expected in (("U850", -north), ("V850", east)):
        balanced = (expected / (AIR_DENSITY * PLANET.coriolis))[rows]
        # What differs is the change of the Coriolis parameter along the wave.
        assert np.corrcoef(channel(fields, wind)[rows].ravel(), balanced.ravel())[0, 1] > 0.95
        assert np.std(channel(fields, wind)[rows] - balanced) < 0.3 * np.std(balanced)


def test_a_storm_is_in_gradient_balance():
    radius_km, pressure, wind = storm(25.0).profile()
    f = 2 * 7.292e-5 * np.sin(np.radians(25))
    force = np.gradient(pressure, radius_km * 1000) / AIR_DENSITY
    needed = wind**2 / (radius_km * 1000) + f * wind
    assert abs(needed - force).max() < 1e-3 * force.max()
    assert 40 < wind.max() < 60 and 50 < radius_km[wind.argmax()] < 90
    assert pressure.min() == pytest.approx(-4_000, rel=0.02) and abs(pressure[-1]) < 1


@pytest.mark.parametrize("lat", [20.0, -20.0])
def test_a_cyclone_turns_with_the_planet_around_a_warm_low(lat):
    stormy = simulate_sky(storm(lat))
    change = stormy.astype(float) - simulate_sky()
    row, column = at(lat, 200)
    spin = PLANET.gradient(channel(change, "V850"))[0] - PLANET.gradient(channel(change, "U850"))[1]
    assert spin[row, column] * np.sign(lat) > 1e-4
    assert channel(change, "PSL")[row, column] < -1_000 and channel(change, "T500")[row, column] > 4
    # The low fades with height, because warm air is thick.
    assert abs(channel(change, "Z200")[row, column]) < 0.6 * abs(channel(change, "Z1000")[row, column])
    flow = PLANET.gradient(channel(change, "UBOT"))[0] + PLANET.gradient(channel(change, "VBOT"))[1]
    near = PLANET.distance_km(lat, 200.0) < 250
    assert flow[near].mean() < 0  # friction lets the air in
    assert (label_weather(PLANET, stormy) == CYCLONE)[row, column]


def test_surface_pressure_and_heights_are_hydrostatic(fields):
    at_sea = channel(fields, "TREFHT") + LAPSE_RATE * PLANET.elevation_m
    column = at_sea - LAPSE_RATE * PLANET.elevation_m / 2
    expected = channel(fields, "PSL") * np.exp(-GRAVITY * PLANET.elevation_m / (GAS_CONSTANT * column))
    np.testing.assert_allclose(channel(fields, "PS"), expected, rtol=1e-5)
    sea = ~PLANET.land
    assert PLANET.elevation_m.max() > 1_500
    np.testing.assert_array_equal(channel(fields, "PS")[:, sea], channel(fields, "PSL")[:, sea])
    below = 1e5 * np.exp(GRAVITY * channel(fields, "Z1000") / (GAS_CONSTANT * at_sea))
    np.testing.assert_allclose(below, channel(fields, "PSL"), rtol=1e-5)
    t500, t200 = channel(fields, "T500"), channel(fields, "T200")
    layers = np.log(2) * (at_sea + t500) / 2 + np.log(2.5) * (t500 + t200) / 2
    thickness = channel(fields, "Z200") - channel(fields, "Z1000")
    np.testing.assert_allclose(thickness, GAS_CONSTANT / GRAVITY * layers, rtol=0.01)


def test_air_is_never_more_than_saturated(fields):
    assert channel(fields, "TMQ").min() > 0 and channel(fields, "QREFHT").min() > 0
    at_sea = channel(fields, "TREFHT") + LAPSE_RATE * PLANET.elevation_m
    assert (channel(fields, "TMQ") < saturated_column(at_sea)).all()
    assert (channel(fields, "QREFHT") < saturated_humidity(channel(fields, "TREFHT"), channel(fields, "PS"))).all()


def test_vapour_saturates_as_measured():
    assert saturation_pressure(np.array([253.15, 273.15, 293.15])) == pytest.approx([125.4, 611.2, 2_339], rel=0.01)


def test_geography_and_large_waves_are_the_same_on_every_grid():
    coarse, fine = Planet(96, 144, 3.0), Planet(192, 288)
    assert 0.2 < coarse.land.mean() < 0.4
    pairs = fine.land.reshape(96, 2, 144, 2).mean((1, 3))
    assert (np.round(pairs) == coarse.land).mean() > 0.97


def test_distances_are_those_of_a_sphere():
    assert separation_km(6.371e6, 0.0, 0.0, 0.0, 90.0) == pytest.approx(10_007.5, rel=1e-4)
    assert separation_km(6.371e6, 90.0, 10.0, -90.0, 250.0) == pytest.approx(20_015, rel=1e-4)
    # London to New York
    assert separation_km(6.371e6, 51.5, -0.1, 40.7, -74.0) == pytest.approx(5_570, rel=0.01)


def test_seasons_follow_the_date():
    assert compute_season(192) == 1 and compute_season(9) < -0.99 and abs(compute_season(101)) < 0.05
    july, january = (Sky(PLANET, compute_season(day), np.random.default_rng(0)).fields()[-30:] for day in (192, 9))
    july, january = (channel(fields, "TREFHT").mean() for fields in (july, january))
    assert july > january + 5


def test_labels_are_a_function_of_the_fields(fields, labels):
    for one, expected in zip(fields, labels, strict=True):
        np.testing.assert_array_equal(label_weather(PLANET, one), expected)
    turned = np.roll(fields[0], 50, axis=1)
    np.testing.assert_array_equal(label_weather(PLANET, turned), np.roll(labels[0], 50, axis=1))


def test_labels_do_not_depend_on_channels_that_the_detector_does_not_read(fields, labels):
    blind = fields[0].copy()
    read = {detection.TMQ, detection.U850, detection.V850, detection.PSL, detection.T200, detection.T500}
    assert [CHANNELS[number].name for number in sorted(read)] == ["TMQ", "U850", "V850", "PSL", "T200", "T500"]
    blind[..., [number for number in range(16) if number not in read]] = 0
    np.testing.assert_array_equal(label_weather(PLANET, blind), labels[0])


def test_every_snapshot_has_both_classes_and_the_usual_share(labels):
    per_snapshot = np.array([np.bincount(one.ravel(), minlength=3) for one in labels])
    assert (per_snapshot[:, CYCLONE] >= 12).all() and (per_snapshot[:, RIVER] >= 60).all()
    background, cyclone, river = per_snapshot.mean(0) / labels[0].size
    assert 0.94 < background < 0.97 and 0.006 < cyclone < 0.012 and 0.018 < river < 0.045
    assert not (labels == RIVER)[:, abs(PLANET.lat[:, 0]) < 15].any()


@pytest.mark.exhaustive
def test_classes_are_as_frequent_as_published():
    planet = Planet(192, 288)  # the Earth; the shares do not depend on the grid
    labels = np.stack([simulate(planet, 1 + 79 * i % 365, np.random.default_rng([6, i]))[1] for i in range(60)])
    background, cyclone, river = np.bincount(labels.ravel(), minlength=3) / labels.size
    assert background == pytest.approx(0.98627, abs=0.003)
    assert 0.0004 < cyclone < 0.0008 and river == pytest.approx(0.01327, rel=0.2)  # published: 0.00046


@pytest.mark.parametrize("thing", [storm(20.0, **COLD), storm(20.0, 200.0, 400.0)], ids=["cold core", "weak"])
def test_a_low_without_warmth_or_strength_is_no_cyclone(thing):
    assert not (label_weather(PLANET, simulate_sky(thing)) == CYCLONE).any()


def test_a_river_is_long_and_flows():
    assert river_pixels(simulate_sky(seed=3)) == 0
    assert river_pixels(simulate_sky(plume(), seed=3)) > 100
    for otherwise in ({"wind": 0.0}, {"length_km": 800.0}, {"gap_km": 700.0}, {"wind": -26.0}):
        assert river_pixels(simulate_sky(plume(**otherwise), seed=3)) == 0, otherwise


@pytest.mark.parametrize(("longitude", "found"), [(165.0, False), (140.0, True)])
def test_a_storm_beside_a_cold_low_is_a_hybrid_and_no_cyclone(longitude, found):
    labels = label_weather(PLANET, simulate_sky(storm(20.0), storm(35.0, longitude, **COLD)))
    assert (1_000 < PLANET.distance_km(35.0, longitude)[at(20.0, 200.0)] < 1_500) != found
    assert (labels == CYCLONE)[at(20.0, 200.0)] == found


def test_look_alikes_are_as_frequent_and_equal_nearby(fields, labels):
    """Without what is far away (a cold low, the other half of a river) as many storms and plumes would be labelled."""
    cyclones, hybrids, rivers, pieces = 0, 0, 0, 0
    for one, expected in zip(fields, labels, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(detection, "NEAR_KM", 0)
            patch.setattr(detection, "LONG_KM", 1_000)
            nearby = label_weather(PLANET, one)
        cyclones, hybrids = cyclones + (expected == CYCLONE).sum(), hybrids + (nearby == CYCLONE).sum()
        rivers, pieces = rivers + (expected == RIVER).sum(), pieces + (nearby == RIVER).sum()
    assert 1.5 < hybrids / cyclones < 2.5 and 1.3 < pieces / rivers < 2.2


def test_a_cyclone_is_no_part_of_a_river():
    fields, cyclones = simulate_sky(plume(), seed=3), np.zeros((96, 144), bool)
    everything = find_rivers(PLANET, fields, cyclones)
    _, columns = np.nonzero(everything)
    cyclones[:, columns.max() - 3 :] = True
    np.testing.assert_array_equal(find_rivers(PLANET, fields, cyclones), everything & ~cyclones)


def test_regions_are_connected_by_sides_and_corners_and_around_the_planet():
    mask = np.array([[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 1], [0, 0, 0, 0, 0]], bool)
    region, count = find_regions(mask)
    assert count == 3 and (region[~mask] == -1).all()
    assert region[0, 0] == region[0, 4] and region[2, 1] == region[3, 2] != region[3, 4]
    assert find_regions(np.zeros((3, 4), bool))[1] == 0
    maze = np.random.default_rng(0).random((40, 40)) < 0.45
    region, _ = find_regions(maze)
    shifted = np.roll(find_regions(np.roll(maze, 7, axis=1))[0], -7, axis=1)
    pairs = set(zip(region[maze].tolist(), shifted[maze].tolist(), strict=True))
    assert len(pairs) == len(set(region[maze].tolist())) == len(set(shifted[maze].tolist()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((96, 143, 3.0), "even width"),
        ((32, 48, 1.0), "at most 190 km"),
        ((96, 144, 0.5), "size"),
        ((96, 144, 5), "size"),
    ],
)
def test_an_impossible_planet_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Planet(*arguments)
