"""Train and evaluate: the contract of a benchmark, the loop, and what the loop is made of."""
