"""Weights leave a run and start another one: the exported network alone gives the run's own quality."""

import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import compliance
from common.config import load
from common.ranks.dist import make_single_dist
from common.record import read_value
from common.training import weights
from common.training.checkpoint import CheckpointError
from common.training.weights import load_network
from tests.problems import ROOT, curve

pytestmark = pytest.mark.one_benchmark

PAGE = ROOT / "docs" / "guide" / "weights.md"


@pytest.fixture
def here(case, config, finished_run, tmp_path):
    """Work in a folder with the export of a finished run."""
    assert weights.main([str(finished_run), f"{case.name}.safetensors"]) == 0
    return tmp_path


def test_the_exported_network_has_the_quality_of_the_run(case, finished_run, here):
    network = load_network(case.train.BENCHMARK, f"{case.name}.safetensors")
    config = load(case.train.BENCHMARK.config, Path("small.yaml"))
    problem = case.train.BENCHMARK.problem(config, make_single_dist(), 0)
    with torch.inference_mode():
        judged = [case.judged(network, problem.sets["validation"], index) for index in range(7)]
    quality = sum(total for total, _ in judged) / sum(count for _, count in judged)
    assert quality == pytest.approx(curve(finished_run)[-1][1], rel=1e-5)


def test_the_file_says_what_is_around_the_network(case, here):
    with safe_open(f"{case.name}.safetensors", "pt") as file:
        metadata = file.metadata()
    assert metadata["benchmark"] == case.name and metadata["epochs_done"] == "4"
    described = case.train.BENCHMARK.predictor.describe(load(case.train.BENCHMARK.config, Path("small.yaml")))
    assert json.loads(metadata["interface"]) == json.loads(json.dumps(described))
    assert list(described) == ["input", "preprocessing", "output"]
    assert metadata["weights_sha256"] == weights.read_weights(Path(f"{case.name}.safetensors")).digest


@pytest.mark.parametrize("source", ["export", "checkpoint", "run"])
def test_training_goes_on_from_the_weights(case, finished_run, here, source, capsys):
    """At a learning rate of nearly 0 the first epoch ends where the weights were."""
    file = {
        "export": f"{case.name}.safetensors",
        "checkpoint": str(finished_run / "checkpoints/epoch-0004-step-0000000.pt"),
        "run": str(finished_run),
    }[source]
    warmup = "warmup_epochs" if case.name == "cosmoflow" else "warmup_steps"
    still = ["schedule.base_lr=1e-12", f"schedule.{warmup}=0", "optim.weight_decay=0", "train.seed=5", "train.epochs=1"]
    batches = ["train.global_batch_size=24"]  # batch statistics over all samples are least like new ones
    assert case.train.main(["small.yaml", f"train.init_from={file}", "output_dir=second", *still, *batches]) == 4
    assert "starting from the weights in " in capsys.readouterr().out
    found, given = weights.read_weights(Path("second")), weights.read_weights(Path(f"{case.name}.safetensors"))
    trained = load_network(case.train.BENCHMARK, "second").model.named_parameters()
    for name, _ in trained:
        torch.testing.assert_close(found.tensors[name], given.tensors[name], rtol=1e-4, atol=1e-7)
    assert read_value(Path("second/result_0.txt"), "init_weights_sha256") == given.digest
    assert found.config["train"]["init_from"] == Path(file).name
    findings = compliance.check_logs(["second/result_0.txt"]).findings
    assert "SET15" in {finding.rule for finding in findings if finding.severity == "error"}


