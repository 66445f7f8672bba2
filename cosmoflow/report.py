"""The report on CosmoFlow's predictions: the four parameters of each universe."""

from typing import Final

from common.reference import MINI_2
from common.training.predictions.report import NumberReport, number_columns

PARAMETERS: Final = ("Omega_m", "sigma_8", "n_s", "H_0")
PARAMETERS_OF: Final = {MINI_2: ("sigma_8", "drift_x", "drift_y", "drift_z")}
"""By variant, where they are others."""


class Report(NumberReport):
    """Errors of the four parameters, each in half the range of its prior."""

    labels = PARAMETERS
    columns = number_columns(PARAMETERS, "labels (the mini problem has others), -1 and 1 at the ends of their ranges")

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in this variant of the problem."""
        return PARAMETERS_OF.get(self.variant, PARAMETERS)
