"""CosmoFlow's baselines: structure functions tell the drift, isotropic statistics cannot."""

import numpy as np
import pytest

from cosmoflow.baselines import STEPS, Statistics, fit_ridge, measure_differences
from cosmoflow.simulation import drift
from cosmoflow.simulation.drift import DRIFT
from cosmoflow.simulation.universe import Box


def test_moments_of_differences_along_an_axis():
    slope = np.array([0, 1, 2, 3]).reshape(1, 4, 1, 1)  # differences of 1, 1, 1, -3 along the second axis
    logs = np.broadcast_to(slope, (4, 4, 4, 2))
    moments = measure_differences(np.expm1(logs)).reshape(3, len(STEPS), 2, 2)
    assert moments[1, 0] == pytest.approx(np.array([[-6, -6], [3, 3]]), rel=1e-5)
    assert not moments[[0, 2]].any()


def test_a_linear_model_of_structure_functions_recovers_the_drift():
    rng, box = np.random.default_rng(0), Box(16, 16, 128.0)
    labels = rng.uniform(-1, 1, (90, 4))
    universes = [drift.simulate(label, DRIFT, box, np.random.default_rng([1, n])) for n, label in enumerate(labels)]

    def measure_errors(statistics):
        x = np.array([statistics(counts) for counts in universes], np.float64)
        guess, _ = fit_ridge(x[:60], labels[:60], x[60:])
        return np.abs(guess - labels[60:]).mean(0)

    assert measure_errors(measure_differences)[1:].max() < 0.3
    isotropic = measure_errors(Statistics(16))
    assert isotropic[0] < 0.3 and isotropic[1:].min() > 0.4  # without the drift the error is 0.5
