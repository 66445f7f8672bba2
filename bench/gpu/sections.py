"""The sections: what each measures, its seconds, and the two parts that fit the 15 minutes of a lent machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Section:
    """A part of the measurement, in a process of its own.

    place: module and function in this package. seconds: expected. limit_s: when it is killed. about: what it measures.
    data: the mini problems whose data it reads. gate: what is wrong in it is printed at once.
    """

    name: str
    place: str
    seconds: int
    limit_s: int
    about: str
    data: tuple[str, ...] = ()
    gate: bool = False


NAMES: Final = ("cosmoflow", "deepcam", "oc20")
SECTIONS: Final = (
    Section("ceilings", "ceilings:measure", 15, 40, "rates of copies and products, costs of launches"),
    Section(
        "smoke",
        "right:smoke",
        61,
        85,
        "six steps of each network, warmed up and recorded, and neither: the losses are equal but for rounding",
        gate=True,
    ),
    Section("right", "right:networks", 57, 75, "outputs and gradients beside references in float64", gate=True),
    Section("kernels", "right:kernels", 40, 60, "the tests of kernels, on the device", gate=True),
    Section(
        "cosmoflow-variants",
        "steps:cosmoflow_variants",
        80,
        110,
        "steps with torch, with kernels, with the fused first block, recorded",
    ),
    Section(
        "oc20-variants",
        "steps:oc20_variants",
        118,
        140,
        "steps with torch, with kernels, recorded",
    ),
    Section(
        "product",
        "trainer:product",
        100,
        140,
        "steps from files: at least 95 % of the rate of steps alone, else more threads or samples in device memory",
    ),
    Section(
        "deepcam-variants",
        "steps:deepcam_variants",
        195,
        215,
        "steps recorded, and compiled, which starts with 80 s left",
    ),
    Section(
        "mini-again",
        "trainer:mini_again",
        70,
        95,
        "each mini problem to its target with everything on, twice: the bits are equal",
        NAMES,
    ),
    # In no part.
    Section(
        "one-rank",
        "ranks:one",
        30,
        45,
        "NCCL with one rank, a recorded all-reduce, shared batch normalisation, torchrun",
        ("cosmoflow",),
    ),
    Section("mini", "trainer:mini", 60, 110, "each mini problem to its target, as it is configured", NAMES),
    Section("cosmoflow-layers", "layers:cosmoflow", 80, 110, "convolutions and poolings beside their floors"),
    Section("deepcam-layers", "layers:deepcam", 40, 70, "each kind of layer beside its floor"),
    Section("feed", "feed:readers", 30, 60, "samples per second that threads read and bring to the device"),
    Section("evaluation", "trainer:evaluation", 70, 110, "evaluations in batches of their own size"),
    Section("sweeps", "steps:sweeps", 110, 150, "other batches with everything on"),
    Section("counters", "counters:measure", 53, 80, "bytes that four kernels move per second, and how busy they are"),
)
PARTS: Final = {
    "first": ("ceilings", "smoke", "right", "kernels", "cosmoflow-variants", "oc20-variants", "product"),
    "second": ("deepcam-variants", "mini-again"),
}
"""The sections of each part in order: what decides most comes early."""
BUDGETS_S: Final = {"first": 480, "second": 290}
"""When a part ends. Together with the start of the machine they fit 15 minutes."""


def select_sections(names: tuple[str, ...] | list[str]) -> list[Section]:
    """Return the sections with these names, in this order."""
    by_name = {section.name: section for section in SECTIONS}
    return [by_name[name] for name in names]


def name_part(section: Section) -> str:
    """Return the part that a section belongs to, "" for none."""
    return next((part for part, names in PARTS.items() if section.name in names), "")
