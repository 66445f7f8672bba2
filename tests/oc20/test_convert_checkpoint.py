"""The normalisation in a checkpoint of the reference's OC20."""

from pathlib import Path

import pytest
import torch

from common.commands.convert import renamed
from common.config import load
from common.named_configs import find_config
from common.training import weights
from oc20.convert_checkpoint import RULES, main
from oc20.train import BENCHMARK

SMALL = "model.hidden=8 model.blocks=1 model.radial=3 model.spherical=2 model.interaction=4 model.out=8".split()


@pytest.fixture
def convert(tmp_path, monkeypatch):
    """Convert a checkpoint with these normalisers; return the exit code."""
    monkeypatch.chdir(tmp_path)
    config = load(BENCHMARK.config, find_config("oc20", "config"), SMALL)
    ours = BENCHMARK.predictor.network(config).state_dict()
    names = renamed(ours, RULES)

    def converted(normalizers):
        state = {f"module.{names[name]}": tensor for name, tensor in ours.items()}
        torch.save({"state_dict": state, "normalizers": normalizers}, "official.pt")
        return main(["official.pt", "ours.safetensors", *SMALL])

    return converted


def normalizer(mean, std):
    return {"mean": torch.tensor(mean), "std": torch.tensor(std)}


def test_it_becomes_that_of_the_configuration(convert):
    assert convert({"target": normalizer(-1.25, 2.5), "grad_target": normalizer(0.0, 2.5)}) == 0
    found = weights.read(Path("ours.safetensors"))
    assert (found.config["data"]["energy_mean"], found.config["data"]["energy_std"]) == (-1.25, 2.5)
    facts = found.interface["preprocessing"]
    assert (facts["energy_mean"], facts["energy_std"]) == (-1.25, 2.5)
    assert main(["ours.safetensors", "back.pt"]) == 0
    back = torch.load("back.pt", weights_only=True)["normalizers"]
    assert float(back["target"]["mean"]) == -1.25 and float(back["grad_target"]["std"]) == 2.5


def test_without_one_the_configuration_decides(convert):
    assert convert({}) == 0
    assert weights.read(Path("ours.safetensors")).config["data"]["energy_std"] == pytest.approx(2.887317180633545)


@pytest.mark.parametrize(
    ("normalizers", "message"),
    [
        (
            {"target": normalizer(0.0, 2.0), "grad_target": normalizer(0.0, 3.0)},
            "expected mean 0 and the same",
        ),
        (
            {"target": normalizer(0.0, 2.0), "grad_target": normalizer(0.1, 2.0)},
            "expected mean 0 and the same",
        ),
        ({"target": normalizer(0.0, 2.0)}, "its `normalizers` lack a number"),
        ({"target": normalizer([0.0, 1.0], 2.0), "grad_target": normalizer(0.0, 2.0)}, "lack a number"),
    ],
)
def test_one_that_forces_cannot_have_is_refused(convert, normalizers, message, capsys):
    assert convert(normalizers) == 1
    assert message in capsys.readouterr().err and not Path("ours.safetensors").exists()
