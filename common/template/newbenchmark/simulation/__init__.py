"""The physics behind New Benchmark's mini problem."""
