"""What can be configured of an OC20 run, and what the closed division asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Final, Literal

from common.reference import DATA_STATE, EXECUTION, FREE, GRAPH, ORDER, PREPROCESSING, equals
from common.settings.keys import PLACE, REQUIRED, ROUTE, ClosedRule, LogValue, key, take
from common.settings.optim import BoundarySchedule
from common.settings.run import RunConfig, SamplesConfig
from oc20.reference import ENERGY_MEAN_EV, ENERGY_STD_EV, REFERENCE

CUTOFF_ANGSTROM: Final = 6.0
FAR_ANGSTROM: Final = 100.0
"""Beyond the cutoff of any network: an edge of this length changes nothing."""
MOST_ORDERS: Final = 12
"""Of the spherical basis: each further one costs its recursion another digit of ten."""
MOST_LAYERS: Final = 256
"""Of a kind."""
MOST_RADIAL: Final = 256
Kernels = Literal["torch", "triton"]
"""Implementations: torch's own operations, or on a GPU those of oc20.kernels."""


@dataclass(frozen=True, slots=True)
class DataConfig(SamplesConfig):
    """Which frames are read, and how."""

    data_dir: Path = key(
        REQUIRED,
        "folder with train and validation, each with *.lmdb or data.*.bin, and metadata.npz",
        PLACE,
        cite=DATA_STATE,
    )
    format: Literal["lmdb", "compact"] = key(
        "lmdb",
        "lmdb as published (oc20/data/records.py), or compact (oc20/data/compact.py), a seventh of the size and faster "
        "to read",
        ROUTE,
        cite="training_rules.adoc#data-state-at-start-of-run",
    )
    balance: Literal["triplets", "none"] = key(
        "triplets",
        "what ranks share equally: triplets, to which the work is proportional, or the number of frames",
        PLACE,
        cite=ORDER,
    )
    energy_mean: float = key(
        ENERGY_MEAN_EV,
        "the network's energies are (energy - mean) / std",
        unit="eV",
        closed=equals(ENERGY_MEAN_EV),
        cite=PREPROCESSING,
    )
    energy_std: float = key(
        ENERGY_STD_EV,
        "see energy_mean; the network's forces are force / std",
        unit="eV",
        closed=equals(ENERGY_STD_EV),
        cite=PREPROCESSING,
    )
    buckets: Literal["auto", "on", "off"] = key(
        "auto",
        "pad each batch to one of a few sizes, so that recorded steps can be replayed (oc20/data/dataset.py); auto: "
        "where steps are recorded, see train.graph. On an H100, steps from files took 20 % less time in one run, 46 % "
        "less on a slower host",
        PLACE,
    )

    def __post_init__(self) -> None:
        SamplesConfig.__post_init__(self)
        if self.energy_std <= 0:
            raise ValueError(f"energy_std is {self.energy_std}; expected above 0")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The network."""

    cite: ClassVar = GRAPH

    hidden: int = key(192, "channels of the message along an edge", unit="channels", closed=equals(192))
    blocks: int = key(3, "interaction blocks", unit="blocks", closed=equals(3))
    radial: int = key(6, "functions of distance, in both bases", closed=equals(6))
    spherical: int = key(7, "orders of the spherical basis", closed=equals(7))
    cutoff: float = key(
        CUTOFF_ANGSTROM,
        "distance at which the basis functions end; at least the cutoff of the graphs",
        unit="angstrom",
        closed=equals(CUTOFF_ANGSTROM),
    )
    interaction: int = key(64, "channels of the sums over triplets", unit="channels", closed=equals(64))
    basis: int = key(
        8, "channels to which each basis is reduced before its product with messages", unit="channels", closed=equals(8)
    )
    out: int = key(192, "channels of an atom in the output blocks", unit="channels", closed=equals(192))
    before_skip: int = key(
        1, "residual layers of an interaction block before its skip connection", unit="layers", closed=equals(1)
    )
    after_skip: int = key(
        2, "residual layers of an interaction block after its skip connection", unit="layers", closed=equals(2)
    )
    output_layers: int = key(3, "layers of an output block that have an activation", unit="layers", closed=equals(3))
    envelope_exponent: int = key(5, "how smoothly the functions of distance end", closed=equals(5))
    detach_angles: bool = key(
        True,
        "leave the change of angles with positions out of the forces, as the reference does; they are then not exactly "
        "the gradient of the energy",
        closed=equals(True),
    )
    kernels: Kernels = key(
        "torch",
        "implementation of the sums over triplets and of second derivatives of activations: torch's own operations, or "
        "on a GPU triton (oc20/kernels.py)",
        ROUTE,
        cite=EXECUTION,
    )

    def __post_init__(self) -> None:
        may_be_none = ("blocks", "before_skip", "after_skip", "output_layers")
        most = {**dict.fromkeys(may_be_none, MOST_LAYERS), "radial": MOST_RADIAL, "spherical": MOST_ORDERS}
        for entry in fields(self):
            name, value = entry.name, getattr(self, entry.name)
            least = 0 if name in may_be_none else 1
            if name in most and not least <= value <= most[name]:
                raise ValueError(f"{name} is {value:,}; expected {least} to {most[name]}")
            if name not in ("cutoff", "detach_angles", "kernels") and value < least:
                raise ValueError(f"{name} is {value}; expected at least {least}")
        if not 0 < self.cutoff < FAR_ANGSTROM:
            raise ValueError(f"cutoff is {self.cutoff}; expected more than 0 and less than {FAR_ANGSTROM:.0f} angstrom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RunConfig):
    """The configuration of an OC20 run."""

    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    schedule: BoundarySchedule = field(default_factory=BoundarySchedule)

    reference = REFERENCE
    closed: ClassVar[Mapping[str, ClosedRule]] = {
        "optim.name": equals("adamw"),
        "optim.weight_decay": equals(0.01),
        "optim.betas": equals([0.9, 0.999]),
        "optim.eps": equals(1e-8),
        **dict.fromkeys(("optim.momentum", "optim.max_grad_norm"), FREE),  # adamw has neither
    }
    logs: ClassVar[Mapping[str, LogValue]] = {
        "gradient_accumulation_steps": take("train.accumulation"),
        "opt_weight_decay": take("optim.weight_decay"),
    }

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)  # super() fails in classes with slots before Python 3.14
        if self.staging.mode == "shard":
            raise ValueError(
                "staging.mode is shard, which distributes samples over the nodes, but each file of oc20 has many: set "
                "staging.mode to replicate, memory or none; data.format=compact takes a seventh of the space"
            )
