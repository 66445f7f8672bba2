"""The report on CosmoFlow's predictions: the four parameters of each universe."""

from typing import Final

from common.training.predictions.numbers import NumberReport, number_columns

PARAMETERS: Final = ("Omega_m", "sigma_8", "n_s", "H_0")


class Report(NumberReport):
    """Errors of the four parameters, each in half the range of its prior."""

    labels = PARAMETERS
    columns = number_columns(PARAMETERS, "parameters, -1 and 1 at the ends of their ranges")
