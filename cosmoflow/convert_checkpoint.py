"""`python -m cosmoflow.convert_checkpoint IN OUT`: weights of the reference's CosmoFlow, in and out.

They are in HDF5, as Keras 2 writes them with `save_weights`, `save` and checkpoints.

    layer_names, backend, keras_version    attributes of the file, or of its group model_weights
    conv3d_1                               a group for each layer, with the attribute weight_names
    conv3d_1/conv3d_1/kernel:0             (D, H, W, in, out) of a convolution, (in, out) of a dense layer
    conv3d_1/conv3d_1/bias:0               (out,)

Keras numbers layers over all models of a process, so that only their order counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import h5py
import numpy as np
import torch
from torch import Tensor

from common.commands import convert
from common.commands.convert import Found, ReferenceFiles
from common.data.hdf5 import HDF5_ERRORS, RefusedDataError, find_dataset, find_member
from common.files import check_regular, whole_file
from common.training.checkpoint import CheckpointError
from common.training.weights import Weights
from cosmoflow.train import BENCHMARK

MODEL: Final = "model_weights"
LAYERS: Final = "layer_names"
WEIGHTS: Final = "weight_names"
CONVOLUTION, DENSE = 5, 2
"""Dimensions of the kernels."""
TO_OURS: Final = {CONVOLUTION: (4, 3, 0, 1, 2), DENSE: (1, 0)}
TO_KERAS: Final = {CONVOLUTION: (2, 3, 4, 1, 0), DENSE: (1, 0)}
NAMES: Final = {CONVOLUTION: "conv3d", DENSE: "dense"}
VERSION: Final = "2.0.0"
"""Of Keras, whose layouts of kernels have been the same since."""


class Layer(NamedTuple):
    """A layer with weights. name: of the layer, in Keras or in our network. kernel: in the order of its owner."""

    name: str
    kernel: Tensor
    bias: Tensor


def read_reference(path: Path, wanted: Mapping[str, Tensor]) -> Found:
    """Return the weights of a file by the names of our network; layers beyond its own keep the names of Keras.

    Raises CheckpointError for a file that Keras 2 did not write, a damaged one, and one that leads to other files.
    """
    try:
        check_regular(path)
        with h5py.File(path, "r", locking=False) as file:
            inside = file.get(MODEL, getlink=True) is not None
            layers = list(_read_layers(_find_member(file, MODEL, path) if inside else file, path))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except RefusedDataError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except HDF5_ERRORS as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: damaged, or not an HDF5 file with the weights of Keras ({error})") from error
    tensors: dict[str, Tensor] = {}
    for kind in (CONVOLUTION, DENSE):
        ours = [name for name, tensor in wanted.items() if name.endswith(".weight") and tensor.dim() == kind]
        theirs = [layer for layer in layers if layer.kernel.dim() == kind]
        for name, layer in zip_longest(ours, theirs):
            if layer is not None:
                base = name.removesuffix("weight") if name else f"{layer.name}."
                tensors[f"{base}weight"] = layer.kernel.permute(TO_OURS[kind]).contiguous()
                tensors[f"{base}bias"] = layer.bias
    return Found(tensors)  # the file says neither epochs nor configuration


def _read_layers(group: Any, path: Path) -> Iterator[Layer]:
    """Yield the layers that have weights, in the order of the model."""
    if LAYERS not in group.attrs:
        raise CheckpointError(
            f"{path}: `{LAYERS}` is missing, so Keras 2 did not write it; from a newer Keras write it again by "
            "`model.save('model.h5')`"
        )
    for name in map(_decode_text, group.attrs[LAYERS]):
        arrays = [
            _read_array(group, f"{name}/{_decode_text(weight_name)}", path)
            for weight_name in _find_member(group, name, path).attrs[WEIGHTS]
        ]
        if not arrays:
            continue
        if len(arrays) != 2 or arrays[0].ndim not in TO_OURS:
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise CheckpointError(f"{path}: {name} has weights of shapes {shapes}; expected a kernel and a bias")
        yield Layer(name, *(torch.from_numpy(array) for array in arrays))


def _find_member(group: Any, name: str, path: Path) -> Any:
    """Return what a group has under a name of one or more parts, without following links."""
    member = find_member(group, name)
    if member is None:
        raise CheckpointError(f"{path}: `{name}` is missing")
    return member


def _read_array(group: Any, name: str, path: Path) -> np.ndarray:
    dataset = find_dataset(group, name)
    if dataset is None or dataset.dtype.kind != "f":
        raise CheckpointError(f"{path}: `{name}` is not an array of numbers")
    if dataset.id.get_storage_size() != dataset.nbytes:
        raise CheckpointError(f"{path}: the numbers of `{name}` are not all in this file, as Keras writes them")
    array: np.ndarray = np.asarray(dataset[()], "<f4")
    return array


def _decode_text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def write_reference(path: Path, weights: Weights, config: Any) -> None:
    """Write the weights of our network so that `load_weights` of the reference's model reads them."""
    layers: dict[str, Layer] = {}
    counts = dict.fromkeys(NAMES, 0)
    for name, weight in weights.tensors.items():
        if not name.endswith(".weight"):
            continue
        kind = weight.dim()
        number, counts[kind] = counts[kind], counts[kind] + 1
        called = f"{NAMES[kind]}_{number}" if number else NAMES[kind]
        bias = weights.tensors[f"{name.removesuffix('weight')}bias"]
        layers[called] = Layer(called, weight.permute(TO_KERAS[kind]).contiguous(), bias)
    with whole_file(path) as part, h5py.File(part, "w") as file:
        file.attrs.update({LAYERS: _encode_names(*layers), "backend": b"tensorflow", "keras_version": VERSION.encode()})
        for name, layer in layers.items():
            group, entries = file.create_group(name), (f"{name}/kernel:0", f"{name}/bias:0")
            group.attrs[WEIGHTS] = _encode_names(*entries)
            for weight_name, tensor in zip(entries, (layer.kernel, layer.bias), strict=True):
                group[weight_name] = tensor.float().numpy()


def _encode_names(*names: str) -> np.ndarray:
    encoded: np.ndarray = np.array([name.encode() for name in names])
    return encoded


FILES: Final = ReferenceFiles(
    endings=(".h5", ".hdf5"),
    code="the reference's CosmoFlow (mlcommons/hpc cosmoflow/, Keras 2)",
    note="""
Read are weights (`save_weights`) and whole models (checkpoint-NNN.h5). What is written for the reference has weights
alone: build the model there and call `model.load_weights("reference.h5")`.""",
    read=read_reference,
    write=write_reference,
)
main = partial(convert.main, BENCHMARK, FILES)

if __name__ == "__main__":
    sys.exit(main())
