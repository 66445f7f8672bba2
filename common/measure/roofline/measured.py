"""Measure the ceilings on all ranks, and write what they say of the steps."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from common.distributed.device import keep_freed_memory
from common.distributed.dist import Dist, DistConfig, connect
from common.errors import UsageError
from common.files import write_whole_file
from common.measure.fom import SYNTHETIC, Measurement, read_measurement
from common.measure.roofline.ceilings import Ceilings, files_in, measure
from common.measure.roofline.picture import picture
from common.measure.roofline.report import Report, report
from common.precision import DTYPES


def measured(given: argparse.Namespace) -> int:
    """Run the command; return the exit status. A collective call."""
    with connect(DistConfig(device=given.device), (OSError, UsageError)) as dist:
        found, files = dist.broadcast_object(_given(given, dist) if dist.is_main else None)
        if dist.device.type == "cpu":
            keep_freed_memory()
        ceilings = measure(found, files, dist)
        if dist.is_main:
            _write(report(found, ceilings), given.output)
    return 0


def _given(given: argparse.Namespace, dist: Dist) -> tuple[Measurement, list[Path]]:
    """Return the measurement and the files that its steps read, and make the folder of the output."""
    found = read_measurement(given.fom)
    _check(found, dist)
    folder = given.data or (None if found.data == SYNTHETIC else Path(found.data))
    files = files_in(folder) if folder else []
    given.output.mkdir(parents=True, exist_ok=True)
    return found, files


def _check(found: Measurement, dist: Dist) -> None:
    here = (dist.world_size, dist.nodes, dist.device.type)
    if here != (there := (found.units, found.nodes, found.device)):
        raise UsageError(
            f"the steps were measured with {_place(there)}, this command runs with {_place(here)}: start both alike"
        )


def _place(place: tuple[int, int, str]) -> str:
    return f"{place[0]} rank(s) on {place[1]} node(s) on {place[2]}"


def _write(found: Report, folder: Path) -> None:
    contents = {"roofline.json": found.write(), "roofline.svg": picture(found)}
    if found.ceilings.unit_network:
        contents["ceilings.yaml"] = ceilings_file(found.ceilings)
    for name, text in contents.items():
        write_whole_file(folder / name, text)
    print("\n".join(found.lines()))
    print(f"written: {folder}/{', '.join(contents)}")
    if "ceilings.yaml" not in contents:
        print("ceilings.yaml, for the cost model of `python -m submission.analysis`, needs several ranks: a network")


def ceilings_file(found: Ceilings) -> str:
    """Return the entry that `python -m submission.analysis --ceilings` reads, of one unit."""
    assert found.unit_network is not None
    memory = found.memory / found.units
    entry = {
        "match": found.words,
        "peak_flop_per_s": max(found.products, found.convolutions) / found.units,
        "value_bytes": DTYPES[found.dtype].itemsize,
        "memory_bytes_per_s": memory,
        "network_bytes_per_s": found.unit_network,
        "input_bytes_per_s": found.unit_input or memory,
        "source": f"measured on {found.units} units and {found.nodes} node(s), {found.dtype}",
    }
    return yaml.safe_dump({"ceilings": {"-".join(found.words): entry}}, sort_keys=False)
