"""The report on predicted numbers: its R² where there is a variance to explain, and where there is none."""

import numpy as np

from cosmoflow.predictor import Report


def test_a_share_of_no_variance_is_not_shown():
    report = Report()
    truth = np.full((1, 4), 0.3, dtype=np.float32)
    report.add({"predictions": truth + 0.1, "targets": truth})
    _, *rows, note = report.lines()
    assert len(rows) == 4 and all(row.endswith(" -") for row in rows) and "one sample" in note
    report.add({"predictions": -truth, "targets": -truth})
    _, *rows = report.lines()
    assert len(rows) == 4 and all(0.9 < float(row.split()[-1]) < 1 for row in rows)
