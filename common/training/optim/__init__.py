"""The optimizers: SGD with Keras's momentum, Adam, AdamW and LAMB, and Muon for the open division.

`build` returns the one of a configuration. All that changes between its steps is in tensors, but for the rate on a CPU,
which is a tensor if it is given as one: a step can be recorded once and repeated, as CUDA graphs do.
"""

from common.settings.optim import OptimConfig
from common.training.optim.algorithms import KerasSGD, Lamb, Muon, orthogonal
from common.training.optim.choice import build, set_rate

__all__ = ["KerasSGD", "Lamb", "Muon", "OptimConfig", "build", "orthogonal", "set_rate"]
