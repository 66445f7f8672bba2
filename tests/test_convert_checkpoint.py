"""Files of the reference codes in and out: their public names, and no code of a file is run."""

import argparse
import itertools
import re
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from common.benchmarks import PACKAGES
from common.config import load
from common.export import load_network
from common.named_configs import find_config
from common.training import weights
from deepcam.data import stats
from deepcam.reference import CHANNELS

ROOT = Path(__file__).parents[1]
NAMES = [name for name in PACKAGES if (ROOT / name / "convert_checkpoint.py").exists()]
SMALL = {
    "cosmoflow": "data.sample_shape=[16,16,16,4] model.conv_size=4 model.conv_layers=2 model.fc1=16 model.fc2=8",
    "deepcam": "model.width=0.125 data.data_dir=data",
    "oc20": "model.hidden=16 model.blocks=1 model.radial=4 model.spherical=3 model.interaction=8 model.out=16",
}
ENDINGS = {"cosmoflow": ".h5", "deepcam": ".cpt", "oc20": ".pt"}
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
        middle = 4 <= number <= 19
        for position in (0, 3, 6) if middle else (0, 3):
            yield from (*separable(f"{block}{number}.rep.{position}"), *norm(f"{block}{number}.rep.{position + 1}"))
        if not middle:
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


LIKE = {
    "deepcam": {
        "xception_features.conv2.weight": "xception.stem.3.weight",
        "xception_features.bn1.bn.weight": "xception.stem.1.weight",
        "xception_features.block1.rep.3.pointwise.weight": "xception.block1.main.3.1.weight",
        "xception_features.block4.rep.1.bn.running_var": "xception.middle.0.main.1.running_var",
        "xception_features.block19.rep.7.bn.bias": "xception.middle.30.main.7.bias",
        "xception_features.block20.skipbn.bn.weight": "xception.exit.0.skip.1.weight",
        "xception_features.conv4.conv1.weight": "xception.exit.4.0.weight",
        "xception_features.bn4.bn.running_mean": "xception.exit.5.running_mean",
        "bottleneck.aspp2.atrous_convolution.weight": "pyramid.branches.1.0.weight",
        "bottleneck.aspp4.bn.bn.weight": "pyramid.branches.3.1.weight",
        "bottleneck.global_avg_pool.global_average_pool.2.weights": "pyramid.pooled_scale",
        "upsample.deconv1.4.bn.bias": "decoder.deep.4.bias",
        "upsample.conv1.3.weight": "decoder.join.3.weight",
        "conv2.weight": "decoder.low_level.0.weight",
    },
    "oc20": {
        "emb.lin_rbf.weight": "embedding.radial.weight",
        "output_blocks.1.lins.2.bias": "outputs.1.layers.2.bias",
        "output_blocks.0.lin_up.weight": "outputs.0.up.weight",
        "interaction_blocks.0.lin_kj.weight": "interactions.0.arriving.weight",
        "interaction_blocks.0.lin_ji.weight": "interactions.0.own.weight",
        "interaction_blocks.0.lin.weight": "interactions.0.skip.weight",
        "interaction_blocks.0.lin_sbf2.weight": "interactions.0.spherical.1.weight",
        "interaction_blocks.0.lin_rbf2.weight": "interactions.0.radial.1.weight",
        "interaction_blocks.0.layers_before_skip.0.lin1.weight": "interactions.0.before_skip.0.first.weight",
        "interaction_blocks.0.layers_after_skip.1.lin2.bias": "interactions.0.after_skip.1.second.bias",
    },
}
"""Names in the reference of tensors that others have the shape of, with ours."""
TORCH = {"deepcam": ("model", "module.", list(deepcam_names())), "oc20": ("state_dict", "", list(oc20_names()))}


