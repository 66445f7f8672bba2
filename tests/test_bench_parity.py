"""bench/parity.py: what it finds, tells and returns; the stand-ins; the official code itself where a clone is named."""

import itertools
import json
import math
import os
import sys
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from common.config import load
from common.installed import find_config
from common.training import weights
from common.training.checkpoint import CheckpointError
from deepcam.data import values
from deepcam.reference import CHANNELS
from tests.bench_script import BENCH, bench_script
from tests.problems import ROOT, run_process

pytestmark = pytest.mark.exhaustive

CLONE = os.environ.get("MLPERF_HPC_CLONE", "")
ENVIRONMENT = Path(os.environ.get("MLPERF_HPC_PARITY", ROOT / ".parity"))
rows = bench_script("parity.rows")
Row, Compared = rows.Row, rows.Compared


def run(*arguments):
    return run_process(sys.executable, f"{BENCH}/parity.py", *arguments)


def test_what_is_beyond_its_tolerance_fails_and_nan_is():
    assert Row("a", "relative", 1e-7, 1e-6).passed and Row("a", "relative", 0.0, 0).passed
    assert Row("told only", "relative", 1.0, None).passed
    assert not Row("a", "relative", 2e-6, 1e-6).passed and not Row("a", "relative", math.nan, 1e-6).passed


def test_differences_are_relative_to_the_largest_official_value():
    assert rows.relative([1.0, 101.0], [1.0, 100.0]) == pytest.approx(0.01)
    assert rows.relative([1.0], [1.0, 2.0]) == math.inf  # another shape
    assert math.isnan(rows.relative([math.nan], [1.0]))


def test_the_exit_status_is_never_green_by_default(capsys):
    good = Compared("deepcam", (Row("logits", "relative", 1e-9, 1e-8),))
    bad = Compared("deepcam", (Row("logits", "relative", 1e-7, 1e-8),))
    missing = Compared("cosmoflow", missing="no TensorFlow; `make parity-env` makes it")
    assert rows.told({"deepcam": good}) == 0 and not capsys.readouterr().err
    assert rows.told({"cosmoflow": missing, "deepcam": good}) == 3
    assert rows.told({"cosmoflow": missing, "deepcam": bad}) == 1
    assert rows.told({"oc20": None}) == 1
    error = capsys.readouterr().err
    assert "not run: cosmoflow: no TensorFlow" in error and "deepcam: logits: 1.00e-07, at most 1e-08" in error


def test_results_survive_their_file_and_are_shown(tmp_path):
    result = Compared("oc20", (Row("forces", "relative", 3e-6, 1e-6),), "the edges: no pymatgen", {"torch": "2"})
    result.write(tmp_path / "result.json")
    assert Compared.read(tmp_path / "result.json") == result
    benchmarks = [result.facts, Compared("deepcam", missing="no clone").facts]
    record = {"date": "2026-01-01", "machine": "a computer", "python": "3", "hpc": "abc", "benchmarks": benchmarks}
    text = rows.page(record)
    assert "| forces | **3.0e-06** | 1e-06 |" in text and "Not run: the edges: no pymatgen" in text
    assert "Not run: no clone" in text


