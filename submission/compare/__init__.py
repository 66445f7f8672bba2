"""Compare two results: settings, convergence, times, scores."""
