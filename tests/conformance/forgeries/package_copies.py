"""Forgeries by other runs: copies moved by a little, pruned runs of a time-to-train result, a submission inside."""

from __future__ import annotations

import json
import random

from tests.conformance.forgeries.package_bases import Package
from tests.conformance.forgeries.package_forgery import Forge, on_each
from tests.conformance.variants.logtext import LogText

DAY_MS = 86_400_000
NOISE = 3e-5


# -- F10, F10b, F30: copies moved by a little ---------------------------------------------------------------------


def disguise(log: LogText, rng: random.Random, most_ms: int, noise: float = NOISE) -> None:
    """Move every time by up to so much, and all by days; change every result by up to `noise` of it; draw a seed."""
    later, late = rng.randint(DAY_MS // 24, 9 * DAY_MS), float("-inf")
    for line in log.timed:
        late = line.time = max(late, line.time + later + rng.randint(-most_ms, most_ms))
    for line in log.results:
        value, met = line.record["value"], log.met(line)
        moved = value * (1 + noise * rng.uniform(-1, 1))
        line.record["value"] = moved if log.target.met(moved) == met else value
    draw_seed(log, rng)


def draw_seed(log: LogText, rng: random.Random) -> None:
    """Give a log a seed of its own."""
    seed = rng.randint(10**6, 10**9)
    for line in log.all("seed"):
        line.record["value"] = str(seed) if isinstance(line.record["value"], str) else seed
    for line in log.all("provenance"):
        line.record["value"]["config"]["train"]["seed"] = seed


def slow_down(log: LogText, rng: random.Random, later_ms: int) -> None:
    """Make another, slower run of a log: every interval and every result is its own."""
    before = now = log.timed[0].time
    slower = rng.uniform(1.3, 1.8)
    for line in log.timed:
        now, before = now + round((line.time - before) * slower * rng.uniform(0.9, 1.1)), line.time
        line.time = now + later_ms
    for line in log.results:
        value, met = line.record["value"], log.met(line)
        moved = value * (1 + rng.uniform(-0.02, 0.02))
        line.record["value"] = moved if log.target.met(moved) == met else value
    draw_seed(log, rng)


def all_of_one(*most_ms: int) -> Forge:
    """Return a forgery in which all runs are copies of the first one."""

    def forge(package: Package, rng: random.Random) -> str:
        names, most = package.logs, rng.choice(most_ms)
        for name in names[1:]:
            log = package.read(names[0])
            disguise(log, rng, most)
            package.files[name] = log.bytes()
        return f"up to {most} ms"

    return forge


def one_of_another(*most_ms: int) -> Forge:
    """Return a forgery in which one run is a copy of another."""

    def forge(package: Package, rng: random.Random) -> str:
        (source, target), most = rng.sample(package.logs, 2), rng.choice(most_ms)
        log = package.read(source)
        disguise(log, rng, most)
        package.files[target] = log.bytes()
        return f"{target} of {source}, up to {most} ms"

    return forge


def second_system(*most_ms: int, division: str = "") -> Forge:
    """Return a forgery in which copies of all runs are the result of another system; division: theirs."""

    def forge(package: Package, rng: random.Random) -> str:
        most, system = rng.choice(most_ms), f"{package.system}_{division or 'second'}"
        folder = package.folder.replace(package.system, system)
        for name in package.logs:
            log = package.read(name)
            disguise(log, rng, most)
            if division:
                log.first("submission_division").record["value"] = division
            package.files[name.replace(package.folder, folder)] = log.bytes()
        fields = json.loads(package.files[f"systems/{package.system}.json"])
        fields |= {"system_name": system} | ({"division": division} if division else {})
        package.files[f"systems/{system}.json"] = json.dumps(fields, indent=1).encode()
        return f"up to {most} ms"

    return forge


COPIES = ("duplicate", "cop", "same run", "one run", "alike", "the same", "identical", "equal")
F10 = [
    *on_each(
        "F10",
        "Dell deepcam, Clemson deepcam, TACC openfold, built deepcam",
        "all runs are one, moved by milliseconds",
        COPIES,
        all_of_one(60, 80),
    ),
    *on_each(
        "F10",
        "NVIDIA cosmoflow, CSCS oc20, NVIDIA oc20, suite cosmoflow",
        "all runs are one, moved by milliseconds",
        COPIES,
        all_of_one(100, 150, 200),
    ),
    *on_each(
        "F10",
        "Dell deepcam, LBNL deepcam, Clemson openfold, built oc20",
        "all runs are one, moved by up to a second",
        COPIES,
        all_of_one(400, 700, 1000),
    ),
    *on_each(
        "F10",
        "Clemson deepcam, NVIDIA cosmoflow, TACC openfold, built cosmoflow",
        "one run is another, moved by milliseconds",
        COPIES,
        one_of_another(60, 100, 250, 1000),
    ),
    *on_each(
        "F10b",
        "Dell deepcam, Clemson deepcam, NVIDIA deepcam, TACC openfold, Clemson openfold, built openfold",
        "the runs again for a second system, moved by milliseconds",
        COPIES,
        second_system(60, 100, 150),
    ),
    *on_each(
        "F10b",
        "NVIDIA cosmoflow, NVIDIA oc20, CSCS oc20, LBNL deepcam, Dell deepcam, suite deepcam",
        "the runs again for a second system, moved by up to a second",
        COPIES,
        second_system(200, 500, 1000),
    ),
    *on_each(
        "F30",
        "Dell deepcam, Clemson deepcam, NVIDIA deepcam, TACC openfold, Clemson openfold, built cosmoflow",
        "the runs again in the open division, moved by milliseconds",
        COPIES,
        second_system(100, 200, division="open"),
    ),
    *on_each(
        "F30",
        "NVIDIA cosmoflow, NVIDIA oc20, CSCS oc20, LBNL deepcam, TACC openfold, built deepcam",
        "the runs again in the open division, moved by up to a second",
        COPIES,
        second_system(400, 1000, division="open"),
    ),
]

# -- F03: pruned runs of a time-to-train result -------------------------------------------------------------------


def prune_slow(package: Package, rng: random.Random) -> str:
    """Put complete, slower runs into pruned_results."""
    names, count = package.logs, rng.randint(1, 6)
    for number in range(count):
        log = package.read(rng.choice(names))
        slow_down(log, rng, (number + 1) * DAY_MS)
        package.files[f"{package.folder}/pruned_results/result_{number}.txt"] = log.bytes()
    return f"{count} runs"


F03 = on_each(
    "F03",
    "Dell deepcam, Clemson openfold, NVIDIA cosmoflow, CSCS oc20, built cosmoflow, suite deepcam",
    "slower runs are pruned in a time-to-train result",
    ("pruned",),
    prune_slow,
)

# -- F02: a submission inside another -----------------------------------------------------------------------------


def another_inside(*folders: str) -> Forge:
    """Return a forgery with a second submission in a folder of the first one: slower runs."""

    def forge(package: Package, rng: random.Random) -> str:
        folder = rng.choice(folders)
        for name, data in list(package.files.items()):
            if name.startswith(("results/", "systems/")):
                package.files[f"{folder}/{name}"] = data
        for name in package.logs:
            log = package.read(name)
            slow_down(log, rng, 3 * DAY_MS)
            package.files[f"{folder}/{name}"] = log.bytes()
        return folder

    return forge


INSIDE = ("submission", "not checked", "not judged", "logs", "results")
F02 = [
    *on_each("F02", "Dell deepcam, built cosmoflow", "a submission inside", INSIDE, another_inside("more", "attic")),
    *on_each(
        "F02",
        "Clemson openfold, built deepcam",
        "a submission two folders inside",
        INSIDE,
        another_inside("more/second", "attic/second"),
    ),
    *on_each(
        "F02",
        "NVIDIA cosmoflow, built oc20",
        "a submission inside benchmarks/",
        INSIDE,
        another_inside("benchmarks/more", "benchmarks/second"),
    ),
]

FORGERIES = [*F02, *F03, *F10]
