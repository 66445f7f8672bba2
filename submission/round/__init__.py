"""Train all runs of a round, then package, check and report them."""
