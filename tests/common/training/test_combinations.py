"""What cannot work is refused by --print-config too, with the place of the value at fault."""

from importlib import import_module
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from common.config import load
from common.installed import named_configs
from common.training.resolve import check_combinations


@pytest.fixture
def printed(empty_folder, tmp_path, capsys):
    """Run `train ... --print-config` in an empty folder; return the error, "" if there is none."""

    def call(name, *words):
        before = sorted(tmp_path.iterdir())
        status = import_module(f"{name}.train").main([*words, "--print-config"])
        out, err = capsys.readouterr()
        assert sorted(tmp_path.iterdir()) == before and (status, bool(out)) == ((2, False) if err else (0, True))
        return err

    return call


@pytest.mark.parametrize(
    ("name", "words", "at_fault", "says"),
    [
        (
            "cosmoflow",
            "mini schedule.warmup_epochs=200",
            1,
            "the warm-up ends after 200 epochs, but train.epochs is 16",
        ),
        ("cosmoflow", "mini train.epochs=9 schedule.warmup_epochs=10", 2, "train.epochs is 9"),
        ("deepcam", "gbs256 submission.division=open schedule.warmup_steps=20_000", 2, "after 42.28 epochs"),
        ("oc20", "config schedule.warmup_steps=300_000", 1, "after 38.4 epochs, but train.epochs is 30"),
        ("deepcam", "mini data.pipeline=dali", 1, "reads only npy files"),
        ("cosmoflow", "mini data.sample_shape=[16,16,16,4] model.conv_layers=5", 2, "too small for model.conv_layers"),
        ("deepcam", "mini schedule.base_lr=.inf", 1, "schedule.base_lr is inf; expected finite numbers"),
        ("oc20", "mini data.energy_std=.nan", 1, "data.energy_std is nan; expected finite numbers"),
        ("cosmoflow", "mini model.conv_layers=1000000000000", 1, "expected at most 5 layers"),
        ("deepcam", "mini model.middle_blocks=1000000000000", 1, "is 1,000,000,000,000; expected 0 to 1,024"),
        ("deepcam", "mini model.aspp_rates=[65537]", 1, "model.aspp_rates is [65537]; expected at most 65,536"),
        ("oc20", "mini model.hidden=65537", 1, "model.hidden is 65537; expected at most 65,536"),
        ("oc20", "mini model.spherical=256", 1, "spherical is 256; expected 1 to 12"),
        ("deepcam", "mini model.width=1e9", 1, "width is 1e+09; expected more than 0, at most 64"),
        ("cosmoflow", "mini modle=3", 1, "did you mean model?"),
        ("cosmoflow", "mini train.batchsize=4", 1, "did you mean train.global_batch_size?"),
        ("deepcam", "mini train.num_workers=4", 1, "did you mean data.workers?"),
        ("oc20", "mini steps=4", 1, "did you mean train.steps?"),
        ("oc20", "mini device=cpu", 1, "did you mean dist.device?"),
        ("cosmoflow", "mini model.kernel_size=8", 1, "the last of model.conv_layers = 4 sees only 4 voxels a side"),
        ("cosmoflow", "mini data.sample_shape=[32,32,16,4]", 1, "augment is 'vector_symmetries', but sample_shape is"),
        ("cosmoflow", "mini train.global_batch_size=4 train.accumulation=8", 2, "more parts than the 4 samples"),
        ("cosmoflow", "mini optim.name=sgd optim.weight_decay=0.1", 2, "name is sgd, which has none"),
        ("oc20", "mini optim.name=sgd", 1, "weight_decay is 0.01, but name is sgd"),
        ("cosmoflow", "mini instances.count=2 train.eval_ranks=1", 2, "expected 0, so that the ranks of each instance"),
    ],
)
def test_what_cannot_work_is_refused(printed, name, words, at_fault, says):
    given = [word.replace("~", " ") for word in words.split()]
    error = printed(name, *given)
    assert error.startswith(f"error: override {given[at_fault]!r}: ") and says in error


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.conv_size=65536", "the weights of this network would need 19,484 GB"),
        (
            "data.sample_shape=[1000000000000,1000000000000,1000000000000,4]",
            "; expected smaller sizes in section model or data.sample_shape",
        ),
    ],
)
def test_a_network_that_cannot_be_made_is_refused_before_anything_is(override, says, tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert import_module("cosmoflow.train").main(["mini", override]) == 2 and not list(tmp_path.iterdir())
    error = capsys.readouterr().err
    assert error.startswith(f"error: override {override!r}: ") and says in error


def test_a_file_is_named_and_of_several_the_one_with_the_value(printed, tmp_path):
    (tmp_path / "far.yaml").write_text("output_dir: x\ndata: {data_dir: y}\nschedule: {base_lr: -1}\n")
    (tmp_path / "near.yaml").write_text("base: far.yaml\ntrain: {epochs: 5}\n")
    assert printed("cosmoflow", "near.yaml").startswith("error: far.yaml (base of near.yaml): schedule: base_lr is -1")
    (tmp_path / "far.yaml").write_text("output_dir: x\ndata: {data_dir: y}\nschedule: {warmup_epochs: 9}\n")
    assert printed("cosmoflow", "near.yaml").startswith("error: near.yaml: schedule.warmup_epochs is 9")


def test_a_short_trial_of_a_recipe_is_none_of_them(printed):
    assert not printed("cosmoflow", "config", "train.epochs=1", "submission.division=open")
    assert not printed("cosmoflow", "mini", "train.epochs=1", "schedule.base_lr=0.1")
    assert not printed("oc20", "config", "train.epochs=1", "data.train_samples=null", "submission.division=open")


def test_the_closed_division_names_the_places_of_the_values(printed):
    error = printed("cosmoflow", "config", "optim.name=muon", "data.shift=0.5")
    assert "optim.name is \"muon\" (override 'optim.name=muon'); closed: 'sgd'" in error
    assert "data.shift is 0.5 (override 'data.shift=0.5'); closed: 0.0" in error


@pytest.mark.parametrize("name", PACKAGES)
def test_every_configuration_that_comes_with_the_suite_works(name):
    for path in named_configs(name).values():
        check_combinations(load(import_module(f"{name}.settings").Config, Path(path)), ())