@pytest.fixture(params=NAMES)
def name(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    ones = np.ones(len(CHANNELS))
    stats.write_stats(Path("data/stats.h5"), stats.Stats(1, ones, 2 * ones, -ones, 3 * ones))
    return request.param


@pytest.fixture
def command(name):
    main = import_module(f"{name}.convert_checkpoint").main
    return lambda *words, small=True: main([*words, *(SMALL[name].split() if small else ())])


@pytest.fixture
def ours(name):
    """Return the tensors of a small network by our names, no two alike."""
    benchmark = import_module(f"{name}.train").BENCHMARK
    config = load(benchmark.config, find_config(name, "config"), SMALL[name].split())
    found = benchmark.predictor.network(config).state_dict()
    generator = torch.Generator().manual_seed(1)
    drawn = {key: torch.rand(tensor.shape, generator=generator) for key, tensor in found.items()}
    return {key: drawn[key] if found[key].is_floating_point() else found[key] + 3 for key in found}


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


def reference_file(name, path, ours):
    """Write a file of the reference code with these weights; a test compares its names with the public ones."""
    if name == "cosmoflow":
        keras_file(path, ours, first=7)
        return
    key, prefix, _ = TORCH[name]
    renamed = import_module(f"{name}.convert_checkpoint")
    names = renamed.reference_names(ours) if name == "deepcam" else renamed.renamed(ours, renamed.RULES)
    content = {"epoch": 3, "step": 9, key: {prefix + names[one]: tensor for one, tensor in ours.items()}}
    torch.save({**content, "optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]}}, path)


def test_there_and_back(name, command, ours, capsys):
    """What the reference wrote is a network here, and what is written for the reference has the same tensors."""
    official, export, back = f"official{ENDINGS[name]}", "ours.safetensors", f"back{ENDINGS[name]}"
    reference_file(name, official, ours)
    assert command(official, export) == 0
    found = weights.read(Path(export), name)
    assert found.tensors.keys() == ours.keys() and all(torch.equal(found.tensors[key], ours[key]) for key in ours)
    assert found.epochs == (None if name == "cosmoflow" else 3) and set(found.interface) >= {"input", "output"}
    load_network(import_module(f"{name}.train").BENCHMARK, export)
    assert command(export, back, small=False) == 0
    assert command(back, "again.safetensors") == 0
    assert weights.read(Path("again.safetensors")).digest == found.digest
    assert command(export, back, small=False) == 1 and "already exists" in capsys.readouterr().err


def test_the_names_are_those_of_the_reference(name, command, ours):
    if name not in TORCH:
        pytest.skip("Keras has names of its own")
    key, _, names = TORCH[name]
    reference_file(name, "official.pt", ours)
    content = torch.load("official.pt", weights_only=True)[key]
    stripped = {one.removeprefix("module."): tensor for one, tensor in content.items()}
    assert sorted(stripped) == sorted(names)
    for other, our in LIKE[name].items():
        assert torch.equal(stripped[other], ours[our]), other


def test_a_network_of_another_size_is_refused_with_a_list(name, command, ours, capsys):
    reference_file(name, f"official{ENDINGS[name]}", ours)
    assert command(f"official{ENDINGS[name]}", "x.safetensors", "data.data_dir=data", small=False) == 1
    said = capsys.readouterr().err
    assert "do not fit the network" in said and "of another shape: " in said and "set the keys of `model`" in said
    assert not Path("x.safetensors").exists()


@pytest.mark.parametrize("kind", ["text", "empty", "cut"])
def test_a_damaged_file_is_refused(name, command, ours, kind, capsys):
    path = Path(f"official{ENDINGS[name]}")
    reference_file(name, path, ours)
    path.write_bytes({"text": b"epoch: 3\n", "empty": b"", "cut": path.read_bytes()[:2000]}[kind])
    assert command(str(path), "x.safetensors") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: ") and "damaged" in said and "Traceback" not in said


def test_wrong_use_is_told(name, command, ours, capsys):
    assert command("nowhere" + ENDINGS[name], "x.safetensors") == 1 and "no such file" in capsys.readouterr().err
    assert command("official.pt", "x.onnx") == 2 and "expected a name that ends in" in capsys.readouterr().err
    Path("run").mkdir()
    assert command("run", "x.safetensors") == 2 and "`python -m common.export` exports a run" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        command("one" + ENDINGS[name])
    assert "expected a file to read and one to write, not 1" in capsys.readouterr().err


# -- torch ---------------------------------------------------------------------------------------------------


class Boom:
    def __reduce__(self):
        return Path.touch, (Path("boom"),)


@pytest.mark.parametrize("object_", [argparse.Namespace(lr=1), Boom()], ids=["namespace", "boom"])
def test_a_file_that_needs_code_is_refused_with_the_way_out(name, command, ours, object_, capsys):
    if name not in TORCH:
        pytest.skip("HDF5 has no code")
    key, *_ = TORCH[name]
    reference_file(name, "official.pt", ours)
    content = torch.load("official.pt", weights_only=True)
    torch.save({**content, "args": object_}, "with-code.pt")
    assert command("with-code.pt", "x.safetensors") == 1
    said = capsys.readouterr().err
    assert "loading that could run any code, so it is not loaded" in said and not Path("boom").exists()
    if isinstance(object_, argparse.Namespace):  # what it says to do helps
        assert "an object of argparse.Namespace" in said
        (code,) = re.findall(r'python -c "(.*)"', said)
        exec(code, {})
        assert list(torch.load("weights-only.pt", weights_only=True)) == [key]
        assert command("weights-only.pt", "x.safetensors") == 0


def test_weights_alone_are_taken_too(name, command, ours):
    if name not in TORCH:
        pytest.skip("a file of torch")
    reference_file(name, "official.pt", ours)
    torch.save(torch.load("official.pt", weights_only=True)[TORCH[name][0]], "alone.pth")
    assert command("alone.pth", "x.safetensors") == 0
