"""The ways to train that are compared: keys of the configurations, by network."""

from __future__ import annotations

from typing import Any, Final

from gpu.training import PLAIN as PLAIN
from gpu.training import Variant as Variant

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
FLAT: Final = "optim.fused=flat"
COMPILE: Final = "compile=true"
UNTUNED: Final = Variant("torch, eager, cuDNN untuned", keys=(*OFF, "precision.tune=false"))
GRAPHS: Final = Variant("torch, graphs", keys=AUTO)
KERNELS: Final = Variant("kernels, eager", TRITON, OFF)
KERNELS_GRAPHS: Final = Variant("kernels, graphs", TRITON, AUTO)
BLOCK: Final = Variant("kernels and first block, eager", FUSED, OFF)
BLOCK_GRAPHS: Final = Variant("kernels and first block, graphs", FUSED, AUTO)
BLOCK_ALL: Final = Variant("kernels and first block, graphs, flat optimizer", FUSED, (*AUTO, FLAT))
ALL: Final = Variant("kernels, graphs, flat optimizer", TRITON, (*AUTO, FLAT))
FLAT_GRAPHS: Final = Variant("torch, graphs, flat optimizer", keys=(*AUTO, FLAT))
COMPILED_FLAT: Final = Variant("compiled, graphs, flat optimizer", keys=(*AUTO, COMPILE, FLAT))
BEST: Final = {"cosmoflow": BLOCK_ALL, "deepcam": FLAT_GRAPHS, "oc20": ALL}
"""Everything on, but that a run of ten minutes cannot compile DeepCAM more than once."""
