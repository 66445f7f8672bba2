"""What `bench/gpu.py` measures on one GPU, by subject; see docs/performance/gpu.md."""
