"""Analyse rounds: quantities of each result, figures, fits, projections, cost model."""
