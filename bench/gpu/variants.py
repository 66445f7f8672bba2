"""The ways to train that are compared, as keys of the configurations, and the options that they decide about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Variant:
    """A way to train: keys of the section `model`, and others with their values, as on the command line."""

    name: str
    model: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    @property
    def overrides(self) -> list[str]:
        return [*(f"model.{key}={value}" for key, value in self.model.items()), *self.keys]

    def with_keys(self, *keys: str) -> Variant:
        """Return the variant with more keys, which its name tells."""
        return Variant(", ".join((self.name, *keys)), self.model, (*self.keys, *keys))


TRITON: Final = {"kernels": "triton"}
FUSED: Final = {"kernels": "fused"}
MODELS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "cosmoflow": ({}, TRITON, FUSED),
    "deepcam": ({},),
    "oc20": ({}, TRITON),
}
"""The choices of each network's configuration that compute the same numbers."""

OFF: Final = ("train.graph=off",)
AUTO: Final = ("train.graph=auto",)
COMPILE: Final = "compile=true"
NO_BUCKETS: Final = "data.buckets=off"
COLD: Final = "train.warm_up=off"
WARMED: Final = "train.warm_up=auto"
PLAIN: Final = Variant("torch, eager", keys=OFF)
GRAPHS: Final = Variant("torch, graphs", keys=AUTO)
KERNELS: Final = Variant("kernels, eager", TRITON, OFF)
KERNELS_GRAPHS: Final = Variant("kernels, graphs", TRITON, AUTO)
BLOCK: Final = Variant("kernels and first block, eager", FUSED, OFF)
BLOCK_GRAPHS: Final = Variant("kernels and first block, graphs", FUSED, AUTO)
COMPILED: Final = Variant("compiled, graphs", keys=(*AUTO, COMPILE))
BEST: Final = {"cosmoflow": BLOCK_GRAPHS, "deepcam": GRAPHS, "oc20": KERNELS_GRAPHS}
"""Everything on, but that the time does not allow to compile DeepCAM more than once."""

FLAT_GRAPHS: Final = Variant("torch, graphs, flat optimizer")
COMPILED_FLAT: Final = Variant("compiled, graphs, flat optimizer")
NARROW: Final = Variant("kernels and first block, graphs, data.format=narrow")
GONE: Final = frozenset(variant.name for variant in (FLAT_GRAPHS, COMPILED_FLAT, NARROW))
"""Only in results that were measured while their options existed."""

KEEP_FROM: Final = 0.1
"""An option stays if it takes this share of a step away, somewhere."""


@dataclass(frozen=True)
class Option:
    """An option, and what decides whether it stays.

    key: as on the command line. networks: that have it. pairs: variants without and with it, the decisive pair last.
    rows: `what` of the rows that are compared. decisive: network and batch that must be measured before it is deleted.
    by: the measurement. deleted: whether the option is gone, because a card has decided so.
    """

    key: str
    networks: tuple[str, ...]
    by: str
    pairs: tuple[tuple[Variant, Variant], ...] = ()
    rows: str = "step"
    decisive: tuple[str, int] | None = None
    deleted: bool = False


EVERY: Final = ("cosmoflow", "deepcam", "oc20")
OPTIONS: Final = (
    Option(
        "train.graph=auto",
        EVERY,
        "*-variants: recorded or not",
        ((PLAIN, GRAPHS), (KERNELS, KERNELS_GRAPHS), (BLOCK, BLOCK_GRAPHS)),
    ),
    Option(
        "model.kernels=triton",
        ("cosmoflow", "oc20"),
        "cosmoflow-variants, oc20-variants: with torch's operations or the kernels",
        ((PLAIN, KERNELS), (GRAPHS, KERNELS_GRAPHS)),
    ),
    Option(
        "model.kernels=fused",
        ("cosmoflow",),
        "cosmoflow-variants: beyond model.kernels=triton",
        ((KERNELS, BLOCK), (KERNELS_GRAPHS, BLOCK_GRAPHS)),
    ),
    Option(
        "optim.fused=flat",
        ("deepcam",),
        "deepcam-variants: recorded, with and without; batch 1 decides",
        ((GRAPHS, FLAT_GRAPHS),),
        decisive=("deepcam", 1),
        deleted=True,
    ),
    Option(
        COMPILE,
        ("deepcam",),
        "deepcam-variants",
        ((FLAT_GRAPHS, COMPILED_FLAT), (GRAPHS, COMPILED)),
        decisive=("deepcam", 8),
    ),
    Option(
        "data.buckets=auto",
        ("oc20",),
        "product: recorded steps from files, with and without",
        ((KERNELS_GRAPHS.with_keys(NO_BUCKETS), KERNELS_GRAPHS),),
        "with files",
        ("oc20", 32),
    ),
    Option(
        "data.format=narrow",
        ("cosmoflow",),
        "product: steps from files, narrow and TFRecords",
        ((BLOCK_GRAPHS, NARROW),),
        "with files",
        ("cosmoflow", 16),
        deleted=True,
    ),
    Option("dist.gradients=bf16", EVERY, "needs several GPUs on several nodes"),
    Option("dist.bucket_mb", EVERY, "needs several GPUs"),
)
