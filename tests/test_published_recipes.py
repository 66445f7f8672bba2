"""Presets without a reference convergence point train what the logs of their published results state."""

import pytest

from common.config import load
from common.installed import find_config
from common.settings.keys import find_config_class, list_hyperparameters
from compliance.benchmarks import REFERENCES
from compliance.logs.log import METRICS, read_log

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
