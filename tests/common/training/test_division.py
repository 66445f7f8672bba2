"""Closed is enforced twice: trainer and checker refuse each key that departs from it, and no key that is free."""

import json
import os
import subprocess
import sys

import pytest

from common.benchmarks import PACKAGES
from common.config import ConfigError, list_leaves, load, to_dict
from common.reference import FREE
from common.settings.keys import compare_closed, find_config_class, find_log_values, find_rows_of, list_hyperparameters
from common.training import resolve
from common.version import VERSION
from compliance.benchmarks import REFERENCES
from compliance.engine.log_checker import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.judging import Case
from compliance.samples.log import SampleLog
from tests.problems import ROOT

EVERYWHERE = {
    "instances.bagging": "bootstrap",
    "train.init_from": "before.safetensors",
    "train.problem": "mine",
    "variant": "mini",
    "submission.division": "open",
    "data.train_samples": 1000,
    "data.eval_samples": 1000,
    "train.target": 0.9,
    "train.steps": 100,
    "train.flop": 1e15,
}
DEPARTURES = {
    "cosmoflow": {
        "data.sample_shape": [64, 64, 64, 4],
        "data.apply_log": False,
        "data.shift": 0.5,
        "data.scale": 2.0,
        "data.augment": "symmetries",
        "data.roll_step": 1,
        "model.conv_size": 4,
        "model.conv_layers": 4,
        "model.fc1": 32,
        "model.fc2": 32,
        "model.kernel_size": 2,
        "model.dropout": 1.0,
        "model.l2": -0.1,
        "optim.name": "muon",
        "optim.momentum": 0.8,
        "optim.weight_decay": 0.1,
        "schedule.kind": "cosine",
        "schedule.decay": {"3": 1.5},
    },
    "deepcam": {
        "data.height": 384,
        "data.width": 576,
        "data.channels": [0, 1],
        "data.augment": "symmetries",
        "model.width": 0.25,
        "model.middle_blocks": 1,
        "model.output_stride": 8,
        "model.aspp_rates": [1, 2, 3, 4],
        "class_weights": [1.0, 1.0, 1.0],
        "batchnorm_group_size": 0,
        "optim.name": "muon",
        "optim.eps": 1e-8,
        "optim.weight_decay": -0.1,
        "optim.max_grad_norm": 2.0,
    },
    "oc20": {
        "data.energy_mean": 0.0,
        "data.energy_std": 1.0,
        "model.hidden": 96,
        "model.blocks": 2,
        "model.radial": 5,
        "model.spherical": 6,
        "model.cutoff": 5.0,
        "model.interaction": 32,
        "model.basis": 4,
        "model.out": 96,
        "model.before_skip": 2,
        "model.after_skip": 1,
        "model.output_layers": 2,
        "model.envelope_exponent": 6,
        "model.detach_angles": False,
        "optim.name": "lamb",
        "optim.weight_decay": 0.0,
        "optim.betas": [0.9, 0.99],
        "optim.eps": 1e-6,
        "schedule.warmup_factor": 1.5,
        "schedule.decay_factor": 1.5,
    },
}
CHANGES = [(name, key, value) for name in PACKAGES for key, value in (EVERYWHERE | DEPARTURES[name]).items()]
RECIPES = [(name, path) for name in PACKAGES for path in (ROOT / name).glob("presets/gbs*.yaml")]
RECIPES += [(name, ROOT / name / "config.yaml") for name in PACKAGES]


def check_closed_division(name, *overrides, path=None):
    config = load(find_config_class(REFERENCES[name]), path or ROOT / name / "config.yaml", overrides)
    resolve.check_closed_division(config, {})
    return config


def findings_of(log):
    return judge_log(parse_log(log.bytes(), "result_0.txt"), LogTask("result_0.txt", Case(log.round))).findings


def found_in(log):
    """Return the errors about a closed log as (rule, key)."""
    return {(finding.rule, finding.key) for finding in findings_of(log) if finding.severity == "error"}


def flat(config):
    """Return a configuration by dotted key, as a log has it."""
    tree = json.loads(json.dumps(to_dict(config)))
    return {leaf.name: leaf.find_value(tree) for leaf in list_leaves(type(config))}


def log_of(name, config):
    """Return the log of a run with a configuration."""
    settings = list_hyperparameters(config)
    log = SampleLog(name, config.submission.round, settings=settings).by_suite(flat(config))
    for key in REFERENCES[name].example.settings[log.round].keys() - settings.keys():
        log.drop(key)  # of another schedule
    return log.set("submission_org", config.submission.org).set("submission_platform", config.submission.platform)


