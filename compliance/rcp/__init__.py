"""Reference convergence points: tables, statistics, and the comparison of a result with them."""
