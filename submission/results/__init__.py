"""Results of rounds and runs: rows, tables, figures, projections and the page."""
