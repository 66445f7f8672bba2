"""`python -m deepcam.convert_checkpoint IN OUT`: weights of the reference's DeepCAM, in and out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from common.commands import convert
from common.commands.convert import Found, ReferenceFiles, by_our_names, epochs_of, read_torch, renamed
from common.training.weights import Weights
from deepcam.train import BENCHMARK

RULES: Final = (
    (r"^xception\.stem\.0", "xception_features.conv1"),
    (r"^xception\.stem\.1", "xception_features.bn1"),
    (r"^xception\.stem\.3", "xception_features.conv2"),
    (r"^xception\.stem\.4", "xception_features.bn2"),
    (r"^xception\.block", "xception_features.block"),
    (r"^xception\.exit\.0", "xception_features.block20"),
    (r"^xception\.exit\.1", "xception_features.conv3"),
    (r"^xception\.exit\.2", "xception_features.bn3"),
    (r"^xception\.exit\.4", "xception_features.conv4"),
    (r"^xception\.exit\.5", "xception_features.bn4"),
    (r"^xception\.exit\.7", "xception_features.conv5"),
    (r"^xception\.exit\.8", "xception_features.bn5"),
    (r"\.main\.", ".rep."),
    (r"\.skip\.0", ".skip"),
    (r"\.skip\.1", ".skipbn"),
    (r"(\.rep\.\d+|_features\.conv[345])\.0(?=\.)", r"\1.conv1"),
    (r"(\.rep\.\d+|_features\.conv[345])\.1(?=\.)", r"\1.pointwise"),
    (r"^pyramid\.branches\.(\d+)\.0", r"bottleneck.aspp\1.atrous_convolution"),
    (r"^pyramid\.branches\.(\d+)\.1", r"bottleneck.aspp\1.bn"),
    (r"^pyramid\.pooled\.", "bottleneck.global_avg_pool.global_average_pool.1."),
    (r"^pyramid\.pooled_scale", "bottleneck.global_avg_pool.global_average_pool.2.weights"),
    (r"^pyramid\.pooled_shift", "bottleneck.global_avg_pool.global_average_pool.2.bias"),
    (r"^pyramid\.merge\.0", "bottleneck.conv"),
    (r"^pyramid\.merge\.1", "bottleneck.bn"),
    (r"^decoder\.low_level\.0", "conv2"),
    (r"^decoder\.low_level\.1", "bn2"),
    (r"^decoder\.deep", "upsample.deconv1"),
    (r"^decoder\.join", "upsample.conv1"),
    (r"^decoder\.output\.3", "upsample.last_deconv.0"),
    (r"^decoder\.output", "upsample.deconv2"),
)
"""From our names to those of the reference, applied in this order after those of `_renumber_blocks`."""
NORM: Final = "running_mean"
"""What only batch normalisation has."""


def reference_names(ours: Iterable[str]) -> dict[str, str]:
    """Return the names of our tensors with those of the reference (architecture/deeplab_xception.py).

    Its blocks are numbered from the entry on, and its batch normalisation is inside a module that has it as `bn`.
    """
    names = list(ours)
    norms = {name.removesuffix(NORM) for name in names if name.endswith(NORM)}
    new_names = renamed(map(_renumber_blocks, names), RULES)
    wrapped = {}
    for name in names:
        base, _, leaf = name.rpartition(".")
        other = new_names[_renumber_blocks(name)]
        wrapped[name] = f"{other.removesuffix(leaf)}bn.{leaf}" if f"{base}." in norms else other
    return wrapped


def _renumber_blocks(name: str) -> str:
    """Return a name with the numbers of the middle blocks and of the branches that the reference has."""
    name = re.sub(r"^xception\.middle\.(\d+)", lambda match: f"xception.block{4 + int(match[1]) // 2}", name)
    return re.sub(r"^(pyramid\.branches\.)(\d+)", lambda match: f"{match[1]}{int(match[2]) + 1}", name)


def read_reference(path: Path, wanted: Mapping[str, Tensor]) -> Found:
    """Return the weights of a checkpoint of the reference: a dictionary with `model`, `epoch` and others."""
    content = read_torch(path, "model")
    return Found(by_our_names(content["model"], reference_names(wanted)), epochs_of(content))


def write_reference(path: Path, weights: Weights, config: Any) -> None:
    """Write a checkpoint with `model`, `epoch` and `step` of the reference."""
    names = reference_names(weights.tensors)
    model = {names[name]: tensor for name, tensor in weights.tensors.items()}
    convert.write_torch(path, {"step": 0, "epoch": weights.epochs or 0, "model": model})


FILES: Final = ReferenceFiles(
    endings=(".cpt", ".pt", ".pth"),
    code="the reference's DeepCAM (mlcommons/hpc deepcam/)",
    note="""
An export needs the extremes of the channels, which the reference's file lacks: stats.h5 in data.data_dir.
What is written for the reference has `model`, `epoch` and `step`, but not the optimizer's state, without which its
`train.py --checkpoint` does not start: load `model` into the network.""",
    read=read_reference,
    write=write_reference,
)
main = partial(convert.main, BENCHMARK, FILES)

if __name__ == "__main__":
    sys.exit(main())
