"""Run all runs of a round, then package, check and show them."""
