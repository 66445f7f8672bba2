"""Results as the analysis sees them, with given quantities."""

from collections.abc import Callable
from dataclasses import fields

import pytest

from submission.results.quantities import AnalysedRun, AnalysedSet, Statistics
from submission.results.rows import Row

CEILINGS = """
ceilings:
  mine:
    match: [chip]
    peak_flop_per_s: 1e12
    value_bytes: 2
    memory_bytes_per_s: 1e11
    network_bytes_per_s: 1e10
    input_bytes_per_s: 1e10
    source: measured
"""
"""A file of ceilings that is right."""


def analysed_set(system: str, batch: int | None, units: int | None, **quantities: float) -> AnalysedSet:
    """Return a closed result of one run; a quantity may also be a field of its row."""
    given = {
        "verdict": "PASS", "round": "3.0", "organisation": "Example", "division": "closed", "availability": "onprem",
        "system": system, "scaling": "strong", "benchmark": "cosmoflow", "mini": False, "nodes": 1, "processor": "",
        "processors": 1, "accelerator": "NVIDIA V100", "accelerators": units, "framework": "", "batch_size": batch,
        "runs": 1, "required_runs": 1, "incomplete": "",
    }  # fmt: skip
    row = Row(**given | {one.name: quantities.pop(one.name) for one in fields(Row) if one.name in quantities})
    normalisation = quantities.pop("normalisation", 1.0)
    means = {name: Statistics(value, None, value, value, value, 1) for name, value in quantities.items()}
    return AnalysedSet(
        row, "", units, (AnalysedRun("result_0.txt", quantities, True),), means, normalisation=normalisation
    )


@pytest.fixture
def result() -> Callable[..., AnalysedSet]:
    """Return `analysed_set`."""
    return analysed_set
