"""The training samples that an instance of an ensemble draws: pure functions of seed, instance and number of samples.

Bagging (Breiman 1996, doi:10.1007/BF00058655) trains each member of an ensemble on samples drawn at random from all of
them: some come several times, some not at all. Those that a member did not draw, its out-of-bag samples, can judge it
without a validation set. HPC AI500 V3 (doi:10.1016/j.tbench.2022.100083) uses it to keep more devices busy than one
training run can.

kind        draws of N samples                                      expected share that is drawn at least once
none        each once                                               1
bootstrap   N, each of any sample                                   1 - (1 - 1/N)^N, about 1 - 1/e = 0.632
poisson     of each sample as many as a Poisson number of mean 1    1 - 1/e = 0.632; the number of draws is random, too

The seed is that of instance 0, the same for all instances of a job. Instance i trains with the seed of instance 0 plus
i, so that one that is trained alone finds the draws that it has among others: its own seed minus i. No file is copied:
draws are numbers of samples.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from common.data.sampling import BAGGING, random_bits
from common.settings.run import NONE, Bagging, InstancesConfig

BITS: Final = 53
"""Of a random number in [0, 1): as many as a double has."""
MOST: Final = 20
"""Times that a sample is drawn at most: the probability that a Poisson number of mean 1 is larger is below 2^-53."""


def draw_samples(kind: Bagging, seed: int, instance: int, samples: int) -> np.ndarray:
    """Return the numbers of the samples that an instance draws, ascending, each as often as it is drawn: int64.

    seed: of instance 0. The same on every rank, machine and version, as only raw bits of NumPy's generator are used.
    """
    if kind == NONE:
        return np.arange(samples)
    if seed < 0:
        raise ValueError(f"the seed of instance 0 is {seed}, by that of instance {instance}; expected at least 0")
    uniform = (random_bits(samples, seed, BAGGING, instance) >> np.uint64(64 - BITS)) * 2.0**-BITS
    if kind == "bootstrap":
        draws: np.ndarray = np.sort((uniform * samples).astype(np.int64))
        return draws
    times = np.searchsorted(_POISSON, uniform, side="right")
    return np.repeat(np.arange(samples), times)


def drawn_samples(instances: InstancesConfig, seed: int, samples: int) -> np.ndarray:
    """Return the numbers of the training samples of the first instance, see `draw_samples`.

    seed: of this instance: the seed of instance 0 plus the number of this instance.
    """
    return draw_samples(instances.bagging, seed - instances.number, instances.number, samples)


def out_of_bag(draws: np.ndarray, samples: int) -> np.ndarray:
    """Return the numbers of the samples that are not among the draws, ascending."""
    return np.flatnonzero(np.bincount(draws, minlength=samples) == 0)


_POISSON: Final[np.ndarray] = np.cumsum([1 / (math.e * math.factorial(times)) for times in range(MOST)])
"""Element k: the probability that a Poisson number of mean 1 is at most k."""
