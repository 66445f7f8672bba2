"""Files that Keras did not write, or that lead to other files."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from common.training.checkpoint import CheckpointError
from common.training.weights import Weights
from cosmoflow.convert_checkpoint import read_reference, write_reference

OURS = {
    "convs.0.weight": torch.arange(2 * 3 * 8.0).reshape(2, 3, 2, 2, 2),
    "convs.0.bias": torch.tensor([1.0, 2.0]),
    "output.weight": torch.arange(8.0).reshape(4, 2),
    "output.bias": torch.zeros(4),
}
WEIGHTS = Weights(Path("model.h5"), "cosmoflow", OURS, {}, None, None)


@pytest.fixture
def path(tmp_path):
    write_reference(tmp_path / "model.h5", WEIGHTS, None)
    return tmp_path / "model.h5"


def test_kernels_are_in_the_order_of_keras(path):
    with h5py.File(path) as file:
        kernel = file["conv3d/conv3d/kernel:0"][:]
        assert kernel.shape == (2, 2, 2, 3, 2) and kernel[1, 0, 1, 2, 0] == OURS["convs.0.weight"][0, 2, 1, 0, 1]
        assert file["dense/dense/kernel:0"].shape == (2, 4)
        assert [name.decode() for name in file.attrs["layer_names"]] == ["conv3d", "dense"]
    assert all(torch.equal(tensor, OURS[name]) for name, tensor in read_reference(path, OURS).tensors.items())


def external(file, _):
    del file["dense/dense/bias:0"]
    file.create_dataset("dense/dense/bias:0", (4,), "<f4", external=[("other.bin", 0, 16)])


def soft(file, _):
    del file["dense/dense/bias:0"]
    file["dense/dense/bias:0"] = h5py.SoftLink("/conv3d/conv3d/bias:0")


def to_file(file, folder):
    del file["dense"]
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = 1
    file["dense"] = h5py.ExternalLink(str(folder / "other.h5"), "/")


def whole_model(file, folder):
    write_reference(folder / "other.h5", WEIGHTS, None)
    file["model_weights"] = h5py.ExternalLink(str(folder / "other.h5"), "/")


def unwritten(file, _):
    """Name a huge array that takes no place in the file."""
    del file["dense/dense/bias:0"]
    file.create_dataset("dense/dense/bias:0", (10**12,), "<f4", chunks=(1024,))


def newer(file, _):
    del file.attrs["layer_names"]


def one_weight(file, _):
    file["dense"].attrs["weight_names"] = np.array([b"dense/kernel:0"])


def text(file, _):
    del file["dense/dense/bias:0"]
    file["dense/dense/bias:0"] = "text"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (external, "bias:0` are not all in this file"),
        (soft, "is a link, which is not followed"),
        (to_file, "is a link, which is not followed"),
        (whole_model, "`model_weights` is a link, which is not followed"),
        (unwritten, "are not all in this file"),
        (newer, r"write it again by `model.save\('model.h5'\)`"),
        (one_weight, "expected a kernel and a bias"),
        (text, "is not an array of numbers"),
    ],
)
def test_other_files_are_refused(path, tmp_path, change, message):
    with h5py.File(path, "r+") as file:
        change(file, tmp_path)
    with pytest.raises(CheckpointError, match=message):
        read_reference(path, OURS)