def test_a_folder_that_is_no_clone_is_refused(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2 and "is not a clone of mlcommons/hpc" in done.stderr


def test_what_is_missing_is_told_with_how_to_get_it(tmp_path):
    for folder in ("deepcam", "open_catalyst"):
        (tmp_path / folder).mkdir()
    done = run(tmp_path, "--environment", tmp_path / "none", "-o", tmp_path / "parity")
    assert done.returncode == 3
    for name, what in (("cosmoflow", "`make parity-env`"), ("deepcam", "a clone"), ("oc20", "`make parity-env`")):
        (line,) = [line for line in done.stderr.splitlines() if line.startswith(f"not run: {name}: ")]
        assert what in line
    assert [found["rows"] for found in json.loads((tmp_path / "parity.json").read_text())["benchmarks"]] == [[]] * 3


def test_the_stand_in_for_sparse_matrices_lists_all_triplets():
    generator = torch.Generator().manual_seed(0)
    source, centre = torch.randint(0, 5, (2, 40), generator=generator)
    sparse = bench_script("parity.geometric").SparseTensor(centre, source, torch.arange(40), (5, 5))[source]
    found = sorted(zip(sparse.storage.value().tolist(), sparse.storage.row().tolist(), strict=True))
    assert found == sorted((kj, ji) for ji in range(40) for kj in range(40) if centre[kj] == source[ji])
    assert sparse.set_value(None).sum(dim=1).tolist() == [int((centre == source[ji]).sum()) for ji in range(40)]


# -- official checkpoints ------------------------------------------------------------------------------------

SMALL = {
    "cosmoflow": "data.sample_shape=[16,16,16,4] model.conv_size=4 model.conv_layers=2 model.fc1=16 model.fc2=8",
    "deepcam": "model.width=0.125 data.data_dir=.",
    "oc20": "model.hidden=16 model.blocks=1 model.radial=4 model.spherical=3 model.interaction=8 model.out=16",
}
NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def separable(base):
    return [f"{base}.conv1.weight", f"{base}.pointwise.weight"]


def norm(base):
    return [f"{base}.bn.{leaf}" for leaf in NORM]


def deepcam_names():
    """Yield the names in a checkpoint of the reference: architecture/deeplab_xception.py, 16 output strides."""
    xception, block = "xception_features", "xception_features.block"
    for number in (1, 2):
        yield from (f"{xception}.conv{number}.weight", *norm(f"{xception}.bn{number}"))
    for number in range(1, 21):
        for position in (0, 3, 6) if 4 <= number <= 19 else (0, 3):
            yield from (*separable(f"{block}{number}.rep.{position}"), *norm(f"{block}{number}.rep.{position + 1}"))
        if not 4 <= number <= 19:
            yield from separable(f"{block}{number}.rep.5")
            yield from (f"{block}{number}.skip.weight", *norm(f"{block}{number}.skipbn"))
    for number in (3, 4, 5):
        yield from (*separable(f"{xception}.conv{number}"), *norm(f"{xception}.bn{number}"))
    for number in (1, 2, 3, 4):
        base = f"bottleneck.aspp{number}"
        yield from (f"{base}.atrous_convolution.weight", *norm(f"{base}.bn"))
    pooled = "bottleneck.global_avg_pool.global_average_pool"
    yield from (f"{pooled}.1.weight", f"{pooled}.2.weights", f"{pooled}.2.bias")
    yield from ("bottleneck.conv.weight", *norm("bottleneck.bn"), "conv2.weight", *norm("bn2"))
    for base in ("upsample.deconv1", "upsample.conv1"):
        yield from (f"{base}.0.weight", *norm(f"{base}.1"), f"{base}.3.weight", *norm(f"{base}.4"))
    yield from ("upsample.conv1.6.weight", "upsample.conv1.6.bias")
    yield from ("upsample.deconv2.0.weight", *norm("upsample.deconv2.1"), "upsample.last_deconv.0.weight")


def linear(*bases):
    return [f"{base}.{leaf}" for base in bases for leaf in ("weight", "bias")]


def oc20_names(blocks=1):
    """Yield the names in a checkpoint of the reference: dimenet_plus_plus.py and PyTorch Geometric's layers."""
    yield from ("rbf.freq", "emb.emb.weight", *linear("emb.lin_rbf", "emb.lin"))
    for number in range(blocks + 1):
        base = f"output_blocks.{number}"
        yield from (f"{base}.lin_rbf.weight", f"{base}.lin.weight")
        yield from linear(f"{base}.lin_up", *(f"{base}.lins.{layer}" for layer in range(3)))
    for number in range(blocks):
        base = f"interaction_blocks.{number}"
        yield from (f"{base}.lin_{name}.weight" for name in ("rbf1", "rbf2", "sbf1", "sbf2", "down", "up"))
        yield from linear(*(f"{base}.lin{name}" for name in ("_kj", "_ji", "")))
        for residual, layer in itertools.product(
            ("layers_before_skip.0", "layers_after_skip.0", "layers_after_skip.1"), ("lin1", "lin2")
        ):
            yield from linear(f"{base}.{residual}.{layer}")


def keras_file(path, tensors, first):
    """Write a whole model as Keras does. first: the number of its first layers."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = "{}"
        group, layers = file.create_group("model_weights"), []
        kernels = [key for key in tensors if key.endswith("weight")]
        for count, key in enumerate(kernels):
            weight, bias = tensors[key].numpy(), tensors[key.replace("weight", "bias")].numpy()
            kind = "conv3d" if weight.ndim == 5 else "dense"
            layer = f"{kind}_{first + count}"
            kernel = weight.transpose(2, 3, 4, 1, 0) if weight.ndim == 5 else weight.T
            layers += [layer, f"leaky_re_lu_{first + count}"]
            group.create_group(layers[-1]).attrs["weight_names"] = np.array([], "S1")
            inner = group.create_group(layer)
            inner.attrs["weight_names"] = [f"{layer}/kernel:0", f"{layer}/bias:0"]
            inner[f"{layer}/kernel:0"], inner[f"{layer}/bias:0"] = kernel, bias
        group.attrs["layer_names"] = layers


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam", "oc20"])
def test_an_official_checkpoint_becomes_an_export(name, tmp_path, monkeypatch):
    """Also one with the prefixes of parallel wrappers; names are those of the official code."""
    monkeypatch.chdir(tmp_path)
    ones = np.ones(len(CHANNELS))
    values.write_stats(Path("stats.h5"), values.Stats(1, ones, 2 * ones, -ones, 3 * ones))
    benchmark, convert = import_module(f"{name}.train").BENCHMARK, bench_script("parity.convert")
    config = load(benchmark.config, find_config(name, "config"), SMALL[name].split())
    generator = torch.Generator().manual_seed(1)
    ours = {
        key: torch.rand(tensor.shape, generator=generator) if tensor.is_floating_point() else tensor + 3
        for key, tensor in benchmark.build_network(config).state_dict().items()
    }
    if name == "cosmoflow":
        keras_file("official", ours, first=7)
    else:
        official, key = (
            (convert.rename_deepcam(ours), "model") if name == "deepcam" else (convert.rename_oc20(ours), "state_dict")
        )
        assert sorted(official.values()) == sorted(deepcam_names() if name == "deepcam" else oc20_names())
        normaliser = {"mean": torch.tensor(-1.25), "std": torch.tensor(2.5)}
        normalisers = {"target": normaliser, "grad_target": normaliser | {"mean": torch.tensor(0.0)}}
        content = {key: {f"module.module.{official[our]}": tensor for our, tensor in ours.items()}, "epoch": 3}
        torch.save({**content, "normalizers": normalisers}, "official")
    assert convert.convert(name, (Path("official"), Path("x.safetensors")), "config", SMALL[name].split()) == 0
    export = weights.read_weights(Path("x.safetensors"), name)
    assert export.tensors.keys() == ours.keys() and export.epochs == (None if name == "cosmoflow" else 3)
    assert all(torch.equal(tensor, ours[key]) for key, tensor in export.tensors.items())
    assert name != "oc20" or (export.config["data"]["energy_mean"], export.config["data"]["energy_std"]) == (-1.25, 2.5)
    with pytest.raises(CheckpointError, match="of another shape" if name != "cosmoflow" else "kernels of 5 axes"):
        convert.convert(name, (Path("official"), Path("y.safetensors")), "config", ["data.data_dir=."])


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam", "oc20"])
def test_the_official_code_agrees(name, tmp_path):
    """MLPERF_HPC_CLONE: a clone of mlcommons/hpc. MLPERF_HPC_PARITY: what `make parity-env` made, .parity if unset."""
    if not CLONE:
        pytest.skip("needs a clone of mlcommons/hpc: set MLPERF_HPC_CLONE")
    done = run(CLONE, "--only", name, "--environment", ENVIRONMENT, "-o", tmp_path / "parity")
    assert done.returncode == 0, done.stderr
