"""Measure the ceilings on all ranks, and report how they limit the steps."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import yaml
from msgspec import convert

from common.errors import UsageError
from common.files import write_whole_file
from common.measure.fom import SYNTHETIC, Measurement, read_measurement
from common.measure.roofline.ceilings import Ceilings, files_in, measure_ceilings
from common.measure.roofline.picture import draw_picture
from common.measure.roofline.report import Report, build_report
from common.precision import DTYPES
from common.ranks.connect import connect
from common.ranks.device import keep_freed_memory
from common.ranks.dist import Dist
from common.settings.machine import DistConfig


def run_roofline(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status. A collective call."""
    with connect(DistConfig(device=arguments.device), (OSError, UsageError)) as dist:
        own = _read_inputs(arguments, dist) if dist.is_main else None
        fields, names = dist.broadcast_json(own and [asdict(own[0]), [str(path) for path in own[1]]])
        measurement, files = convert(fields, Measurement), [Path(name) for name in names]
        if dist.device.type == "cpu":
            keep_freed_memory()
        ceilings = measure_ceilings(measurement, files, dist)
        if dist.is_main:
            _write_files(build_report(measurement, ceilings, own[2] if own else ()), arguments.output)
    return 0


def _read_inputs(arguments: argparse.Namespace, dist: Dist) -> tuple[Measurement, list[Path], tuple[Measurement, ...]]:
    """Return the measurement, the files that its steps read, and those beside it; make the folder of the output."""
    measurement = read_measurement(arguments.fom)
    measured_ranks = (measurement.units, measurement.nodes, measurement.device)
    ranks = (dist.world_size, dist.nodes, dist.device.type)
    if ranks != measured_ranks:
        then, now = (f"{units} rank(s) on {nodes} node(s) on {kind}" for units, nodes, kind in (measured_ranks, ranks))
        raise UsageError(f"the steps were measured with {then}, this command runs with {now}: start both alike")
    folder = arguments.data or (None if measurement.data == SYNTHETIC else Path(measurement.data))
    files = files_in(folder) if folder else []
    others = tuple(_read_other(path, measurement) for path in arguments.beside)
    arguments.output.mkdir(parents=True, exist_ok=True)
    return measurement, files, others


def _read_other(path: Path, measurement: Measurement) -> Measurement:
    """Return a measurement whose steps stand beside the first ones; UsageError if it is of other units or types."""
    other = read_measurement(path)
    kinds = [(steps.units, steps.nodes, steps.device, steps.dtype) for steps in (other, measurement)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{path}: expected the units, nodes, device and type {kinds[1]} of the first; got {kinds[0]}")
    return other


def _write_files(report: Report, folder: Path) -> None:
    contents = {"roofline.json": report.format_json(), "roofline.svg": draw_picture(report)}
    if report.ceilings.unit_network:
        contents["ceilings.yaml"] = ceilings_file(report.ceilings)
    for name, text in contents.items():
        write_whole_file(folder / name, text)
    print("\n".join(report.format_lines()))
    print(f"written: {folder}/{', '.join(contents)}")
    if "ceilings.yaml" not in contents:
        print(
            "ceilings.yaml, for the cost model of `python -m submission.report --data`, needs several ranks: a network"
        )


def ceilings_file(ceilings: Ceilings) -> str:
    """Return the entry that `python -m submission.report --ceilings` reads, of one unit."""
    assert ceilings.unit_network is not None
    memory = ceilings.memory / ceilings.units
    entry = {
        "match": ceilings.words,
        "peak_flop_per_s": max(ceilings.products, ceilings.convolutions) / ceilings.units,
        "value_bytes": DTYPES[ceilings.dtype].itemsize,
        "memory_bytes_per_s": memory,
        "network_bytes_per_s": ceilings.unit_network,
        "input_bytes_per_s": ceilings.unit_input or memory,
        "source": f"measured on {ceilings.units} units and {ceilings.nodes} node(s), {ceilings.dtype}",
    }
    return yaml.safe_dump({"ceilings": {"-".join(ceilings.words): entry}}, sort_keys=False)
