"""What a study can measure: the names of quantities, with unit and meaning. The only list of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final, NamedTuple

from common.measure.fom import Measurement, TrainedEnsemble, TrainedRun


class Quantity(NamedTuple):
    """What a study can measure. unit: "" for plain numbers. field: of fom.json, "" for one of the same name."""

    unit: str
    meaning: str
    field: str = ""
    scale: float = 1.0


QUANTITIES: Final[Mapping[str, Quantity]] = {
    "units": Quantity("ranks", "ranks that train at a time: an accelerator each, or a process on CPUs"),
    "batch": Quantity("samples", "samples of a step, over all units"),
    "samples_per_s": Quantity("samples/s", "training speed of all units, without evaluations"),
    "step_ms": Quantity("ms", "median time of a measured step", "median_step_ms"),
    "epoch_s": Quantity("s", "mean time of an epoch, without its evaluation"),
    "minutes": Quantity("min", "from run_start to run_stop; of a job, from the first to the last"),
    "steps": Quantity("", "steps of the optimizer that were made"),
    "epochs": Quantity("", "epochs that were trained"),
    "models_per_min": Quantity("models/min", "networks trained per minute by a job"),
    "models": Quantity("", "networks that a job has trained"),
    "flop_per_s": Quantity("FLOP/s", "operations of all units, a multiply-add as two"),
    "vflop_per_s": Quantity("FLOP/s", "valid FLOP/s: times (achieved / target quality)^n"),
    "efficiency": Quantity("", "FLOP/s (or samples/s) per unit, by that of the point with the fewest units"),
    "flop": Quantity("FLOP", "operations that the training has spent"),
    "utilization": Quantity(
        "",
        "FLOP/s by the peak of the units, where it is known; of a training from run_start to run_stop, evaluations too",
    ),
    "quality": Quantity("", "of the last evaluation, as the benchmark defines it; of a job, the mean"),
    "best_quality": Quantity("", "of the best evaluation"),
    "ensemble_quality": Quantity("", "of the networks of a point together, by the evaluate command"),
    "loss": Quantity("", "training loss of the last epoch"),
    "fidelity": Quantity("", "distance of the loss from float32's by its fall, the median over seeds", "loss_errors"),
    "parameters": Quantity("", "numbers that the network learns"),
    "train_samples": Quantity("samples", "training samples"),
    "energy_j": Quantity("J", "energy of all nodes, where a meter was read"),
    "samples_per_j": Quantity("samples/J", "samples trained by the energy"),
    "power_limit_w": Quantity("W", "power limit of a device, where it tells"),
    "clock_mhz": Quantity("MHz", "clock of a device when the run ended, where it tells"),
    "memory_gb": Quantity("GB", "the most memory that a rank used", "memory_bytes", 1e-9),
    "wait_share": Quantity("", "share of a step in which a rank waited for data"),
    "communicating_ms": Quantity("ms", "time of a step in which a rank only communicated"),
    "bytes_reduced": Quantity("B", "gradients that a rank sends in a step", "bytes_reduced_per_step"),
    "spread": Quantity("", "standard deviation of the steps or epochs, by the median"),
}
"""By name: what axes of curves, columns of tables, and the records of study.json can be."""

EVERYWHERE: Final = ("efficiency",)
"""What follows from quantities of any kind; the others that no fom.json has are of trainings."""


def has_quantity(kind: str, name: str) -> bool:
    """Tell whether runs of a kind, "training" or "measurement", can have a quantity."""
    records = {"training": (TrainedRun, TrainedEnsemble), "measurement": (Measurement,)}
    key = QUANTITIES[name].field or name
    kinds = [
        each for each, types in records.items() if any(key == field.name for type_ in types for field in fields(type_))
    ]
    return kind in kinds or (not kinds and (kind == "training" or name in EVERYWHERE))


def describe_quantities() -> str:
    """Return a line for each quantity."""
    width = max(map(len, QUANTITIES))
    return "\n".join(
        f"  {name:<{width}}  {quantity.meaning}{f' ({quantity.unit})' if quantity.unit else ''}"
        for name, quantity in QUANTITIES.items()
    )
