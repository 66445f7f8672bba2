"""Show the FLOPS of runs: over the training time, sustained, and by quality."""
