"""The report on predicted numbers: its R² where there is a variance to explain, and where there is none."""

import numpy as np

from cosmoflow.report import Report


def test_a_share_of_no_variance_is_none():
    report = Report()
    truth = np.full((1, 4), 0.3, dtype=np.float32)
    report.add({"predictions": truth + 0.1, "targets": truth})
    assert [errors["r2"] for errors in report.facts().values()] == [None] * 4
    lines = [*report.lines()]
    assert lines[1].endswith(" -") and "one sample" in lines[-1]
    report.add({"predictions": -truth, "targets": -truth})
    assert (
        all(0.9 < errors["r2"] < 1 for errors in report.facts().values()) and "one sample" not in [*report.lines()][-1]
    )
