"""`python -m oc20.convert_checkpoint IN OUT`: weights of the reference's DimeNet++, in and out."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from common.commands import convert
from common.commands.convert import (
    WRAPPER,
    Found,
    ReferenceFiles,
    by_our_names,
    epochs_of,
    read_torch,
    renamed,
)
from common.training.checkpoint import CheckpointError
from common.training.weights import Weights
from oc20.train import BENCHMARK

RULES: Final = (
    (r"^radial\.frequencies$", "rbf.freq"),
    (r"^embedding\.elements", "emb.emb"),
    (r"^embedding\.radial", "emb.lin_rbf"),
    (r"^embedding\.join", "emb.lin"),
    (r"^outputs\.(\d+)\.radial", r"output_blocks.\1.lin_rbf"),
    (r"^outputs\.(\d+)\.up", r"output_blocks.\1.lin_up"),
    (r"^outputs\.(\d+)\.layers", r"output_blocks.\1.lins"),
    (r"^outputs\.(\d+)\.energy", r"output_blocks.\1.lin"),
    (r"^(interactions\.\d+)\.radial\.0", r"\1.lin_rbf1"),
    (r"^(interactions\.\d+)\.radial\.1", r"\1.lin_rbf2"),
    (r"^(interactions\.\d+)\.spherical\.0", r"\1.lin_sbf1"),
    (r"^(interactions\.\d+)\.spherical\.1", r"\1.lin_sbf2"),
    (r"^(interactions\.\d+)\.arriving", r"\1.lin_kj"),
    (r"^(interactions\.\d+)\.own", r"\1.lin_ji"),
    (r"^(interactions\.\d+)\.(down|up)", r"\1.lin_\2"),
    (r"^(interactions\.\d+)\.skip", r"\1.lin"),
    (r"^(interactions\.\d+)\.(before|after)_skip", r"\1.layers_\2_skip"),
    (r"_skip\.(\d+)\.first", r"_skip.\1.lin1"),
    (r"_skip\.(\d+)\.second", r"_skip.\1.lin2"),
    (r"^interactions", "interaction_blocks"),
)
"""From our names to those of the reference (ocpmodels/models/dimenet_plus_plus.py), applied in this order."""
KEY: Final = "state_dict"


def read_reference(path: Path, wanted: Mapping[str, Tensor]) -> Found:
    """Return the weights of a checkpoint of the reference, and the normalisation that it has."""
    content = read_torch(path, KEY)
    tensors = by_our_names(content[KEY], renamed(wanted, RULES))
    return Found(tensors, epochs_of(content), _read_normalisation(path, content.get("normalizers")))


def _read_normalisation(path: Path, normalisers: Any) -> tuple[str, ...]:
    """Return the overrides for the mean and deviation of the energies, none if the file has none."""
    if not normalisers:
        return ()
    try:
        mean, std = (float(normalisers["target"][name]) for name in ("mean", "std"))
        force_mean, force_std = (float(normalisers["grad_target"][name]) for name in ("mean", "std"))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: its `normalizers` lack a number ({error}); expected `target` and `grad_target`, each with `mean` "
            "and `std`"
        ) from error
    if force_mean or not math.isclose(std, force_std, rel_tol=1e-6):  # which float32 leaves
        raise CheckpointError(
            f"{path}: forces are normalised with mean {force_mean:g} and deviation {force_std:g}, energies with "
            f"deviation {std:g}; expected mean 0 and the same deviation, since forces are gradients of the energy"
        )
    return f"data.energy_mean={mean!r}", f"data.energy_std={std!r}"


def write_reference(path: Path, weights: Weights, config: Any) -> None:
    """Write a checkpoint of the reference, with the names of a parallel training, which it reads in any."""
    names = renamed(weights.tensors, RULES)
    mean, std = torch.tensor(config.data.energy_mean), torch.tensor(config.data.energy_std)
    content = {
        "epoch": weights.epochs or 0,
        "step": 0,
        KEY: {f"{WRAPPER}{WRAPPER}{names[name]}": tensor for name, tensor in weights.tensors.items()},
        "normalizers": {
            "target": {"mean": mean, "std": std},
            "grad_target": {"mean": torch.zeros(()), "std": std.clone()},
        },
    }
    convert.write_torch(path, content)


FILES: Final = ReferenceFiles(
    endings=(".pt", ".pth"),
    code="the reference's OC20 (mlcommons/hpc open_catalyst/)",
    note="""
Mean and deviation of the energies are taken from the reference's file, if it has them.
What is written for the reference has `state_dict`, `normalizers`, `epoch` and `step`, but no optimizer.""",
    read=read_reference,
    write=write_reference,
)
main = partial(convert.main, BENCHMARK, FILES)

if __name__ == "__main__":
    sys.exit(main())
