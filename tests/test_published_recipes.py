"""Presets train what the published reference convergence points state, or the logs of published results."""

from math import ceil

import pytest

from common.benchmarks import ROOT
from common.config import load
from common.installed import find_config
from common.settings.keys import find_config_class, list_hyperparameters
from compliance.benchmarks import REFERENCES
from compliance.logs.log import METRICS, read_log
from compliance.rcp.points import compare_hyperparameters
from compliance.rcp.table import read_table

RESULTS = {
    ("cosmoflow", "gbs128-tacc"): [
        "v1.0/TACC/results/longhorn-tf/strong/cosmoflow",
        "v2.0/tacc/results/longhorn-tf/strong/cosmoflow",
    ],
    ("deepcam", "gbs144"): ["v3.0/Clemson/results/18xR750-2xA100-PCIe-80GB/strong/deepcam"],
    ("deepcam", "gbs256-dell"): [
        "v1.0/ANL/results/thetagpu_n128_pt1.9.0/strong/deepcam",
        "v2.0/Dell/results/32xXE8545x4A100-SXM4-40GB/strong/deepcam",
        "v3.0/Dell/results/32xXE8545x4A100-SXM4-40GB/strong/deepcam",
    ],
}
UNSTATED = {"gradient_accumulation_steps", "sgd_opt_momentum"}
"""Keys that only ours logs."""


def check_cosmoflow(config, said, wanted):
    same = wanted.keys() - {"opt_base_learning_rate", "opt_learning_rate_decay_factor"}
    assert {key: said[key] for key in same} == {key: wanted[key] for key in same}
    # The published points state the first rate, or the peak: one of both.
    rates = (config.schedule.base_lr, said["opt_base_learning_rate"])
    assert wanted["opt_base_learning_rate"] in [pytest.approx(rate) for rate in rates]
    # The reference logs the largest factor alone.
    factors, published = said["opt_learning_rate_decay_factor"], wanted["opt_learning_rate_decay_factor"]
    assert factors == published or max(factors) == published


def check_deepcam(config, said, wanted):
    assert {"opt_lr", "opt_name", "opt_weight_decay", "scheduler_type", "scheduler_lr_warmup_steps"} < set(said)
    assert config.train.tail == "drop"


def check_oc20(config, said, wanted):
    assert said["opt_name"] == "AdamW" and config.optim.weight_decay == 0.01 and set(wanted) <= set(said)
    # The published steps are those of epochs whose last step is a smaller one.
    steps = ceil(config.data.train_samples / config.train.global_batch_size)
    assert config.train.tail == "keep" and config.schedule.warmup_steps == 4 * steps
    assert not any(boundary % steps for boundary in config.schedule.boundaries)


CHECKS = {"cosmoflow": check_cosmoflow, "deepcam": check_deepcam, "oc20": check_oc20}
PUBLISHED = {
    name: [entry for entry in read_table(ROOT / name / "rcps.yaml").entries if entry.variant == "full"]
    for name in CHECKS
}


def preset_of(benchmark, entry):
    """Return the name of a point's preset: a recipe that a later round replaced has the number of its round in it."""
    newer = any(other.batch_size == entry.batch_size and other.rounds > entry.rounds for other in PUBLISHED[benchmark])
    return f"gbs{entry.batch_size}{'-v1' if newer else ''}"


@pytest.mark.parametrize(("benchmark", "entry"), [(name, entry) for name in PUBLISHED for entry in PUBLISHED[name]])
def test_a_preset_is_the_recipe_of_its_convergence_point(benchmark, entry):
    path = find_config(benchmark, preset_of(benchmark, entry))
    config = load(find_config_class(REFERENCES[benchmark]), path)
    said = list_hyperparameters(config)
    assert benchmark == "cosmoflow" or compare_hyperparameters(entry, said) == []
    CHECKS[benchmark](config, said, entry.hyperparameters)
    assert config.train.epochs > max(entry.epochs)
    fewest, most = (int(number(entry.epochs)) for number in (min, max))
    need = f"reference runs need {fewest} to {most} epochs" if fewest < most else f"reference runs need {most} epochs"
    assert need in path.read_text()


@pytest.mark.parametrize("benchmark", PUBLISHED)
def test_every_preset_of_the_full_problem_is_a_published_recipe(benchmark):
    presets = {path.stem for path in (ROOT / benchmark / "presets").glob("gbs*.yaml")}
    recipes = {preset_of(benchmark, entry) for entry in PUBLISHED[benchmark]}
    assert presets == recipes | {preset for name, preset in RESULTS if name == benchmark}


@pytest.mark.parametrize(("benchmark", "preset"), RESULTS)
def test_a_preset_is_the_recipe_of_its_published_result(benchmark, preset, corpus):
    path = find_config(benchmark, preset)
    settings = list_hyperparameters(load(find_config_class(REFERENCES[benchmark]), path))
    epochs = set()
    for folder in RESULTS[benchmark, preset]:
        logs = [read_log(str(file)) for file in (corpus / folder).glob("result_*.txt")]
        assert logs
        for log in logs:
            epochs.add(log.in_order(*METRICS)[-1].metadata["epoch_num"])
            for key in settings.keys() - UNSTATED:
                stated = log.value(key)
                if key == "opt_learning_rate_decay_factor":  # the reference logs the largest alone
                    assert max(settings[key]) == stated
                else:
                    assert settings[key] == (pytest.approx(stated) if isinstance(stated, float) else stated), key
    assert f"needed {min(epochs)} to {max(epochs)} epochs" in path.read_text()
