"""The report on CosmoFlow's predictions: the four parameters of each universe."""

from typing import Final

from common.reference import FULL, MINI, MINI_2
from common.training.predictions import NumberReport, Scale, number_columns
from cosmoflow.simulation.drift import DRIFT
from cosmoflow.simulation.universe import ORIGINAL, WIDE

PARAMETERS: Final = ("Omega_m", "sigma_8", "n_s", "H_0")
PARAMETERS_OF: Final = {MINI_2: ("sigma_8", "drift_x", "drift_y", "drift_z")}
"""By variant, where they are others."""
PRIORS: Final = {FULL: ORIGINAL, MINI: WIDE, MINI_2: DRIFT}
"""By variant: what labels of -1 and 1 stand for."""
UNITS: Final = {"h_0": "km/s/Mpc", "drift_x": "Mpc/h", "drift_y": "Mpc/h", "drift_z": "Mpc/h"}
"""Of the parameters that have one."""


class Report(NumberReport):
    """Errors of the four parameters, each in half the range of its prior."""

    labels = PARAMETERS
    columns = number_columns(PARAMETERS, "labels (the mini problem has others), -1 and 1 at the ends of their ranges")

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in this variant of the problem."""
        return PARAMETERS_OF.get(self.variant, PARAMETERS)

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The physical values of the labels, by the prior of this variant of the problem."""
        if self.variant not in PRIORS:
            return super().scales
        ranges = PRIORS[self.variant].ranges.items()
        return tuple(Scale((low + high) / 2, (high - low) / 2, UNITS.get(name, "")) for name, (low, high) in ranges)
