"""Configurations by name."""

from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from common.config import ConfigError
from common.installed import find_config, named_configs
from cosmoflow.train import main as train
from tests.problems import ROOT


@pytest.mark.parametrize("benchmark", PACKAGES)
def test_every_configuration_has_a_name(benchmark):
    configs = named_configs(benchmark)
    assert list(configs)[:2] == ["config", "mini"]
    presets = {path.stem for path in (ROOT / benchmark / "presets").glob("*.yaml")}
    assert set(configs) == {"config", "mini"} | presets


def test_presets_are_listed_by_size_with_their_description(empty_folder, capsys):
    with pytest.raises(SystemExit, match="2"):
        train(["--list-configs", "--nope"])
    assert train(["--list-configs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = "config mini gbs32 gbs64 gbs128 gbs128-tacc gbs512 gbs1024 mini-gbs32".split()
    assert [line.split()[0] for line in lines] == names
    assert lines[1].startswith("mini         CosmoFlow, mini problem: small universes")


def test_the_train_command_takes_names_with_overrides(empty_folder, capsys):
    assert train(["gbs512", "train.seed=7", "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert "global_batch_size: 512\n" in printed and "seed: 7\n" in printed


def test_a_path_is_a_path_and_a_name_is_a_name_whatever_lies_here(empty_folder):
    Path("mini").write_text("")
    Path("mini.yaml").write_text("")
    assert find_config("oc20", "mini") == ROOT / "oc20/mini.yaml"
    for path in ("mini.yaml", "./mini", str(ROOT / "oc20/mini.yaml")):
        assert find_config("oc20", path) == Path(path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gsb128", "cosmoflow has no configuration 'gsb128'; did you mean gbs128? known are config, mini, gbs32"),
        ("recipe", "a file is ./recipe or FILE.yaml"),
        ("cosmoflow/mini.yaml", "cosmoflow/mini.yaml: no such file; the configuration .* is named mini"),
        ("cosmoflow/presets/gbs512.yaml", "is named gbs512"),
    ],
)
def test_what_does_not_exist_is_an_error_that_names_what_does(given, said, empty_folder, capsys):
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        find_config("cosmoflow", given)
    assert train([given, "--print-config"]) == 2
