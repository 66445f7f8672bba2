"""Results of rounds and runs: rows, tables, comparisons, figures, projections and the page."""

from __future__ import annotations