def test_there_is_a_departure_for_each_key_that_is_not_free():
    for name in PACKAGES:
        asked = {row.key for row in find_rows_of(REFERENCES[name], VERSION) if row.allowed is not FREE}
        departures = EVERYWHERE.keys() | DEPARTURES[name].keys()
        assert not asked - departures, f"add values that the closed division refuses to DEPARTURES[{name!r}] above"
        assert not departures - asked, f"closed asks nothing of these: take them out of DEPARTURES[{name!r}] above"


@pytest.mark.parametrize(("name", "key", "value"), CHANGES)
def test_a_departure_is_refused_by_the_trainer(name, key, value):
    if key == "submission.division":
        check_closed_division(name, f"{key}={value}", "train.target=0.9")  # the way out
        return
    with pytest.raises(ConfigError, match=key.rpartition(".")[2]):
        check_closed_division(name, f"{key}={json.dumps(value)}")


@pytest.mark.parametrize(("name", "key", "value"), CHANGES)
def test_a_departure_is_refused_by_the_checker(name, key, value):
    assert ("SET11", key) in found_in(SampleLog(name).by_suite({key: value}))


def other(value):
    """Return a value of another type or amount, which only a key that is free can have."""
    return "elsewhere" if value is None or isinstance(value, str | dict | list) else not value


@pytest.mark.parametrize("name", PACKAGES)
def test_what_is_free_passes_both(name):
    reference, values = REFERENCES[name], flat(check_closed_division(name))
    free = {row.key: other(values[row.key]) for row in find_rows_of(reference, VERSION) if row.allowed is FREE}
    assert len(free) > 30
    for round_ in reference.rounds:
        assert not compare_closed(values | free, reference, round_).refused
        assert not found_in(SampleLog(name, round_).by_suite(free)) & {("SET11", key) for key in free}


@pytest.mark.parametrize(("name", "path"), RECIPES)
def test_the_recipes_pass_both(name, path):
    assert not findings_of(log_of(name, check_closed_division(name, path=path)))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_log_that_contradicts_its_configuration_is_refused(name):
    """Every setting that the trainer logs and the configuration decides, one at a time."""
    config = check_closed_division(name, "train.seed=1000", 'submission.org="Another"')
    stated = [key for key in find_log_values(REFERENCES[name]) if log_of(name, config).records_of(key)]
    assert len(stated) > 15
    for key in stated:
        log = log_of(name, config)
        value = log.records_of(key)[0]["value"]
        log.set(key, "changed" if isinstance(value, str) else [7] if isinstance(value, list) else value + 1)
        assert ("SET11", key) in found_in(log), key


def test_a_refused_run_makes_nothing_and_names_keys_values_and_ways_out(tmp_path):
    done = subprocess.run(
        [sys.executable, *"-m cosmoflow.train config model.conv_size=4 data.augment=symmetries train.epochs=3".split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    first, *keys, last = done.stderr.splitlines()
    assert "submission.division is closed" in first and "submission.division=open" in last
    assert [line.split()[0] for line in keys] == ["data.augment", "model.conv_size"]
    assert keys[1].strip() == (
        "model.conv_size is 4 (override 'model.conv_size=4'); closed: 32 (training_rules.adoc#graph-definition)"
    )


def test_fewer_samples_than_the_dataset_has_are_refused():
    config = check_closed_division("oc20", "data.train_samples=null")
    resolve.check_sample_counts(config, 2_000_000, 999_866)
    with pytest.raises(ConfigError, match=r"data\.train_samples: data/oc20 has 64, .* submission\.division=open"):
        resolve.check_sample_counts(config, 64, 999_866)


def test_rounds_have_their_own_network():
    first = ('submission.round="0.7"', "data.train_samples=262144")
    check_closed_division("cosmoflow", *first, "model.kernel_size=2")
    with pytest.raises(ConfigError, match=r"model\.kernel_size is 3; closed: 2 "):
        check_closed_division("cosmoflow", *first)
    assert not found_in(SampleLog("cosmoflow", "0.7").by_suite())
    assert found_in(SampleLog("cosmoflow", "0.7").by_suite({"model.kernel_size": 3})) == {
        ("SET11", "model.kernel_size")
    }
