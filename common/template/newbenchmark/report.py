"""The report on predictions of New Benchmark: one number for each plate."""

from typing import Final

from common.training.predictions import NumberReport, number_columns

LABELS: Final = ("log10(D) - 0.5",)


class Report(NumberReport):
    """Errors of the label of each plate."""

    labels = LABELS
    columns = number_columns(LABELS, "label of a plate")
