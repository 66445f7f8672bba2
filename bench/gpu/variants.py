"""The ways to train that are compared, as keys of the configurations, and the options that they tell about."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final


@dataclass(frozen=True)
class Variant:
    """A way to train: keys of the section `model`, and others with their values, as on the command line.

    candidates: faster paths that are switched on, see common/candidate.py.
    """

    name: str
    model: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()

    @property
    def overrides(self) -> list[str]:
        return [*(f"model.{key}={value}" for key, value in self.model.items()), *self.keys]

    def with_keys(self, *keys: str) -> Variant:
        """Return the variant with more keys, which its name tells."""
        return replace(self, name=", ".join((self.name, *keys)), keys=(*self.keys, *keys))

    def with_candidates(self, *names: str) -> Variant:
        """Return the variant with these candidates, which its name tells."""
        return replace(self, name=", ".join((self.name, *names)), candidates=names)

    def try_each(self, names: tuple[str, ...]) -> list[Variant]:
        """Return the variant, then with each of some candidates, then with all of them."""
        sets = dict.fromkeys([(), *((name,) for name in names), names])
        return [self.with_candidates(*chosen) for chosen in sets]


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
NO_TUNING: Final = "precision.tune=false"
PLAIN: Final = Variant("torch, eager", keys=OFF)
GRAPHS: Final = Variant("torch, graphs", keys=AUTO)
UNTUNED: Final = GRAPHS.with_keys(NO_TUNING)
KERNELS: Final = Variant("kernels, eager", TRITON, OFF)
KERNELS_GRAPHS: Final = Variant("kernels, graphs", TRITON, AUTO)
BLOCK: Final = Variant("kernels and first block, eager", FUSED, OFF)
BLOCK_GRAPHS: Final = Variant("kernels and first block, graphs", FUSED, AUTO)
COMPILED: Final = Variant("compiled, graphs", keys=(*AUTO, COMPILE))
COMPILED_UNTUNED: Final = COMPILED.with_keys(NO_TUNING)
AUTOTUNED: Final = replace(COMPILED_UNTUNED, name="compiled with max_autotune, graphs, precision.tune=false")
BEST: Final = {"cosmoflow": BLOCK_GRAPHS, "deepcam": COMPILED, "oc20": KERNELS_GRAPHS}
"""Everything on."""
RECORDED: Final = (GRAPHS, UNTUNED, KERNELS_GRAPHS, BLOCK_GRAPHS, COMPILED, COMPILED_UNTUNED)
"""What a user can choose, recorded as it is by default: only these head a line of the page."""
PLAINER: Final = (PLAIN, GRAPHS, UNTUNED, KERNELS_GRAPHS, BLOCK_GRAPHS)
"""Variants with whose losses those of others are compared, the plainest first."""

CANDIDATES: Final = {
    "cosmoflow": ("cosmoflow-halves", "cosmoflow-copies", "cosmoflow-arrange", "fused-sgd"),
    "deepcam": ("deepcam-output-8", "lamb-scratch"),
    "oc20": ("oc20-tf32", "oc20-bases-64", "oc20-rows", "oc20-basis", "oc20-sums"),
}
"""The candidates of each network that change neither its files nor what is compiled."""
PACKED: Final = replace(BLOCK_GRAPHS.with_keys("data.format=packed"), candidates=("cosmoflow-packed",))
"""Samples of a quarter of the bytes, decoded on the device."""
BASES: Final = {"cosmoflow": BLOCK_GRAPHS, "deepcam": UNTUNED, "oc20": KERNELS_GRAPHS}
"""What each of them, and then all, are added to."""
COMPILED_ALL: Final = COMPILED_UNTUNED.with_candidates(*CANDIDATES["deepcam"], "deepcam-loss", "deepcam-depthwise")
"""The last two need a compiled network: the loss joins it, and statistics would be computed twice without."""
CONVERGING: Final = {
    "cosmoflow": Variant("fused, 32 channels", FUSED | {"conv_size": 32}),
    "deepcam": Variant("compiled", keys=(COMPILE,)),
    "oc20": Variant("kernels, bf16", TRITON, ("precision.dtype=bf16",), ("oc20-tf32",)),
}
"""With which the mini problems are trained: the fused first block is of 32 channels, and TF32 comes with bf16."""

FLAT_GRAPHS: Final = Variant("torch, graphs, flat optimizer")
NARROW: Final = Variant("kernels and first block, graphs, data.format=narrow")


@dataclass(frozen=True)
class Option:
    """An option, what it gains, and what became of it.

    key: as on the command line. networks: that have it. pairs: variants without and with it, the decisive pair last.
    state: by default, to be chosen, or removed. rows: `what` of the rows that are compared. note: what the gain does
    not tell.
    """

    key: str
    networks: tuple[str, ...]
    state: str
    pairs: tuple[tuple[Variant, Variant], ...] = ()
    rows: str = "step"
    note: str = ""


EVERY: Final = ("cosmoflow", "deepcam", "oc20")
DEFAULT: Final = "on by default"
CHOSEN: Final = "to be chosen"
REMOVED: Final = "removed"
TRIED: Final = "tried, and in no configuration"
OPTIONS: Final = (
    Option(
        "train.graph=auto",
        EVERY,
        DEFAULT,
        ((PLAIN, GRAPHS), (KERNELS, KERNELS_GRAPHS), (BLOCK, BLOCK_GRAPHS)),
        note="at small batches this is the time that the machine's host takes to launch",
    ),
    Option(
        "data.buckets=auto",
        ("oc20",),
        DEFAULT,
        ((KERNELS_GRAPHS.with_keys(NO_BUCKETS), KERNELS_GRAPHS),),
        "with files",
        "by the time that the host takes to launch what is not recorded",
    ),
    Option("model.kernels=triton", ("cosmoflow", "oc20"), CHOSEN, ((PLAIN, KERNELS), (GRAPHS, KERNELS_GRAPHS))),
    Option(
        "model.kernels=fused",
        ("cosmoflow",),
        CHOSEN,
        ((KERNELS, BLOCK), (KERNELS_GRAPHS, BLOCK_GRAPHS)),
        note="beyond model.kernels=triton",
    ),
    Option(
        "compile=auto",
        ("deepcam",),
        DEFAULT,
        ((UNTUNED, COMPILED_UNTUNED), (GRAPHS, COMPILED)),
        note="only on cards where that was measured",
    ),
    Option(
        NO_TUNING,
        ("deepcam",),
        CHOSEN,
        ((GRAPHS, UNTUNED),),
        note="the start is shorter by cuDNN's search",
    ),
    Option("dist.gradients=bf16", EVERY, CHOSEN, note="needs several GPUs on several nodes"),
    Option("dist.bucket_mb", EVERY, CHOSEN, note="needs several GPUs"),
    Option(
        "optim.fused=flat",
        ("deepcam",),
        REMOVED,
        ((GRAPHS, FLAT_GRAPHS),),
        note="by a line of 10 %, which no longer decides",
    ),
    Option(
        "data.format=narrow",
        ("cosmoflow",),
        REMOVED,
        ((BLOCK_GRAPHS, NARROW),),
        "with files",
        "from the page cache, for one GPU",
    ),
    Option("max_autotune", ("deepcam",), TRIED, ((COMPILED_UNTUNED, AUTOTUNED),), note="beyond compile=true"),
    Option("cosmoflow-packed", ("cosmoflow",), TRIED, ((BLOCK_GRAPHS, PACKED),), note="data on the device"),
    Option("cosmoflow-packed", ("cosmoflow",), TRIED, ((BLOCK_GRAPHS, PACKED),), "with files", "from the page cache"),
    Option("deepcam-loss, deepcam-depthwise", ("deepcam",), TRIED, ((COMPILED_UNTUNED, COMPILED_ALL),)),
    *(
        Option(variant.name.removeprefix(f"{base.name}, "), (network,), TRIED, ((base, variant),))
        for network, base in BASES.items()
        for variant in base.try_each(CANDIDATES[network])
        if variant != base
    ),
)
