"""The plan: the sections, what each measures and decides, its seconds, and two parts that fit 15 minutes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Section:
    """A part of the measurement, in a process of its own.

    place: module and function in this package. seconds: expected. limit_s: when it is killed. about: what it measures.
    decides: what depends on it. data: the mini problems whose data it reads. gate: what is wrong in it is printed at
    once.
    """

    name: str
    place: str
    seconds: int
    limit_s: int
    about: str
    decides: str
    data: tuple[str, ...] = ()
    gate: bool = False


NAMES: Final = ("cosmoflow", "deepcam", "oc20")
SECTIONS: Final = (
    Section(
        "ceilings",
        "ceilings:measure",
        16,
        40,
        "rates of copies and products, costs of launches, clocks and power",
        "the floors, and whether the card throttles",
    ),
    Section(
        "cosmoflow-candidates",
        "steps:cosmoflow_candidates",
        65,
        90,
        "batches 16 and 1 with each candidate; the first block with other tiles",
        "whether 1,500 samples/s are reached",
        gate=True,
    ),
    Section(
        "oc20-candidates",
        "steps:oc20_candidates",
        95,
        120,
        "batches 32 and 4 with each candidate, after gradients of eight batches",
        "whether 750 samples/s are reached, and TF32 in the kernels is right",
        gate=True,
    ),
    Section(
        "mini-again",
        "trainer:mini_again",
        80,
        110,
        "each mini problem to its target with everything on, twice",
        "whether the fused first block, the compiled network and TF32 converge, with equal bits",
        NAMES,
        gate=True,
    ),
    Section(
        "ranks",
        "ranks:measure",
        30,
        45,
        "NCCL with one rank: a recorded all-reduce, shared batch normalisation, torchrun",
        "whether several GPUs are worth a try",
        ("cosmoflow",),
        gate=True,
    ),
    Section(
        "deepcam-layers",
        "layers:deepcam",
        50,
        75,
        "each kind of layer beside its floor; depthwise layers and the last deconvolution also with their candidates",
        "which kernels are worth writing",
    ),
    Section(
        "deepcam-candidates",
        "steps:deepcam_candidates",
        120,
        145,
        "batches 8 and 1 without cuDNN's search, with a profile and with each candidate",
        "precision.tune=false, and where the time of a step goes",
        gate=True,
    ),
    Section(
        "deepcam-compiled",
        "steps:deepcam_compiled",
        200,
        230,
        "batches 8 and 1 compiled, with profiles and losses beside those of plain steps; batch 8 with all candidates",
        "compile: auto",
        gate=True,
    ),
    Section(
        "deepcam-autotuned",
        "steps:deepcam_autotuned",
        90,
        140,
        "batch 8 compiled with max_autotune",
        "whether Triton's products beat cuDNN's convolutions",
        gate=True,
    ),
    # In no part.
    Section(
        "smoke",
        "right:smoke",
        61,
        85,
        "six steps of each network, warmed up and recorded, and neither",
        "whether recorded steps have the losses of launched ones",
        gate=True,
    ),
    Section(
        "right",
        "right:networks",
        90,
        120,
        "outputs and gradients of each network in each format",
        "whether they are those of references in float64",
        gate=True,
    ),
    Section(
        "variants",
        "steps:variants",
        150,
        200,
        "steps with torch, with kernels, with the fused first block, launched and recorded",
        "what the options gain",
    ),
    Section("product", "trainer:product", 140, 180, "steps from files", "whether files keep up with the device"),
    Section("evaluation", "trainer:evaluation", 90, 130, "evaluations in batches of their own size", "their share"),
)
PARTS: Final = {
    "first": ("ceilings", "cosmoflow-candidates", "oc20-candidates", "mini-again", "ranks"),
    "second": ("deepcam-layers", "deepcam-candidates", "deepcam-compiled", "deepcam-autotuned"),
}
"""The sections of each part in order: what decides most comes early."""
BUDGETS_S: Final = {"first": 340, "second": 470}
"""When a part ends; a single command may take 600 s."""
START_S: Final = 90
"""Before the first part: the machine starts, and files go there."""
LENT_S: Final = 900


def select_sections(names: tuple[str, ...] | list[str]) -> list[Section]:
    """Return the sections with these names, in this order."""
    by_name = {section.name: section for section in SECTIONS}
    return [by_name[name] for name in names]