def test_weights_that_do_not_fit_are_refused_before_anything_is_made(case, here, capsys):
    name, other = f"{case.name}.safetensors", "other.safetensors"
    given = weights.read_weights(Path(name))
    first, second, *_ = given.tensors
    tensors = {**given.tensors, first: torch.zeros(7, 5), "foreign.weight": torch.zeros(3)}
    del tensors[second]
    weights.write_weights(Path(other), replace(given, tensors=tensors))
    assert case.train.main(["small.yaml", f"train.init_from={other}"]) == 1
    said = capsys.readouterr().err
    assert f"1 missing: {second}" in said and "1 not in the network: foreign.weight" in said
    assert f"1 of another shape: {first} 7 x 5, expected " in said and "Traceback" not in said
    assert not Path("run/result_0.txt").exists()


HEADER = b'{"a":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]}}'
IMPOSSIBLE = struct.pack("<Q", len(HEADER)) + HEADER


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:1000], "not a safetensors file, or damaged"),
        (lambda content: b"<html>404</html>", "this is a web page"),
        (lambda content: b"", "not a safetensors file, or damaged"),
        (lambda content: IMPOSSIBLE, "not a safetensors file, or damaged (reshape(): "),
        (lambda content: content[:-3] + bytes(3), "its weights are not those of `weights_sha256` in its metadata"),
    ],
    ids=["cut", "web page", "empty", "impossible", "changed"],
)
def test_a_damaged_export_is_refused(case, here, damage, message, capsys):
    path = Path(f"{case.name}.safetensors")
    path.write_bytes(damage(path.read_bytes()))
    assert case.train.main(["small.yaml", f"train.init_from={path}"]) == 1
    assert message in capsys.readouterr().err


def test_other_files_are_refused(case, here):
    save_file({"a": torch.ones(2)}, "plain.safetensors")
    for name, message in (
        ("plain.safetensors", "its metadata lack benchmark"),
        ("nowhere.safetensors", "no such file"),
        ("small.yaml", "not a checkpoint"),
    ):
        with pytest.raises(CheckpointError, match=message):
            weights.read_weights(Path(name))
    with pytest.raises(CheckpointError, match="expected those of 'another'"):
        weights.read_weights(Path(f"{case.name}.safetensors"), "another")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(2).to_sparse(),
        torch.ones(2, device="meta"),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, dtype=torch.uint8).view(torch.bits8),
    ],
    ids=["sparse", "meta", "complex", "bits"],
)
def test_tensors_that_are_no_weights_are_refused(tensor):
    with pytest.raises(CheckpointError, match=r"file\.pt: a is not a dense tensor of real numbers"):
        weights.check_plain({"a": tensor}, Path("file.pt"))


@pytest.mark.parametrize("text", ["5", "[" * 100_000])
def test_a_configuration_that_is_none_is_refused(empty_folder, text):
    save_file({"a": torch.ones(2)}, "config.safetensors", {"benchmark": "x", "epochs_done": "", "config": text})
    with pytest.raises(CheckpointError, match=r"config\.safetensors: its metadata lack .* or config"):
        weights.read_weights(Path("config.safetensors"))


def test_an_export_is_known_by_its_ending(here, capsys):
    assert weights.main(["first", "weights.pt"]) == 1
    assert "ends in .safetensors" in capsys.readouterr().err and not Path("weights.pt").exists()


def test_a_resumed_run_does_not_need_the_file(case, here):
    given = f"train.init_from={case.name}.safetensors"
    assert case.train.main(["small.yaml", given, "output_dir=whole", "train.epochs=2"]) == 4
    assert case.train.main(["small.yaml", given, "output_dir=resumed", "train.epochs=1"]) == 4
    Path(f"{case.name}.safetensors").unlink()
    assert case.train.main(["small.yaml", given, "output_dir=resumed", "train.epochs=2", "--resume"]) == 4
    assert curve("resumed") == curve("whole")
    assert Path("resumed/result_0.txt").read_text().count("init_weights_sha256") == 1


def test_the_documented_lines_load_the_export(case, here):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if f"from {case.name}.train " in block)
    names = {}
    exec(block, names)
    results = [names[name] for name in ("labels", "classes", "energies", "forces") if name in names]
    assert results and all(torch.isfinite(result).all() for result in results)
