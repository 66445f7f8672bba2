"""Make an export of the suite, with the suite's names, from a checkpoint of the official code (mlcommons/hpc).

    python bench/parity/convert.py cosmoflow checkpoint-010.h5 cosmoflow.safetensors       Keras 2: weights, or a model
    python bench/parity/convert.py deepcam classifier_step_1000.cpt deepcam.safetensors data.data_dir=data/deepcam
    python bench/parity/convert.py oc20 checkpoint.pt oc20.safetensors

The file does not describe its network: it is that of the closed division unless --config and overrides name another.
DeepCAM's export needs the extremes of the channels, which the file lacks: stats.h5 in data.data_dir. OC20's has mean
and deviation of the energies, if the file has them. No code in a file is run.
"""

from __future__ import annotations

import argparse
import math
import pickle
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # before this folder, whose files have names of packages

import h5py
import torch
from torch import Tensor

from common.benchmarks import PACKAGES
from common.command import run_command
from common.config import load, to_dict
from common.data.hdf5 import find_dataset
from common.installed import CLOSED, find_config
from common.provenance import shown_path
from common.training import weights
from common.training.checkpoint import CheckpointError

KERNELS = {5: (4, 3, 0, 1, 2), 2: (1, 0)}
"""From Keras' axes of a kernel to ours, by their number: convolutions, and dense layers."""
DEEPCAM = (
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
"""From our names to the official ones (architecture/deeplab_xception.py), applied in this order."""
OC20 = (
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
"""From our names to the official ones (ocpmodels/models/dimenet_plus_plus.py), applied in this order."""


def rename_deepcam(names: Collection[str]) -> dict[str, str]:
    """Return our names of tensors with the official ones.

    Official blocks are numbered from the entry on, branches from 1, and a batch normalisation is the `bn` of a module.
    """
    official = {}
    norms = {name.removesuffix("running_mean") for name in names if name.endswith("running_mean")}
    for name in names:
        other = re.sub(r"^xception\.middle\.(\d+)", lambda match: f"xception.block{4 + int(match[1]) // 2}", name)
        other = re.sub(r"^(pyramid\.branches\.)(\d+)", lambda match: f"{match[1]}{int(match[2]) + 1}", other)
        other, (base, _, leaf) = replace_all(other, DEEPCAM), name.rpartition(".")
        official[name] = f"{other.removesuffix(leaf)}bn.{leaf}" if f"{base}." in norms else other
    return official


def rename_oc20(names: Collection[str]) -> dict[str, str]:
    """Return our names of tensors with the official ones."""
    return {name: replace_all(name, OC20) for name in names}


def replace_all(name: str, rules: Iterable[tuple[str, str]]) -> str:
    """Return a name after the substitutions, one after another."""
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def read_keras(path: Path, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights in a file of Keras 2, which numbers layers over all models: only their order counts."""
    with h5py.File(path, "r", locking=False) as file:
        group = file.get("model_weights", file)
        layers = [
            [
                torch.from_numpy(find_dataset(group, f"{layer}/{decode(name)}")[()])
                for name in group[layer].attrs["weight_names"]
            ]
            for layer in map(decode, group.attrs["layer_names"])
        ]
    tensors = {}
    for kind, axes in KERNELS.items():
        ours = [name[:-6] for name, tensor in wanted.items() if name.endswith(".weight") and tensor.dim() == kind]
        theirs = [layer for layer in layers if layer and layer[0].dim() == kind]
        if len(ours) != len(theirs):
            raise CheckpointError(f"{path}: {len(theirs)} kernels of {kind} axes; the configuration has {len(ours)}")
        for base, (kernel, bias) in zip(ours, theirs, strict=True):
            tensors |= {f"{base}weight": kernel.permute(axes).contiguous(), f"{base}bias": bias}
    return tensors


def decode(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else name


def read_torch(path: Path, key: str, official: Mapping[str, str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights that torch saved under a key or alone, by our names, and what is beside them.

    official: our names with the official ones; others are kept, without the prefixes of parallel wrappers.
    """
    content = torch.load(path, map_location="cpu", weights_only=True)
    ours = {other: name for name, other in official.items()}
    plain = {re.sub(r"^(module\.)+", "", name): tensor for name, tensor in content.get(key, content).items()}
    return {ours.get(name, name): tensor for name, tensor in plain.items()}, content


def read_normalisation(path: Path, content: Mapping[str, Any]) -> list[str]:
    """Return the overrides for the mean and deviation of OC20's energies, none if the file has none."""
    if not content.get("normalizers"):
        return []
    (mean, std), (force_mean, force_std) = (
        [float(content["normalizers"][kind][name]) for name in ("mean", "std")] for kind in ("target", "grad_target")
    )
    if force_mean or not math.isclose(std, force_std, rel_tol=1e-6):  # which float32 leaves
        raise CheckpointError(
            f"{path}: forces are normalised with mean {force_mean:g} and deviation {force_std:g}; expected 0 and "
            f"{std:g}, the deviation of the energies, of which they are gradients"
        )
    return [f"data.energy_mean={mean!r}", f"data.energy_std={std!r}"]


def convert(name: str, paths: tuple[Path, Path], config_name: str, overrides: list[str]) -> int:
    """Write an export from the official weights of a benchmark; return the exit status."""
    (source, target), benchmark = paths, import_module(f"{name}.train").BENCHMARK
    path = find_config(name, config_name)
    with torch.device("meta"):
        network = benchmark.build_network(load(benchmark.config, path, overrides))
    wanted = network.state_dict()
    content: Mapping[str, Any] = {}
    if name == "cosmoflow":
        tensors = read_keras(source, wanted)
    elif name == "deepcam":
        tensors, content = read_torch(source, "model", rename_deepcam(wanted))
    else:
        tensors, content = read_torch(source, "state_dict", rename_oc20(wanted))
        overrides = [*read_normalisation(source, content), *overrides]
    weights.check_fit(network, tensors, source)
    tensors = {name: tensor.to(wanted[name].dtype) for name, tensor in tensors.items()}
    config = load(benchmark.config, path, overrides)
    interface = benchmark.predictor.describe(config)
    export = weights.Weights(source, name, tensors, to_dict(config, shown_path), content.get("epoch"), interface)
    weights.write_weights(target, export)
    print(f"{target}: {export.count:,} numbers")
    return 0


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=PACKAGES)
    parser.add_argument("source", type=Path, metavar="IN", help="the official checkpoint")
    parser.add_argument("target", type=Path, metavar="OUT.safetensors", help="the export to write")
    parser.add_argument("override", nargs="*", help="section.key=value, replacing the configuration's value")
    parser.add_argument("--config", default=CLOSED, help="configuration of the network, by name or as YAML file")
    given = parser.parse_intermixed_args()
    if not given.source.is_file():
        parser.error(f"{given.source}: no such file; expected an official checkpoint")
    paths = given.source, given.target
    errors = (ValueError, OSError, pickle.UnpicklingError)  # the last if a file needs code
    return run_command(lambda: convert(given.benchmark, paths, given.config, given.override), errors)


if __name__ == "__main__":
    sys.exit(main())
